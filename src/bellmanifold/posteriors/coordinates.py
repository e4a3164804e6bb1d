"""Standard coordinates of a posterior, and the weight of a point in them.

A posterior is turned into a reference law, independent standard normals, and a weight. Samplers then need to know
nothing about decision problems.

*Non-centred* coordinates are the chart's: a residual xi_i for each observed pair, and the largest value among the
unobserved pairs of each coupled state (which of them attains it is uniform and independent of all else). The weight is

    w = prod_{i observed} N(theta_i; 0, sigma^2) / |det A(theta)|,

and its mean over the reference law is the evidence. *Centred* coordinates are the action values of coupled states,
theta = sigma x, with weight prod_i K(g_i(theta), r_i): better where the kernel is as wide as the prior.

Residuals that are not Gaussian are functions of normal numbers (`bellmanifold.laws`). A noise scale eta that has to be
inferred is one more normal number, turned into eta by its table (`bellmanifold.posteriors.noise_scale`); residuals are
then scaled by it.

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
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt64

from bellmanifold.chart import BatchChart, Block, Solved, System, eliminate_batch, moves_within, solve_blocks
from bellmanifold.errors import UnsupportedError
from bellmanifold.graph import end_components, reach_goal
from bellmanifold.health import state_names
from bellmanifold.laws import Law, log_normal
from bellmanifold.posteriors.policies import PolicyTable
from bellmanifold.posteriors.target import Target, tie_width

NUMBERED = 2**62
"""Up to this many policies have a number each; the codes of more are hashes."""


class Point(NamedTuple):
    """Standard normal coordinates of a batch of points.

    Attributes:
        x: by slot; entries of slots without a coordinate are ignored, shape (actions, states, batch).
        z: of the noise scale, if it is inferred, shape (1 or 0, batch).
    """

    x: Float[Array, "actions states batch"]
    z: Float[Array, "scales batch"]


class Structure(NamedTuple):
    """Arrays of a chart and a target by (action, state) slot, as the compiled programs take them.

    Attributes:
        system: the chart's equations; observed pairs are solved, those of a cut that are free are not.
        free: pairs that stand for the unobserved ones of a coupled state, shape (actions, states).
        member: all the unobserved pairs of coupled states, shape (actions, states).
        reward, scale: of observed pairs, shape (actions, states).
        knots, log_scale: the table of the noise scale; empty unless it is inferred, shape (knots,).
        alternatives: how many exchangeable pairs each pair stands for, at least 1, shape (actions, states).
        mixer: numbers that tell policies apart, see `mixer_of`, shape (states,).
        prior_scale: sigma.
        tie_width: values closer than this count as tied.
    """

    system: System
    free: Bool[Array, "actions states"]
    member: Bool[Array, "actions states"]
    reward: Float[Array, "actions states"]
    scale: Float[Array, "actions states"]
    knots: Float[Array, "knots"]
    log_scale: Float[Array, "knots"]
    alternatives: Int[Array, "actions states"]
    mixer: UInt64[Array, "states"]
    prior_scale: Float[Array, ""]
    tie_width: Float[Array, ""]


class Kind(NamedTuple):
    """What fixes the compiled program: the chart's blocks, the residuals' law, centred coordinates, exact posterior."""

    blocks: tuple[Block, ...]
    law: Law
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
        code: tells greedy policies apart: their number, or a hash where that is too large, shape (batch,).
        q: action values by slot (the largest one for pairs that stand for several), shape (actions, states, batch).
        noise_scale: eta, if it is inferred, shape (1 or 0, batch).
        log_scale: the largest log weight (0 if none is finite).
        first, second: sums of q and q^2 weighted relative to log_scale, shape (actions, states).
        tied: states in which the best actions are observed and tie within `tie_width`, shape (states,).
    """

    log_weight: Float[Array, "batch"]
    choice: Int[Array, "states batch"]
    code: UInt64[Array, "batch"]
    q: Float[Array, "actions states batch"]
    noise_scale: Float[Array, "scales batch"]
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
    def scales(self) -> int:
        """How many noise scales are coordinates: 1 or 0."""
        return 0 if self.target.noise_scale is None else 1

    @property
    def way(self) -> str:
        """What kind of coordinates these are, in a word."""
        return "centred" if self.centred else "cut" if self.cut else "non-centred"

    @cached_property
    def covers_improper(self) -> bool:
        """Whether points reach the parameters whose greedy policy stays among observed pairs for ever, if any do."""
        uncut = self.target.observed.copy()
        uncut[list(self.cut)] = False
        return self.centred or not self.target.loops or not end_components(self.target.model, uncut)

    @property
    def kind(self) -> Kind:
        """The static part of the weight of a point."""
        return Kind(self.chart.blocks, self.target.law, self.centred, self.target.is_exact)

    @property
    def dimension(self) -> int:
        """Coordinates that are integrated over: the infinitesimal residuals at epsilon = 0 do not count."""
        return self.scales + int(self.free.sum()) + (0 if self.target.is_exact else int(self.residual.sum()))

    @cached_property
    def structure(self) -> Structure:
        target, chart, model = self.target, self.chart, self.target.model
        unused = np.zeros(model.n_states, dtype=np.int64)
        first = chart.first_policy(self.solved) if any(block.cyclic for block in chart.blocks) else unused
        if first is None and (self.cut or self.centred):
            first = unused  # or it is improper: then every point weighs 0
        if first is None:
            raise self.trapped()
        group = np.bincount(self.stand_in, minlength=model.n_pairs)
        alternatives = np.where(self.free, group, 1)
        scale = np.where(target.observed, np.maximum(target.scale, tie_width(target)), 0.0)
        idle = np.zeros(model.n_pairs, dtype=bool)  # a state without coordinates is held at 0: nothing depends on it
        idle[model.pair_start[:-1][~target.coupled]] = True
        table = target.noise_scale
        arrays = (chart.successor, chart.law, chart.spread(self.solved, False), first, chart.stretches)
        return Structure(
            system=System(*(jnp.asarray(array) for array in arrays)),
            free=jnp.asarray(chart.spread(self.free | idle, False)),
            member=jnp.asarray(chart.spread(~target.observed & target.coupled[model.pair_state], False)),
            reward=jnp.asarray(chart.spread(target.reward, 0.0)),
            scale=jnp.asarray(chart.spread(scale, 0.0)),
            knots=jnp.asarray(table.normal if table else np.zeros(0)),
            log_scale=jnp.asarray(table.log_scale if table else np.zeros(0)),
            alternatives=jnp.asarray(chart.spread(alternatives, 1)),
            mixer=jnp.asarray(mixer_of(chart)),
            prior_scale=jnp.asarray(target.prior_scale),
            tie_width=jnp.asarray(100 * tie_width(target)),
        )

    def trapped(self) -> UnsupportedError:
        """What to say where M~ has no proper policy: who is trapped, and which other posterior exists."""
        model, solved = self.target.model, self.solved
        leaves = np.zeros(model.n_states, dtype=bool)
        leaves[model.pair_state[~solved]] = True
        out, _ = reach_goal(model, solved, also_goals=leaves)
        trap = next(c for c in end_components(model, solved) if not out[c.states].any())
        way_out = "use --epsilon above 0 without --proper-only" if self.target.is_exact else "leave --proper-only out"
        return UnsupportedError(
            f"the observed pairs trap {state_names(model, trap.states)}: no policy reaches the goal or an unobserved "
            f"pair from there, so no parameter is proper; {way_out}, or use --discount 0.99"
        )

    @cached_property
    def subsets(self) -> Subsets:
        """For the weight of a cut: observed pairs, cut pairs, and what is solved in each subset, block by block."""
        chart, cut = self.chart, np.zeros_like(self.target.observed)
        cut[list(self.cut)] = True
        observed, in_cut = chart.spread(self.target.observed, False), chart.spread(cut, False)
        solved = []
        for begin, end, cyclic, *_ in chart.blocks:
            places = np.argwhere(in_cut[:, begin:end])
            if not cyclic or not len(places):
                solved.append(jnp.asarray(observed[None, :, begin:end]))
                continue
            masks = np.repeat(observed[None, :, begin:end], 2 ** len(places), axis=0)
            for k, (action, state) in enumerate(places):
                masks[:, action, state] = (np.arange(len(masks)) >> k) & 1
            solved.append(jnp.asarray(masks))
        return Subsets(jnp.asarray(observed), jnp.asarray(in_cut), tuple(solved))

    @property
    def subsets_used(self) -> Subsets | None:
        """The subsets if points are weighed with a cut."""
        return self.subsets if self.cut and not self.centred else None

    def weigh(self, point: Point) -> Weighed:
        """Weigh draws: normal numbers, but those of free pairs already as the largest of their group."""
        return weigh_with(self.kind, self.structure, self.subsets_used, point)

    def propose(self, key: PRNGKeyArray, batch: int) -> Weighed:
        """Draw points from the reference law and weigh them."""
        shape = (*self.chart.slot.shape, batch)
        return _propose(self.kind, shape, self.scales, self.structure, self.subsets_used, key)


