"""Exchangeable Gaussians of which only the largest is known: against quadrature, SciPy's distributions and draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from bellmanifold.gaussian.exchangeable import (
    FAR,
    HIGH,
    _far_below,
    largest_of_normals,
    member_moments,
)

NORMAL = np.array([-30.0, -7.0, -1.0, 0.0, 0.4, 3.0, 7.0, HIGH - 1e-9, HIGH + 1e-9, 12.0, 60.0])
PLACES = (-1e9, -3e4, -50.0, -FAR - 1e-9, -FAR + 1e-9, -4.0, -1.0, 0.0, 0.3, 2.0, 8.0, 40.0)
"""Where the largest lies, in sds from the mean."""


def by_quadrature(z):
    """Mean and variance of the distance u of a standard normal below z: its density is exp(z u - u^2 / 2), up to scale.

    Taken in units of 1 / |z| far below the mean, where it decays so fast.
    """
    unit = 1.0 / max(1.0, -z)
    top = max(z, 0.0)  # where the density is highest

    def moment(power, about=0.0):
        def integrand(v):
            u = unit * v
            return (v - about) ** power * np.exp(z * u - 0.5 * u**2 - z * top + 0.5 * top**2)

        options = {"epsabs": 0.0, "epsrel": 1e-12, "limit": 400}
        return sum(
            quad(integrand, *ends, **options)[0] for ends in ((0.0, top), (top, top + 45.0)) if ends[0] < ends[1]
        )

    whole = moment(0)
    mean = moment(1) / whole
    return unit * mean, unit**2 * moment(2, mean) / whole


def moments_of(*arguments):
    """The moments by NumPy and by JAX, which agree to rounding (of the sd, where a mean happens to be near 0)."""
    largest, count, mean, sd, centre = arguments
    found = member_moments(np.asarray(largest), np.asarray(count), np.asarray(mean), np.asarray(sd), np.asarray(centre))
    again = jax.jit(member_moments)(*(jnp.asarray(argument) for argument in arguments))
    np.testing.assert_allclose(found[0], again[0], rtol=1e-11, atol=1e-14 * np.max(sd))
    np.testing.assert_allclose(found[1], again[1], rtol=1e-11)
    return found


@pytest.mark.parametrize("z", PLACES)
def test_members_by_quadrature(z):
    """About the largest itself, so that distances far smaller than the values show."""
    mean, sd, count = np.array([0.5]), np.array([2.0]), np.array([3])
    largest = mean + sd * z
    gap, variance = by_quadrature(z)
    first, square = moments_of(largest, count, mean, sd, largest)
    below = largest - sd * gap if z < 0 else mean + sd * (z - gap)
    np.testing.assert_allclose(first, largest / 3 + 2 / 3 * below, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(square, 2 / 3 * sd**2 * (gap**2 + variance), rtol=1e-9)


@pytest.mark.parametrize("t", [6.0, 7.0, 20.0])
def test_sixteen_levels_of_the_continued_fraction_are_as_good_as_four_thousand(t):
    """The estimate of what is left out at the last of them gives two more digits than none."""
    tail = t
    for level in range(4000, 2, -1):
        tail = t + level / tail
    gap = 1.0 / (t + 2.0 / tail)
    found = _far_below(np.array([t]), np)
    np.testing.assert_allclose(found[0], gap, rtol=1e-14)
    np.testing.assert_allclose(found[1], gap * (2.0 / tail - gap), rtol=3e-13)


def test_members_of_each_row_have_their_own_law():
    """Shapes are broadcast; shifting everything shifts the mean, scaling everything scales both moments."""
    z, count = np.array([[-2.0], [0.0], [1.5]]), np.array([1, 2, 5, 1000])
    mean, sd = np.array([0.0, -3.0, 7.0, 1.0]), np.array([1.0, 0.1, 20.0, 3.0])
    one, nothing = np.ones(1), np.zeros(1)
    first, square = moments_of(z, count, nothing, one, np.array([0.25]))
    moved, scaled = moments_of(mean + sd * z, count, mean, sd, mean + 0.25 * sd)
    assert moved.shape == scaled.shape == (3, 4)
    np.testing.assert_allclose(moved, mean + sd * first, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(scaled, sd**2 * square, rtol=1e-12)
    np.testing.assert_allclose(first[:, 0], z[:, 0], rtol=1e-15)
    np.testing.assert_allclose(square[:, 0], (z[:, 0] - 0.25) ** 2, rtol=1e-14)


def test_a_small_spread_about_a_large_value_is_not_lost():
    """With a mean of 1e8 and an sd of 1e-3 a second moment about 0 would have no digit of the variance."""
    mean, sd = np.array([1e8]), np.array([2.0**-10])
    first, square = moments_of(mean + sd, np.array([2]), mean, sd, mean)
    below = stats.truncnorm(-np.inf, 1.0)
    np.testing.assert_allclose(square, sd**2 * (1.0 + below.moment(2)) / 2, rtol=1e-7)
    np.testing.assert_allclose(first, mean + sd * (1.0 + below.mean()) / 2, rtol=1e-15)


def test_members_by_simulation():
    """Draws of three normals, one of them and their largest: the mean of x - E[x | largest], and that of
    (x - c)^2 - E[(x - c)^2 | largest], in five bins of the largest, within 4.5 standard errors of 0. Ten comparisons:
    false-alarm rate 7e-5."""
    rng = np.random.default_rng(4)
    draws = rng.normal(1.0, 2.0, size=(200_000, 3))
    largest = draws.max(axis=1)
    first, square = moments_of(largest, np.array([3]), np.array([1.0]), np.array([2.0]), np.array([0.5]))
    surprises = np.stack([draws[:, 0] - first, (draws[:, 0] - 0.5) ** 2 - square])
    bins = np.digitize(largest, np.quantile(largest, [0.2, 0.4, 0.6, 0.8]))
    for k in range(5):
        own = surprises[:, bins == k]
        assert (np.abs(own.mean(axis=1)) < 4.5 * own.std(axis=1) / np.sqrt(own.shape[1])).all()


@pytest.mark.parametrize("count", [2, 3, 50])
def test_the_largest_keeps_the_quantile(count):
    """Phi(m)^k = Phi(z), in logarithms of whichever side is small."""
    found = largest_of_normals(NORMAL, np.array([count]))
    low = NORMAL <= 5
    np.testing.assert_allclose(count * stats.norm.logcdf(found[low]), stats.norm.logcdf(NORMAL[low]), rtol=1e-10)
    above = stats.norm.logsf(NORMAL[~low]) - np.log(count)
    np.testing.assert_allclose(stats.norm.logsf(found[~low]), above, rtol=1e-6)
    assert (np.diff(found) > 0).all()


def test_the_largest_of_one_is_itself():
    np.testing.assert_array_equal(largest_of_normals(NORMAL, np.array([1])), NORMAL)
