"""The chart is a change of variables: round trip, residuals, determinant, and the manifold it parametrises."""

from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import random_problem

from bellmanifold import envs
from bellmanifold.chart.arrangement import padded_successors
from bellmanifold.chart.batch import ChartLimits, TooLargeError, batch_chart, known_chart
from bellmanifold.chart.elimination import censor, chosen, eliminate_batch, moves_within, policy_iteration
from bellmanifold.chart.layout import Block
from bellmanifold.chart.narrow import narrow_block
from bellmanifold.chart.sparse import sparse_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.mdp import solver
from bellmanifold.mdp.graph import end_components, is_proper, leaving_policy, strong_components
from bellmanifold_paper.bellman import residuals, transitions


def ring(states, leaves=0.5):
    """Around and around; state 0 may leave, for certain or by chance."""
    moves = {(f"{k:03}", "on"): Move(-1.0, {f"{(k + 1) % states:03}": 1.0}) for k in range(states)}
    moves[("000", "out")] = Move(-1.0, {"goal": leaves, "001": 1.0 - leaves} if leaves < 1 else {"goal": 1.0})
    return from_moves(f"ring of {states}", moves, start="000")


def line(states):
    """One state after the other, sometimes skipping one."""
    names = [f"{k:03}" for k in range(states)] + ["goal"]
    moves = {(names[k], "on"): Move(-1.0, {names[k + 1]: 0.5, names[k + 2]: 0.5}) for k in range(states - 1)}
    moves[(names[-2], "on")] = Move(-1.0, {"goal": 1.0})
    return from_moves(f"line of {states}", moves, start="000")


def after(chart, pair):
    """Where a pair leads, as the layout has it, by the problem's states; padding is the goal with probability 0."""
    states, row = chart.model.n_states, int(chart.layout.row[pair])
    found = {}
    for to, probability in zip(chart.layout.successor[row].tolist(), chart.law[pair].tolist(), strict=True):
        if probability > 0:
            found[states if to == states else int(chart.layout.state[to])] = probability
        else:
            assert to == states
    return found


def test_layouts_hold_every_pair_with_its_law(rng):
    """Slots name the pairs of each state in turn; `sort` and `unsort` are inverse to each other."""
    permuted = 0
    for _ in range(10):
        model = random_problem(rng, states=5)
        chart = batch_chart(model)
        layout = chart.layout
        assert sorted(layout.state.tolist()) == list(range(5))
        seen = []
        for place, action in np.ndindex(*layout.slot.shape):
            state, row = int(layout.state[place]), int(layout.slot[place, action])
            own = np.diff(model.pair_start)[state]
            if row == model.n_pairs:
                assert action >= own
                continue
            pair = int(layout.pair[row])
            seen.append(pair)
            assert int(layout.row[pair]) == row
            assert int(layout.place[pair]) == place
            assert pair == model.pair_start[state] + action
            entries = range(model.next_start[pair], model.next_start[pair + 1])
            assert after(chart, pair) == {int(model.next_state[e]): model.next_prob[e] for e in entries}
        assert sorted(seen) == list(range(model.n_pairs))
        per_pair = jnp.asarray(rng.normal(size=(model.n_pairs, 3)))
        np.testing.assert_array_equal(layout.sort(per_pair), np.asarray(per_pair)[np.asarray(layout.pair)])
        np.testing.assert_array_equal(layout.unsort(layout.sort(per_pair)), per_pair)
        table = np.asarray(layout.by_action(layout.sort(per_pair), -7.0))
        assert (table[np.asarray(layout.slot) == model.n_pairs] == -7.0).all()
        assert layout.permuted == (layout.pair.tolist() != list(range(model.n_pairs)))
        permuted += layout.permuted
    assert 0 < permuted < 10, "else one of the two was not looked at"


