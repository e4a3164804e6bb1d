"""Orthant probabilities of Gaussian vectors (the probability that every component is positive), for many at once.

Let D = mean + F z with z ~ N(0, I) in R^rank: a Gaussian vector of dimension d given by a *factor* F of its
covariance F F'. (A factor resolves standard deviations down to 1e-16 of the largest one; a covariance, which holds
their squares, only down to 1e-8.) This module computes P(D >= 0) and the first two moments of D given D >= 0, with
standard errors.

**Sequential conditioning** (Geweke, Hajivassiliou, Keane; Genz). Write F = T Q' with T lower triangular and the
columns of Q orthonormal. Then w = Q'z is standard normal, D = mean + T w, and D >= 0 reads, one row after the other,

    w_j >= -edge_j,   edge_j = (mean_j + sum_{i<j} T_ji w_i) / T_jj.

Draw each w_j from the normal distribution truncated below at -edge_j. Every draw lands in the orthant, and the product
of the probabilities Phi(edge_j) along the way is an unbiased estimate of P(D >= 0). Draws weighted by these products
are a sample of D given D >= 0. The last w_d need not be drawn: its truncated normal distribution has known moments.

**Tilting and order.** Draws around a shift m_j instead of 0 keep the *relative* error small however small the
probability is, and the hardest rows come first: see `bellmanifold_paper.engines.sequential`.

**Points.** The uniform numbers behind the draws are a rank-1 lattice, shifted at random, independently for every cell
and every replicate, and folded by the tent map |2u - 1|. The spread of the replicates gives a standard error; and as
cells are independent, errors average out over a sum of many cells.

**Degenerate rows.** Where T_jj = 0 (to rounding), row j is determined by the rows before it: it contributes a factor
of 0 or 1, and w_j remains a free standard normal, which later rows may depend on.

**Small dimensions are exact.** d = 0: 1. d = 1: Phi. d = 2: the remaining integral over w_1 of phi(w_1) Phi(edge_2),
a log-concave function, is computed to rounding by composite Gauss-Legendre panels, refined geometrically towards its
mode and towards the point where edge_2 changes sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp

from bellmanifold.gaussian.chunks import chunks
from bellmanifold_paper.engines.sequential import DEGENERATE, EXACT_DIMENSION, FARTHEST, Staircase, hazard_of

CHUNK = 2**15
"""Points treated at a time, so that the working arrays stay in the processor's cache."""
NODES = 2**11
"""Approximate number of quadrature nodes per cell in two dimensions."""
SMALLEST_PROBABILITY = 1e-280
"""Below this the normal distribution function is computed in logs."""
REACH = 14.0
"""A log-concave density no wider than the normal has negligible mass this far from its mode."""
SMALLEST_UNIFORM = 2.0**-60


@dataclass(frozen=True, eq=False)
class Orthants:
    """Estimates for every cell; exact ones have a single replicate.

    Attributes:
        log_probability: log P(D >= 0), shape (replicates, cells).
        first: E[w | D >= 0], shape (replicates, cells, dim).
        spread: the covariance of w given D >= 0, pooled over replicates, shape (cells, dim, dim).
    """

    log_probability: Float[np.ndarray, "replicates cells"]
    first: Float[np.ndarray, "replicates cells dim"]
    spread: Float[np.ndarray, "cells dim dim"]

    def rows(self, chosen: Int[np.ndarray, "some"]) -> Orthants:
        """The estimates for a subset of the cells."""
        return Orthants(self.log_probability.take(chosen, 1), self.first.take(chosen, 1), self.spread.take(chosen, 0))

    def summary(self) -> tuple[Float[np.ndarray, "cells"], Float[np.ndarray, "cells"]]:
        """The log of each probability, and its relative standard error."""
        top, weight = self._weights()
        average = weight.mean(axis=0)
        spread = weight.std(axis=0, ddof=1) / np.sqrt(len(weight)) if len(weight) > 1 else 0.0 * average
        with np.errstate(divide="ignore"):
            return top + np.log(average), np.divide(spread, average, out=np.zeros_like(spread), where=average > 0)

    def mean(self) -> Float[np.ndarray, "cells dim"]:
        """E[w | D >= 0], pooled over replicates; 0 where the probability is 0."""
        _, weight = self._weights()
        total = weight.sum(axis=0)
        return np.einsum("rc,rcd->cd", weight / np.where(total > 0, total, 1.0), self.first)

    def _weights(self) -> tuple[Float[np.ndarray, "cells"], Float[np.ndarray, "replicates cells"]]:
        top = _finite(self.log_probability.max(axis=0))
        return top, np.exp(self.log_probability - top)


