"""Gaussian vectors in triangular form: the form, the order of rows and the tilting, each against a plain version."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import approx_fprime
from scipy.special import log_ndtr

from bellmanifold.gaussian.chunks import chunks
from bellmanifold_paper.engines import sequential as module
from bellmanifold_paper.engines.sequential import arrange, hazard_of


def plain_edges(mean, correlation):
    """Each row's edge given all others, pushed up by what these are cut off: half a step, four times, row by row."""
    edges = list(mean)
    for _ in range(4):
        cut = [stats.truncnorm(-edge, np.inf).mean() for edge in edges]
        pushes = [sum(correlation[k, j] * cut[j] for j in range(len(cut)) if j != k) for k in range(len(cut))]
        edges = [(edge + own + push) / 2 for edge, own, push in zip(edges, mean, pushes, strict=True)]
    return edges


@pytest.mark.parametrize("rank", [2, 4, 6])
def test_the_triangular_form_is_the_same_vector(rng, rank):
    mean, factor = rng.normal(size=(5, 4)), rng.normal(size=(5, 4, rank)) * np.array([1.0, 100.0, 0.01, 1.0])[:, None]
    found = arrange(mean, factor)
    covariance = np.take_along_axis(factor, found.order[:, :, None], axis=1)
    covariance = covariance @ covariance.transpose(0, 2, 1)
    lower = found.scale[:, :, None] * found.lower
    np.testing.assert_allclose(lower @ lower.transpose(0, 2, 1), covariance, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.scale * found.mean, np.take_along_axis(mean, found.order, axis=1))
    np.testing.assert_allclose(found.scale**2, np.einsum("cii->ci", covariance))
    assert np.all(np.triu(found.lower, 1) == 0)
    assert np.all(np.diagonal(found.lower, axis1=1, axis2=2) >= 0)
    gram = found.direction.transpose(0, 2, 1) @ found.direction
    np.testing.assert_allclose(gram, np.repeat(np.eye(4)[None], 5, axis=0), atol=1e-12)
    along = np.take_along_axis(factor, found.order[:, :, None], axis=1) @ found.direction[:, :rank]
    np.testing.assert_allclose(lower, along, atol=1e-10)
    assert (len(found), found.dimension) == (5, 4)
    some = found.cells(np.array([3, 1]))
    np.testing.assert_array_equal(some.lower, found.lower[[3, 1]])
    np.testing.assert_array_equal(some.shift, found.shift[[3, 1]])


def test_a_row_without_variance_has_scale_one():
    found = arrange(np.array([[0.5, -7.0]]), np.array([[[2.0, 0.0], [0.0, 0.0]]]))
    assert found.order.tolist() == [[1, 0]], "a condition that fails comes first"
    np.testing.assert_array_equal(found.scale, [[1.0, 2.0]])
    np.testing.assert_array_equal(found.mean, [[-7.0, 0.25]])


@pytest.mark.parametrize("dim", [2, 3, 6])
def test_the_hardest_rows_come_first(rng, dim):
    mean, factor = rng.normal(size=(8, dim)), rng.normal(size=(8, dim, dim + 1))
    found = arrange(mean, factor)
    for cell in range(8):
        sd = np.linalg.norm(factor[cell], axis=1)
        scaled = factor[cell] / sd[:, None]
        assert found.order[cell].tolist() == np.argsort(plain_edges(mean[cell] / sd, scaled @ scaled.T)).tolist()


@pytest.mark.parametrize("turned", [0, 1, 2])
def test_a_condition_that_others_imply_comes_last(turned):
    """The sum of two rows is positive where both are; before them it would leave them to chance."""
    rows = np.roll([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.01]], turned, axis=0)
    assert arrange(np.zeros((1, 3)), rows[None]).order[0, -1] == (2 + turned) % 3


def test_rows_are_ordered_in_chunks_without_a_trace(rng):
    mean, factor = rng.normal(size=(7, 4)), rng.normal(size=(7, 4, 4))
    together = module._hardest_first(mean, factor)
    for numbers in (1, 50):
        np.testing.assert_array_equal(module._hardest_first(mean, factor, numbers), together)


@pytest.mark.parametrize(
    ("cells", "numbers", "most", "expected"),
    [
        (7, 16, 50, [3, 3, 1]),
        (7, 16, 48, [3, 3, 1]),
        (7, 16, 47, [2, 2, 2, 1]),
        (7, 16, 1, [1] * 7),
        (9, 1, 100, [9]),
        (9, 0, 4, [4, 4, 1]),
        (0, 16, 50, [0]),
    ],
)
def test_chunks_hold_no_more_numbers_than_allowed(cells, numbers, most, expected):
    """Unless a single cell has more; where there is no cell, one empty chunk says what nothing looks like."""
    found = chunks(cells, numbers, most)
    assert [part.stop - part.start for part in found] == expected
    assert [c for part in found for c in range(cells)[part]] == list(range(cells))


