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


def test_direction_numbers_without_the_table(monkeypatch, tmp_path):
    """As many as a net of 2^12 points needs: SciPy counts up to them one by one."""
    expected = sobol.directions.__wrapped__(7)
    monkeypatch.setattr(sobol, "TABLE", tmp_path / "elsewhere")
    monkeypatch.setattr(sobol, "MOST_DOUBLINGS", 12)
    np.testing.assert_array_equal(sobol.directions.__wrapped__(7)[:, :12], expected[:, :12])