def n_policies(chart: BatchChart) -> int:
    """How many policies the chart's slots can play; they are numbered by the digits of their choices."""
    actions, states = chart.slot.shape
    return int(actions) ** states


def mixer_of(chart: BatchChart) -> UInt64[np.ndarray, "states"]:
    """What the choice of each state is multiplied by: its place value, or a random odd number if there are too many."""
    actions, states = chart.slot.shape
    if n_policies(chart) <= NUMBERED:
        return np.array([actions**place for place in range(states)], dtype=np.uint64)
    odd = 2 * np.random.default_rng(0x5EED).integers(0, 2**63, states, dtype=np.uint64) + 1
    return np.asarray(odd, dtype=np.uint64)


def policy_table(
    coordinates: Coordinates, choice: Int[np.ndarray, "rows states"], weight: Float[np.ndarray, "replicates rows"]
) -> PolicyTable:
    """A table of policies given by action slots in the chart's order."""
    chart, coupled = coordinates.chart, coordinates.target.coupled
    by_state = np.empty(choice.shape, dtype=np.int64)
    by_state[:, chart.order] = chart.slot[choice, np.arange(chart.slot.shape[1])]
    return PolicyTable(coupled, by_state[:, coupled], weight, coordinates.stand_in)


@partial(jax.jit, static_argnames=("kind", "shape", "scales"))
def _propose(
    kind: Kind, shape: tuple[int, int, int], scales: int, s: Structure, subsets: Subsets | None, key: PRNGKeyArray
) -> Weighed:
    point = normal_point(key, shape, scales)
    if subsets is None:
        return weigh_normals(kind, s, point)
    return _weigh_cut(kind, s, subsets, from_normals(s, point))


