"""The sparse chart's savings change nothing: warm starts, sweeps, remembered factors, and looking at M~ alone."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from plain_chart import PlainChart
from problems import random_problem
from scipy.sparse import csc_array, eye_array
from scipy.sparse.linalg import splu

from bellmanifold import envs
from bellmanifold.chart.batch import batch_chart
from bellmanifold.chart.sparse import SWEEPS, sparse_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.mdp import blocks, linear
from bellmanifold.mdp.graph import reach_goal
from bellmanifold.mdp.linear import evaluate_chain, factorised_chain
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.sparse_system import SparseSystem, State
from bellmanifold.posteriors.sparse_walk import _slice, step
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.problem.dataset import Dataset


def partly_seen(rng, model, share, epsilon):
    pairs = np.flatnonzero(rng.random(model.n_pairs) < share)
    return relaxed_target(Dataset(model, pairs, model.reward[pairs]), epsilon, 10.0)


def both_walks(target, steps, seed):
    """The same steps on the same seed, with the chart and with its plain counterpart."""
    for is_plain in (False, True):
        system, rng = SparseSystem(Coordinates(target)), np.random.default_rng(seed)
        if is_plain:
            system.chart = PlainChart(target.model, target.observed)
        here = system.evaluate(rng.standard_normal(system.size), None)
        yield [here := step(system, here, rng) for _ in range(steps)]


@pytest.mark.parametrize(
    ("share", "epsilon"), [(0.1, 0.0), (0.5, 0.0), pytest.param(0.95, 0.0, marks=pytest.mark.slow), (0.5, 0.3)]
)
def test_a_walk_takes_the_same_steps_as_a_plain_one(share, epsilon):
    """A 12 x 11 slippery grid: places, likelihoods, values and greedy policies, step by step."""
    model = envs.grid(12, 11, slip=0.1)
    target = partly_seen(np.random.default_rng(1), model, share, epsilon)
    coupled = target.coupled
    for fast, plain in zip(*both_walks(target, 12, seed=2), strict=True):
        np.testing.assert_allclose(fast.x, plain.x, rtol=1e-9, atol=1e-12)  # ceilings are rounded differently
        assert fast.log_likelihood == pytest.approx(plain.log_likelihood, rel=1e-10, abs=1e-8)
        np.testing.assert_allclose(fast.q, plain.q, rtol=1e-10, atol=1e-9)
        if fast.policy is not None:
            np.testing.assert_array_equal(fast.policy[coupled], plain.policy[coupled])


def test_points_without_a_proper_solution_are_found_alike(rng):
    """Random problems whose loops pay or cost: the same points have no solution, with sweeps and without."""
    without = 0
    for _ in range(40):
        model = random_problem(rng, states=int(rng.integers(2, 8)), goal_share=0.05)
        solved = rng.random(model.n_pairs) < 0.8
        plain = PlainChart(model, solved)
        if plain.first is None:
            continue
        chart, start = sparse_chart(model, solved), None
        for _ in range(5):
            payment, value = rng.normal(size=model.n_pairs) - 0.3, 3 * rng.normal(size=model.n_pairs)
            found, expected = chart.solve(payment, value, start), plain.solve(payment, value)
            assert (found.policy is None) == (expected.policy is None)
            without += found.policy is None
            if found.policy is not None:
                start = found.policy
                np.testing.assert_allclose(found.q, expected.q, atol=1e-8)
                assert found.log_det == pytest.approx(expected.log_det, abs=1e-9)
    assert without > 10


def test_loops_that_cost_nothing_do_not_look_improper():
    """A loop of gain 0 ties with leaving it; sweeps may then switch to the loop, and the step is taken without them."""
    moves = {
        ("a", "on"): Move(0.0, {"b": 1.0}),
        ("a", "poor"): Move(-5.0, {"goal": 1.0}),
        ("a", "rich"): Move(-1.0, {"goal": 1.0}),
        ("b", "back"): Move(0.0, {"a": 1.0}),
        ("b", "out"): Move(-4.0, {"goal": 1.0}),
    }
    model = from_moves("free loop", moves, start="a")
    everything, nothing = np.ones(model.n_pairs, dtype=bool), np.full(model.n_pairs, -np.inf)
    chart = sparse_chart(model, everything)
    start = np.array([model.pair_index["a", "poor"], model.pair_index["b", "out"]])
    point = chart.solve(model.reward, nothing, start)
    assert point.policy is not None
    assert point.q[model.pair_index["a", "rich"]] == -1.0
    assert model.best(point.q).tolist() == [-1.0, -1.0]


def test_the_next_episode_starts_from_the_last_policy_where_it_can(rng):
    """A policy of fewer solved pairs, proper or not among more of them, leads to the same point."""
    model = envs.grid(9, 9, slip=0.1)
    order = rng.permutation(model.n_pairs)
    before = sparse_chart(model, np.isin(np.arange(model.n_pairs), order[:100]))
    after = sparse_chart(model, np.isin(np.arange(model.n_pairs), order[:280]))
    value = 10 * rng.normal(size=model.n_pairs)
    policy = before.solve(model.reward, value).policy
    found, expected = after.solve(model.reward, value, policy), after.solve(model.reward, value)
    np.testing.assert_allclose(found.q, expected.q, atol=1e-9)


def test_unseen_parts_of_the_problem_are_not_looked_at(rng):
    """A tenth of a large grid: M~ has the seen pairs and one more for each state near them."""
    model = envs.grid(60, 60, slip=0.1)
    cells = np.array([[int(part) for part in name.split(",")] for name in model.states])
    seen = (cells < 19).all(axis=1)[model.pair_state]
    pairs = np.flatnonzero(seen)
    system = SparseSystem(Coordinates(relaxed_target(Dataset(model, pairs, model.reward[pairs]), 0.0, 10.0)))
    chart = system.chart
    assert len(chart.pairs) == len(pairs) + 2 * 19
    other = replace(model, next_prob=np.where(seen[model.next_pair], model.next_prob, np.nan))
    blind = sparse_chart(other, seen, counts=np.isin(np.arange(model.n_pairs), system.free))
    value = np.full(model.n_pairs, -np.inf)
    value[system.free] = rng.normal(size=len(system.free))
    np.testing.assert_array_equal(blind.solve(model.reward, value).q, chart.solve(model.reward, value).q)


def test_factors_are_those_of_splu(rng):
    """Nothing is dropped: a grid's chain, a chain that fills in far more than the room it starts with, and a trap."""
    grid = envs.grid(25, 24, slip=0.2)
    expander = random_problem(rng, states=600, actions=1, successors=8)
    for model in (grid, expander):
        policy, states = model.greedy(rng.normal(size=model.n_pairs)), np.arange(model.n_states)
        matrix = blocks.system(linear.chain_on(model, policy, states)) + 0.01 * eye_array(model.n_states)
        matrix = csc_array(matrix)
        found, expected = blocks.factorise(matrix), splu(matrix)
        assert found is not None
        assert (found.nnz > blocks.ROOM * matrix.nnz) == (model is expander)
        right = rng.normal(size=model.n_states)
        np.testing.assert_allclose(found.solve(right), expected.solve(right), rtol=1e-10, atol=1e-12)
        size = [np.log(np.abs(factors.U.diagonal())).sum() for factors in (found, expected)]
        assert size[0] == pytest.approx(size[1], abs=1e-10)
    assert blocks.factorise(csc_array(np.array([[1.0, -1.0], [-1.0, 1.0]]))) is None


