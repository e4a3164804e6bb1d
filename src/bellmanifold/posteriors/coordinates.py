"""Standard coordinates of a posterior, and the weight of a point in them.

A posterior is turned into a reference law (independent standard normals, or uniforms for the residuals of a uniform
kernel) and a weight. Samplers then need to know nothing about decision problems.

*Non-centred* coordinates are the chart's: a residual xi_i for each observed pair, and the largest value among the
unobserved pairs of each coupled state (which of them attains it is uniform and independent of all else). The weight is

    w = prod_{i observed} N(theta_i; 0, sigma^2) / |det A(theta)|,

and its mean over the reference law is the evidence. *Centred* coordinates are the action values of coupled states,
theta = sigma x, with weight prod_i K(g_i(theta), r_i): better where the kernel is as wide as the prior.

At epsilon = 0 the residuals are kept with an infinitesimal width: they split exact ties between observed actions as the
limit epsilon -> 0 splits them, and change nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr
from jaxtyping import Array, Bool, Float, Int, UInt64

from bellmanifold.chart import BatchChart, Block, eliminate_batch, moves_within, solve_blocks
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.policies import PolicyTable
from bellmanifold.posteriors.target import Target, tie_width

LOG_2_PI = float(np.log(2 * np.pi))


class Structure(NamedTuple):
    """Arrays of a chart and a target by (action, state) slot, as the compiled programs take them.

    Attributes:
        successor, law: the chart's, shape (actions, states, successors).
        solved: observed pairs, shape (actions, states).
        free: pairs that stand for the unobserved ones of a coupled state, shape (actions, states).
        member: all the unobserved pairs of coupled states, shape (actions, states).
        reward, scale: of observed pairs, shape (actions, states).
        alternatives: how many exchangeable pairs each pair stands for, at least 1, shape (actions, states).
        first: a proper policy of M~, shape (states,).
        mixer: random odd numbers that tell policies apart, shape (states,).
        prior_scale: sigma.
        tie_width: values closer than this count as tied.
    """

    successor: Int[Array, "actions states successors"]
    law: Float[Array, "actions states successors"]
    solved: Bool[Array, "actions states"]
    free: Bool[Array, "actions states"]
    member: Bool[Array, "actions states"]
    reward: Float[Array, "actions states"]
    scale: Float[Array, "actions states"]
    alternatives: Int[Array, "actions states"]
    first: Int[Array, "states"]
    mixer: UInt64[Array, "states"]
    prior_scale: Float[Array, ""]
    tie_width: Float[Array, ""]


class Kind(NamedTuple):
    """What fixes the compiled program: the chart's blocks, uniform residuals, centred coordinates, exact posterior."""

    blocks: tuple[Block, ...]
    uniform: bool
    centred: bool
    exact: bool


class Subsets(NamedTuple):
    """The subsets of a cut, by slot.

    Attributes:
        observed, cut: masks, shape (actions, states).
        solved: for each block, which pairs each subset solves, shape (subsets, actions, own states).
    """

    observed: Bool[Array, "actions states"]
    cut: Bool[Array, "actions states"]
    solved: tuple[Bool[Array, "_ actions _"], ...]