def orthants(
    staircase: Staircase, points: int, replicates: int, generator: np.random.Generator, chunk: int = CHUNK
) -> Orthants:
    """P(D >= 0) and the moments of w given D >= 0, for every cell.

    Replicates are independent, each with its own random shift of `points` (a power of two) lattice points per cell;
    up to dimension 2 there is a single one, which is exact.
    """
    exact = staircase.dimension <= EXACT_DIMENSION
    parts = []
    for part in chunks(len(staircase), NODES if exact else replicates * points, chunk):
        rows = _rows(staircase.cells(part))
        if staircase.dimension == 0:
            parts.append(
                Orthants(np.zeros((1, rows.cells)), np.zeros((1, rows.cells, 0)), np.zeros((rows.cells, 0, 0)))
            )
        elif exact:
            parts.append(_sweep(rows, *_quadrature(rows)))
        else:
            parts.append(_sweep(rows, *_draw(rows, _uniform(rows, points, replicates, generator)), points))
    return join(parts)


def _uniform(rows: _Rows, points: int, replicates: int, generator: np.random.Generator) -> Drawn:
    """Lattice points, shifted at random for each cell and replicate, and folded."""
    moved = generator.random((rows.dimension - 1, replicates, 1, rows.cells))
    uniform = lattice(points, rows.dimension - 1)[:, None, :, None] + moved
    uniform -= np.floor(uniform)
    uniform *= 2.0
    uniform -= 1.0
    np.abs(uniform, out=uniform)
    return np.maximum(uniform, SMALLEST_UNIFORM, out=uniform)


def join(parts: list[Orthants]) -> Orthants:
    """Concatenate the estimates of several batches of cells."""
    return Orthants(
        np.concatenate([part.log_probability for part in parts], axis=1),
        np.concatenate([part.first for part in parts], axis=1),
        np.concatenate([part.spread for part in parts]),
    )