def test_blocks_are_solved_from_the_goal_backwards(rng):
    """Cyclic blocks are strong components; states of any other block move to earlier blocks only; no block is split."""
    merged = 0
    for _ in range(40):
        model = random_problem(rng, states=6, successors=2, goal_share=0.5)
        chart, component = batch_chart(model), strong_components(model)
        layout, blocks = chart.layout, chart.layout.blocks
        assert [place for block in sorted(blocks) for place in range(block.begin, block.end)] == list(range(6))
        done = {6}
        for block in blocks:
            own = np.asarray(layout.state)[block.states]
            pairs = np.flatnonzero(np.isin(model.pair_state, own))
            assert sorted(np.asarray(layout.pair)[block.own]) == pairs.tolist()
            counts = set(np.diff(model.pair_start)[own].tolist())
            assert block.actions == (counts.pop() if len(counts) == 1 else 0)
            follows = {state for pair in pairs for state in after(chart, pair)}
            assert follows <= done | set(own.tolist())
            assert bool(follows & set(own.tolist())) == (block.way != "once")
            if block.way != "once":
                assert set(own) == set(np.flatnonzero(component == component[own[0]]))
                random = (model.next_prob[np.isin(model.pair_state[model.next_pair], own)] < 1.0).any()
                assert block.way == ("policies" if random else "sweeps")
            merged += block.way == "once" and block.end - block.begin > 1
            done |= set(own.tolist())
        assert done == set(range(7))
        for first, second in pairwise(blocks):
            if first.way == second.way == "once":
                before = set(np.asarray(layout.state)[first.states].tolist())
                own = np.isin(model.pair_state, np.asarray(layout.state)[second.states])
                follows = {state for pair in np.flatnonzero(own) for state in after(chart, pair)}
                assert follows & before, "else the two would be one"
    assert merged > 10


def block(states, pairs, way, actions, width=0):
    return Block(0, states, (0, pairs), way, actions, width)


def test_random_cycles_are_taken_up_to_a_size_and_certain_ones_of_any():
    limits = ChartLimits(block=3)
    assert batch_chart(ring(3), limits).layout.blocks == (block(3, 4, "policies", 0),)
    with pytest.raises(TooLargeError, match="a strong component has 4 states: a batch chart takes at most 3"):
        batch_chart(ring(4), limits)
    assert batch_chart(ring(5, leaves=1.0), limits).layout.blocks == (block(5, 6, "sweeps", 0),)
    known = np.ones(6, dtype=bool)
    assert known_chart(ring(3), known[:4], limits).layout.blocks == (block(3, 4, "policies", 0),)
    with pytest.raises(TooLargeError, match="random moves in cycles among 5 states: at most 3 are eliminated"):
        known_chart(ring(5), known, limits)
    for model, seen in ((ring(5, leaves=1.0), known), (ring(5), np.arange(6) != 1)):
        found = known_chart(model, seen, limits).layout.blocks
        assert found == (block(5, 6, "sweeps", 0),), "no known pair is random and on a cycle"


def test_the_largest_random_component_is_named():
    """Two of them, of three and of five states; the limits of what a chart takes are those that messages name."""
    moves = {}
    for name, states in (("a", 3), ("b", 5)):
        for k in range(states):
            moves[f"{name}{k}", "on"] = Move(-1.0, {f"{name}{(k + 1) % states}": 0.5, "goal": 0.5})
    model = from_moves("two rings", moves, start="a0")
    with pytest.raises(TooLargeError, match="a strong component has 5 states: a batch chart takes at most 2"):
        batch_chart(model, ChartLimits(block=2))
    assert [block.way for block in batch_chart(model, ChartLimits(block=5)).layout.blocks] == ["policies"] * 2
    assert ChartLimits() == ChartLimits(block=40, swept=64, entries=20_000)


def test_policies_to_begin_with(rng):
    """As the graph says, by sorted state; any will do where nothing is met again, and none where a state is trapped."""
    acyclic = batch_chart(line(5))
    everything = np.ones(5, dtype=bool)
    np.testing.assert_array_equal(acyclic.first_policy(~everything), np.zeros(5))
    model = ring(4)
    chart, out = batch_chart(model), np.arange(5) == model.pair_index["000", "out"]
    assert chart.first_policy(~out) is not None
    assert chart.first_policy(~out, avoided=out) is None
    for _ in range(8):
        model = random_problem(rng, states=4, successors=2)
        chart, solved = batch_chart(model), rng.random(model.n_pairs) < 0.7
        if all(block.way == "once" for block in chart.layout.blocks):
            continue
        found, expected = chart.first_policy(solved), leaving_policy(model, solved)
        assert (found is None) == (expected is None)
        if expected is not None:
            np.testing.assert_array_equal(chart.pairs(np.asarray(found)), expected)


def test_known_pairs_without_cycles_are_solved_by_levels_where_there_are_many_states():
    limits, known = ChartLimits(swept=9), np.ones(10, dtype=bool)
    assert known_chart(line(9), known[:9], limits).layout.blocks == (block(9, 9, "sweeps", 1),)
    found = known_chart(line(10), known, limits).layout.blocks
    assert found == (block(10, 10, "windows", 1, width=2),), "windows of about sqrt(10)"


