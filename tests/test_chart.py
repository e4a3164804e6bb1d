"""The chart is a change of variables: round trip, residuals, determinant, and the manifold it parametrises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import random_problem

from bellmanifold import chart as chart_module
from bellmanifold import envs
from bellmanifold.chart.batch import Block, TooLargeError, batch_chart, eliminate_batch, known_chart, moves_within
from bellmanifold.chart.bellman import residuals, transitions
from bellmanifold.chart.sparse import sparse_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.graph import end_components, is_proper, strong_components


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


def test_slots_hold_every_pair_with_its_law(rng):
    """Padding leads to the goal with probability 0; `spread` and `place` are inverse to each other."""
    for _ in range(10):
        model = random_problem(rng, states=5)
        chart = batch_chart(model)
        assert sorted(chart.order.tolist()) == list(range(5))
        seen = []
        for action, place in np.ndindex(*chart.slot.shape):
            state, pair = chart.order[place], chart.slot[action, place]
            after = {}
            for to, probability in zip(chart.successor[action, place], chart.law[action, place], strict=True):
                if probability > 0:
                    after[5 if to == 5 else int(chart.order[to])] = probability
                else:
                    assert to == 5
            if pair == model.n_pairs:
                assert not after
                continue
            seen.append(pair)
            assert pair == model.pair_start[state] + action
            own = range(model.next_start[pair], model.next_start[pair + 1])
            assert after == {int(model.next_state[e]): model.next_prob[e] for e in own}
        assert sorted(seen) == list(range(model.n_pairs))
        per_pair = rng.normal(size=(model.n_pairs, 3))
        spread = chart.spread(per_pair, -7.0)
        np.testing.assert_array_equal(spread[chart.place], per_pair)
        assert (spread[chart.slot == model.n_pairs] == -7.0).all()


def test_blocks_are_solved_from_the_goal_backwards(rng):
    """Cyclic blocks are strong components; states of any other block move to earlier blocks only; no block is split."""
    merged = 0
    for _ in range(40):
        model = random_problem(rng, states=6, successors=2, goal_share=0.5)
        chart, component = batch_chart(model), strong_components(model)
        assert [block.begin for block in chart.blocks] == [0] + [block.end for block in chart.blocks[:-1]]
        assert chart.blocks[-1].end == 6
        for block in chart.blocks:
            own = chart.order[block.begin : block.end]
            after = chart.successor[:, block.begin : block.end][chart.law[:, block.begin : block.end] > 0]
            inside = (after >= block.begin) & (after < block.end)
            assert ((after < block.end) | (after == 6)).all()
            assert inside.any() == block.cyclic
            if block.cyclic:
                assert set(own) == set(np.flatnonzero(component == component[own[0]]))
                random = (model.next_prob[np.isin(model.pair_state[model.next_pair], own)] < 1.0).any()
                assert block.sweeps == (not random)
            else:
                assert not block.sweeps
            merged += not block.cyclic and block.end - block.begin > 1
        for first, second in zip(chart.blocks, chart.blocks[1:], strict=False):
            if not (first.cyclic or second.cyclic):
                after = chart.successor[:, second.begin]
                assert ((after >= first.begin) & (after < first.end)).any(), "else the two would be one"
    assert merged > 10


def test_random_cycles_are_taken_up_to_a_size_and_certain_ones_of_any(monkeypatch):
    monkeypatch.setattr(chart_module, "MAX_BLOCK", 3)
    assert batch_chart(ring(3)).blocks == (Block(0, 3, True, False),)
    with pytest.raises(TooLargeError, match="a strong component has 4 states: a batch chart takes at most 3"):
        batch_chart(ring(4))
    assert batch_chart(ring(5, leaves=1.0)).blocks == (Block(0, 5, True, True),)
    known = np.ones(6, dtype=bool)
    assert known_chart(ring(3), known[:4]).blocks == (Block(0, 3, True, False),)
    with pytest.raises(TooLargeError, match="random moves in cycles among 5 states"):
        known_chart(ring(5), known)
    for model, seen in ((ring(5, leaves=1.0), known), (ring(5), np.arange(6) != 1)):
        assert known_chart(model, seen).blocks == (Block(0, 5, True, True),), "no known pair is random and on a cycle"


def test_known_pairs_without_cycles_are_solved_by_levels_where_there_are_many_states(monkeypatch):
    monkeypatch.setattr(chart_module, "MANY_STATES", 9)
    known = np.ones(10, dtype=bool)
    assert known_chart(line(9), known[:9]).blocks == (Block(0, 9, True, True),)
    assert known_chart(line(10), known).blocks == (Block(0, 10, False, False, 2),), "windows of about sqrt(10)"


def test_padded_problems_have_a_limit(monkeypatch):
    """Five states of one action with two successors."""
    monkeypatch.setattr(chart_module, "MAX_SLOTS", 10)
    batch_chart(line(5))
    monkeypatch.setattr(chart_module, "MAX_SLOTS", 9)
    with pytest.raises(TooLargeError, match="more than 9 entries"):
        known_chart(line(5), np.ones(5, dtype=bool))


def test_windows_leave_every_state_solved(rng):
    """A window gets a state right if all states it leads to were right before; after the last window all are."""
    for states in (70, 100, 300):
        model = line(states)
        known = rng.random(model.n_pairs) < 0.7
        chart = known_chart(model, known)
        (block,) = chart.blocks
        assert block.width == 2 ** int(np.log2(np.sqrt(states)))
        begins = chart.stretches[chart.stretches >= 0]
        assert (chart.stretches[len(begins) :] == -1).all()
        right = np.zeros(states + 1, dtype=bool)
        right[states] = True
        for begin in begins:
            assert 0 <= begin <= states - block.width
            own = slice(begin, begin + block.width)
            moves = (chart.law[0, own] > 0) & known[chart.slot[0, own], None]
            right[own] = (right[chart.successor[0, own]] | ~moves).all(axis=1)
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


def test_moves_among_the_states_of_a_block():
    """States 2 and 3 of a chart: moves elsewhere do not count, two entries for one state add up."""
    successor = jnp.array([[[2, 3, 3], [0, 2, 5]]])
    law = jnp.array([[[0.5, 0.2, 0.3], [0.5, 0.4, 0.1]]])
    np.testing.assert_allclose(moves_within(successor, law, 2, 4), [[[0.5, 0.5], [0.4, 0.0]]])


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
    payment = jnp.asarray(chart.spread(model.reward[:, None], 0.0))
    answer = chart.solve(np.ones(4, dtype=bool), payment, jnp.full(payment.shape, -jnp.inf))
    assert bool(answer.solvable[0])
    np.testing.assert_allclose(np.asarray(answer.q)[chart.place][:, 0], [-1.0, -1.0, -1.0, -4.5])
    assert float(answer.log_det[0]) == 0.0
    answer = chart.solve(np.ones(4, dtype=bool), jnp.zeros_like(payment), jnp.full(payment.shape, -jnp.inf))
    assert bool(answer.solvable[0]), "nor where nothing pays anything"
    np.testing.assert_array_equal(np.asarray(answer.q)[chart.place][:, 0], 0.0)


def test_policy_iteration_counts_its_switches_down(monkeypatch):
    """So that policies which rounding makes look better than each other do not swap for ever: here, one switch."""
    left = []

    def plain_loop(goes_on, body, state):
        while goes_on(state) and len(left) < 9:
            state = body(state)
            left.append(int(state[-1]))
        return state

    monkeypatch.setattr(jax.lax, "while_loop", plain_loop)
    inside, out = jnp.array([[[0.5]], [[0.0]]]), jnp.array([[0.5], [1.0]])
    q, pivots, proper = chart_module._policy_iteration(
        inside, out, jnp.array([[[-1.0]], [[-1.5]]]), jnp.zeros(1, dtype=jnp.int64)
    )
    assert left == [59, 0]
    np.testing.assert_array_equal(q[:, 0, 0], [-1.75, -1.5])
    assert (float(pivots[0, 0]), bool(proper[0])) == (1.0, True)


def random_coordinates(rng, model, batch):
    """A random set of observed pairs, payments and values, by slot, and the observed mask."""
    chart = batch_chart(model)
    solved = rng.random(model.n_pairs) < 0.6
    payment = rng.normal(size=(model.n_pairs, batch)) - 0.5
    value = rng.normal(size=(model.n_pairs, batch)) * 3
    by_slot = (jnp.asarray(chart.spread(payment, 0.0)), jnp.asarray(chart.spread(value, -np.inf)))
    return chart, solved, payment, value, by_slot


@pytest.fixture(scope="module")
def cases():
    """Random cyclic problems, some with observed end components, and their solved batches."""
    rng = np.random.default_rng(20261115)
    count, found = 20, []
    while len(found) < count:
        model = random_problem(rng, states=int(rng.integers(1, 5)))
        chart, solved, payment, value, by_slot = random_coordinates(rng, model, 16)
        if chart.first_policy(solved) is None:
            continue
        answer = chart.solve(solved, *by_slot)
        q = np.asarray(answer.q)[chart.place]
        found.append((model, solved, payment, value, q, answer))
    return found


def test_residuals_and_values_come_back(cases):
    """Coordinates -> theta -> coordinates: solved pairs have residual = payment, the others keep their value."""
    loops = 0
    for model, solved, payment, value, q, answer in cases:
        law = transitions(model)
        good = np.asarray(answer.solvable)
        for k in np.flatnonzero(good):
            g = np.asarray(residuals(law, jnp.asarray(q[:, k])))
            np.testing.assert_allclose(g[solved], payment[solved, k], atol=1e-8)
            np.testing.assert_array_equal(q[~solved, k], value[~solved, k])
        loops += bool(end_components(model, solved))
    assert loops > 4


def test_theta_to_coordinates_and_back(rng, cases):
    """Start from any theta whose greedy policy is proper in M~: the chart finds it again from its coordinates."""
    recovered = 0
    for model, solved, *_ in cases:
        chart, law = batch_chart(model), transitions(model)
        theta = rng.normal(size=(model.n_pairs, 16)) * 2
        payment = np.stack([np.asarray(residuals(law, jnp.asarray(one))) for one in theta.T], axis=1)
        answer = chart.solve(
            solved,
            jnp.asarray(chart.spread(payment, 0.0)),
            jnp.asarray(chart.spread(theta, -np.inf)),
        )
        for k in range(16):
            if all_reach_an_end(model, model.greedy(theta[:, k]), solved):
                assert bool(answer.solvable[k]), "a proper solution exists, so it must be found"
                np.testing.assert_allclose(np.asarray(answer.q)[chart.place][:, k], theta[:, k], atol=1e-8)
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
    from dataclasses import replace

    from bellmanifold.gain import best_mean_reward

    refused = 0
    for model, solved, payment, _, _, answer in cases:
        for k in range(16):
            paid = replace(model, reward=payment[:, k])
            gains = [best_mean_reward(paid, c).value for c in end_components(model, solved)]
            assert bool(answer.solvable[k]) == (max(gains, default=-1.0) < 0)
            refused += not bool(answer.solvable[k])
    assert refused > 5


def test_greedy_policy_of_a_complete_problem_is_proper():
    for model in (envs.swirl(5), envs.grid(4, 4, slip=0.1), envs.two_state(), envs.deep_sea(4, slip=0.2)):
        chart = batch_chart(model)
        solved = np.ones(model.n_pairs, dtype=bool)
        none = jnp.asarray(chart.spread(np.zeros((model.n_pairs, 1)), -np.inf))
        answer = chart.solve(solved, jnp.asarray(chart.spread(model.reward[:, None], 0.0)), none)
        assert is_proper(model, model.greedy(np.asarray(answer.q)[chart.place][:, 0]))


def test_nearly_closed_loop_keeps_its_digits():
    from bellmanifold.envs.building import Move, from_moves

    leak = 1e-12
    moves = {("a", "go"): Move(-1.0, {"b": 1.0}), ("b", "go"): Move(-1.0, {"a": 1.0 - leak, "goal": leak})}
    model = from_moves("nearly closed", moves, start="a")
    chart = batch_chart(model)
    none = jnp.asarray(chart.spread(np.zeros((2, 1)), -np.inf))
    answer = chart.solve(np.ones(2, dtype=bool), jnp.asarray(chart.spread(model.reward[:, None], 0.0)), none)
    assert float(answer.log_det[0]) == pytest.approx(np.log(leak), rel=1e-12)
    np.testing.assert_allclose(np.asarray(answer.q)[chart.place][:, 0], [-2 / leak, -2 / leak + 1], rtol=1e-13)


def test_too_large_for_a_batch():
    with pytest.raises(UnsupportedError, match="strong component"):
        batch_chart(envs.grid(10, 10, slip=0.1))


def test_growing_data_do_not_recompile(rng):
    """Acyclic problems: the compiled programs see masks, so data of any size run the same one."""
    from bellmanifold.data import Dataset
    from bellmanifold.posteriors.coordinates import Coordinates
    from bellmanifold.posteriors.importance import Nets, weigh_pieces
    from bellmanifold.posteriors.target import relaxed_target

    model = envs.deep_sea(4)
    chart = batch_chart(model)
    before = weigh_pieces._cache_size()
    order = rng.permutation(model.n_pairs)
    for n in (1, 3, 7, 12, 20):
        data = Dataset(model, order[:n], model.reward[order[:n]])
        Nets([Coordinates(relaxed_target(data, 0.1, 10.0), chart)], seed=0).sample(12)
    assert weigh_pieces._cache_size() == before + 1


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
    from bellmanifold.solver import solve

    model = envs.grid(20, 20, slip=0.1)
    everything = np.ones(model.n_pairs, dtype=bool)
    chart = sparse_chart(model, everything)
    point = chart.solve(model.reward, np.full(model.n_pairs, -np.inf))
    solution = solve(model)
    np.testing.assert_allclose(point.q, solution.q, atol=1e-9)
    again = chart.solve(model.reward * 1.01, np.full(model.n_pairs, -np.inf), point.policy)
    np.testing.assert_allclose(again.q, solution.q * 1.01, atol=1e-8)
    matrix = np.zeros((model.n_states, model.n_states))
    for s, i in enumerate(point.policy):
        for e in range(model.next_start[i], model.next_start[i + 1]):
            if model.next_state[e] < model.n_states:
                matrix[s, model.next_state[e]] += model.next_prob[e]
    assert point.log_det == pytest.approx(np.linalg.slogdet(np.eye(model.n_states) - matrix)[1], abs=1e-8)


def test_charts_of_known_pairs_agree(rng):
    """Solved by sweeps (nothing random, or no cycle) or as one block: as the chart of the whole problem solves them."""
    swept = 0
    for deterministic in (True, False) * 6:
        model = random_problem(rng, states=int(rng.integers(2, 6)), successors=1 if deterministic else 3)
        _, solved, payment, value, _ = random_coordinates(rng, model, 8)
        if batch_chart(model).first_policy(solved) is None:
            continue
        answers = []
        for chart in (batch_chart(model), known_chart(model, solved)):
            by_slot = (jnp.asarray(chart.spread(payment, 0.0)), jnp.asarray(chart.spread(value, -np.inf)))
            found = chart.solve(solved, *by_slot)
            good = np.asarray(found.solvable)
            answers.append((good, np.asarray(found.q)[chart.place][:, good], np.asarray(found.log_det)[good]))
            swept += chart.blocks[0].sweeps
        np.testing.assert_array_equal(answers[0][0], answers[1][0])
        np.testing.assert_allclose(answers[0][1], answers[1][1], atol=1e-9)
        np.testing.assert_allclose(answers[0][2], answers[1][2], atol=1e-12)
    assert swept > 4


def _layered(rng, states, successors):
    """A problem without cycles whose states, in random order, move to states far and near."""
    from bellmanifold.envs.building import Move, from_moves

    names = [f"s{k}" for k in rng.permutation(states)]
    moves = {}
    for k, name in enumerate(names):
        for action in ("a", "b", "c")[: 1 + int(rng.integers(3))]:
            ahead = [*names[k + 1 : k + 1 + int(rng.integers(1, 40))], "goal"]
            landing = rng.choice(len(ahead), size=min(successors, len(ahead)), replace=False)
            moves[name, action] = Move(0.0, {ahead[j]: 1.0 / len(landing) for j in landing})
    return from_moves("layers", moves, start=names[0])


@pytest.mark.parametrize("successors", [1, 2])
def test_stretches_agree_with_blocks(rng, successors):
    """Many known states without a cycle are solved window by window: as block by block, whatever is known."""
    model = _layered(rng, 90, successors)
    blocks = batch_chart(model)
    seen = []
    for share in (0.0, 0.1, 0.5, 0.9, 1.0):
        solved = rng.random(model.n_pairs) < share
        payment, value = rng.normal(size=(2, model.n_pairs, 4))
        found = []
        for chart in (blocks, known_chart(model, solved)):
            by_slot = (jnp.asarray(chart.spread(payment, 0.0)), jnp.asarray(chart.spread(value, -np.inf)))
            answer = chart.solve(solved, *by_slot)
            assert bool(answer.solvable.all())
            assert not answer.log_det.any()
            found.append(np.asarray(answer.q)[chart.place])
        assert chart.blocks[0].width == 8
        np.testing.assert_allclose(found[0], found[1], atol=1e-12)
        seen.append(int((chart.stretches >= 0).sum()))
    assert seen == sorted(seen)
    assert seen[-1] > 12, "the windows should be many"


def test_sweeps_certify_loops_that_pay():
    """Two states that lead to each other, both solved, and a way out: a loop that pays 0.1 has no solution."""
    from bellmanifold.envs.building import Move, from_moves

    moves = {("a", "on"): Move(0.0, {"b": 1.0}), ("a", "out"): Move(0.0, {"goal": 1.0})}
    moves |= {("b", "on"): Move(0.0, {"a": 1.0})}
    chart = batch_chart(from_moves("loop", moves, start="a"))
    assert chart.blocks[0].sweeps
    payment = np.array([[1.0, 1.0], [0.0, 0.0], [-0.9, -1.1]])
    none = jnp.asarray(chart.spread(np.full((3, 2), -np.inf), -np.inf))
    answer = chart.solve(np.ones(3, dtype=bool), jnp.asarray(chart.spread(payment, 0.0)), none)
    assert np.asarray(answer.solvable).tolist() == [False, True]
