"""From data to answers in one call: choose an engine, and run it until the answers are accurate enough.

`posterior` turns its arguments into a `Target` (`bellmanifold.posteriors.question`); `posterior_of` answers any target.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from bellmanifold._util.options import KernelName, LawsName
from bellmanifold._util.plugins import load
from bellmanifold._util.progress import show_progress
from bellmanifold.errors import (
    UnsupportedError,
    require_count,
    require_flags,
    require_kind,
    require_numbers,
    require_whole,
)
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.choose import Choice, choose, enumeration, may_enumerate, require_engine
from bellmanifold.posteriors.contradictions import among_rewards
from bellmanifold.posteriors.costs_only import without_payments
from bellmanifold.posteriors.estimated import Estimate
from bellmanifold.posteriors.importance import by_importance
from bellmanifold.posteriors.kernels import Kernel
from bellmanifold.posteriors.known import by_prior, by_solver
from bellmanifold.posteriors.laws import close_laws
from bellmanifold.posteriors.most_probable import largest_error
from bellmanifold.posteriors.noise_scale import LogPrior
from bellmanifold.posteriors.question import check_flat, inferred_noise, rewards_in, stated_target, with_belief
from bellmanifold.posteriors.result import LawSummary, Result
from bellmanifold.posteriors.rounding import without_lost_tolerance
from bellmanifold.posteriors.summary import Summary
from bellmanifold.posteriors.target import Target
from bellmanifold.posteriors.ties import without_near_ties
from bellmanifold.posteriors.value_prior import Numbers, PairPriors, Scale, ValuePrior
from bellmanifold.posteriors.walk import by_sparse_walk, by_walk
from bellmanifold.problem.dataset import Dataset, require_same_problem
from bellmanifold.problem.ssp import SSP


def posterior(
    model: SSP,
    data: Dataset,
    epsilon: float | int | None = None,
    prior_scale: Scale = None,
    engine: str = "auto",
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
    cost_belief: tuple[float, float] | None = None,
    costs_only: bool = False,
    laws: LawsName = "known",
    concentration: float | int | None = None,
    progress: bool | None = None,
) -> Summary:
    """The posterior over the optimal action values.

    Args:
        model: the problem.
        data: observations of the problem.
        epsilon: tolerance of the relaxed likelihood; 0, the default without noise, is the exact posterior.
        prior_scale: sd of the prior of the action values, one number or one for each pair; "flat" for a prior that is
            flat over rewards, if every pair has a reward or a belief; by default what the problem states, or 10.
        engine: "auto", "chart", "mixture", "hmc", "nuts" or "rejection".
        kernel: shape of the relaxed likelihood, "gaussian" or "uniform".
        noise_sd: scale of the rewards' noise, if it is known; every repeat counts.
        infer_noise: infer the scale of the rewards' noise; True for a half-normal prior of scale 1, or the log density
            of another prior.
        noise: shape of the noise, "gaussian", "laplace" or "student-t:DF", or an object of `bm.kernels`.
        proper_only: exclude parameters that the data show to be improper; by default only with a flat prior or a
            belief about all rewards.
        discount: discount factor; the discounted problem is then used instead.
        samples: number of points; by default as many as needed for standard errors of 1e-3.
        top: maximum number of routes to report; 0 for none.
        seed: random seed; the same seed gives the same results.
        prior_mean: mean of the prior of the action values, one number or one for each pair; by default what the problem
            states, or 0.
        prior: mean and sd for single pairs, {(state, action): (mean, sd)}; these take precedence.
        reward_belief: (mean, sd) of a belief about the reward of every pair that has a law in the problem; a flat prior
            is then the default.
        cost_belief: the same as reward_belief with the sign of a cost: (5, 2) says that moves cost about 5. Texts
            and pictures then speak of costs.
        costs_only: exclude payments above 0, so that no move pays; for beliefs and Gaussian noise under a flat prior.
        laws: how to treat laws that the problem leaves open: nothing may depend on them ("known"), each leads to the
            one state that was seen ("deterministic"), or they are learnt from next states ("dirichlet").
        concentration: concentration of the Dirichlet prior; inferred by default.
        progress: show progress after two seconds; by default on terminals and in notebooks.

    Raises:
        BadInputError: if arguments are invalid or data contradict each other.
        UnsupportedError: if the method does not apply; the message names one that does.
    """
    require_engine(engine)
    require_numbers(epsilon=epsilon, noise_sd=noise_sd, discount=discount, concentration=concentration)
    require_whole(samples=samples)
    require_count(top=top, seed=seed)
    require_flags(proper_only=proper_only, costs_only=costs_only, progress=progress)
    budget = Budget(samples=samples, seed=seed, top=top)
    require_same_problem(model, data)
    if not isinstance(noise, str):
        require_kind(
            noise,
            Kernel,
            "noise",
            'give the name of a law, as "laplace", or an object of bellmanifold.posteriors.kernels',
        )
    has_belief = reward_belief is not None or cost_belief is not None
    if has_belief:
        data = with_belief(data, reward_belief, cost_belief)
        prior_scale = "flat" if prior_scale is None and not data.free.any() else prior_scale
    if discount is not None:
        data = replace(data, model=model.discounted(discount))
    whole, open_laws, no_law = close_laws(data, laws, concentration)
    values = ValuePrior.stated(data.model, prior_scale, prior_mean, prior)
    if values.flat:
        check_flat(data, proper_only)
    if proper_only is None:  # other engines have no such option
        proper_only = values.flat or (has_belief and engine in ("auto", "chart"))
    if no_law is not None:
        data = rewards_in(whole, data, no_law)
    scale = noise_sd if infer_noise is False else inferred_noise(infer_noise, noise_sd)
    target = stated_target(data, values, proper_only, epsilon, kernel, noise, scale)
    if no_law is not None:
        target = target.with_laws(open_laws, no_law)
    if costs_only:
        target = without_payments(target)
    with show_progress("computing the posterior", progress):
        summary = posterior_of(target, budget, engine)
    result = summary.result
    if data.own_count.any():
        result = result.doubted(among_rewards(data, scale is None))
    if open_laws is not None and target.laws is None:  # landings alone determine it
        nothing = Estimate.of(np.zeros(0), np.zeros(0))
        result = replace(result, laws=LawSummary(nothing, open_laws.moments))
    all_own = not data.count.any() and bool(data.observed.any())
    without_effect = {
        "prior_mean": (prior_mean is not None and values.flat, "the prior is flat over rewards"),
        "epsilon": (bool(epsilon) and all_own, "every reward has an sd of its own"),
        "noise_sd": (noise_sd is not None and all_own, "every reward has an sd of its own"),
        "kernel": (kernel != "gaussian" and target.epsilon == 0.0, "epsilon is 0, so no equation is relaxed"),
        "laws": (laws != "known" and not model.open_law.any(), "the problem leaves no law open"),
        "concentration": (concentration is not None and open_laws is None, "no open law was observed"),
    }
    remarks = tuple(f"{name} has no effect: {why}" for name, (applies, why) in without_effect.items() if applies)
    if data.gap:
        remarks = (data.gap, *remarks)
    in_costs = cost_belief is not None
    return replace(summary, result=result, remarks=remarks, untried=data.untried, asked_in_costs=in_costs)


def posterior_of(target: Target, budget: Budget | None = None, asked: str = "auto") -> Summary:
    """The answers of a posterior given as a `Target`, from the requested engine or the one that suits it."""
    budget = Budget() if budget is None else budget
    if asked in ("auto", "chart"):
        target = without_lost_tolerance(target)
    choice = choose(target, asked, budget)
    try:
        result = _run(target, choice, budget)
    except UnsupportedError as refusal:
        if choice.engine != "importance":
            raise
        choice = enumeration(target, asked, refusal)
        result = _run(target, choice, budget)
    if choice.engine == "importance" and result.doubts and choice.cover and not choice.cover.missed:
        result = _after_doubt(target, asked, budget, result.doubts[0])
    result = result.doubted(choice.doubt)
    if target.may_tie.any() and choice.engine != "solver":  # the solver distinguishes near ties from ties itself
        result = without_near_ties(target, result, budget)
    if budget.samples is None and not result.stopped:
        error = result.largest_error
        error = largest_error(target.model, result.table, budget.top) if error is None else error
        if error > budget.accuracy:
            result = replace(result, stopped=f"stopped at a largest standard error of {error:.1g}")
    return Summary(target, result, budget)


def _run(target: Target, choice: Choice, budget: Budget) -> Result:
    match choice.engine:
        case "prior":
            return by_prior(target, choice.reason)
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
        case plugged:
            engine = load("engine", plugged)
            try:
                found: Result = engine(target, budget, choice.reason)
            except UnsupportedError as error:
                raise (UnsupportedError(f"{choice.refusal}; {error}") if choice.refusal else error) from None
            return found


def _after_doubt(target: Target, asked: str, budget: Budget, doubt: str) -> Result:
    """What follows importance sampling that is not trustworthy: enumeration of few enough cells, else a walk."""
    if may_enumerate(target, asked):
        with suppress(UnsupportedError):  # too many cells
            return _run(target, Choice("mixture", doubt), budget)
    return _run(target, Choice("walk", doubt), budget)
