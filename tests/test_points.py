"""Quasi-random points as normal numbers and as the largest of several: against SciPy's distributions."""

import numpy as np
import pytest
from scipy import stats

from bellmanifold.gaussian import points
from bellmanifold.gaussian.points import normal_points, uniform_points

UNIFORM = np.array([1e-12, 0.03, 0.4, 0.5, 0.77, 0.999])


def test_one_normal_number_has_the_points_as_its_quantiles():
    np.testing.assert_allclose(stats.norm.cdf(normal_points(UNIFORM)), UNIFORM, rtol=1e-13)


@pytest.mark.parametrize("of", [2, 3, 10])
def test_the_largest_of_several_has_the_points_as_its_quantiles(of):
    """P(max <= x) = Phi(x)^k."""
    np.testing.assert_allclose(stats.norm.cdf(normal_points(UNIFORM, of)) ** of, UNIFORM, rtol=1e-12)


def test_nets_are_scrambled_independently():
    found = uniform_points(2, 0, 256, 3, 5)
    nets = found.reshape(2, 3, 256)
    assert not np.array_equal(nets[:, 0], nets[:, 1])
    for net in nets.reshape(6, 256):
        np.testing.assert_array_equal(np.sort(np.floor(256 * net)), np.arange(256))
    np.testing.assert_array_equal(found, uniform_points(2, 0, 256, 3, 5))
    np.testing.assert_array_equal(nets[:, 1], uniform_points(2, 0, 256, 3, 5, only=1))
    assert not np.array_equal(found, uniform_points(2, 0, 256, 3, 6))


def test_a_point_on_the_edge_of_the_cube_is_a_finite_normal_number(monkeypatch):
    """A net may hold 0; other points, multiples of 2^-30, are left as they are."""
    net = np.array([[0.0, 2.0**-30, 0.5, 1.0 - 2.0**-30]])
    monkeypatch.setattr(points, "sobol_points", lambda *_: net.copy())
    found = uniform_points.__wrapped__(1, 0, 4, 1, 0)
    np.testing.assert_array_equal(found[:, 1:], net[:, 1:])
    normal = normal_points(found)
    assert np.isfinite(normal).all()
    assert normal[0, 0] < -8.0, "less probable than any other point of the net"
