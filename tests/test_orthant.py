"""Gaussian orthants against closed forms, one-dimensional quadrature and SciPy's distribution function."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import dblquad, quad
from scipy.special import log_ndtr, ndtr
from scipy.stats import multivariate_normal, norm

from bellmanifold.posteriors.orthant import Orthants, lattice, moments, orthants
from bellmanifold.posteriors.staircase import arrange, factor_of


def estimated(mean, covariance, points=1024, replicates=16, seed=0):
    """One Gaussian vector, by its covariance: triangular form and estimate."""
    staircase = arrange(np.array([mean], dtype=float), factor_of(np.array([covariance], dtype=float)))
    return staircase, orthants(staircase, points, replicates, np.random.default_rng(seed))


def log_probability(estimate: Orthants) -> tuple[float, float]:
    value, error = estimate.summary()
    return float(value[0]), float(error[0])


def equicorrelated(dim: int, mean: float, correlation: float) -> float:
    """P(D >= 0) for D_i = mean + sqrt(rho) x + sqrt(1 - rho) y_i, by quadrature over x."""

    def integrand(x: float) -> float:
        edge = (mean + np.sqrt(correlation) * x) / np.sqrt(1.0 - correlation)
        return np.exp(norm.logpdf(x) + dim * log_ndtr(edge))

    peak = max(np.linspace(-20, 20, 4001), key=integrand)
    return quad(integrand, peak - 10, peak + 10, epsabs=0, epsrel=1e-11, points=[peak])[0]


def test_dimension_zero_is_certain():
    staircase = arrange(np.zeros((3, 0)), np.zeros((3, 0, 4)))
    estimate = orthants(staircase, 8, 16, np.random.default_rng(0))
    assert np.array_equal(estimate.log_probability, np.zeros((1, 3)))


@pytest.mark.parametrize("mean", [-1e9, -50.0, -3.0, 0.0, 2.0, 1e9])
def test_dimension_one_is_the_normal_distribution_function(mean):
    staircase, estimate = estimated([mean], [[4.0]])
    value, error = log_probability(estimate)
    assert value == pytest.approx(log_ndtr(mean / 2.0), rel=1e-12)
    assert error == 0.0
    first, second = moments(staircase, estimate)
    if abs(mean) < 1e3:  # beyond, the two terms cancel. The mean of a truncated normal number, by the textbook
        hazard = np.exp(norm.logpdf(mean / 2.0) - log_ndtr(mean / 2.0))
        assert first[0, 0] == pytest.approx(mean + 2.0 * hazard, abs=1e-9)
    assert second[0, 0, 0] >= first[0, 0] ** 2 * (1 - 1e-9)


@pytest.mark.parametrize("correlation", [-1 + 1e-12, -0.999999, -0.9, -0.3, 0.0, 0.5, 0.9, 0.999999, 1 - 1e-12, 1.0])
def test_dimension_two_is_the_arcsine_formula(correlation):
    factor = np.array([[[3.0, 0.0], [0.1 * correlation, 0.1 * np.sqrt(1 - correlation**2)]]])
    estimate = orthants(arrange(np.zeros((1, 2)), factor), 1, 1, np.random.default_rng(0))
    value, error = log_probability(estimate)
    assert np.exp(value) == pytest.approx(0.25 + np.arcsin(correlation) / (2 * np.pi), abs=2e-15)
    assert error == 0.0


def test_two_opposite_components_are_never_both_positive():
    _, estimate = estimated([-1e-6, -1e-6], [[1.0, -1.0], [-1.0, 1.0]])
    assert log_probability(estimate)[0] == -np.inf


@pytest.mark.parametrize(
    ("mean", "correlation"), [(m, c) for m in (-2.0, 3.0) for c in (0.999, 0.5, 0.0)] + [(-30.0, 0.0)]
)
@pytest.mark.parametrize("dim", [2, 3, 6, 15])
def test_equicorrelated_to_relative_accuracy(dim, mean, correlation):
    """From 0.99 to 1e-2900 the relative error is what the replicates say; exact in two dimensions.

    False alarms: |z| > 6 with 15 degrees of freedom, 2.5e-5 each, under 1e-3 for all 28 together.
    """
    truth = dim * float(log_ndtr(mean)) if correlation == 0.0 else np.log(equicorrelated(dim, mean, correlation))
    covariance = np.full((dim, dim), correlation) + (1 - correlation) * np.eye(dim)
    value, error = log_probability(estimated(np.full(dim, mean), covariance, points=4096)[1])
    assert abs(value - truth) < 6 * error + 1e-9 * max(1.0, abs(truth))
    assert error < 2e-3


@pytest.mark.parametrize("dim", [2, 3, 4, 5, 6])
def test_agrees_with_scipy(dim):
    """False alarms: |z| > 6 with 15 degrees of freedom, 2.5e-5 each; SciPy's own error is 1e-7 or less."""
    generator = np.random.default_rng(dim)
    mean, factor = generator.normal(size=(4, dim)), generator.normal(size=(4, dim, dim))
    value, error = orthants(arrange(mean, factor), 2048, 16, generator).summary()
    for c in range(4):
        precisely = {"allow_singular": True, "abseps": 1e-9, "releps": 1e-9, "maxpts": 10**6}
        covariance, rng = factor[c] @ factor[c].T, np.random.default_rng(0)
        truth = multivariate_normal.cdf(np.zeros(dim), -mean[c], covariance, rng=rng, **precisely)
        assert abs(np.exp(value[c]) - truth) < 6 * error[c] * np.exp(value[c]) + 1e-6, (c, truth)