def normal_point(key: PRNGKeyArray, shape: tuple[int, int, int], scales: int) -> Point:
    """Standard normal coordinates: by slot, and of the noise scale."""
    of_slots, of_scales = jax.random.split(key)
    return Point(jax.random.normal(of_slots, shape), jax.random.normal(of_scales, (scales, shape[-1])))


@partial(jax.jit, static_argnames="kind")
def weigh_normals(kind: Kind, s: Structure, point: Point) -> Weighed:
    """Weigh standard normal vectors."""
    return weigh(kind, s, point if kind.centred else from_normals(s, point))


def from_normals(s: Structure, point: Point) -> Point:
    """Standard normals with the largest of a state's unobserved pairs where one of them stands for all."""
    largest = jnp.max(jnp.where(s.member[..., None], point.x, -jnp.inf), axis=0)
    return point._replace(x=jnp.where((s.free & s.member)[..., None], largest, point.x))


def weigh_with(kind: Kind, s: Structure, subsets: Subsets | None, point: Point) -> Weighed:
    """Weigh points with the subsets of a cut, or without a cut; see `Coordinates.weigh`."""
    return weigh(kind, s, point) if subsets is None else _weigh_cut(kind, s, subsets, point)


@partial(jax.jit, static_argnames="kind")
def weigh(kind: Kind, s: Structure, point: Point) -> Weighed:
    """Weigh points without a cut; see `Coordinates.weigh`."""
    if kind.centred:
        return _weigh_centred(kind, s, point)
    x, residual = point.x, kind.law.from_normal(point.x)
    reward = jnp.broadcast_to(s.reward[..., None], x.shape)
    value = jnp.where(s.free[..., None], s.prior_scale * x, -jnp.inf)
    solved = solve_structure(kind, s, reward + _width(s, point) * residual, value)
    q = solved.q
    if kind.exact:
        # Infinitesimal residuals decide ties and the determinant. The prior must not see them: it would tilt ties by
        # 1e-8 (reward / sigma)^2. Nor must they undo a loop that costs less than they pay.
        plain = solve_structure(kind, s, reward, value)
        solved = Solved(*(jnp.where(solved.solvable, split, whole) for split, whole in zip(solved, plain, strict=True)))
        q = plain.q
    terms = log_normal(q / s.prior_scale) - jnp.log(s.prior_scale) + kind.law.log_correction(residual)
    total = jnp.sum(jnp.where(s.system.solved[..., None], terms, 0.0), axis=(0, 1)) - solved.log_det
    return _reduced(kind, s, jnp.where(solved.solvable, total, -jnp.inf), solved.q, _noise_scale(s, point))