def psi(point, mean, lower):
    """The logarithm of a tilted draw's weight at (w_1 .. w_{d-1}, m_1 .. m_{d-1}), as the module's text defines it."""
    dim = len(mean)
    w, m = np.append(point[: dim - 1], 0.0), np.append(point[dim - 1 :], 0.0)
    edge = (mean + np.tril(lower, -1) @ w) / np.diag(lower)
    return float(np.sum(0.5 * m**2 - m * w + log_ndtr(edge + m)))


@pytest.mark.parametrize("looks", [100, 0], ids=["damped rounds", "Newton"])
def test_tilting_is_at_the_saddle_point(looks):
    """Where the gradient of psi vanishes, in w and in the shifts alike; w_j = m_j + hazard_j."""
    dim = 4
    covariance = 0.4 + 0.6 * np.eye(dim)
    found = arrange(
        np.array([[-3.0, -1.0, 0.5, -4.0]]), np.linalg.cholesky(covariance)[None], tolerance=1e-10, looks=looks
    )
    mean, lower, shift = found.mean[0], found.lower[0], found.shift[0]
    assert np.all(shift != 0), "found, not given up"
    w = np.zeros(dim)
    for j in range(dim - 1):
        edge = (mean[j] + lower[j, :j] @ w[:j]) / lower[j, j]
        w[j] = shift[j] + hazard_of(np.array([edge + shift[j]]))[0]
    gradient = approx_fprime(np.append(w[:-1], shift), psi, 1e-6, mean, lower)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-5)


def damped_rounds(mean, lower, looks):
    """Half a step at a time towards the saddle point, three at a look, until a look asks for less than 0.3 more."""
    dim, shift = len(mean), np.zeros(len(mean))
    for look in range(looks):
        for _ in range(3):
            w, hazard = np.zeros(dim), np.zeros(dim)
            for j in range(dim):
                edge = (mean[j] + lower[j, :j] @ w[:j]) / lower[j, j] + shift[j]
                hazard[j] = hazard_of(np.array([edge]))[0]
                w[j] = shift[j] + hazard[j]
            asked = np.array(
                [sum(hazard[j] * lower[j, i] / lower[j, j] for j in range(i + 1, dim)) for i in range(dim)]
            )
            change, shift = np.abs(asked - shift).max(), (shift + asked) / 2.0
        if change < 0.3:
            return look, shift[:-1]
    return looks, None


def test_cells_settle_at_looks_of_their_own():
    """After three, six or nine damped rounds; those that have not by then are left to Newton's method."""
    generator, settled = np.random.default_rng(18), set()
    own = np.linspace(0.1, 1.0, 12)[:, None, None] * np.eye(4)
    factor = np.concatenate([generator.normal(size=(12, 4, 2)), own], axis=2)
    found = arrange(generator.normal(size=(12, 4)) - 1.0, factor)
    for cell in range(12):
        look, shift = damped_rounds(found.mean[cell], found.lower[cell], 3)
        settled.add(look)
        if shift is not None:
            np.testing.assert_allclose(found.shift[cell], shift, rtol=1e-9)
    assert settled == {0, 1, 2, 3}


def test_newton_finds_what_many_damped_rounds_find():
    """Rows that two numbers nearly decide: a few damped rounds do not settle, thousands do."""
    rows = np.array([[0.1, -0.1], [0.6, 0.1], [-0.5, 0.4], [1.3, 0.9]])
    vectors = np.array([[-0.03, -0.01, 0.005, -0.04]]), np.concatenate([rows, 0.003 * np.eye(4)], axis=1)[None]
    slow, quick = arrange(*vectors, 1e-9, looks=10_000).shift, arrange(*vectors, 1e-9, looks=0).shift
    assert (slow != 0).all()
    np.testing.assert_allclose(quick, slow, rtol=1e-8)
    np.testing.assert_allclose(arrange(*vectors).shift, slow, rtol=1e-3)


def test_small_dimensions_and_lost_cells_are_not_tilted():
    assert arrange(np.full((3, 2), -5.0), np.repeat(np.eye(2)[None], 3, axis=0)).shift.tolist() == [[0.0]] * 3
    mean, factor = np.full((1, 3), -3.0), np.linalg.cholesky(0.5 + 0.5 * np.eye(3))[None]
    assert (arrange(mean, factor).shift != 0).all()
    assert (arrange(mean, factor, tolerance=0.0).shift == 0).all(), "never close enough: the plain draws are kept"


def test_a_row_that_the_others_decide_does_not_tilt_them():
    """The third row is the second: it has no say of its own, so shifts are those of two rows and a free one."""
    base = np.array([[1.0, 0.0], [0.6, 0.8]])
    twice = arrange(np.array([[-2.0, -1.0, -1.0]]), base[None, [0, 1, 1]])
    assert np.isfinite(twice.shift).all()
    assert np.abs(twice.shift).max() < 10.0


@pytest.mark.parametrize("edge", [-1e6, -40.0, -1.0, 0.0, 2.0, 30.0])
def test_hazard(edge):
    expected = np.exp(stats.norm.logpdf(edge) - log_ndtr(edge)) if edge > -1e3 else -edge
    assert hazard_of(np.array([edge])) == pytest.approx(expected, rel=1e-11)