def test_padded_problems_have_a_limit():
    """Five states of one action with two successors."""
    assert not batch_chart(line(5), ChartLimits(entries=10)).layout.permuted, "the last state is solved where it is"
    with pytest.raises(TooLargeError, match="more than 9 entries"):
        known_chart(line(5), np.ones(5, dtype=bool), ChartLimits(entries=9))
    with pytest.raises(TooLargeError, match="more than 9 entries"):
        batch_chart(line(5), ChartLimits(entries=9))


def test_windows_leave_every_state_solved(rng):
    """A window gets a state right if all states it leads to were right before; after the last window all are."""
    for states in (70, 100, 300):
        model = line(states)
        known = rng.random(model.n_pairs) < 0.7
        layout = known_chart(model, known).layout
        (whole,) = layout.blocks
        assert whole.width == 2 ** int(np.log2(np.sqrt(states)))
        windows = np.asarray(layout.windows)
        begins = windows[windows >= 0]
        assert (windows[len(begins) :] == -1).all()
        pair, successor = np.asarray(layout.pair), np.asarray(layout.successor)
        assert (np.asarray(layout.slot)[:, 0] == np.arange(states)).all()
        moves = (padded_successors(model)[1][pair] > 0) & known[pair, None]
        right = np.zeros(states + 1, dtype=bool)
        right[states] = True
        for begin in begins:
            assert 0 <= begin <= states - whole.width
            own = slice(begin, begin + whole.width)
            right[own] = (right[successor[own]] | ~moves[own]).all(axis=1)
        assert right.all()


def test_elimination_of_a_batch_against_dense_solutions(rng):
    """GTH: pivots multiply up to det(I - P), and (I - P) x = right, for four chains at once."""
    moves = rng.random((4, 5, 5)) / 6
    out = 1.0 - moves.sum(axis=2)
    right = rng.normal(size=(4, 5))
    arrays = (jnp.asarray(np.moveaxis(array, 0, -1)) for array in (moves, out, right))
    pivots, x = jax.jit(eliminate_batch)(*arrays)
    for k in range(4):
        system = np.eye(5) - moves[k]
        np.testing.assert_allclose(x[:, k], np.linalg.solve(system, right[k]), rtol=1e-12)
        assert np.prod(pivots[:, k]) == pytest.approx(np.linalg.det(system), rel=1e-12)


def test_chains_watched_at_their_first_states_only(rng):
    """Moves by way of the others, P + Q (I - R)^-1 S, what leaves by way of them, and log det (I - R)."""
    moves = rng.random((2, 4, 4)) / 5
    out = 1.0 - moves.sum(axis=2)
    watch = jax.jit(censor, static_argnums=2)
    log_det, inner, leaving = watch(*(jnp.asarray(np.moveaxis(array, 0, -1)) for array in (moves, out)), 2)
    for k, (chain, leaves) in enumerate(zip(moves, out, strict=True)):
        others = np.eye(2) - chain[2:, 2:]
        np.testing.assert_allclose(
            inner[..., k], chain[:2, :2] + chain[:2, 2:] @ np.linalg.solve(others, chain[2:, :2])
        )
        np.testing.assert_allclose(leaving[:, k], leaves[:2] + chain[:2, 2:] @ np.linalg.solve(others, leaves[2:]))
        assert log_det[k] == pytest.approx(np.log(np.linalg.det(others)), rel=1e-12)


def test_moves_among_the_states_of_a_block():
    """States 2 and 3 of a chart: moves elsewhere do not count, two entries for one state add up."""
    successor = jnp.array([[2, 3, 3], [0, 2, 5]])
    law = jnp.array([[0.5, 0.2, 0.3], [0.5, 0.4, 0.1]])[..., None]
    np.testing.assert_allclose(moves_within(successor, law, 2, 4)[..., 0], [[0.5, 0.5], [0.4, 0.0]])


def test_loops_of_gain_0_do_not_look_improper():
    """A loop that costs nothing ties with leaving it: policy iteration stays with what it has."""
    moves = {
        ("a", "on"): Move(0.0, {"b": 1.0}),
        ("a", "out"): Move(-1.0, {"goal": 1.0}),
        ("b", "back"): Move(0.0, {"a": 1.0}),
        ("b", "risk"): Move(-4.0, {"a": 0.5, "goal": 0.5}),
    }
    model = from_moves("free loop", moves, start="a")
    chart = batch_chart(model)
    payment = jnp.asarray(model.reward[:, None])
    answer = chart.solve(np.ones(4, dtype=bool), payment, jnp.full(payment.shape, -jnp.inf))
    assert bool(answer.solvable[0])
    np.testing.assert_allclose(answer.q[:, 0], [-1.0, -1.0, -1.0, -4.5])
    assert float(answer.log_det[0]) == 0.0
    answer = chart.solve(np.ones(4, dtype=bool), jnp.zeros_like(payment), jnp.full(payment.shape, -jnp.inf))
    assert bool(answer.solvable[0]), "nor where nothing pays anything"
    np.testing.assert_array_equal(answer.q[:, 0], 0.0)


