"""Policies near a factorised one: values and determinants against dense solutions, and refusals."""

from dataclasses import replace

import numpy as np
import pytest
from plain_chart import PlainChart

from bellmanifold import envs
from bellmanifold.chart.nearby import LARGEST, MOST_SWITCHED, Base, Laws, Played
from bellmanifold.chart.sparse import BASES, KEPT, sparse_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.mdp.graph import reaches_goal
from bellmanifold.mdp.linear import factorised_chain


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
    moves |= {("0", "stay"): Move(-1.0, {"0": stays, "1": 1.0 - stays}), ("7", "end"): Move(-2.0, {"goal": 1.0})}
    return from_moves("corridor", moves, start="0")


@pytest.mark.parametrize(("stays", "is_answered"), [(0.5, True), (1.0 - 0.1 / LARGEST, False), (1.0, False)])
def test_what_is_nearly_trapped_or_improper_is_not_answered(stays, is_answered):
    """Not either where another state is switched as well, whose part of the inverse is small."""
    model = chain_of(stays)
    stay, end = model.pair_index["0", "stay"], model.pair_index["7", "end"]
    policy = np.array([model.pair_index[name, "on"] for name in model.states])
    played = Played(policy, np.arange(model.n_states), factorised_chain(model, policy, np.arange(model.n_states)))
    base = Base(Laws.of(sparse_chart(model, np.ones(model.n_pairs, dtype=bool)).moves), played)
    there = -np.arange(model.n_states, 0.0, -1.0)
    other = policy.copy()
    for pair in (stay, end):
        other[model.pair_state[pair]] = pair
        assert (base.change(there, model.reward, other) is not None) == is_answered


def test_where_the_base_itself_hardly_leaves_nothing_is_answered():
    """Its visits are too many in one place, and none elsewhere; other states do not lead there."""
    model = chain_of(1.0 - 0.1 / LARGEST)
    policy = np.array([model.pair_index[name, "on"] for name in model.states])
    policy[model.state_index["0"]] = model.pair_index["0", "stay"]
    played = Played(policy, np.arange(model.n_states), factorised_chain(model, policy, np.arange(model.n_states)))
    base = Base(Laws.of(sparse_chart(model, np.ones(model.n_pairs, dtype=bool)).moves), played)
    first, seventh = (model.state_index[name] for name in ("0", "7"))
    assert base.visits(np.array([first, seventh])) is None
    found = base.visits(np.array([seventh]))
    assert found is not None
    assert found[first] == pytest.approx([1.0], rel=1e-9)
    base.played = played._replace(chain=replace(played.chain, factors=None))
    np.testing.assert_array_equal(base.visits(np.array([seventh])), found)  # what is known serves again


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


def test_visits_are_columns_of_the_inverse(rng):
    """Asked for one after the other, and some again: expected visits of the base's chain, none of the goal."""
    model, chart = half_seen(rng, 9)
    played = chart._play(chart._own(chart.solve(model.reward, 5 * rng.normal(size=model.n_pairs) - 10.0).policy))
    base, states = Base(chart.laws, played), len(played.policy)
    inverse = np.linalg.inv(np.eye(states) - chart.moves.toarray()[played.policy])
    for some in ([3], [5, 3, 0], [states - 1, 5]):
        found = base.visits(np.array(some))
        np.testing.assert_allclose(found[:-1], inverse[:, some], rtol=1e-10, atol=1e-12)
        assert (found[-1] == 0.0).all()
    assert base.differs(played.policy) == 0


def test_a_point_is_found_from_a_policy_nearby(rng):
    """Without a new factorisation, after small steps: as plain policy iteration finds it."""
    model, chart = half_seen(rng, 9)
    plain = PlainChart(model, np.isin(np.arange(model.n_pairs), chart.pairs[chart.solved]))
    value = 5 * rng.normal(size=model.n_pairs) - 10.0
    start = chart.solve(model.reward, value).policy
    for _ in range(6):
        value = value + 0.5 * rng.normal(size=model.n_pairs)
        pay = np.where(chart.solved, model.reward[chart.pairs], value[chart.pairs])
        found, expected = chart._solve_nearby(pay, value, chart._own(start)), plain.solve(model.reward, value)
        assert found is not None
        np.testing.assert_allclose(found.q, expected.q, rtol=1e-10, atol=1e-9)
        assert found.log_det == pytest.approx(expected.log_det, abs=1e-9)
        np.testing.assert_array_equal(found.policy[chart.states], expected.policy[chart.states])
        start = found.policy
    assert len(chart._bases) == 1


def switched(chart, policy, count):
    """The same policy, but in so many states an unsolved pair is played that was not."""
    free = [(chart.ended.pair_state[i], i) for i in np.flatnonzero(~chart.solved) if i not in policy]
    other = policy.copy()
    for state, pair in list(dict(free).items())[:count]:
        other[state] = pair
    assert (other != policy).sum() == count
    return other


def test_the_last_bases_serve_policies_that_are_near(rng):
    """Up to half of the switches that are allowed a policy is near; of more bases than are kept the first goes."""
    model, chart = half_seen(rng, 14)
    policy = chart._own(chart.solve(model.reward, 5 * rng.normal(size=model.n_pairs) - 20.0).policy)
    first = chart._base(policy)
    assert first is chart._base(switched(chart, policy, MOST_SWITCHED // 2))
    second = chart._base(switched(chart, policy, MOST_SWITCHED // 2 + 1))
    assert second is not first
    assert chart._bases == [first, second]
    chart._bases[1:] = [Base(chart.laws, second.played) for _ in range(BASES - 1)]
    far = chart._base(switched(chart, policy, 2 * (MOST_SWITCHED // 2) + 2))
    assert far is chart._bases[-1]
    assert first not in chart._bases
    assert len(chart._bases) == BASES


def test_the_last_chains_are_remembered(rng):
    """Least recently played first out; an improper policy is none of them."""
    model, chart = half_seen(rng, 9)
    policy = chart._own(chart.solve(model.reward, 5 * rng.normal(size=model.n_pairs) - 10.0).policy)
    policies = [switched(chart, policy, k) for k in range(KEPT + 1)]
    chart._recent.clear()
    played = [chart._play(one) for one in policies[:KEPT]]
    assert chart._play(policies[0]) is played[0]
    chart._play(policies[KEPT])
    expected = [*policies[2:KEPT], policies[0], policies[KEPT]]
    assert list(chart._recent) == [one.tobytes() for one in expected]
    for one in chart._recent.values():
        np.testing.assert_array_equal(one.inside, np.flatnonzero(chart.solved[one.policy]))
