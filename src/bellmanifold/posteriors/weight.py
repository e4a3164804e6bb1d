"""The weight of a batch of points: coordinates -> action values, weighed, in one compiled program.

What a point's numbers mean is said in `bellmanifold.posteriors.coordinates`, how cuts are weighed in
`bellmanifold.posteriors.cuts`. A `System` is everything the program needs, as one tree of arrays in the order of the
problem's pairs, whose static fields fix the program: data are arrays, so growing data never compile anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr, ndtri
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt64

from bellmanifold.chart.batch import BatchChart
from bellmanifold.chart.elimination import eliminate_batch, moves_within
from bellmanifold.chart.layout import Block, Law, Layout, Solved
from bellmanifold.gaussian.exchangeable import jax_member_moments
from bellmanifold.kernels import Kernel, log_normal
from bellmanifold.posteriors.coordinates import Coordinates

NUMBERED = 2**62
"""Up to this many policies have a number each; the codes of more are hashes."""
LEAST = 1e-300
"""Probabilities below this are taken for it: what lies there has no weight."""


class Point(NamedTuple):
    """Standard normal coordinates of a batch of points.

    Attributes:
        x: by pair; entries of pairs without a coordinate are ignored, shape (pairs, batch).
        z: of the noise scale, if it is inferred, shape (1 or 0, batch).
        coin: heads where positive, one for each lingering loop, shape (loops, batch).
    """

    x: Float[Array, "pairs batch"]
    z: Float[Array, "scales batch"]
    coin: Float[Array, "loops batch"]


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        *(
            "layout",
            "law",
            "solved",
            "first",
            "free",
            "unseen",
            "observed",
            "reward",
            "width",
            "prior_mean",
            "prior_sd",
        ),
        *("alternatives", "knots", "log_scale", "mixer", "tie_width", "cut", "subsets", "exits"),
    ],
    meta_fields=["kernel", "centred", "exact"],
)
@dataclass(frozen=True)
class System:
    """A posterior in its coordinates, as compiled programs take it; pairs are in the problem's order.

    Attributes:
        layout: how the chart solves the problem.
        law: where pairs lead, for all points or for each.
        solved: pairs whose equation the chart solves, shape (pairs,).
        first: actions of a proper policy of M~, that avoids the exits of lingering loops, shape (states,).
        free: pairs whose value is a coordinate, or which hold a state without coordinates at 0, shape (pairs,).
        unseen: unobserved pairs of coupled states, shape (pairs,).
        observed: shape (pairs,).
        reward, width: of observed pairs, shape (pairs,).
        prior_mean, prior_sd: shape (pairs,).
        alternatives: how many exchangeable pairs each pair stands for, at least 1, shape (pairs,).
        knots, log_scale: the table of the noise scale; empty unless it is inferred, shape (knots,).
        mixer: numbers that tell policies apart, see `mixer_of`, shape (states,).
        tie_width: values closer than this count as tied.
        cut: observed pairs that are free or solved, shape (pairs,).
        subsets: for each block the pairs that each subset of the cut solves, shape (subsets, own pairs); empty without.
        exits: of each lingering loop, shape (loops, pairs).
        kernel: shape of the residuals.
        centred: coordinates are action values.
        exact: residuals are infinitesimal.
    """

    layout: Layout
    law: Law
    solved: Bool[Array, "pairs"]
    first: Int[Array, "states"]
    free: Bool[Array, "pairs"]
    unseen: Bool[Array, "pairs"]
    observed: Bool[Array, "pairs"]
    reward: Float[Array, "pairs"]
    width: Float[Array, "pairs"]
    prior_mean: Float[Array, "pairs"]
    prior_sd: Float[Array, "pairs"]
    alternatives: Int[Array, "pairs"]
    knots: Float[Array, "knots"]
    log_scale: Float[Array, "knots"]
    mixer: UInt64[Array, "states"]
    tie_width: Float[Array, ""]
    cut: Bool[Array, "pairs"]
    subsets: tuple[Bool[Array, "_ _"], ...]
    exits: Bool[Array, "loops pairs"]
    kernel: Kernel
    centred: bool
    exact: bool

    def solve(self, payment: Float[Array, "pairs batch"], value: Float[Array, "pairs batch"]) -> Solved:
        """The chart's solution at payments and values."""
        return self.layout.solve(self.law, self.solved, self.first, payment, value)

    def log_prior(self, q: Float[Array, "pairs batch"]) -> Float[Array, "pairs batch"]:
        """Log prior density of action values."""
        return log_normal((q - self.prior_mean[:, None]) / self.prior_sd[:, None]) - jnp.log(self.prior_sd[:, None])

    def values(self, x: Float[Array, "pairs batch"]) -> Float[Array, "pairs batch"]:
        """Values of free pairs at standard normal numbers; -inf for other pairs."""
        return jnp.where(self.free[:, None], self.prior_mean[:, None] + self.prior_sd[:, None] * x, -jnp.inf)

    def noise_scale(self, point: Point) -> Float[Array, "scales batch"]:
        """eta of every point, where it is inferred."""
        return jnp.exp(jnp.interp(point.z, self.knots, self.log_scale)) if len(point.z) else point.z

    def widths(self, point: Point) -> Float[Array, "pairs _"]:
        """Width of each residual: the same for all points unless the noise scale is inferred."""
        return self.width[:, None] * self.noise_scale(point)[0] if len(point.z) else self.width[:, None]

    def residuals(self, q: Float[Array, "pairs batch"]) -> Float[Array, "pairs batch"]:
        """g_i(q) - r_i."""
        top = self.layout.greedy(q)[1]
        ahead = self.layout.ahead(self.law, jnp.where(jnp.isfinite(top), top, 0.0))
        return q - self.reward[:, None] - ahead

    @property
    def ignores_residuals(self) -> bool:
        """An exact posterior without determinants does not depend on how ties are split."""
        return self.exact and not self.centred and all(block.way != "policies" for block in self.layout.blocks)


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
        mean, square: weighted mean of q, and weighted sum of its squared deviations from that, shape (pairs,).
        tied: which of the layout's states have observed best actions that tie within `tie_width`, shape (states,).
    """

    log_weight: Float[Array, "batch"]
    choice: Int[Array, "states batch"]
    code: UInt64[Array, "batch"]
    q: Float[Array, "pairs batch"]
    noise_scale: Float[Array, "scales batch"]
    log_scale: Float[Array, ""]
    weight: Float[Array, ""]
    mean: Float[Array, "pairs"]
    square: Float[Array, "pairs"]
    tied: Bool[Array, "states"]


def system_of(coordinates: Coordinates, chart: BatchChart) -> System:
    """A posterior in some coordinates, on a chart of its problem.

    Raises:
        UnsupportedError: if no parameter is proper.
    """
    target, model = coordinates.target, coordinates.target.model
    exits = np.zeros((len(coordinates.lingering), model.n_pairs), dtype=bool)
    for row, loop in zip(exits, coordinates.lingering, strict=True):
        row[list(loop.exits)] = True
    first = chart.first_policy(coordinates.solved, np.asarray(exits.any(axis=0)))
    if first is None:
        if not (coordinates.cut or coordinates.centred):
            raise coordinates.trapped()
        first = jnp.zeros(model.n_states, dtype=jnp.int64)  # it is improper: then every point weighs 0
    idle = np.zeros(model.n_pairs, dtype=bool)  # a state without coordinates is held at 0: nothing depends on it
    idle[model.pair_start[:-1][~target.coupled]] = True
    cut = np.zeros(model.n_pairs, dtype=bool)
    cut[list(coordinates.cut)] = True
    table = target.noise_scale
    arrays = {
        "solved": coordinates.solved,
        "free": coordinates.free | idle,
        "unseen": coordinates.unseen,
        "observed": target.observed,
        "reward": target.reward,
        "width": coordinates.width,
        "prior_mean": np.where(idle, 0.0, target.prior.mean),
        "prior_sd": target.prior.sd,
        "alternatives": np.where(coordinates.free, coordinates.alternatives, 1),
        "knots": table.normal if table else np.zeros(0),
        "log_scale": table.log_scale if table else np.zeros(0),
        "mixer": mixer_of(chart),
        "tie_width": np.asarray(100 * coordinates.tie_width),
        "cut": cut,
        "exits": exits,
    }
    return System(
        layout=chart.layout,
        law=chart.law,
        first=first,
        subsets=_subsets(coordinates, chart.layout) if coordinates.cut and not coordinates.centred else (),
        kernel=target.kernel,
        centred=coordinates.centred,
        exact=target.is_exact,
        **{name: jnp.asarray(array) for name, array in arrays.items()},
    )


def _subsets(coordinates: Coordinates, layout: Layout) -> tuple[Bool[Array, "_ _"], ...]:
    """What is solved in each subset of the cut, block by block."""
    pairs = np.asarray(layout.pair)
    observed, solved = coordinates.target.observed[pairs], []
    for block in layout.blocks:
        places = np.flatnonzero(np.isin(pairs[block.own], coordinates.cut))
        masks = np.repeat(observed[None, block.own], 2 ** len(places) if block.way != "once" else 1, axis=0)
        for k, place in enumerate(places):
            masks[:, place] = (np.arange(len(masks)) >> k) & 1
        solved.append(jnp.asarray(masks))
    return tuple(solved)


def n_policies(chart: BatchChart) -> int:
    """How many policies the padded actions can play; they are numbered by the digits of their choices."""
    states, actions = chart.layout.slot.shape
    return int(actions) ** states


def mixer_of(chart: BatchChart) -> UInt64[np.ndarray, "states"]:
    """What the choice of each state is multiplied by: its place value, or a random odd number if there are too many."""
    states, actions = chart.layout.slot.shape
    if n_policies(chart) <= NUMBERED:
        return np.array([actions**place for place in range(states)], dtype=np.uint64)
    odd = 2 * np.random.default_rng(0x5EED).integers(0, 2**63, states, dtype=np.uint64) + 1
    return np.asarray(odd, dtype=np.uint64)


def normal_point(key: PRNGKeyArray, system: System, batch: int) -> Point:
    """Standard normal coordinates: of pairs, of the noise scale, and coins."""
    of_pairs, of_scales = jax.random.split(key)
    coins = (len(system.exits), batch)
    return Point(
        jax.random.normal(of_pairs, (len(system.solved), batch)),
        jax.random.normal(of_scales, (min(len(system.knots), 1), batch)),
        jax.random.normal(jax.random.fold_in(key, 1), coins) if len(system.exits) else jnp.zeros(coins),
    )


@partial(jax.jit, static_argnames="batch")
def propose(system: System, key: PRNGKeyArray, batch: int) -> Weighed:
    """Draw points from the reference distribution and weigh them."""
    return weigh_normals(system, normal_point(key, system, batch))


@jax.jit
def weigh_normals(system: System, point: Point) -> Weighed:
    """Weigh standard normal vectors, in which each pair has its own number."""
    return weigh(system, from_normals(system, point))


def from_normals(system: System, point: Point) -> Point:
    """Standard normals with the largest of a state's exchangeable pairs where one of them stands for all."""
    if system.centred:
        return point
    members = system.layout.by_action(system.layout.sort(jnp.where(system.unseen[:, None], point.x, -jnp.inf)))
    largest = system.layout.of_state(jnp.max(members, axis=1))
    return point._replace(x=jnp.where((system.free & (system.alternatives > 1))[:, None], largest, point.x))