def test_policy_iteration_counts_its_switches_down(monkeypatch):
    """So that policies which rounding makes look better than each other do not swap forever: here, one switch."""
    left = []

    def plain_loop(goes_on, body, state):
        while goes_on(state) and len(left) < 9:
            state = body(state)
            left.append(int(state[-1]))
        return state

    monkeypatch.setattr(jax.lax, "while_loop", plain_loop)
    inside, out = jnp.array([[[0.5]], [[0.0]]])[..., None], jnp.array([[0.5], [1.0]])[..., None]
    start, first = jnp.array([[[-1.0]], [[-1.5]]]), jnp.zeros(1, dtype=jnp.int64)

    def evaluate(policy):
        return eliminate_batch(chosen(inside, policy), chosen(out, policy), chosen(start, policy))

    q, pivots, proper = policy_iteration(start, first, evaluate, lambda values: jnp.sum(inside * values, axis=2))
    assert left == [59, 0]
    np.testing.assert_array_equal(q[:, 0, 0], [-1.75, -1.5])
    assert (float(pivots[0, 0]), bool(proper[0])) == (1.0, True)


def random_coordinates(rng, model, batch):
    """A chart, a random set of observed pairs, payments and values."""
    solved = rng.random(model.n_pairs) < 0.6
    payment = rng.normal(size=(model.n_pairs, batch)) - 0.5
    value = rng.normal(size=(model.n_pairs, batch)) * 3
    return batch_chart(model), solved, payment, value


def solve(chart, solved, payment, value, law=None):
    return chart.solve(solved, jnp.asarray(payment), jnp.asarray(value), law)


@pytest.fixture(scope="module")
def cases():
    """Random cyclic problems, some with observed end components, and their solved batches."""
    rng = np.random.default_rng(20261115)
    count, found = 10, []
    while len(found) < count:
        model = random_problem(rng, states=int(rng.integers(1, 5)))
        chart, solved, payment, value = random_coordinates(rng, model, 16)
        if leaving_policy(model, solved) is None:
            continue
        answer = solve(chart, solved, payment, value)
        found.append((model, solved, payment, value, np.asarray(answer.q), answer))
    return found


def test_residuals_and_values_come_back(cases):
    """Coordinates -> theta -> coordinates: solved pairs have residual = payment, the others keep their value."""
    loops = 0
    for model, solved, payment, value, q, answer in cases:
        good = np.asarray(answer.solvable)
        residual = q.T - model.expected_next(model.best(q.T))
        np.testing.assert_allclose(residual.T[solved][:, good], payment[solved][:, good], atol=1e-8)
        np.testing.assert_array_equal(q[~solved][:, good], value[~solved][:, good])
        loops += bool(end_components(model, solved))
    assert loops > 4


def test_theta_to_coordinates_and_back(rng, cases):
    """Start from any theta whose greedy policy is proper in M~: the chart finds it again from its coordinates."""
    recovered = 0
    for model, solved, *_ in cases:
        theta = rng.normal(size=(model.n_pairs, 16)) * 2
        payment = theta - model.expected_next(model.best(theta.T)).T
        answer = solve(batch_chart(model), solved, payment, theta)
        for k in range(16):
            if all_reach_an_end(model, model.greedy(theta[:, k]), solved):
                assert bool(answer.solvable[k]), "a proper solution exists, so it must be found"
                np.testing.assert_allclose(answer.q[:, k], theta[:, k], atol=1e-8)
                recovered += 1
    assert recovered > 100


def all_reach_an_end(model, policy, solved):
    """Is a policy proper in M~, where pairs that are not solved end at the goal?"""
    ends = ~solved[policy]
    keep = np.flatnonzero(~ends)
    if not len(keep):
        return True
    matrix = np.zeros((model.n_states + 1, model.n_states + 1), dtype=bool)
    matrix[-1, -1] = True
    for s, i in enumerate(policy):
        after = model.next_state[model.next_start[i] : model.next_start[i + 1]] if solved[i] else [model.n_states]
        matrix[s, after] = True
    reach = matrix | np.eye(len(matrix), dtype=bool)
    for _ in range(len(matrix)):
        reach = (reach.astype(int) @ reach.astype(int)) > 0
    return bool(reach[:, -1].all())


