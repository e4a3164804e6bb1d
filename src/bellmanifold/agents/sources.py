"""Where an agent's draws come from: weighed points, or routes with their probabilities (method A of the paper).

Walks are a third source (`bellmanifold.agents.walking`).
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bellmanifold.agents.agent import Beliefs
from bellmanifold.agents.beliefs import known_only, shares
from bellmanifold.chart.batch import BatchChart
from bellmanifold.graph import has_cycle
from bellmanifold.jax_setup import random_key
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.cuts import LargeCutError, covering
from bellmanifold.posteriors.estimated import effective_size
from bellmanifold.posteriors.inference import posterior_of
from bellmanifold.posteriors.policies import ALL, most_probable_routes
from bellmanifold.posteriors.system import System, drawn_laws, member_moments, system_of
from bellmanifold.posteriors.target import Target
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.posteriors.weight import Weighed, propose
from bellmanifold.ssp import SSP

POINTS, LAW_POINTS = 1024, 128
"""Points weighed at a time in each component of a mixture; fewer where each draws laws, which takes longer."""
TIMES, LAW_TIMES = (4, 8, 32), (1, 4, 16)
"""How many times that many points are tried before the agent begins to walk, the second only where it cannot."""
ENOUGH, ENOUGH_OF_LAWS = 100.0, 16.0
"""Effective points that policies are drawn from, where laws are given and where they are drawn."""
MOST_COORDINATES = 150
"""More coordinates than this are walked without trying importance,"""
MOST_PAIRS = 1000
"""and so are problems with more pairs: the program that weighs takes longer to compile than a walk takes."""


class Pool(NamedTuple):
    """Draws to play.

    Attributes:
        policy: greedy pairs, -1 where any unknown pair is the best, shape (states, draws).
        at_start: expected best value at the start, shape (draws,).
        probability: shape (draws,).
        effective: how many draws of equal weight these are worth.
        q_mean: mean of each pair's value, shape (pairs,).
    """

    policy: Int[np.ndarray, "states draws"]
    at_start: Float[np.ndarray, "draws"]
    probability: Float[np.ndarray, "draws"]
    effective: float
    q_mean: Float[np.ndarray, "pairs"]


def prior_pool(model: SSP, prior: ValuePrior) -> Pool:
    """What an agent that has seen nothing plays: any pair where priors are the same, else what its prior prefers."""
    alike = prior.exchangeable(model, np.ones(model.n_pairs, dtype=bool))
    if alike.all():
        return Pool(np.full((model.n_states, 1), -1), np.zeros(1), np.ones(1), 1.0, prior.mean)
    q = prior.draw(np.random.default_rng(0), POINTS)
    policy = np.where(alike, -1, model.greedy(q)).T
    share = np.full(POINTS, 1.0 / POINTS)
    return Pool(policy, model.best(q) @ model.initial, share, float(POINTS), prior.mean)


@runtime_checkable
class Source(Protocol):
    """Where an agent's draws come from."""

    diagnostics: dict[str, float]

    def draw(self, rng: np.random.Generator, optimism: int) -> Int[np.ndarray, "states"]:
        """A greedy policy; -1 where any unknown pair of the state is the best."""

    def route_probabilities(self, routes: tuple[tuple[int, ...], ...]) -> Float[np.ndarray, "routes"]:
        """The probability that each route is optimal; NaN if a single draw is all there is."""

    def beliefs(self) -> Beliefs:
        """What is believed about every pair; a single draw if that is all there is."""


def is_swept(target: Target) -> bool:
    """Is it a large exact posterior that one sweep solves at a point? Then nothing has to be compiled."""
    given = target.is_exact and target.laws is None and target.model.n_pairs > MOST_PAIRS
    return given and not has_cycle(target.model, target.observed)


