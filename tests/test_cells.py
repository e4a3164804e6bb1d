"""The cells of Proposition 1 against enumeration, and the Gaussian of each against the textbook's formulas."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.target import Target, ValuePrior, relaxed_target
from bellmanifold.problem.dataset import Dataset
from bellmanifold_paper.engines import cells as module
from bellmanifold_paper.engines.cells import cells_of


def model():
    """Three actions, two and one; chance, a self-loop, a cycle; `far` is touched by no data."""
    moves = {
        ("a", "x"): Move(-0.5, {"b": 0.5, "c": 0.5}),
        ("a", "y"): Move(-1.0, {"a": 0.3, "goal": 0.7}),
        ("a", "z"): Move(0.2, {"b": 1.0}),
        ("b", "x"): Move(-0.3, {"c": 1.0}),
        ("b", "y"): Move(-0.7, {"c": 0.6, "goal": 0.4}),
        ("c", "only"): Move(-0.4, {"c": 0.2, "goal": 0.8}),
        ("d", "x"): Move(-1.0, {"goal": 1.0}),
        ("d", "y"): Move(-1.0, {"b": 1.0}),
        ("far", "x"): Move(-1.0, {"goal": 1.0}),
        ("far", "y"): Move(-1.0, {"a": 1.0}),
    }
    return from_moves("odd", moves, start="a")


def target():
    """Seen, with different widths: both of b, one of a and one of d. Successors: b, c; a and d only have walls."""
    problem = model()
    pairs = [problem.pair_index[p] for p in (("a", "x"), ("b", "x"), ("b", "y"), ("d", "y"))]
    observed = np.isin(np.arange(problem.n_pairs), pairs)
    scale = np.where(observed, 0.3 + 0.1 * np.arange(problem.n_pairs), 0.0)
    reward = np.where(observed, problem.reward, 0.0)
    return Target(problem, observed, reward, scale, ValuePrior.same(problem, 1.7), log_constant=0.25)


def with_own_priors():
    """The same with another prior for every pair; now `far` is coupled, too."""
    rng = np.random.default_rng(4)
    return replace(target(), prior=ValuePrior(rng.normal(size=10), rng.uniform(0.3, 3.0, 10)))


def as_pairs(cells, policy):
    """Own pairs by name."""
    problem = model()
    return [problem.pair_name(int(i)) for i in cells.own[policy]]


def test_every_choice_of_coupled_states_is_a_cell():
    cells = cells_of(target(), 100)
    assert (cells.n_cells, cells.n_choices, cells.fastest) == (12, 2, 6)
    found = {tuple(as_pairs(cells, policy)) for policy in cells.policies(np.arange(12))}
    own = [[("a", x) for x in "xyz"], [("b", x) for x in "xy"], [("c", "only")], [("d", x) for x in "xy"]]
    assert found == set(itertools.product(*own))
    at_b = cells.policies(np.arange(12))[:, 1]
    assert len(set(at_b[:6])) == len(set(at_b[6:])) == 1, "choices at successors vary slowest"


def test_walls_are_the_differences_to_all_other_actions():
    cells = cells_of(target(), 100)
    cell = np.arange(12)
    policy, (greedy, other) = cells.policies(cell), cells.walls(cell)
    for k in cell:
        found = {tuple(as_pairs(cells, np.array(wall))) for wall in zip(greedy[k], other[k], strict=True)}
        expected = set()
        for state, played in as_pairs(cells, policy[k]):
            others = [pair for pair in as_pairs(cells, np.arange(len(cells.own))) if pair[0] == state]
            expected |= {((state, played), pair) for pair in others if pair[1] != played}
        assert found == expected
        assert len(greedy[k]) == len(expected) == 4


def by_textbook(target, cells, policy):
    """log N(r; B m, B D^2 B' + E^2), and mean and covariance of theta by conditioning, from B written out."""
    problem, own = target.model, cells.own.tolist()
    rows = []
    for i in np.flatnonzero(target.observed):
        row = np.zeros(len(own))
        row[own.index(i)] += 1.0
        for e in range(problem.next_start[i], problem.next_start[i + 1]):
            if problem.next_state[e] < problem.n_states:
                state = np.flatnonzero(np.flatnonzero(target.coupled) == problem.next_state[e])[0]
                row[policy[state]] -= problem.next_prob[e]
        rows.append(row)
    b, reward = np.array(rows), target.reward[target.observed]
    prior_mean, prior = target.prior.mean[own], np.diag(target.prior.sd[own] ** 2)
    covariance = b @ prior @ b.T + np.diag(target.scale[target.observed] ** 2)
    gain = prior @ b.T @ np.linalg.inv(covariance)
    evidence = multivariate_normal(b @ prior_mean, covariance).logpdf(reward) + target.log_constant
    return evidence, prior_mean + gain @ (reward - b @ prior_mean), prior - gain @ b @ prior


@pytest.mark.parametrize("whole", [target(), with_own_priors()], ids=["same prior", "own priors"])
def test_gaussians_by_the_textbook(whole):
    cells = cells_of(whole, 100)
    found, at = cells.gaussians(cells.fastest * np.arange(2))
    assert at.tolist() == [0, 1]
    for choice in range(2):
        for cell in (cells.fastest * choice, cells.fastest * (choice + 1) - 1):
            evidence, mean, covariance = by_textbook(whole, cells, cells.policies(np.array([cell]))[0])
            assert found.log_evidence[choice] == pytest.approx(evidence, rel=1e-11)
            np.testing.assert_allclose(found.mean[choice], mean, atol=1e-11)
            np.testing.assert_allclose(found.factor[choice] @ found.factor[choice].T, covariance, atol=1e-11)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)])
