"""A posterior in its coordinates as the input of compiled programs: one tree of arrays in the problem's order of pairs.

Its static fields determine the program; data are arrays, so growing data never cause recompilation.
`bellmanifold.posteriors.coordinates` explains what a point's numbers mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt64

from bellmanifold._util.jax_setup import STATIC, bound_programs, on_device
from bellmanifold.chart.batch import LIMITS, BatchChart, ChartLimits, TooLargeError, batch_chart, known_chart
from bellmanifold.chart.layout import Law, Layout, Solved, solve_layout
from bellmanifold.gaussian import exchangeable
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.costs_only import below, ceiling
from bellmanifold.posteriors.cuts import trap_error
from bellmanifold.posteriors.kernels import Kernel, log_normal
from bellmanifold.posteriors.laws import LEAST_LOG, OpenLaws
from bellmanifold.posteriors.noise_scale import combine
from bellmanifold.posteriors.target import Target


class Point(NamedTuple):
    """Standard normal coordinates of a batch of points.

    Attributes:
        x: coordinates of pairs; entries of pairs without one are ignored, shape (pairs, batch).
        z: coordinate of the noise scale, if it is inferred, shape (1 or 0, batch).
        coin: one for each lingering loop, heads where positive, shape (loops, batch).
        log_law: log probabilities of open laws (not normal numbers); None without, shape (rows, nexts, batch).
        concentration: concentration that the laws were drawn with; None without, shape (1, batch).
        log_ratio: log of the normal density over the density of the proposal; None for 0, shape (batch,).
    """

    x: Float[Array, "pairs batch"]
    z: Float[Array, "scales batch"]
    coin: Float[Array, "loops batch"]
    log_law: Float[Array, "rows nexts batch"] | None = None
    concentration: Float[Array, "1 batch"] | None = None
    log_ratio: Float[Array, "batch"] | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class System:
    """A posterior in its coordinates, as the input of compiled programs; pairs are in the problem's order.

    Attributes:
        layout: how the chart solves the problem.
        law: transition probabilities, for all points or (with a last axis) for each point of a batch.
        solved: pairs whose equation the chart solves, shape (pairs,).
        first: actions of a proper policy of M~ that, if possible, does not leave lingering loops, shape (states,).
        free: pairs whose value is a coordinate, or which hold a state without coordinates at 0, shape (pairs,).
        unseen: unobserved pairs of coupled states, shape (pairs,).
        reward, width: of observed pairs (solved or in the cut), shape (pairs,).
        split: widths of infinitesimal residuals, shape (pairs,).
        ceiling: largest residual of every pair where no move pays; empty elsewhere, shape (pairs,).
        own_precision, own_mean: of rewards of known sd, if the noise scale of others is inferred, shape (pairs,).
        prior_mean, prior_sd: shape (pairs,).
        alternatives: number of exchangeable pairs that each pair stands for, at least 1, shape (pairs,).
        knots, log_scale: the table of the noise scale; empty unless it is inferred, shape (knots,).
        mixer: numbers that tell policies apart, see `BatchChart.mixer`, shape (states,).
        tie_width: values closer than this count as tied.
        cut: observed pairs that are treated as free or as solved, shape (pairs,).
        subsets: pairs of each block solved under each subset of the cut, shape (subsets, own pairs); empty if no cut.
        exits: exits of each lingering loop, shape (loops, pairs).
        open: pairs whose law is drawn for each point, shape (rows,).
        seen: row and next state of every landing seen at these pairs, shape (2, seen).
        discount: factor of the open laws' probabilities.
        kernel: shape of the residuals.
        centred: whether coordinates are action values.
        exact: whether all residuals are infinitesimal.
        splits: whether there are infinitesimal residuals.
        flat: whether the prior is flat over rewards.
    """

    layout: Layout
    law: Law
    solved: Bool[Array, "pairs"]
    first: Int[Array, "states"]
    free: Bool[Array, "pairs"]
    unseen: Bool[Array, "pairs"]
    reward: Float[Array, "pairs"]
    width: Float[Array, "pairs"]
    split: Float[Array, "pairs"]
    ceiling: Float[Array, "_"]
    own_precision: Float[Array, "_"]
    own_mean: Float[Array, "_"]
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
    open: Int[Array, "rows"]
    seen: Int[Array, "2 seen"]
    discount: Float[Array, ""]
    kernel: Kernel = field(metadata=STATIC)
    centred: bool = field(metadata=STATIC)
    exact: bool = field(metadata=STATIC)
    splits: bool = field(metadata=STATIC)
    flat: bool = field(metadata=STATIC)

    def laws(self, point: Point) -> Law:
        """Transition probabilities: the same for all points, or one law per point if some laws are open."""
        if point.log_law is None:
            return self.law
        drawn = jnp.exp(jnp.maximum(point.log_law, LEAST_LOG)) * self.discount
        drawn = drawn.at[:, -1].add(1.0 - self.discount)
        return jnp.broadcast_to(self.law[..., None], (*self.law.shape, drawn.shape[-1])).at[self.open].set(drawn)

    def solve(self, law: Law, payment: Float[Array, "pairs batch"], value: Float[Array, "pairs batch"]) -> Solved:
        """The chart's solution for given laws, payments and values."""
        return solve_layout(self.layout, law, self.solved, self.first, payment, value)

    def log_prior(self, q: Float[Array, "pairs batch"]) -> Float[Array, "pairs batch"]:
        """Log prior density of action values."""
        return log_normal((q - self.prior_mean[:, None]) / self.prior_sd[:, None]) - jnp.log(self.prior_sd[:, None])

    def values(self, x: Float[Array, "pairs batch"]) -> Float[Array, "pairs batch"]:
        """Values of free pairs, given standard normal numbers; -inf for other pairs."""
        return jnp.where(self.free[:, None], self.prior_mean[:, None] + self.prior_sd[:, None] * x, -jnp.inf)

    def noise_scale(self, point: Point) -> Float[Array, "scales batch"]:
        """eta of every point, if it is inferred."""
        return jnp.exp(jnp.interp(point.z, self.knots, self.log_scale)) if len(point.z) else point.z

    def rewards(self, point: Point) -> tuple[Float[Array, "pairs _"], Float[Array, "pairs _"]]:
        """Reward of each pair and width of its residual; the same for all points unless the noise scale is inferred.

        Infinitesimal residuals have width 0 here.
        """
        reward, width = self.reward[:, None], self.width[:, None]
        if not len(point.z):
            return reward, width
        width = width * self.noise_scale(point)[0]
        if not len(self.own_precision):
            return reward, width
        return combine(reward, width, self.own_mean[:, None], self.own_precision[:, None], jnp)

    def drawn_residuals(self, x: Float[Array, "pairs batch"]) -> Float[Array, "pairs batch"]:
        """Residuals from standard normal numbers."""
        return below(x, self.ceiling[:, None]) if len(self.ceiling) else self.kernel.from_normal(x)

    def residuals(self, law: Law, q: Float[Array, "pairs batch"]) -> Float[Array, "pairs batch"]:
        """g_i(q) of every pair: its value less the expected value of the next state."""
        top = self.layout.greedy(q)[1]
        return q - self.layout.ahead(law, jnp.where(jnp.isfinite(top), top, 0.0))

    @property
    def ignores_residuals(self) -> bool:
        """Whether residuals change nothing: the posterior is exact, and there are no ties or no determinants."""
        no_determinants = all(block.way != "policies" for block in self.layout.blocks)
        return self.exact and not self.centred and (no_determinants or not self.splits)

    def tracked_values(self, point: Point) -> Float[Array, "followed batch"]:
        """Further quantities whose moments are reported: probabilities of landings, and the concentration."""
        if point.log_law is None or point.concentration is None:
            return jnp.zeros((0, point.x.shape[-1]))
        landings = jnp.exp(jnp.maximum(point.log_law[self.seen[0], self.seen[1]], LEAST_LOG))
        return jnp.concatenate([landings, point.concentration])