@pytest.mark.parametrize("size", [5, 25])
def test_one_factorisation_solves_for_many_right_hand_sides(rng, size):
    """The same as one at a time, for small chains, grids and expanders."""
    for model in (envs.grid(size, size, slip=0.2), random_problem(rng, states=size * size, goal_share=0.3)):
        policy, states = reach_goal(model)[1], np.arange(model.n_states)
        rights = [rng.normal(size=model.n_states) for _ in range(3)]
        for right, found in zip(rights, linear.solve_chains(model, policy, states, rights), strict=True):
            np.testing.assert_array_equal(found, linear.solve_chain(model, policy, states, right))


@pytest.mark.parametrize("size", [5, 12, 20])
def test_factors_serve_many_right_hand_sides(rng, size):
    """Small chains are eliminated, larger ones factorised: as a dense solver says."""
    model = envs.grid(size, size, slip=0.2)
    policy = model.greedy(rng.normal(size=model.n_pairs))
    states = np.sort(rng.choice(model.n_states, model.n_states // 2, replace=False))
    chain = factorised_chain(model, policy, states)
    matrix = np.eye(model.n_states)
    for s, i in enumerate(policy):
        for e in range(model.next_start[i], model.next_start[i + 1]):
            if model.next_state[e] < model.n_states:
                matrix[s, model.next_state[e]] -= model.next_prob[e]
    matrix = matrix[np.ix_(states, states)]
    for _ in range(3):
        right = rng.normal(size=len(states))
        x, log_det = chain.evaluate(right)
        np.testing.assert_allclose(x, np.linalg.solve(matrix, right), rtol=1e-8, atol=1e-8)
        assert log_det == pytest.approx(np.linalg.slogdet(matrix)[1], abs=1e-8)
        assert evaluate_chain(model, policy, states, right)[1] == log_det


def test_observed_pairs_that_trap_a_state_are_refused():
    """From b the observed pair alone leads on, back to b: no policy ends, in one chart as in the other."""
    moves = {("a", "x"): Move(-1.0, {"b": 1.0}), ("b", "x"): Move(-1.0, {"b": 1.0})}
    moves[("a", "y")] = Move(-1.0, {"goal": 1.0})
    model = from_moves("trap", moves, start="a")
    seen = np.array([name in (("a", "x"), ("b", "x")) for name in map(model.pair_name, range(3))])
    with pytest.raises(UnsupportedError, match=r"trap some state: .* use discount=0\.99"):
        sparse_chart(model, seen)
    with pytest.raises(UnsupportedError, match="reach neither the goal nor an unobserved pair"):
        batch_chart(model).solve(seen, jnp.zeros((3, 1)), jnp.zeros((3, 1)))


def two_ways():
    """A state with two ways to the next, which ends or goes back, and a third state that nothing leads to."""
    moves = {("a", "x"): Move(0.0, {"b": 1.0}), ("a", "y"): Move(0.0, {"b": 0.5, "goal": 0.5})}
    moves |= {("b", "back"): Move(0.0, {"a": 1.0}), ("b", "out"): Move(0.0, {"goal": 1.0})}
    return from_moves("two ways", moves | {("c", "x"): Move(0.0, {"a": 1.0})}, start="a")


def test_points_hold_what_was_given_where_nothing_is_solved():
    """Nothing solved: values stay, nothing has a determinant, and first pairs are played. What M~ does not hold keeps
    its value; a start that names other pairs begins elsewhere; a loop that pays has no solution."""
    model, value = two_ways(), np.array([-2.5, -1.5, -3.5, -4.5, -7.5])
    point = sparse_chart(model, np.zeros(5, dtype=bool)).solve(np.zeros(5), value)
    np.testing.assert_array_equal(point.q, value)
    assert (point.log_det, point.policy.tolist()) == (0.0, [0, 2, 4])
    solved = np.array([True, False, True, False, False])
    chart = sparse_chart(model, solved)
    assert chart.states.tolist() == [0, 1]
    assert chart.pairs.tolist() == [0, 1, 2, 3]
    payment = np.array([-1.0, np.nan, 0.25, np.nan, np.nan])
    for start in (None, np.array([0, 3, 4]), np.array([4, 4, 4])):
        point = chart.solve(payment, value, start)
        np.testing.assert_array_equal(point.q, [-2.25, -1.5, -1.25, -4.5, -7.5])
        assert (point.log_det, point.policy.tolist()) == (0.0, [1, 2, 4])
    only = sparse_chart(model, solved, counts=np.arange(5) == 3)
    assert only.pairs.tolist() == [0, 2, 3]
    lost = chart.solve(np.array([1.0, 0.0, -0.5, 0.0, 0.0]), value)
    assert (lost.log_det, lost.policy) == (0.0, None)
    np.testing.assert_array_equal(lost.q, value)


def test_switches_are_strict():
    """Better by more than rounding of the value at hand, 1e-12 (1 + |value|); the first of equals."""
    chart = sparse_chart(two_ways(), np.array([True, True, True, True, False]))
    policy, q = np.array([0, 3]), np.array([3.0, 3.0 + 3e-12, 5.0, 5.0])
    assert chart._switch(q, policy) is None
    q[1] = 3.0 + 4.5e-12
    assert chart._switch(q, policy).tolist() == [1, 3]
    q[2] = 6.0
    assert chart._switch(q, policy).tolist() == [1, 2]
    assert chart._switch(-q[[1, 0, 2, 3]], np.array([0, 3])).tolist() == [1, 3]


def test_sweeps_carry_news_between_policies():
    """Eight moves down a corridor whose end has become better: policies switch that far at once."""
    moves = {
        (f"{k:02}", "on"): Move(-1.0, {f"{k + 1:02}" if k < 11 else "goal": 0.9, f"{k:02}": 0.1}) for k in range(12)
    }
    moves |= {(f"{k:02}", "out"): Move(-4.0, {"goal": 1.0}) for k in range(12)}
    model = from_moves("corridor", moves, start="00")
    chart = sparse_chart(model, np.ones(24, dtype=bool))
    policy = model.pair_start[:-1] + 1
    before = q = model.reward + chart.moves @ np.full(12, -4.0)
    for _ in range(SWEEPS):
        q = model.reward + chart.moves @ model.best(q)
    found = chart._ahead(model.reward, before, policy)
    np.testing.assert_array_equal(found, chart._switch(q, policy))
    assert (found != chart._switch(before, policy)).sum() > 1


def test_one_other_value_with_cycles_is_solved_anew(rng):
    """Not by sweeps: the same as solving with that value from the start."""
    model = envs.grid(5, 5, slip=0.1)
    chart = sparse_chart(model, rng.random(model.n_pairs) < 0.6)
    assert chart.sweep is None
    value = rng.normal(size=model.n_pairs) - 5.0
    pair = int(chart.pairs[np.flatnonzero(~chart.solved)[3]])
    moved = chart.moved(chart.solve(model.reward, value), model.reward, pair, 2.5)
    value[pair] = 2.5
    again = chart.solve(model.reward, value)
    np.testing.assert_allclose(moved.q, again.q, atol=1e-9)
    assert moved.q[pair] == 2.5


@pytest.mark.parametrize("unit", [1e-8, 1e-13, 1e-30, 1e12])
def test_values_in_other_units(unit):
    """Rewards and values a power of ten smaller have the same best actions: nothing is small beside 1."""
    model = envs.grid(rows=8, columns=8, slip=0.1)
    rng = np.random.default_rng(8)
    solved = rng.random(model.n_pairs) < 0.7
    chart, start = sparse_chart(model, solved), None
    for _ in range(20):
        pay, value = -rng.random(model.n_pairs), np.where(solved, -np.inf, rng.normal(size=model.n_pairs) - 5.0)
        one, other = chart.solve(pay, value, start), chart.solve(unit * pay, unit * value, start)
        np.testing.assert_array_equal(other.policy, one.policy)
        np.testing.assert_allclose(other.q, unit * one.q, rtol=1e-9)
        start = one.policy


def test_a_step_that_finds_nothing_stays_where_it_is(rng):
    here = State(np.zeros(1), np.zeros(1), 0.0, np.zeros(1, dtype=int))
    nowhere = State(np.ones(1), np.ones(1), -np.inf, None)
    assert _slice(here, lambda angle: nowhere, rng) is here