def test_two_dimensional_moments_agree_with_quadrature():
    mean, covariance = np.array([0.3, -1.1]), np.array([[1.5, -0.7], [-0.7, 0.8]])
    density = multivariate_normal(mean, covariance).pdf

    def integral(function):
        return dblquad(lambda y, x: function(x, y) * density([x, y]), 0, 12, 0, 12, epsabs=1e-10, epsrel=1e-9)[0]

    staircase, estimate = estimated(mean, covariance)
    first, second = moments(staircase, estimate)
    total = integral(lambda x, y: 1.0)
    assert np.exp(log_probability(estimate)[0]) == pytest.approx(total, rel=1e-7)
    assert first[0] == pytest.approx([integral(lambda x, y: x) / total, integral(lambda x, y: y) / total], rel=1e-6)
    cross = integral(lambda x, y: x * y) / total
    squares = [integral(lambda x, y: x * x) / total, integral(lambda x, y: y * y) / total]
    assert second[0] == pytest.approx(np.array([[squares[0], cross], [cross, squares[1]]]), rel=1e-6)


def test_moments_agree_with_draws():
    """False alarms: 20 comparisons at 5 standard errors of the draws, about 1e-5 together."""
    generator = np.random.default_rng(3)
    mean, factor = generator.normal(size=4) + 0.5, generator.normal(size=(4, 4))
    staircase = arrange(mean[None], factor[None])
    first, second = moments(staircase, orthants(staircase, 2048, 16, generator))
    draws = mean + generator.standard_normal((2 * 10**6, 4)) @ factor.T
    draws = draws[(draws >= 0).all(axis=1)]
    assert np.all(np.abs(first[0] - draws.mean(axis=0)) < 5 * draws.std(axis=0) / np.sqrt(len(draws)))
    products = draws[:, :, None] * draws[:, None, :]
    assert np.all(np.abs(second[0] - products.mean(axis=0)) < 5 * products.std(axis=0) / np.sqrt(len(draws)))


def test_singular_covariance_counts_repeated_components_once():
    """Four copies and one sum of two independent components: the orthant is that of the two."""
    mean, base = np.array([0.4, -0.6]), np.array([[1.0, 0.0], [0.5, 2.0]])
    copies = np.array([[1, 0], [0, 1], [1, 0], [0, 1], [1, 1]])
    small = arrange(mean[None], base[None])
    large = arrange((copies @ mean)[None], (copies @ base)[None])
    truth, _ = orthants(small, 1, 1, np.random.default_rng(0)).summary()
    value, error = orthants(large, 4096, 16, np.random.default_rng(0)).summary()
    assert abs(value[0] - truth[0]) < 6 * error[0] + 1e-12  # 15 degrees of freedom: false alarms 2.5e-5
    assert error[0] < 1e-3