@jax.jit
def weigh(system: System, point: Point) -> Weighed:
    """Weigh points: normal numbers, those of pairs that stand for several already as the largest of these."""
    if system.centred:
        log_weight, q = _weigh_centred(system, point)
    elif system.subsets:
        log_weight, q = _weigh_cut(system, point)
    else:
        log_weight, q = _weigh_plain(system, point)
    return _reduced(system, log_weight, q, system.noise_scale(point))


Heights = tuple[Float[Array, "batch"], Float[Array, "pairs batch"]]
"""Log weights, and action values that decide what is greedy."""


def _weigh_plain(system: System, point: Point) -> Heights:
    """Without a cut."""
    residual = system.kernel.from_normal(point.x)
    reward = jnp.broadcast_to(system.reward[:, None], point.x.shape)
    value = lowered(system, point)
    solved = system.solve(reward + system.widths(point) * residual, value)
    q = solved.q
    if system.exact:
        # Infinitesimal residuals decide ties and the determinant. The prior must not see them: it would tilt ties by
        # 1e-8 (reward / sigma)^2. Nor must they undo a loop that costs less than they pay.
        plain = system.solve(reward, value)
        solved = Solved(*(jnp.where(solved.solvable, split, whole) for split, whole in zip(solved, plain, strict=True)))
        q = plain.q
    terms = system.log_prior(q) + system.kernel.log_correction(residual)
    total = jnp.sum(jnp.where(system.solved[:, None], terms, 0.0), axis=0) - solved.log_det - log_mixture(system, q)
    return jnp.where(solved.solvable, total, -jnp.inf), solved.q


