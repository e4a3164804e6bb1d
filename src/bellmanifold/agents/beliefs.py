"""What visits make an agent believe, under the likelihood it was told to use; and what draws say about every pair.

Unknown pairs of a state that share a prior are exchangeable, so draws only tell that one of them is the best. Each of k
such pairs then has an equal share of the probability.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.agents.memory import Memory
from bellmanifold.agents.settings import DrawSettings
from bellmanifold.posteriors.target import Target, noisy_target, relaxed_target
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.ssp import SSP


def target_of(memory: Memory, settings: DrawSettings) -> Target:
    """The posterior of what was visited: every repeat counts with noise, mean rewards are taken as exact without."""
    prior = ValuePrior.stated(memory.model, settings.prior_scale, settings.prior_mean)
    if settings.noise_sd is not None:
        return noisy_target(memory, settings.noise_sd, prior)
    return relaxed_target(memory, settings.epsilon, prior, reward=memory.mean_reward.copy())


def shares(
    model: SSP,
    observed: Bool[np.ndarray, "pairs"],
    policy: Int[np.ndarray, "states draws"],
    probability: Float[np.ndarray, "draws"],
) -> Float[np.ndarray, "pairs"]:
    """The probability that each pair is the best of its state, from greedy pairs of draws.

    These are -1 where any unknown pair is the best (and no other stands for them).
    """
    any_unknown = model.n_pairs + np.arange(model.n_states)[:, None]
    where = np.where(policy < 0, any_unknown, policy)
    weight = np.broadcast_to(probability, where.shape)
    found = np.bincount(where.ravel(), weight.ravel(), model.n_pairs + model.n_states)
    unknown = np.add.reduceat(~observed, model.pair_start[:-1])
    of_unknown = found[model.n_pairs :] / np.maximum(unknown, 1)
    return found[: model.n_pairs] + np.where(observed, 0.0, of_unknown[model.pair_state])


def known_only(target: Target, policy: Int[np.ndarray, "states *batch"]) -> Int[np.ndarray, "states *batch"]:
    """The policy with -1 for any of several unobserved pairs that share a prior; others keep their number."""
    alike = target.prior.exchangeable(target.model, ~target.observed)[target.model.pair_state]
    return np.where((target.observed | ~alike)[policy], policy, -1)
