"""One call from data to answers: choose an engine, and run it until the answers are accurate enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from jaxtyping import Bool, Float

from bellmanifold.data import Dataset, require_same_problem
from bellmanifold.display import Card, Columns, Shown, as_frame, measured
from bellmanifold.errors import (
    BadInputError,
    UnsupportedError,
    counted,
    quote,
    require_count,
    require_flags,
    require_kind,
    require_numbers,
    require_whole,
)
from bellmanifold.kernels import Gaussian, Kernel, named_kernel
from bellmanifold.meter import counted as counting
from bellmanifold.meter import metered
from bellmanifold.noise import HalfNormal
from bellmanifold.options import EngineName, KernelName, LawsName
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.choose import Choice, after_doubt, choose, enumeration
from bellmanifold.posteriors.estimated import Estimate
from bellmanifold.posteriors.importance import by_importance
from bellmanifold.posteriors.known import by_solver
from bellmanifold.posteriors.laws import closed
from bellmanifold.posteriors.mixture import mixture
from bellmanifold.posteriors.noise_scale import LogPrior
from bellmanifold.posteriors.policies import PolicyTable, largest_error
from bellmanifold.posteriors.rejection import rejection
from bellmanifold.posteriors.result import LawSummary, Result
from bellmanifold.posteriors.summary import MANY_SDS, Summary
from bellmanifold.posteriors.target import Target, every_visit_target, noisy_target, relaxed_target
from bellmanifold.posteriors.ties import without_near_ties
from bellmanifold.posteriors.value_prior import Numbers, PairPriors, Scale, ValuePrior
from bellmanifold.posteriors.walk import by_sparse_walk, by_walk
from bellmanifold.ssp import SSP

if TYPE_CHECKING:
    import pandas

FAR_TOGETHER = 2.0
"""All rewards together contradict each other if they are this many sds apart on average."""


def posterior(
    model: SSP,
    data: Dataset,
    epsilon: float | int | None = None,
    prior_scale: Scale = None,
    engine: EngineName = "auto",
    kernel: KernelName = "gaussian",
    noise_sd: float | int | None = None,
    infer_noise: bool | LogPrior = False,
    noise: str | Kernel = "gaussian",
    proper_only: bool | None = None,
    discount: float | None = None,
    samples: int | None = None,
    top: int = 1000,
    seed: int = 0,
    prior_mean: Numbers | None = None,
    prior: PairPriors | None = None,
    reward_belief: tuple[float, float] | None = None,
    laws: LawsName = "known",
    concentration: float | int | None = None,
    progress: bool | None = None,
) -> Summary:
    """The posterior over the optimal action values.

    Args:
        model: the problem.
        data: observations of it.
        epsilon: tolerance of the relaxed likelihood; 0 is the exact posterior, and the default without noise.
        prior_scale: sd of the prior of the action values, one number or one for each pair; "flat" for a prior that is
            flat over rewards, where every pair has one; by default what the problem states, or 10.
        engine: "auto", "chart", "mixture", "hmc", "nuts" or "rejection".
        kernel: shape of the relaxed likelihood, "gaussian" or "uniform".
        noise_sd: rewards carry noise of this scale, and every repeat counts.
        infer_noise: rewards carry noise of unknown scale; True for a half-normal prior of scale 1 over it, or the log
            density of another prior.
        noise: shape of the noise, "gaussian", "laplace" or "student-t:DF", or an object of `bellmanifold.kernels`.
        proper_only: leave out parameters that the data show to be improper; by default only with a flat prior or a
            belief about all rewards.
        discount: treat the discounted problem instead.
        samples: number of points; by default as many as a standard error of 1e-3 takes.
        top: how many routes to report; 0 for none.
        seed: fixes every result.
        prior_mean: mean of the prior of the action values, one number or one for each pair; by default what the problem
            states, or 0.
        prior: mean and sd of single pairs, {(state, action): (mean, sd)}; these take precedence.
        reward_belief: (mean, sd) of a belief about the reward of every pair that has a law in the problem; a flat prior
            is then the default.
        laws: what is known of laws that the problem leaves open: nothing may depend on them ("known"), each leads to
            the one state that was seen ("deterministic"), or they are learnt from landings ("dirichlet").
        concentration: concentration of the Dirichlet prior; inferred unless given.
        progress: show progress, once it takes more than two seconds; by default on terminals and in notebooks.

    Raises:
        BadInputError: for wrong arguments or contradicting data.
        UnsupportedError: where the method does not apply; the message names one that does.
    """
    if engine not in get_args(EngineName):
        raise BadInputError(f"engine is {quote(engine)}: choose from {', '.join(get_args(EngineName))}")
    require_numbers(epsilon=epsilon, noise_sd=noise_sd, discount=discount, concentration=concentration)
    require_whole(samples=samples)
    require_count(top=top, seed=seed)
    require_flags(proper_only=proper_only, progress=progress)
    budget = Budget(samples=samples, seed=seed, top=top)
    require_same_problem(model, data)
    if not isinstance(noise, str):
        require_kind(
            noise, Kernel, "noise", 'give the name of a law, as "laplace", or an object of bellmanifold.kernels'
        )
    if reward_belief is not None:
        data = _with_belief(data, reward_belief)
        prior_scale = "flat" if prior_scale is None and not data.free.any() else prior_scale
    if discount is not None:
        model = model.discounted(discount)
        data = replace(data, model=model)
    whole, open_laws, no_law = closed(data, laws, concentration)
    values = ValuePrior.stated(model, prior_scale, prior_mean, prior)
    if values.flat:
        _check_flat(data, proper_only)
    if proper_only is None:  # other engines have no such option
        proper_only = values.flat or (reward_belief is not None and engine in ("auto", "chart"))
    data = _rewards_in(whole, data, no_law)
    noise_scale = _noise_scale(noise_sd, infer_noise)
    if noise_scale is None:
        if noise != "gaussian":
            raise BadInputError("noise without its scale: give --noise-sd or --infer-noise too")
        target = relaxed_target(data, 0.0 if epsilon is None else epsilon, values, kernel, proper_only)
    elif epsilon is not None or kernel != "gaussian":
        raise BadInputError("epsilon and kernel relax deterministic rewards: leave them out where rewards are noisy")
    else:
        shape = named_kernel(noise) if isinstance(noise, str) else noise
        has_mean = isinstance(shape, Gaussian) or data.count.max(initial=0) <= 1
        target = (noisy_target if has_mean else every_visit_target)(data, noise_scale, values, shape, proper_only)
    evidence = open_laws.log_evidence if open_laws else 0.0
    solved = open_laws if open_laws is not None and len(open_laws.pairs) else None
    target = replace(target, laws=solved, no_law=no_law, log_constant=target.log_constant + evidence)
    with metered("computing the posterior", progress):
        summary = posterior_of(target, budget, engine)
    if open_laws is not None and solved is None:
        nothing = Estimate.of(np.zeros(0), np.zeros(0))
        summary = replace(summary, result=replace(summary.result, laws=LawSummary(nothing, open_laws.moments)))
    without_effect = {
        "prior_mean": (prior_mean is not None and values.flat, "the prior is flat over rewards"),
        "epsilon": (bool(epsilon) and _all_own(data), "every reward has an sd of its own"),
        "noise_sd": (noise_sd is not None and _all_own(data), "every reward has an sd of its own"),
        "kernel": (kernel != "gaussian" and target.epsilon == 0.0, "epsilon is 0, so that no equation is relaxed"),
        "laws": (laws != "known" and not model.open_law.any(), "the problem leaves no law open"),
        "concentration": (concentration is not None and open_laws is None, "no law that is open was observed"),
    }
    told = [f"{name} has no effect: {why}" for name, (applies, why) in without_effect.items() if applies]
    doubted = summary.result.doubted(_disagreement(data, noise_scale is None))
    return replace(summary, result=doubted, remarks=tuple(told), untried=data.untried)


def _with_belief(data: Dataset, belief: Any) -> Dataset:
    """The data with a belief about every reward; what is wrong with it is said of `reward_belief`."""
    remedy = "give (mean, sd), two numbers"
    require_kind(belief, (tuple, list), "reward_belief", remedy)
    if len(belief) != 2:
        raise BadInputError(f"reward_belief has {counted(len(belief), 'number')}: {remedy}")
    try:
        return data.with_belief(*belief)
    except BadInputError as error:
        raise BadInputError(f"reward_belief: {error}") from None


def _disagreement(data: Dataset, noiseless: bool) -> str:
    """Which rewards with sds of their own, beliefs included, disagree by many sds, or all of them together by some.

    Their squared distances, in sds, sum to a chi-squared number with as many degrees of freedom n as there are rewards
    beyond the first of each pair; a number above (4 + sqrt(n))^2 has a probability below exp(-8) = 0.0003. Together
    they also have to be 2 sds apart on average: sds that are a little too small are no contradiction. An exact reward
    overrules beliefs, and is compared with them as well.
    """
    overruled = (data.exact | ((data.count > 0) & noiseless)) & (data.own_count > 0)
    paid = np.where(data.exact, data.exact_reward, data.mean_reward)
    beside = np.where(overruled, data.own_precision * (paid - data.own_mean) ** 2, 0.0)
    distance, freedom = data.own_scatter + beside, np.maximum(data.own_count + overruled - 1, 0)
    far = distance > (MANY_SDS + np.sqrt(freedom)) ** 2
    total, whole = float(distance.sum()), int(freedom.sum())
    together = total > max((MANY_SDS + np.sqrt(whole)) ** 2, FAR_TOGETHER**2 * whole)
    if together:
        far = far | (distance > FAR_TOGETHER**2 * np.maximum(freedom, 1))
    if not far.any():
        return ""
    named = ", ".join(quote(name) for name in data.model.pair_name(int(np.argmax(distance))))
    more = f" and of {int(far.sum()) - 1} more" if far.sum() > 1 else ""
    return (
        f"rewards of ({named}){more}, beliefs included, are many of their sds apart: "
        "check their signs (a cost is a negative reward) and their sds"
    )


def _rewards_in(whole: SSP, data: Dataset, no_law: Bool[np.ndarray, "pairs"] | None) -> Dataset:
    """The rewards as observations of the problem with a law for every pair; landings have said all they say by then."""
    if no_law is None:
        return data
    landing = np.where(no_law[data.pair], -1, data.next)
    paid = ~np.isnan(data.reward)
    return Dataset(whole, data.pair[paid], data.reward[paid], data.sd[paid], landing[paid])


def _all_own(data: Dataset) -> bool:
    """Whether every reward has an sd of its own."""
    return not data.count.any() and bool(data.observed.any())


def _check_flat(data: Dataset, proper_only: bool | None) -> None:
    """Refuse a flat prior where some action value would have no prior at all, or where loops would hold it."""
    if data.free.any():
        pair = ", ".join(quote(name) for name in data.model.pair_name(int(np.argmax(data.free))))
        raise BadInputError(
            f"prior_scale is flat, but nothing is known of the reward of pair ({pair}), so that its value would have "
            "no prior: give it an observation or a belief, or a number as --prior-scale"
        )
    if proper_only is False:
        raise BadInputError("prior_scale is flat, and a flat prior holds proper policies only: leave --proper-only out")


def posterior_of(target: Target, budget: Budget | None = None, asked: EngineName = "auto") -> Summary:
    """The answers of a posterior given as a `Target`.

    Args:
        target: the posterior.
        budget: bounds the work.
        asked: the engine; "auto" for the one that suits it.
    """
    budget = Budget() if budget is None else budget
    if asked in ("auto", "chart"):
        target = target.without_lost_tolerance()
    choice = choose(target, asked, budget)
    try:
        result = _run(target, choice, budget)
    except UnsupportedError as refusal:
        if choice.engine != "importance":
            raise
        choice = enumeration(target, asked, budget, refusal)
        result = _run(target, choice, budget)
    if choice.engine == "importance" and result.doubts and choice.cover and not choice.cover.missed:
        result = _run(target, after_doubt(target, asked, budget, result.doubts[0]), budget)
    if choice.engine != "solver":  # which tells near ties from ties itself
        result = without_near_ties(target, result.doubted(choice.doubt), budget)
    if budget.samples is None and not result.stopped:
        error = largest_error(target.model, result.table, budget.top)
        if error > budget.accuracy:
            result = replace(result, stopped=f"stopped at a largest standard error of {error:.1g}")
    return Summary(target, result, budget)


def _run(target: Target, choice: Choice, budget: Budget) -> Result:
    match choice.engine:
        case "prior":
            return _prior(target, choice.reason)
        case "solver":
            assert choice.known is not None, "the solver is chosen with its answer"
            return by_solver(choice.known, budget)
        case "importance":
            assert choice.cover is not None, "importance sampling is chosen with its coordinates"
            return by_importance(target, choice.cover, budget)
        case "walk":
            return by_walk(target, budget, choice.reason)
        case "sparse walk":
            return by_sparse_walk(target, budget, choice.reason)
        case "mixture":
            return mixture(target, budget, choice.reason)
        case "rejection":
            return rejection(target, seed=budget.seed)
        case "hmc" | "nuts":
            from bellmanifold.posteriors.gradient import by_gradient

            return by_gradient(target, choice.engine, budget, choice.reason)


def _prior(target: Target, reason: str) -> Result:
    """Without data everything keeps its prior: exact answers."""
    return Result(
        table=PolicyTable(target.coupled, np.zeros((1, 0), dtype=np.int64), np.ones((1, 1))),
        q_mean=Estimate.of(target.prior.mean, np.zeros(target.model.n_pairs)),
        q_sd=Estimate.of(target.prior.sd, np.zeros(target.model.n_pairs)),
        log_evidence=Estimate.of(target.log_constant, 0.0),
        noise_scale=target.noise_scale.moments() if target.noise_scale else None,
        engine="prior",
        reason=reason,
        dimension=0,
    )


def _noise_scale(noise_sd: float | int | None, infer_noise: bool | LogPrior) -> float | int | LogPrior | None:
    """The scale of the noise or the prior over it; None for deterministic rewards."""
    if infer_noise is False:
        return noise_sd
    if infer_noise is not True and not callable(infer_noise):
        raise BadInputError(
            f"infer_noise is {infer_noise!r:.40}: give True or a log density; noise_sd is a known scale"
        )
    if noise_sd is not None:
        raise BadInputError("noise_sd is given, so there is no noise to infer: leave one of the two out")
    return HalfNormal() if infer_noise is True else infer_noise


@dataclass(frozen=True, repr=False)
class EvidenceCurve(Shown):
    """Log evidence against the prior scale.

    Attributes:
        prior_scale, log_evidence, se: one entry per prior scale.
        warning: what the curve must not be used for.
    """

    prior_scale: Float[np.ndarray, "scales"]
    log_evidence: Float[np.ndarray, "scales"]
    se: Float[np.ndarray, "scales"]
    warning: str = (
        "the curve informs a choice of prior scale; maximising it while exploring shrinks the prior until "
        "nothing is explored any more"
    )

    def card(self) -> Card:
        """What it says about itself: where the evidence is largest, and what that must not be used for."""
        best = int(np.argmax(self.log_evidence))
        low, high = (float(self.prior_scale[k]) for k in (np.argmin(self.prior_scale), np.argmax(self.prior_scale)))
        title = f"EvidenceCurve({len(self.se)} prior scales from {low:g} to {high:g})"
        largest = measured(float(self.log_evidence[best]), float(self.se[best]))
        fact = f"largest log evidence {largest}, at prior scale {self.prior_scale[best]:g}"
        return Card(title, [fact, self.warning], (), self._columns)

    def _columns(self) -> Columns:
        columns = {"prior_scale": self.prior_scale, "log_evidence": self.log_evidence, "log_evidence_se": self.se}
        return {name: array.tolist() for name, array in columns.items()}

    def to_frame(self) -> pandas.DataFrame:
        """A row per prior scale."""
        return as_frame(self._columns())


def evidence_curve(
    model: SSP,
    data: Dataset,
    prior_scales: Sequence[float],
    epsilon: float = 0.0,
    seed: int = 0,
    progress: bool | None = None,
) -> EvidenceCurve:
    """The log evidence m(r) of the data as a function of the prior scale.

    It informs a person's choice of the scale. It must not drive exploration: early data favour small scales, a small
    scale stops exploring, and then no further data correct it. `progress` shows how far it has come, by default on
    terminals and in notebooks.
    """
    require_kind(prior_scales, (Sequence, np.ndarray), "prior_scales", "give a list of numbers")
    if not len(prior_scales):
        raise BadInputError("prior_scales is empty: give at least one")
    for place, scale in enumerate(prior_scales):
        require_numbers(**{f"prior_scales[{place}]": scale})
        if not (scale is not None and np.isfinite(scale) and scale > 0):
            raise BadInputError(f"prior_scales[{place}] is {scale}: give a positive number")
    found = []
    with counting("computing the evidence", "prior scales", len(prior_scales), progress) as one_more:
        for scale in prior_scales:
            found.append(posterior(model, data, epsilon=epsilon, prior_scale=scale, seed=seed).log_evidence)
            one_more()
    if any(evidence is None for evidence in found):
        raise UnsupportedError("no evidence was computed for some prior scale: importance weights failed there")
    values = [(float(evidence.value), float(evidence.se)) for evidence in found if evidence is not None]
    value, se = np.array(values).T
    return EvidenceCurve(np.array(prior_scales, dtype=np.float64), value, se)
