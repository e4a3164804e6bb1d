"""Gaussian orthants against closed forms, one-dimensional quadrature and SciPy's distribution function."""

from __future__ import annotations

from functools import cache
from inspect import signature
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import dblquad, quad
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfcx, log_ndtr, ndtr, ndtri_exp, owens_t
from scipy.stats import multivariate_normal, norm, truncnorm

from bellmanifold_paper.engines import orthant
from bellmanifold_paper.engines.orthant import Orthants, join, lattice, orthants
from bellmanifold_paper.engines.sequential import Staircase, arrange


def factor_of(covariance):
    """A factor F with F F' = covariance, which may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]


def estimated(mean, covariance, points=1024, replicates=16, seed=0):
    """One Gaussian vector, by its covariance: triangular form and estimate."""
    staircase = arrange(np.array([mean], dtype=float), factor_of(np.array([covariance], dtype=float)))
    return staircase, orthants(staircase, points, replicates, np.random.default_rng(seed))


def log_probability(estimate: Orthants) -> tuple[float, float]:
    value, error = estimate.summary()
    return float(value[0]), float(error[0])


def moments(staircase, estimate):
    """E[D | D >= 0] and E[D D' | D >= 0], components in their original order."""
    first = estimate.mean()
    lower = staircase.lower * staircase.scale[:, :, None]
    centre = staircase.mean * staircase.scale
    mean = centre + np.einsum("cij,cj->ci", lower, first)
    second = lower @ estimate.spread @ lower.transpose(0, 2, 1) + mean[:, :, None] * mean[:, None, :]
    back = np.argsort(staircase.order, axis=1)
    second = np.take_along_axis(np.take_along_axis(second, back[:, :, None], axis=1), back[:, None, :], axis=2)
    return np.take_along_axis(mean, back, axis=1), second


def equicorrelated(dim: int, mean: float, correlation: float) -> float:
    """P(D >= 0) for D_i = mean + sqrt(rho) x + sqrt(1 - rho) y_i, by quadrature over x."""

    def integrand(x: float) -> float:
        edge = (mean + np.sqrt(correlation) * x) / np.sqrt(1.0 - correlation)
        return np.exp(norm.logpdf(x) + dim * log_ndtr(edge))

    peak = max(np.linspace(-20, 20, 4001), key=integrand)
    return quad(integrand, peak - 10, peak + 10, epsabs=0, epsrel=1e-11, points=[peak])[0]


SHIFTS = np.random.default_rng(8).random((2, 3, 1, 4))
SHIFTS[1, 2, 0, 3] = 0.5  # the tent map makes 0 of it, and no normal number has this quantile


class Shifts(np.random.Generator):
    """A generator whose numbers are known; for each chunk of cells it gives the next ones."""

    begin = 0

    def random(self, shape):
        self.begin += shape[-1]
        return SHIFTS[..., self.begin - shape[-1] : self.begin].copy()


def four_cells(tail=0.0):
    """Three rows each; the second cell is easy, the third has a second row that the first decides."""
    generator = np.random.default_rng(5)
    lower = np.tril(generator.normal(size=(4, 3, 3)), -1)
    lower[:, [0, 1, 2], [0, 1, 2]] = generator.uniform(0.4, 1.7, size=(4, 3))
    lower[2, 1] = [0.7, 0.0, 0.0]
    mean = generator.normal(size=(4, 3)) - tail
    mean[1] += 3.0
    mean[2, 1] = -1.1  # at some of the points it is met, at others it is not
    other = np.tile(np.arange(3), (4, 1)), np.ones((4, 3)), np.zeros((4, 3, 3))
    return Staircase(*other[:2], mean, lower, other[2], generator.normal(size=(4, 2)))


def drawn_one_by_one(mean, lower, shift, uniform):
    """The recipe of the module's text for one cell and one replicate, point by point, number by number.

    Returns the points w, of which the last coordinate is a mean, the variance of that coordinate, and weights in logs.
    """
    w, last, log_weight = [], [], []
    for one in uniform:
        point, log = [], 0.0
        for j in range(3):
            conditional = mean[j] + sum(lower[j, i] * point[i] for i in range(j))
            moved = shift[j] if j < 2 else 0.0
            if lower[j, j] > 0:
                edge = conditional / lower[j, j] + moved
                log += log_ndtr(edge)
            else:
                edge = np.inf if conditional >= 0 else -np.inf
                log += 0.0 if conditional >= 0 else -np.inf
            if j < 2:
                free = np.isinf(edge)
                beyond = norm.isf(one[j]) if free else -ndtri_exp(np.log(one[j]) + log_ndtr(edge))
                point.append(beyond + moved)
                log += 0.5 * moved**2 - moved * point[j]
        cut = np.sqrt(2.0 / np.pi) / erfcx(-edge / np.sqrt(2.0))
        w.append([*point, cut])
        last.append(1.0 - cut * (cut + edge))
        log_weight.append(log)
    return np.array(w), np.array(last), np.array(log_weight)


@pytest.mark.parametrize(("tail", "chunk"), [(0.0, 10**6), (0.0, 2 * 3 * 4), (25.0, 10**6)])
def test_three_dimensions_point_by_point(tail, chunk):
    """Four cells, three replicates, four points of a lattice; together, in chunks of two cells, and in the far tail."""
    staircase, points = four_cells(tail), lattice(4, 2)
    found = orthants(staircase, 4, 3, Shifts(np.random.PCG64()), chunk)
    assert found.log_probability.shape == (3, 4)
    for c in range(4):
        mean, lower, shift = staircase.mean[c], staircase.lower[c], staircase.shift[c]
        every, variances, logs = [], [], []
        for r in range(3):
            folded = np.abs(2.0 * ((points.T + SHIFTS[:, r, 0, c]) % 1.0) - 1.0)
            w, last, log_weight = drawn_one_by_one(mean, lower, shift, np.maximum(folded, 2.0**-60))
            log_total = np.logaddexp.reduce(log_weight)
            assert found.log_probability[r, c] == pytest.approx(log_total - np.log(4.0), rel=1e-9)
            if np.isfinite(log_total):
                np.testing.assert_allclose(found.first[r, c], np.exp(log_weight - log_total) @ w, rtol=1e-9)
            else:
                np.testing.assert_array_equal(found.first[r, c], 0.0)
            every, variances, logs = [*every, *w], [*variances, *last], [*logs, *log_weight]
        if np.isfinite(max(logs)):
            weight = np.exp(np.array(logs) - np.logaddexp.reduce(logs))
            spread = np.cov(np.transpose(every), aweights=weight, ddof=0)
            spread[2, 2] += weight @ variances
            np.testing.assert_allclose(found.spread[c], spread, rtol=1e-6, atol=1e-9)
        else:
            np.testing.assert_array_equal(found.spread[c], 0.0)


@pytest.mark.parametrize(("offset", "slope", "begin"), [(-3.0, 2.5, -4.0), (1.3, -0.8, 0.4), (0.6, 0.0, -np.inf)])
def test_panels_are_finest_beside_the_mode_and_where_the_edge_changes_sign(offset, slope, begin):
    """Distances grow geometrically up to 28; they start with a quarter of the scale on which the integrand changes."""

    def hazard(w):
        return np.exp(norm.logpdf(offset + slope * w) - log_ndtr(offset + slope * w))

    mode = max(begin, brentq(lambda w: slope * hazard(w) - w, -30.0, 30.0, xtol=1e-13))
    curvature = 1.0 + slope**2 * hazard(mode) * (hazard(mode) + offset + slope * mode)
    low, high = max(begin, mode - 14.0), mode + 14.0
    turn = min(max(-offset / slope, low - 14.0), high + 14.0) if slope else mode
    finest = 0.25 / (abs(slope * hazard(mode) - mode) + np.sqrt(curvature)), 0.25 / (1.0 + abs(slope))
    expected = [low, high]
    for centre, first in zip((mode, turn), finest, strict=True):
        distances = [first * (28.0 / first) ** (k / 32.0) for k in range(33)]
        expected += [centre, *(centre + d for d in distances), *(centre - d for d in distances)]
    sd = np.hypot(slope, 1.0)
    found = orthant._breakpoints(two_rows([7.0, offset / sd], [slope / sd, 1.0 / sd]), np.array([begin]))
    np.testing.assert_allclose(found[:, 0], np.sort(np.clip(expected, low, high)), rtol=1e-9, atol=1e-9)


def test_panels_of_a_row_that_another_decides_are_those_of_a_tiny_sd():
    rows = [two_rows([7.0, -0.3], [0.6, own], flat) for own, flat in ((0.8, True), (1e-13, False))]
    decided, tiny = (orthant._breakpoints(one, np.array([-7.0])) for one in rows)
    np.testing.assert_array_equal(decided, tiny)


@pytest.mark.parametrize("points", [64, 1024])
def test_lattices_stay_as_they_are(points):
    """Answers depend on them to the last bit, and are frozen."""
    taken = {64: [33, 5, 37, 17], 1024: [573, 375, 153, 961]}
    assert [round(float(row[1]) * points) for row in lattice(points, 4)] == taken[points]


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


# --- pieces of the sum, each against its definition ------------------------------------------------------------------


def two_rows(mean, second, flat=False):
    """Rows 0 and 1 of one cell: their means, and what the second is made of (the first is w_0 itself)."""
    lower = np.array([[1.0, 0.0], second])[:, :, None]
    return orthant._Rows(np.array(mean)[:, None], lower, np.array([[False], [flat]]), np.zeros((1, 1)))


def bivariate(h, k, correlation):
    """P(X >= -h, Y >= -k) for standard normals by Owen's T function, h and k not 0."""
    root = np.sqrt(1.0 - correlation**2)
    apart = np.where(h * k < 0, 0.5, 0.0)
    one, other = owens_t(h, (k / h - correlation) / root), owens_t(k, (h / k - correlation) / root)
    return 0.5 * (ndtr(h) + ndtr(k)) - one - other - apart


def test_two_dimensions_by_owens_function():
    """700 cells at once: near and far means of either sign, correlations of either sign up to 0.9999."""
    place = [-5.0, -2.5, -0.7, 0.1, 1.1, 3.0, 8.0]
    h, k, rho = (x.ravel() for x in np.meshgrid(place, place, [-0.9999, -0.9, -0.2, 0.0, 0.3, 0.95, 0.9999]))
    factor = np.zeros((len(h), 2, 2))
    factor[:, 0, 0], factor[:, 1, 0], factor[:, 1, 1] = 1.0, rho, np.sqrt(1.0 - rho**2)
    value, _ = orthants(arrange(np.stack([h, k], axis=1), factor), 1, 1, np.random.default_rng(0)).summary()
    np.testing.assert_allclose(np.exp(value), bivariate(h, k, rho), atol=3e-16, rtol=1e-12)


@pytest.mark.parametrize("offset", [-30.0, -3.0, 0.0, 4.0])
@pytest.mark.parametrize("slope", [-200.0, -1.0, 0.3, 5.0, 1e4])
def test_two_dimensions_in_the_far_tail(offset, slope):
    """phi(w) Phi(offset + slope w) over w > 6, where Owen's function has no digits left, by adaptive quadrature."""

    def density(w):
        return norm.logpdf(w) + log_ndtr(offset + slope * w)

    begin = 6.0
    top = minimize_scalar(lambda w: -density(w), bounds=(begin, begin + 60), method="bounded").x
    top = max((begin, top), key=density)
    breaks = [begin, top, -offset / slope, *(top + s for s in (-1, -0.1, -0.01, 0.01, 0.1, 1.0, 12.0))]
    breaks = sorted({min(max(b, begin), top + 12.0) for b in breaks})
    scaled = [
        quad(lambda w: np.exp(density(w) - density(top)), a, b, epsabs=0, epsrel=1e-10)[0] for a, b in pairwise(breaks)
    ]
    # the second row given the first: mean offset, lower (slope, 1), in units of its sd
    sd = np.hypot(slope, 1.0)
    rows = two_rows([-begin, offset / sd], [slope / sd, 1.0 / sd])
    found = orthant._sweep(rows, *orthant._quadrature(rows))
    expected = np.log(sum(scaled)) + density(top)
    assert found.log_probability[0, 0] == pytest.approx(expected, rel=1e-9, abs=1e-8)


@pytest.mark.parametrize(("offset", "slope"), [(-2.7e7, 300.0), (-2.7e7, -300.0), (-200.0, 40.0), (5.0, 1e3)])
def test_two_dimensions_where_the_first_row_hardly_matters(offset, slope):
    """phi(w) Phi(offset + slope w) over all w is Phi(offset / sqrt(1 + slope^2)): a peak as narrow as 1 / slope."""
    sd = np.hypot(slope, 1.0)
    rows = two_rows([1e9, offset / sd], [slope / sd, 1.0 / sd])
    found = orthant._sweep(rows, *orthant._quadrature(rows)).log_probability[0, 0]
    assert found == pytest.approx(log_ndtr(offset / sd), rel=1e-13)


@pytest.mark.parametrize("begin", [1.0, 30.0, 1e3, 1e5])
def test_two_dimensions_where_both_factors_fall(begin):
    """phi(w) Phi(-w) is the derivative of -Phi(-w)^2 / 2."""
    rows = two_rows([-begin, 0.0], [-np.sqrt(0.5), np.sqrt(0.5)])
    found = orthant._sweep(rows, *orthant._quadrature(rows)).log_probability[0, 0]
    assert found == pytest.approx(2.0 * log_ndtr(-begin) - np.log(2.0), abs=1e-13, rel=1e-13)


def test_two_dimensions_where_the_second_row_decides():
    """The first row is above 6 wherever the second is above 30, but for 240 of its conditional sds."""
    rows = two_rows([-6.0, -30.0], [0.995, np.sqrt(1.0 - 0.995**2)])
    found = orthant._sweep(rows, *orthant._quadrature(rows)).log_probability[0, 0]
    assert found == pytest.approx(log_ndtr(-30.0), rel=1e-13)


@pytest.mark.parametrize(("mean", "expected"), [(0.5, 0.8), (0.0, 0.8), (-1e-3, 0.0), (-40.0, 0.0)])
def test_a_component_without_variance_beside_another(mean, expected):
    """Exact in two dimensions: the one that varies is positive with probability 0.8, the other always or never."""
    varying = float(norm.ppf(0.8))
    for first in (0, 1):
        means, factor = np.full((1, 2), mean), np.zeros((1, 2, 2))
        means[0, first], factor[0, first, 0] = 3.0 * varying, 3.0
        staircase = arrange(means, factor)
        estimate = orthants(staircase, 1, 1, np.random.default_rng(0))
        assert np.exp(log_probability(estimate)[0]) == pytest.approx(expected, abs=2e-12)  # what rounding is forgiven
        if expected:
            found, square = moments(staircase, estimate)
            cut = truncnorm(-varying, np.inf, loc=3.0 * varying, scale=3.0)
            assert found[0, first] == pytest.approx(cut.mean(), rel=1e-12)
            assert square[0, first, first] == pytest.approx(cut.moment(2), rel=1e-9)
            assert found[0, 1 - first] == pytest.approx(mean)


def test_two_components_without_variance():
    for means, log_expected in (([1.0, 0.0], 0.0), ([1.0, -1.0], -np.inf), ([-1.0, -1.0], -np.inf)):
        estimate = orthants(arrange(np.array([means]), np.zeros((1, 2, 2))), 1, 1, np.random.default_rng(0))
        assert log_probability(estimate)[0] == pytest.approx(log_expected, abs=1e-12)


def test_two_dimensional_moments_by_rosenbaums_formulas():
    """X > h, Y > k for standard normals of correlation rho (Rosenbaum 1961)."""
    for h, k, rho in ((0.3, -1.1, -0.6), (-0.5, 0.8, 0.9), (1.5, 2.0, 0.2), (-3.0, -2.0, -0.95)):
        root = np.sqrt(1.0 - rho**2)
        whole = float(bivariate(np.array(-h), np.array(-k), rho))
        one = norm.pdf(h) * norm.sf((k - rho * h) / root)
        other = norm.pdf(k) * norm.sf((h - rho * k) / root)
        corner = root / np.sqrt(2.0 * np.pi) * norm.pdf(np.sqrt(h * h - 2.0 * rho * h * k + k * k) / root)
        mean = np.array([one + rho * other, rho * one + other]) / whole
        xx = 1.0 + (h * one + rho**2 * k * other + rho * corner) / whole
        yy = 1.0 + (rho**2 * h * one + k * other + rho * corner) / whole
        xy = rho + (rho * h * one + rho * k * other + corner) / whole
        staircase, estimate = estimated([-h, -k], [[1.0, rho], [rho, 1.0]])
        first, second = moments(staircase, estimate)
        place = np.array([h, k])
        np.testing.assert_allclose(first[0], mean - place, rtol=1e-8)
        raw = np.array([[xx, xy], [xy, yy]])
        centred = raw - np.outer(mean, place) - np.outer(place, mean) + np.outer(place, place)
        np.testing.assert_allclose(second[0], centred, rtol=1e-7)


def test_independent_components_multiply():
    """Without correlation the weights of all draws are equal: exact, and moments are those of cut-off normals."""
    mean, sd = np.array([-1.0, 0.5, 2.0, -4.0]), np.array([1.0, 2.0, 0.3, 5.0])
    staircase = arrange(mean[None], np.diag(sd)[None])
    estimate = orthants(staircase, 8192, 16, np.random.default_rng(1))
    value, error = log_probability(estimate)
    assert value == pytest.approx(log_ndtr(mean / sd).sum(), rel=1e-12)
    assert error < 1e-12
    first, second = moments(staircase, estimate)
    cut = truncnorm(-mean / sd, np.inf, loc=mean, scale=sd)
    np.testing.assert_allclose(first[0], cut.mean(), rtol=2e-4)
    products = np.outer(cut.mean(), cut.mean()) + np.diag(cut.var())
    np.testing.assert_allclose(second[0], products, rtol=1e-3)


def test_moments_of_equicorrelated_components():
    """Given the common x they are independent and cut off: moments by quadrature over x."""
    dim, centre, rho = 4, -0.5, 0.5
    x, weight = np.polynomial.legendre.leggauss(200)
    x, weight = 10.0 * x, 10.0 * weight
    cut = truncnorm(-(centre + np.sqrt(rho) * x) / np.sqrt(1 - rho), np.inf)
    own_mean = centre + np.sqrt(rho) * x + np.sqrt(1 - rho) * cut.mean()
    own_square = own_mean**2 + (1 - rho) * cut.var()
    mass = weight * norm.pdf(x) * ndtr((centre + np.sqrt(rho) * x) / np.sqrt(1 - rho)) ** dim
    mass /= mass.sum()
    covariance = np.full((dim, dim), rho) + (1 - rho) * np.eye(dim)
    staircase, estimate = estimated(np.full(dim, centre), covariance, points=2048)
    first, second = moments(staircase, estimate)
    np.testing.assert_allclose(first[0], mass @ own_mean, rtol=1e-3)
    np.testing.assert_allclose(np.diag(second[0]), mass @ own_square, rtol=2e-3)
    np.testing.assert_allclose(second[0][~np.eye(dim, dtype=bool)], mass @ own_mean**2, rtol=2e-3)


@pytest.mark.parametrize("edge", [-1e7, -1e3, -101.0, -99.0, -20.0, -1.0, 0.0, 3.0, 50.0])
def test_variance_of_a_cut_off_normal_number(edge):
    """Its excess t over the cut has density exp(-t^2/2 + edge t): nothing cancels there."""
    unit = 1.0 / max(1.0, -edge)
    high = 40.0 if edge < 0 else edge + 12.0

    def moment(power):
        low = max(0.0, edge - 12.0) if edge > 0 else 0.0
        peak = max(0.0, edge) ** 2 / 2
        return quad(lambda t: t**power * np.exp(-0.5 * (unit * t) ** 2 + edge * unit * t - peak), low, high, limit=200)[
            0
        ]

    mass, mean = moment(0), moment(1) / moment(0)
    expected = unit**2 * (moment(2) / mass - mean**2)
    assert orthant._cut_moments(np.array([edge]))[1][0] == pytest.approx(expected, rel=2e-6)


@pytest.mark.parametrize("edge", [-1e5, -36.0, -35.0, -34.0, -1.0, 0.0, 8.0, np.inf])
def test_draws_beyond_an_edge_have_their_quantiles(edge):
    """P(X > x | X > -edge) = u, in logarithms, as both may be beyond the range of numbers."""
    uniform = np.array([0.9, 0.5, 1e-3, 2.0**-60]).reshape(1, -1, 1)
    log_probability, drawn = orthant._cut_normal(uniform, np.full(uniform.shape, edge))
    np.testing.assert_allclose(log_probability, log_ndtr(edge), rtol=1e-13, atol=1e-16)
    np.testing.assert_allclose(log_ndtr(-drawn), np.log(uniform) + log_ndtr(edge), rtol=1e-9, atol=1e-15)
    assert np.all(drawn >= -edge * (1 - 1e-15))


def test_near_and_far_edges_are_drawn_beyond_side_by_side():
    edge = np.broadcast_to([-50.0, 1.0, -36.0], (1, 2, 3))
    together = orthant._cut_normal(np.full((1, 2, 3), 0.3), edge)
    for cell in range(3):
        alone = orthant._cut_normal(np.full((1, 2, 1), 0.3), edge[:, :, [cell]])
        for many, one in zip(together, alone, strict=True):
            np.testing.assert_array_equal(many[:, :, [cell]], one)


def test_logarithm_of_the_normal_distribution_function():
    edge = np.array([-np.inf, -1e8, -36.0, -35.0, -34.5, -1.0, 0.0, 9.0, np.inf])
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(orthant._normal(edge)[1], log_ndtr(edge), rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize(("mean", "rounding"), [(0.0, 1e-12), (1e6, 1e-6)])
def test_rows_that_others_decide_forgive_rounding_and_no_more(mean, rounding):
    """Row 1 is mean + w_0, without a part of its own: certain at 0 and what rounding leaves of 0, else impossible."""
    rows = two_rows([mean, mean], [1.0, 0.0], flat=True)
    for below, expected in ((0.0, np.inf), (0.3 * rounding, np.inf), (30.0 * rounding, -np.inf), (-1.0, np.inf)):
        assert rows.edge(1, np.array([[[[-mean - below]]]]))[0, 0, 0] == expected


def test_edges_are_conditional_means_in_conditional_sds():
    rows = two_rows([0.5, -0.2], [0.6, 0.8])
    w = np.array([[[[-2.0], [1.0]]]])
    assert rows.edge(0, w)[0, 0, 0] == 0.5
    np.testing.assert_allclose(rows.edge(1, w)[0, :, 0], [(-0.2 - 1.2) / 0.8, (-0.2 + 0.6) / 0.8])


def test_the_mode_of_a_normal_density_times_a_distribution_function():
    offset, slope = (x.ravel() for x in np.meshgrid([-50.0, -2.0, 0.0, 3.0], [-7.0, -0.5, 0.0, 0.5, 1.0, 30.0]))
    found = orthant._mode(offset, slope)
    for o, s, w in zip(offset, slope, found, strict=True):
        beyond = -w + s * np.exp(norm.logpdf(o + s * w) - log_ndtr(o + s * w))
        assert beyond == pytest.approx(0.0, abs=1e-9 * max(1.0, s * s))


def test_replicates_are_averaged_and_their_spread_is_an_error():
    """Three replicates of three cells: ordinary, far below the range of numbers, impossible."""
    share = np.array([1.0, 2.0, 3.0])
    log_probability = np.stack([np.log(share), np.log(share) - 5000.0, np.full(3, -np.inf)], axis=1)
    first = np.arange(18.0).reshape(3, 3, 2)
    estimate = Orthants(log_probability, first, np.arange(12.0).reshape(3, 2, 2))
    value, error = estimate.summary()
    np.testing.assert_allclose(value[:2], [np.log(2.0), np.log(2.0) - 5000.0])
    assert value[2] == -np.inf
    np.testing.assert_allclose(error, [1.0 / np.sqrt(3.0) / 2.0, 1.0 / np.sqrt(3.0) / 2.0, 0.0])
    np.testing.assert_allclose(estimate.mean()[:2], np.einsum("r,rcd->cd", share / 6.0, first)[:2])
    np.testing.assert_array_equal(estimate.mean()[2], 0.0)
    assert len(estimate.log_probability) == 3
    back = join([estimate.rows(np.array([0])), estimate.rows(np.array([1, 2]))])
    for name in ("log_probability", "first", "spread"):
        np.testing.assert_array_equal(getattr(back, name), getattr(estimate, name))


def test_replicates_may_be_further_apart_than_numbers_reach():
    estimate = Orthants(np.array([[-5000.0], [np.log(3.0)]]), np.array([[[2.0]], [[7.0]]]), np.zeros((1, 1, 1)))
    value, error = estimate.summary()
    assert (value[0], error[0]) == pytest.approx((np.log(1.5), 1.0))
    assert estimate.mean()[0, 0] == 7.0


def test_one_replicate_has_no_error():
    estimate = Orthants(np.array([[-1.0, -2.0]]), np.zeros((1, 2, 1)), np.zeros((2, 1, 1)))
    value, error = estimate.summary()
    np.testing.assert_array_equal(value, [-1.0, -2.0])
    np.testing.assert_array_equal(error, [0.0, 0.0])


@pytest.mark.parametrize(("dim", "cells"), [(1, 50), (2, 50), (3, 5)])
def test_cells_are_treated_in_chunks_without_a_trace(dim, cells):
    """Small chunks give what each cell gives alone: exactly up to dimension 2.

    Beyond, false alarms: |z| > 6 with 15 degrees of freedom, 2.5e-5 for each of 5 cells.
    """
    generator = np.random.default_rng(dim)
    factor = np.eye(dim) + 0.3 * generator.normal(size=(cells, dim, dim))  # far tails have no useful standard errors
    staircase = arrange(generator.normal(size=(cells, dim)), factor)
    together, error = orthants(staircase, 256, 16, generator, chunk=7 if dim < 3 else 2 * 256 * 16).summary()
    for c in range(cells):
        alone, own = orthants(staircase.cells(np.array([c])), 4096, 16, generator).summary()
        assert abs(together[c] - alone[0]) <= 6 * np.hypot(error[c], own[0]) + 1e-12
    assert (error == 0).all() == (dim < 3)
    assert np.isfinite(orthants(staircase, 256, 16, generator, chunk=1).log_probability).all()


@cache
def fourier_series(points):
    """The sum over h > 0 of cos(2 pi h x) / h^2 at x = 0, 1/points, 2/points, ..."""
    h = np.arange(1, 2001)[:, None]
    return (np.cos(2.0 * np.pi * h * np.arange(points) / points) / h**2).sum(axis=0)


def worst_case_error(numbers, points):
    """P_2 of a lattice: the sum of its kernel over all points, the kernel by its Fourier series."""
    series, total = fourier_series(points), np.ones(points)
    for j, number in enumerate(numbers):
        total = total * (1.0 + 2.0 / (1.0 + j) * series[number * np.arange(points) % points])
    return total.mean() - 1.0


@pytest.mark.parametrize("points", [8, 16])
def test_every_number_of_a_small_lattice_is_the_best_there_is(points):
    """There are so few odd numbers below 16 that all are candidates: none is better than the one taken."""
    taken = [round(float(row[1]) * points) for row in lattice(points, 5)]
    for j in range(1, 5):
        errors = {odd: worst_case_error([*taken[:j], odd], points) for odd in range(1, points, 2)}
        assert errors[taken[j]] <= min(errors.values()) + 1e-6


def test_large_lattices_are_better_than_most():
    """P_2 below that of 95% of lattices drawn at random."""
    generator = np.random.default_rng(0)
    taken = [round(float(row[1]) * 256) for row in lattice(256, 4)]
    drawn = [worst_case_error([taken[0], *(2 * generator.integers(0, 128, 3) + 1)], 256) for _ in range(60)]
    assert np.mean(worst_case_error(taken, 256) < np.array(drawn)) > 0.95


def test_a_lattice_of_no_dimension():
    assert lattice(8, 0).shape == (0, 8)


# --- whole orthants of more dimensions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mean", "correlation"), [(m, c) for m in (-2.0, 3.0) for c in (0.999, 0.5, 0.0)] + [(-30.0, 0.0)]
)
@pytest.mark.parametrize("dim", [2, *(pytest.param(dim, marks=pytest.mark.slow) for dim in (3, 6)), 15])
def test_equicorrelated_to_relative_accuracy(dim, mean, correlation):
    """From 0.99 to 1e-2900 the relative error is what the replicates say; exact in two dimensions.

    False alarms: |z| > 6 with 15 degrees of freedom, 2.5e-5 each, under 1e-3 for all 28 together.
    """
    truth = dim * float(log_ndtr(mean)) if correlation == 0.0 else np.log(equicorrelated(dim, mean, correlation))
    covariance = np.full((dim, dim), correlation) + (1 - correlation) * np.eye(dim)
    value, error = log_probability(estimated(np.full(dim, mean), covariance, points=4096)[1])
    assert abs(value - truth) < 6 * error + 1e-9 * max(1.0, abs(truth))
    assert error < 2e-3


@pytest.mark.parametrize("dim", [2, 3, 4, *(pytest.param(dim, marks=pytest.mark.slow) for dim in (5, 6))])
def test_agrees_with_scipy(dim):
    """False alarms: |z| > 6 with 15 degrees of freedom, 2.5e-5 each; SciPy's own error is 1e-7 or less."""
    generator = np.random.default_rng(dim)
    mean, factor = generator.normal(size=(4, dim)), generator.normal(size=(4, dim, dim))
    value, error = orthants(arrange(mean, factor), 2048, 16, generator).summary()
    for c in range(4):
        precisely = {"allow_singular": True, "abseps": 1e-9, "releps": 1e-9, "maxpts": 10**6}
        seeded = {"rng": np.random.default_rng(0)} if "rng" in signature(multivariate_normal.cdf).parameters else {}
        covariance = factor[c] @ factor[c].T
        truth = multivariate_normal.cdf(np.zeros(dim), -mean[c], covariance, **seeded, **precisely)
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