def lowered(system: System, point: Point) -> Float[Array, "pairs batch"]:
    """Values of free pairs; exits of loops whose coin shows heads are drawn below what lingering is worth."""
    value = system.values(point.x)
    if not len(system.exits):
        return value
    closed = jnp.any(system.exits[:, :, None] & (point.coin > 0)[:, None], axis=0)
    reward = jnp.broadcast_to(system.reward[:, None], point.x.shape)
    without = system.solve(reward, jnp.where(closed, -jnp.inf, value)).q
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
    log_rise = -system.alternatives[:, None] * jnp.maximum(log_ndtr(ceiling), jnp.log(LEAST))
    own = (q - system.prior_mean[:, None]) / system.prior_sd[:, None]
    log_term = jnp.where(own < ceiling, log_rise, -jnp.inf)
    by_loop = jnp.sum(jnp.where(system.exits[:, :, None], log_term, 0.0), axis=1)
    return jnp.sum(jnp.logaddexp(0.0, by_loop) - jnp.log(2.0), axis=0)


def _weigh_cut(system: System, point: Point) -> Heights:
    """With a cut, against the mixture of all its subsets."""
    residual, width = system.kernel.from_normal(point.x), system.widths(point)
    q, _, solvable = system.solve(system.reward[:, None] + width * residual, system.values(point.x))
    log_prior = system.log_prior(q)
    observed, cut = system.observed[:, None], system.cut[:, None]
    safe = jnp.where(observed, width, 1.0)
    z = system.residuals(q) / safe
    log_kernel = system.kernel.log_density(z) - jnp.log(safe)
    log_proposal = log_kernel - system.kernel.log_correction(z)
    solved_terms = jnp.where(observed & ~cut, system.kernel.log_correction(residual), 0.0)
    terms = jnp.where(observed, log_prior, 0.0) + jnp.where(cut, log_kernel, 0.0) + solved_terms
    total = jnp.sum(terms, axis=0)
    layout = system.layout
    choice, _ = layout.greedy(q)
    law, sorted_cut, as_solved, as_free = (layout.sort(array) for array in (system.law, cut, log_proposal, log_prior))
    for block, solved in zip(layout.blocks, system.subsets, strict=True):
        if block.way == "once":
            continue
        own = block.own
        log_determinants = _log_acyclic if block.way == "sweeps" else _log_determinants
        dets = log_determinants(block, layout, law[own], choice[block.states], solved)
        factor = jnp.where(solved[..., None], as_solved[None, own], as_free[None, own])
        proposed = dets + jnp.sum(jnp.where(sorted_cut[None, own], factor, 0.0), axis=1)
        total = total - (jax.scipy.special.logsumexp(proposed, axis=0) - jnp.log(len(solved)))
    return jnp.where(solvable, total, -jnp.inf), q


