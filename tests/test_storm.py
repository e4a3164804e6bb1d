"""Graph questions and optimal values against Storm, an independent model checker (the optional extra "oracles").

Storm's numbers are sound to a relative 1e-6. It takes rewards that are all costs, so every move of a problem is made
`SHIFT` dearer where some move pays; our side solves the same dearer problem.
"""

from dataclasses import replace

import numpy as np
import pytest
from problems import random_problem

from bellmanifold import envs
from bellmanifold.io.models import load_model
from bellmanifold.mdp.checks import assumption_2
from bellmanifold.mdp.graph import end_components, reach_goal, reach_probability
from bellmanifold.mdp.solver import solve

stormpy = pytest.importorskip("stormpy", reason="the optional oracle stormpy is not installed: pip install stormpy")

SHIFT = 2.0
BUILT_IN = {
    "two-state": envs.two_state(),
    "four-state": envs.four_state(),
    "deep sea": envs.deep_sea(5),
    "slippery sea": envs.deep_sea(5, slip=0.2),
    "bsuite": envs.deep_sea(6, convention="bsuite", stochastic=True),
    "pyramid": envs.pyramid(5),
    "swirl": envs.swirl(5),
    "grid": envs.grid(4, 4, slip=0.3, walls="1,1"),
}
GYMNASIUM = ["gym:CliffWalking-v1", "gym:FrozenLake-v1"]


def problems(rng, count, **options):
    return [random_problem(rng, states=int(rng.integers(1, 6)), **options) for _ in range(count)]


def to_storm(model, target=()):
    """The problem as Storm's: rows are pairs, the goal is the last state; labels "goal" and "target"; costs."""
    from stormpy.datastructures import SparseMatrixBuilder
    from stormpy.models import SparseMdp, SparseModelComponents, SparseRewardModel, StateLabeling

    builder = SparseMatrixBuilder[float](0, 0, 0, force_dimensions=False, has_custom_row_grouping=True)
    for s in range(model.n_states):
        builder.new_row_group(int(model.pair_start[s]))
        for i in range(model.pair_start[s], model.pair_start[s + 1]):
            for e in range(model.next_start[i], model.next_start[i + 1]):
                builder.add_next_value(i, int(model.next_state[e]), float(model.next_prob[e]))
    builder.new_row_group(model.n_pairs)
    builder.add_next_value(model.n_pairs, model.n_states, 1.0)
    labels = StateLabeling(model.n_states + 1)
    for name, states in {"init": [0], "goal": [model.n_states], "target": target}.items():
        labels.add_label(name)
        for s in states:
            labels.add_label_to_state(name, int(s))
    parts = SparseModelComponents[float](transition_matrix=builder.build(), state_labeling=labels)
    cost = [*(-model.reward).tolist(), 0.0]
    parts.reward_models = {"cost": SparseRewardModel[float](optional_state_action_reward_vector=cost)}
    return SparseMdp[float](parts)


def answers(model, question, target=()):
    """Storm's answer for every state but the goal."""
    formula = stormpy.parse_properties(question)[0]
    found = stormpy.model_checking(to_storm(model, target), formula)
    return np.array([found.get_value(s) for s in range(model.n_states)])


def same_end_components(model):
    from stormpy.analysis import get_maximal_end_components

    theirs = {frozenset(s for s, _ in part) for part in get_maximal_end_components(to_storm(model))}
    ours = {frozenset(component.states.tolist()) for component in end_components(model)}
    return ours | {frozenset([model.n_states])} == theirs  # the goal is a component of its own for Storm


def check_reachability(model, target):
    """u against Storm's largest probability of reaching the target, one move later; 0 and 1 exactly alike."""
    value = answers(model, 'Pmax=? [F "target"]', target)
    ahead = model.next_prob * np.append(value, 0.0)[model.next_state]
    expected = np.add.reduceat(ahead, model.next_start[:-1])
    u = reach_probability(model, np.isin(np.arange(model.n_states), target))
    np.testing.assert_allclose(u, expected, atol=2e-6)
    assert ((u == 0.0) == (expected == 0.0)).all()
    return u


def dearer(model):
    return model if (model.reward <= 0).all() else replace(model, reward=model.reward - SHIFT)


def check_values(model):
    value = -answers(model, 'R{"cost"}min=? [F "goal"]')
    np.testing.assert_allclose(solve(model).value, value, rtol=2e-6, atol=1e-9)


def test_end_components_of_random_problems(rng):
    assert all(same_end_components(model) for model in problems(rng, 60))


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_problems(name):
    """End components, the direction u of each, and the optimal values."""
    model = BUILT_IN[name]
    assert same_end_components(model)
    for component in end_components(model):
        assert (check_reachability(model, component.states)[component.pairs] == 1.0).all()
    check_reachability(model, [model.n_states - 1])
    check_values(dearer(model))


@pytest.mark.parametrize("name", GYMNASIUM)
def test_gymnasium_problems(name):
    model = load_model(name)
    assert same_end_components(model)
    check_reachability(model, [model.n_states - 1])
    if assumption_2(model).holds:
        check_values(model)


@pytest.mark.slow
def test_directions_of_random_problems(rng):
    """Reachability of every end component and of a random state; some of the probabilities lie between 0 and 1."""
    between = 0
    for model in problems(rng, 60):
        for target in [c.states for c in end_components(model)] + [[int(rng.integers(model.n_states))]]:
            u = check_reachability(model, target)
            between += bool(((u > 0) & (u < 1)).any())
    assert between > 20


@pytest.mark.slow
def test_who_reaches_the_goal_and_at_what_cost(rng):
    """Storm's expected cost is infinite exactly where no policy arrives for sure; elsewhere it is our optimal value."""
    solved, hopeless = 0, 0
    for model in problems(rng, 80, reward_kind="costs"):
        value = -answers(model, 'R{"cost"}min=? [F "goal"]')
        np.testing.assert_array_equal(np.isfinite(value), reach_goal(model)[0])
        if assumption_2(model).holds:
            np.testing.assert_allclose(solve(model).value, value, rtol=2e-6)
            solved += 1
        else:
            hopeless += 1
    assert solved > 20
    assert hopeless > 5