@pytest.mark.slow
def test_log_determinant_against_autodiff(cases):
    compared = curved = 0
    for model, solved, _, _, q, answer in cases:
        law = transitions(model)
        jacobians = jax.jit(jax.vmap(jax.jacobian(lambda theta, law=law: residuals(law, theta))))(jnp.asarray(q.T))
        for k in np.flatnonzero(np.asarray(answer.solvable)):
            full = np.asarray(jacobians[k])
            det = np.linalg.slogdet(full[np.ix_(solved, solved)])[1] if solved.any() else 0.0
            assert float(answer.log_det[k]) == pytest.approx(det, abs=1e-8)
            compared += 1
            curved += abs(det) > 1e-3
    assert compared > 100
    assert curved > 20, "the determinant must matter in some cases"


def test_unsolvable_only_where_an_observed_class_gains(cases):
    """Refused points hold a class of observed pairs whose payments have a mean that is not negative."""
    from bellmanifold.mdp.mean_payoff import best_mean_reward

    refused = 0
    for model, solved, payment, _, _, answer in cases:
        for k in range(16):
            paid = replace(model, reward=payment[:, k])
            gains = [best_mean_reward(paid, c).value for c in end_components(model, solved)]
            assert bool(answer.solvable[k]) == (max(gains, default=-1.0) < 0)
            refused += not bool(answer.solvable[k])
    assert refused > 5


def test_greedy_policy_of_a_complete_problem_is_proper():
    for model in (envs.swirl(5), envs.grid(4, 4, slip=0.1)):  # without loops every policy is
        chart = batch_chart(model)
        solved = np.ones(model.n_pairs, dtype=bool)
        answer = solve(chart, solved, model.reward[:, None], np.full((model.n_pairs, 1), -np.inf))
        assert is_proper(model, model.greedy(np.asarray(answer.q)[:, 0]))


def test_nearly_closed_loop_keeps_its_digits():
    leak = 1e-12
    moves = {("a", "go"): Move(-1.0, {"b": 1.0}), ("b", "go"): Move(-1.0, {"a": 1.0 - leak, "goal": leak})}
    model = from_moves("nearly closed", moves, start="a")
    chart = batch_chart(model)
    answer = solve(chart, np.ones(2, dtype=bool), model.reward[:, None], np.full((2, 1), -np.inf))
    assert float(answer.log_det[0]) == pytest.approx(np.log(leak), rel=1e-12)
    np.testing.assert_allclose(answer.q[:, 0], [-2 / leak, -2 / leak + 1], rtol=1e-13)


def test_too_large_for_a_batch():
    with pytest.raises(UnsupportedError, match="strong component"):
        batch_chart(envs.grid(10, 10, slip=0.1))


def test_growing_data_do_not_recompile(rng, no_programs):
    """Acyclic problems: the compiled programs see masks, so data of any size run the same one."""
    from bellmanifold.posteriors.coordinates import Coordinates
    from bellmanifold.posteriors.nets import Nets
    from bellmanifold.posteriors.pieces import weigh_pieces
    from bellmanifold.posteriors.target import relaxed_target
    from bellmanifold.problem.dataset import Dataset

    model = envs.deep_sea(4)
    chart = batch_chart(model)
    order = rng.permutation(model.n_pairs)
    sizes = []
    for n in (1, 3, 7, 12, 20):
        data = Dataset(model, order[:n], model.reward[order[:n]])
        Nets([Coordinates(relaxed_target(data, 0.1, 10.0))], chart, seed=0).sample(12)
        sizes.append(weigh_pieces._cache_size())
    assert sizes[0] > 0
    assert len(set(sizes)) == 1, "nothing was compiled after the first"


def test_sparse_chart_is_the_same_map(cases):
    """Point by point, also when it starts from the policy of another point."""
    for model, solved, payment, value, q, answer in cases:
        sparse = sparse_chart(model, solved)
        start = None
        for k in range(8):
            point = sparse.solve(np.where(solved, payment[:, k], 0.0), value[:, k], start)
            assert (point.policy is not None) == bool(answer.solvable[k])
            if point.policy is not None:
                start = point.policy
                np.testing.assert_allclose(point.q, q[:, k], atol=1e-8)
                assert point.log_det == pytest.approx(float(answer.log_det[k]), abs=1e-9)


