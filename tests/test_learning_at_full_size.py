"""What the agents are known for, at full size. Slow: run by `make test-slow`. Seeds are fixed; outcomes are facts."""

import numpy as np
import pytest

import bellmanifold as bm

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("agent", "options"), [("manifold", {}), ("bayes-br", {"epsilon": 0.01})])
def test_deep_sea_is_learnt_in_every_run(agent, options):
    """Depth 5, 20 runs: the optimal route in each of the last 20 of 100 episodes; regret near 13."""
    learning = bm.learn("env:deep-sea?depth=5", agent=agent, episodes=100, runs=20, **options)
    assert all(run.optimal[-20:].all() for run in learning.runs)
    assert learning.to_dict()["cumulative_regret_mean"][-1] < 16


@pytest.mark.parametrize(("size", "episodes"), [(10, 150), (20, 300), (30, 450)])
def test_bsuites_deep_sea_is_solved(size, episodes):
    learning = bm.learn(f"env:deep-sea?depth={size}&convention=bsuite", agent="manifold", episodes=episodes, runs=2)
    assert all(solved is not None for solved in learning.to_dict()["solved_episode"])


def test_swirl_traps_the_relaxed_posterior_but_not_the_exact_one():
    """Prior scale 10: `manifold` plays the optimum at the end of every run, `bayes-br` at epsilon 0.1 of none."""
    exact = bm.learn("env:swirl?depth=5", agent="manifold", episodes=100, runs=3)
    relaxed = bm.learn("env:swirl?depth=5", agent="bayes-br", epsilon=0.1, episodes=100, runs=3)
    assert all(run.optimal[-20:].all() for run in exact.runs)
    assert np.mean([run.optimal[-20:].mean() for run in relaxed.runs]) < 0.2


def test_cliff_walking_is_learnt():
    learning = bm.learn("gym:CliffWalking-v1", agent="manifold", episodes=300, runs=2)
    assert all(run.optimal[-20:].all() for run in learning.runs)
