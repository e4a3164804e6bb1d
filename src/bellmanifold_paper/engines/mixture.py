"""Proposition 1: the relaxed posterior as a mixture of truncated Gaussians, summed over all its cells.

**Cells.** The Bellman residual g_i(theta) = theta_i - sum p(s'|i) max_a theta(s', a) is piecewise linear. Fix the
greedy action ell(s) of every *coupled* state s (a state the data touch): on the cell E^ell where these actions are
greedy it is g = B theta, with B_ij = 1(j = i) - sum_s' p(s'|i) 1(j = (s', ell(s'))). So within a cell the posterior
is a Gaussian, cut off at the cell's walls theta(s, ell(s)) - theta(s, a) >= 0. With prior N(0, sigma^2 I) and a
Gaussian kernel of width e_i for pair i, E = diag(e), the weight of a cell is

    N(r; 0, sigma^2 B B' + E^2)  x  P(D >= 0),    D = all differences theta(s, ell(s)) - theta(s, a) under N(mu, Sigma),

the Gaussian posterior. B depends only on the choices at *successors* of observed pairs; the other coupled states only
add walls. Pairs of states that are not coupled keep their prior. `bellmanifold_paper.engines.cells` computes mu and a
factor of Sigma = G G'.

**Moments.** `orthant` writes D = mean + T w with w = Q'z, where theta = mu + G z. So theta = mu + H w + rest with H =
G Q and a rest independent of w. Given the cell, E[theta] = mu + H E[w], Var[theta] = H Var[w] H' + Var[rest]: the
moments of w, averaged over the cells with their weights, give those of every action value. A covariance is kept for
each cell, not for each replicate, so the error of a standard deviation comes from estimating a few cells once more.

**Which cells count.** An orthant is no more probable than its least probable wall, which is cheap to compute. Cells are
taken in descending order of that bound until the remaining ones cannot exceed a fraction 1e-6 of the total so far; the
bound is reported. Then lattice points are given to cells in proportion to their standard deviation, round after round,
until every action probability has the accuracy asked for. One pass yields every answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from scipy.special import log_ndtr

from bellmanifold._util.progress import expect
from bellmanifold.errors import UnsupportedError
from bellmanifold.gaussian.chunks import chunks
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.estimated import Estimate, ratio, systematic
from bellmanifold.posteriors.policies import PolicyTable, action_probabilities
from bellmanifold.posteriors.result import Result, root
from bellmanifold.posteriors.target import Target
from bellmanifold_paper.engines.cells import Cells, Gaussians, Square, cells_of
from bellmanifold_paper.engines.orthant import Orthants, join, orthants
from bellmanifold_paper.engines.sequential import EXACT_DIMENSION, Staircase, arrange

Rows = Int[np.ndarray, "rows"]
Own = Float[np.ndarray, "own"]
Walls = Int[np.ndarray, "cells dim"]
Weights = Float[np.ndarray, "replicates rows"]

REPLICATES = 16
AGAIN = 16
"""Number of cells that are estimated once more, one replicate at a time, for the errors of standard deviations."""


@dataclass(frozen=True)
class Work:
    """How the cells are processed; `Budget` limits their number and sets the accuracy of the answers.

    Attributes:
        negligible: cells are left out if all of them together cannot exceed this share of the posterior.
        pilot: total number of points for all first estimates.
        most: largest number of points of a cell in each replicate.
        growth: largest factor by which points grow from round to round.
        chunk: size of the Gaussians that are computed at a time.
        first_block, block: number of cells processed together: few at first, as the first ones may be all that count.
        stored: up to this size the Gaussians of all cells are kept instead of being computed again.
    """

    negligible: float = 1e-6
    pilot: int = 2**17
    most: int = 2**16
    growth: float = 16.0
    chunk: int = 2**18
    first_block: int = 128
    block: int = 1024
    stored: int = 2**26


USUAL = Work()


def mixture(target: Target, budget: Budget | None = None, why: str = "asked for", work: Work = USUAL) -> Result:
    """The posterior by enumeration of all cells; the result's table holds the cells that count.

    The target must have a Gaussian kernel of positive width and no more cells than the budget allows.

    >>> from bellmanifold import envs
    >>> from bellmanifold.problem.dataset import Dataset
    >>> from bellmanifold.posteriors.target import relaxed_target
    >>> found = mixture(relaxed_target(Dataset.complete(envs.four_state()), epsilon=0.01, prior_scale=2.0))
    >>> found.diagnostics["cells"], np.round(found.q_mean.value, 1)
    (4, array([-4., -5., -2., -2., -1.]))
    """
    budget = Budget() if budget is None else budget
    cells = cells_of(target, budget.cells)
    generator = np.random.default_rng(budget.seed)
    bounds, stored = _bounds(cells, work)
    cells = replace(cells, stored=stored)
    if not np.isfinite(bounds.max()):
        raise UnsupportedError(
            "mixture: rewards are so large relative to the kernel widths that their squares leave the range of "
            "floating point: use --engine chart or a larger epsilon"
        )
    blocks, rest = _best_first(cells, bounds, generator, work)
    blocks = _refine(target, cells, blocks, budget, generator, work)
    return _result(target, cells, blocks, rest, why, generator)


# --- which cells count ----------------------------------------------------------------------------------------------


def _bounds(cells: Cells, work: Work = USUAL) -> tuple[Float[np.ndarray, "cells"], Gaussians | None]:
    """For every cell the log of evidence times its least probable wall's probability; and the Gaussians if few."""
    own, fastest = len(cells.own), cells.fastest
    stored = Gaussians.room(cells.n_choices, own) if cells.n_choices * own**2 <= work.stored else None
    bound = np.empty(cells.n_cells)
    for part in chunks(cells.n_choices, own**2 * fastest, work.chunk):
        choice = np.arange(part.start, part.stop)
        gaussians = cells.compute(choice)
        cell = np.arange(choice[0] * fastest, (choice[-1] + 1) * fastest)
        greedy, other = cells.walls(cell)
        row = np.repeat(choice - part.start, fastest)[:, None]
        mean = gaussians.mean[row, greedy] - gaussians.mean[row, other]
        sd = _wall_sd(gaussians.factor, row, greedy, other)
        with np.errstate(divide="ignore", invalid="ignore"):
            edge = np.where(sd > 0, mean / sd, np.where(mean < 0, -np.inf, np.inf))
        wall = log_ndtr(edge).min(axis=1, initial=0.0)
        bound[cell] = np.repeat(gaussians.log_evidence, fastest) + wall
        if stored is not None:
            stored.put(part, gaussians)
    return bound, stored


