"""The posterior to be computed, as arrays with one entry per pair: whether it was observed, its reward, its tolerance.

For an observed pair i, the Bellman equation is g_i(theta) = theta_i - sum p(s'|i) max_a theta(s', a) = r_i.
The posterior multiplies the prior, independent N(mean_i, sd_i^2), by a kernel for every observed pair,

    p((g_i(theta) - r_i) / scale_i) / scale_i,    p of `bellmanifold.posteriors.kernels`: Gaussian, uniform, ...

where scale_i is the tolerance epsilon (relaxed posterior), eta / sqrt(m_i) for the mean r_i of m_i rewards with
Gaussian noise of sd eta, eta for a single reward with other noise, or 0 for the exact posterior on the manifold g = r.
If eta has to be inferred, scale_i is relative to it.

`proper_only` excludes parameters that the data show to be improper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import get_args

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

from bellmanifold._util.options import KernelName
from bellmanifold.errors import BadInputError, UnsupportedError, quote
from bellmanifold.mdp.graph import EndComponent, end_components, has_cycle
from bellmanifold.posteriors.kernels import Gaussian, Kernel, Uniform
from bellmanifold.posteriors.laws import OpenLaws
from bellmanifold.posteriors.noise import NoiseModel
from bellmanifold.posteriors.noise_scale import LogPrior, ScaleTable, combine, log_own, log_scatter, scale_table
from bellmanifold.posteriors.value_prior import ValuePrior, checked_prior
from bellmanifold.problem.dataset import Dataset, Visits
from bellmanifold.problem.ssp import SSP

KERNELS: dict[str, Kernel] = {"gaussian": Gaussian(), "uniform": Uniform()}


@dataclass(frozen=True, eq=False)
class EveryVisit:
    """The likelihood of noisy rewards (equation 5) with a factor for every visit: the data and their noise model."""

    data: Dataset
    noise: NoiseModel


@dataclass(frozen=True, eq=False)
class Target:
    """A posterior over action values, ready to be computed.

    Attributes:
        model: the problem; the laws of unobserved pairs are used only to follow routes.
        observed: which pairs were observed, shape (pairs,).
        reward: r_i of observed pairs, 0 elsewhere, shape (pairs,).
        scale: width of each observed pair's kernel, 0 elsewhere, shape (pairs,).
        prior: prior of the action values.
        kernel: shape of the kernels.
        proper_only: exclude parameters that the data show to be improper.
        costs_only: exclude payments above 0 (`bellmanifold.posteriors.costs_only`).
        laws: posterior of open transition laws given landings; None if all laws of observed pairs are given.
        noise_scale: distribution of eta, if it has to be inferred.
        own_precision, own_mean: of rewards with an sd of their own, if eta is inferred, shape (pairs,).
        noise_sd: eta, if it is known; only for reports (engines use `scale`).
        log_constant: log of a further factor of the evidence (scatter of noisy repeats).
        epsilon: the requested tolerance, None for noisy rewards; only for reports (engines use `scale`).
        no_law: pairs whose next state is unknown, and is the goal in `model`; None if there are none, shape (pairs,).
        every_visit: the likelihood, if repeats have no sufficient mean; None if `reward` and `scale` are sufficient.
    """

    model: SSP
    observed: Bool[np.ndarray, "pairs"]
    reward: Float[np.ndarray, "pairs"]
    scale: Float[np.ndarray, "pairs"]
    prior: ValuePrior
    kernel: Kernel = KERNELS["gaussian"]
    proper_only: bool = False
    costs_only: bool = False
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
        """Whether this is the posterior on the manifold, where the observed Bellman equations hold exactly."""
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
        """Whether the kernel is Gaussian and of known width, as Proposition 1 assumes."""
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

        The values of all other states are independent of all else and keep their prior. Their actions are equally
        likely to be the best, unless their priors differ: such states count as coupled, too.
        """
        if self.laws is not None:
            return np.ones(self.model.n_states, dtype=bool)
        mask = self.successors | ~self.prior.exchangeable(self.model, np.ones_like(self.observed))
        mask[self.model.pair_state[self.observed]] = True
        return mask

    @cached_property
    def support(self) -> SSP:
        """The problem in which open laws lead only to states where landings were seen, or back if there were none.

        Some draws of the laws follow these landings almost always, so its loops are those that open laws may close.
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
        """Whether observed pairs form no cycle (False under open laws, which may lead anywhere)."""
        return self.laws is None and not has_cycle(self.model, self.observed)

    @cached_property
    def loops(self) -> list[EndComponent]:
        """The end components among the observed pairs."""
        return [] if self.is_acyclic else end_components(self.model, self.observed)

    @cached_property
    def improper_loops(self) -> list[EndComponent]:
        """Loops in which residuals may trap a policy: not those whose rewards are all exact, as their cost is fixed."""
        return [loop for loop in self.loops if (self.scale[loop.pairs] > 0).any()]

    def with_laws(self, laws: OpenLaws | None, no_law: Bool[np.ndarray, "pairs"] | None) -> Target:
        """The same target with open laws and their landings; laws that no value depends on add only their evidence."""
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
    prior. By default, `reward` is that of a `Dataset`, whose repeats must agree.
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
    """The posterior for rewards with additive noise, where every repeat counts.

    Rewards with an sd of their own are combined with the others by precision; exact rewards overrule both. `noise` is
    the scale of the noise, or the log density of a prior over it. Under a non-Gaussian kernel no pair may be seen more
    than once, as repeats then have no sufficient mean.
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
        reward, scale = combine(reward, scale, data.own_mean, data.own_precision, np)
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
