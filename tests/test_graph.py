from itertools import pairwise

import numpy as np
import pytest
from problems import all_policies, chain, closure, random_problem, recurrent
from scipy.sparse import csr_array

from bellmanifold import envs
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.mdp.graph import (
    cascade,
    components,
    direct_routes,
    end_components,
    has_cycle,
    improper_policy,
    is_proper,
    leaving_policy,
    levels,
    longest_paths,
    may_end,
    reach_goal,
    reach_probability,
    reachable,
    reaches_goal,
    recurrent_classes,
    state_graph,
    steps_to_goal,
    steps_towards,
    strong_components,
)
from bellmanifold.mdp.linear import chain_on, factorised_chain, solve_chain
from bellmanifold.mdp.solver import policy_value
from bellmanifold.mdp.subtraction_free import eliminate


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


def moves_of(model, allowed=None):
    """Which state leads to which by allowed pairs, the goal last."""
    allowed = np.ones(model.n_pairs, dtype=bool) if allowed is None else allowed
    matrix = np.zeros((model.n_states + 1, model.n_states + 1))
    for e, i in enumerate(model.next_pair):
        if allowed[i]:
            matrix[model.pair_state[i], model.next_state[e]] = 1
    return matrix


def test_edges_of_allowed_pairs(rng):
    for model in problems(rng, 20):
        allowed = rng.random(model.n_pairs) < 0.6
        np.testing.assert_array_equal(state_graph(model, allowed).toarray() > 0, moves_of(model, allowed))


def test_reachable_against_the_closure(rng):
    for model in problems(rng, 40):
        start = rng.random(model.n_states) < 0.4
        expected = closure(moves_of(model))[:-1, :-1][start].any(axis=0)
        np.testing.assert_array_equal(reachable(model, start), expected)


def test_strong_components_rise_from_the_goal_backwards(rng):
    """States share a number if each reaches the other; whoever can only be left has the larger one."""
    for model in problems(rng, 40):
        label = strong_components(model)
        reach = closure(moves_of(model)[:-1, :-1])
        np.testing.assert_array_equal(label[:, None] == label, reach & reach.T)
        assert (label[:, None] >= label)[reach].all()
        assert sorted(set(label.tolist())) == list(range(label.max() + 1))


def test_longest_paths_of_graphs_without_cycles(rng):
    """Random graphs whose edges lead downwards, against recursion; an edge back up makes a cycle."""
    for _ in range(30):
        matrix = np.tril(rng.random((6, 6)) < 0.4, -1).astype(float)
        length = np.zeros(6, dtype=int)
        for node in range(6):
            length[node] = max((length[j] + 1 for j in np.flatnonzero(matrix[node])), default=0)
        graph = csr_array(matrix)
        assert longest_paths(graph).tolist() == length.tolist()
        top = int(np.argmax(length))
        if length[top]:
            matrix[int(np.flatnonzero(matrix[top])[0]), top] = 1.0
            assert longest_paths(csr_array(matrix)) is None


def distances(model, target, allowed=None):
    """Least number of moves by allowed pairs from each state, and the goal, to the target; infinite without a way."""
    matrix, distance = moves_of(model, allowed), np.where(target, 0.0, np.inf)
    for _ in range(model.n_states):
        distance = np.minimum(distance, np.where(matrix > 0, distance, np.inf).min(axis=1) + 1)
    return distance