def _wall_sd(
    factor: Square, row: Int[np.ndarray, "cells 1"], greedy: Walls, other: Walls
) -> Float[np.ndarray, "cells dim"]:
    """Standard deviations of differences: from covariances, or, more slowly, from the factor where these cancel."""
    covariance = factor @ factor.transpose(0, 2, 1)
    sizes = covariance[row, greedy, greedy] + covariance[row, other, other]
    variance = sizes - 2.0 * covariance[row, greedy, other]
    if np.all(variance > 1e-6 * sizes):
        return np.sqrt(variance)
    return np.linalg.norm(factor[row, greedy] - factor[row, other], axis=2)


@dataclass(frozen=True, eq=False)
class _Block:
    """Some cells that have been estimated. Blocks are small, as large arrays would cost time in page faults.

    Attributes:
        cell: numbers of the cells, shape (rows,).
        log_evidence: log evidence of each, shape (rows,).
        staircase: their differences in triangular form.
        estimate: their orthant probabilities.
        points: points per replicate in the estimate of each, shape (rows,).
        spent: points per replicate spent on each, including earlier estimates, shape (rows,).
    """

    cell: Rows
    log_evidence: Float[np.ndarray, "rows"]
    staircase: Staircase
    estimate: Orthants
    points: Rows
    spent: Rows

    def log_weight(self) -> Float[np.ndarray, "replicates rows"]:
        return self.log_evidence + self.estimate.log_probability


