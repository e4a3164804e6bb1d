"""One call from data to answers: choose an engine, run it until the answers are sharp enough, say why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from jaxtyping import Float

from bellmanifold.data import Dataset, require_same_problem
from bellmanifold.errors import BadInputError, UnsupportedError, quote
from bellmanifold.gain import best_mean_reward
from bellmanifold.health import complaint
from bellmanifold.laws import Gaussian, Law, Uniform, named_law
from bellmanifold.noise import HalfNormal
from bellmanifold.posteriors.findings import Findings, prior_elsewhere
from bellmanifold.posteriors.from_walks import by_sparse_walk, by_walk, walkable
from bellmanifold.posteriors.noise_scale import LogPrior
from bellmanifold.posteriors.policies import Estimate, PolicyTable
from bellmanifold.posteriors.summary import ACCURACY, Summary
from bellmanifold.posteriors.target import Kernel, Target, noisy_target, relaxed_target
from bellmanifold.ssp import SSP

if TYPE_CHECKING:
    import xarray

    from bellmanifold.chart import BatchChart
    from bellmanifold.posteriors.coordinates import Coordinates
    from bellmanifold.posteriors.importance import Nets, Sample

Engine = Literal["auto", "chart", "mixture", "hmc", "nuts", "rejection"]
ENOUGH = 400.0
"""An effective sample size below this is too low to trust."""
GOOD = 0.2
"""Coordinates in which this share of the points is effective need no comparison with others."""
DISAGREEMENT = 5.0
"""Two cuts disagree if their improper masses differ by more than this many standard errors, and by `ACCURACY`."""
MOST_POINTS = 2**21
MOST_HELD = 2**27
"""Points times coordinates that importance sampling may hold: they are kept, twice, for the next posterior."""
MOST_IN_PIECE = 2**23
"""Numbers in an array of one piece of the points; some ten such arrays are held at a time."""
MOST_COORDINATES = 400
PILOT = 12
"""Binary logarithm of the points in each net that are weighed first."""
DRAWS = 8192
MORE_DRAWS, MOST_NUMBERS = 2**17, 2**25
"""Uneven draws are resampled from this many, as long as they are not more numbers than that."""


class TooManyCoordinatesError(UnsupportedError):
    """Importance sampling would need more points than memory holds; a walk does not."""


def posterior(
    model: SSP,
    data: Dataset,
    epsilon: float | int | None = None,
    prior_scale: float | int = 10.0,
    engine: Engine = "auto",
    kernel: Kernel = "gaussian",
    noise_sd: float | int | None = None,
    infer_noise: bool | LogPrior = False,
    noise: str | Law = "gaussian",
    proper_only: bool = False,
    discount: float | None = None,
    samples: int | None = None,
    top: int = 1000,
    seed: int = 0,
) -> Summary:
    """The posterior over the optimal action values.

    Args:
        model: the problem.
        data: observations of it.
        epsilon: tolerance of the relaxed likelihood; 0 is the exact posterior, and the default without noise.
        prior_scale: sigma of the prior N(0, sigma^2 I).
        engine: "auto", "chart", "mixture", "hmc", "nuts" or "rejection".
        kernel: shape of the relaxed likelihood.
        noise_sd: rewards carry noise of this scale, and every repeat counts.
        infer_noise: rewards carry noise of unknown scale; True for a half-normal prior of scale 1 over it, or the log
            density of another prior.
        noise: law of the noise, by name or as an object of `bellmanifold.laws`.
        proper_only: leave out parameters that the data show to be improper.
        discount: treat the discounted problem instead.
        samples: number of points; by default as many as a standard error of 1e-3 takes.
        top: how many routes to report.
        seed: fixes every result.

    Raises:
        BadInputError: for wrong arguments or contradicting data.
        UnsupportedError: where the method does not apply; the message names one that does.
    """
    if engine not in get_args(Engine):
        raise BadInputError(f"engine is {quote(engine)}: choose from {', '.join(get_args(Engine))}")
    if samples is not None and samples < 1:
        raise BadInputError(f"samples is {samples}: give a positive number")
    if top < 0:
        raise BadInputError(f"top is {top}: give a number that is not negative")
    if seed < 0:
        raise BadInputError(f"seed is {seed}: give a number that is not negative")
    require_same_problem(model, data)
    if discount is not None:
        model = model.discounted(discount)
        data = Dataset(model, data.pair, data.reward)
    noise_scale = _noise_scale(noise_sd, infer_noise)
    if noise_scale is None:
        if noise != "gaussian":
            raise BadInputError("a law of the noise without its scale: give --noise-sd or --infer-noise too")
        target = relaxed_target(data, 0.0 if epsilon is None else epsilon, prior_scale, kernel)
    elif epsilon is not None or kernel != "gaussian":
        raise BadInputError("epsilon and kernel relax deterministic rewards: leave them out where rewards are noisy")
    else:
        law = named_law(noise) if isinstance(noise, str) else noise
        if not isinstance(law, Gaussian) and data.count.max(initial=0) > 1:
            _require_chains(law, engine, proper_only)
            gaussian = noisy_target(data, noise_scale, prior_scale, Gaussian())
            target = replace(gaussian, law=law, noise_scale=None, log_constant=0.0)
            summary = _by_every_visit(data, noise_scale, target, engine, samples, seed)
            return replace(summary, top=top, seed=seed)
        target = noisy_target(data, noise_scale, prior_scale, law)
    if not target.coupled.any():
        return replace(_prior(target), top=top, seed=seed)
    from bellmanifold.posteriors.near_ties import without_near_ties

    summary = _choose(target, engine, proper_only, samples, seed)
    summary = without_near_ties(summary.labelled(top, proper_only, seed))
    return summary if samples is not None else _with_its_error(summary)


def _with_its_error(summary: Summary) -> Summary:
    """The summary, whose reason says so if it stopped before every standard error was as small as it should be."""
    error = summary.largest_error
    if error <= ACCURACY or "stopped" in summary.reason:
        return summary
    return replace(summary, reason=f"{summary.reason}; stopped at a largest standard error of {error:.1g}")


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


def _require_chains(law: Law, engine: Engine, proper_only: bool) -> None:
    """Repeats whose mean says not all need chains, which need a gradient and cover everything."""
    if isinstance(law, Uniform):
        raise UnsupportedError("uniform noise has no gradient for chains to follow, and repeats need them: use laplace")
    if engine not in ("auto", "hmc", "nuts"):
        raise UnsupportedError(
            f"{engine} takes {law} noise only where every pair was seen once: use --engine nuts, or gaussian noise"
        )
    if proper_only:
        raise BadInputError("chains have no --proper-only: leave it out, or use gaussian noise")


def _by_every_visit(
    data: Dataset, noise: float | int | LogPrior, target: Target, engine: Engine, samples: int | None, seed: int
) -> Summary:
    """Chains, for noise whose repeats have no sufficient mean."""
    from bellmanifold.posteriors.from_chains import by_every_visit

    return by_every_visit(data, noise, target, "hmc" if engine == "hmc" else "nuts", samples, seed)


def _prior(target: Target) -> Summary:
    """Without data everything keeps its prior: exact answers."""
    q_mean, q_sd = prior_elsewhere(target, Estimate.of(np.zeros(0), np.zeros(0)), np.zeros(0))
    table = PolicyTable(target.coupled, np.zeros((1, 0), dtype=np.int64), np.ones((1, 1)))
    nothing_said = Estimate.of(0.0, 0.0)
    eta = target.noise_scale.moments() if target.noise_scale else None
    return Summary(
        target=target,
        findings=Findings(table=table, q_mean=q_mean, q_sd=q_sd, log_evidence=nothing_said, noise_scale=eta),
        engine="prior",
        reason="no observations: the posterior is the prior",
        dimension=0,
    )


def posterior_of(target: Target, seed: int = 0) -> Summary:
    """The answers of a posterior that is given as such, by the engine that suits it."""
    return _choose(target, "auto", False, None, seed) if target.coupled.any() else _prior(target)


def _choose(target: Target, engine: Engine, proper_only: bool, samples: int | None, seed: int) -> Summary:
    if engine in ("mixture", "rejection", "hmc", "nuts"):
        if proper_only:
            raise BadInputError(f"the {engine} engine has no --proper-only: use --engine chart")
        if engine in ("hmc", "nuts"):
            from bellmanifold.posteriors.from_chains import by_chains

            return by_chains(target, "hmc" if engine == "hmc" else "nuts", samples, seed)
        if samples is not None:
            raise BadInputError(f"the {engine} engine has no --samples: leave it out, or use --engine chart")
        return by_mixture(target, "asked for", seed) if engine == "mixture" else by_rejection(target, seed)
    from bellmanifold.chart import TooLargeError

    can_enumerate = engine == "auto" and not target.is_exact and not proper_only and target.is_gaussian
    try:
        summary = by_chart(target, proper_only, samples, seed)
    except TooManyCoordinatesError as refusal:
        return by_walk(target, proper_only, str(refusal), samples, seed)
    except TooLargeError as refusal:
        return by_sparse_walk(target, proper_only, str(refusal), samples, seed)
    except UnsupportedError as refusal:
        if not can_enumerate:
            raise
        try:
            return by_mixture(target, f"the chart does not apply ({refusal})", seed)
        except UnsupportedError as too_many:
            raise UnsupportedError(f"{refusal}; {too_many}") from None
    if summary.trustworthy:
        return summary
    effective = summary.effective_sample_size or 0.0
    doubt = f"importance weights are too uneven (effective sample size {effective:.0f})"
    if effective >= ENOUGH:
        doubt = "two ways to cut the observed loops open disagree on the improper mass"
    if can_enumerate:
        try:
            return by_mixture(target, doubt, seed)
        except UnsupportedError:
            pass
    return by_walk(target, proper_only, doubt, samples, seed)


def by_chart(target: Target, proper_only: bool, samples: int | None, seed: int) -> Summary:
    """Importance sampling through the chart, in the coordinates that weigh best."""
    from bellmanifold.chart import TooLargeError, batch_chart
    from bellmanifold.posteriors.importance import PIECE, REPLICATES, Nets

    if target.is_exact:
        require_assumption_2(target)
    candidates = covering(target, batch_chart(target.model), proper_only)
    largest = max(int(c.free.sum() + c.residual.sum()) for components in candidates for c in components)
    slots = candidates[0][0].chart.slot.size
    if PIECE * slots > MOST_IN_PIECE:
        raise TooLargeError(f"the padded problem has {slots} pairs: too many for large batches")
    if largest > MOST_COORDINATES:
        raise TooManyCoordinatesError(f"{largest} coordinates are too many for importance sampling")
    if samples is not None and samples * largest > MOST_HELD:
        raise BadInputError(f"samples is {samples}: at most {MOST_HELD // largest} points of {largest} coordinates fit")
    most_points = min(MOST_POINTS, MOST_HELD // max(1, largest))
    asked = PILOT if samples is None else int(np.ceil(np.log2(max(1.0, samples / REPLICATES))))
    log2_size = min(PILOT, asked)
    tried = []
    for components in candidates:
        nets = Nets(components, seed)
        drawn = nets.sample(log2_size)
        tried.append((drawn.effective_sample_size, drawn, nets))
        if drawn.effective_sample_size > GOOD * drawn.points:
            break
    _, drawn, nets = max(tried, key=lambda entry: entry[0])
    if drawn.unsolvable == 1.0:
        raise UnsupportedError(
            "no parameter with a proper policy fits the data: some observed loop pays whatever the residuals are; "
            "leave --proper-only out, or use --discount 0.99"
            if proper_only
            else "no parameter fits the data: use a larger --epsilon, or --kernel gaussian"
        )
    if samples is not None:
        return _confirmed(nets, _summarise(nets, drawn if asked == log2_size else nets.sample(asked)))
    summary = _summarise(nets, drawn)
    hopeless = drawn.effective_sample_size * most_points < ENOUGH * drawn.points
    while not hopeless and summary.largest_error > ACCURACY and 2 * drawn.points <= most_points:
        log2_size += 1
        drawn = nets.sample(log2_size)
        summary = _summarise(nets, drawn)
    return _confirmed(nets, summary)


def _confirmed(nets: Nets, summary: Summary) -> Summary:
    """The summary, no longer trusted if a second cut of the observed loops finds another improper mass."""
    from bellmanifold.posteriors.cut import other_cut
    from bellmanifold.posteriors.importance import Nets

    first = nets.components[0]
    confirmable = summary.trustworthy and first.cut and first.target.loops and first.covers_improper
    other = other_cut(nets.components) if confirmable else None
    if other is None:
        return summary
    others = Nets(other, nets.seed)
    second = _summarise(others, others.sample(PILOT))
    mass, again = summary.improper_mass, second.improper_mass
    gap = abs(float(mass.value) - float(again.value))
    agree = not second.trustworthy or gap <= max(ACCURACY, DISAGREEMENT * float(np.hypot(mass.se, again.se)))
    found = {"second_cut": second.diagnostics["cut"], "second_cut_improper_mass": float(again.value)}
    return replace(summary, trustworthy=agree, diagnostics={**summary.diagnostics, **found})


def covering(target: Target, chart: BatchChart, proper_only: bool) -> list[list[Coordinates]]:
    """Ways to cover the posterior, each a mixture of coordinates; the first good one is used."""
    from bellmanifold.posteriors.coordinates import Coordinates
    from bellmanifold.posteriors.cut import cut_coordinates

    if target.is_exact:
        return [[Coordinates(target, chart)]]
    cut = cut_coordinates(target, chart, proper_only)
    return [cut] if proper_only else [cut, [Coordinates(target, chart, centred=True)]]


def require_assumption_2(target: Target) -> None:
    """The exact posterior needs every loop of observed pairs to cost something."""
    for component in target.loops:
        mean = best_mean_reward(replace(target.model, reward=target.reward), component)
        if mean.sign >= 0:
            raise UnsupportedError(
                f"{complaint(target.model, mean)}; the exact posterior does not exist: use --epsilon above 0, "
                "or --discount 0.99"
            )


def _summarise(nets: Nets, drawn: Sample) -> Summary:
    coordinates = nets.components[0]
    target, model = coordinates.target, coordinates.target.model
    restricted = not target.is_exact and not coordinates.covers_improper
    return Summary(
        target=target,
        findings=replace(drawn, log_evidence=None) if restricted else drawn,
        engine="chart",
        reason=f"importance sampling in {coordinates.way} coordinates of the chart",
        dimension=coordinates.dimension,
        effective_sample_size=drawn.effective_sample_size,
        trustworthy=drawn.effective_sample_size >= ENOUGH,
        diagnostics={
            "points": drawn.points,
            "coordinates": coordinates.way,
            "unsolvable_share": drawn.unsolvable,
            "cut": [list(model.pair_name(i)) for i in coordinates.cut],
            "ties_split": [model.states[s] for s in drawn.tied_states],
        },
    )


def by_mixture(target: Target, why: str, seed: int) -> Summary:
    """Proposition 1 by enumeration."""
    from bellmanifold.posteriors.mixture import mixture

    found = mixture(target, accuracy=ACCURACY, seed=seed)
    return Summary(
        target=target,
        findings=found,
        engine="mixture",
        reason=f"{why}: enumeration of {found.n_cells} cells",
        dimension=len(target.own),
        diagnostics={"cells": found.n_cells, "dropped_bound": found.dropped, "points": found.points},
    )


def by_rejection(target: Target, seed: int) -> Summary:
    """Rejection sampling from the prior, for tiny problems and the uniform kernel."""
    from bellmanifold.posteriors.rejection import rejection

    found = rejection(target, seed=seed)
    return Summary(
        target=target,
        findings=found,
        engine="rejection",
        reason=f"asked for: prior draws that satisfy every observed equation; stopped after {found.draws} of them",
        dimension=len(target.own),
        effective_sample_size=float(found.accepted),
        diagnostics={"accepted": found.accepted, "draws": found.draws},
    )


def posterior_draws(target: Target, proper_only: bool, seed: int) -> xarray.Dataset:
    """Draws of the action values: importance draws of the chart where they weigh well, else the ends of chains.

    Raises:
        UnsupportedError: if neither importance weights nor chains can be trusted.
    """
    from bellmanifold.chart import TooLargeError, batch_chart
    from bellmanifold.posteriors.cut import LargeCutError
    from bellmanifold.posteriors.draws import chain_draws, effective, resampled, weighted_draws

    try:
        chart = batch_chart(target.model)
    except TooLargeError as refusal:
        raise UnsupportedError(f"no draws of a problem this large ({refusal}): use the summary's numbers") from None
    try:
        candidates = covering(target, chart, proper_only)
    except LargeCutError:
        candidates = []
    for components in candidates:
        drawn = weighted_draws(components, DRAWS, seed)
        if effective(drawn) >= ENOUGH:
            return drawn
        many = weighted_draws(components, min(MORE_DRAWS, MOST_NUMBERS // target.model.n_pairs), seed)
        if effective(many) >= ENOUGH:
            return resampled(many, DRAWS, seed)
    walked = chain_draws(walkable(target, chart, proper_only), seed)
    if walked is None:
        raise UnsupportedError(
            "no draws: importance weights are too uneven and chains do not mix; use the summary's own numbers, "
            "--proper-only or another --epsilon"
        )
    return walked


@dataclass(frozen=True)
class EvidenceCurve:
    """Log evidence against the prior scale.

    Attributes:
        prior_scale, log_evidence, se: one entry a prior scale.
        warning: what the curve must not be used for.
    """

    prior_scale: Float[np.ndarray, "scales"]
    log_evidence: Float[np.ndarray, "scales"]
    se: Float[np.ndarray, "scales"]
    warning: str = (
        "the curve informs a choice of prior scale; maximising it while exploring shrinks the prior until "
        "nothing is explored any more"
    )


def evidence_curve(
    model: SSP, data: Dataset, prior_scales: Sequence[float], epsilon: float = 0.0, seed: int = 0
) -> EvidenceCurve:
    """The log evidence m(r) of the data as a function of the prior scale.

    It informs a person's choice of the scale. It must not drive exploration: early data favour small scales, a small
    scale stops exploring, and then no further data correct it.
    """
    if not len(prior_scales):
        raise BadInputError("prior_scales is empty: give at least one")
    summaries = [posterior(model, data, epsilon=epsilon, prior_scale=scale, seed=seed) for scale in prior_scales]
    found = [summary.log_evidence for summary in summaries]
    if any(evidence is None for evidence in found):
        raise UnsupportedError("no evidence was computed for some prior scale: importance weights failed there")
    values = [(float(evidence.value), float(evidence.se)) for evidence in found if evidence is not None]
    value, se = np.array(values).T
    return EvidenceCurve(np.array(prior_scales, dtype=np.float64), value, se)