class Weighed(NamedTuple):
    """Points with their weights.

    Attributes:
        log_weight: shape (batch,).
        choice: greedy action slot of each state, shape (states, batch).
        code: a hash of the greedy policy, shape (batch,).
        q: action values by slot (the largest one for pairs that stand for several), shape (actions, states, batch).
        log_scale: the largest log weight (0 if none is finite).
        first, second: sums of q and q^2 weighted relative to log_scale, shape (actions, states).
        tied: states in which the best actions are observed and tie within `tie_width`, shape (states,).
    """

    log_weight: Float[Array, "batch"]
    choice: Int[Array, "states batch"]
    code: UInt64[Array, "batch"]
    q: Float[Array, "actions states batch"]
    log_scale: Float[Array, ""]
    first: Float[Array, "actions states"]
    second: Float[Array, "actions states"]
    tied: Bool[Array, "states"]


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Coordinates of one posterior.

    Attributes:
        target: the posterior.
        chart: the problem's chart.
        centred: action values instead of residuals.
        cut: observed pairs that are treated as solved or as free, see `bellmanifold.posteriors.cut`.
        freed: those of them that are free here.
    """

    target: Target
    chart: BatchChart
    centred: bool = False
    cut: tuple[int, ...] = ()
    freed: tuple[int, ...] = ()

    @cached_property
    def solved(self) -> Bool[np.ndarray, "pairs"]:
        """Pairs whose Bellman equation is solved by the chart."""
        solved = self.target.observed.copy()
        solved[list(self.freed)] = False
        return solved

    @cached_property
    def stand_in(self) -> Int[np.ndarray, "pairs"]:
        """The first unobserved pair of a coupled state stands for all of them; other pairs stand for themselves."""
        model, unseen = self.target.model, ~self.target.observed
        pairs = np.arange(model.n_pairs)
        if self.centred:
            return pairs
        first = np.minimum.reduceat(np.where(unseen, pairs, model.n_pairs), model.pair_start[:-1])
        return np.where(unseen & self.target.coupled[model.pair_state], first[model.pair_state], pairs)

    @cached_property
    def free(self) -> Bool[np.ndarray, "pairs"]:
        """Pairs whose value is a coordinate."""
        target, pairs = self.target, np.arange(self.target.model.n_pairs)
        coupled = target.coupled[target.model.pair_state]
        return coupled if self.centred else coupled & ~self.solved & (self.stand_in == pairs)

    @cached_property
    def residual(self) -> Bool[np.ndarray, "pairs"]:
        """Pairs whose residual is a coordinate."""
        return np.zeros_like(self.solved) if self.centred else self.solved

    @property
    def is_uniform(self) -> bool:
        """Are residuals drawn from a uniform law?"""
        return self.target.kernel == "uniform" and not self.target.is_exact

    @property
    def kind(self) -> Kind:
        """The static part of the weight of a point."""
        return Kind(self.chart.blocks, self.is_uniform, self.centred, self.target.is_exact)

    @property
    def dimension(self) -> int:
        """Coordinates that are integrated over: the infinitesimal residuals at epsilon = 0 do not count."""
        return int(self.free.sum()) + (0 if self.target.is_exact else int(self.residual.sum()))

    @cached_property
    def structure(self) -> Structure:
        target, chart, model = self.target, self.chart, self.target.model
        first = chart.first_policy(self.solved)
        if first is None and (self.cut or self.centred):
            first = np.zeros(model.n_states, dtype=np.int64)  # not used, or improper: then every point weighs 0
        if first is None:
            raise UnsupportedError(
                "the observed pairs trap some state: from there no policy reaches the goal or an unobserved pair; "
                "use a relaxed posterior (--epsilon above 0) with the mixture engine"
            )
        group = np.bincount(self.stand_in, minlength=model.n_pairs)
        alternatives = np.where(self.free, group, 1)
        scale = np.where(target.observed, np.maximum(target.scale, tie_width(target)), 0.0)
        idle = np.zeros(model.n_pairs, dtype=bool)  # a state without coordinates is held at 0: nothing depends on it
        idle[model.pair_start[:-1][~target.coupled]] = True
        mixer = np.random.default_rng(0x5EED).integers(0, 2**63, model.n_states, dtype=np.uint64) * 2 + 1
        return Structure(
            successor=jnp.asarray(chart.successor),
            law=jnp.asarray(chart.law),
            solved=jnp.asarray(chart.spread(self.solved, False)),
            free=jnp.asarray(chart.spread(self.free | idle, False)),
            member=jnp.asarray(chart.spread(~target.observed & target.coupled[model.pair_state], False)),
            reward=jnp.asarray(chart.spread(target.reward, 0.0)),
            scale=jnp.asarray(chart.spread(scale, 0.0)),
            alternatives=jnp.asarray(chart.spread(alternatives, 1)),
            first=jnp.asarray(first),
            mixer=jnp.asarray(mixer),
            prior_scale=jnp.asarray(target.prior_scale),
            tie_width=jnp.asarray(100 * tie_width(target)),
        )

    @cached_property
    def subsets(self) -> Subsets:
        """For the weight of a cut: observed pairs, cut pairs, and what is solved in each subset, block by block."""
        chart, cut = self.chart, np.zeros_like(self.target.observed)
        cut[list(self.cut)] = True
        observed, in_cut = chart.spread(self.target.observed, False), chart.spread(cut, False)
        solved = []
        for begin, end, cyclic in chart.blocks:
            places = np.argwhere(in_cut[:, begin:end])
            if not cyclic or not len(places):
                solved.append(jnp.asarray(observed[None, :, begin:end]))
                continue
            masks = np.repeat(observed[None, :, begin:end], 2 ** len(places), axis=0)
            for k, (action, state) in enumerate(places):
                masks[:, action, state] = (np.arange(len(masks)) >> k) & 1
            solved.append(jnp.asarray(masks))
        return Subsets(jnp.asarray(observed), jnp.asarray(in_cut), tuple(solved))

    def weigh(self, x: Float[Array, "actions states batch"]) -> Weighed:
        """Weigh draws from the reference law, given by slot; entries of slots without a coordinate are ignored."""
        uniform = self.is_uniform
        if self.centred:
            return _weigh_centred(self.chart.blocks, uniform, self.structure, x)
        if self.cut:
            return _weigh_cut(self.chart.blocks, uniform, self.structure, self.subsets, x)
        return _weigh(self.chart.blocks, self.target.is_exact, self.structure, x)


def policy_table(
    coordinates: Coordinates, choice: Int[np.ndarray, "rows states"], weight: Float[np.ndarray, "replicates rows"]
) -> PolicyTable:
    """A table of policies given by action slots in the chart's order."""
    chart, coupled = coordinates.chart, coordinates.target.coupled
    by_state = np.empty(choice.shape, dtype=np.int64)
    by_state[:, chart.order] = chart.slot[choice, np.arange(chart.slot.shape[1])]
    return PolicyTable(coupled, by_state[:, coupled], weight, coordinates.stand_in)