def _weights(blocks: list[_Block]) -> tuple[float, Weights]:
    """The largest log weight of a cell, and the weights of all cells relative to it."""
    log_weight = np.concatenate([block.log_weight() for block in blocks], axis=1)
    top = float(log_weight.max())
    return top, np.exp(log_weight - top)


def _by_block(blocks: list[_Block], numbers: np.ndarray) -> Iterator[tuple[_Block, np.ndarray]]:
    """Every block with its part of an array that has all cells along its last axis."""
    starts = np.cumsum([len(block.cell) for block in blocks])[:-1]
    return zip(blocks, np.split(numbers, starts, axis=-1), strict=True)


def _best_first(
    cells: Cells, bound: Float[np.ndarray, "cells"], generator: np.random.Generator, work: Work = USUAL
) -> tuple[list[_Block], float]:
    """Estimate cells in descending order of their bounds until the others are negligible.

    Also returns the logarithm of the sum of the bounds of the others.
    """
    order = np.argsort(-bound, kind="stable")
    left = np.append(np.logaddexp.accumulate(bound[order][::-1])[::-1], -np.inf)
    points = 2 ** int(np.clip(np.log2(work.pilot / (REPLICATES * len(order))), 0, 6))
    blocks: list[_Block] = []
    total, begin, size = -np.inf, 0, work.first_block
    while begin < len(order) and left[begin] > total + np.log(work.negligible):
        expect("cells", len(order), begin)
        blocks.append(_estimate(cells, order[begin : begin + size], points, generator))
        log_weight = blocks[-1].log_weight()
        total = float(np.logaddexp(total, np.logaddexp.reduce(log_weight, axis=None) - np.log(len(log_weight))))
        begin, size = begin + size, min(2 * size, work.block)
    return blocks, float(left[min(begin, len(order))])


def _estimate(cells: Cells, block: Rows, points: int, generator: np.random.Generator) -> _Block:
    gaussians, at = cells.gaussians(block)
    greedy, other = cells.walls(block)
    row = at[:, None]
    mean = gaussians.mean[row, greedy] - gaussians.mean[row, other]
    staircase = arrange(mean, gaussians.factor[row, greedy] - gaussians.factor[row, other])
    estimate = orthants(staircase, points, REPLICATES, generator)
    every = np.full(len(block), points)
    return _Block(block, gaussians.log_evidence[at], staircase, estimate, every, every)


# --- how precisely --------------------------------------------------------------------------------------------------


def _table(target: Target, cells: Cells, blocks: list[_Block], weight: Weights, dropped: float = 0.0) -> PolicyTable:
    policy = np.concatenate([cells.policies(block.cell) for block in blocks])
    return PolicyTable(target.coupled, cells.own[policy], weight, resolution=dropped)


def _refine(
    target: Target, cells: Cells, blocks: list[_Block], budget: Budget, generator: np.random.Generator, work: Work
) -> list[_Block]:
    """Add points where they help most until every action probability is accurate enough."""
    while blocks[0].staircase.dimension > EXACT_DIMENSION:
        _, weight = _weights(blocks)
        worst = float(action_probabilities(target.model, _table(target, cells, blocks, weight)).se.max())
        if not worst > budget.accuracy:
            break
        before = np.concatenate([block.points for block in blocks])
        after = _allocation(weight, before, min((worst / (0.9 * budget.accuracy)) ** 2, work.growth), work.most)
        spent = sum(int(block.spent.sum()) for block in blocks)
        soon = int(after.sum()) + int(np.sort(after)[-AGAIN:].sum())
        if np.array_equal(before, after) or REPLICATES * (spent + soon) > budget.cell_points:
            break
        expect("points", budget.points_needed(REPLICATES * spent, worst, budget.cell_points), REPLICATES * spent)
        blocks = [_again(block, points, generator) for block, points in _by_block(blocks, after)]
    return blocks