def test_sparse_chart_of_a_large_grid_solves_it():
    """Complete data on a 20 x 20 grid: factorised systems, warm starts, and Q* as the answer."""
    from bellmanifold.mdp.solver import solve as solution_of

    model = envs.grid(20, 20, slip=0.1)
    everything = np.ones(model.n_pairs, dtype=bool)
    chart = sparse_chart(model, everything)
    point = chart.solve(model.reward, np.full(model.n_pairs, -np.inf))
    solution = solution_of(model)
    np.testing.assert_allclose(point.q, solution.q, atol=1e-9)
    again = chart.solve(model.reward * 1.01, np.full(model.n_pairs, -np.inf), point.policy)
    np.testing.assert_allclose(again.q, solution.q * 1.01, atol=1e-8)
    matrix = np.zeros((model.n_states, model.n_states))
    for s, i in enumerate(point.policy):
        for e in range(model.next_start[i], model.next_start[i + 1]):
            if model.next_state[e] < model.n_states:
                matrix[s, model.next_state[e]] += model.next_prob[e]
    assert point.log_det == pytest.approx(np.linalg.slogdet(np.eye(model.n_states) - matrix)[1], abs=1e-8)


@pytest.mark.slow
def test_charts_of_known_pairs_agree(rng):
    """Solved by sweeps (nothing random, or no cycle) or as one block: as the chart of the whole problem solves them."""
    swept = 0
    for deterministic in (True, False) * 6:
        model = random_problem(rng, states=int(rng.integers(2, 6)), successors=1 if deterministic else 3)
        _, solved, payment, value = random_coordinates(rng, model, 8)
        if leaving_policy(model, solved) is None:
            continue
        answers = []
        for chart in (batch_chart(model), known_chart(model, solved)):
            found = solve(chart, solved, payment, value)
            good = np.asarray(found.solvable)
            answers.append((good, np.asarray(found.q)[:, good], np.asarray(found.log_det)[good]))
            swept += chart.layout.blocks[0].way == "sweeps"
        np.testing.assert_array_equal(answers[0][0], answers[1][0])
        np.testing.assert_allclose(answers[0][1], answers[1][1], atol=1e-9)
        np.testing.assert_allclose(answers[0][2], answers[1][2], atol=1e-12)
    assert swept > 4


def _layered(rng, states, successors):
    """A problem without cycles whose states, in random order, move to states far and near."""
    names = [f"s{k}" for k in rng.permutation(states)]
    moves = {}
    for k, name in enumerate(names):
        for action in ("a", "b", "c")[: 1 + int(rng.integers(3))]:
            ahead = [*names[k + 1 : k + 1 + int(rng.integers(1, 40))], "goal"]
            landing = rng.choice(len(ahead), size=min(successors, len(ahead)), replace=False)
            moves[name, action] = Move(0.0, {ahead[j]: 1.0 / len(landing) for j in landing})
    return from_moves("layers", moves, start=names[0])


@pytest.mark.parametrize("successors", [1, 2])
def test_windows_agree_with_blocks(rng, successors):
    """Many known states without a cycle are solved window by window: as block by block, whatever is known."""
    model = _layered(rng, 90, successors)
    blocks = batch_chart(model)
    seen = []
    for share in (0.0, 0.1, 0.5, 0.9, 1.0):
        solved = rng.random(model.n_pairs) < share
        payment, value = rng.normal(size=(2, model.n_pairs, 4))
        found = []
        for chart in (blocks, known_chart(model, solved)):
            answer = solve(chart, solved, payment, value)
            assert bool(answer.solvable.all())
            assert not answer.log_det.any()
            found.append(np.asarray(answer.q))
        assert chart.layout.blocks[0].width == 8
        np.testing.assert_allclose(found[0], found[1], atol=1e-12)
        seen.append(int((chart.layout.windows >= 0).sum()))
    assert seen == sorted(seen)
    assert seen[0] == 12, "one level of 90 states"
    assert seen[-1] > 12, "the windows should be many"


def test_sweeps_certify_loops_that_pay():
    """Two states that lead to each other, both solved, and a way out: a loop that pays 0.1 has no solution."""
    moves = {("a", "on"): Move(0.0, {"b": 1.0}), ("a", "out"): Move(0.0, {"goal": 1.0})}
    moves |= {("b", "on"): Move(0.0, {"a": 1.0})}
    chart = batch_chart(from_moves("loop", moves, start="a"))
    assert chart.layout.blocks[0].way == "sweeps"
    payment = np.array([[1.0, 1.0], [0.0, 0.0], [-0.9, -1.1]])
    answer = solve(chart, np.ones(3, dtype=bool), payment, np.full((3, 2), -np.inf))
    assert np.asarray(answer.solvable).tolist() == [False, True]


