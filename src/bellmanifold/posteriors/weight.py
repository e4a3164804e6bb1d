"""The weights of a batch of points: from coordinates to action values and weights in one compiled program.

`bellmanifold.posteriors.coordinates` derives the weights; those of loops that are cut open are computed by
`bellmanifold.posteriors.cut_weight`.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtr, ndtri
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt64

from bellmanifold.chart.layout import Law, Solved
from bellmanifold.posteriors.cut_weight import Heights, weigh_cut
from bellmanifold.posteriors.system import Drawn, Point, System, from_normals, normal_point

LEAST = 1e-300
"""Smaller probabilities are replaced by this one: such points have no weight."""


class Weighed(NamedTuple):
    """Points with their weights.

    Attributes:
        log_weight: shape (batch,).
        choice: greedy action in each of the layout's states, shape (states, batch).
        code: identifies the greedy policy: its number, or a hash where that is too large, shape (batch,).
        q: action values (the maximum, for pairs that stand for several), shape (pairs, batch).
        noise_scale: eta, if it is inferred, shape (1 or 0, batch).
        log_scale: the largest log weight (0 if none is finite).
        weight: sum of the weights divided by exp(log_scale).
        mean, square: weighted mean of q and weighted sum of its squared deviations from that, followed by those of
            `System.tracked_values`, shape (pairs + followed,).
        tied: which of the layout's states have observed best actions that tie within `tie_width`, shape (states,).
    """

    log_weight: Float[Array, "batch"]
    choice: Int[Array, "states batch"]
    code: UInt64[Array, "batch"]
    q: Float[Array, "pairs batch"]
    noise_scale: Float[Array, "scales batch"]
    log_scale: Float[Array, ""]
    weight: Float[Array, ""]
    mean: Float[Array, "pairs_and_followed"]
    square: Float[Array, "pairs_and_followed"]
    tied: Bool[Array, "states"]


@partial(jax.jit, static_argnames="batch")
def propose(system: System, key: PRNGKeyArray, batch: int, laws: Drawn | None = None) -> Weighed:
    """Draw points from the reference distribution and compute their weights; open laws are drawn beforehand."""
    return weigh_normals(system, normal_point(key, system, batch, laws))


@jax.jit
def weigh_normals(system: System, point: Point) -> Weighed:
    """Compute the weights of standard normal vectors in which each pair has its own number."""
    return weigh(system, from_normals(system, point))


@jax.jit
def weigh(system: System, point: Point) -> Weighed:
    """Compute the weights of points in which the number of a pair that stands for several is their maximum already."""
    if system.centred:
        log_weight, q = _weigh_centred(system, point)
    elif system.subsets:
        log_weight, q = weigh_cut(system, point)
    else:
        log_weight, q = _weigh_plain(system, point)
    if point.log_ratio is not None:
        log_weight = log_weight + point.log_ratio
    return _reduce(system, log_weight, q, point)


def _weigh_plain(system: System, point: Point) -> Heights:
    """Log weights and action values in non-centred coordinates without a cut."""
    law, residual = system.laws(point), system.drawn_residuals(point.x)
    reward, width = system.rewards(point)
    payment = reward + width * residual
    value = lower_exits(system, law, point)
    plain = solved = system.solve(law, payment, value)
    if system.splits:
        # Infinitesimal residuals decide ties and the determinant. The prior must not see them: it would tilt ties by
        # 1e-8 (reward / sigma)^2. Nor must they make a loop improper that costs less than they pay.
        split = system.solve(law, payment + system.split[:, None] * residual, value)
        solved = Solved(*(jnp.where(split.solvable, one, whole) for one, whole in zip(split, plain, strict=True)))
    terms = system.kernel.log_correction(residual)
    if system.flat:
        total = jnp.sum(jnp.where(system.solved[:, None], terms, 0.0), axis=0)
    else:
        terms = system.log_prior(plain.q) + terms
        total = jnp.sum(jnp.where(system.solved[:, None], terms, 0.0), axis=0) - solved.log_det
        total = total - log_mixture(system, plain.q)
    return jnp.where(solved.solvable, total, -jnp.inf), solved.q


def lower_exits(system: System, law: Law, point: Point) -> Float[Array, "pairs batch"]:
    """Values of free pairs; exits of loops whose coin shows heads are drawn below the value of lingering."""
    value = system.values(point.x)
    if not len(system.exits):
        return value
    closed = jnp.any(system.exits[:, :, None] & (point.coin > 0)[:, None], axis=0)
    reward = jnp.broadcast_to(system.reward[:, None], point.x.shape)
    without = system.solve(law, reward, jnp.where(closed, -jnp.inf, value)).q
    chance = ndtr(point.x) * ndtr(_ceiling(system, without))
    return jnp.where(closed, system.values(ndtri(jnp.maximum(chance, LEAST))), value)


def _ceiling(system: System, q: Float[Array, "pairs batch"]) -> Float[Array, "pairs batch"]:
    """The best value of each pair's state, in units of the pair's prior."""
    best = system.layout.of_state(system.layout.greedy(q)[1])
    return (best - system.prior_mean[:, None]) / system.prior_sd[:, None]


def log_mixture(system: System, q: Float[Array, "pairs batch"]) -> Float[Array, "batch"]:
    """Log density of the free values under all tosses of the loops' coins, relative to their prior."""
    if not len(system.exits):
        return jnp.zeros(q.shape[-1])
    ceiling = _ceiling(system, q)
    log_rise = -system.alternatives[:, None].astype(q.dtype) * jnp.maximum(log_ndtr(ceiling), jnp.log(LEAST))
    own = (q - system.prior_mean[:, None]) / system.prior_sd[:, None]
    log_term = jnp.where(own < ceiling, log_rise, -jnp.inf)
    by_loop = jnp.sum(jnp.where(system.exits[:, :, None], log_term, 0.0), axis=1)
    return jnp.sum(jnp.logaddexp(0.0, by_loop) - jnp.log(2.0), axis=0)


