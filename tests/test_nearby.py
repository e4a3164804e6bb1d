"""Policies near a factorised one: values and determinants against dense solutions, and refusals."""

import numpy as np
import pytest
from plain_chart import PlainChart

from bellmanifold import envs
from bellmanifold.chart.nearby import LARGEST, Base, Laws, Played
from bellmanifold.chart.sparse import sparse_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.graph import reaches_goal
from bellmanifold.linear import factorised_chain


def dense(chart, policy, pay):
    """Value and log determinant of a policy of M~ by a dense solver."""
    matrix = np.eye(len(policy)) - chart.moves.toarray()[policy]
    return np.linalg.solve(matrix, pay[policy]), np.linalg.slogdet(matrix)[1]


def half_seen(rng, size=11):
    model = envs.grid(size, size, slip=0.1)
    return model, sparse_chart(model, rng.random(model.n_pairs) < 0.5)


@pytest.mark.parametrize("switched", [0, 1, 5, 30])
def test_a_few_switches_change_value_and_determinant_as_a_dense_solver_says(rng, switched):
    """A slippery grid, half of its pairs solved: from a greedy policy to one that differs at random in some states."""
    model, chart = half_seen(rng)
    ended, pay = chart.ended, rng.normal(size=len(chart.pairs)) - 1.0
    played = chart._play(chart._own(chart.solve(model.reward, 5 * rng.normal(size=model.n_pairs) - 20.0).policy))
    base, policy = Base(chart.laws, played), played.policy.copy()
    while base.differs(policy) < switched:
        state, before = rng.integers(len(policy)), policy.copy()
        policy[state] = rng.integers(ended.pair_start[state], ended.pair_start[state + 1])
        policy = policy if reaches_goal(ended, policy).all() else before
    there, log_det = dense(chart, base.policy, pay)
    expected, expected_det = dense(chart, policy, pay)
    for _ in range(2):  # columns that are known serve again
        value, change = base.change(there, pay, policy)
        np.testing.assert_allclose(there + value, expected, rtol=1e-10, atol=1e-10)
        assert log_det + change == pytest.approx(expected_det, abs=1e-10)


def chain_of(stays, length=60):
    """A corridor to the goal whose first state may also be stayed in, with a probability."""
    moves = {(str(k), "on"): Move(-1.0, {str(k + 1) if k + 1 < length else "goal": 1.0}) for k in range(length)}
    return from_moves("corridor", moves | {("0", "stay"): Move(-1.0, {"0": stays, "1": 1.0 - stays})}, start="0")


@pytest.mark.parametrize(("stays", "is_answered"), [(0.5, True), (1.0 - 0.1 / LARGEST, False), (1.0, False)])
def test_what_is_nearly_trapped_or_improper_is_not_answered(stays, is_answered):
    model = chain_of(stays)
    on, stay = (model.pair_index["0", name] for name in ("on", "stay"))
    policy = np.array([model.pair_start[s] for s in range(model.n_states)])
    policy[0] = on
    played = Played(policy, np.arange(model.n_states), factorised_chain(model, policy, np.arange(model.n_states)))
    base = Base(Laws.of(sparse_chart(model, np.ones(model.n_pairs, dtype=bool)).moves), played)
    there = -np.arange(model.n_states, 0.0, -1.0)
    other = policy.copy()
    other[0] = stay
    assert (base.change(there, model.reward, other) is not None) == is_answered


def test_points_of_a_walk_are_those_of_plain_policy_iteration(rng):
    """Small and large steps of payments and values on a slippery grid: each from the last policy, against no start."""
    model, chart = half_seen(rng, 9)
    solved = np.isin(np.arange(model.n_pairs), chart.pairs[chart.solved])
    plain, start = PlainChart(model, solved), None
    value, payment = 5 * rng.normal(size=model.n_pairs), model.reward.copy()
    for size in (0.01, 0.1, 1.0, 5.0) * 6:
        value = value + size * rng.normal(size=model.n_pairs)
        found, expected = chart.solve(payment, value, start), plain.solve(payment, value)
        np.testing.assert_allclose(found.q, expected.q, rtol=1e-10, atol=1e-9)
        assert found.log_det == pytest.approx(expected.log_det, abs=1e-9)
        start = found.policy
    assert 1 <= len(chart._bases) <= 4
