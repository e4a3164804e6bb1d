import numpy as np
import pytest
from problems import all_policies, chain, closure, random_problem, recurrent

from bellmanifold import envs
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.graph import (
    end_components,
    improper_policy,
    is_proper,
    levels,
    reach_goal,
    reach_probability,
    reachable,
)
from bellmanifold.linear import factorised_chain, solve_chain
from bellmanifold.solver import policy_value


def problems(rng, count):
    return [random_problem(rng, states=int(rng.integers(1, 6))) for _ in range(count)]


def test_recurrent_states_of_all_policies_are_the_end_components(rng):
    """A state is recurrent under some policy if and only if it lies in an end component."""
    found = 0
    for model in problems(rng, 150):
        brute = np.zeros(model.n_states, dtype=bool)
        for policy in all_policies(model):
            brute |= recurrent(model, policy)
        ours = np.zeros(model.n_states, dtype=bool)
        for component in end_components(model):
            assert not ours[component.states].any(), "maximal end components must be disjoint"
            ours[component.states] = True
        np.testing.assert_array_equal(ours, brute)
        found += ours.any()
    assert 20 < found < 150


def test_end_components_are_closed_connected_and_maximal(rng):
    for model in problems(rng, 60):
        for component in end_components(model):
            own = np.append(np.isin(np.arange(model.n_states), component.states), False)
            matrix = np.zeros((model.n_states + 1, model.n_states + 1))
            for i in range(model.n_pairs):
                successors = model.next_state[model.next_start[i] : model.next_start[i + 1]]
                stays = own[model.pair_state[i]] and own[successors].all()
                assert stays == (i in component.pairs), "a component holds exactly the pairs that stay in it"
                if stays:
                    matrix[model.pair_state[i], successors] = 1
            reach = closure(matrix)
            assert reach[np.ix_(component.states, component.states)].all()


def test_subsets_of_pairs_are_respected(rng):
    for model in problems(rng, 60):
        allowed = rng.random(model.n_pairs) < 0.6
        for component in end_components(model, allowed):
            assert allowed[component.pairs].all()
        kept = {int(i) for component in end_components(model, allowed) for i in component.pairs}
        whole = {int(i) for component in end_components(model) for i in component.pairs}
        assert kept <= whole


def test_reaching_the_goal_surely_against_all_policies(rng):
    seen = set()
    for model in problems(rng, 150):
        brute = np.zeros(model.n_states, dtype=bool)
        for policy in all_policies(model):
            reach = closure(chain(model, policy))
            sure = [all(reach[t, -1] for t in np.flatnonzero(reach[s])) for s in range(model.n_states)]
            brute |= sure
        states, policy = reach_goal(model)
        np.testing.assert_array_equal(states, brute)
        np.testing.assert_array_equal(policy >= 0, states)
        if states.all():
            assert is_proper(model, policy)
            np.testing.assert_array_equal(model.pair_state[policy], np.arange(model.n_states))
        seen.add(bool(states.all()))
    assert seen == {True, False}


def test_is_proper_against_the_chain(rng):
    for model in problems(rng, 40):
        for policy in all_policies(model):
            proper = closure(chain(model, policy))[:-1, -1].all()
            assert is_proper(model, policy) == proper


def test_improper_policy_never_leaves_its_component(rng):
    for model in problems(rng, 60):
        for component in end_components(model):
            policy = improper_policy(model, component)
            assert not closure(chain(model, policy))[component.states, -1].any()


def test_reach_probability_against_all_policies(rng):
    """u is the best policy's probability of reaching the target, and is 0 and 1 exactly where it should be."""
    between = 0
    for model in problems(rng, 150):
        for component in end_components(model):
            target = np.isin(np.arange(model.n_states), component.states)
            best = np.zeros(model.n_states)
            for policy in all_policies(model):
                matrix = chain(model, policy)
                matrix[np.append(target, False)] = 0.0
                matrix[-1] = 0.0
                reach = closure(matrix)[:-1][:, :-1][:, target].any(axis=1)
                live = reach & ~target
                hit = target.astype(float)
                if live.any():
                    inner = np.eye(live.sum()) - matrix[:-1, :-1][np.ix_(live, live)]
                    hit[live] = np.linalg.solve(inner, matrix[:-1, :-1][np.ix_(live, target)].sum(axis=1))
                best = np.maximum(best, hit)
            ahead = model.next_prob * np.append(best, 0.0)[model.next_state]
            expected = np.add.reduceat(ahead, model.next_start[:-1])
            u = reach_probability(model, target)
            np.testing.assert_allclose(u, expected, atol=1e-10)
            assert (u[component.pairs] == 1.0).all()
            between += ((u > 0) & (u < 1)).any()
    assert between > 5