@pytest.mark.parametrize("aim", ["states", "states, by allowed pairs", "goal"])
def test_a_step_towards_a_target_may_come_nearer(rng, aim):
    """Distances in numbers of moves: a step may lead to a state that is one nearer, the first pair of those that lead
    to one and the same; -1 where there is no way."""
    for model in problems(rng, 40):
        target, allowed = np.append(rng.random(model.n_states) < 0.3, False), rng.random(model.n_pairs) < 0.8
        if aim == "goal":
            target = np.append(np.zeros(model.n_states, dtype=bool), True)
            policy = steps_to_goal(model, allowed)
        elif aim == "states":
            allowed = np.ones(model.n_pairs, dtype=bool)
            policy = steps_towards(model, target[:-1])
        else:
            policy = steps_towards(model, target[:-1], allowed)
        distance = distances(model, target, allowed)
        for s, i in enumerate(policy):
            if target[s] or np.isinf(distance[s]):
                assert i == -1
                continue
            assert model.pair_state[i] == s
            assert allowed[i]
            nearer = [j for j in successors(model, i) if distance[j] == distance[s] - 1]
            assert nearer
            before = [j for j in range(model.pair_start[s], i) if allowed[j]]
            assert not any(set(nearer) <= set(successors(model, j)) for j in before)


def successors(model, pair):
    return model.next_state[model.next_start[pair] : model.next_start[pair + 1]].tolist()


def test_direct_routes_come_nearest_to_the_goal_on_average(rng):
    """Of the pairs that may come nearer, one whose landings are nearest on average, a state from which
    no way leads to the goal counting as farther than any; what the route pays is summed along some shortest way."""
    lost = 0
    for model in problems(rng, 60):
        n = model.n_states
        policy, distance, pays = direct_routes(model)
        exact = distances(model, np.append(np.zeros(n, dtype=bool), True))
        lost += np.isinf(exact).any() and np.isfinite(exact[:-1]).any()
        exact = np.where(np.isinf(exact), n + 1, exact)
        np.testing.assert_array_equal(distance, exact[:-1])
        mean = [model.next_prob[model.next_pair == i] @ exact[successors(model, i)] for i in range(model.n_pairs)]
        ways = {n: {0.0}}
        for s in np.argsort(distance, kind="stable").tolist():
            own = range(model.pair_start[s], model.pair_start[s + 1])
            if distance[s] > n:
                assert policy[s] == -1
                assert pays[s] == 0.0
                continue
            nearer = [i for i in own if min(exact[successors(model, i)]) < distance[s]]
            least = min(mean[i] for i in nearer)
            assert mean[policy[s]] == pytest.approx(least, rel=1e-12)
            assert policy[s] in nearer
            following = {j for i in own for j in successors(model, i) if exact[j] == distance[s] - 1}
            ways[s] = {model.reward[policy[s]] + paid for j in following for paid in ways[j]}
            assert min(abs(pays[s] - paid) for paid in ways[s]) < 1e-12
    assert lost > 3


