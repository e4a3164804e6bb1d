"""Chains solved component by component, against subtraction-free elimination of the whole in long double precision."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from slow_chains import PROBLEMS, attempts, long_chain, setbacks, small_components

from bellmanifold.mdp import blocks
from bellmanifold.mdp.components import solve_by_components, topological
from bellmanifold.mdp.graph import direct_routes, levels, reaches_goal
from bellmanifold.mdp.linear import chain_on, solve_chain
from bellmanifold.mdp.solver import solve
from bellmanifold.mdp.subtraction_free import eliminate, expected_visits


def any_policy(model, rng):
    """A random policy of a problem in which all are proper."""
    policy = rng.integers(model.pair_start[:-1], model.pair_start[1:])
    assert reaches_goal(model, policy).all()
    return policy


def exact_value(model, policy):
    moves, _, out = chain_on(model, policy, np.arange(model.n_states))
    long = [array.astype(np.longdouble) for array in (moves.toarray(), out, model.reward[policy])]
    return eliminate(*long)[0].astype(np.float64)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (k % 2)) for k, kind in enumerate(PROBLEMS)]
)
def test_every_state_has_all_its_digits(kind, rng):
    """Rewards from 1e-6 to 1e5: a state's value is right to a relative 1e-13, however large others are."""
    model = PROBLEMS[kind](500)
    policy = any_policy(model, rng)
    value = solve_chain(model, policy, np.arange(model.n_states), model.reward[policy])
    np.testing.assert_allclose(value, exact_value(model, policy), rtol=1e-13)


def test_components_that_are_hardly_left_keep_their_digits(rng):
    """Left with a probability of 1e-13 a move; a difference from 1 would have three digits."""
    model = small_components(400)
    leak = np.where(np.diff(np.append(model.next_start, 0))[model.next_pair] > 0, model.next_prob, 0.0)
    ahead = model.next_state // 4 > model.pair_state[model.next_pair] // 4
    prob = np.where(ahead, 1e-13 * leak, leak)
    total = np.add.reduceat(prob, model.next_start[:-1])
    trapped = replace(model, next_prob=prob / total[model.next_pair])
    policy = any_policy(trapped, rng)
    value = solve_chain(trapped, policy, np.arange(trapped.n_states), trapped.reward[policy])
    assert np.abs(value).max() > 1e15
    np.testing.assert_allclose(value, exact_value(trapped, policy), rtol=1e-12)


@pytest.mark.parametrize("size", [1, 5, 8, 9, 40])
def test_expected_visits_of_many_chains(size, rng):
    """Half by half and state by state, against each chain by itself in long double precision; one is hardly left."""
    moves, out = rng.random((3, size, size)), rng.random((3, size))
    out[1] *= 1e-13
    for chain, ends, found in zip(moves, out, expected_visits(moves, out), strict=True):
        long = chain.astype(np.longdouble), ends.astype(np.longdouble)
        expected = [eliminate(*long, unit)[0] for unit in np.eye(size, dtype=np.longdouble)]
        np.testing.assert_allclose(found.T, np.array(expected, dtype=np.float64), rtol=1e-14)


@pytest.mark.parametrize("leak", [1.0, 1e-12])
@pytest.mark.parametrize("sizes", [(30,), (1, 2, 40, 1, 3, 17, 70), (150, 220)])
def test_middling_components_keep_their_digits(sizes, leak, rng):
    """Components of some sizes again and again, some hardly ever left: alike ones, mixed ones, and large ones."""
    start = np.append(0, np.cumsum(np.tile(sizes, 2 + 200 // sum(sizes))))
    size, states = np.diff(start), int(start[-1])
    own = np.repeat(np.arange(len(size)), size)
    first, state = start[own], np.arange(states)
    around, within = first + (state - first + 1) % size[own], first + rng.integers(0, size[own])
    ahead = np.append(start[:-1], states)[np.minimum(own + rng.integers(1, 4, states), len(size))]
    row, column = np.tile(state, 3), np.concatenate([around, within, ahead])
    share = np.concatenate([1 + rng.random(states), rng.random(states), leak * rng.random(states)])
    stays, ends = column == row, column == states
    moves = csr_array((share[~stays & ~ends], (row[~stays & ~ends], column[~stays & ~ends])), shape=(states, states))
    out = np.bincount(row[ends], share[ends], states)
    right = -(10.0 ** rng.uniform(-6, 5, states))
    found = solve_by_components(blocks.Chain(moves, moves.sum(axis=1) + out, out), right[:, None])[:, 0]
    long = [array.astype(np.longdouble) for array in (moves.toarray(), out, right)]
    np.testing.assert_allclose(found, eliminate(*long)[0].astype(np.float64), rtol=1e-13)


def test_several_right_hand_sides_at_once(rng):
    for model in (small_components(400), attempts(400), setbacks(400)):
        chain = chain_on(model, any_policy(model, rng), np.arange(model.n_states))
        rights = rng.normal(size=(model.n_states, 3))
        each = [solve_by_components(chain, right[:, None])[:, 0] for right in rights.T]
        np.testing.assert_allclose(solve_by_components(chain, rights).T, each, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("method", "problem"),
    [("_cut", attempts), ("_iterate", lambda states: setbacks(states, share=0.5))],
)
def test_large_components_by_each_method(method, problem, rng):
    """The method itself, on a chain of one component."""
    model = problem(600)
    moves, leaving, out = chain_on(model, any_policy(model, rng), np.arange(model.n_states))
    label = connected_components(moves, connection="strong")[1]
    own = np.flatnonzero(label == np.argmax(np.bincount(label)))
    assert len(own) > 300
    inner = csr_array(moves[own][:, own])
    out = out[own] + (moves[own].sum(axis=1) - inner.sum(axis=1))
    chain, right = blocks.Chain(inner, leaving[own], out), -rng.random(len(own))
    order, closing = blocks._unroll(inner)
    if method == "_cut":
        assert len(closing) <= 3
        found = blocks._cut(chain, right[:, None], closing)[:, 0]
    else:
        assert len(closing) > blocks.CUTS
        found = blocks._iterate(chain, right, order)
    expected = eliminate(inner.toarray(), leaving[own] - inner.sum(axis=1), right)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_both_preconditioners_get_there(rng):
    """The diagonal alone, and a sweep in the order of a search."""
    model = setbacks(600, share=0.5)
    chain = chain_on(model, any_policy(model, rng), np.arange(model.n_states))
    right = -rng.random(model.n_states)
    order = np.argsort(connected_components(chain.moves, connection="strong")[1])
    by_diagonal = blocks._from_guess(chain, right, lambda v: v / chain.leaving, 1000)
    by_sweep = blocks._from_guess(chain, right, blocks._one_sweep(chain, order), 1000)
    np.testing.assert_allclose(by_sweep, by_diagonal, rtol=1e-12)
    assert blocks._from_guess(chain, right, lambda v: v / chain.leaving, 1) is None, "too few steps are admitted"


def test_iteration_of_nothing_is_nothing(rng):
    model = setbacks(600)
    chain = chain_on(model, any_policy(model, rng), np.arange(model.n_states))
    nothing = np.zeros(model.n_states)
    assert not blocks._iterate(chain, nothing, np.arange(model.n_states)).any()


def test_components_are_numbered_along_the_moves(rng):
    """Whatever numbers they come with."""
    model = long_chain(300, loops=0.1)
    moves = chain_on(model, any_policy(model, rng), np.arange(model.n_states))[0]
    count, label = connected_components(moves, connection="strong")
    for given in (label, rng.permutation(count)[label]):
        number = topological(given, moves)
        assert (number[moves.indices] <= np.repeat(number, np.diff(moves.indptr))).all()
        assert len(set(zip(given.tolist(), number.tolist(), strict=True))) == count


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (1 - k % 2)) for k, kind in enumerate(PROBLEMS)]
)
def test_optimal_values_of_slow_problems(kind):
    """14,000 states: Bellman's equations hold to rounding, state by state, and the policy that is best attains them."""
    model = PROBLEMS[kind](14_000)
    solution = solve(model)
    gap = np.abs(model.best(model.backup(solution.value)) - solution.value)
    assert (gap <= 1e-13 * np.abs(solution.value)).all()
    assert solution.iterations <= 20


