"""Posterior draws of everything that the value of a policy depends on: action values, payments and laws.

In a draw theta a solved pair i pays what its equation implies, payment_i = theta_i - sum p_i(s') max_a theta(s', a),
with the law p_i of the draw; if its reward is exact, that is the reward. A free pair pays its value theta_u and ends:
its successors are unknown, and theta_u is its value under optimal play. So each draw is a complete decision problem M~,
in which every policy has a value, and the optimal value is V*(s) = max_a theta(s, a).

Draws come from importance sampling where the weights are even enough, otherwise from chains; they are independent, or
ordered chain by chain. They are divided into blocks of neighbours, and the blocks into two halves: what is chosen on
one half is evaluated on the other, and the variance between blocks gives standard errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold._util.progress import expect
from bellmanifold.chart.batch import BatchChart, TooLargeError
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.draws import Points, complete, covering_if_small, equal_weight, importance_points
from bellmanifold.posteriors.estimated import Estimate, effective_size, ratio, systematic
from bellmanifold.posteriors.laws import LEAST_LOG
from bellmanifold.posteriors.leaks import lacking_variance
from bellmanifold.posteriors.rounding import tie_width
from bellmanifold.posteriors.system import Drawn, chart_of
from bellmanifold.posteriors.target import Target
from bellmanifold.posteriors.walk import CHAINS, ROUND, SPARSE_CHAINS, check_found, check_sparse, fresh_walker

PerDraw = Float[np.ndarray, "draws"]
Half = Bool[np.ndarray, "draws"]
"""Mask of the draws that belong to a half."""
BLOCKS = 64
"""Number of blocks of draws; half of them choose, the other half evaluate."""
MOST_DRAWS, LEAST_DRAWS, NUMBERS = 2**15, 2**12, 2**21
"""Bounds on the number of importance draws, and on the number of values they hold."""
MORE = 2**17
"""Number of points from which draws of uneven weight are resampled; fewer if memory is short."""
LAW_DRAWS, LAW_NUMBERS = 2**11, 2**23
"""Number of draws that keep their own laws, and of probabilities in the laws from which they are resampled."""
STRETCHES, STRETCH, LEAST_STRETCH, FULL = 16, 50, 10, 8
"""Points kept per chain, steps between two of them (most and least), and the number of rounds for the most steps."""
LEAST_STRETCHES, SPARSE_STRETCH = 16, 4
"""Least number of points per chain on sparse systems, and the steps between them."""
TIE, WIDTHS = 1e-6, 100.0
"""Values count as equal if they differ by less than this fraction of their size, or by less than this many widths of
the residuals that split ties at epsilon 0."""


@dataclass(frozen=True, eq=False)
class JointDraws:
    """Draws with their weights.

    Attributes:
        target: the posterior.
        chart: chart of its problem; None if it does not fit a batch.
        q: action values of every pair, shape (draws, pairs).
        weight: normalised weights, shape (draws,).
        law: laws of open pairs in the order of the target's laws, shape (rows, nexts, draws); None if all laws are
            given.
        walked: whether the draws are ordered chain by chain; then each half has its own chains.
    """

    target: Target
    chart: BatchChart | None
    q: Float[np.ndarray, "draws pairs"]
    weight: PerDraw
    law: Float[np.ndarray, "rows nexts draws"] | None = None
    walked: bool = False

    @cached_property
    def effective(self) -> float:
        """Effective sample size."""
        return effective_size(self.weight)

    @cached_property
    def best(self) -> Float[np.ndarray, "draws states"]:
        """V* of every draw."""
        return self.target.model.best(self.q)

    @cached_property
    def at_start(self) -> PerDraw:
        """V* of every draw, expected over the starts."""
        return self.best @ self.target.model.initial

    @cached_property
    def pay(self) -> Float[np.ndarray, "pairs draws"]:
        """What each pair pays when it is played: its payment if it is solved, its whole value if it is free."""
        target = self.target
        ahead = target.model.expected_next(self.best)
        if self.law is not None and target.laws is not None:
            value = np.append(self.best.T, np.zeros((1, len(self.q))), axis=0)
            ahead[:, target.laws.pairs] = np.einsum("rnd,nd->dr", self.law, value)
        pay = np.where(target.observed, self.q - ahead, self.q)
        return np.ascontiguousarray(np.where(target.exact, target.reward, pay).T)

    @cached_property
    def tie(self) -> float:
        """Difference below which values count as equal."""
        return max(WIDTHS * tie_width(self.target), TIE * float(self.weight @ np.abs(self.at_start)))

    @cached_property
    def sd(self) -> Float[np.ndarray, "pairs"]:
        """Standard deviation of every action value; 0 where it is certain."""
        centred = self.q - self.weight @ self.q
        sd = np.sqrt(self.weight @ centred**2)
        return np.where(sd > self.tie, sd, 0.0)

    @cached_property
    def block(self) -> Int[np.ndarray, "draws"]:
        """The block of every draw: consecutive draws share one."""
        return np.arange(len(self.weight)) * BLOCKS // len(self.weight)

    @cached_property
    def halves(self) -> tuple[Half, Half]:
        """The two halves of the draws."""
        first = self.block < BLOCKS // 2
        return first, ~first

    def mean(self, values: Float[np.ndarray, "*k draws"], half: Half) -> Float[np.ndarray, "*k"]:
        """Weighted mean over one half."""
        weight = self.weight[half]
        return values[..., half] @ weight / max(float(weight.sum()), 1e-300)

    def estimate(self, values: PerDraw, judges: Half | None = None) -> Estimate:
        """Weighted mean over all draws or some blocks, with its standard error from the variance between blocks."""
        weight = self.weight if judges is None else self.weight * judges
        used = np.unique(self.block[weight > 0]) if judges is not None else slice(None)
        part = np.bincount(self.block, weight * values, BLOCKS)[used]
        return ratio(part, np.bincount(self.block, weight, BLOCKS)[used])


def given_draws(target: Target, budget: Budget, q: Float[np.ndarray, "draws pairs"]) -> JointDraws:
    """Draws made by an engine, with equal weights, ordered chain by chain."""
    try:
        chart = chart_of(target, budget.chart)
    except TooLargeError:
        chart = None
    return JointDraws(target, chart, q, equal_weight(len(q)))


def joint_draws(target: Target, budget: Budget, most: int = MOST_DRAWS, only_observed: bool = False) -> JointDraws:
    """At most `most` importance draws from a posterior if their weights are even enough, otherwise draws from chains.

    Improper policies must have posterior mass 0. With `only_observed` nothing is read about unobserved pairs. Raises
    UnsupportedError if no draws can be made.
    """
    try:
        chart = chart_of(target, budget.chart, only_observed)
    except TooLargeError as refusal:
        return _sparse(target, budget, str(refusal))
    cover = covering_if_small(target, budget)
    count = int(np.clip(NUMBERS // target.model.n_pairs, LEAST_DRAWS, MOST_DRAWS))
    more = max(count, min(MORE, budget.kept // target.model.n_pairs))
    if target.laws is not None:
        count = more = min(count, max(LAW_DRAWS, LAW_NUMBERS // max(1, target.laws.counts.size)))
    for way in [] if lacking_variance(target) else cover.ways:
        if way[0].dimension > budget.coordinates:
            continue
        for points in sizes(min(count, most), more):
            found = importance_points(way, chart, points, budget.seed)
            if effective_size(found.weight) >= budget.enough:
                return _draw_by_importance(target, chart, found, min(count, most), budget.seed)
    return _draw_by_walk(target, chart, budget)


def sizes(wanted: int, more: int) -> list[int]:
    """Numbers of points to weight: as many as are wanted, then more in case their weights are too uneven.

    >>> sizes(20_971, 131_072)
    [20971, 131072]
    """
    return sorted({wanted, more})


def known_draws(target: Target, budget: Budget, most: int) -> JointDraws:
    """`joint_draws` for an agent, which must not read unknown pairs: in a chart of the known pairs.

    Parameters that are known to be improper are left out.
    """
    if target.loops and not target.is_exact:
        target = replace(target, proper_only=True)
    return joint_draws(target, budget, most, only_observed=True)


def _draw_by_importance(target: Target, chart: BatchChart, found: Points, count: int, seed: int) -> JointDraws:
    """Importance draws in random order, resampled if there are more than are wanted."""
    rng = np.random.default_rng([seed, 1])
    if target.laws is not None:
        count = min(count, LAW_DRAWS)
    if len(found.weight) > count:
        rows = rng.permutation(systematic(found.weight, count, rng))
        weight = equal_weight(count)
    else:
        rows = rng.permutation(len(found.weight))
        weight = found.weight[rows]
    return JointDraws(target, chart, found.q[rows], weight, _laws(target, found.laws, rows))


def _laws(target: Target, drawn: list[Drawn], rows: Int[np.ndarray, "draws"]) -> Float[np.ndarray, "r n d"] | None:
    """Open laws of some draws, discounted."""
    if target.laws is None:
        return None
    log_law = np.concatenate([np.asarray(part.log_law) for part in drawn], axis=-1)[..., rows]
    law = np.exp(np.maximum(log_law, LEAST_LOG))
    law *= target.laws.discount
    law[:, -1] += 1.0 - target.laws.discount
    return law


def _draw_by_walk(target: Target, chart: BatchChart, budget: Budget) -> JointDraws:
    """Points of chains in the chart."""
    stretch = max(LEAST_STRETCH, STRETCH * min(budget.rounds, FULL) // FULL)
    stretches = STRETCHES if target.laws is None else LAW_DRAWS // CHAINS
    warm = ROUND + ROUND * min(budget.rounds, FULL) // FULL
    expect("steps", warm + stretches * stretch)
    return _points(target, chart, budget, CHAINS, warm, stretches, stretch)


def _sparse(target: Target, budget: Budget, why: str) -> JointDraws:
    """Points of chains on sparse systems."""
    check_sparse(target, why)
    if target.laws is not None:
        raise UnsupportedError(f"{why}, and advice needs the laws of every draw: use --laws deterministic")
    steps = (budget.sparse_steps if budget.samples is None else budget.samples) // SPARSE_CHAINS
    fits = budget.kept // (SPARSE_CHAINS * target.model.n_pairs)
    stretches = max(LEAST_STRETCHES, min(fits, steps // SPARSE_STRETCH))
    expect("steps", SPARSE_CHAINS * (steps // 4 + stretches * SPARSE_STRETCH))
    return _points(target, None, budget, SPARSE_CHAINS, steps // 4, stretches, SPARSE_STRETCH)


def _points(
    target: Target, chart: BatchChart | None, budget: Budget, chains: int, warm: int, stretches: int, stretch: int
) -> JointDraws:
    """Positions of the chains after each stretch of steps, ordered chain by chain."""
    walker, rng = fresh_walker(target, chart, budget, chains)
    walker.advance(rng, warm)
    kept = walker.ends().kept
    check_found(int(kept.sum()))
    parts = []
    for _ in range(stretches):
        walker.advance(rng, stretch)
        parts.append(walker.ends(kept))
    order = np.arange(len(parts) * parts[0].q.shape[1]).reshape(len(parts), -1).T.ravel()
    q = complete(walker.coordinates, np.concatenate([part.q for part in parts], axis=1)[:, order], rng)
    law = _laws(target, [part.laws for part in parts if part.laws], order)
    return JointDraws(target, chart, q, equal_weight(len(q)), law, walked=True)
