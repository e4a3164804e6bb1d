"""Gradient-based chains: the `hmc` and `nuts` engines for tables, and draws for any Q_theta."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bellmanifold._util.jax_setup import random_key
from bellmanifold._util.progress import expect, show_progress
from bellmanifold.errors import BadInputError, UnsupportedError, quote, require_count, require_kind
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.convergence import convergence_of, doubt, have_mixed
from bellmanifold.posteriors.draws import as_dataset, by_chain
from bellmanifold.posteriors.estimated import resolution_of
from bellmanifold.posteriors.kernels import Kernel, Uniform, log_normal
from bellmanifold.posteriors.noise import NORMAL, KnownScale, NoiseModel
from bellmanifold.posteriors.noise_scale import ScaleTable
from bellmanifold.posteriors.policies import PolicyTable
from bellmanifold.posteriors.result import Moments, Result
from bellmanifold.posteriors.summary import Summary
from bellmanifold.posteriors.target import Target, relaxed_target
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.problem.dataset import Dataset, require_same_problem
from bellmanifold.problem.ssp import SSP
from bellmanifold_paper.bellman import transitions
from bellmanifold_paper.engines import hmc
from bellmanifold_paper.engines.chains import WARM_UP, Chains, Sampler
from bellmanifold_paper.log_posterior import (
    Density,
    Observations,
    check_density,
    kernel_observations,
    noisy_observations,
)
from bellmanifold_paper.parametrisation import Parametrisation, check_parametrisation, tabular
from bellmanifold_paper.priors import NormalPrior, Prior

if TYPE_CHECKING:
    import xarray

WIDE = NormalPrior(10.0)
ROUND = 1000
"""Points per chain between two checks of the standard errors."""
MOST_CHAINS = 64
FEWEST_CHAINS = 4
PRIOR_DRAWS = 256
"""Number of draws that estimate the prior of action values from that of theta."""
MOST_ROUNDS = {"hmc": 4, "nuts": 1}


@dataclass(frozen=True)
class Relaxed:
    """The relaxed likelihood of deterministic rewards (equation 9): each observed pair once, with width epsilon."""

    epsilon: float
    kernel: Kernel = NORMAL


def by_gradient(target: Target, sampler: Sampler, budget: Budget, reason: str = "asked for") -> Result:
    """The posterior of a table by HMC or NUTS on the action values; refuses exact posteriors and uniform kernels."""
    model, samples = target.model, budget.samples
    every = target.every_visit
    observations, noise = (noisy_observations(every.data), every.noise) if every else _kernel(target, sampler)
    density = Density(tabular(model), NormalPrior.of(target.prior.mean, target.prior.sd), noise)
    chains = min(MOST_CHAINS, budget.kept // (ROUND * density.dimension))
    if chains < FEWEST_CHAINS:
        raise UnsupportedError(f"{density.dimension} action values are too many for {sampler}: use --engine chart")
    if samples is not None and _each(samples, chains) * chains * density.dimension > budget.kept:
        raise BadInputError(f"samples is {samples}: too many points of {density.dimension} numbers to fit in memory")
    step_size = _first_step(observations, noise, target.prior.scale)
    walkers = Chains(sampler, density, transitions(model), observations, chains, budget.seed, step_size)
    return _walk(target, walkers, budget, f"{reason}: {chains} chains on the action values")


def _walk(target: Target, chains: Chains, budget: Budget, reason: str) -> Result:
    """Run chains until the standard errors are small enough, or for the number of samples asked for."""
    if budget.samples is not None:
        chains.walk(_each(budget.samples, chains.chains))
        return _result(target, chains, reason)
    each = ROUND * chains.chains
    most = min(MOST_ROUNDS[chains.sampler], budget.kept // (each * chains.density.dimension))
    while True:
        chains.walk(ROUND)
        error = _largest_error(target, chains.points)
        if error <= budget.accuracy:
            return _result(target, chains, reason)
        points = each * len(chains.rounds)
        expect("points", budget.points_needed(points, error, each * most), points)
        if len(chains.rounds) >= most:
            stopped = f"stopped after {points} points, largest standard error {error:.1g}"
            return replace(_result(target, chains, reason), stopped=stopped)


def _each(samples: int, chains: int) -> int:
    """Points per chain, such that all chains together have at least as many as asked for."""
    return max(FEWEST_CHAINS, -(-samples // chains))


def _largest_error(target: Target, points: Float[np.ndarray, "chains draws dimension"]) -> float:
    """The largest standard error of the action probabilities of coupled states."""
    own = target.coupled[target.model.pair_state]
    share = target.model.is_best(points[:, :, : target.model.n_pairs])[:, :, own].mean(axis=1)
    return float(share.std(axis=0, ddof=1).max() / np.sqrt(len(share)))


def _kernel(target: Target, sampler: Sampler) -> tuple[Observations, NoiseModel]:
    if target.own_precision is not None:
        raise UnsupportedError(
            f"{sampler} cannot infer the noise if some rewards have their own sd: use --engine chart, or --noise-sd"
        )
    if not target.is_exact and (target.scale[target.observed] == 0).any():
        raise UnsupportedError(f"{sampler} cannot mix exact and noisy rewards: use --engine chart")
    if target.is_exact:
        raise UnsupportedError(
            f"epsilon is 0: the exact posterior lies on a manifold, where {sampler} cannot walk: use --engine chart, "
            "or --epsilon above 0"
        )
    if isinstance(target.kernel, Uniform):
        raise UnsupportedError(f"a uniform kernel has no gradient, which {sampler} needs: use --engine chart")
    table = target.noise_scale
    noise = KnownScale(1.0, target.kernel) if table is None else TabulatedScale(table, target.kernel)
    return kernel_observations(target), noise


@dataclass(frozen=True)
class TabulatedScale:
    """An inferred scale in the chart's coordinate: psi is standard normal a priori, and the table maps it to eta.

    The table's distribution is prior times scatter (`bellmanifold.posteriors.noise_scale`), so kernels around mean
    rewards, with widths relative to eta, complete the posterior.
    """

    table: ScaleTable
    kernel: Kernel

    @property
    def dimension(self) -> int:
        return 1

    def log_prior(self, psi: Float[Array, "dimension"]) -> Float[Array, ""]:
        return log_normal(psi[0])

    def scale(self, psi: Float[Array, "dimension"]) -> Float[Array, ""]:
        return jnp.exp(jnp.interp(psi[0], jnp.asarray(self.table.normal), jnp.asarray(self.table.log_scale)))

    def log_density(self, pair: Int[Array, "*shape"], w: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return self.kernel.log_density(w)


def _first_step(observations: Observations, noise: NoiseModel, prior_scale: float) -> float:
    """The paper's initial step size for the median width of the likelihood; an inferred scale is taken at psi = 0."""
    seen = np.asarray(observations.seen.any(axis=1))
    width = np.asarray(observations.width * noise.scale(jnp.zeros(noise.dimension)))
    return hmc.first_step_size(float(np.median(width[seen])) if seen.any() else prior_scale, prior_scale)