def _log_determinants(
    block: Block, layout: Layout, law: Law, choice: Int[Array, "own batch"], solved: Bool[Array, "subsets own_pairs"]
) -> Float[Array, "subsets batch"]:
    """log |det A_b| of a block's greedy policy, for every subset b."""
    successor, law = layout.successor[block.own], law if law.ndim == 3 else law[..., None]
    inside = moves_within(successor, law, block.begin, block.end)
    out = jnp.where(((successor < block.begin) | (successor >= block.end))[..., None], law, 0.0).sum(axis=1)

    def log_det(own: Bool[Array, "own_pairs"]) -> Float[Array, "batch"]:
        moves = layout.chosen(block, jnp.where(own[:, None, None], inside, 0.0), choice)
        leave = layout.chosen(block, jnp.where(own[:, None], out, 1.0), choice)
        pivots, _ = eliminate_batch(moves, leave, jnp.zeros_like(leave))
        return jnp.sum(jnp.log(pivots), axis=0)

    return jax.vmap(log_det)(solved)


def _log_acyclic(
    block: Block, layout: Layout, law: Law, choice: Int[Array, "own batch"], solved: Bool[Array, "subsets own_pairs"]
) -> Float[Array, "subsets batch"]:
    """The same where moves are not random: 0 if following greedy solved pairs leaves the block, else -inf."""
    states = block.end - block.begin
    after = jnp.sum(jnp.where((law if law.ndim == 2 else law[..., 0]) == 1.0, layout.successor[block.own], 0), axis=-1)
    after = after - block.begin
    after = jnp.where((after < 0) | (after >= states), states, after)

    def log_det(mine: Bool[Array, "own_pairs"]) -> Float[Array, "batch"]:
        step = layout.chosen(block, jnp.where(mine, after, states)[:, None], choice)
        step = jnp.append(step, jnp.full((1, choice.shape[-1]), states), axis=0)
        for _ in range(states.bit_length()):  # twice as many moves each time
            step = jnp.take_along_axis(step, step, axis=0)
        return jnp.where(jnp.all(step == states, axis=0), 0.0, -jnp.inf)

    return jax.vmap(log_det)(solved)


