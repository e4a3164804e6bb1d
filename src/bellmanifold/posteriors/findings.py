"""What every engine hands over: weighted greedy policies, moments of the action values, and the evidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from bellmanifold.posteriors.policies import Estimate, PolicyTable
from bellmanifold.posteriors.target import Target


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings:
    """What an engine found out about a posterior.

    Attributes:
        table: greedy policies with their weights.
        q_mean: posterior mean of each action value, shape (pairs,).
        q_sd: posterior standard deviation of each action value, shape (pairs,).
        log_evidence: log of the integral of prior times kernels; None where the engine does not know it.
        noise_scale: posterior mean and standard deviation of an inferred noise scale; None where it is known.
    """

    table: PolicyTable
    q_mean: Estimate
    q_sd: Float[np.ndarray, "pairs"]
    log_evidence: Estimate | None = None
    noise_scale: tuple[float, float] | None = None


def prior_elsewhere(
    target: Target, mean: Estimate, sd: Float[np.ndarray, "own"]
) -> tuple[Estimate, Float[np.ndarray, "pairs"]]:
    """Means and standard deviations of all pairs from those of coupled states' pairs; the others keep their prior."""
    own = target.own
    value, se = np.zeros(target.model.n_pairs), np.zeros(target.model.n_pairs)
    all_sd = np.full(target.model.n_pairs, target.prior_scale)
    value[own], se[own], all_sd[own] = mean.value, mean.se, sd
    return Estimate.of(value, se), all_sd


def from_moments(target: Target, first: Estimate, second: Estimate) -> tuple[Estimate, Float[np.ndarray, "pairs"]]:
    """Means and standard deviations from the first and second moments of all pairs, which matter where coupled."""
    own = target.own
    mean = Estimate.of(first.value[own], first.se[own])
    return prior_elsewhere(target, mean, np.sqrt(np.maximum(second.value[own] - mean.value**2, 0.0)))
