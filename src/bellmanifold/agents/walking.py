"""Walking through a posterior from episode to episode: draws where importance weights are too uneven.

A chain of elliptical slice steps goes on from where the last episode left it, some steps an episode. What becomes known
in between changes the posterior, not the numbers that belong to pairs, so the chain need not begin anew. A walk has one
draw at a time: it knows no probabilities of routes, and its belief about actions is that draw.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from bellmanifold.agents.beliefs import greedy_policies, known_only, mean_values, shares
from bellmanifold.agents.episodes import Beliefs
from bellmanifold.chart import BatchChart
from bellmanifold.graph import end_components
from bellmanifold.posteriors.coordinates import Coordinates, Point, Weighed, normal_point, weigh_normals
from bellmanifold.posteriors.keys import random_key
from bellmanifold.posteriors.sparse_walk import Place, SparseCoordinates
from bellmanifold.posteriors.target import Target
from bellmanifold.posteriors.walk import advance

FIRST_STEPS, STEPS = 200, 50
"""Slice steps when a walk begins, and before every later episode."""


class Drawn(NamedTuple):
    """The draw a walk plays, as a batch of one."""

    policy: Int[np.ndarray, "states 1"]
    weighed: Weighed


class Walk:
    """Draws from a chain of elliptical slice steps; with optimism, from several points of an episode's stretch of it.

    Every pair has a normal number of its own, so the chain goes on where it was when more pairs become known.
    """

    def __init__(self, target: Target, chart: BatchChart, before: object) -> None:
        covered = target.is_exact or not end_components(target.model, target.observed)
        self.coordinates = Coordinates(target, chart)
        self.diagnostics = {"frontier": float(self.coordinates.dimension), "proper_only": 0.0 if covered else 1.0}
        self.point: Point | None = self._carried(before) if isinstance(before, Walk) else None
        self._drawn: Drawn | None = None

    def draw(self, rng: np.random.Generator, optimism: int) -> Int[np.ndarray, "states"]:
        kind, structure = self.coordinates.kind, self.coordinates.structure
        if self.point is None:
            shape = (*self.coordinates.chart.slot.shape, 1)
            start = normal_point(_fresh_key(rng), shape, self.coordinates.scales)
            self.point = advance(kind, FIRST_STEPS, structure, _fresh_key(rng), start)
        draws = []
        for _ in range(optimism):
            self.point = advance(kind, _steps_of_one(optimism), structure, _fresh_key(rng), self.point)
            weighed = weigh_normals(kind, structure, self.point)
            draws.append((*greedy_policies(self.coordinates, weighed), weighed))
        policy, _, weighed = max(draws, key=lambda draw: float(draw[1][0]))
        self._drawn = Drawn(policy, weighed)
        return policy[:, 0]

    def beliefs(self) -> Beliefs:
        assert self._drawn is not None, "an agent draws before it is asked"
        target = self.coordinates.target
        share = shares(target.model, target.observed, self._drawn.policy, np.ones(1))
        return Beliefs(share, mean_values(self.coordinates, self._drawn.weighed))

    def route_probabilities(self, routes: tuple[tuple[int, ...], ...]) -> Float[np.ndarray, "routes"]:
        return np.full(len(routes), np.nan)

    def _carried(self, before: Walk) -> Point | None:
        """Where the chain was, in the order of states that the chart has now."""
        if before.point is None:
            return None
        x = np.asarray(before.point.x)[before.coordinates.chart.place]
        return before.point._replace(x=jnp.asarray(self.coordinates.chart.spread(x, 0.0)))


def _fresh_key(rng: np.random.Generator) -> PRNGKeyArray:
    return random_key(int(rng.integers(2**63)))


def _steps_of_one(optimism: int) -> int:
    """Slice steps between two draws: an episode's steps are shared among them."""
    return -(-STEPS // optimism)


class SparseWalk:
    """The same on sparse systems."""

    def __init__(self, target: Target, before: object, rng: np.random.Generator) -> None:
        self.coordinates = SparseCoordinates(target)
        self.diagnostics = {"frontier": float(self.coordinates.dimension)}
        if isinstance(before, SparseWalk):
            self.place: Place = self.coordinates.place(self._carried(before, rng), before.place.policy)
        else:
            self.place = self.coordinates.place(rng.standard_normal(self.coordinates.size), None)
            self._walk(FIRST_STEPS, rng)
        self._drawn = self.place.q

    def draw(self, rng: np.random.Generator, optimism: int) -> Int[np.ndarray, "states"]:
        model, draws = self.coordinates.target.model, []
        for _ in range(optimism):
            self._walk(_steps_of_one(optimism), rng)
            draws.append(self.place.q)
        at_start = [float(model.initial @ np.nan_to_num(model.best(q))) for q in draws]
        self._drawn = draws[int(np.argmax(at_start))]
        return known_only(self.coordinates.target, model.greedy(self._drawn))

    def beliefs(self) -> Beliefs:
        target = self.coordinates.target
        policy = known_only(target, target.model.greedy(self._drawn))
        share = shares(target.model, target.observed, policy[:, None], np.ones(1))
        first, _ = self.coordinates.moments(self._drawn)
        return Beliefs(share, first[self.coordinates.stand_in])

    def route_probabilities(self, routes: tuple[tuple[int, ...], ...]) -> Float[np.ndarray, "routes"]:
        return np.full(len(routes), np.nan)

    def _walk(self, steps: int, rng: np.random.Generator) -> None:
        for _ in range(steps):
            self.place = self.coordinates.step(self.place, rng)

    def _carried(self, before: SparseWalk, rng: np.random.Generator) -> Float[np.ndarray, "coordinates"]:
        """The chain's coordinates with more data: what was a coordinate before keeps its number, the rest is drawn."""
        new, old, model = self.coordinates, before.coordinates, self.coordinates.target.model
        x, was = rng.standard_normal(new.size), before.place.x
        by_state, residual = np.full(model.n_states, np.nan), np.full(model.n_pairs, np.nan)
        by_state[model.pair_state[old.free]] = was[: len(old.free)]
        residual[old.residual] = was[len(old.free) :]
        kept = np.concatenate([by_state[model.pair_state[new.free]], residual[new.residual]])
        return np.where(np.isnan(kept), x, kept)