@pytest.mark.parametrize("limit", [1e9, 0.0], ids=["cholesky", "svd"])
def test_posteriors_of_normal_numbers_by_the_textbook(rng, limit, shape):
    """y = X x + noise: precision I + X'X, mean that times X'y, for two matrices at once."""
    matrix, data = 3.0 * rng.normal(size=(2, *shape)), rng.normal(size=(2, shape[0]))
    log_determinant, mean, factor = module._posterior(matrix, data, limit)
    for k in range(2):
        precision = np.eye(shape[1]) + matrix[k].T @ matrix[k]
        assert log_determinant[k] == pytest.approx(np.linalg.slogdet(precision)[1], rel=1e-11)
        np.testing.assert_allclose(mean[k], np.linalg.solve(precision, matrix[k].T @ data[k]), atol=1e-11)
        np.testing.assert_allclose(factor[k] @ factor[k].T, np.linalg.inv(precision), atol=1e-11)


def test_squares_are_formed_only_where_they_are_small():
    """A squared norm of exactly the limit is too large for Cholesky factors, which are triangular."""
    matrix, data = np.array([[[3.0, 0.0, 4.0], [1.0, 2.0, 0.5]]]), np.ones((1, 2))
    for limit, triangular in ((30.25, False), (30.26, True)):
        factor = module._posterior(matrix, data, limit)[2][0]
        assert np.allclose(factor, np.triu(factor)) == triangular


def test_states_whose_priors_differ_have_walls_without_data():
    assert cells_of(target(), 100).n_cells == 12
    cells = cells_of(with_own_priors(), 100)
    assert (cells.n_cells, cells.n_choices, len(cells.own)) == (24, 2, 10)


def test_gaussians_that_are_kept_are_looked_up():
    cells = cells_of(target(), 100)
    every = cells.compute(np.arange(2))
    some = np.array([cells.n_cells - 1, 0, cells.fastest])
    found, at = replace(cells, stored=every).gaussians(some)
    again, place = cells.gaussians(some)
    assert found is every
    for name in ("mean", "factor", "log_evidence"):
        np.testing.assert_array_equal(getattr(found, name)[at], getattr(every, name)[[1, 0, 1]])
        np.testing.assert_array_equal(getattr(again, name)[place], getattr(every, name)[[1, 0, 1]])


def test_no_data_have_one_cell_and_no_walls():
    cells = cells_of(relaxed_target(Dataset.from_pairs(model(), []), 0.1, 2.0), 1)
    assert cells.n_cells == 1
    greedy, other = cells.walls(np.array([0]))
    assert greedy.shape == other.shape == (1, 0)
    assert cells.gaussians(np.array([0]))[0].log_evidence == pytest.approx([0.0])


@pytest.mark.parametrize("size", [3, 8, 9, 20])
def test_inverses_of_triangular_matrices(rng, size):
    lower = np.tril(rng.normal(size=(2, size, size)), -1) + (1.0 + rng.random((2, size, 1))) * np.eye(size)
    found = module._inverse(lower)
    np.testing.assert_allclose(found @ lower, np.repeat(np.eye(size)[None], 2, axis=0), atol=1e-9)
    np.testing.assert_allclose(np.triu(found, 1), 0.0, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)])
def test_hopelessly_scaled_equations_are_solved_without_squares(rng, shape):
    """x ~ N(0, I), y = X x + noise with X of size 1e12, one row twice: as good as X x = y, shortest solution."""
    matrix = 1e12 * rng.normal(size=(1, *shape))
    matrix[0, 1] = matrix[0, 0]
    if shape[0] > shape[1]:
        matrix[0, 3:] = matrix[0, 2]
    x = np.linalg.pinv(matrix[0]) @ matrix[0] @ rng.normal(size=shape[1])
    log_determinant, mean, factor = module._posterior(matrix, (matrix[0] @ x)[None])
    singular = np.linalg.svd(matrix[0], compute_uv=False)
    known = singular > 1.0
    assert log_determinant == pytest.approx([2.0 * np.log(singular[known]).sum()], rel=1e-9)
    np.testing.assert_allclose(mean[0], x, atol=1e-6)
    unknown = np.eye(shape[1]) - np.linalg.pinv(matrix[0]) @ matrix[0]
    np.testing.assert_allclose(factor[0] @ factor[0].T, unknown, atol=1e-9)


def test_as_many_cells_as_allowed_and_one_more():
    assert cells_of(target(), 12).n_cells == 12
    with pytest.raises(UnsupportedError, match="12 cells, more than the 11"):
        cells_of(target(), 11)


def test_huge_numbers_of_cells_are_told_by_their_size():
    assert module._count(9_999_999) == "9999999"
    assert module._count(10_000_000) == "about 10^7"
    assert module._count(123_456_789_000) == "about 10^11"


def test_what_has_no_cells_is_refused():
    data = Dataset.complete(model())
    with pytest.raises(UnsupportedError, match="Gaussian kernel"):
        cells_of(relaxed_target(data, 0.1, 1.0, "uniform"), 10**6)
    with pytest.raises(UnsupportedError, match="exact posterior"):
        cells_of(relaxed_target(data, 0.0, 1.0), 10**6)