# --- a law for each member of the batch -------------------------------------------------------------------------------


def with_another_law(rng, model):
    """The same successors with other probabilities; certain moves stay certain."""
    weight = rng.uniform(0.1, 1.0, len(model.next_prob))
    return replace(model, next_prob=weight / np.bincount(model.next_pair, weight)[model.next_pair])


def together_and_alone(rng, model, chart_of, solved, batch=4):
    """A batch in which each member has a law of its own, and each of them on the sparse chart of its own problem."""
    models = [with_another_law(rng, model) for _ in range(batch)]
    payment, value = rng.normal(size=(2, model.n_pairs, batch)) - 0.5
    law = jnp.stack([jnp.asarray(padded_successors(one)[1]) for one in models], axis=-1)
    together = solve(chart_of(model), solved, payment, value, law)
    paid = np.where(solved[:, None], payment, 0.0)
    alone = [sparse_chart(m, solved).solve(paid[:, k], value[:, k]) for k, m in enumerate(models)]
    return together, alone


def assert_same(together, alone):
    """How many of them have a solution, all being the same."""
    for k, one in enumerate(alone):
        assert bool(together.solvable[k]) == (one.policy is not None)
        if one.policy is not None:
            np.testing.assert_allclose(together.q[:, k], one.q, rtol=1e-11, atol=1e-12)
            np.testing.assert_allclose(together.log_det[k], one.log_det, rtol=1e-10, atol=1e-12)
    return int(np.sum(together.solvable))


def kinds(chart):
    """Ways of its blocks, each with whether sorting moves anything and whether all states have as many actions."""
    layout = chart.layout
    return {(block.way, layout.permuted, layout.actions > 0) for block in layout.blocks}


@pytest.mark.parametrize("count", [6, pytest.param(12, marks=pytest.mark.slow)])
def test_a_law_for_each_draw_in_blocks_of_all_kinds(rng, count):
    """Random problems, one for each of so many kinds of blocks, twelve in all: states with as many actions each or not,
    in their own order or another one, solved by policies, by sweeps where nothing is random, or once."""
    met, solvable, points = set(), 0, 0
    while len(met) < count:
        model = random_problem(rng, states=int(rng.integers(2, 5)), actions=2, successors=2, goal_share=0.4)
        chart, solved = batch_chart(model), rng.random(model.n_pairs) < 0.7
        if kinds(chart) <= met or leaving_policy(model, solved) is None:
            continue
        met |= kinds(chart)
        together, alone = together_and_alone(rng, model, batch_chart, solved)
        solvable += assert_same(together, alone)
        points += len(alone)
    assert 0.5 * points < solvable, "else hardly anything was compared"


@pytest.mark.parametrize(("states", "way"), [(20, "sweeps"), (90, "windows")])
def test_a_law_for_each_draw_of_known_pairs(rng, states, way):
    """Without cycles, by sweeps over few states and by windows over many; also block by block, where each state is
    solved once."""
    model = _layered(rng, states, 3)
    solved = rng.random(model.n_pairs) < 0.8

    def known(one):
        return known_chart(one, solved)

    assert known(model).layout.blocks[0].way == way
    assert known(model).layout.permuted == (way == "windows")
    assert batch_chart(model).layout.permuted
    assert {block.way for block in batch_chart(model).layout.blocks} == {"once"}
    for chart_of in (known, batch_chart):
        assert assert_same(*together_and_alone(rng, model, chart_of, solved)) == 4


def test_a_law_for_all_is_a_law_for_each(rng):
    """The same law given once, and once for each member, on a block that is solved by policies."""
    model = ring(4)
    chart, solved = batch_chart(model), np.arange(model.n_pairs) != 2
    payment, value = rng.normal(size=(2, model.n_pairs, 5)) - 0.5
    law = jnp.repeat(chart.law[..., None], 5, axis=-1)
    once, each = solve(chart, solved, payment, value), solve(chart, solved, payment, value, law)
    np.testing.assert_allclose(once.q, each.q, rtol=1e-12)
    np.testing.assert_allclose(once.log_det, each.log_det, rtol=1e-12)