def solve_structure(
    kind: Kind, s: Structure, payment: Float[Array, "actions states batch"], value: Float[Array, "actions states batch"]
) -> Solved:
    """The chart's solution at payments and values."""
    return solve_blocks(kind.blocks, s.system, payment, value)


@partial(jax.jit, static_argnames="kind")
def _weigh_cut(kind: Kind, s: Structure, subsets: Subsets, point: Point) -> Weighed:
    residual, width = kind.law.from_normal(point.x), _width(s, point)
    payment = s.reward[..., None] + width * residual
    value = jnp.where(s.free[..., None], s.prior_scale * point.x, -jnp.inf)
    q, _, solvable = solve_structure(kind, s, payment, value)
    log_prior = log_normal(q / s.prior_scale) - jnp.log(s.prior_scale)
    observed, cut = subsets.observed[..., None], subsets.cut[..., None]
    safe = jnp.where(observed, width, 1.0)
    z = _residual(s, q) / safe
    log_kernel = kind.law.log_density(z) - jnp.log(safe)
    log_proposal = log_kernel - kind.law.log_correction(z)
    solved_terms = jnp.where(observed & ~cut, kind.law.log_correction(residual), 0.0)
    terms = jnp.where(observed, log_prior, 0.0) + jnp.where(cut, log_kernel, 0.0) + solved_terms
    total = jnp.sum(terms, axis=(0, 1))
    for (begin, end, cyclic, sweeps, _), solved in zip(kind.blocks, subsets.solved, strict=True):
        if not cyclic:
            continue
        own = slice(begin, end)
        log_determinants = _log_acyclic if sweeps else _log_determinants
        dets = log_determinants(s.system.successor[:, own], s.system.law[:, own], q[:, own], solved, begin)
        factor = jnp.where(solved[..., None], log_proposal[None, :, own], log_prior[None, :, own])
        proposed = dets + jnp.sum(jnp.where(cut[None, :, own], factor, 0.0), axis=(1, 2))
        total = total - (jax.scipy.special.logsumexp(proposed, axis=0) - jnp.log(len(solved)))
    return _reduced(kind, s, jnp.where(solvable, total, -jnp.inf), q, _noise_scale(s, point))


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


def _log_acyclic(
    successor: Int[Array, "actions own successors"],
    law: Float[Array, "actions own successors"],
    q: Float[Array, "actions own batch"],
    solved: Bool[Array, "subsets actions own"],
    begin: int,
) -> Float[Array, "subsets batch"]:
    """The same where moves are not random: 0 if following greedy solved pairs leaves the block, else -inf."""
    own = q.shape[1]
    after = jnp.sum(jnp.where(law == 1.0, successor, 0), axis=-1) - begin
    after = jnp.where((after < 0) | (after >= own), own, after)
    greedy = jnp.argmax(q, axis=0) == jnp.arange(q.shape[0])[:, None, None]

    def log_det(mine: Bool[Array, "actions own"]) -> Float[Array, "batch"]:
        leads = jnp.where(mine, after, own)[..., None]
        step = jnp.sum(jnp.where(greedy, leads, 0), axis=0)
        step = jnp.append(step, jnp.full((1, q.shape[-1]), own), axis=0)
        for _ in range(own.bit_length()):  # twice as many moves each time
            step = jnp.take_along_axis(step, step, axis=0)
        return jnp.where(jnp.all(step == own, axis=0), 0.0, -jnp.inf)

    return jax.vmap(log_det)(solved)