def chart_of(target: Target, limits: ChartLimits = LIMITS, only_observed: bool = False) -> BatchChart:
    """The batch chart of a posterior's problem; `only_observed` is for agents, which must not look at other pairs.

    Raises:
        TooLargeError: if the problem, or its known part, does not fit a batch, or if open laws are not kept as dense
            tables.
    """
    if target.laws is not None and not target.laws.fits_batch:
        raise TooLargeError(f"open laws may lead to {target.laws.nexts} states: too many for batches")
    return known_chart(target.model, target.observed, limits) if only_observed else batch_chart(target.model, limits)


def system_of(coordinates: Coordinates, chart: BatchChart) -> System:
    """A posterior in some coordinates, on a chart of its problem.

    Raises:
        UnsupportedError: if no parameter is proper.
    """
    target, model = coordinates.target, coordinates.target.model
    exits = np.zeros((len(coordinates.lingering), model.n_pairs), dtype=bool)
    leaving = np.zeros(model.n_pairs, dtype=bool)
    for row, loop in zip(exits, coordinates.lingering, strict=True):
        row[list(loop.exits)] = True
        leaving |= np.isin(model.pair_state, loop.states) & ~np.isin(np.arange(model.n_pairs), loop.pairs)
    # Policy iteration starts inside loops that are rarely left. From a policy that leaves, the advantage of staying is
    # only the leak times the gain, which is close to rounding; from one that stays, that of leaving is the whole gain.
    leaving &= coordinates.solved
    closed = np.asarray(exits.any(axis=0))[coordinates.stand_in]
    first = chart.first_policy(coordinates.solved & ~leaving, closed | leaving)
    first = chart.first_policy(coordinates.solved, closed) if first is None else first
    if first is None:
        if not (coordinates.cut or coordinates.centred):
            raise trap_error(target, coordinates.solved)
        first = jnp.zeros(model.n_states, dtype=jnp.int64)  # improper: every point then has weight 0
    idle = np.zeros(model.n_pairs, dtype=bool)  # a state without coordinates is held at 0: nothing depends on it
    idle[model.pair_start[:-1][~target.coupled]] = True
    cut = np.zeros(model.n_pairs, dtype=bool)
    cut[list(coordinates.cut)] = True
    table, laws = target.noise_scale, target.laws
    arrays = {
        "solved": coordinates.solved,
        "free": coordinates.free | idle,
        "unseen": coordinates.unseen,
        "reward": target.reward,
        "width": target.scale,
        "split": coordinates.split,
        "ceiling": ceiling(target) if target.costs_only else np.zeros(0),
        "own_precision": np.zeros(0) if target.own_precision is None else target.own_precision,
        "own_mean": np.zeros(0) if target.own_mean is None else target.own_mean,
        "prior_mean": np.where(idle, 0.0, target.prior.mean),
        "prior_sd": target.prior.sd,
        "alternatives": np.where(coordinates.free, coordinates.alternatives, 1),
        "knots": table.normal if table else np.zeros(0),
        "log_scale": table.log_scale if table else np.zeros(0),
        "mixer": chart.mixer,
        "tie_width": np.asarray(100 * coordinates.tie_width),
        "cut": cut,
        "exits": exits,
        "open": laws.pairs if laws else np.zeros(0, dtype=np.int64),
        "seen": np.stack(laws.seen) if laws else np.zeros((2, 0), dtype=np.int64),
        "discount": np.asarray(laws.discount if laws else 1.0),
    }
    system = System(
        layout=chart.layout,
        law=chart.law,
        first=first,
        subsets=_subsets(coordinates, chart.layout) if coordinates.cut and not coordinates.centred else (),
        kernel=target.kernel,
        centred=coordinates.centred,
        exact=target.is_exact,
        splits=bool(coordinates.split.any()),
        flat=target.prior.flat,
        **on_device(arrays),
    )
    bound_programs(system)
    return system


