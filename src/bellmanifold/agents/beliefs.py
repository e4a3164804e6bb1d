"""What visits make an agent believe, under the likelihood it was told to use; and what draws say about every pair.

Unknown pairs of a state are exchangeable, so draws only tell that one of them is the best. Each of k such pairs then
has an equal share of the probability.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.agents.memory import Memory
from bellmanifold.posteriors.target import Target, noisy_target, relaxed_to
from bellmanifold.ssp import SSP


@runtime_checkable
class Likelihood(Protocol):
    """The settings that agents with a posterior over action values share."""

    @property
    def prior_scale(self) -> float:
        """Standard deviation of the prior of every action value."""

    @property
    def epsilon(self) -> float:
        """Tolerance; 0 is the exact posterior."""

    @property
    def noise_sd(self) -> float | None:
        """Known standard deviation of the rewards' noise; if given, it replaces the tolerance."""


def believed(memory: Memory, likelihood: Likelihood) -> Target:
    """The posterior of what was visited: every repeat counts with noise, mean rewards are taken as exact without."""
    if likelihood.noise_sd is not None:
        return noisy_target(memory, likelihood.noise_sd, likelihood.prior_scale)
    return relaxed_to(memory, memory.mean_reward.copy(), likelihood.epsilon, likelihood.prior_scale)


def shares(
    model: SSP,
    observed: Bool[np.ndarray, "pairs"],
    policy: Int[np.ndarray, "states draws"],
    probability: Float[np.ndarray, "draws"],
) -> Float[np.ndarray, "pairs"]:
    """The probability that each pair is the best of its state.

    Args:
        model: the problem.
        observed: known pairs.
        policy: greedy pairs of draws, -1 where any unknown pair is the best.
        probability: of each draw.
    """
    any_unknown = model.n_pairs + np.arange(model.n_states)[:, None]
    where = np.where(policy < 0, any_unknown, policy)
    weight = np.broadcast_to(probability, where.shape)
    found = np.bincount(where.ravel(), weight.ravel(), model.n_pairs + model.n_states)
    unknown = np.add.reduceat(~observed, model.pair_start[:-1])
    of_unknown = found[model.n_pairs :] / np.maximum(unknown, 1)
    return np.where(observed, found[: model.n_pairs], of_unknown[model.pair_state])


def known_only(target: Target, policy: Int[np.ndarray, "states *batch"]) -> Int[np.ndarray, "states *batch"]:
    """The policy with -1 for pairs that were not observed."""
    return np.where(target.observed[policy], policy, -1)