def test_long_chains_have_many_levels():
    """Found one by one where levels are narrow; a state of level k moves only to lower ones."""
    model = long_chain(3000)
    level = levels(model)
    target = np.append(level, -1)[model.next_state]
    assert level.max() > 700
    assert (target < level[model.pair_state[model.next_pair]]).all()


def test_direct_routes_go_straight_to_the_goal():
    """On a slippery grid the direct policy walks towards the goal, not wherever a slip may lead."""
    from bellmanifold import envs

    model = envs.grid(6, 6, slip=0.1)
    policy, distance, guess = direct_routes(model)
    assert {model.pair_name(pair)[1] for pair in policy} <= {"down", "right"}
    assert distance.tolist() == [10 - sum(map(int, state.split(","))) for state in model.states]
    np.testing.assert_allclose(guess, -distance.astype(float))


def corridor(steps, back):
    """A corridor in which every step but the first fails with some probability and leads back by one."""
    own = np.arange(steps)
    row, column = np.append(own[1:], own[:-1]), np.append(own[1:] - 1, own[1:])
    entry = np.repeat([1.0 - back, back], steps - 1)
    entry[steps - 1] = 0.0
    out = np.zeros(steps)
    out[0] = 1.0
    moves = csr_array((entry, (row, column)), shape=(steps, steps))
    return blocks.Chain(moves, moves.sum(axis=1) + out, out)


@pytest.mark.parametrize(
    ("steps", "back", "accepted"),
    [(400, 0.3, True), pytest.param(1500, 0.3, True, marks=pytest.mark.slow), (60, 0.6, False)],
)
def test_a_long_way_is_no_trap(steps, back, accepted):
    """Where no state is returned to often a chain is factorised, however many moves it takes; a trap is not."""
    chain = corridor(steps, back)
    right = np.linspace(1.0, 2.0, steps)[:, None]
    found = blocks.solve_by_factors(chain, right, 500.0)
    assert (found is not None) == accepted
    if accepted:
        long = [array.astype(np.longdouble) for array in (chain.moves.toarray(), chain.out, right[:, 0])]
        np.testing.assert_allclose(found[:, 0], eliminate(*long)[0].astype(np.float64), rtol=1e-13)


def test_pivots_are_those_of_their_own_states(rng):
    """A row of states in any order, one of which is seldom left: no state is returned to, however the factors go."""
    size = 30
    place = rng.permutation(size)
    row, column = place[:-1], place[1:]
    leaving = np.ones(size)
    leaving[place[7]] = 1e-6
    moves = csr_array((leaving[row], (row, column)), shape=(size, size))
    found = blocks.solve_by_factors(blocks.Chain(moves, leaving, np.zeros(size)), leaving[:, None], longest=5.0)
    assert found is not None, "many moves, but none of them back"
    np.testing.assert_allclose(found[place, 0], np.arange(size, 0, -1), rtol=1e-12)
    back = csr_array((np.full(size, 0.9), (np.append(row, place[-1]), np.append(column, place[0]))), shape=(size, size))
    again = blocks.Chain(back, np.ones(size), np.zeros(size))
    assert blocks.solve_by_factors(again, np.ones((size, 1)), longest=1.0) is None
