"""Quasi-random points as normal numbers and as the largest of several: against SciPy's distributions."""

import inspect

import numpy as np
import pytest
from scipy import stats

from bellmanifold.gaussian import points
from bellmanifold.gaussian.points import normal_points, uniform_points
from bellmanifold.gaussian.sobol import sobol_points

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
    found = inspect.unwrap(uniform_points)(1, 0, 4, 1, 0)
    np.testing.assert_array_equal(found[:, 1:], net[:, 1:])
    normal = normal_points(found)
    assert np.isfinite(normal).all()
    assert normal[0, 0] < -8.0, "less probable than any other point of the net"


def test_many_coordinates_change_places_from_scrambling_to_scrambling():
    """Each net is stratified in every coordinate as before, and the beginning of a larger one; two coordinates that fit
    badly, so that their first points lie in stripes, do so in few of the nets.

    The nets' first 256 points in 256 boxes of 16 x 16: in its own order Sobol's sequence leaves so many of them empty
    for some two coordinates in every scrambling; here the mean over scramblings is close to that of all others.
    """
    dimension, size, nets = 80, 256, 32
    found = uniform_points(dimension, 0, size, nets, 5).reshape(dimension, nets, size)
    np.testing.assert_array_equal(
        np.sort(np.floor(size * found), axis=2), np.broadcast_to(np.arange(size), found.shape)
    )
    larger = uniform_points(dimension, size, size, nets, 5, only=3)
    both = np.concatenate([found[:, 3], larger], axis=1)
    np.testing.assert_array_equal(np.sort(np.floor(2 * size * both), axis=1)[7], np.arange(2 * size))
    plain = sobol_points(dimension, 0, size, [np.random.default_rng(k) for k in range(nets)])
    own, other = (empty_boxes(points.reshape(dimension, nets, size)) for points in (plain, found))
    assert own.max() > 0.7, "two coordinates of the plain sequence always leave most boxes empty"
    assert other[points.ORDERED :, points.ORDERED :].max() < 0.55
    np.testing.assert_array_equal(uniform_points(dimension, 0, size, nets, 5, only=3), found[:, 3])


def empty_boxes(net):
    """The share of 16 x 16 boxes without a point, for every two coordinates, as a mean over nets."""
    box = np.floor(16 * net).astype(np.int64)
    dimension, nets, _ = net.shape
    share = np.zeros((dimension, dimension))
    for i in range(dimension):
        for j in range(i):
            cell = 256 * np.arange(nets)[:, None] + 16 * box[i] + box[j]
            share[i, j] = np.mean(np.bincount(cell.ravel(), minlength=256 * nets) == 0)
    return share
