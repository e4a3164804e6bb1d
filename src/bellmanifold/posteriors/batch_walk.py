"""Walking the chart of a problem that fits a batch: many chains in one compiled program.

In the chart's coordinates a step consists of four moves, each of which leaves the posterior invariant:

- residuals, and an unknown noise scale, turn together on an ellipse (`bellmanifold.samplers.elliptical`);
- a few unobserved pairs are visited one at a time (`bellmanifold.samplers.coordinatewise`): the posterior forbids
  unobserved values much better than the observed ones, so a single value would stop all of them turning together;
- unobserved pairs that are not the best choice of their state are idle below its value, and are refreshed;
- open laws (`bellmanifold.posteriors.laws`): the law of one pair at a time is proposed from its Dirichlet and accepted
  with the ratio of the weights. Laws are drawn several steps ahead by NumPy, which is thirty times as fast as JAX here.
  The laws nearly determine the concentration. So between these moves a chain forgets some laws (possibly all or none),
  draws the concentration given the other laws and the landings, and then redraws the forgotten laws: one proposal,
  which is accepted or rejected like any other.
  Every other proposal of a single law is *local*: an exact reward of a pair that mostly stays fixes how rarely it
  leaves, and fresh laws rarely match that. With a total G from Gamma(sum c) the numbers g = G p are independent
  Gamma(c_k), where c are the shapes of the Dirichlet. One of them is multiplied by e^d, with d normal of random width;
  the acceptance ratio is that of the weights times exp(c_k d - g_k (e^d - 1)), the ratio of the densities of log g_k.

The infinitesimal residuals of an exact posterior without determinants do not matter at all: they are idle everywhere.
In centred coordinates residuals tie observed and unobserved values together, and all coordinates turn at once.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt64

from bellmanifold._util.jax_setup import random_key
from bellmanifold._util.progress import advance as count
from bellmanifold.chart.batch import BatchChart
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.laws import OpenLaws, log_dirichlet, log_gamma
from bellmanifold.posteriors.result import Moments
from bellmanifold.posteriors.system import (
    Drawn,
    Point,
    System,
    drawn_laws,
    from_normals,
    member_moments,
    normal_point,
    system_of,
)
from bellmanifold.posteriors.trace import MOST_RECORDED, Trace, Welford
from bellmanifold.posteriors.walker import PICKS, Draw, Ends, Walker
from bellmanifold.posteriors.weight import weigh_normals
from bellmanifold.samplers import coordinatewise, elliptical
from bellmanifold.samplers.coordinatewise import Evaluation, Visited

ROWS = 4
"""Number of open laws that each chain proposes per step."""
STRETCH, SHORT = 10, 5
"""Number of steps for which open laws are drawn at a time; SHORT where drawing all laws is cheap."""
CHEAP = 2**16
"""Total size of the laws of all chains up to which drawing them is cheap."""
NARROWEST, WIDEST = 0.1, 10.0
"""Local proposals of the logarithm of a probability have log-uniform widths between these."""
FORGOTTEN = np.array([0.0, 0.25, 0.5, 1.0])
"""Probabilities of forgetting a law: each chain draws one of these."""


class BatchWalker(Walker):
    """Chains that move together in a compiled program; they continue `before`, chains with fewer data, if given."""

    least, most = 4, 2**62

    def __init__(
        self,
        coordinates: Coordinates,
        chart: BatchChart,
        rng: np.random.Generator,
        chains: int,
        before: BatchWalker | None = None,
    ) -> None:
        self.coordinates, self.chart, self.chains, self.is_fresh = coordinates, chart, chains, before is None
        self.system = system_of(coordinates, chart)
        self.visited, self.ignores_residuals = int(coordinates.unseen.sum()), self.system.ignores_residuals
        laws = drawn_laws(self.laws, rng, chains)
        if before is None:
            self.point = normal_point(fresh_key(rng), self.system, chains, laws)
        elif laws is None or self.laws is None:
            self.point = before.point
        else:
            self.point = before.point._replace(**before.carry_laws(self.laws, laws)._asdict())

    @property
    def laws(self) -> OpenLaws | None:
        """Open laws, if there are any."""
        return self.coordinates.target.laws

    def carry_laws(self, after: OpenLaws, drawn: Drawn) -> Drawn:
        """Laws of these chains for rows without new landings, and the `drawn` ones for all others."""
        if self.laws is None or self.point.log_law is None:
            return drawn
        new, old = after.unchanged(self.laws)
        kept = self.point.log_law[self.laws.active[old]]
        return drawn._replace(log_law=drawn.log_law.at[after.active[new]].set(kept))

    @property
    def stretch(self) -> int:
        """Number of steps for which open laws are drawn at a time."""
        return SHORT if self.laws is not None and self.laws.counts.size * self.chains <= CHEAP else STRETCH

    def advance(self, rng: np.random.Generator, steps: int) -> None:
        if self.laws is None:
            self.point = advance(self.system, steps, fresh_key(rng), self.point)
        for _ in range(0 if self.laws is None else -(-steps // self.stretch)):
            proposals = self._proposals(rng, self.stretch)  # moves the point, too
            self.point = advance_laws(self.system, fresh_key(rng), self.point, proposals)
        count("steps", steps)

    def _proposals(self, rng: np.random.Generator, steps: int) -> Proposals | None:
        """Laws to propose in the next steps; the chains first move to the concentrations that these are drawn with."""
        laws = self.laws
        if laws is None:
            return None
        self._swap_some(laws, rng)
        assert self.point.concentration is not None, "laws are open"
        concentration = np.asarray(self.point.concentration)[0]
        return draw_proposals(rng, laws, steps, concentration)

    def _swap_some(self, laws: OpenLaws, rng: np.random.Generator) -> None:
        """Propose the concentration together with some laws, given the others: the laws nearly determine it."""
        log_law = np.array(self.point.log_law)
        chance = rng.choice(FORGOTTEN, self.chains)
        forgotten = rng.random((len(laws.active), self.chains)) < chance
        concentration = laws.concentration_given(rng, log_law, forgotten)
        log_law[laws.active] = np.where(
            forgotten[:, None], laws.draw(rng, concentration)[laws.active], log_law[laws.active]
        )
        there = self.point._replace(log_law=jnp.asarray(log_law), concentration=jnp.asarray(concentration[None]))
        before, after = (np.asarray(weigh_normals(self.system, point).log_weight) for point in (self.point, there))
        taken = jnp.asarray(~np.isfinite(before) | (after > before + np.log(rng.random(self.chains))))
        self.point = jax.tree.map(lambda new, old: jnp.where(taken, new, old), there, self.point)

    def draw(self, chain: int) -> Draw:
        own = jax.tree.map(lambda leaf: leaf[..., chain : chain + 1], self.point)
        weighed = weigh_normals(self.system, own)
        policy = self.chart.pairs(np.asarray(weighed.choice))[:, 0]
        mean, _ = member_moments(self.system, weighed.q)
        best = np.asarray(self.system.layout.greedy(weighed.q)[1])[:, 0]
        at_start = self.coordinates.target.model.initial[np.asarray(self.system.layout.state)] @ np.nan_to_num(best)
        return Draw(policy, float(at_start), np.asarray(mean)[:, 0][self.coordinates.stand_in])

    def ends(self, kept: Bool[np.ndarray, "chains"] | None = None) -> Ends:
        weighed, point = weigh_normals(self.system, self.point), self.point
        kept = np.isfinite(weighed.log_weight) if kept is None else kept
        laws = None
        if point.log_law is not None and point.concentration is not None:
            laws = Drawn(point.log_law[..., kept], point.concentration[:, kept])
        return Ends(kept, np.asarray(weighed.q)[:, kept], np.asarray(weighed.noise_scale)[:, kept], laws)

    def record(self, rng: np.random.Generator, steps: int, keeps: bool = False) -> Trace:
        if self.laws is None:
            return self._record(rng, steps)
        return Trace.joined([self._record(rng, self.stretch) for _ in range(-(-steps // self.stretch))])

    def _record(self, rng: np.random.Generator, steps: int) -> Trace:
        target = self.coordinates.target
        coupled = np.flatnonzero(target.coupled[np.asarray(self.system.layout.state)])
        looked_at = coupled[np.unique(np.linspace(0, len(coupled) - 1, MOST_RECORDED).astype(np.int64))]
        proposals = self._proposals(rng, steps)
        done = _run(self.system, steps, jnp.asarray(looked_at), fresh_key(rng), self.point, proposals)
        self.point = done[0]
        count("steps", steps)
        welford, record = jax.tree.map(np.asarray, done[1:])
        kept = np.isfinite(record.log_weight[0])  # a chain that has found the posterior stays there
        code = record.code[:, kept]
        _, first, row = np.unique(code, return_index=True, return_inverse=True)
        chains = max(1, int(kept.sum()))
        choice = record.choice[:, :, kept][first // chains, :, first % chains]
        moments = Moments(np.full(len(code.T), float(steps)), welford.mean[:, kept].T, welford.square[:, kept].T)
        return Trace(
            policy=self.chart.pairs(choice.T).T[:, target.coupled],
            row=row.reshape(code.shape).T,
            value=np.moveaxis(np.concatenate([record.value, record.noise_scale], axis=1)[:, :, kept], 2, 0),
            scales=self.coordinates.scales,
            moments=moments.standing(self.coordinates.stand_in),
            chain=np.flatnonzero(kept),
            lost=self.chains - int(kept.sum()),
            evaluations=float(record.evaluations.mean()),
        )


def fresh_key(rng: np.random.Generator) -> PRNGKeyArray:
    """A JAX key drawn from a NumPy generator."""
    return random_key(int(rng.integers(2**63)))


class State(NamedTuple):
    """The points of the chains, and their evaluations."""

    point: Point
    evaluation: Evaluation


def init(system: System, point: Point) -> State:
    """Start chains at given points."""
    return State(point, evaluate(system, point))


def evaluate(system: System, point: Point) -> Evaluation:
    """The log weight of standard normal vectors, and the ceilings below which unobserved pairs are idle."""
    if system.centred:
        return Evaluation(weigh_normals(system, point).log_weight, jnp.full(point.x.shape, -jnp.inf))
    if system.ignores_residuals:  # an exact posterior without ties that matter: one solution is enough
        x = from_normals(system, point).x
        reward = jnp.broadcast_to(system.reward[:, None], x.shape)
        q, log_det, solvable = system.solve(system.laws(point), reward, system.values(x))
        total = jnp.sum(jnp.where(system.solved[:, None], system.log_prior(q), 0.0), axis=0) - log_det
        log_weight, elsewhere = jnp.where(solvable, total, -jnp.inf), jnp.inf
    else:
        weighed = weigh_normals(system, point)
        log_weight, q, elsewhere = weighed.log_weight, weighed.q, -jnp.inf
    best = system.layout.of_state(system.layout.greedy(q)[1])
    mean, sd = system.prior_mean[:, None], system.prior_sd[:, None]
    ceiling = jnp.where(mean + sd * point.x < best, (best - mean) / sd, -jnp.inf)
    return Evaluation(log_weight, jnp.where(system.unseen[:, None], ceiling, elsewhere))


class Proposals(NamedTuple):
    """Laws that chains propose, fresh or local; see above.

    Attributes:
        row: row of the open pair, shape (rows,).
        log_law: its fresh law, shape (rows, nexts, chains).
        is_local: whether its law is changed locally instead, shape (rows,).
        landing: which of its gamma numbers is multiplied, shape (rows,).
        shape: shape parameter of that gamma number, shape (rows, chains).
        log_total: logarithm of the sum of the pair's gamma numbers, shape (rows, chains).
        shift: added to the logarithm of that gamma number, shape (rows, chains).
    """

    row: Int[Array, "*steps rows"]
    log_law: Float[Array, "*steps rows nexts chains"]
    is_local: Bool[Array, "*steps rows"]
    landing: Int[Array, "*steps rows"]
    shape: Float[Array, "*steps rows chains"]
    log_total: Float[Array, "*steps rows chains"]
    shift: Float[Array, "*steps rows chains"]

    def apply(
        self, log_law: Float[Array, "all nexts chains"]
    ) -> tuple[Float[Array, "nexts chains"], Float[Array, "chains"]]:
        """The law that a single proposal gives its pair, and the log density ratio besides that of the weights."""
        own = log_law[self.row]
        before = self.log_total + own[self.landing]
        moved = own.at[self.landing].add(self.shift)
        moved = moved - jax.scipy.special.logsumexp(moved, axis=0)
        ratio = self.shape * self.shift - jnp.exp(before + self.shift) + jnp.exp(before)
        return jnp.where(self.is_local, moved, self.log_law), jnp.where(self.is_local, ratio, 0.0)


def draw_proposals(
    rng: np.random.Generator, laws: OpenLaws, steps: int, concentration: Float[np.ndarray, "chains"]
) -> Proposals:
    """Laws to propose in a number of steps, every other one local."""
    row = rng.choice(laws.active, size=(steps, ROWS))
    size = (*row.shape, len(concentration))
    fresh, counts, landing = row[:, ::2], laws.counts[row], rng.integers(laws.nexts, size=row.shape)
    log_law = np.zeros((*row.shape, laws.nexts, len(concentration)))
    drawn = log_dirichlet(rng, laws.counts[fresh.ravel()][:, :, None] + laws.base_weight(concentration))
    log_law[:, ::2] = drawn.reshape(*fresh.shape, *drawn.shape[1:])
    own = np.take_along_axis(counts, landing[..., None], axis=-1) + laws.base_weight(concentration)
    total = log_gamma(rng, counts.sum(axis=-1)[..., None] + concentration)
    width = np.exp(rng.uniform(np.log(NARROWEST), np.log(WIDEST), size))
    is_local = np.broadcast_to(np.arange(ROWS) % 2 == 1, row.shape)
    parts = (row, log_law, is_local, landing, own, total, width * rng.standard_normal(size))
    return Proposals(*(jnp.asarray(part) for part in parts))


def swap_laws(system: System, key: PRNGKeyArray, here: State, proposals: Proposals) -> State:
    """Propose laws one after the other; each is accepted with the ratio of the weights times that of the densities."""

    def one(here: State, proposal: tuple[Proposals, PRNGKeyArray]) -> tuple[State, None]:
        own, key = proposal
        assert here.point.log_law is not None, "laws are proposed where there are open ones"
        log_law, ratio = own.apply(here.point.log_law)
        there = init(system, here.point._replace(log_law=here.point.log_law.at[own.row].set(log_law)))
        level = jnp.log(jax.random.uniform(key, log_law.shape[-1:])) + here.evaluation.log_likelihood - ratio
        taken = there.evaluation.log_likelihood > level
        return jax.tree.map(lambda new, old: jnp.where(taken, new, old), there, here), None

    keys = jax.random.split(key, proposals.row.shape[0])
    return jax.lax.scan(one, here, (proposals, keys))[0]


def step(
    system: System, key: PRNGKeyArray, here: State, proposals: Proposals | None = None
) -> tuple[State, Int[Array, ""]]:
    """Move every chain; also returns the number of likelihood evaluations of the slowest one."""
    turning, visiting, refreshing = jax.random.split(key, 3)
    turns = jnp.array(0)
    if proposals is not None:
        here = swap_laws(system, jax.random.fold_in(key, 1), here, proposals)
    if not system.ignores_residuals:
        here, turns = _turn(system, turning, here)
    if system.centred:
        return here, turns

    def look(x: Float[Array, "coordinates chains"]) -> Evaluation:
        return evaluate(system, here.point._replace(x=x))

    (unseen,) = jnp.nonzero(system.unseen, size=len(system.unseen), fill_value=0)
    visited = Visited(unseen, jnp.sum(system.unseen))
    state = coordinatewise.State(here.point.x, here.evaluation)
    state, visits = coordinatewise.visit(visiting, state, look, visited, jnp.minimum(PICKS, visited.number))
    state = coordinatewise.refresh(refreshing, state)
    return State(here.point._replace(x=state.position), state.evaluation), turns + visits


def _turn(system: System, key: PRNGKeyArray, here: State) -> tuple[State, Int[Array, ""]]:
    """Turn residuals and the noise scale together; in centred coordinates, all coordinates."""
    which = Point(
        jnp.full_like(system.unseen, True) if system.centred else ~system.unseen,
        jnp.ones(len(here.point.z), dtype=bool),
        jnp.zeros(len(here.point.coin), dtype=bool),
        *(jnp.zeros(leaf.shape[:-1], dtype=bool) for leaf in here.point[3:] if leaf is not None),
    )
    state = elliptical.State(here.point, here.evaluation.log_likelihood)
    state, turns = elliptical.step(key, state, lambda point: evaluate(system, point).log_likelihood, which)
    return init(system, state.position), turns


@jax.jit
def advance(system: System, steps: int | Int[Array, ""], key: PRNGKeyArray, point: Point) -> Point:
    """The points of the chains after a number of steps."""

    def move(k: Int[Array, ""], here: State) -> State:
        return step(system, jax.random.fold_in(key, k), here)[0]

    return jax.lax.fori_loop(0, steps, move, init(system, point)).point


@jax.jit
def advance_laws(system: System, key: PRNGKeyArray, point: Point, proposals: Proposals) -> Point:
    """The points of the chains after one step for each set of proposals."""

    def move(here: State, own: tuple[Proposals, PRNGKeyArray]) -> tuple[State, None]:
        return step(system, own[1], here, own[0])[0], None

    keys = jax.random.split(key, len(proposals.row))
    return jax.lax.scan(move, init(system, point), (proposals, keys))[0].point


class _Record(NamedTuple):
    """One step of all chains: log weight, hash and actions of the greedy policies, some values, noise scale, cost."""

    log_weight: Float[Array, "*steps chains"]
    code: UInt64[Array, "*steps chains"]
    choice: Int[Array, "*steps states chains"]
    value: Float[Array, "*steps recorded chains"]
    noise_scale: Float[Array, "*steps scales chains"]
    evaluations: Int[Array, "*steps"]


@partial(jax.jit, static_argnames="steps")
def _run(
    system: System,
    steps: int,
    looked_at: Int[Array, "recorded"],
    key: PRNGKeyArray,
    point: Point,
    proposals: Proposals | None,
) -> tuple[Point, Welford, _Record]:
    """The last points of the chains, means and squared deviations over the steps of each, and records of all steps."""

    def move(
        carry: tuple[State, Welford], own: tuple[PRNGKeyArray, Proposals | None]
    ) -> tuple[tuple[State, Welford], _Record]:
        here, moments = carry
        here, evaluations = step(system, own[0], here, own[1])
        found = weigh_normals(system, here.point)
        mean, variance = member_moments(system, found.q)
        followed = system.tracked_values(here.point)
        moments = moments.with_one_more(
            jnp.concatenate([mean, followed]), jnp.concatenate([variance, jnp.zeros_like(followed)])
        )
        value = system.layout.greedy(found.q)[1][looked_at]
        record = _Record(found.log_weight, found.code, found.choice, value, found.noise_scale, evaluations)
        return (here, moments), record

    nothing = jnp.zeros((len(point.x) + len(system.tracked_values(point)), point.x.shape[1]))
    begin = (init(system, point), Welford(jnp.array(0.0), nothing, nothing))
    (here, moments), record = jax.lax.scan(move, begin, (jax.random.split(key, steps), proposals))
    return here.point, moments, record
