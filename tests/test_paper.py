"""Statements of the paper about improper policies and Bellman's equations, checked against brute force.

`docs/paper-map.md` says which statement each test carries. Random problems have fixed seeds; no check is statistical.
"""

from __future__ import annotations

import numpy as np
import pytest
from problems import all_policies, chain, random_problem, recurrent

from bellmanifold import SSP, envs, solve
from bellmanifold.mdp.checks import assumption_2, direction
from bellmanifold.mdp.graph import end_components, is_proper
from bellmanifold.mdp.linear import solve_chain
from bellmanifold_paper.identifiability import flat_cones


def small_problems(count: int, kind: str = "any") -> list[SSP]:
    rng = np.random.default_rng(31)
    return [random_problem(rng, states=3, actions=2, reward_kind=kind) for _ in range(count)]


CYCLIC = [envs.two_state(), envs.swirl(2), envs.swirl(3), envs.grid(2, 3, slip=0.2)]
CYCLIC += [model for model in small_problems(30) if end_components(model)][:5]


def cones(model: SSP, rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each end component: its direction u, and action values whose greedy actions also maximise u."""
    found = []
    for cone in flat_cones(model):
        q = rng.normal(size=model.n_pairs)
        q[cone.policy] = model.best(q) + rng.exponential(size=model.n_states)
        found.append((cone.direction, q))
    return found


# --- Bellman's equations


def test_pairs_are_numbered_one_to_one() -> None:
    model = envs.four_state()
    assert sorted(model.pair_index.values()) == list(range(model.n_pairs))
    assert all(model.pair_index[model.pair_name(i)] == i for i in range(model.n_pairs))


def test_repeated_backups_end_at_the_same_action_values_from_anywhere() -> None:
    rng = np.random.default_rng(4)
    sound = [model for model in small_problems(60, "costs") if assumption_2(model).holds]
    assert len(sound) > 10
    for model in sound[:12]:
        q = solve(model).q
        np.testing.assert_allclose(model.backup(model.best(q)), q, atol=1e-8 * max(1.0, np.abs(q).max()))
        other = q + rng.normal(scale=3.0, size=model.n_pairs)
        for _ in range(2000):
            other = model.backup(model.best(other))
        np.testing.assert_allclose(other, q, atol=1e-6 * max(1.0, np.abs(q).max()))


def test_zero_is_the_only_solution_without_rewards() -> None:
    model = envs.swirl(4)
    policy = model.greedy(solve(model).q)
    states = np.arange(model.n_states)
    np.testing.assert_array_equal(solve_chain(model, policy, states, np.zeros(model.n_states)), 0.0)
    assert np.linalg.matrix_rank(np.eye(model.n_states) - chain(model, policy)[:-1, :-1]) == model.n_states


# --- improper policies


def test_example_1() -> None:
    model = envs.two_state()
    np.testing.assert_array_equal(solve(model).q, [-2.0, -1.0])
    (component,) = end_components(model)
    np.testing.assert_array_equal(direction(model, component), [1.0, 0.0])


def test_improper_policies_exist_where_recurrent_states_do() -> None:
    answers = []
    for model in small_problems(100):
        every = list(all_policies(model))
        improper = not all(is_proper(model, policy) for policy in every)
        assert improper == any(recurrent(model, policy).any() for policy in every) == bool(end_components(model))
        answers.append(improper)
    assert 5 < sum(answers) < 95


@pytest.mark.parametrize("model", CYCLIC, ids=lambda model: f"{model.name}-{model.n_pairs}")
def test_best_values_move_with_u(model: SSP) -> None:
    for u, q in cones(model, np.random.default_rng(2)):
        for c in (0.0, 0.5, 50.0):
            np.testing.assert_allclose(model.best(q + c * u), model.best(q) + c * model.best(u), atol=1e-12)


# --- environments


def test_pyramid_has_eight_best_routes() -> None:
    model = envs.pyramid(5)

    def paid(state: int) -> list[float]:
        if state == model.n_states:
            return [0.0]
        own = range(model.pair_start[state], model.pair_start[state + 1])
        return [model.reward[i] + rest for i in own for rest in paid(int(model.next_state[model.next_start[i]]))]

    totals = np.array(paid(int(np.argmax(model.initial))))
    assert np.isclose(totals, 1.0).sum() == 8
    assert totals.max() == pytest.approx(1.0)