def _result(target: Target, chains: Chains, reason: str) -> Result:
    model, density, points = target.model, chains.density, chains.points
    family, noise = density.parametrisation, density.noise
    theta, psi = points[:, :, : family.dimension], points[:, :, family.dimension :]
    is_table = family == tabular(model)
    q = theta if is_table else np.asarray(jax.jit(jax.vmap(jax.vmap(family.values)))(theta))
    coupled = target.coupled[model.pair_state] if is_table else np.ones(family.dimension, dtype=bool)
    r_hat, effective = convergence_of(points[:, :, np.append(coupled, np.ones(noise.dimension, dtype=bool))]).worst
    q_mean, q_sd = Moments.of_draws(q).estimate(target)
    scales = np.asarray(jax.vmap(noise.scale)(jnp.asarray(np.concatenate(psi))))
    eta = scales[None] if noise.dimension and scales.ndim == 1 else np.zeros((0, len(scales)))

    def draws() -> xarray.Dataset:
        drawn = by_chain(as_dataset(model, np.concatenate(q), None, eta), len(q), effective)
        dimensions = ("chain", "draw")
        drawn = drawn if is_table else drawn.assign(theta=((*dimensions, "parameter"), theta))
        return (
            drawn.assign(psi=((*dimensions, "noise_parameter"), psi))
            if isinstance(target, FamilyTarget) and psi.shape[2]
            else drawn
        )

    return Result(
        table=policy_table(target, q, resolution_of(effective)),
        q_mean=q_mean,
        q_sd=q_sd,
        noise_scale=(float(eta.mean()), float(eta.std())) if len(eta) else None,
        engine=chains.sampler,
        reason=reason,
        dimension=density.dimension,
        effective_sample_size=effective,
        doubts=() if have_mixed(r_hat, effective) else (doubt(r_hat, effective),),
        diagnostics={
            "chains": chains.chains,
            "steps": points.shape[1],
            "r_hat": r_hat,
            "acceptance": float(chains.acceptance.mean()),
            "divergent_share": float(chains.is_divergent.mean()),
        },
        draws=draws,
    )


