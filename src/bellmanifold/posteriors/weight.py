"""The weight of a batch of points: coordinates -> action values, weighed, in one compiled program.

What is weighed is derived in `bellmanifold.posteriors.coordinates`, how cuts are weighed in
`bellmanifold.posteriors.cuts`.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr, ndtri
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt64

from bellmanifold.chart.elimination import censored, eliminate_batch, moves_within
from bellmanifold.chart.layout import Block, Law, Layout, Solved
from bellmanifold.posteriors.system import Drawn, Point, System, from_normals, normal_point

LEAST = 1e-300
"""Probabilities below this are taken for it: what lies there has no weight."""


class Weighed(NamedTuple):
    """Points with their weights.

    Attributes:
        log_weight: shape (batch,).
        choice: greedy action of each of the layout's states, shape (states, batch).
        code: tells greedy policies apart: their number, or a hash where that is too large, shape (batch,).
        q: action values (the largest one for pairs that stand for several), shape (pairs, batch).
        noise_scale: eta, if it is inferred, shape (1 or 0, batch).
        log_scale: the largest log weight (0 if none is finite).
        weight: sum of the weights relative to log_scale.
        mean, square: weighted mean of q, and weighted sum of its squared deviations from that; behind it those of what
            else is followed (`System.followed`), shape (pairs + followed,).
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
    """Draw points from the reference distribution, of which open laws were drawn already, and weigh them."""
    return weigh_normals(system, normal_point(key, system, batch, laws))


@jax.jit
def weigh_normals(system: System, point: Point) -> Weighed:
    """Weigh standard normal vectors, in which each pair has its own number."""
    return weigh(system, from_normals(system, point))


@jax.jit
def weigh(system: System, point: Point) -> Weighed:
    """Weigh points: normal numbers, those of pairs that stand for several already as the largest of these."""
    if system.centred:
        log_weight, q = _weigh_centred(system, point)
    elif system.subsets:
        log_weight, q = _weigh_cut(system, point)
    else:
        log_weight, q = _weigh_plain(system, point)
    if point.log_ratio is not None:
        log_weight = log_weight + point.log_ratio
    return _reduced(system, log_weight, q, point)


Heights = tuple[Float[Array, "batch"], Float[Array, "pairs batch"]]
"""Log weights, and action values that decide what is greedy."""


def _weigh_plain(system: System, point: Point) -> Heights:
    """Without a cut."""
    law, residual = system.laws(point), system.kernel.from_normal(point.x)
    reward, width = system.rewards(point)
    payment = reward + width * residual
    value = lowered(system, law, point)
    plain = solved = system.solve(law, payment, value)
    if system.splits:
        # Infinitesimal residuals decide ties and the determinant. The prior must not see them: it would tilt ties by
        # 1e-8 (reward / sigma)^2. Nor must they undo a loop that costs less than they pay.
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


def lowered(system: System, law: Law, point: Point) -> Float[Array, "pairs batch"]:
    """Values of free pairs; exits of loops whose coin shows heads are drawn below what lingering is worth."""
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