class WeighedPoints:
    """Draws from weighed points."""

    def __init__(self, pool: Pool, observed: Bool[np.ndarray, "pairs"], model: SSP) -> None:
        self.pool, self.observed, self.model = pool, observed, model
        self.diagnostics = {"effective_sample_size": pool.effective}
        self._asked: tuple[tuple[tuple[int, ...], ...], Float[np.ndarray, "routes"]] | None = None

    def draw(self, rng: np.random.Generator, optimism: int) -> Int[np.ndarray, "states"]:
        chosen = rng.choice(len(self.pool.probability), size=optimism, p=self.pool.probability)
        return self.pool.policy[:, chosen[np.argmax(self.pool.at_start[chosen])]]

    def route_probabilities(self, routes: tuple[tuple[int, ...], ...]) -> Float[np.ndarray, "routes"]:
        if self._asked is None or self._asked[0] != routes:
            self._asked = routes, np.array([self._route_probability(route) for route in routes])
        return self._asked[1]

    @cached_property
    def _beliefs(self) -> Beliefs:
        share = shares(self.model, self.observed, self.pool.policy, self.pool.probability)
        return Beliefs(share, self.pool.q_mean)

    def beliefs(self) -> Beliefs:
        return self._beliefs

    def _route_probability(self, route: tuple[int, ...]) -> float:
        state = self.model.pair_state
        unknown = np.add.reduceat(~self.observed, self.model.pair_start[:-1])
        plays = self.pool.probability
        for pair in route:
            here = self.pool.policy[state[pair]]
            any_unknown = 0.0 if self.observed[pair] else (here < 0) / unknown[state[pair]]
            plays = plays * ((here == pair) + any_unknown)
        return float(plays.sum())


def weighed_points(target: Target, chart: BatchChart, seed: int) -> WeighedPoints | None:
    """Weighed points of the posterior, if enough of them count, or if walks could not cover it."""
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
    for times in often if unwalkable else often[::2]:  # where a walk would do, it is cheaper than trying once more
        if tried and often[-1] / often[0] * max(source.pool.effective for source in tried) < enough:
            break  # more points would not help
        for way in cover.ways:
            tried.append(WeighedPoints(_weighed(way, chart, times, seed), target.observed, target.model))
            if cover.missed:
                tried[-1].diagnostics["proper_only"] = 1.0
            if tried[-1].pool.effective >= enough:
                return tried[-1]
    best = max(tried, key=lambda source: source.pool.effective, default=None)
    return best if unwalkable and best is not None and best.pool.effective > 0 else None


def _weighed(way: list[Coordinates], chart: BatchChart, times: int, seed: int) -> Pool:
    target = way[0].target
    points, rng = POINTS if target.laws is None else LAW_POINTS, np.random.default_rng(seed)
    policies, at_start, log_weights, sums = [], [], [], []
    for number, coordinates in enumerate(way):
        system = system_of(coordinates, chart)
        initial = target.model.initial[np.asarray(system.layout.state)]
        for time in range(times):
            drawn = drawn_laws(target.laws, rng, points)
            found = propose(system, random_key(seed, number, time), points, drawn)
            policies.append(known_only(target, chart.pairs(np.asarray(found.choice))))
            starts, part = _reduced(system, initial, found)
            at_start.append(np.asarray(starts))
            log_weights.append(np.asarray(found.log_weight))
            sums.append((np.asarray(part), float(found.log_scale)))
    log_weight = np.concatenate(log_weights)
    top = log_weight.max()
    reference = top if np.isfinite(top) else 0.0
    weight = np.exp(log_weight - reference)
    total = float(weight.sum())
    mean = sum(part * np.exp(min(scale - reference, 0.0)) for part, scale in sums) / (total or 1.0)
    coupled = target.coupled[target.model.pair_state] & (total > 0)
    return Pool(
        np.concatenate(policies, axis=1),
        np.concatenate(at_start),
        weight / (total or 1.0),
        effective_size(weight),
        np.where(coupled, mean[way[0].stand_in], target.prior.mean),
    )


@jax.jit
def _reduced(
    system: System, initial: Float[Array, "states"], found: Weighed
) -> tuple[Float[Array, "batch"], Float[Array, "pairs"]]:
    """Each point's value at the start, and the weighted sum of action values, in one program."""
    best = system.layout.greedy(found.q)[1]
    weight = jnp.exp(found.log_weight - found.log_scale)
    mean = jnp.where(weight > 0, member_moments(system, found.q)[0], 0.0)
    return initial @ jnp.where(jnp.isfinite(best), best, 0.0), mean @ weight


class DrawnRoutes:
    """Method A: draws routes in proportion to their probabilities."""

    def __init__(self, target: Target, seed: int) -> None:
        summary = posterior_of(target, Budget(seed=seed))
        routes = most_probable_routes(target.model, summary.table, ALL)
        self.model, self.routes = target.model, routes
        self.probability = np.array([route.probability for route in routes])
        self.probability /= self.probability.sum()
        self.diagnostics = {"routes": float(len(routes))}
        self._beliefs = Beliefs(summary.action_probability.value, summary.q_mean.value)

    def draw(self, rng: np.random.Generator, optimism: int) -> Int[np.ndarray, "states"]:
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