def _allocation(weight: Weights, points: Rows, growth: float, most: int = USUAL.most) -> Rows:
    """Points for each cell, powers of two in proportion to its standard deviation, that divide the variance by growth.

    A cell's standard deviation is taken to be at least a tenth of its weight, as a first estimate may be too small.
    """
    single = np.maximum(weight.std(axis=0, ddof=1), 0.1 * weight.mean(axis=0)) * np.sqrt(points)
    wanted = growth * single.sum() / (single**2 / points).sum() * single
    return np.maximum(points, 2 ** np.ceil(np.log2(np.clip(wanted, 1.0, most))).astype(np.int64))


def _again(block: _Block, points: Rows, generator: np.random.Generator) -> _Block:
    """Estimate all cells again, including those that get no more points.

    The estimates that determined the numbers of points are dropped: a cell whose first estimate happened to be small
    got few points because of that, and would keep an estimate that is too small.
    """
    parts = [
        orthants(block.staircase.cells(np.flatnonzero(points == number)), int(number), REPLICATES, generator)
        for number in np.unique(points)
    ]
    back = np.argsort(np.argsort(points, kind="stable"))
    return replace(block, estimate=join(parts).rows(back), points=points, spent=block.spent + points)


# --- the answers ----------------------------------------------------------------------------------------------------


def _result(
    target: Target, cells: Cells, blocks: list[_Block], rest: float, why: str, generator: np.random.Generator
) -> Result:
    top, weight = _weights(blocks)
    total = weight.sum(axis=1)
    again = _again_apart(blocks, weight, generator)
    q_mean, q_sd = _moments(target, cells, blocks, again, top, weight, generator)
    spread = total.std(ddof=1) / np.sqrt(len(total)) if len(total) > 1 else 0.0
    exact = blocks[0].staircase.dimension <= EXACT_DIMENSION
    dropped = float(np.exp(rest - top) / total.mean())
    spent = sum(int(block.spent.sum()) for block in blocks) + sum(
        int(block.points[rows].sum()) for block, rows, _ in again
    )
    return Result(
        table=_table(target, cells, blocks, weight, dropped),
        q_mean=q_mean,
        q_sd=q_sd,
        log_evidence=Estimate.of(top + np.log(total.mean()), spread / total.mean()),
        engine="mixture",
        reason=f"{why}: enumeration of {cells.n_cells} cells",
        dimension=len(cells.own),
        diagnostics={"cells": cells.n_cells, "dropped_bound": dropped, "points": 0 if exact else REPLICATES * spent},
    )


Chosen = list[tuple[_Block, Int[np.ndarray, "_"], Float[np.ndarray, "_"]]]
"""Cells of a block with the same number of points, and how many cells each stands for."""


def _moments(
    target: Target,
    cells: Cells,
    blocks: list[_Block],
    again: Chosen,
    top: float,
    weight: Weights,
    generator: np.random.Generator,
) -> tuple[Estimate, Estimate]:
    """Posterior mean and standard deviation of each action value.

    Deviations are taken from the mean of the heaviest cell, so that a small spread about large values is not lost.
    """
    cell = np.concatenate([block.cell for block in blocks])
    average = weight.mean(axis=0)
    whole = average.sum()
    gaussians, at = cells.gaussians(cell[[int(np.argmax(average))]])
    reference = gaussians.mean[at[0]]
    part, square = np.zeros((len(weight), len(cells.own))), np.zeros(len(cells.own))
    for block, own in _by_block(blocks, weight):
        within = _within(cells, block.cell, block.staircase, reference)
        part += within.sums(own, block.estimate)
        square += (own.mean(axis=0) / whole) @ within.squares(block.estimate)
    mean = ratio(part, weight.sum(axis=1))
    variance = np.maximum(square - mean.value**2, 0.0)
    centre = reference + mean.value
    total = _variance_of_squares(cells, again, top, centre, variance, generator)
    sd = root(Estimate(variance, np.sqrt(total / len(weight)) / whole))
    q_mean = _everywhere(target, target.prior.mean, Estimate.of(centre, mean.se))
    return q_mean, _everywhere(target, target.prior.sd, sd)