def policy_table(target: Target, q: Float[np.ndarray, "chains draws pairs"], resolution: float = 0.0) -> PolicyTable:
    """The greedy policies of draws; replicates are chains."""
    greedy = target.model.greedy(q)[:, :, target.coupled]
    rows, row = np.unique(np.concatenate(greedy), axis=0, return_inverse=True)
    return PolicyTable.of_chains(target.coupled, rows, row.reshape(q.shape[:2]), resolution=resolution)


def sample_chains(
    model: SSP,
    data: Dataset,
    likelihood: Relaxed | NoiseModel,
    parametrisation: Parametrisation | None = None,
    prior: Prior = WIDE,
    sampler: Sampler = "nuts",
    chains: int = 8,
    draws: int = 1000,
    seed: int = 0,
    progress: bool | None = None,
) -> Summary:
    """Draw from the posterior of any Q_theta with Markov chains.

    Args:
        model: the problem.
        data: observations of it.
        likelihood: `Relaxed(epsilon)` for deterministic rewards, or a noise model, which counts every repeat.
        parametrisation: Q_theta; a table if left out.
        prior: prior of theta.
        sampler: "nuts", or "hmc" as the paper tunes it.
        chains: number of chains.
        draws: number of draws per chain.
        seed: random seed; determines every result.
        progress: show progress once it takes more than two seconds; by default on terminals and in notebooks.

    Returns:
        The same as `bellmanifold.posterior`: probabilities of actions and routes, means of action values, and, if the
        result is not trustworthy, the reasons in `reason` and `warnings`. Its `draws` hold `q`, `theta` (unless that is
        the table) and `psi` (if the noise has parameters), by chain and draw. The prior of action values that it
        reports is given by the moments of Q_theta under the prior of theta.

    Raises:
        BadInputError: for wrong arguments, or a Q_theta of the wrong shape or without finite values.
        UnsupportedError: for a likelihood without gradient.
    """
    if sampler not in get_args(Sampler):
        raise BadInputError(f"sampler is {quote(sampler)}: choose from {', '.join(get_args(Sampler))}")
    require_count(chains=chains, draws=draws, seed=seed)
    for name, number in (("chains", chains), ("draws", draws)):
        if number < FEWEST_CHAINS:
            raise BadInputError(f"{name} is {number}: give at least {FEWEST_CHAINS}")
    if seed < 0:
        raise BadInputError(f"seed is {seed}: give a number that is not negative")
    require_same_problem(model, data)
    _check_parts(likelihood, parametrisation, prior)
    family = tabular(model) if parametrisation is None else check_parametrisation(parametrisation, model)
    observations, noise = _observations(data, likelihood, sampler)
    density, law = Density(family, prior, noise), transitions(model)
    check_density(density, law, observations)
    scale = float(np.max(prior.scale)) if isinstance(prior, NormalPrior) else 10.0
    step_size = _first_step(observations, noise, scale)
    with show_progress("walking chains", progress):
        expect("steps", WARM_UP + draws)
        walkers = Chains(sampler, density, law, observations, chains, seed, step_size)
        walkers.walk(draws)
        target = _family_target(data, likelihood, density)
        result = _result(target, walkers, f"{chains} chains of {draws} points on {density.dimension} parameters")
    return Summary(target, result, Budget(seed=seed))


