"""Coordinates on sparse systems: the density by a dense determinant, laws of largest values by SciPy."""

import numpy as np
import pytest
from bellmanifold.posteriors.sparse_coordinates import SparseCoordinates
from problems import random_problem
from scipy import stats

from bellmanifold import envs
from bellmanifold.data import Dataset
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.target import relaxed_target

SIGMA = 2.0


def crowd():
    """State s has 4 actions, t 3, u 2; the first of each leads on, to t, u or out."""
    moves = {("s", f"a{k}"): Move(-1.0, {"t": 0.5, "u": 0.5} if k == 0 else {"goal": 1.0}) for k in range(4)}
    moves |= {("t", f"a{k}"): Move(-2.0, {"u": 0.7, "s": 0.3} if k == 0 else {"goal": 1.0}) for k in range(3)}
    moves |= {("u", f"a{k}"): Move(-3.0, {"goal": 1.0}) for k in range(2)}
    return from_moves("crowd", moves, start="s")


def first_seen(epsilon):
    """The first actions of s and t were seen: u is touched, and 3, 2 and 2 actions are not known."""
    return relaxed_target(Dataset.from_pairs(crowd(), [("s", "a0"), ("t", "a0")]), epsilon, SIGMA)


def dense_log_det(model, observed, q):
    """log |det A|, A_ij = 1(i = j) - p(s_j | i) 1(a_j greedy at s_j) for observed i and j."""
    seen, greedy = np.flatnonzero(observed), model.greedy(q)
    matrix = np.eye(len(seen))
    for a, i in enumerate(seen):
        for e in range(model.next_start[i], model.next_start[i + 1]):
            s = model.next_state[e]
            if s < model.n_states:
                matrix[a] -= model.next_prob[e] * (seen == greedy[s])
    return np.linalg.slogdet(matrix)[1]


def residual(model, q):
    """g(q) of every pair, from the best values of the next states."""
    return q - (model.backup(model.best(q)) - model.reward)


def test_places_solve_the_equations_and_weigh_as_the_determinant_says(rng):
    """Random problems: residuals are r + epsilon x, and the likelihood is prod N(q_i; 0, sigma^2) / |det A|."""
    found = 0
    for _ in range(30):
        model = random_problem(rng, states=4, reward_kind="costs", goal_share=0.3)
        pairs = np.flatnonzero(rng.random(model.n_pairs) < 0.7)
        target = relaxed_target(Dataset(model, pairs, model.reward[pairs]), 0.3, SIGMA)
        try:
            coordinates = SparseCoordinates(target)
        except UnsupportedError:  # observed pairs trap some state
            continue
        x = rng.normal(size=coordinates.size)
        place = coordinates.place(x, None)
        assert place.x is x
        if place.policy is None:
            assert place.log_likelihood == -np.inf
            continue
        found += 1
        coupled = target.coupled[model.pair_state]
        np.testing.assert_array_equal(place.policy[target.coupled], model.greedy(place.q)[target.coupled])
        g = residual(model, place.q)[pairs]
        np.testing.assert_allclose(g, target.reward[pairs] + 0.3 * x[len(coordinates.free) :], atol=1e-9)
        np.testing.assert_array_equal(place.q[coordinates.free], coordinates.values(x))
        others = coupled & ~target.observed & ~np.isin(np.arange(model.n_pairs), coordinates.free)
        assert (place.q[others] == -np.inf).all()
        square = ((place.q[pairs] / SIGMA) ** 2).sum()
        expected = -0.5 * square - dense_log_det(model, target.observed, place.q)
        assert place.log_likelihood == pytest.approx(expected, abs=1e-9)
    assert found > 10


def test_coordinates_are_counted():
    """Three states with unobserved pairs and two residuals; infinitesimal ones are not integrated over."""
    relaxed, exact = SparseCoordinates(first_seen(0.3)), SparseCoordinates(first_seen(0.0))
    assert (relaxed.size, relaxed.dimension, exact.size, exact.dimension) == (5, 5, 5, 3)
    assert relaxed.alternatives.tolist() == [3, 2, 2]
    assert relaxed.free.tolist() == [1, 5, 7]
    assert relaxed.stand_in.tolist() == [0, 1, 1, 1, 4, 5, 5, 7, 7]
    np.testing.assert_allclose(relaxed.scale, [0.3, 0.3])
    np.testing.assert_allclose(exact.scale, [2e-8, 2e-8])