def _again_apart(blocks: list[_Block], weight: Weights, generator: np.random.Generator) -> Chosen:
    """Cells to be estimated once more: all if they are few.

    Otherwise they are drawn in proportion to their expected noise: that of their weights, and that of the moments
    within, whose variance is inversely proportional to the number of points.
    """
    if len(weight) == 1:
        return []
    noise = weight.var(axis=0, ddof=1) + weight.mean(axis=0) ** 2 / np.concatenate([block.points for block in blocks])
    count = np.bincount(systematic(noise, AGAIN, generator), minlength=len(noise))
    stands_for = np.divide(count * noise.sum(), AGAIN * noise, out=np.zeros(len(noise)), where=count > 0)
    if len(noise) <= AGAIN:
        stands_for = np.ones(len(noise))
    found: Chosen = []
    for block, own in _by_block(blocks, stands_for):
        for number in np.unique(block.points[own > 0]):
            rows = np.flatnonzero((own > 0) & (block.points == number))
            found.append((block, rows, own[rows]))
    return found


def _variance_of_squares(
    cells: Cells, again: Chosen, top: float, centre: Own, variance: Own, generator: np.random.Generator
) -> Own:
    """The variance, in one replicate, of the sum over cells of weight times (E[(theta - centre)^2] - variance).

    Cells are estimated independently, so their variances add up; each cell estimated again stands for several.
    """
    total = np.zeros(len(cells.own))
    for block, rows, stands_for in again:
        each = np.repeat(rows, REPLICATES)
        staircase = block.staircase.cells(each)
        estimate = orthants(staircase, int(block.points[rows[0]]), 1, generator)
        square = _within(cells, block.cell[each], staircase, centre).squares(estimate)
        share = np.exp(block.log_evidence[each] + estimate.log_probability[0] - top)
        error = (share[:, None] * (square - variance)).reshape(-1, REPLICATES, len(total))
        total += stands_for @ np.var(error, axis=1, ddof=1)
    return total


def _everywhere(target: Target, prior: Float[np.ndarray, "pairs"], own: Estimate) -> Estimate:
    """An estimate for all pairs from that for pairs of coupled states; the others keep their prior."""
    value, se = prior.copy(), np.zeros(target.model.n_pairs)
    value[target.own], se[target.own] = own.value, own.se
    return Estimate.of(value, se)


@dataclass(frozen=True, eq=False)
class _Within:
    """theta - reference = shift + slope w + rest in some cells; holds transposed slopes and the variance of rest."""

    shift: Float[np.ndarray, "rows own"]
    slope: Float[np.ndarray, "rows dim own"]
    rest: Float[np.ndarray, "rows own"]

    def sums(self, weight: Weights, estimate: Orthants) -> Float[np.ndarray, "replicates own"]:
        """Weighted sum of E[theta - reference] over the cells, in each replicate."""
        rows, dim, own = self.slope.shape
        moved = (weight[:, :, None] * estimate.first).reshape(len(weight), rows * dim)
        return weight @ self.shift + moved @ self.slope.reshape(rows * dim, own)

    def squares(self, estimate: Orthants) -> Float[np.ndarray, "rows own"]:
        """E[(theta - reference)^2] in each cell, from all replicates together."""
        deviation = self.shift + np.einsum("cdi,cd->ci", self.slope, estimate.mean())
        inside = np.einsum("cdi,cdi->ci", estimate.spread @ self.slope, self.slope)
        return np.asarray(deviation**2 + np.maximum(inside, 0.0) + self.rest)


def _within(cells: Cells, cell: Rows, staircase: Staircase, reference: Own) -> _Within:
    """Action values in some cells, whose differences have a triangular form."""
    gaussians, at = cells.gaussians(cell)
    factor = gaussians.factor[at]
    slope = staircase.direction[:, : len(cells.own)].transpose(0, 2, 1) @ factor.transpose(0, 2, 1)
    whole = np.einsum("cij,cij->ci", factor, factor)
    rest = np.maximum(whole - np.einsum("cdi,cdi->ci", slope, slope), 0.0)
    return _Within(gaussians.mean[at] - reference, slope, rest)