def _weigh_centred(system: System, point: Point) -> Heights:
    """In centred coordinates."""
    q = system.values(point.x)
    safe = jnp.where(system.solved[:, None], system.widths(point), 1.0)
    terms = system.kernel.log_density(system.residuals(q) / safe) - jnp.log(safe)
    return jnp.sum(jnp.where(system.solved[:, None], terms, 0.0), axis=0), q


def _reduced(
    system: System,
    log_weight: Float[Array, "batch"],
    q: Float[Array, "pairs batch"],
    noise_scale: Float[Array, "scales batch"],
) -> Weighed:
    """What answers need of a batch."""
    choice, best = system.layout.greedy(q)
    code = jnp.sum(choice.astype(jnp.uint64) * system.mixer[:, None], axis=0)
    top = jnp.max(log_weight)
    log_scale = jnp.where(jnp.isfinite(top), top, 0.0)
    weight = jnp.exp(log_weight - log_scale)
    finite = jnp.where((system.solved | system.free)[:, None] & (weight > 0), q, 0.0)
    total = jnp.sum(weight)
    mean = finite @ weight / jnp.where(total > 0, total, 1.0)
    square = (finite - mean[:, None]) ** 2 @ weight
    tied = _tied(system, q, best) if system.exact else jnp.zeros(len(choice), dtype=bool)
    return Weighed(log_weight, choice.astype(jnp.int16), code, q, noise_scale, log_scale, total, mean, square, tied)


def _tied(system: System, q: Float[Array, "pairs batch"], best: Float[Array, "states batch"]) -> Bool[Array, "states"]:
    close = (system.layout.of_state(best) - q < system.tie_width) & system.solved[:, None]
    count = system.layout.by_action(system.layout.sort(close.astype(q.dtype)), 0.0)
    return jnp.any(jnp.sum(count, axis=1) > 1, axis=-1)


@jax.jit
def member_moments(
    system: System, q: Float[Array, "pairs batch"]
) -> tuple[Float[Array, "pairs batch"], Float[Array, "pairs batch"]]:
    """Mean and variance of the action values, given those of pairs that stand for several as their largest."""
    q = jnp.where((system.solved | system.free)[:, None], q, 0.0)
    own = (system.alternatives[:, None], system.prior_mean[:, None], system.prior_sd[:, None])
    first, _ = jax_member_moments(q, *own, jnp.zeros_like(q))
    _, variance = jax_member_moments(q, *own, first)
    shared = own[0] > 1
    return jnp.where(shared, first, q), jnp.where(shared, variance, 0.0)
