"""Answers that were once wrong and trusted, or given where they should have been refused, found by a reviewer."""

import numpy as np
import pytest
from wandering import part_of_a_loop

import bellmanifold as bm
from bellmanifold._util import jax_setup
from bellmanifold.agents.registry import make_agent
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.kernels import Uniform
from bellmanifold.problem.dataset import Dataset


def test_what_is_missed_is_said_by_posteriors_draws_and_agents():
    model, data = part_of_a_loop()
    summary = bm.posterior(model, data, prior_scale=1.0)
    assert not summary.trustworthy
    with pytest.raises(UnsupportedError, match="no draws: observed loops are rarely exited"):
        _ = summary.draws
    agent = make_agent("manifold", model, {"prior_scale": 1.0})
    agent.observe(data.pair, data.reward)
    agent.policy(np.random.default_rng(0))
    assert agent.diagnostics["proper_only"] == 1.0


@pytest.mark.slow
def test_large_rewards_elsewhere_do_not_widen_the_residuals_of_a_loop():
    """A state beside the loop pays -1; residuals relative to that would add up in the loop.

    The row is worth -3.35 if nobody leaves it: staying has probability 0.333 by enumeration of its two cells.
    """
    forward, leak = 0.006, 1e-6
    moves = {}
    for k in range(5):
        after = f"s{k + 1}" if k < 4 else "goal"
        step = leak if k == 4 else forward
        pays = -3.35 * leak if k == 4 else 0.0
        moves[(f"s{k}", "go")] = Move(pays, {after: step, "s0": 1.0 - step})
    moves[("s0", "exit")] = Move(0.0, {"goal": 1.0})
    moves[("far", "on")] = Move(-1.0, {"goal": 1.0})
    model = from_moves("row", moves, start="s0")
    seen = [name for name in model.pair_index if name[1] != "exit"]
    summary = bm.posterior(model, Dataset.from_pairs(model, seen), prior_scale=1.0)
    assert summary.trustworthy
    assert summary.action_probability.value[model.pair_index["s0", "go"]] == pytest.approx(0.333, abs=2e-3)


def test_rejection_refuses_an_unknown_width():
    model = bm.envs.two_state()
    data = Dataset.from_pairs(model, [("s1", "go")])
    with pytest.raises(UnsupportedError, match="known positive width"):
        bm.posterior(model, data, infer_noise=True, noise=Uniform(), engine="rejection")


@pytest.mark.parametrize("noise_sd", [1e-12, 1e-9])
def test_noise_that_rounding_swallows_splits_ties_evenly(noise_sd):
    model = from_moves("even", {("s", a): Move(-1e5, {"goal": 1.0}) for a in "ab"}, start="s")
    summary = bm.posterior(model, Dataset.complete(model), noise_sd=noise_sd, prior_scale=1e5)
    assert (np.abs(summary.action_probability.value - 0.5) <= 4.5 * summary.action_probability.se + 1e-3).all()


def test_programs_differ_by_what_they_are_compiled_for(monkeypatch):
    monkeypatch.setattr(jax_setup, "_compiled", set())
    for static in ("nuts", "hmc", "nuts"):
        jax_setup.bound_programs(np.zeros(2), static)
    assert len(jax_setup._compiled) == 2
