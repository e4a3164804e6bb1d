"""Importance sampling: weigh quasi-random points of a posterior's reference law.

The points are independent scramblings of one Sobol net; every answer is a ratio of weighted sums, its standard error
comes from the spread between scramblings, and the effective sample size (sum w)^2 / sum w^2 says how evenly the weights
lie. Everything goes through the compiled programs in pieces of one size: more points never mean another compilation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Bool, Float, Int, UInt64

from bellmanifold.posteriors.coordinates import Coordinates, Structure, Weighed
from bellmanifold.posteriors.points import largest_normal_points, uniform_points
from bellmanifold.posteriors.policies import Estimate, PolicyTable, ratio

PIECE = 4096
"""Points that go through a compiled program at a time; also the smallest net."""
REPLICATES = 16


@dataclass(frozen=True, eq=False)
class Sample:
    """A weighed sample of a posterior, reduced to what answers need.

    Attributes:
        table: greedy policies and their weights.
        q_mean, q_second: first and second moments of the action values, shape (pairs,).
        log_evidence: log of the mean weight, with its standard error.
        effective_sample_size: (sum w)^2 / sum w^2.
        points: number of points weighed.
        unsolvable: share of points without a proper solution.
        tied_states: states in which observed actions tie exactly at some point (exact posteriors only).
    """

    table: PolicyTable
    q_mean: Estimate
    q_second: Estimate
    log_evidence: Estimate
    effective_sample_size: float
    points: int
    unsolvable: float
    tied_states: Int[np.ndarray, "tied"]


class _Piece(NamedTuple):
    log_weight: Float[np.ndarray, "batch"]
    code: UInt64[np.ndarray, "batch"]
    choice: Int[np.ndarray, "states batch"]
    log_scale: float
    first: Float[np.ndarray, "actions states"]
    second: Float[np.ndarray, "actions states"]
    tied: Bool[np.ndarray, "states"]


def sample(coordinates: Coordinates, log2_size: int, seed: int) -> Sample:
    """Weigh 16 scrambled nets of 2^log2_size points each (at least 4,096)."""
    size = max(PIECE, 2**log2_size)
    weighed = [_weigh_piece(coordinates, x) for x in _pieces(coordinates, size, seed)]
    log_weight = np.concatenate([piece.log_weight for piece in weighed])
    top = log_weight.max()
    reference = top if np.isfinite(top) else 0.0
    weight = np.exp(log_weight - reference)
    per_piece = np.exp(np.array([piece.log_scale for piece in weighed]) - reference)
    moments = [
        np.stack([getattr(piece, name) * factor for piece, factor in zip(weighed, per_piece, strict=True)])
        for name in ("first", "second")
    ]
    shape = (REPLICATES, size // PIECE)
    whole = weight.reshape(REPLICATES, -1).sum(axis=1)
    first, second = (_by_pair(coordinates, m.reshape(*shape, *m.shape[1:]).sum(axis=1), whole) for m in moments)
    mean_weight = ratio(whole / size, np.ones(REPLICATES))
    with np.errstate(divide="ignore", invalid="ignore"):
        evidence = Estimate(np.log(mean_weight.value) + reference, mean_weight.se / mean_weight.value)
        effective = float(weight.sum() ** 2 / (weight**2).sum())
    return Sample(
        _table(coordinates, weighed, weight),
        first,
        second,
        evidence,
        effective if np.isfinite(effective) else 0.0,
        len(weight),
        float(np.isneginf(log_weight).mean()),
        np.sort(coordinates.chart.order[np.any([piece.tied for piece in weighed], axis=0)]),
    )


def _by_pair(
    coordinates: Coordinates,
    sums: Float[np.ndarray, "replicates actions states"],
    whole: Float[np.ndarray, "replicates"],
) -> Estimate:
    """A moment of every pair of a coupled state; 0 elsewhere."""
    model, stand = coordinates.target.model, coordinates.stand_in
    action, state = coordinates.chart.place
    estimate = ratio(sums[:, action[stand], state[stand]], whole)
    coupled = coordinates.target.coupled[model.pair_state]
    return Estimate(np.where(coupled, estimate.value, 0.0), np.where(coupled, estimate.se, 0.0))


def _pieces(coordinates: Coordinates, size: int, seed: int) -> list[Float[np.ndarray, "actions states batch"]]:
    """The points by slot, in pieces: free pairs first, because they matter most and Sobol's first dimensions are best."""
    model, chart = coordinates.target.model, coordinates.chart
    free, residual = np.flatnonzero(coordinates.free), np.flatnonzero(coordinates.residual)
    dimension = len(free) + len(residual)
    group = np.bincount(coordinates.stand_in, minlength=model.n_pairs)
    arguments = (max(dimension, 1), int(np.log2(size)), REPLICATES, seed)
    uniform = coordinates.target.kernel == "uniform" and not coordinates.target.is_exact
    pieces = []
    for begin in range(0, REPLICATES * size, PIECE):
        own = slice(begin, begin + PIECE)
        x = np.zeros((*chart.slot.shape, PIECE))
        for row, pair in enumerate(free):
            x[chart.place[0][pair], chart.place[1][pair]] = largest_normal_points(*arguments, int(group[pair]))[
                row, own
            ]
        rows = slice(len(free), dimension)
        at = (chart.place[0][residual], chart.place[1][residual])
        x[at] = (
            2 * uniform_points(*arguments)[rows, own] - 1
            if uniform
            else largest_normal_points(*arguments, 1)[rows, own]
        )
        pieces.append(x)
    return pieces