def _weigh_centred(system: System, point: Point) -> Heights:
    """Log weights and action values in centred coordinates."""
    q = system.values(point.x)
    reward, width = system.rewards(point)
    safe = jnp.where(system.solved[:, None], width, 1.0)
    terms = system.kernel.log_density((system.residuals(system.laws(point), q) - reward) / safe) - jnp.log(safe)
    return jnp.sum(jnp.where(system.solved[:, None], terms, 0.0), axis=0), q


def _reduce(
    system: System,
    log_weight: Float[Array, "batch"],
    q: Float[Array, "pairs batch"],
    point: Point,
) -> Weighed:
    """The reductions of a batch that answers are computed from."""
    choice, best = system.layout.greedy(q)
    code = jnp.sum(choice.astype(jnp.uint64) * system.mixer[:, None], axis=0)
    top = jnp.max(log_weight)
    log_scale = jnp.where(jnp.isfinite(top), top, 0.0)
    weight = jnp.exp(log_weight - log_scale)
    finite = jnp.where((system.solved | system.free)[:, None] & (weight > 0), q, 0.0)
    if point.log_law is not None:
        finite = jnp.concatenate([finite, system.tracked_values(point)])
    total = jnp.sum(weight)
    mean = finite @ weight / jnp.where(total > 0, total, 1.0)
    square = (finite - mean[:, None]) ** 2 @ weight
    tied = _ties(system, q, best) if system.splits else jnp.zeros(len(choice), dtype=bool)
    eta = system.noise_scale(point)
    return Weighed(log_weight, choice.astype(jnp.int16), code, q, eta, log_scale, total, mean, square, tied)


def _ties(system: System, q: Float[Array, "pairs batch"], best: Float[Array, "states batch"]) -> Bool[Array, "states"]:
    close = (system.layout.of_state(best) - q < system.tie_width) & (system.solved & (system.width == 0))[:, None]
    count = system.layout.by_action(system.layout.sort(close.astype(q.dtype)), 0.0)
    return jnp.any(jnp.sum(count, axis=1) > 1, axis=-1)