def _check_parts(likelihood: object, parametrisation: object, prior: object) -> None:
    """Refuse parts of the wrong kind."""
    likelihoods = "give Relaxed(epsilon) of bellmanifold_paper.engines.gradient, or a noise model of bm.noise"
    require_kind(likelihood, (Relaxed, NoiseModel), "likelihood", likelihoods)
    if parametrisation is not None:
        families = (
            "give a Parametrisation(dimension, values) of bellmanifold_paper.parametrisation, or nothing for a table"
        )
        require_kind(parametrisation, Parametrisation, "parametrisation", families)
    priors = "give an object with the methods log_density and draw, as bellmanifold_paper.priors.NormalPrior(10.0)"
    require_kind(prior, Prior, "prior", priors)


@dataclass(frozen=True, eq=False)
class FamilyTarget(Target):
    """The posterior of a family Q_theta, whose parameters may tie all values together; `noise` is None if relaxed."""

    noise: NoiseModel | None = None

    @cached_property
    def coupled(self) -> Bool[np.ndarray, "states"]:
        """All states."""
        return np.ones(self.model.n_states, dtype=bool)

    @property
    def noise_law(self) -> str:
        """The noise in words: its kernel, or the name of its class."""
        return str(getattr(self.noise, "kernel", type(self.noise).__name__))


def _family_target(data: Dataset, likelihood: Relaxed | NoiseModel, density: Density) -> FamilyTarget:
    """The target that a summary needs for a posterior that chains drew from."""
    model, relaxed = data.model, isinstance(likelihood, Relaxed)
    width = likelihood.epsilon if isinstance(likelihood, Relaxed) else 1.0
    return FamilyTarget(
        model=model,
        observed=data.observed,
        reward=data.deterministic_reward() if relaxed else data.mean_reward,
        scale=np.where(data.observed, width, 0.0),
        prior=_prior_of_values(model, density),
        epsilon=width if relaxed else None,
        noise_sd=likelihood.value if isinstance(likelihood, KnownScale) else None,
        noise=None if isinstance(likelihood, Relaxed) else likelihood,
    )


def _prior_of_values(model: SSP, density: Density) -> ValuePrior:
    """Mean and sd of every action value under the prior of theta: exact for normal priors of tables, else by draws."""
    family, prior = density.parametrisation, density.prior
    if isinstance(prior, NormalPrior) and family == tabular(model):
        every = np.ones(model.n_pairs)
        return ValuePrior(np.asarray(prior.mean) * every, np.asarray(prior.scale) * every)
    keys = jax.random.split(random_key(0), PRIOR_DRAWS)
    q = np.stack([np.asarray(family.values(prior.draw(key, family.dimension))) for key in keys])
    return ValuePrior(q.mean(axis=0), np.maximum(q.std(axis=0), np.finfo(np.float64).tiny))


def _observations(data: Dataset, likelihood: Relaxed | NoiseModel, sampler: Sampler) -> tuple[Observations, NoiseModel]:
    if isinstance(getattr(likelihood, "kernel", None), Uniform):
        raise UnsupportedError(f"a uniform kernel has no gradient, which {sampler} needs: use bm.posterior's chart")
    if not isinstance(likelihood, Relaxed):
        return noisy_observations(data), likelihood
    observations, _ = _kernel(relaxed_target(data, likelihood.epsilon, 1.0), sampler)
    return observations, KnownScale(1.0, likelihood.kernel)