def _noise_scale(s: Structure, point: Point) -> Float[Array, "scales batch"]:
    """eta of every point, where it is inferred."""
    return jnp.exp(jnp.interp(point.z, s.knots, s.log_scale)) if len(point.z) else point.z


def _width(s: Structure, point: Point) -> Float[Array, "actions states _"]:
    """Width of each residual: the same for all points unless the noise scale is inferred."""
    return s.scale[..., None] * _noise_scale(s, point)[0] if len(point.z) else s.scale[..., None]


def _residual(s: Structure, q: Float[Array, "actions states batch"]) -> Float[Array, "actions states batch"]:
    """g_i(q) - r_i."""
    top = jnp.max(q, axis=0)
    best = jnp.append(jnp.where(jnp.isfinite(top), top, 0.0), jnp.zeros((1, q.shape[-1])), axis=0)
    residual = q - s.reward[..., None]
    for k in range(s.system.successor.shape[-1]):
        residual = residual - s.system.law[:, :, k, None] * best[s.system.successor[:, :, k]]
    return residual


def _weigh_centred(kind: Kind, s: Structure, point: Point) -> Weighed:
    q = jnp.where(s.free[..., None], s.prior_scale * point.x, -jnp.inf)
    safe = jnp.where(s.system.solved[..., None], _width(s, point), 1.0)
    terms = kind.law.log_density(_residual(s, q) / safe) - jnp.log(safe)
    log_weight = jnp.sum(jnp.where(s.system.solved[..., None], terms, 0.0), axis=(0, 1))
    return _reduced(kind, s, log_weight, q, _noise_scale(s, point))


def _reduced(
    kind: Kind,
    s: Structure,
    log_weight: Float[Array, "batch"],
    q: Float[Array, "actions states batch"],
    noise_scale: Float[Array, "scales batch"],
) -> Weighed:
    """What answers need of a batch."""
    choice = jnp.argmax(q, axis=0)
    code = jnp.sum(choice.astype(jnp.uint64) * s.mixer[:, None], axis=0)
    top = jnp.max(log_weight)
    log_scale = jnp.where(jnp.isfinite(top), top, 0.0)
    weight = jnp.exp(log_weight - log_scale)
    finite = jnp.where(s.system.solved[..., None] | s.free[..., None], q, 0.0)
    finite = jnp.where(weight > 0, finite, 0.0)
    tied = _tied(s, q) if kind.exact else jnp.zeros(q.shape[1], dtype=bool)
    first, second = finite @ weight, finite**2 @ weight
    return Weighed(log_weight, choice.astype(jnp.int16), code, q, noise_scale, log_scale, first, second, tied)


def _tied(s: Structure, q: Float[Array, "actions states batch"]) -> Bool[Array, "states"]:
    close = (jnp.max(q, axis=0) - q < s.tie_width) & s.system.solved[..., None]
    return jnp.any(jnp.sum(close, axis=0) > 1, axis=-1)


def member_moments(
    s: Structure, q: Float[Array, "actions states batch"]
) -> tuple[Float[Array, "actions states batch"], Float[Array, "actions states batch"]]:
    """First and second moments of the action values, given those of pairs that stand for several as their largest.

    Any one of k exchangeable pairs is the largest, m, with probability 1/k, and otherwise a normal below it, which has
    moments -sigma h and sigma^2 - sigma m h with h = phi(m/sigma) / Phi(m/sigma).
    """
    sigma, k = s.prior_scale, s.alternatives[..., None].astype(q.dtype)
    q = jnp.where(s.system.solved[..., None] | s.free[..., None], q, 0.0)
    hazard = jnp.exp(log_normal(q / sigma) - log_ndtr(q / sigma))
    shared = s.free[..., None] & (k > 1)
    first = jnp.where(shared, (q - (k - 1) * sigma * hazard) / k, q)
    second = jnp.where(shared, (q**2 + (k - 1) * (sigma**2 - sigma * q * hazard)) / k, q**2)
    return first, second
