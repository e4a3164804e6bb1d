"""Importance sampling with quasi-random points of a posterior's reference distribution.

`by_importance` is the engine: it draws a pilot sample in each of the coordinates that cover the posterior, keeps those
with the largest effective sample size, and doubles the points until the answers are as accurate as requested.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bellmanifold._util.progress import expect
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.cuts import Covering, other_cut
from bellmanifold.posteriors.most_probable import largest_error
from bellmanifold.posteriors.nets import Nets
from bellmanifold.posteriors.pieces import REPLICATES
from bellmanifold.posteriors.policies import improper_mass
from bellmanifold.posteriors.result import Result
from bellmanifold.posteriors.system import chart_of
from bellmanifold.posteriors.target import Target
from bellmanifold.problem.costs import cost_unit, worded

GOOD = 0.2
"""Coordinates in which more than this share of the points is effective need no comparison with others."""
DISAGREEMENT = 5.0
"""Two cuts disagree if their improper masses differ by more than this many standard errors and the accuracy."""
MORE_FOR_MEANS, SHARP = 4, 0.01
"""With open laws, up to MORE_FOR_MEANS times the points needed for probabilities are drawn, until the standard errors
of means are at most SHARP times the standard deviations of the values."""
UNEVEN = "importance weights are too uneven"


def by_importance(target: Target, cover: Covering, budget: Budget) -> Result:
    """Importance sampling through the chart, in the first coordinates that are good enough, or else the best ones."""
    chart, largest = chart_of(target, budget.chart), cover.largest
    most_points = min(budget.points, budget.held // max(1, largest))
    log2_size = budget.pilot
    if budget.samples is not None:
        if budget.samples * largest > budget.held:
            most = budget.held // largest
            raise BadInputError(f"samples is {budget.samples}: at most {most} points of {largest} coordinates fit")
        log2_size = int(np.ceil(np.log2(max(1.0, budget.samples / REPLICATES))))
    pilot = min(budget.pilot, log2_size)
    expect("points", REPLICATES * 2**pilot)
    tried: list[tuple[float, Nets, Result]] = []
    for components in cover.ways:
        nets = Nets(components, chart, budget.seed)
        nets.scout(pilot)
        result = nets.sample(pilot)
        effective = result.effective_sample_size or 0.0
        tried.append((effective, nets, result))
        if effective > GOOD * result.diagnostics["points"]:
            break
    _, nets, result = max(tried, key=lambda entry: entry[0])
    if result.diagnostics["unsolvable_share"] == 1.0:
        raise UnsupportedError(
            worded(
                "no parameter with a proper policy fits the data: costs are negative rewards, check the signs of "
                "rewards and beliefs (some observed loop pays whatever the residuals are), or use --discount 0.99",
                cost_unit(target.model),
            )
            if target.proper_only
            else "no parameter fits the data: use a larger --epsilon, or --kernel gaussian"
        )
    if budget.samples is None:
        result = _until_accurate(nets, result, most_points, budget)
    elif log2_size > budget.pilot:
        expect("points", REPLICATES * 2**log2_size, result.diagnostics["points"])
        result = nets.sample(log2_size)
    effective = result.effective_sample_size or 0.0
    uneven = "" if effective >= budget.enough else f"{UNEVEN} (effective sample size {effective:.0f})"
    result = result.doubted(uneven)
    if nets.components[0].cut:
        result = _confirm(nets, result, budget)
    return result.doubted(cover.missed)


def _until_accurate(nets: Nets, result: Result, most_points: int, budget: Budget) -> Result:
    """Double the points until probabilities, and under open laws also means, are as accurate as requested.

    They are not doubled if even of `most_points` too few would be effective.
    """
    target, points = nets.components[0].target, result.diagnostics["points"]
    if (result.effective_sample_size or 0.0) * most_points < budget.enough * points:
        return result
    while 2 * points <= most_points:
        error = largest_error(target.model, result.table, budget.top, budget.accuracy)
        if error <= budget.accuracy:
            result = replace(result, largest_error=error)
            most_points = min(most_points, MORE_FOR_MEANS * points)
            if target.laws is None or _has_sharp_means(target, result) or 2 * points > most_points:
                return result
        expect("points", budget.points_needed(points, error, most_points), points)
        result = nets.sample(nets.size.bit_length())  # of a power of two, this is its logarithm plus 1
        points = result.diagnostics["points"]
    return result


def _has_sharp_means(target: Target, result: Result) -> bool:
    """Whether means of action values under open laws are accurate relative to their spread.

    A few points, with loops that are rarely left, may dominate a mean while carrying little probability. Under a flat
    prior such means may not exist at all, so none are required to be.
    """
    if target.prior.flat:
        return True
    rounding = 1e-9 * np.abs(result.q_mean.value)
    return bool((result.q_mean.se <= SHARP * result.q_sd.value + rounding).all())


def _confirm(nets: Nets, result: Result, budget: Budget) -> Result:
    """The result, with a doubt added if a second cut of the observed loops yields another improper mass."""
    first = nets.components[0]
    target = first.target
    confirmable = result.trustworthy and target.improper_loops and first.covers_improper
    other = other_cut(nets.components, budget.cut) if confirmable else None
    if other is None:
        return result
    second = Nets(other, nets.chart, budget.seed + (1 << 40)).sample(budget.pilot)  # other points than the first cut's
    mass, again = (improper_mass(target.model, found.table, target.observed) for found in (result, second))
    gap = abs(float(mass.value) - float(again.value))
    uneven = (second.effective_sample_size or 0.0) < budget.enough
    agree = uneven or gap <= max(budget.accuracy, DISAGREEMENT * float(np.hypot(mass.se, again.se)))
    doubt = "" if agree else "two ways to cut the observed loops open disagree on the improper mass"
    return result.doubted(doubt, second_cut=second.diagnostics["cut"], second_cut_improper_mass=float(again.value))