def slippery_roads(rng, junctions, slip):
    """Junctions in a row, some shortcuts of two, and slips to any road of the junction, except at the first six."""
    roads = {k: [k - 1, k + 1] for k in range(1, junctions)} | {0: [1]}
    for k in rng.choice(junctions - 3, junctions // 3, replace=False):
        roads[k].append(k + 2)
        roads[k + 2].append(k)
    moves = {}
    for k, ends in roads.items():
        for end in ends:
            chance = {other: slip / len(ends) for other in ends} if k >= 6 else {end: 0.0}
            chance[end] += 1.0 - slip * (k >= 6)
            named = {"goal" if other == junctions else str(other): p for other, p in chance.items()}
            moves[str(k), str(end)] = Move(-float(rng.uniform(1, 3)), named)
    return from_moves("slippery roads", moves, start="0")


@pytest.mark.parametrize(("slip", "pays"), [(0.3, -1.0), (1e-7, -4.0)])
def test_few_neighbours_are_eliminated_as_all_states_are(rng, slip, pays):
    """A narrow block against the full matrix: values, determinants and who is solvable, for some points that no proper
    policy solves, too. The batch is larger than a part and no multiple of one."""
    model = slippery_roads(rng, 24, slip)
    chart = batch_chart(model)
    assert [block is not None for block in chart.layout.narrow] == [True]
    full = replace(chart, layout=replace(chart.layout, narrow=(None,)))
    solved = rng.random(model.n_pairs) < 0.9
    solved[: model.pair_start[6]] = solved[model.pair_start[-2] :] = True
    payment = jnp.asarray(rng.normal(pays, 1.0, size=(model.n_pairs, 300)))
    value = jnp.asarray(rng.normal(-20.0, 9.0, size=(model.n_pairs, 300)))
    found, expected = chart.solve(solved, payment, value), full.solve(solved, payment, value)
    np.testing.assert_array_equal(found.solvable, expected.solvable)
    good = np.asarray(found.solvable)
    assert good.sum() > 10
    assert not good.all() or pays < -1.0, "loops at the first six junctions may pay"
    np.testing.assert_allclose(np.asarray(found.q)[:, good], np.asarray(expected.q)[:, good], rtol=1e-9)
    np.testing.assert_allclose(np.asarray(found.log_det)[good], np.asarray(expected.log_det)[good], atol=1e-9)


def test_narrow_elimination_against_a_dense_solution(rng):
    """Pivots multiply up to det(I - P), and (I - P) x = right, for one policy of a sparse chain."""
    model = slippery_roads(rng, 30, 0.2)
    chart = batch_chart(model)
    (narrow,) = chart.layout.narrow
    policy = model.greedy(solver.solve(model).q)
    moves, out = np.zeros((30, 30)), np.zeros(30)
    for state, pair in enumerate(policy):
        for entry in range(model.next_start[pair], model.next_start[pair + 1]):
            if model.next_state[entry] == 30:
                out[state] += model.next_prob[entry]
            else:
                moves[state, model.next_state[entry]] += model.next_prob[entry]
    right = rng.normal(size=30)
    order = np.asarray(chart.layout.state)
    source, width = np.asarray(narrow.source), len(np.asarray(chart.layout.slot)[0])
    law = chart.law[chart.layout.pair]
    action = (policy - model.pair_start[:-1])[order]
    table = np.asarray(narrow.moves(law, width))[np.arange(len(source)), action[source]]
    pivots, x = narrow.eliminate(*(jnp.asarray(array[:, None]) for array in (table, out[order], right[order])))
    system = np.eye(30) - moves
    np.testing.assert_allclose(np.asarray(x)[:, 0], np.linalg.solve(system, right)[order], rtol=1e-9)
    assert np.prod(np.asarray(pivots)) == pytest.approx(np.linalg.det(system), rel=1e-9)


def test_dense_and_small_blocks_are_full_matrices(rng):
    """Where eliminating a few states joins all others nothing is gained."""
    assert batch_chart(envs.grid(3, 3, slip=0.2)).layout.narrow == (None,)
    everywhere = {str(k): 1.0 / 21 for k in range(20)} | {"goal": 1.0 / 21}
    moves = {(str(k), name): Move(-1.0, everywhere) for k in range(20) for name in ("a", "b")}
    assert batch_chart(from_moves("anywhere", moves, start="0")).layout.narrow == (None,)


def test_blocks_are_narrow_where_eight_times_the_products_are_fewer():
    """60 states in a row that move up to w places: 8 x 60 w^2 products against 60^3 / 3, so w = 12 is the last one."""
    for reach, is_narrow in ((12, True), (13, False)):
        state, away = np.arange(60), np.concatenate([np.arange(-reach, 0), np.arange(1, reach + 1)])
        successor = state[:, None] + away
        found = narrow_block(state, np.zeros(60, dtype=np.int64), successor, np.ones(successor.shape, dtype=bool), 60)
        assert (found is not None) == is_narrow
        if found is not None:
            assert found.near.shape == (60, reach)