@cache
def lattice(points: int, dim: int) -> Float[np.ndarray, "dim points"]:
    """The rank-1 lattice k (z_1, z_2, ...) / points mod 1, with a component-by-component generating vector.

    Every z_j is the best of some odd candidates by the worst-case error P_2 for periodic functions, with weights
    that decrease with the coordinate because the first coordinates of sequential conditioning matter most. The
    candidates are drawn at random (with a fixed seed): those of a regular pattern would share its defects.
    """
    k = np.arange(points)
    generator = np.random.default_rng(points)
    rows, kernel = [], np.ones(points)
    for j in range(dim):
        candidates = 2 * generator.integers(0, max(1, points // 2), size=1 if j == 0 else 48) + 1
        trial = (candidates[:, None] * k % points) / points
        factor = 1.0 + 2.0 * np.pi**2 / (1.0 + j) * (trial * trial - trial + 1.0 / 6.0)
        best = int(np.argmin(factor @ kernel))
        rows.append(trial[best])
        kernel = kernel * factor[best]
    return np.stack(rows) if rows else np.zeros((0, points))


def _finite(value: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Logarithms that can be subtracted: 0 instead of -inf."""
    return np.where(np.isfinite(value), value, 0.0)


def _cut_moments(edge: Float[np.ndarray, "*shape"]) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
    """Mean and variance of a standard normal given that it exceeds -edge; untruncated where the edge is infinite."""
    edge = np.where(np.isinf(edge), FARTHEST, edge)
    mean = hazard_of(edge)
    variance = 1.0 - mean * (mean + edge)
    far = edge < -100.0  # the difference cancels: use the first terms of its expansion
    inverse = edge[far] ** -2.0
    variance[far] = inverse * (1.0 - 6.0 * inverse)
    return mean, variance


Points = Float[np.ndarray, "replicates points cells"]
Drawn = Float[np.ndarray, "some replicates points cells"]


@dataclass(frozen=True, eq=False)
class _Rows:
    """A chunk of a staircase with the cells along the last axis."""

    mean: Float[np.ndarray, "dim cells"]
    lower: Float[np.ndarray, "dim dim cells"]
    degenerate: Bool[np.ndarray, "dim cells"]
    shift: Float[np.ndarray, "rest cells"]

    @property
    def dimension(self) -> int:
        return self.mean.shape[0]

    @property
    def cells(self) -> int:
        return self.mean.shape[1]

    def edge(self, j: int, drawn: Drawn) -> Points:
        """How many conditional standard deviations row j lies above 0 given w_0, ..., w_(j-1); +-inf if degenerate."""
        flat = self.degenerate[j]
        unit = np.where(flat, 1.0, self.lower[j, j])
        edge = np.einsum("ic,irpc->rpc", self.lower[j, :j] / unit, drawn[:j])
        edge += self.mean[j] / unit
        np.clip(edge, -FARTHEST, FARTHEST, out=edge)
        if flat.any():
            decided = np.where(edge >= -10.0 * DEGENERATE * (1.0 + np.abs(self.mean[j])), np.inf, -np.inf)
            edge = np.where(flat, decided, edge)
        return edge


def _rows(staircase: Staircase) -> _Rows:
    lower = np.ascontiguousarray(staircase.lower.transpose(1, 2, 0))
    degenerate = np.asarray(np.einsum("iic->ic", lower) <= DEGENERATE, dtype=np.bool_)
    return _Rows(np.ascontiguousarray(staircase.mean.T), lower, degenerate, np.ascontiguousarray(staircase.shift.T))


def _draw(rows: _Rows, uniform: Drawn) -> tuple[Drawn, Points]:
    """Draw all coordinates but the last, overwriting the uniform numbers; return them and their log weights."""
    log_weight = np.zeros(uniform.shape[1:])
    for j, shift in enumerate(rows.shift):
        edge = rows.edge(j, uniform)
        edge += shift
        log_probability, w = _cut_normal(uniform[j], edge)
        if rows.degenerate[j].any():
            w = np.where(rows.degenerate[j], -ndtri(uniform[j]), w)
        w += shift
        log_weight += log_probability
        log_weight += shift * (0.5 * shift - w)
        uniform[j] = w
    return uniform, log_weight


def _cut_normal(uniform: Points, edge: Points) -> tuple[Points, Points]:
    """The log probability that a standard normal exceeds -edge, and a draw of it given that, by inversion."""
    probability, log_probability, far = _normal(edge)
    drawn = np.asarray(-ndtri(uniform * probability))
    drawn[far] = -ndtri_exp(np.log(uniform[far]) + log_probability[far])
    return log_probability, drawn


def _normal(
    edge: Float[np.ndarray, "*shape"],
) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"], Bool[np.ndarray, "*shape"]]:
    """Phi(edge), its log, and where Phi is so small that it is replaced by 1 and its log comes from `log_ndtr`."""
    probability = np.asarray(ndtr(edge))
    far = probability < SMALLEST_PROBABILITY
    probability[far] = 1.0
    log_probability = np.log(probability)
    log_probability[far] = log_ndtr(edge[far])
    return probability, log_probability, far


def _sweep(rows: _Rows, drawn: Drawn, log_weight: Points, points: int = 1) -> Orthants:
    """Integrate the last row by its known moments and sum over points.

    Sums over drawn points are divided by their number, `points`; quadrature nodes already include their weights.
    """
    edge = rows.edge(rows.dimension - 1, drawn)
    log_weight = log_weight + _normal(edge)[1]
    mean, variance = _cut_moments(edge)
    top = _finite(log_weight.max(axis=(0, 1)))
    weight = np.exp(log_weight - top)
    total = weight.sum(axis=1)
    with np.errstate(divide="ignore"):
        log_probability = top + np.log(total) - np.log(points)
    known = np.concatenate([drawn, np.broadcast_to(mean, weight.shape)[None]])
    first = np.einsum("rpc,irpc->rci", weight, known) / np.where(total > 0, total, 1.0)[:, :, None]
    weight /= np.where(total.sum(axis=0) > 0, total.sum(axis=0), 1.0)
    spread = _covariance(known, weight)
    spread[:, -1, -1] += np.einsum("rpc,rpc->c", weight, variance)
    return Orthants(log_probability, first, spread)


def _covariance(values: Drawn, weight: Points) -> Float[np.ndarray, "cells dim dim"]:
    """Covariances of weighted points; centred first (in place), so that a small spread about large values survives."""
    dim = len(values)
    covariance = np.empty((weight.shape[2], dim, dim))
    values -= np.einsum("rpc,irpc->ic", weight, values)[:, None, None]
    for j in range(dim):
        covariance[:, : j + 1, j] = np.einsum("rpc,irpc->ci", weight * values[j], values[: j + 1])
        covariance[:, j, :j] = covariance[:, :j, j]
    return covariance


def _quadrature(rows: _Rows) -> tuple[Drawn, Float[np.ndarray, "1 nodes cells"]]:
    """Nodes for w_0 in two dimensions, with the log of phi times their weights; no coordinates in one dimension."""
    if rows.dimension == 1:
        return np.zeros((0, 1, 1, rows.cells)), np.zeros((1, 1, rows.cells))
    start = rows.edge(0, np.zeros((0, 1, 1, rows.cells)))[0, 0]
    breaks = _breakpoints(rows, np.where(rows.degenerate[0], -np.inf, -start))
    nodes, weights = np.polynomial.legendre.leggauss(16)
    width = np.diff(breaks, axis=0)
    w = (breaks[:-1] + 0.5 * width * (nodes[:, None, None] + 1.0)).reshape(1, -1, rows.cells)
    mass = (0.5 * width * weights[:, None, None]).reshape(1, -1, rows.cells)
    with np.errstate(divide="ignore"):
        log_weight = np.log(mass) - 0.5 * w * w - 0.5 * np.log(2.0 * np.pi)
    return w[None], np.where(np.isneginf(start), -np.inf, log_weight)


def _breakpoints(rows: _Rows, begin: Float[np.ndarray, "cells"]) -> Float[np.ndarray, "breaks cells"]:
    """Ascending end points of quadrature panels on [begin, infinity) for phi(w) Phi(offset + slope w)."""
    diagonal = np.where(rows.degenerate[1], DEGENERATE, rows.lower[1, 1])
    offset, slope = rows.mean[1] / diagonal, rows.lower[1, 0] / diagonal
    mode = np.maximum(_mode(offset, slope), begin)
    edge = np.clip(offset + slope * mode, -FARTHEST, FARTHEST)
    hazard = hazard_of(edge)
    curvature = 1.0 + slope**2 * np.maximum(hazard * (edge + hazard), 0.0)
    finest = 0.25 / (np.abs(slope * hazard - mode) + np.sqrt(curvature))
    low, high = np.maximum(begin, mode - REACH), mode + REACH
    with np.errstate(divide="ignore", invalid="ignore"):
        turn = np.where(slope != 0.0, -rows.mean[1] / rows.lower[1, 0], mode)
    turn = np.clip(turn, low - REACH, high + REACH)
    away = [_steps(mode, finest), _steps(turn, 0.25 / (1.0 + np.abs(slope)))]
    return np.sort(np.clip(np.concatenate([low[None], *away, high[None]]), low, high), axis=0)


def _steps(centre: Float[np.ndarray, "cells"], finest: Float[np.ndarray, "cells"]) -> Float[np.ndarray, "steps cells"]:
    """The centre and points on both sides of it, at geometrically growing distances that start at `finest`."""
    away = finest * (2.0 * REACH / finest) ** np.linspace(0.0, 1.0, 33)[:, None]
    return np.concatenate([centre[None], centre + away, centre - away])


def _mode(offset: Float[np.ndarray, "cells"], slope: Float[np.ndarray, "cells"]) -> Float[np.ndarray, "cells"]:
    """The mode of the log-concave phi(w) Phi(offset + slope w), by bisection on its logarithmic derivative."""
    steep = np.abs(slope)
    near, far = np.zeros_like(offset), steep * hazard_of(np.clip(offset, -FARTHEST, FARTHEST))
    for _ in range(100):
        middle = 0.5 * (near + far)
        rising = steep * hazard_of(np.clip(offset + steep * middle, -FARTHEST, FARTHEST)) > middle
        near, far = np.where(rising, middle, near), np.where(rising, far, middle)
    return np.sign(slope) * near