def test_the_largest_of_several_normals_has_the_power_of_their_law():
    """P(largest of k <= v) = Phi(v / sigma)^k is uniform, as Phi(x) is; one alone is sigma x itself."""
    coordinates = SparseCoordinates(first_seen(0.3))
    x = np.array([-1.3, 0.2, 2.5, 9.0, 9.0])
    values = coordinates.values(x)
    np.testing.assert_allclose(stats.norm.cdf(values / SIGMA) ** [3, 2, 2], stats.norm.cdf(x[:3]), rtol=1e-12)
    assert [coordinates.value(float(x[k]), k) for k in range(3)] == pytest.approx(values.tolist(), rel=1e-14)
    alone = SparseCoordinates(relaxed_target(Dataset.from_pairs(envs.deep_sea(1), [("0,0", "left")]), 0.3, SIGMA))
    np.testing.assert_array_equal(alone.values(np.array([0.7, 0.0])), [1.4])
    assert alone.value(0.7, 0) == 1.4


def test_moments_of_one_of_several_values_below_the_largest():
    """With probability 1/k it is the largest, m; else a normal cut off at m: SciPy's truncated normal."""
    coordinates = SparseCoordinates(first_seen(0.3))
    q = np.array([-1.0, 0.5, -np.inf, -np.inf, -2.0, -1.5, -np.inf, 3.0, -np.inf])
    first, second = coordinates.moments(q)
    assert first[[0, 4]].tolist() == [-1.0, -2.0]
    assert second[[0, 4]].tolist() == [1.0, 4.0]
    for pair, k in zip([1, 5, 7], [3, 2, 2], strict=True):
        m = q[pair]
        below = stats.truncnorm(-np.inf, m / SIGMA, scale=SIGMA)
        mean, square = below.mean(), below.var() + below.mean() ** 2
        assert first[pair] == pytest.approx((m + (k - 1) * mean) / k, rel=1e-9)
        assert second[pair] == pytest.approx((m**2 + (k - 1) * square) / k, rel=1e-9)


def test_residuals_that_split_ties_do_not_tilt_the_prior():
    """Rewards of 20,000 prior scales: q^2 changes by 4 with a residual of 1e-8 of them; the prior is taken without."""
    moves = {("s", "on"): Move(-2e4, {"t": 1.0}), ("t", "on"): Move(-2e4, {"goal": 1.0})}
    model = from_moves("far", moves, start="s")
    coordinates = SparseCoordinates(relaxed_target(Dataset.complete(model), 0.0, 1.0))
    for x in (np.zeros(2), np.array([3.0, -2.0])):
        assert coordinates.place(x, None).log_likelihood == pytest.approx(-0.5 * (4e4**2 + 2e4**2), rel=1e-14)
    tilted = coordinates.place(np.array([3.0, -2.0]), None).q
    np.testing.assert_allclose(tilted - [-4e4, -2e4], [2e-4, -4e-4], rtol=1e-4)


def test_residuals_that_split_ties_do_not_undo_a_loop_that_costs_less():
    """Staying costs 1e-9, a residual pays 3e-8: the exact posterior knows better, a relaxed one finds it improper."""
    data = Dataset.from_pairs(envs.two_state(), [("s1", "stay", -1e-9), ("s1", "go", -1.0)])
    pays = np.array([3.0, 0.0])
    exact = SparseCoordinates(relaxed_target(data, 0.0, 1.0)).place(pays, None)
    assert exact.policy.tolist() == [1]
    assert exact.log_likelihood == pytest.approx(-1.0, abs=1e-6)
    relaxed = SparseCoordinates(relaxed_target(data, 1e-8, 1.0)).place(pays, None)
    assert relaxed.policy is None
    assert relaxed.log_likelihood == -np.inf


def test_states_that_data_do_not_touch_are_held_at_0():
    model = envs.deep_sea(3)
    coordinates = SparseCoordinates(relaxed_target(Dataset.from_pairs(model, [("0,0", "left")]), 0.3, SIGMA))
    place = coordinates.place(np.zeros(coordinates.size), None)
    idle = ~coordinates.target.coupled
    assert idle.sum() == 4
    np.testing.assert_array_equal(model.best(place.q)[idle], np.zeros(4))
