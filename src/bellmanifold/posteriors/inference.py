"""One call from data to answers: choose an engine, run it until the answers are sharp enough, say why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from jaxtyping import Float

from bellmanifold.data import Dataset
from bellmanifold.errors import BadInputError, UnsupportedError, quote
from bellmanifold.gain import best_mean_reward
from bellmanifold.graph import end_components
from bellmanifold.health import complaint
from bellmanifold.posteriors.policies import Estimate, PolicyTable
from bellmanifold.posteriors.summary import Summary
from bellmanifold.posteriors.target import Kernel, Target, relaxed_target
from bellmanifold.ssp import SSP

if TYPE_CHECKING:
    import xarray

    from bellmanifold.chart import BatchChart
    from bellmanifold.posteriors.coordinates import Coordinates
    from bellmanifold.posteriors.importance import Sample
    from bellmanifold.posteriors.walk import Walk

Engine = Literal["auto", "chart", "mixture", "hmc", "nuts", "rejection"]
ACCURACY = 1e-3
"""Every reported probability is computed to this standard error, unless a number of samples is asked for."""
ENOUGH = 400.0
"""An effective sample size below this is too low to trust."""
GOOD = 0.2
"""Coordinates in which this share of the points is effective need no comparison with others."""
MOST_POINTS = 2**21
MOST_COORDINATES = 400
MOST_ROUNDS = 8
DRAWS = 8192
SPARSE_STEPS = 2000


class TooManyCoordinatesError(UnsupportedError):
    """Importance sampling would need more points than memory holds; a walk does not."""


def posterior(
    model: SSP,
    data: Dataset,
    epsilon: float | int = 0.0,
    prior_scale: float | int = 10.0,
    engine: Engine = "auto",
    kernel: Kernel = "gaussian",
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
        epsilon: tolerance of the relaxed likelihood; 0 is the exact posterior.
        prior_scale: sigma of the prior N(0, sigma^2 I).
        engine: "auto", "chart", "mixture", "hmc", "nuts" or "rejection".
        kernel: shape of the relaxed likelihood.
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
    if discount is not None:
        model = model.discounted(discount)
        data = Dataset(model, data.pair, data.reward)
    target = relaxed_target(data, epsilon, prior_scale, kernel)
    if not target.coupled.any():
        return _prior(target, epsilon, top)
    summary = _choose(target, engine, proper_only, samples, seed)
    return replace(summary, epsilon=float(epsilon), top=top, proper_only=proper_only, seed=seed)


def _prior(target: Target, epsilon: float | int, top: int) -> Summary:
    """Without data everything keeps its prior: exact answers."""
    model = target.model
    table = PolicyTable(target.coupled, np.zeros((1, 0), dtype=np.int64), np.ones((1, 1)))
    return Summary(
        target=target,
        epsilon=float(epsilon),
        engine="prior",
        reason="no observations: the posterior is the prior",
        table=table,
        q_mean=np.zeros(model.n_pairs),
        q_sd=np.full(model.n_pairs, target.prior_scale),
        dimension=0,
        log_evidence=Estimate.of(0.0, 0.0),
        effective_sample_size=None,
        top=top,
    )


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

    can_enumerate = engine == "auto" and not target.is_exact and not proper_only and target.kernel == "gaussian"
    try:
        summary = by_chart(target, proper_only, samples, seed)
    except TooManyCoordinatesError as refusal:
        return by_walk(target, proper_only, str(refusal), samples, seed)
    except TooLargeError as refusal:
        return by_sparse_walk(target, proper_only, str(refusal), samples, seed)
    except UnsupportedError as refusal:
        if not can_enumerate:
            raise
        return by_mixture(target, f"the chart does not apply ({refusal})", seed)
    if summary.trustworthy:
        return summary
    low = f"importance weights are too uneven (effective sample size {summary.effective_sample_size:.0f})"
    if can_enumerate:
        try:
            return by_mixture(target, low, seed)
        except UnsupportedError:
            pass
    return by_walk(target, proper_only, low, samples, seed)


def by_chart(target: Target, proper_only: bool, samples: int | None, seed: int) -> Summary:
    """Importance sampling through the chart, in the coordinates that weigh best."""
    from bellmanifold.chart import batch_chart
    from bellmanifold.posteriors.importance import PIECE, REPLICATES, sample

    if target.is_exact:
        _require_assumption_2(target)
    candidates = covering(target, batch_chart(target.model), proper_only)
    largest = max(int(c.free.sum() + c.residual.sum()) for components in candidates for c in components)
    if largest > MOST_COORDINATES:
        raise TooManyCoordinatesError(f"{largest} coordinates are too many for importance sampling")
    log2_size = int(np.log2(PIECE))
    tried = []
    for components in candidates:
        drawn = sample(components, log2_size, seed)
        tried.append((drawn.effective_sample_size, drawn, components))
        if drawn.effective_sample_size > GOOD * drawn.points:
            break
    _, drawn, components = max(tried, key=lambda entry: entry[0])
    if drawn.unsolvable == 1.0:
        raise UnsupportedError(
            "no parameter with a proper policy fits the data: some observed loop pays whatever the residuals are; "
            "leave --proper-only out, or use --discount 0.99"
        )
    summary = _summarise(components, drawn)
    if samples is not None:
        wanted = int(np.ceil(np.log2(samples / REPLICATES))) if samples > REPLICATES else 0
        return summary if wanted <= log2_size else _summarise(components, sample(components, wanted, seed))
    while (error := _largest_error(summary)) > ACCURACY and 2 * drawn.points <= MOST_POINTS:
        doublings = int(np.ceil(1.5 * np.log2(error / ACCURACY))) if np.isfinite(error) else 1
        log2_size = min(log2_size + max(1, doublings), int(np.log2(MOST_POINTS / REPLICATES)))
        drawn = sample(components, log2_size, seed)
        summary = _summarise(components, drawn)
    return summary


def covering(target: Target, chart: BatchChart, proper_only: bool) -> list[list[Coordinates]]:
    """Ways to cover the posterior, each a mixture of coordinates; the first good one is used."""
    from bellmanifold.posteriors.coordinates import Coordinates
    from bellmanifold.posteriors.cut import cut_coordinates

    if target.is_exact or proper_only:
        return [[Coordinates(target, chart)]]
    centred = [Coordinates(target, chart, centred=True)]
    if end_components(target.model, target.observed):
        return [cut_coordinates(target, chart), centred]
    return [[Coordinates(target, chart)], centred]


def _require_assumption_2(target: Target) -> None:
    """The exact posterior needs every loop of observed pairs to cost something."""
    for component in end_components(target.model, target.observed):
        mean = best_mean_reward(replace(target.model, reward=target.reward), component)
        if mean.sign >= 0:
            raise UnsupportedError(
                f"{complaint(target.model, mean)}; the exact posterior does not exist: use --epsilon above 0, "
                "or --discount 0.99"
            )


def _largest_error(summary: Summary) -> float:
    errors = [float(summary.action_probability.se.max(initial=0.0))]
    errors += [route.se for route in summary.routes or []]
    return max(errors)


def _summarise(components: list[Coordinates], drawn: Sample) -> Summary:
    coordinates = components[0]
    target = coordinates.target
    model, coupled = target.model, target.coupled[target.model.pair_state]
    mean = np.where(coupled, drawn.q_mean.value, 0.0)
    variance = np.where(coupled, drawn.q_second.value - mean**2, target.prior_scale**2)
    way = "centred" if coordinates.centred else "cut" if coordinates.cut else "non-centred"
    enough = drawn.effective_sample_size >= ENOUGH
    restricted = way == "non-centred" and not target.is_exact and bool(end_components(model, target.observed))
    evidence = Estimate.of(drawn.log_evidence.value + target.log_constant, drawn.log_evidence.se)
    return Summary(
        target=target,
        epsilon=0.0,
        engine="chart",
        reason=f"importance sampling in {way} coordinates of the chart",
        table=drawn.table,
        q_mean=mean,
        q_sd=np.sqrt(np.maximum(variance, 0.0)),
        dimension=coordinates.dimension,
        log_evidence=None if restricted else evidence,
        effective_sample_size=drawn.effective_sample_size,
        trustworthy=enough,
        diagnostics={
            "points": drawn.points,
            "coordinates": way,
            "unsolvable_share": drawn.unsolvable,
            "cut": [list(model.pair_name(i)) for i in coordinates.cut],
            "ties_split": [model.states[s] for s in drawn.tied_states],
        },
    )


def by_walk(target: Target, proper_only: bool, why: str, samples: int | None, seed: int) -> Summary:
    """Elliptical slice chains in the chart's coordinates, or in the action values where the chart needs a cut."""
    from bellmanifold.chart import batch_chart
    from bellmanifold.posteriors.walk import CHAINS, ROUND, Chains

    coordinates = covering(target, batch_chart(target.model), proper_only)[0][0]
    if coordinates.cut:
        coordinates = replace(coordinates, cut=(), freed=(), centred=True)
    chains = Chains(coordinates, seed)
    rounds = 1 if samples is None else max(1, samples // (CHAINS * ROUND))
    while True:
        walked = chains.walk(rounds)
        summary = _summarise_walk(coordinates, walked, why)
        if samples is not None or rounds >= MOST_ROUNDS or (walked.trustworthy and _largest_error(summary) <= ACCURACY):
            return summary
        rounds *= 2


def by_sparse_walk(target: Target, proper_only: bool, why: str, samples: int | None, seed: int) -> Summary:
    """Elliptical slice chains on sparse linear systems, for large cyclic problems."""
    from bellmanifold.posteriors.sparse_walk import CHAINS, sparse_walk
    from bellmanifold.posteriors.walk import LEAST_EFFECTIVE, R_HAT_LIMIT, diagnose

    covered = target.is_exact or proper_only or not end_components(target.model, target.observed)
    if not covered or target.kernel == "uniform":
        raise UnsupportedError(
            f"{why}, and beyond it only Gaussian kernels without improper parameters can be walked: "
            "use --proper-only or --epsilon 0"
        )
    steps = max(1, (SPARSE_STEPS if samples is None else samples) // CHAINS)
    walked = sparse_walk(target, steps, warm_up=steps // 4, seed=seed)
    r_hat, effective = diagnose(walked.value)
    coupled = target.coupled[target.model.pair_state]
    return Summary(
        target=target,
        epsilon=0.0,
        engine="chart",
        reason=f"{why}: elliptical slice chains on sparse systems instead",
        table=walked.table,
        q_mean=np.where(coupled, walked.q_mean.value, 0.0),
        q_sd=np.where(coupled, walked.q_sd, target.prior_scale),
        dimension=walked.dimension + (0 if target.is_exact else int(target.observed.sum())),
        log_evidence=None,
        effective_sample_size=effective,
        trustworthy=r_hat < R_HAT_LIMIT and effective > LEAST_EFFECTIVE,
        diagnostics={"chains": CHAINS, "steps": steps, "r_hat": r_hat},
    )


def _summarise_walk(coordinates: Coordinates, walked: Walk, why: str) -> Summary:
    target = coordinates.target
    coupled = target.coupled[target.model.pair_state]
    mean = np.where(coupled, walked.q_mean.value, 0.0)
    variance = np.where(coupled, walked.q_second.value - mean**2, target.prior_scale**2)
    return Summary(
        target=target,
        epsilon=0.0,
        engine="chart",
        reason=f"{why}: elliptical slice chains instead",
        table=walked.table,
        q_mean=mean,
        q_sd=np.sqrt(np.maximum(variance, 0.0)),
        dimension=coordinates.dimension,
        log_evidence=None,
        effective_sample_size=walked.effective_sample_size,
        trustworthy=walked.trustworthy,
        diagnostics={
            "chains": len(walked.table.weight),
            "steps": walked.steps,
            "r_hat": walked.r_hat,
            "evaluations_per_step": walked.evaluations,
            "coordinates": "centred" if coordinates.centred else "non-centred",
        },
    )


def by_mixture(target: Target, why: str, seed: int) -> Summary:
    """Proposition 1 by enumeration."""
    from bellmanifold.posteriors.mixture import mixture

    found = mixture(target, accuracy=ACCURACY, seed=seed)
    return Summary(
        target=target,
        epsilon=0.0,
        engine="mixture",
        reason=f"{why}: enumeration of {found.n_cells} cells",
        table=found.table,
        q_mean=found.q_mean,
        q_sd=found.q_sd,
        dimension=int(target.coupled[target.model.pair_state].sum()),
        log_evidence=Estimate.of(found.log_evidence, found.log_evidence_se),
        effective_sample_size=None,
        diagnostics={"cells": found.n_cells, "dropped_bound": found.dropped, "points": found.points},
    )


def by_rejection(target: Target, seed: int) -> Summary:
    """Rejection sampling from the prior, for tiny problems and the uniform kernel."""
    from bellmanifold.posteriors.rejection import rejection

    found = rejection(target, seed=seed)
    return Summary(
        target=target,
        epsilon=0.0,
        engine="rejection",
        reason=f"asked for: prior draws that satisfy every observed equation; stopped after {found.draws} of them",
        table=found.table,
        q_mean=found.q_mean,
        q_sd=found.q_sd,
        dimension=int(target.coupled[target.model.pair_state].sum()),
        log_evidence=Estimate.of(found.log_evidence, found.log_evidence_se),
        effective_sample_size=float(found.accepted),
        diagnostics={"accepted": found.accepted, "draws": found.draws},
    )


def posterior_draws(target: Target, proper_only: bool, seed: int) -> xarray.Dataset:
    """Draws of the action values: importance draws of the chart where they weigh well, else the ends of chains."""
    from bellmanifold.chart import batch_chart
    from bellmanifold.posteriors.draws import chain_draws, weighted_draws

    for components in covering(target, batch_chart(target.model), proper_only):
        drawn = weighted_draws(components, DRAWS, seed)
        if 1.0 / float((drawn.weight**2).sum()) >= ENOUGH:
            return drawn
    coordinates = components[0] if components[0].centred else covering(target, components[0].chart, proper_only)[0][0]
    return chain_draws(coordinates, seed)


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
    summaries = [posterior(model, data, epsilon=epsilon, prior_scale=scale, seed=seed) for scale in prior_scales]
    found = [summary.log_evidence for summary in summaries]
    if any(evidence is None for evidence in found):
        raise UnsupportedError("no evidence was computed for some prior scale: importance weights failed there")
    values = [(float(evidence.value), float(evidence.se)) for evidence in found if evidence is not None]
    value, se = np.array(values).T
    return EvidenceCurve(np.array(prior_scales, dtype=np.float64), value, se)
