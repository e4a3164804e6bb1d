"""What visits make an agent believe, under the likelihood it was told to use; and what draws say about every pair.

Unknown pairs of a state are exchangeable, so draws only tell the largest of their values, and that one of them is the
best. Each of k such pairs then has an equal share of the probability. Given the largest value m of k, any one of them
is the largest with probability 1/k and otherwise a normal below it, so its mean is

    (m - (k - 1) sigma h) / k,    h = phi(m / sigma) / Phi(m / sigma).
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import log_ndtr

from bellmanifold.agents.memory import Memory
from bellmanifold.laws import Gaussian
from bellmanifold.posteriors.coordinates import Coordinates, Weighed
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
        return noisy_target(memory, likelihood.noise_sd, likelihood.prior_scale, Gaussian())
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


def mean_values(coordinates: Coordinates, weighed: Weighed) -> Float[np.ndarray, "pairs"]:
    """The weighted mean of each pair's value over a batch; 0, the prior's, if no point has weight or nothing is known.

    Args:
        coordinates: of the batch.
        weighed: the batch.
    """
    target = coordinates.target
    weight = np.exp(np.asarray(weighed.log_weight) - float(weighed.log_scale))
    if not weight.sum() > 0:
        return np.zeros(target.model.n_pairs)
    action, state = coordinates.chart.place
    mean = np.asarray(weighed.first)[action, state] / weight.sum()
    stands_for = np.bincount(coordinates.stand_in, minlength=target.model.n_pairs)
    shared = np.flatnonzero(coordinates.free & (stands_for > 1))
    k, sigma = stands_for[shared, None], target.prior_scale
    m = np.asarray(weighed.q)[action[shared], state[shared]] / sigma
    hazard = np.exp(-0.5 * m**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(m))
    with np.errstate(invalid="ignore"):
        member = np.where(weight > 0, sigma * (m - (k - 1) * hazard) / k, 0.0)
    mean[shared] = member @ weight / weight.sum()
    return np.where(target.coupled[target.model.pair_state], mean[coordinates.stand_in], 0.0)


def greedy_policies(
    coordinates: Coordinates, weighed: Weighed
) -> tuple[Int[np.ndarray, "states batch"], Float[np.ndarray, "batch"]]:
    """Greedy pairs (-1 for an unknown one) and expected value at the start of a batch."""
    chart, target = coordinates.chart, coordinates.target
    pair = np.empty(weighed.choice.shape, dtype=np.int64)
    pair[chart.order] = chart.slot[np.asarray(weighed.choice), np.arange(len(chart.order))[:, None]]
    best = np.asarray(weighed.q).max(axis=0)
    return known_only(target, pair), target.model.initial[chart.order] @ np.where(np.isfinite(best), best, 0.0)


def known_only(target: Target, policy: Int[np.ndarray, "states *batch"]) -> Int[np.ndarray, "states *batch"]:
    """The policy with -1 for pairs that were not observed."""
    return np.where(target.observed[policy], policy, -1)
