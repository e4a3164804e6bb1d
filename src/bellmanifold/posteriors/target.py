"""The posterior to be computed, as arrays with one entry a pair: which were seen, what they paid, how tightly.

For a pair i that was observed the Bellman equation says g_i(theta) = theta_i - sum p(s'|i) max_a theta(s', a) = r_i.
The posterior weighs the prior N(0, prior_scale^2 I) with a kernel for every observed pair,

    gaussian: N(r_i; g_i(theta), scale_i^2)        uniform: 1(|g_i(theta) - r_i| < scale_i) / (2 scale_i),

where scale_i is the tolerance epsilon (relaxed posterior), eta / sqrt(m_i) for m_i noisy rewards of sd eta whose mean
is r_i, or 0 for the exact posterior on the manifold g = r.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.data import Dataset
from bellmanifold.errors import BadInputError, quote
from bellmanifold.ssp import SSP

Kernel = Literal["gaussian", "uniform"]
LARGEST = 1e100
"""Numbers are squared and multiplied on the way; beyond this size they would leave the range of floating point."""
TIE_WIDTH = 1e-8
"""Width of the residuals that split ties at epsilon = 0, relative to the rewards."""


@dataclass(frozen=True, eq=False)
class Target:
    """A posterior over action values, ready to be computed.

    Attributes:
        model: the problem; transition laws of observed pairs are used, those of the others only to follow routes.
        observed: which pairs were seen, shape (pairs,).
        reward: r_i of observed pairs, 0 elsewhere, shape (pairs,).
        scale: width of each observed pair's kernel, 0 elsewhere, shape (pairs,).
        prior_scale: sigma.
        kernel: shape of the kernel.
        log_constant: what the evidence has to be multiplied by besides (scatter of noisy repeats), in logs.
        epsilon: the tolerance asked for, for reports; engines use `scale`.
    """

    model: SSP
    observed: Bool[np.ndarray, "pairs"]
    reward: Float[np.ndarray, "pairs"]
    scale: Float[np.ndarray, "pairs"]
    prior_scale: float
    kernel: Kernel = "gaussian"
    log_constant: float = 0.0
    epsilon: float = 0.0

    @property
    def is_exact(self) -> bool:
        """Is it the posterior on the manifold, where the observed Bellman equations hold exactly?"""
        return bool((self.scale[self.observed] == 0).all())

    @cached_property
    def successors(self) -> Bool[np.ndarray, "states"]:
        """Non-goal states that some observed pair may lead to: S^D of Proposition 1, without the goal."""
        mask = np.zeros(self.model.n_states + 1, dtype=bool)
        mask[self.model.next_state[self.observed[self.model.next_pair]]] = True
        return mask[:-1]

    @cached_property
    def coupled(self) -> Bool[np.ndarray, "states"]:
        """States whose action values the data touch: successors of observed pairs, and states with an observed pair.

        The values of all other states are independent of everything and keep their prior.
        """
        mask = self.successors.copy()
        mask[self.model.pair_state[self.observed]] = True
        return mask

    @cached_property
    def own(self) -> Int[np.ndarray, "own"]:
        """The pairs of coupled states."""
        return np.flatnonzero(self.coupled[self.model.pair_state])


def tie_width(target: Target) -> float:
    """Width of the infinitesimal residuals that split exact ties of an exact posterior; 0 for a relaxed one."""
    if not target.is_exact:
        return 0.0
    return TIE_WIDTH * float(np.abs(target.reward[target.observed]).max(initial=0.0) or 1.0)


def relaxed_target(
    data: Dataset, epsilon: float | int, prior_scale: float | int, kernel: Kernel = "gaussian"
) -> Target:
    """The posterior for deterministic rewards: exact for epsilon = 0, else relaxed.

    Raises:
        BadInputError: for contradicting rewards, a negative epsilon or a prior scale that is not positive.
    """
    if kernel not in get_args(Kernel):
        raise BadInputError(f"kernel is {quote(kernel)}: choose from {', '.join(get_args(Kernel))}")
    if not (np.isfinite(epsilon) and epsilon >= 0):
        raise BadInputError(f"epsilon is {epsilon}: give a number that is not negative (0 is the exact posterior)")
    if not (np.isfinite(prior_scale) and prior_scale > 0):
        raise BadInputError(f"prior_scale is {prior_scale}: give a positive number")
    observed = data.observed
    reward = data.deterministic_reward()
    sizes = [float(prior_scale), float(epsilon or 1.0), float(np.abs(reward).max(initial=0.0) or 1.0)]
    if not LARGEST**-1 <= min(sizes) <= max(sizes) <= LARGEST:
        raise BadInputError(
            f"prior_scale, epsilon and rewards must lie between {LARGEST**-1:g} and {LARGEST:g} in size (or be 0): "
            "choose other units"
        )
    return Target(
        model=data.model,
        observed=observed,
        reward=reward,
        scale=np.where(observed, epsilon, 0.0),
        prior_scale=float(prior_scale),
        kernel=kernel,
        epsilon=float(epsilon),
    )