def test_levels_against_longest_paths(rng):
    assert levels(envs.swirl(3)) is None
    assert levels(envs.two_state()) is None
    level = levels(envs.deep_sea(4))
    assert level.tolist() == [4, 3, 3, 2, 2, 2, 1, 1, 1, 1]
    for model in problems(rng, 100):
        matrix = np.zeros((model.n_states + 1, model.n_states + 1))
        matrix[model.pair_state[model.next_pair], model.next_state] = 1
        cyclic = any((np.linalg.matrix_power(matrix[:-1, :-1], k).diagonal() > 0).any() for k in range(1, 7))
        assert (levels(model) is None) == cyclic


def test_levels_of_allowed_pairs_only():
    model = envs.two_state()
    assert levels(model, np.array([False, True])).tolist() == [1]
    assert levels(model, np.array([False, False])).tolist() == [0]


def test_reachable_part():
    model = envs.deep_sea(3)
    start = np.zeros(6, dtype=bool)
    start[1] = True
    assert [model.states[s] for s in np.flatnonzero(reachable(model, start))] == ["1,0", "2,0", "2,1"]


def test_long_trap_chain_is_linear():
    """A chain in which every state risks falling through to a trap at its end: stripped in one cascade."""
    from bellmanifold.envs.building import Move, from_moves

    n = 3000
    moves = {(str(k), "on"): Move(-1.0, {str(k + 1): 0.5, "goal": 0.5}) for k in range(n)}
    moves[(str(n), "stay")] = Move(-1.0, {str(n): 1.0})
    states, _ = reach_goal(from_moves("chain", moves, start="0"))
    assert not states.any()


def test_policy_value_keeps_its_digits_in_a_nearly_closed_loop():
    """Two states that swap and leave with probability 1e-12: the value is -2e12 + 1 to full precision."""
    from bellmanifold.envs.building import Move, from_moves

    leak = 1e-12
    moves = {
        ("a", "go"): Move(-1.0, {"b": 1.0}),
        ("b", "go"): Move(-1.0, {"a": 1.0 - leak, "goal": leak}),
    }
    model = from_moves("nearly closed", moves, start="a")
    value = policy_value(model, np.array([0, 1]))
    np.testing.assert_allclose(value, [-2 / leak, -2 / leak + 1], rtol=1e-13)


def ring(states, leaves):
    """Around and around, and out of state 0 with a small probability."""
    moves = {(f"{k:04}", "on"): Move(-1.0, {f"{(k + 1) % states:04}": 1.0}) for k in range(states)}
    moves[("0000", "on")] = Move(-1.0, {"0001": 1.0 - leaves, "goal": leaves})
    return from_moves("ring", moves, start="0000")


def test_a_nearly_closed_loop_of_middling_size_is_eliminated():
    """Exit 1e-9 of 100 states: a factorisation would lose nine digits, so it is not used.

    State 0 is visited 1 / 1e-9 times, every other state as often less once; the determinant is the exit's probability.
    """
    model = ring(100, 1e-9)
    everywhere = np.arange(100)
    chain = factorised_chain(model, everywhere, everywhere)
    assert chain.factors is None
    x, log_det = chain.evaluate(np.ones(100))
    leaves = model.next_prob[model.next_state == 100][0]
    np.testing.assert_allclose(x[0], (1.0 + 99 * (1.0 - leaves)) / leaves, rtol=1e-12)
    np.testing.assert_allclose(log_det, np.log(leaves), rtol=1e-12)


def test_large_chains_that_are_trapped_to_rounding_are_refused():
    """An exit of 1e-17 is none beside 1: an LU factorisation meets a pivot of 0."""
    model = ring(300, 1e-17)
    everywhere = np.arange(300)
    for solve in (
        lambda: factorised_chain(model, everywhere, everywhere),
        lambda: solve_chain(model, everywhere, everywhere, np.ones(300)),
    ):
        with pytest.raises(UnsupportedError, match="leaves some states with a probability of about 1e-16") as error:
            solve()
        assert error.value.exit_code == 3


def test_chains_that_pay_nothing_are_worth_nothing(rng):
    """An expander, which is iterated on rather than factorised: zeros need no iteration, other payments get one."""
    moves = {}
    for k in range(300):
        onward = {f"{j:03}": 0.3 for j in rng.choice(300, 3, replace=False)}
        moves[(f"{k:03}", "x")] = Move(0.0, {**onward, "goal": 0.1})
    model = from_moves("expander", moves, start="000")
    everywhere = np.arange(300)
    np.testing.assert_array_equal(solve_chain(model, everywhere, everywhere, np.zeros(300)), np.zeros(300))
    np.testing.assert_allclose(solve_chain(model, everywhere, everywhere, np.ones(300)), 10.0, rtol=1e-8)
