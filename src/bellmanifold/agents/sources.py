"""Sources of an agent's draws: weighted points, or routes with their probabilities (method A of the paper).

Walks are a third source (`bellmanifold.agents.walking`).
"""

from __future__ import annotations

from functools import cached_property, partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from bellmanifold._util.jax_setup import random_keys
from bellmanifold.agents.agent import Beliefs
from bellmanifold.agents.beliefs import known_only, shares
from bellmanifold.chart.batch import BatchChart
from bellmanifold.mdp.graph import has_cycle
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.cuts import LargeCutError, covering
from bellmanifold.posteriors.estimated import effective_size
from bellmanifold.posteriors.inference import posterior_of
from bellmanifold.posteriors.most_probable import ALL, most_probable_routes
from bellmanifold.posteriors.system import Drawn, System, drawn_laws, member_means, system_of
from bellmanifold.posteriors.target import Target
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.posteriors.weight import propose
from bellmanifold.problem.ssp import SSP

POINTS, LAW_POINTS = 1024, 128
"""Points per batch in each component of a mixture; fewer where every point draws laws, which takes longer."""
TIMES, LAW_TIMES = (4, 8, 32), (1, 4, 16)
"""Numbers of batches to try before the agent walks instead; the middle one is tried only where it cannot walk."""
ENOUGH, ENOUGH_OF_LAWS = 100.0, 16.0
"""Effective sample sizes that suffice for drawing policies, where laws are given and where they are drawn."""
MOST_COORDINATES = 150
"""Posteriors with more coordinates than this are walked without trying importance sampling,"""
MOST_PAIRS = 1000
"""and so are problems with more pairs: compiling the importance weights would take longer than a walk."""


class Pool(NamedTuple):
    """Draws to play.

    Attributes:
        policy: greedy pairs, -1 where any unknown pair is the best, shape (states, draws).
        at_start: expected optimal value at the start, shape (draws,).
        probability: normalised weights, shape (draws,).
        effective: effective sample size.
        q_mean: mean of each pair's value, shape (pairs,).
    """

    policy: Int[np.ndarray, "states draws"]
    at_start: Float[np.ndarray, "draws"]
    probability: Float[np.ndarray, "draws"]
    effective: float
    q_mean: Float[np.ndarray, "pairs"]


def prior_pool(model: SSP, prior: ValuePrior) -> Pool:
    """Draws of an agent that has seen nothing: any pair where a state's priors are equal, else greedy prior draws."""
    alike = prior.exchangeable(model, np.ones(model.n_pairs, dtype=bool))
    if alike.all():
        return Pool(np.full((model.n_states, 1), -1), np.zeros(1), np.ones(1), 1.0, prior.mean)
    q = prior.draw(np.random.default_rng(0), POINTS)
    policy = np.where(alike, -1, model.greedy(q)).T
    share = np.full(POINTS, 1.0 / POINTS)
    return Pool(policy, model.best(q) @ model.initial, share, float(POINTS), prior.mean)


def is_swept(target: Target) -> bool:
    """Whether this is a large exact posterior whose points take one sweep to solve; then nothing has to be compiled."""
    given = target.is_exact and target.laws is None and target.model.n_pairs > MOST_PAIRS
    return given and not has_cycle(target.model, target.observed)