def _subsets(coordinates: Coordinates, layout: Layout) -> tuple[Bool[Array, "_ _"], ...]:
    """The pairs solved under each subset of the cut, block by block."""
    pairs = np.asarray(layout.pair)
    observed, solved = coordinates.target.observed[pairs], []
    for block in layout.blocks:
        places = np.flatnonzero(np.isin(pairs[block.own], coordinates.cut))
        masks = np.repeat(observed[None, block.own], 2 ** len(places) if block.way != "once" else 1, axis=0)
        for k, place in enumerate(places):
            masks[:, place] = (np.arange(len(masks)) >> k) & 1
        solved.append(jnp.asarray(masks))
    return tuple(solved)


class Drawn(NamedTuple):
    """Open laws of a batch of points, and the concentrations they were drawn with; see `Point`."""

    log_law: Float[Array, "rows nexts batch"]
    concentration: Float[Array, "1 batch"]


def drawn_laws(laws: OpenLaws | None, rng: np.random.Generator, batch: int) -> Drawn | None:
    """Draw open laws given their landings alone; None without open laws."""
    if laws is None:
        return None
    concentration = laws.draw_concentration(rng, batch)
    return Drawn(jnp.asarray(laws.draw(rng, concentration)), jnp.asarray(concentration[None]))