def test_pairs_that_may_end_at_once(rng):
    """Wherever open laws lie, of which nothing is known, and where there is nothing else."""
    for model in problems(rng, 30):
        for share in (0.0, 0.4, 1.0):
            rows = np.flatnonzero(rng.random(model.n_pairs) < share)
            nothing = np.zeros(len(rows) + 1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
            opened = model.with_rows(rows, *nothing)
            expected = [model.n_states in successors(opened, i) for i in range(model.n_pairs)]
            assert may_end(opened).tolist() == expected


def test_no_move_leads_to_a_component_with_a_larger_number(rng):
    for model in problems(rng, 40):
        number, reach = components(model), closure(moves_of(model)[:-1, :-1])
        np.testing.assert_array_equal(number[:, None] == number, reach & reach.T)
        assert (number[:, None] >= number)[reach].all()


def test_leaving_policies_play_the_first_free_pair_or_lead_to_one(rng):
    """Proper where pairs that are not solved end at the goal, by the chain; none if and only if no policy is."""
    seen = set()
    for model in problems(rng, 40):
        solved = rng.random(model.n_pairs) < 0.8
        avoided = ~solved & (rng.random(model.n_pairs) < 0.5) if rng.random() < 0.5 else np.zeros(model.n_pairs, bool)
        ended = {}
        for policy in all_policies(model):
            matrix = chain(model, policy)
            for s, i in enumerate(policy):
                if not solved[i]:
                    matrix[s] = np.eye(model.n_states + 1)[-1]
            ended[tuple(policy)] = closure(matrix)[:, -1].all() and not avoided[policy].any()
        found = leaving_policy(model, solved, avoided if avoided.any() else None)
        seen.add(found is None)
        if found is None:
            assert not any(ended.values())
            continue
        assert ended[tuple(found)]
        for s, i in enumerate(found):
            own = np.arange(model.pair_start[s], model.pair_start[s + 1])
            free = own[~solved[own] & ~avoided[own]]
            assert not len(free) or i == free[0]
    assert seen == {True, False}


def test_who_reaches_the_goal_or_an_end_by_a_policy(rng):
    for model in problems(rng, 20):
        ends = rng.random(model.n_states) < 0.3
        for policy in list(all_policies(model))[:10]:
            matrix = chain(model, policy)
            np.testing.assert_array_equal(reaches_goal(model, policy), closure(matrix)[:-1, -1])
            matrix[:-1][ends] = np.eye(model.n_states + 1)[-1]
            np.testing.assert_array_equal(reaches_goal(model, policy, ends), closure(matrix)[:-1, -1])


def test_recurrent_classes_are_closed_and_connected(rng):
    """Inside an end component: states that return surely, one class for each set that reach each other."""
    several = 0
    for successors in [1, 2] * 25:
        model = random_problem(rng, states=6, successors=successors, goal_share=0.02)
        for component in end_components(model):
            within = np.isin(np.arange(model.n_states), component.states)
            policy = improper_policy(model, component)
            classes = [own for own in recurrent_classes(model, policy) if within[own[0]]]
            assert (
                sorted(s for own in classes for s in own) == np.flatnonzero(within & recurrent(model, policy)).tolist()
            )
            reach = closure(chain(model, policy))
            for own in classes:
                assert reach[np.ix_(own, own)].all()
                assert reach[own].sum() == len(own) ** 2, "nothing else is reached"
            several += len(classes) > 1
    assert several > 3


def test_end_components_and_policies_that_stay_come_in_order(rng):
    """Components by their first states, states and pairs ascending; a policy plays the first pair that stays."""
    several = 0
    for model in problems(rng, 60):
        found = end_components(model)
        assert [c.states[0] for c in found] == sorted(c.states[0] for c in found)
        several += len(found) > 1
        for component in found:
            assert (np.diff(component.states) > 0).all()
            assert (np.diff(component.pairs) > 0).all()
            policy = improper_policy(model, component)
            for s, i in enumerate(policy):
                own = component.pairs[model.pair_state[component.pairs] == s]
                assert i == (own[0] if len(own) else model.pair_start[s])
    assert several > 5


def test_sure_and_possible_reachability_of_allowed_pairs(rng):
    """Goals besides the goal, and allowed pairs only: against all policies that play nothing else."""
    for model in problems(rng, 40):
        allowed, goals = rng.random(model.n_pairs) < 0.8, rng.random(model.n_states) < 0.2
        brute = goals.copy()
        for policy in all_policies(model):
            matrix = chain(model, policy)
            for s, i in enumerate(policy):
                if goals[s]:
                    matrix[s] = np.eye(model.n_states + 1)[-1]
                elif not allowed[i]:
                    matrix[s] = np.eye(model.n_states + 1)[s]
            reach = closure(matrix)
            brute |= [all(reach[t, -1] for t in np.flatnonzero(reach[s])) for s in range(model.n_states)]
        states, policy = reach_goal(model, allowed, goals)
        np.testing.assert_array_equal(states, brute)
        np.testing.assert_array_equal(policy >= 0, states & ~goals)
        assert allowed[policy[policy >= 0]].all()


def test_levels_of_states_without_cycles(rng):
    """The longest way among states by allowed pairs, and one more for the last pair; 0 without any."""
    for depth in (1, 3):
        model = envs.deep_sea(depth)
        allowed = rng.random(model.n_pairs) < 0.6
        matrix = moves_of(model, allowed)[:-1, :-1]
        length = np.zeros(model.n_states, dtype=int)
        for s in reversed(range(model.n_states)):
            length[s] = max((length[t] + 1 for t in np.flatnonzero(matrix[s])), default=0)
        some = np.bincount(model.pair_state[allowed], minlength=model.n_states) > 0
        assert levels(model, allowed).tolist() == (length + some).tolist()


def test_cycles_of_allowed_pairs():
    """Along a line there is none, but by the move back, and by one that stays."""
    moves = {(name, "on"): Move(-1.0, {after: 1.0}) for name, after in pairwise(["a", "b", "goal"])}
    moves |= {("b", "back"): Move(-1.0, {"a": 1.0}), ("b", "stay"): Move(-1.0, {"b": 0.5, "goal": 0.5})}
    model = from_moves("line", moves, start="a")
    for more, expected in (([], False), (["back"], True), (["stay"], True)):
        allowed = np.zeros(model.n_pairs, dtype=bool)
        allowed[[model.pair_index["a", "on"], *(model.pair_index["b", name] for name in ["on", *more])]] = True
        assert has_cycle(model, allowed) == expected


def test_levels_where_states_may_stay():
    """Moves to the own state are no circle if they may be made, and no moves either; others still are."""
    moves = {(name, "on"): Move(-1.0, {name: 0.5, after: 0.5}) for name, after in pairwise(["a", "b", "c", "goal"])}
    model = from_moves("may stay", moves, start="a")
    assert levels(model) is None
    assert levels(model, may_stay=True).tolist() == [3, 2, 1]
    circle = from_moves("circle", {**moves, ("c", "back"): Move(-1.0, {"a": 1.0})}, start="a")
    assert levels(circle, may_stay=True) is None


@pytest.mark.parametrize("wide", [1, 30, 100])
def test_pairs_that_may_lead_to_states_without_a_pair_are_dropped_in_one_go(rng, wide):
    """Until nothing changes, as round by round; for few states that are left without a pair at a time, and for many."""
    rounds = 0
    for _ in range(40 if wide == 1 else 3):
        model = random_problem(rng, states=int(rng.integers(2, 6)) * wide, actions=2, goal_share=0.6)
        keep, ignored = rng.random(model.n_pairs) < 0.7, rng.random(model.n_states) < 0.2
        expected = keep.copy()
        while True:
            left = set(model.pair_state[expected].tolist())
            dead = {s for s in np.flatnonzero(~ignored).tolist() if s not in left}
            risky = [i for i in np.flatnonzero(expected) if dead & set(successors(model, i))]
            if not risky:
                break
            expected[risky] = False
            rounds += 1
        cascade(model, keep, ignored)
        np.testing.assert_array_equal(keep, expected)
    assert rounds > 4
    nothing = np.zeros(model.n_pairs, dtype=bool)
    cascade(model, nothing, ignored)
    assert not nothing.any()


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


def test_large_chains_that_are_trapped_to_rounding():
    """An exit of 1e-17 is none beside 1: an LU factorisation meets a pivot of 0. Watched at one state it is solved."""
    model = ring(300, 1e-17)
    everywhere = np.arange(300)
    with pytest.raises(UnsupportedError, match="leaves some states with a probability of about 1e-16") as error:
        factorised_chain(model, everywhere, everywhere)
    assert error.value.exit_code == 3
    found = solve_chain(model, everywhere, everywhere, np.ones(300))
    moves, _, out = chain_on(model, everywhere, everywhere)
    exact = eliminate(*(array.astype(np.longdouble) for array in (moves.toarray(), out, np.ones(300))))[0]
    np.testing.assert_allclose(found, exact.astype(np.float64), rtol=1e-13)


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