def weigh_normals(kind: Kind, s: Structure, x: Float[Array, "actions states batch"]) -> Weighed:
    """Weigh standard normal vectors, turned into draws from the reference law."""
    blocks, uniform, centred, exact = kind
    if centred:
        return _weigh_centred(blocks, uniform, s, x)
    return _weigh(blocks, exact, s, from_normals(uniform, s, x))


def from_normals(
    uniform: bool, s: Structure, x: Float[Array, "actions states batch"]
) -> Float[Array, "actions states batch"]:
    """Standard normals turned into draws of non-centred coordinates from their reference law.

    There is a normal for each pair: the largest of a state's unobserved ones is the coordinate.
    """
    largest = jnp.max(jnp.where(s.member[..., None], x, -jnp.inf), axis=0)
    residual = 2 * ndtr(x) - 1 if uniform else x
    return jnp.where(s.free[..., None], jnp.where(s.member[..., None], largest, x), residual)


@partial(jax.jit, static_argnames=("blocks", "exact"))
def _weigh(blocks: tuple[Block, ...], exact: bool, s: Structure, x: Float[Array, "actions states batch"]) -> Weighed:
    solve = partial(solve_blocks, blocks, s.successor, s.law, s.solved, s.first)
    reward = jnp.broadcast_to(s.reward[..., None], x.shape)
    value = jnp.where(s.free[..., None], s.prior_scale * x, -jnp.inf)
    solved = solve(reward + s.scale[..., None] * x, value)
    # Infinitesimal residuals decide ties and the determinant; the prior must not see them: it would tilt ties by
    # 1e-8 (reward / sigma)^2.
    q = solve(reward, value).q if exact else solved.q
    log_prior = _log_normal(q / s.prior_scale) - jnp.log(s.prior_scale)
    total = jnp.sum(jnp.where(s.solved[..., None], log_prior, 0.0), axis=(0, 1)) - solved.log_det
    return _reduced(s, jnp.where(solved.solvable, total, -jnp.inf), solved.q)


@partial(jax.jit, static_argnames=("blocks", "uniform"))
def _weigh_cut(
    blocks: tuple[Block, ...], uniform: bool, s: Structure, subsets: Subsets, x: Float[Array, "actions states batch"]
) -> Weighed:
    payment = s.reward[..., None] + s.scale[..., None] * x
    value = jnp.where(s.free[..., None], s.prior_scale * x, -jnp.inf)
    q, _, solvable = solve_blocks(blocks, s.successor, s.law, s.solved, s.first, payment, value)
    log_prior = _log_normal(q / s.prior_scale) - jnp.log(s.prior_scale)
    log_kernel = _log_kernel(s, subsets.observed, uniform, q)
    observed, cut = subsets.observed[..., None], subsets.cut[..., None]
    total = jnp.sum(jnp.where(observed, log_prior, 0.0) + jnp.where(cut, log_kernel, 0.0), axis=(0, 1))
    for (begin, end, cyclic), solved in zip(blocks, subsets.solved, strict=True):
        if not cyclic:
            continue
        own = slice(begin, end)
        dets = _log_determinants(s.successor[:, own], s.law[:, own], q[:, own], solved, begin)
        factor = jnp.where(solved[..., None], log_kernel[None, :, own], log_prior[None, :, own])
        terms = dets + jnp.sum(jnp.where(cut[None, :, own], factor, 0.0), axis=(1, 2))
        total = total - (jax.scipy.special.logsumexp(terms, axis=0) - jnp.log(len(solved)))
    return _reduced(s, jnp.where(solvable, total, -jnp.inf), q)


