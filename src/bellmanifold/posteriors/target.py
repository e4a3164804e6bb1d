"""The posterior to be computed, as arrays with one entry a pair: which were seen, what they paid, how tightly.

For a pair i that was observed the Bellman equation says g_i(theta) = theta_i - sum p(s'|i) max_a theta(s', a) = r_i.
The posterior weighs the prior N(0, prior_scale^2 I) with a kernel for every observed pair,

    p((g_i(theta) - r_i) / scale_i) / scale_i,    p a law of `bellmanifold.laws`: Gaussian, uniform, ...

where scale_i is the tolerance epsilon (relaxed posterior), eta / sqrt(m_i) for m_i rewards with Gaussian noise of sd
eta whose mean is r_i, eta for one reward with noise of another law, or 0 for the exact posterior on the manifold g = r.
When eta has to be inferred, scale_i is relative to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.data import Dataset, Visits
from bellmanifold.errors import BadInputError, UnsupportedError, quote
from bellmanifold.graph import EndComponent, end_components
from bellmanifold.laws import Gaussian, Law, Uniform
from bellmanifold.posteriors.noise_scale import LogPrior, ScaleTable, log_scatter, scale_table
from bellmanifold.ssp import SSP

Kernel = Literal["gaussian", "uniform"]
KERNELS: dict[str, Law] = {"gaussian": Gaussian(), "uniform": Uniform()}
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
        law: shape of the kernel.
        noise_scale: the law of eta, if it has to be inferred.
        noise_sd: eta, if it is known; for reports, engines use `scale`.
        log_constant: what the evidence has to be multiplied by besides (scatter of noisy repeats), in logs.
        epsilon: the tolerance asked for, None for noisy rewards; for reports, engines use `scale`.
    """

    model: SSP
    observed: Bool[np.ndarray, "pairs"]
    reward: Float[np.ndarray, "pairs"]
    scale: Float[np.ndarray, "pairs"]
    prior_scale: float
    law: Law = KERNELS["gaussian"]
    noise_scale: ScaleTable | None = None
    log_constant: float = 0.0
    epsilon: float | None = None
    noise_sd: float | None = None

    @cached_property
    def is_exact(self) -> bool:
        """Is it the posterior on the manifold, where the observed Bellman equations hold exactly?"""
        return bool((self.scale[self.observed] == 0).all())

    @property
    def kernel(self) -> str:
        """The kernel in words."""
        return f"{self.law}" if self.noise_scale is None else f"{self.law} of inferred width"

    @property
    def is_gaussian(self) -> bool:
        """Is the kernel Gaussian and of known width, as Proposition 1 needs it?"""
        return isinstance(self.law, Gaussian) and self.noise_scale is None

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
    def loops(self) -> list[EndComponent]:
        """The end components among the observed pairs."""
        return end_components(self.model, self.observed)

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
    return relaxed_to(data, data.deterministic_reward(), epsilon, prior_scale, KERNELS[kernel])


def relaxed_to(
    data: Visits,
    reward: Float[np.ndarray, "pairs"],
    epsilon: float | int,
    prior_scale: float | int,
    law: Law = KERNELS["gaussian"],
) -> Target:
    """The posterior for observed pairs whose rewards are known: exact for epsilon = 0, else relaxed."""
    _require_sizes(reward, prior_scale, epsilon, "epsilon")
    return Target(
        model=data.model,
        observed=data.observed,
        reward=reward,
        scale=np.where(data.observed, float(epsilon), 0.0),
        prior_scale=float(prior_scale),
        law=law if epsilon > 0 else Gaussian(),
        epsilon=float(epsilon),
    )


def noisy_target(data: Visits, noise: float | int | LogPrior, prior_scale: float | int, law: Law) -> Target:
    """The posterior for rewards with additive noise, every repeat counted.

    Args:
        data: observations.
        noise: the scale of the noise, or the log density of a prior over it.
        prior_scale: sigma.
        law: the law of the noise; one that is not Gaussian needs every pair to be seen at most once.

    Raises:
        BadInputError: for a scale that is not positive or cannot be inferred.
        UnsupportedError: for repeats under a law that is not Gaussian, which have no sufficient mean.
    """
    if not isinstance(law, Gaussian) and data.count.max(initial=0) > 1:
        raise UnsupportedError(
            f"the chart takes {law} noise only where every pair was seen once: use --engine nuts, or gaussian noise"
        )
    if callable(noise):
        sd, table = 1.0, scale_table(data, noise)
    elif np.isfinite(noise) and noise > 0:
        sd, table = float(noise), None
    else:
        raise BadInputError(f"noise_sd is {noise}: give a positive number")
    _require_sizes(data.mean_reward, prior_scale, sd, "noise_sd")
    return Target(
        model=data.model,
        observed=data.observed,
        reward=data.mean_reward,
        scale=np.where(data.observed, sd / np.sqrt(np.maximum(data.count, 1)), 0.0),
        prior_scale=float(prior_scale),
        law=law,
        noise_scale=table,
        log_constant=table.log_mass if table else float(log_scatter(data, np.array([sd]))[0]),
        noise_sd=None if table else sd,
    )


def _require_sizes(reward: Float[np.ndarray, "pairs"], prior_scale: float | int, width: float | int, name: str) -> None:
    """Refuse numbers whose squares and products would leave the range of floating point."""
    if not (np.isfinite(prior_scale) and prior_scale > 0):
        raise BadInputError(f"prior_scale is {prior_scale}: give a positive number")
    sizes = [float(prior_scale), float(width or 1.0), float(np.abs(reward).max(initial=0.0) or 1.0)]
    if not LARGEST**-1 <= min(sizes) <= max(sizes) <= LARGEST:
        raise BadInputError(
            f"prior_scale, {name} and rewards must lie between {LARGEST**-1:g} and {LARGEST:g} in size (or be 0): "
            "choose other units"
        )
