"""The common currency of all engines: greedy policies with weights, and the answers that follow from them.

Whatever an engine does (enumerate cells, weigh points, walk), in the end it knows which policies are greedy and how
much posterior weight each has. Action, route and policy probabilities and both improper masses are sums of such
weights, so they are computed here, once for all engines. An engine hands over R independent replicates of the weights;
the spread between them gives every answer its standard error. An enumeration without Monte Carlo has R = 1, no error.

Only the *coupled* states of a target need a place in a policy. In every other state the action values keep their prior
and are independent of everything, so each of its k actions is best with probability exactly 1/k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.ssp import SSP


@dataclass(frozen=True, eq=False)
class PolicyTable:
    """Greedy policies and their weights.

    Attributes:
        coupled: the states the policies speak about, shape (states,).
        policy: the greedy pair of each coupled state, ascending by state, shape (rows, coupled states).
        weight: unnormalised weight of each row in each replicate, on one common scale, shape (replicates, rows).
    """

    coupled: Bool[np.ndarray, "states"]
    policy: Int[np.ndarray, "rows coupled_states"]
    weight: Float[np.ndarray, "replicates rows"]


@dataclass(frozen=True)
class Estimate:
    """A probability, or an array of them, with standard errors of the same shape."""

    value: Float[np.ndarray, "..."]
    se: Float[np.ndarray, "..."]


def ratio(part: Float[np.ndarray, "replicates *k"], whole: Float[np.ndarray, "replicates"]) -> Estimate:
    """Estimate E[part] / E[whole] from replicates, with the delta method's standard error."""
    replicates = len(whole)
    total = whole.sum()
    value = part.sum(axis=0) / total
    if replicates == 1:
        return Estimate(np.asarray(value), np.zeros_like(value))
    residual = part - value * whole.reshape((-1,) + (1,) * (part.ndim - 1))
    spread = np.sqrt((residual**2).sum(axis=0) * replicates / (replicates - 1))
    return Estimate(np.asarray(value), np.asarray(spread / total))


def action_probabilities(model: SSP, table: PolicyTable) -> Estimate:
    """For each pair, the probability that its action is optimal in its state."""
    share = 1.0 / np.diff(model.pair_start)[model.pair_state]
    whole = table.weight.sum(axis=1)
    part = whole[:, None] * np.where(table.coupled[model.pair_state], 0.0, share)
    for column in range(table.policy.shape[1]):
        for k, weight in enumerate(table.weight):
            part[k] += np.bincount(table.policy[:, column], weight, model.n_pairs)
    return ratio(part, whole)
