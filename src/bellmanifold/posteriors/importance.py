"""Importance sampling: weigh quasi-random points of a posterior's reference distribution.

`by_importance` is the engine: it weighs a pilot in each of the coordinates that cover the posterior, takes those that
weigh best, and doubles the points until the answers are as accurate as asked for.
"""

from __future__ import annotations

import numpy as np

from bellmanifold.chart.batch import BatchChart
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.meter import expect
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.cuts import Covering, other_cut
from bellmanifold.posteriors.nets import Nets, Sample
from bellmanifold.posteriors.pieces import REPLICATES
from bellmanifold.posteriors.policies import improper_mass, largest_error
from bellmanifold.posteriors.result import Result
from bellmanifold.posteriors.system import chart_of
from bellmanifold.posteriors.target import Target

GOOD = 0.2
"""Coordinates in which this share of the points is effective need no comparison with others."""
DISAGREEMENT = 5.0
"""Two cuts disagree if their improper masses differ by more than this many standard errors, and by the accuracy."""
MORE_FOR_MEANS, SHARP = 4, 0.01
"""With open laws, up to MORE_FOR_MEANS times the points needed for probabilities are drawn, until the standard errors
of means are at most SHARP times the standard deviations of the values."""
UNEVEN = "importance weights are too uneven"


def by_importance(target: Target, cover: Covering, budget: Budget) -> Result:
    """Importance sampling through the chart, in the coordinates that weigh best.

    Args:
        target: the posterior.
        cover: coordinates that cover it.
        budget: bounds the work.

    Raises:
        UnsupportedError: if no point fits the data.
    """
    chart, largest = chart_of(target, budget.chart), cover.largest
    most_points = min(budget.points, budget.held // max(1, largest))
    if budget.samples is not None and budget.samples * largest > budget.held:
        most = budget.held // largest
        raise BadInputError(f"samples is {budget.samples}: at most {most} points of {largest} coordinates fit")
    asked = budget.pilot
    if budget.samples is not None:
        asked = int(np.ceil(np.log2(max(1.0, budget.samples / REPLICATES))))
    expect("points", REPLICATES * 2 ** min(budget.pilot, asked))
    nets, drawn = _best_way(cover, chart, min(budget.pilot, asked), budget.seed)
    if drawn.unsolvable == 1.0:
        raise UnsupportedError(
            "no parameter with a proper policy fits the data: costs are negative rewards, check the signs of rewards "
            "and beliefs (some observed loop pays whatever the residuals are), or use --discount 0.99"
            if target.proper_only
            else "no parameter fits the data: use a larger --epsilon, or --kernel gaussian"
        )
    if budget.samples is not None:
        expect("points", REPLICATES * 2**asked, drawn.points)
        drawn = nets.sample(asked)
    else:
        hopeless = drawn.effective_sample_size * most_points < budget.enough * drawn.points
        while not hopeless and 2 * drawn.points <= most_points:
            error = largest_error(target.model, drawn.table, budget.top, budget.accuracy)
            if error <= budget.accuracy:
                most_points = min(most_points, MORE_FOR_MEANS * drawn.points)
                if target.laws is None or _has_sharp_means(target, drawn) or 2 * drawn.points > most_points:
                    break
            expect("points", budget.points_needed(drawn.points, error, most_points), drawn.points)
            drawn = nets.sample(nets.log2_size + 1)
    result = _result(nets, drawn, budget)
    if nets.components[0].cut:
        result = _confirmed(nets, result, budget)
    return result.doubted(cover.missed)


def _has_sharp_means(target: Target, drawn: Sample) -> bool:
    """Whether means of action values are known well beside their spread, under open laws and a normal prior.

    There a few points, with loops that are rarely left, dominate a mean while carrying little probability. Under a flat
    prior such means may not exist at all.
    """
    if target.prior.flat:
        return True
    rounding = 1e-9 * np.abs(drawn.q_mean.value)
    return bool((drawn.q_mean.se <= SHARP * drawn.q_sd.value + rounding).all())


def _best_way(cover: Covering, chart: BatchChart, log2_size: int, seed: int) -> tuple[Nets, Sample]:
    """Weigh a pilot in each of the coordinates, and go on with those that weigh best."""
    tried: list[tuple[Nets, Sample]] = []
    for components in cover.ways:
        nets = Nets(components, chart, seed)
        nets.scout(log2_size)
        drawn = nets.sample(log2_size)
        tried.append((nets, drawn))
        if drawn.effective_sample_size > GOOD * drawn.points:
            break
    return max(tried, key=lambda entry: entry[1].effective_sample_size)


def _result(nets: Nets, drawn: Sample, budget: Budget) -> Result:
    coordinates = nets.components[0]
    target, model = coordinates.target, coordinates.target.model
    restricted = not target.is_exact and not coordinates.covers_improper
    uneven = f"{UNEVEN} (effective sample size {drawn.effective_sample_size:.0f})"
    return Result(
        table=drawn.table,
        q_mean=drawn.q_mean,
        q_sd=drawn.q_sd,
        log_evidence=None if restricted or target.prior.flat else drawn.log_evidence,
        noise_scale=drawn.noise_scale,
        laws=drawn.laws,
        engine="chart",
        reason=f"importance sampling in {coordinates.way} coordinates of the chart",
        dimension=coordinates.dimension,
        effective_sample_size=drawn.effective_sample_size,
        doubts=() if drawn.effective_sample_size >= budget.enough else (uneven,),
        diagnostics={
            "points": drawn.points,
            "coordinates": coordinates.way,
            "unsolvable_share": drawn.unsolvable,
            "cut": [list(model.pair_name(i)) for i in coordinates.cut],
            "ties_split": [model.states[s] for s in drawn.tied_states],
        },
    )


def _confirmed(nets: Nets, result: Result, budget: Budget) -> Result:
    """The result, no longer trusted if a second cut of the observed loops finds another improper mass."""
    first = nets.components[0]
    target = first.target
    confirmable = result.trustworthy and target.improper_loops and first.covers_improper
    other = other_cut(nets.components, budget.cut) if confirmable else None
    if other is None:
        return result
    others = Nets(other, nets.chart, budget.seed + (1 << 40))  # other points than the first cut's
    second = _result(others, others.sample(budget.pilot), budget)
    mass, again = (improper_mass(target.model, found.table, target.observed) for found in (result, second))
    gap = abs(float(mass.value) - float(again.value))
    agree = not second.trustworthy or gap <= max(budget.accuracy, DISAGREEMENT * float(np.hypot(mass.se, again.se)))
    doubt = "" if agree else "two ways to cut the observed loops open disagree on the improper mass"
    return result.doubted(doubt, second_cut=second.diagnostics["cut"], second_cut_improper_mass=float(again.value))
