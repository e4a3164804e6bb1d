"""The posterior to be computed, as arrays with one entry per pair: which were seen, what they paid, how tightly.

For a pair i that was observed the Bellman equation says g_i(theta) = theta_i - sum p(s'|i) max_a theta(s', a) = r_i.
The posterior weighs the prior, independent N(mean_i, sd_i^2), with a kernel for every observed pair,

    p((g_i(theta) - r_i) / scale_i) / scale_i,    p of `bellmanifold.kernels`: Gaussian, uniform, ...

where scale_i is the tolerance epsilon (relaxed posterior), eta / sqrt(m_i) for m_i rewards with Gaussian noise of sd
eta whose mean is r_i, eta for one reward with other noise, or 0 for the exact posterior on the manifold g = r.
When eta has to be inferred, scale_i is relative to it.

`proper_only` restricts the posterior to parameters that the data do not show to be improper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.data import Dataset, Visits
from bellmanifold.errors import BadInputError, UnsupportedError, quote
from bellmanifold.graph import EndComponent, end_components
from bellmanifold.kernels import Gaussian, Kernel, Uniform
from bellmanifold.posteriors.noise_scale import LogPrior, ScaleTable, log_scatter, scale_table
from bellmanifold.ssp import SSP

KernelName = Literal["gaussian", "uniform"]
KERNELS: dict[str, Kernel] = {"gaussian": Gaussian(), "uniform": Uniform()}
LARGEST = 1e100
"""Numbers are squared and multiplied on the way; beyond this size they would leave the range of floating point."""
SWALLOWED = 1e-13
"""A tolerance below this share of the largest reward is lost when it is added to it."""


@dataclass(frozen=True, eq=False)
class ValuePrior:
    """Independent normal priors of the action values.

    Attributes:
        mean: shape (pairs,).
        sd: positive, shape (pairs,).

    Raises:
        BadInputError: for a mean or an sd that is no such number.
    """

    mean: Float[np.ndarray, "pairs"]
    sd: Float[np.ndarray, "pairs"]

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mean) & np.isfinite(self.sd) & (self.sd > 0)).all():
            raise BadInputError(
                "prior: a mean or a standard deviation is not finite, or not positive: give one that is"
            )

    @classmethod
    def same(cls, model: SSP, scale: float | int, mean: float | int = 0.0) -> ValuePrior:
        """The same prior for every pair.

        Raises:
            BadInputError: for a scale that is not positive.
        """
        if not (np.isfinite(scale) and scale > 0):
            raise BadInputError(f"prior_scale is {scale}: give a positive number")
        return cls(np.full(model.n_pairs, float(mean)), np.full(model.n_pairs, float(scale)))

    @property
    def scale(self) -> float:
        """The largest standard deviation; for reports."""
        return float(self.sd.max(initial=0.0))

    def standardised(self, value: Float[np.ndarray, "*batch pairs"]) -> Float[np.ndarray, "*batch pairs"]:
        """Deviations from the mean, in standard deviations."""
        return (value - self.mean) / self.sd

    def draw(self, rng: np.random.Generator, count: int) -> Float[np.ndarray, "count pairs"]:
        """Draws from the prior."""
        return self.mean + self.sd * rng.standard_normal((count, len(self.sd)))

    def exchangeable(self, model: SSP, pairs: Bool[np.ndarray, "pairs"]) -> Bool[np.ndarray, "states"]:
        """In which states all of these pairs have the same prior."""
        first = np.minimum.reduceat(np.where(pairs, np.arange(model.n_pairs), model.n_pairs), model.pair_start[:-1])
        like = np.minimum(first, model.n_pairs - 1)[model.pair_state]
        differs = pairs & ((self.mean != self.mean[like]) | (self.sd != self.sd[like]))
        return ~np.logical_or.reduceat(differs, model.pair_start[:-1])


@dataclass(frozen=True, eq=False)
class Target:
    """A posterior over action values, ready to be computed.

    Attributes:
        model: the problem; transition laws of observed pairs are used, those of the others only to follow routes.
        observed: which pairs were seen, shape (pairs,).
        reward: r_i of observed pairs, 0 elsewhere, shape (pairs,).
        scale: width of each observed pair's kernel, 0 elsewhere, shape (pairs,).
        prior: of the action values.
        kernel: shape of the kernels.
        proper_only: leave out parameters that the data show to be improper.
        noise_scale: the distribution of eta, if it has to be inferred.
        noise_sd: eta, if it is known; for reports, engines use `scale`.
        log_constant: what the evidence has to be multiplied by besides (scatter of noisy repeats), in logs.
        epsilon: the tolerance asked for, None for noisy rewards; for reports, engines use `scale`.
    """

    model: SSP
    observed: Bool[np.ndarray, "pairs"]
    reward: Float[np.ndarray, "pairs"]
    scale: Float[np.ndarray, "pairs"]
    prior: ValuePrior
    kernel: Kernel = KERNELS["gaussian"]
    proper_only: bool = False
    noise_scale: ScaleTable | None = None
    log_constant: float = 0.0
    epsilon: float | None = None
    noise_sd: float | None = None

    @cached_property
    def is_exact(self) -> bool:
        """Is it the posterior on the manifold, where the observed Bellman equations hold exactly?"""
        return bool((self.scale[self.observed] == 0).all())

    @property
    def described_kernel(self) -> str:
        """The kernel in words."""
        return f"{self.kernel}" if self.noise_scale is None else f"{self.kernel} of inferred width"

    @property
    def is_gaussian(self) -> bool:
        """Is the kernel Gaussian and of known width, as Proposition 1 needs it?"""
        return isinstance(self.kernel, Gaussian) and self.noise_scale is None

    @cached_property
    def successors(self) -> Bool[np.ndarray, "states"]:
        """Non-goal states that some observed pair may lead to: S^D of Proposition 1, without the goal."""
        mask = np.zeros(self.model.n_states + 1, dtype=bool)
        mask[self.model.next_state[self.observed[self.model.next_pair]]] = True
        return mask[:-1]

    @cached_property
    def coupled(self) -> Bool[np.ndarray, "states"]:
        """States whose action values are computed: successors of observed pairs, and states with an observed pair.

        The values of all other states are independent of everything and keep their prior. Each of their actions is the
        best with equal probability, unless their priors differ: such states count as coupled, too.
        """
        mask = self.successors | ~self.prior.exchangeable(self.model, np.ones_like(self.observed))
        mask[self.model.pair_state[self.observed]] = True
        return mask

    @cached_property
    def loops(self) -> list[EndComponent]:
        """The end components among the observed pairs."""
        return end_components(self.model, self.observed)

    def without_lost_tolerance(self) -> Target:
        """The same, exact where rounding would swallow tolerance or noise: for engines that add these to rewards."""
        largest = float(np.abs(self.reward[self.observed]).max(initial=0.0))
        if self.noise_scale is not None or self.is_exact or self.scale.max() > SWALLOWED * largest:
            return self
        return replace(self, scale=np.zeros_like(self.scale), kernel=Gaussian())

    @cached_property
    def own(self) -> Int[np.ndarray, "own"]:
        """The pairs of coupled states."""
        return np.flatnonzero(self.coupled[self.model.pair_state])


def relaxed_target(
    data: Dataset,
    epsilon: float | int,
    prior_scale: float | int | ValuePrior,
    kernel: KernelName = "gaussian",
    proper_only: bool = False,
) -> Target:
    """The posterior for deterministic rewards: exact for epsilon = 0, else relaxed.

    Raises:
        BadInputError: for contradicting rewards, a negative epsilon or a prior scale that is not positive.
    """
    if kernel not in get_args(KernelName):
        raise BadInputError(f"kernel is {quote(kernel)}: choose from {', '.join(get_args(KernelName))}")
    if not (np.isfinite(epsilon) and epsilon >= 0):
        raise BadInputError(f"epsilon is {epsilon}: give a number that is not negative (0 is the exact posterior)")
    return relaxed_to(data, data.deterministic_reward(), epsilon, prior_scale, KERNELS[kernel], proper_only)


def relaxed_to(
    data: Visits,
    reward: Float[np.ndarray, "pairs"],
    epsilon: float | int,
    prior_scale: float | int | ValuePrior,
    kernel: Kernel = KERNELS["gaussian"],
    proper_only: bool = False,
) -> Target:
    """The posterior for observed pairs whose rewards are known: exact for epsilon = 0, else relaxed."""
    return Target(
        model=data.model,
        observed=data.observed,
        reward=reward,
        scale=np.where(data.observed, float(epsilon), 0.0),
        prior=_checked_prior(data.model, prior_scale, reward, epsilon, "epsilon"),
        kernel=kernel if epsilon > 0 else Gaussian(),
        proper_only=proper_only,
        epsilon=float(epsilon),
    )


def noisy_target(
    data: Visits,
    noise: float | int | LogPrior,
    prior_scale: float | int | ValuePrior,
    kernel: Kernel = KERNELS["gaussian"],
    proper_only: bool = False,
) -> Target:
    """The posterior for rewards with additive noise, every repeat counted.

    Args:
        data: observations.
        noise: the scale of the noise, or the log density of a prior over it.
        prior_scale: one standard deviation for all action values, or their prior.
        kernel: the shape of the noise; one that is not Gaussian needs every pair to be seen at most once.
        proper_only: leave out parameters that the data show to be improper.

    Raises:
        BadInputError: for a scale that is not positive or cannot be inferred.
        UnsupportedError: for repeats of noise that is not Gaussian, which have no sufficient mean.
    """
    if not isinstance(kernel, Gaussian) and data.count.max(initial=0) > 1:
        raise UnsupportedError(
            f"the chart takes {kernel} noise only where every pair was seen once: use --engine nuts, or gaussian noise"
        )
    if callable(noise):
        sd, table = 1.0, scale_table(data, noise)
    elif np.isfinite(noise) and noise > 0:
        sd, table = float(noise), None
    else:
        raise BadInputError(f"noise_sd is {noise}: give a positive number")
    return Target(
        model=data.model,
        observed=data.observed,
        reward=data.mean_reward,
        scale=np.where(data.observed, sd / np.sqrt(np.maximum(data.count, 1)), 0.0),
        prior=_checked_prior(data.model, prior_scale, data.mean_reward, sd, "noise_sd"),
        kernel=kernel,
        proper_only=proper_only,
        noise_scale=table,
        log_constant=table.log_mass if table else float(log_scatter(data, np.array([sd]))[0]),
        noise_sd=None if table else sd,
    )


def _checked_prior(
    model: SSP,
    prior_scale: float | int | ValuePrior,
    reward: Float[np.ndarray, "pairs"],
    width: float | int,
    name: str,
) -> ValuePrior:
    """The prior, refusing numbers whose squares and products would leave the range of floating point."""
    prior = prior_scale if isinstance(prior_scale, ValuePrior) else ValuePrior.same(model, prior_scale)
    largest = [float(np.abs(numbers).max(initial=0.0) or 1.0) for numbers in (prior.mean, reward)]
    sizes = [*np.unique(prior.sd), float(width or 1.0), *largest]
    if not LARGEST**-1 <= min(sizes) <= max(sizes) <= LARGEST:
        raise BadInputError(
            f"prior_scale, {name} and rewards must lie between {LARGEST**-1:g} and {LARGEST:g} in size (or be 0): "
            "choose other units"
        )
    return prior