def _weigh_cut(system: System, point: Point) -> Heights:
    """With a cut, against the mixture of all its subsets."""
    own_law, residual = system.laws(point), system.kernel.from_normal(point.x)
    reward, width = system.rewards(point)
    q, _, solvable = system.solve(own_law, reward + width * residual, system.values(point.x))
    log_prior = system.log_prior(q)
    observed, cut = system.observed[:, None], system.cut[:, None]
    safe = jnp.where(cut, width, 1.0)
    z = (system.residuals(own_law, q) - reward) / safe
    log_kernel = system.kernel.log_density(z) - jnp.log(safe)
    log_proposal = log_kernel - system.kernel.log_correction(z)
    solved_terms = jnp.where(observed & ~cut, system.kernel.log_correction(residual), 0.0)
    terms = jnp.where(observed, log_prior, 0.0) + jnp.where(cut, log_kernel, 0.0) + solved_terms
    total = jnp.sum(terms, axis=0)
    layout = system.layout
    choice, _ = layout.greedy(q)
    law, sorted_cut, as_solved, as_free = (
        layout.sort(array) for array in (own_law, system.cut, log_proposal, log_prior)
    )
    for block, solved in zip(layout.blocks, system.subsets, strict=True):
        if block.way == "once":
            continue
        cuts = (len(solved) - 1).bit_length()
        places = jnp.nonzero(sorted_cut[block.own], size=cuts)[0]  # in the order of the subsets' digits
        here = _CutBlock(block, layout, law[block.own], solved[-1], places)
        log_determinants = _log_acyclic if block.way == "sweeps" else _log_determinants
        dets = log_determinants(here, choice[block.states])
        factors = (as_solved[block.own][places], as_free[block.own][places])
        for digit, (one, other) in enumerate(zip(*factors, strict=True)):
            is_solved = np.asarray(np.arange(2**cuts) >> digit & 1, dtype=bool)  # in subsets whose number has the digit
            dets = dets + jnp.where(is_solved[:, None], one, other)
        total = total - (jax.scipy.special.logsumexp(dets, axis=0) - jnp.log(len(solved)))
    return jnp.where(solvable, total, -jnp.inf), q


class _CutBlock(NamedTuple):
    """A block with pairs of the cut.

    Attributes:
        block, layout: the block and how it is solved.
        law: where its pairs lead.
        observed: which of them were observed.
        places: the pairs of the cut, counted within the block.
    """

    block: Block
    layout: Layout
    law: Law
    observed: Bool[Array, "own_pairs"]
    places: Int[Array, "cuts"]

    @property
    def states(self) -> Int[Array, "cuts"]:
        """The states of the cut's pairs, counted within the block."""
        return self.layout.sort(self.layout.place)[self.block.own][self.places] - self.block.begin

    def played(self, choice: Int[Array, "own batch"]) -> Int[Array, "own batch"]:
        """The digit of the pair of the cut that a state plays as its own power of two; 0 where it plays another."""
        digit = jnp.zeros(len(self.observed), dtype=jnp.int64)
        digit = digit.at[self.places].set(1 << jnp.arange(len(self.places)))
        return self.layout.chosen(self.block, digit[:, None], choice)


def _log_determinants(cut: _CutBlock, choice: Int[Array, "own batch"]) -> Float[Array, "subsets batch"]:
    """log |det A_b| of a block's greedy policy, for every subset b.

    All states except those of the cut are eliminated once. What is left is the chain watched at these few, of which a
    subset keeps the solved ones: moves to the others leave.
    """
    block, layout, cuts = cut.block, cut.layout, len(cut.places)
    successor, law = layout.successor[block.own], cut.law if cut.law.ndim == 3 else cut.law[..., None]
    law = jnp.where(cut.observed[:, None, None], law, 0.0)
    inside = moves_within(successor, law, block.begin, block.end)
    out = jnp.where(((successor < block.begin) | (successor >= block.end))[..., None], law, 0.0).sum(axis=1)
    out = jnp.where(cut.observed[:, None], out, 1.0)
    watched = jnp.zeros(block.end - block.begin, dtype=bool).at[cut.states].set(True)
    order = jnp.argsort(~watched, stable=True)
    moves = layout.chosen(block, inside, choice)[order][:, order]
    leave = layout.chosen(block, out, choice)[order]
    log_det, moves, leave = censored(moves, leave, cuts)
    if not cuts:
        return log_det[None]
    played = cut.played(choice)[order[:cuts]]  # a subset solves what is no pair of the cut
    free = ~((played == 0) | (jnp.arange(2**cuts)[:, None, None] & played != 0))

    def log_minor(free: Bool[Array, "watched batch"]) -> Float[Array, "batch"]:
        kept = jnp.where(free, 0.0, moves)  # no move to a free state
        gone = leave + jnp.sum(jnp.where(free, moves, 0.0), axis=1)
        kept, gone = jnp.where(free[:, None], 0.0, kept), jnp.where(free, 1.0, gone)
        pivots, _ = eliminate_batch(kept, gone, jnp.zeros_like(gone))
        return jnp.sum(jnp.log(pivots), axis=0)

    return log_det + jax.vmap(log_minor)(free)


