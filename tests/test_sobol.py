"""Sobol nets against SciPy's."""

import numpy as np
import pytest
from scipy.stats import qmc

from bellmanifold.gaussian import sobol


@pytest.mark.parametrize(("dimension", "begin", "size"), [(1, 0, 1), (3, 0, 1024), (22, 1024, 1024), (90, 512, 256)])
def test_the_points_are_scipys(dimension, begin, size):
    seeds = (3, 4)
    found = sobol.sobol_points(dimension, begin, size, [np.random.default_rng(seed) for seed in seeds])
    for k, seed in enumerate(seeds):
        net = qmc.Sobol(dimension, scramble=True, rng=np.random.default_rng(seed))
        if begin:
            net.fast_forward(begin)
        np.testing.assert_array_equal(found[:, k * size : (k + 1) * size], net.random(size).T)


def test_direction_numbers_without_the_table(tmp_path):
    """Read off SciPy's points, as many as nets of 2^24 points need."""
    found, expected = sobol.directions(7, tmp_path / "elsewhere"), sobol.directions(7)
    np.testing.assert_array_equal(found[:, : sobol.MOST_DOUBLINGS], expected[:, : sobol.MOST_DOUBLINGS])
