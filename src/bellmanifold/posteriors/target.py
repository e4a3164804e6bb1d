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
from typing import get_args

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

from bellmanifold.data import Dataset, Visits
from bellmanifold.errors import BadInputError, UnsupportedError, quote
from bellmanifold.graph import EndComponent, end_components, has_cycle
from bellmanifold.kernels import Gaussian, Kernel, Uniform
from bellmanifold.noise import NoiseModel
from bellmanifold.options import KernelName
from bellmanifold.posteriors.laws import OpenLaws
from bellmanifold.posteriors.noise_scale import LogPrior, ScaleTable, combined, log_own, log_scatter, scale_table
from bellmanifold.posteriors.value_prior import ValuePrior, checked_prior
from bellmanifold.ssp import SSP

KERNELS: dict[str, Kernel] = {"gaussian": Gaussian(), "uniform": Uniform()}


@dataclass(frozen=True, eq=False)
class EveryVisit:
    """The likelihood of noisy rewards (equation 5), every visit counted: the data and what their noise is like."""

    data: Dataset
    noise: NoiseModel


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
        laws: what landings say about open transition laws; None if all laws of observed pairs are given.
        noise_scale: the distribution of eta, if it has to be inferred.
        own_precision, own_mean: where eta is inferred, what rewards with an sd of their own say, shape (pairs,).
        noise_sd: eta, if it is known; for reports, engines use `scale`.
        log_constant: what the evidence has to be multiplied by besides (scatter of noisy repeats), in logs.
        epsilon: the tolerance asked for, None for noisy rewards; for reports, engines use `scale`.
        no_law: pairs whose next state is unknown; in `model` it is the goal; None for none, shape (pairs,).
        every_visit: the likelihood, where repeats have no sufficient mean; None where `reward` and `scale` say it all.
    """

    model: SSP
    observed: Bool[np.ndarray, "pairs"]
    reward: Float[np.ndarray, "pairs"]
    scale: Float[np.ndarray, "pairs"]
    prior: ValuePrior
    kernel: Kernel = KERNELS["gaussian"]
    proper_only: bool = False
    laws: OpenLaws | None = None
    noise_scale: ScaleTable | None = None
    own_precision: Float[np.ndarray, "pairs"] | None = None
    own_mean: Float[np.ndarray, "pairs"] | None = None
    log_constant: float = 0.0
    epsilon: float | None = None
    noise_sd: float | None = None
    no_law: Bool[np.ndarray, "pairs"] | None = None
    every_visit: EveryVisit | None = None

    @cached_property
    def is_exact(self) -> bool:
        """Is it the posterior on the manifold, where the observed Bellman equations hold exactly?"""
        return bool((self.scale[self.observed] == 0).all())

    @cached_property
    def exact(self) -> Bool[np.ndarray, "pairs"]:
        """Observed pairs with an exact reward."""
        return self.observed & (self.scale == 0)

    @cached_property
    def open(self) -> Bool[np.ndarray, "pairs"]:
        """Observed pairs whose law is open."""
        mask = np.zeros_like(self.observed)
        if self.laws is not None:
            mask[self.laws.pairs] = True
        return mask & self.observed

    @cached_property
    def may_tie(self) -> Bool[np.ndarray, "pairs"]:
        """Observed pairs with an exact reward and a given law: their values may tie exactly."""
        return self.exact if self.laws is None else self.exact & ~self.open

    @property
    def noise_law(self) -> str:
        """The noise of rewards in words."""
        return str(self.kernel)

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
        if self.laws is not None:
            return np.ones(self.model.n_states, dtype=bool)
        mask = self.successors | ~self.prior.exchangeable(self.model, np.ones_like(self.observed))
        mask[self.model.pair_state[self.observed]] = True
        return mask

    @cached_property
    def support(self) -> SSP:
        """The problem in which open laws lead only where they were seen to lead, or back if no landing was seen.

        What a law does often in some draws, it does always here: these are the loops that open laws may close.
        """
        if self.laws is None:
            return self.model
        landed = self.laws.landed
        lost = np.flatnonzero(np.diff(landed.indptr) == 0)
        back = (np.ones(len(lost)), (lost, self.model.pair_state[self.laws.pairs[lost]]))
        rows = csr_array(landed + csr_array(back, shape=landed.shape))
        rows.sort_indices()
        prob = rows.data / np.repeat(rows.sum(axis=1), np.diff(rows.indptr))
        return self.model.with_rows(self.laws.pairs, rows.indptr, rows.indices, prob)

    @cached_property
    def is_acyclic(self) -> bool:
        """Is no state met again by observed pairs? Open laws may lead anywhere."""
        return self.laws is None and not has_cycle(self.model, self.observed)

    @cached_property
    def loops(self) -> list[EndComponent]:
        """The end components among the observed pairs."""
        return [] if self.is_acyclic else end_components(self.model, self.observed)

    @cached_property
    def improper_loops(self) -> list[EndComponent]:
        """Those of them that residuals may hold a policy in; where all rewards are exact a loop costs what it costs."""
        return [loop for loop in self.loops if (self.scale[loop.pairs] > 0).any()]

    def with_laws(self, laws: OpenLaws | None, no_law: Bool[np.ndarray, "pairs"] | None) -> Target:
        """The same with what landings say about open laws; laws that no value depends on add only their evidence."""
        evidence = laws.log_evidence if laws else 0.0
        solved = laws if laws is not None and len(laws.pairs) else None
        return replace(self, laws=solved, no_law=no_law, log_constant=self.log_constant + evidence)

    @cached_property
    def own(self) -> Int[np.ndarray, "own"]:
        """The pairs of coupled states."""
        return np.flatnonzero(self.coupled[self.model.pair_state])


def relaxed_target(
    data: Dataset | Visits,
    epsilon: float | int,
    prior_scale: float | int | ValuePrior,
    kernel: KernelName = "gaussian",
    proper_only: bool = False,
    reward: Float[np.ndarray, "pairs"] | None = None,
) -> Target:
    """The posterior for deterministic rewards: exact for epsilon = 0, else relaxed.

    Rewards with an sd of their own keep it. `prior_scale` is one standard deviation for all action values, or their
    prior. Rewards of pairs are by default those of a `Dataset`, whose repeats must agree.
    """
    if kernel not in get_args(KernelName):
        raise BadInputError(f"kernel is {quote(kernel)}: choose from {', '.join(get_args(KernelName))}")
    if not (np.isfinite(epsilon) and epsilon >= 0):
        raise BadInputError(f"epsilon is {epsilon}: give a number that is not negative (0 is the exact posterior)")
    if reward is None:
        assert isinstance(data, Dataset), "rewards of an agent's memory are given"
        reward = data.deterministic_reward()
    scale, log_constant = np.where(data.observed, float(epsilon), 0.0), 0.0
    if data.own_count.any():
        only_own = data.observed & (data.count == 0) & ~data.exact
        if only_own.any() and kernel != "gaussian":
            raise UnsupportedError("rewards with an sd of their own are Gaussian: leave --kernel out")
        reward = np.where(only_own, data.own_mean, reward)
        scale = np.where(only_own, 1.0 / np.sqrt(np.where(only_own, data.own_precision, 1.0)), scale)
        log_constant = log_own(data, ~only_own, reward)
    return Target(
        model=data.model,
        observed=data.observed,
        reward=reward,
        scale=scale,
        prior=checked_prior(data.model, prior_scale, reward, epsilon, "epsilon"),
        kernel=KERNELS[kernel] if epsilon > 0 else Gaussian(),
        proper_only=proper_only,
        log_constant=log_constant,
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

    Rewards with an sd of their own are weighed with the others by precision; exact ones overrule. `noise` is the scale
    of the noise, or the log density of a prior over it; a kernel that is not Gaussian needs every pair to be seen at
    most once, as repeats have no sufficient mean then.
    """
    if not isinstance(kernel, Gaussian) and data.count.max(initial=0) > 1:
        raise UnsupportedError(
            f"the chart takes {kernel} noise only where every pair was seen once: use --engine nuts, or gaussian noise"
        )
    has_own = bool((data.own_precision > 0).any())
    if not isinstance(kernel, Gaussian) and (has_own or data.exact.any()):
        raise UnsupportedError(f"rewards with an sd of their own are Gaussian, and {kernel} noise is not: leave it out")
    if callable(noise):
        sd, table = 1.0, scale_table(data, noise)
    elif np.isfinite(noise) and noise > 0:
        sd, table = float(noise), None
    else:
        raise BadInputError(f"noise_sd is {noise}: give a positive number")
    reward = np.where(data.exact, data.exact_reward, data.mean_reward)
    with np.errstate(divide="ignore"):
        scale = np.where(data.observed & ~data.exact, sd / np.sqrt(data.count), 0.0)
    if has_own and table is None:
        reward, scale = combined(reward, scale, data.own_mean, data.own_precision, np)
    return Target(
        model=data.model,
        observed=data.observed,
        reward=reward,
        scale=scale,
        prior=checked_prior(data.model, prior_scale, reward, sd, "noise_sd"),
        kernel=kernel,
        proper_only=proper_only,
        noise_scale=table,
        own_precision=data.own_precision if has_own and table else None,
        own_mean=data.own_mean if has_own and table else None,
        log_constant=table.log_mass if table else float(log_scatter(data, np.array([sd]))[0]),
        noise_sd=None if table else sd,
    )