def _log_acyclic(cut: _CutBlock, choice: Int[Array, "own batch"]) -> Float[Array, "subsets batch"]:
    """The same where moves are not random: 0 if following greedy solved pairs leaves the block, else -inf.

    Every circle of greedy pairs holds pairs of the cut, and it is open if one of them is free. So the circles are
    followed once, from the states of the cut, and the pairs of the cut on each are noted as digits of a number.
    """
    block, layout, cuts = cut.block, cut.layout, len(cut.places)
    states = block.end - block.begin
    law = cut.law if cut.law.ndim == 2 else cut.law[..., 0]
    after = jnp.sum(jnp.where(law == 1.0, layout.successor[block.own], 0), axis=-1) - block.begin
    after = jnp.where(cut.observed & (after >= 0) & (after < states), after, states)
    step = layout.chosen(block, after[:, None], choice)
    step = jnp.append(step, jnp.full((1, choice.shape[-1]), states), axis=0)
    met = jnp.append(cut.played(choice), jnp.zeros((1, choice.shape[-1]), dtype=jnp.int64), axis=0)
    for _ in range(states.bit_length()):  # twice as many moves each time
        met = met | jnp.take_along_axis(met, step, axis=0)
        step = jnp.take_along_axis(step, step, axis=0)
    end = step[cut.states]
    circle = jnp.where(end < states, jnp.take_along_axis(met, end, axis=0), -1)  # all digits: there is none to open
    free = ~jnp.arange(2**cuts)[:, None] | (1 << cuts)  # subsets solve everything elsewhere; -1 is always open
    is_open = jnp.ones((2**cuts, choice.shape[-1]), dtype=bool)
    for digit in range(cuts):
        is_open = is_open & (circle[digit] & free != 0)
    return jnp.where(is_open, 0.0, -jnp.inf)


def _weigh_centred(system: System, point: Point) -> Heights:
    """In centred coordinates."""
    q = system.values(point.x)
    reward, width = system.rewards(point)
    safe = jnp.where(system.solved[:, None], width, 1.0)
    terms = system.kernel.log_density((system.residuals(system.laws(point), q) - reward) / safe) - jnp.log(safe)
    return jnp.sum(jnp.where(system.solved[:, None], terms, 0.0), axis=0), q


def _reduced(
    system: System,
    log_weight: Float[Array, "batch"],
    q: Float[Array, "pairs batch"],
    point: Point,
) -> Weighed:
    """What answers need of a batch."""
    choice, best = system.layout.greedy(q)
    code = jnp.sum(choice.astype(jnp.uint64) * system.mixer[:, None], axis=0)
    top = jnp.max(log_weight)
    log_scale = jnp.where(jnp.isfinite(top), top, 0.0)
    weight = jnp.exp(log_weight - log_scale)
    finite = jnp.where((system.solved | system.free)[:, None] & (weight > 0), q, 0.0)
    if point.log_law is not None:
        finite = jnp.concatenate([finite, system.followed(point)])
    total = jnp.sum(weight)
    mean = finite @ weight / jnp.where(total > 0, total, 1.0)
    square = (finite - mean[:, None]) ** 2 @ weight
    tied = _tied(system, q, best) if system.splits else jnp.zeros(len(choice), dtype=bool)
    eta = system.noise_scale(point)
    return Weighed(log_weight, choice.astype(jnp.int16), code, q, eta, log_scale, total, mean, square, tied)


def _tied(system: System, q: Float[Array, "pairs batch"], best: Float[Array, "states batch"]) -> Bool[Array, "states"]:
    close = (system.layout.of_state(best) - q < system.tie_width) & (system.solved & (system.width == 0))[:, None]
    count = system.layout.by_action(system.layout.sort(close.astype(q.dtype)), 0.0)
    return jnp.any(jnp.sum(count, axis=1) > 1, axis=-1)
