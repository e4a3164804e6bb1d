"""Which action values have a mean.

Under a prior of values every moment exists: the density is a normal one times bounded factors (leaks, where they
matter, are what `bellmanifold.posteriors.leaks` checks). A prior that is flat over rewards bounds no value. There a
value is the largest, over proper policies, of

    sum over pairs of (expected plays of the pair) x (what the pair pays).

*No long stays*: with deterministic moves, or without an observed cycle, a proper policy plays a pair at most once; with
a discount of 0.99 it visits a state at most a hundred times. If it never visits one more than MOST_VISITS times
(`bellmanifold.posteriors.visits`), |Q| is at most so many times the sum of all |payments|, and has a mean if they do.

*Random moves in a cycle*: with probability 0.2 a driver misses the turn, and whoever goes to and fro between two
junctions arrives in the end, after 1/L moves, where L may be 1e-9. In a draw where to and fro pays g > 0 on average,
the value is g / L. Such draws are few, and hold all of the mean: under given laws it exists on paper, but it is a sum
over ever rarer draws, and no sample says anything about it. Under open laws L is drawn too, and often it does not exist
even on paper (`heavy_tails`).

So where such draws are possible, as many points as the answer rests on (at most MOST) are drawn again, and the tail of
w |q - median| is judged (`bellmanifold.posteriors.pareto`). The engine's own points may hold rarer draws: a mean whose
standard error exceeds SHARE of the points' mean deviation does not count, either.
Means and standard deviations that do not exist are NaN in arrays and null in JSON. Probabilities are not affected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from bellmanifold.chart.batch import TooLargeError
from bellmanifold.errors import quote
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.draws import importance_points, point_draws
from bellmanifold.posteriors.kernels import Gaussian, StudentT
from bellmanifold.posteriors.leaks import HeavyTails, heavy_tails
from bellmanifold.posteriors.pareto import SHARE, LargestOf
from bellmanifold.posteriors.result import Result
from bellmanifold.posteriors.system import chart_of
from bellmanifold.posteriors.target import Target
from bellmanifold.posteriors.visits import most_visited

BATCH, LEAST, MOST = 2**13, 2**15, 2**17
"""Points drawn at a time (fewer where every point has large laws of its own), and least and largest number of them."""
HELD = 2**24
"""Largest number of action values or landings in a batch."""
ROUNDING = 1e-6
"""Standard errors below this fraction of a value are rounding."""


@dataclass(frozen=True, eq=False)
class Tails:
    """What does not exist.

    Attributes:
        mean: pairs whose value has no mean, hence no standard deviation, shape (pairs,).
        sd: pairs whose value has no standard deviation, shape (pairs,).
        exact: why, where it is known for certain; None if draws show it.
    """

    mean: Bool[np.ndarray, "pairs"]
    sd: Bool[np.ndarray, "pairs"]
    exact: HeavyTails | None = None


def may_be_long(target: Target) -> bool:
    """Whether some action values may have no mean; False where it can be proved that all have one."""
    if not target.prior.flat or target.costs_only:
        return False
    if target.laws is not None or isinstance(target.kernel, StudentT):
        return True
    if target.is_acyclic or not (np.diff(target.model.next_start)[target.observed] > 1).any():
        return False
    return bool(target.loops) or most_visited(target.model, target.observed) is not None


def tails_of(target: Target, result: Result, budget: Budget) -> Tails:
    """The action values without a mean."""
    none = np.zeros(target.model.n_pairs, dtype=bool)
    if not may_be_long(target):
        return Tails(none, none)
    long, exact = _long_tails(target, result, budget), heavy_tails(target)
    if exact is None:
        return Tails(long, long)
    reach = exact.reaching(target)
    return Tails(long | reach if exact.what == "mean" else long, long | reach, exact)


def _long_tails(target: Target, result: Result, budget: Budget) -> Bool[np.ndarray, "pairs"]:
    largest, whole, centre = LargestOf(), 0.0, None
    for q, weight in _batches(target, result, budget):
        finite = np.where(np.isfinite(q) & (weight[:, None] > 0), q, 0.0)
        centre = np.median(finite, axis=0) if centre is None else centre
        away = np.abs(finite - centre)
        away[away <= ROUNDING * np.abs(centre)] = 0.0
        largest.add((weight[:, None] * away).T)
        whole += float(weight.sum())
    if centre is None:
        return np.zeros(target.model.n_pairs, dtype=bool)
    # a standard error beyond all numbers is NaN, and larger than any bound
    blurred = ~(result.q_mean.se <= SHARE * largest.total / whole + ROUNDING * np.abs(centre))
    return np.asarray(largest.rule_the_mean() | blurred)


def _batches(target: Target, result: Result, budget: Budget) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Points of the posterior with weights on one scale, a batch at a time; none if the problem is too large."""
    if result.points is not None:
        q = point_draws(target, result.points, budget.seed)
        yield q, np.ones(len(q))
        return
    try:
        chart = chart_of(target, budget.chart)
    except TooLargeError:
        return
    numbers = target.model.n_pairs + (0 if target.laws is None else target.laws.counts.size)
    batch = min(BATCH, max(1, HELD // numbers))
    wanted = int(np.clip(result.diagnostics.get("points", 0), LEAST, MOST))
    for k in range(-(-wanted // batch)):
        points = importance_points([Coordinates(target)], chart, batch, budget.seed + (k << 34))
        if np.isfinite(points.log_total):
            yield points.q, points.weight * np.exp(points.log_total)


def sentence(tails: Tails, target: Target) -> str:
    """The missing means in words, with a remedy; empty if there are none."""
    if tails.exact is not None:
        return tails.exact.sentence(target)
    if not tails.mean.any():
        return ""
    first, others = int(np.argmax(tails.mean)), int(tails.mean.sum()) - 1
    named = ", ".join(quote(name) for name in target.model.pair_name(first))
    more = f" and of {others} more" if others else ""
    return (
        f"the mean of Q({named}){more} does not exist as far as draws can tell, because {_cause(target)} "
        f"(probabilities are sound): {remedy(target)}"
    )


def _cause(target: Target) -> str:
    if isinstance(target.kernel, StudentT):
        return f"{target.kernel} noise, or a loop that pays in some draws, has rare and huge values"
    if target.laws is not None:
        return "in some draws a loop is hardly ever left"
    return "in some draws a loop pays, round after round, and is left in the end"


def remedy(target: Target) -> str:
    """What to do about means that do not exist."""
    if target.laws is not None:
        return "give a number as --prior-scale, or --discount 0.99"
    if isinstance(target.kernel, Gaussian) and target.noise_scale is None and not target.epsilon:
        return "--costs-only says that no move pays; --discount 0.99 bounds values"
    return "use gaussian noise of known --noise-sd and --costs-only, or --discount 0.99"