class WeighedPoints:
    """Draws from weighted points."""

    def __init__(self, pool: Pool, observed: Bool[np.ndarray, "pairs"], model: SSP) -> None:
        self.pool, self.observed, self.model = pool, observed, model
        self.diagnostics = {"effective_sample_size": pool.effective}
        self._asked: tuple[tuple[tuple[int, ...], ...], Float[np.ndarray, "routes"]] | None = None

    def draw(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The greedy policy of a draw; -1 where any unknown pair of the state is the best."""
        return self.pool.policy[:, int(rng.choice(len(self.pool.probability), p=self.pool.probability))]

    def route_probabilities(self, routes: tuple[tuple[int, ...], ...]) -> Float[np.ndarray, "routes"]:
        """The probability that each route is optimal."""
        if self._asked is None or self._asked[0] != routes:
            plays = {pair: self._plays(pair) for pair in {pair for route in routes for pair in route}}
            each = [reduce(np.multiply, (plays[pair] for pair in route), self.pool.probability) for route in routes]
            self._asked = routes, np.array([float(chance.sum()) for chance in each])
        return self._asked[1]

    @cached_property
    def _beliefs(self) -> Beliefs:
        share = shares(self.model, self.observed, self.pool.policy, self.pool.probability)
        return Beliefs(share, self.pool.q_mean)

    def beliefs(self) -> Beliefs:
        return self._beliefs

    def _plays(self, pair: int) -> Float[np.ndarray, "draws"]:
        """The probability that each draw plays a pair: 0, 1, or an equal share where any unknown pair is the best."""
        state, observed = int(self.model.pair_state[pair]), self.observed
        here = self.pool.policy[state]
        own = slice(self.model.pair_start[state], self.model.pair_start[state + 1])
        any_unknown = 0.0 if observed[pair] else (here < 0) / np.count_nonzero(~observed[own])
        return np.asarray((here == pair) + any_unknown)


def weighed_points(target: Target, chart: BatchChart, seed: int) -> WeighedPoints | None:
    """Weighted points of the posterior, if their effective sample size suffices or if walks could not cover it."""
    try:
        cover = covering(target)
    except LargeCutError:
        return None
    first = cover.ways[0][0]
    if int((first.free | (first.residual & (target.scale > 0))).sum()) > MOST_COORDINATES:
        return None
    unwalkable = bool(first.cut or first.lingering)
    enough, often = (ENOUGH, TIMES) if target.laws is None else (ENOUGH_OF_LAWS, LAW_TIMES)
    if target.model.n_pairs > MOST_PAIRS and not unwalkable:
        return None
    tried: list[WeighedPoints] = []
    found = [Weighing(way, chart, seed) for way in cover.ways]
    for times in often if unwalkable else often[::2]:  # where a walk is possible, it is cheaper than another try
        if tried and often[-1] / often[0] * max(source.pool.effective for source in tried) < enough:
            break  # more points would not help
        for weighing in found:
            tried.append(WeighedPoints(weighing.pool(times), target.observed, target.model))
            if cover.missed:
                tried[-1].diagnostics["proper_only"] = 1.0
            if tried[-1].pool.effective >= enough:
                return tried[-1]
    best = max(tried, key=lambda source: source.pool.effective, default=None)
    return best if unwalkable and best is not None and best.pool.effective > 0 else None


class _Part(NamedTuple):
    """What an agent keeps of batches of points.

    Attributes:
        choice: greedy action of each of the layout's states, shape (batches, states, batch).
        at_start: expected optimal value at the start, shape (batches, batch).
        log_weight: log importance weights, shape (batches, batch).
        total, log_scale: weighted sum of the action values, shape (batches, pairs), with weights relative to
            exp(log_scale), shape (batches,).
    """

    choice: Int[np.ndarray, "batches states batch"]
    at_start: Float[np.ndarray, "batches batch"]
    log_weight: Float[np.ndarray, "batches batch"]
    total: Float[np.ndarray, "batches pairs"]
    log_scale: Float[np.ndarray, "batches"]


class Weighing:
    """Points of a mixture with components `way`, weighted batch by batch; earlier batches are kept."""

    def __init__(self, way: list[Coordinates], chart: BatchChart, seed: int) -> None:
        self.way, self.chart, self.seed, self.target = way, chart, seed, way[0].target
        self.parts: list[list[_Part]] = [[] for _ in way]

    @cached_property
    def _systems(self) -> list[System]:
        return [system_of(coordinates, self.chart) for coordinates in self.way]

    def pool(self, times: int) -> Pool:
        """The points of the first `times` batches of each component."""
        laws = self.target.laws
        if laws is None:
            for number, parts in enumerate(self.parts):
                for first in range(len(parts) * TIMES[0], times, TIMES[0]):
                    parts.append(self._weigh(number, range(first, first + TIMES[0])))
        else:  # one generator draws all of them, component by component
            rng = np.random.default_rng(self.seed)
            self.parts = [
                [self._weigh(number, range(time, time + 1), drawn_laws(laws, rng, LAW_POINTS)) for time in range(times)]
                for number in range(len(self.way))
            ]
        return _pool(self.target, self.way[0], self.chart, [part for parts in self.parts for part in parts])

    def _weigh(self, number: int, batches: range, laws: Drawn | None = None) -> _Part:
        system = self._systems[number]
        keys = random_keys([(self.seed, number, batch) for batch in batches])
        initial = self.target.model.initial[np.asarray(system.layout.state)]
        found = _weigh_batches(system, initial, keys, POINTS if laws is None else LAW_POINTS, laws)
        return _Part(*map(np.asarray, found))


@partial(jax.jit, static_argnames="batch")
def _weigh_batches(
    system: System, initial: Float[Array, "states"], keys: Key[Array, "batches"], batch: int, laws: Drawn | None
) -> tuple[Array, ...]:
    """Draw and weight batches of points, as the fields of `_Part`."""

    def one(key: PRNGKeyArray) -> tuple[Array, ...]:
        found = propose(system, key, batch, laws)
        best = system.layout.greedy(found.q)[1]
        weight = jnp.exp(found.log_weight - found.log_scale)
        mean = jnp.where(weight > 0, member_means(system, found.q), 0.0)
        starts = initial @ jnp.where(jnp.isfinite(best), best, 0.0)
        return found.choice, starts, found.log_weight, mean @ weight, found.log_scale

    return tuple(jax.lax.map(one, keys))


def _pool(target: Target, first: Coordinates, chart: BatchChart, parts: list[_Part]) -> Pool:
    """The pooled points of all parts of a mixture, without those of weight 0."""
    log_weight = np.concatenate([part.log_weight.ravel() for part in parts])
    top = log_weight.max()
    reference = top if np.isfinite(top) else 0.0
    weight = np.exp(log_weight - reference)
    total = float(weight.sum())
    sums = [pair for part in parts for pair in zip(part.total, part.log_scale.tolist(), strict=True)]
    mean = sum(own * np.exp(min(scale - reference, 0.0)) for own, scale in sums) / (total or 1.0)
    coupled = target.coupled[target.model.pair_state] & (total > 0)
    probability = weight / (total or 1.0)
    counts = np.flatnonzero(probability) if total > 0 else np.arange(len(weight))
    choice = np.concatenate(
        [np.moveaxis(part.choice, 0, 1).reshape(part.choice.shape[1], -1) for part in parts], axis=1
    )
    return Pool(
        known_only(target, chart.pairs(choice[:, counts])),
        np.concatenate([part.at_start.ravel() for part in parts])[counts],
        probability[counts],
        effective_size(weight),
        np.where(coupled, mean[first.stand_in], target.prior.mean),
    )


class DrawnRoutes:
    """Method A: draws routes in proportion to their probabilities."""

    def __init__(self, target: Target, seed: int) -> None:
        summary = posterior_of(target, Budget(seed=seed))
        routes = most_probable_routes(target.model, summary.table, ALL)
        assert routes is not None, "only problems with routes have a distribution of them"
        self.model, self.routes = target.model, routes
        self.probability = np.array([route.probability for route in routes])
        self.probability /= self.probability.sum()
        self.diagnostics = {"routes": float(len(routes))}
        self._beliefs = Beliefs(summary.action_probability.value, summary.q_mean.value)

    def draw(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        route = self.routes[int(rng.choice(len(self.routes), p=self.probability))]
        policy = self.model.pair_start[:-1].copy()
        pairs = np.array(route.pairs)
        policy[self.model.pair_state[pairs]] = pairs
        return policy

    def route_probabilities(self, routes: tuple[tuple[int, ...], ...]) -> Float[np.ndarray, "routes"]:
        known = {route.pairs: route.probability for route in self.routes}
        return np.array([known.get(route, 0.0) for route in routes])

    def beliefs(self) -> Beliefs:
        return self._beliefs