def normal_point(key: PRNGKeyArray, system: System, batch: int, laws: Drawn | None = None) -> Point:
    """Draw standard normal coordinates of pairs and of the noise scale, and coins; open laws are drawn beforehand."""
    of_pairs, of_scales = jax.random.split(key)
    coins = (len(system.exits), batch)
    return Point(
        jax.random.normal(of_pairs, (len(system.solved), batch)),
        jax.random.normal(of_scales, (min(len(system.knots), 1), batch)),
        jax.random.normal(jax.random.fold_in(key, 1), coins) if len(system.exits) else jnp.zeros(coins),
        *(laws or ()),
    )


def from_normals(system: System, point: Point) -> Point:
    """Set the number of a pair that stands for exchangeable ones to the largest of theirs."""
    if system.centred:
        return point
    members = system.layout.by_action(system.layout.sort(jnp.where(system.unseen[:, None], point.x, -jnp.inf)))
    largest = system.layout.of_state(jnp.max(members, axis=1))
    return point._replace(x=jnp.where((system.free & (system.alternatives > 1))[:, None], largest, point.x))


def member_means(system: System, q: Float[Array, "pairs batch"]) -> Float[Array, "pairs batch"]:
    """Means of the action values alone; only the rows of pairs that stand for several need computing, one by one."""
    shared = system.alternatives > 1
    rows = jnp.nonzero(shared, size=len(shared), fill_value=0)[0]

    def mean_of(k: Int[Array, ""], means: Float[Array, "pairs batch"]) -> Float[Array, "pairs batch"]:
        row = rows[k]
        own = (system.alternatives[row], system.prior_mean[row], system.prior_sd[row])
        return means.at[row].set(exchangeable.member_moments(means[row], *own, jnp.zeros(()))[0])

    q = jnp.where((system.solved | system.free)[:, None], q, 0.0)
    return jax.lax.fori_loop(0, jnp.sum(shared), mean_of, q)


@jax.jit
def member_moments(
    system: System, q: Float[Array, "pairs batch"]
) -> tuple[Float[Array, "pairs batch"], Float[Array, "pairs batch"]]:
    """Mean and variance of each action value, given q, which for pairs that stand for several is their maximum."""
    q = jnp.where((system.solved | system.free)[:, None], q, 0.0)
    own = (system.alternatives[:, None], system.prior_mean[:, None], system.prior_sd[:, None])
    first, _ = exchangeable.member_moments(q, *own, jnp.zeros_like(q))
    _, variance = exchangeable.member_moments(q, *own, first)
    shared = own[0] > 1
    return jnp.where(shared, first, q), jnp.where(shared, variance, 0.0)
