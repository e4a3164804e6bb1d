"""The chart is a change of variables: round trip, residuals, determinant, and the manifold it parametrises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import random_problem

from bellmanifold import envs
from bellmanifold.bellman import residuals, transitions
from bellmanifold.chart import batch_chart, known_chart
from bellmanifold.errors import UnsupportedError
from bellmanifold.graph import end_components, is_proper
from bellmanifold.sparse_chart import sparse_chart


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