def _weigh_piece(coordinates: Coordinates, x: Float[np.ndarray, "actions states batch"]) -> _Piece:
    weighed = coordinates.weigh(jnp.asarray(x), largest=True)
    log_scale, first, second = _moments(coordinates.structure, weighed)
    tied = _tied(coordinates.structure.solved, jnp.asarray(100 * coordinates.tie_width), weighed)
    return _Piece(
        np.asarray(weighed.log_weight),
        np.asarray(weighed.code),
        np.asarray(weighed.choice),
        float(log_scale),
        np.asarray(first),
        np.asarray(second),
        np.asarray(tied),
    )


@jax.jit
def _moments(s: Structure, weighed: Weighed) -> tuple[Array, Array, Array]:
    """Weighted sums of q and q^2, relative to the piece's largest weight.

    A pair that stands for k exchangeable ones holds their maximum m. Each of them is the maximum with probability 1/k and
    otherwise a normal below m, whose moments are -sigma phi/Phi and sigma^2 - sigma m phi/Phi at m/sigma.
    """
    top = jnp.max(weighed.log_weight)
    scale = jnp.where(jnp.isfinite(top), top, 0.0)
    weight = jnp.exp(weighed.log_weight - scale)
    sigma, k = s.prior_scale, s.alternatives[:, None].astype(jnp.float64)
    q = jnp.where(jnp.isfinite(weighed.q), weighed.q, 0.0)
    z = q / sigma
    hazard = jnp.exp(-0.5 * z**2 - 0.5 * jnp.log(2 * jnp.pi) - log_ndtr(z))
    shared = s.free[..., None] & (k > 1)
    first = jnp.where(shared, (q - (k - 1) * sigma * hazard) / k, q)
    second = jnp.where(shared, (q**2 + (k - 1) * (sigma**2 - sigma * q * hazard)) / k, q**2)
    return scale, first @ weight, second @ weight


@jax.jit
def _tied(solved: Bool[Array, "actions states"], width: Float[Array, ""], weighed: Weighed) -> Bool[Array, "states"]:
    """States in which the two best actions are observed and closer than the infinitesimal residuals explain."""
    best = jnp.max(weighed.q, axis=0)
    close = (best - weighed.q < width) & solved[..., None]
    return jnp.any(jnp.sum(close, axis=0) > 1, axis=-1)


def _table(coordinates: Coordinates, weighed: list[_Piece], weight: Float[np.ndarray, "points"]) -> PolicyTable:
    """Merge equal policies."""
    target, chart = coordinates.target, coordinates.chart
    code = np.concatenate([piece.code for piece in weighed])
    _, first, row = np.unique(code, return_index=True, return_inverse=True)
    rows = len(first)
    replicate = np.repeat(np.arange(REPLICATES), len(code) // REPLICATES)
    summed = np.bincount(replicate * rows + row, weight, REPLICATES * rows).reshape(REPLICATES, rows)
    choice = np.stack([weighed[k // PIECE].choice[:, k % PIECE] for k in first])
    pair = chart.slot[choice, np.arange(chart.slot.shape[1])]
    by_state = np.empty_like(pair)
    by_state[:, chart.order] = pair
    keep = summed.sum(axis=0) > 0
    return PolicyTable(target.coupled, by_state[keep][:, target.coupled], summed[:, keep], coordinates.stand_in)