def test_component_without_variance_is_decided_by_its_mean():
    factor = np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]])
    for last, expected in ((0.5, 0.25), (0.0, 0.25), (-0.5, 0.0)):
        staircase = arrange(np.array([[0.0, 0.0, last]]), factor)
        value, _ = orthants(staircase, 256, 16, np.random.default_rng(0)).summary()
        assert np.exp(value[0]) == pytest.approx(expected, abs=1e-3)


def test_nearly_singular_factor_keeps_its_small_direction():
    """Two differences with sd 1e6 that differ by 1e-6: a covariance matrix could not tell them apart."""
    factor = np.array([[[1e6, 0.0], [-1e6, 1e-6]]])
    mean = np.array([[0.0, 1e-6]])
    value, _ = orthants(arrange(mean, factor), 1, 1, np.random.default_rng(0)).summary()
    # D_0 = 1e6 x >= 0 and D_1 = -1e6 x + 1e-6 (1 + y) >= 0: P = E[(1 + y)^+] 1e-12 phi(0) up to 1e-12
    truth = (ndtr(1.0) + norm.pdf(1.0)) * 1e-12 * norm.pdf(0.0)
    assert np.exp(value[0]) == pytest.approx(truth, rel=1e-3)


def test_order_of_components_does_not_matter():
    """False alarms: |z| > 6 with 15 degrees of freedom, 2.5e-5."""
    generator = np.random.default_rng(5)
    mean, factor = generator.normal(size=(1, 7)), generator.normal(size=(1, 7, 9))
    turned = np.roll(np.arange(7), 3)
    one, other = arrange(mean, factor), arrange(mean[:, turned], factor[:, turned])
    first, second = (orthants(s, 1024, 16, generator).summary() for s in (one, other))
    assert abs(first[0][0] - second[0][0]) < 6 * np.hypot(first[1][0], second[1][0])
    assert np.allclose(np.abs(one.lower), np.abs(other.lower))


def test_staircase_reproduces_the_vectors():
    generator = np.random.default_rng(6)
    mean, factor = generator.normal(size=(5, 4)), generator.normal(size=(5, 4, 6))
    staircase = arrange(mean, factor)
    rebuilt = staircase.scale[:, :, None] * (staircase.lower @ staircase.direction.transpose(0, 2, 1))
    assert rebuilt == pytest.approx(np.take_along_axis(factor, staircase.order[:, :, None], axis=1))
    assert np.all(np.triu(staircase.lower, 1) == 0)


def test_standard_error_is_honest():
    """64 independent estimates scatter as their standard errors say.

    The mean of z^2 over 64 cells with 15 degrees of freedom each is 15/13 with standard deviation 0.24: the band
    [0.5, 2.2] is left with probability below 1e-4 (false alarm).
    """
    dim, copies = 5, 64
    covariance = np.full((dim, dim), 0.5) + 0.5 * np.eye(dim)
    factor = np.repeat(factor_of(covariance[None]), copies, axis=0)
    staircase = arrange(np.full((copies, dim), -1.0), factor)
    value, error = orthants(staircase, 64, 16, np.random.default_rng(7)).summary()
    z = (np.exp(value) / equicorrelated(dim, -1.0, 0.5) - 1.0) / error
    assert 0.5 < np.mean(z**2) < 2.2


def test_the_far_tail_needs_no_more_points():
    """Ten positively correlated components, 8 standard deviations from the orthant: P = 1e-45, known to 1e-3."""
    covariance = np.full((10, 10), 0.3) + 0.7 * np.eye(10)
    value, error = log_probability(estimated(np.full(10, -8.0), covariance, points=256)[1])
    assert error < 1e-3
    assert abs(value - np.log(equicorrelated(10, -8.0, 0.3))) < 6 * error  # 15 degrees of freedom: 2.5e-5


def test_lattice_is_a_lattice():
    for points in (1, 2, 64, 1024):
        x = lattice(points, 5)
        assert x.shape == (5, points)
        for row in x:
            assert np.array_equal(np.sort(row * points), np.arange(points))
