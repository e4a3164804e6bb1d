"""The posterior target of an agent's visits, under the likelihood of its settings; and beliefs from posterior draws.

Unknown pairs of a state that share a prior are exchangeable, so a draw only says that one of them is the best, and the
probability of that is divided equally among them.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.agents.memory import Memory
from bellmanifold.agents.settings import DrawSettings
from bellmanifold.posteriors.target import Target, noisy_target, relaxed_target
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.problem.ssp import SSP


def target_of(memory: Memory, settings: DrawSettings) -> Target:
    """The posterior target of the visits: with noise every visit counts; without, mean rewards are taken as exact."""
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
    """The probability that each pair is the best of its state, from the greedy pairs of draws.

    An entry of -1 in `policy` means that one of the state's unknown pairs is the best, without saying which.
    """
    any_unknown = model.n_pairs + np.arange(model.n_states)[:, None]
    where = np.where(policy < 0, any_unknown, policy)
    weight = np.broadcast_to(probability, where.shape)
    found = np.bincount(where.ravel(), weight.ravel(), model.n_pairs + model.n_states)
    unknown = np.add.reduceat(~observed, model.pair_start[:-1])
    of_unknown = found[model.n_pairs :] / np.maximum(unknown, 1)
    return found[: model.n_pairs] + np.where(observed, 0.0, of_unknown[model.pair_state])


def known_only(target: Target, policy: Int[np.ndarray, "states *batch"]) -> Int[np.ndarray, "states *batch"]:
    """The policy with unobserved pairs that share a prior replaced by -1; all others keep their numbers."""
    alike = target.prior.exchangeable(target.model, ~target.observed)[target.model.pair_state]
    return np.where((target.observed | ~alike)[policy], policy, -1)