def _log_determinants(
    successor: Int[Array, "actions own successors"],
    law: Float[Array, "actions own successors"],
    q: Float[Array, "actions own batch"],
    solved: Bool[Array, "subsets actions own"],
    begin: int,
) -> Float[Array, "subsets batch"]:
    """log |det A_b| of a block's greedy policy, for every subset b."""
    inside = moves_within(successor, law, begin, begin + q.shape[1])
    greedy = jnp.argmax(q, axis=0) == jnp.arange(q.shape[0])[:, None, None]
    out = jnp.sum(jnp.where((successor < begin) | (successor >= begin + q.shape[1]), law, 0.0), axis=-1)

    def log_det(own: Bool[Array, "actions own"]) -> Float[Array, "batch"]:
        moves = jnp.where(own[..., None], inside, 0.0)[..., None]
        leave = jnp.where(own, out, 1.0)[..., None]
        chosen_moves = jnp.sum(jnp.where(greedy[:, :, None], moves, 0.0), axis=0)
        chosen_leave = jnp.sum(jnp.where(greedy, leave, 0.0), axis=0)
        pivots, _ = eliminate_batch(chosen_moves, chosen_leave, jnp.zeros_like(chosen_leave))
        return jnp.sum(jnp.log(pivots), axis=0)

    return jax.vmap(log_det)(solved)


def _log_normal(z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    return -0.5 * z**2 - 0.5 * LOG_2_PI


def _log_kernel(
    s: Structure, observed: Bool[Array, "actions states"], uniform: bool, q: Float[Array, "actions states batch"]
) -> Float[Array, "actions states batch"]:
    """log K(g_i(q), r_i) of observed pairs."""
    top = jnp.max(q, axis=0)
    best = jnp.append(jnp.where(jnp.isfinite(top), top, 0.0), jnp.zeros((1, q.shape[-1])), axis=0)
    residual = q - s.reward[..., None]
    for k in range(s.successor.shape[-1]):
        residual = residual - s.law[:, :, k, None] * best[s.successor[:, :, k]]
    width = jnp.where(observed, s.scale, 1.0)[..., None]
    z = residual / width
    inside = jnp.where(jnp.abs(z) < 1.0, -jnp.log(2.0), -jnp.inf)
    return (inside if uniform else _log_normal(z)) - jnp.log(width)


@partial(jax.jit, static_argnames=("blocks", "uniform"))
def _weigh_centred(
    blocks: tuple[Block, ...], uniform: bool, s: Structure, x: Float[Array, "actions states batch"]
) -> Weighed:
    q = jnp.where(s.free[..., None], s.prior_scale * x, -jnp.inf)
    terms = _log_kernel(s, s.solved, uniform, q)
    log_weight = jnp.sum(jnp.where(s.solved[..., None], terms, 0.0), axis=(0, 1))
    return _reduced(s, log_weight, q)


def _reduced(s: Structure, log_weight: Float[Array, "batch"], q: Float[Array, "actions states batch"]) -> Weighed:
    """What answers need of a batch."""
    choice = jnp.argmax(q, axis=0)
    code = jnp.sum((choice.astype(jnp.uint64) + 1) * s.mixer[:, None], axis=0)
    top = jnp.max(log_weight)
    log_scale = jnp.where(jnp.isfinite(top), top, 0.0)
    weight = jnp.exp(log_weight - log_scale)
    finite = jnp.where(s.solved[..., None] | s.free[..., None], q, 0.0)
    finite = jnp.where(weight > 0, finite, 0.0)
    close = (jnp.max(q, axis=0) - q < s.tie_width) & s.solved[..., None]
    tied = jnp.any(jnp.sum(close, axis=0) > 1, axis=-1)
    return Weighed(log_weight, choice.astype(jnp.int16), code, q, log_scale, finite @ weight, finite**2 @ weight, tied)


def member_moments(
    s: Structure, q: Float[Array, "actions states batch"]
) -> tuple[Float[Array, "actions states batch"], Float[Array, "actions states batch"]]:
    """First and second moments of the action values, given those of pairs that stand for several as their largest.

    Any one of k exchangeable pairs is the largest, m, with probability 1/k, and otherwise a normal below it, which has
    moments -sigma h and sigma^2 - sigma m h with h = phi(m/sigma) / Phi(m/sigma).
    """
    sigma, k = s.prior_scale, s.alternatives[..., None].astype(q.dtype)
    q = jnp.where(s.solved[..., None] | s.free[..., None], q, 0.0)
    hazard = jnp.exp(_log_normal(q / sigma) - log_ndtr(q / sigma))
    shared = s.free[..., None] & (k > 1)
    first = jnp.where(shared, (q - (k - 1) * sigma * hazard) / k, q)
    second = jnp.where(shared, (q**2 + (k - 1) * (sigma**2 - sigma * q * hazard)) / k, q**2)
    return first, second
