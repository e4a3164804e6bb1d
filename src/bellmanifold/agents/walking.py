"""Walking through a posterior from episode to episode: draws where importance weights are too uneven.

Chains of slice steps go on from where the last episode left them. What becomes known in between changes the posterior,
not the numbers that belong to pairs, so the chains need not begin anew. A few chains walk side by side, which costs
little more than one, and take turns at being played: by the time a chain is played again it has made as many visits as
there are unobserved pairs. A walk has one draw at a time: it knows no probabilities of routes, and its belief about
actions is that draw.
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
from bellmanifold.jax_setup import random_key
from bellmanifold.posteriors.coordinates import Coordinates, Point, Weighed, normal_point, weigh_normals
from bellmanifold.posteriors.sparse_coordinates import Place, SparseCoordinates
from bellmanifold.posteriors.sparse_steps import step
from bellmanifold.posteriors.steps import PICKS, advance, ignores_residuals
from bellmanifold.posteriors.target import Target

CHAINS = 4
"""Chains that take turns."""
FIRST_SWEEPS = 4
"""How often a chain visits every unobserved pair on average before it is first played."""
LEAST_STEPS = 4
"""Steps of every chain before an episode, at least."""
FIRST_TURNS, TURNS = 200, 50
"""The same where residuals matter: in a step they turn once, all together. Also: before the first episode."""
SPARSE_STEPS, FIRST_SPARSE_STEPS = 20, 200
"""On sparse systems a single chain walks: its steps before an episode, and at most so many before the first."""


class Drawn(NamedTuple):
    """The draw a walk plays, as a batch of one."""

    policy: Int[np.ndarray, "states 1"]
    at_start: float
    weighed: Weighed


class Walk:
    """Draws from chains of slice steps; with optimism, from several chains and points of an episode's stretch of them.

    Every pair has a normal number of its own, so the chains go on where they were when more pairs become known.
    """

    def __init__(self, target: Target, chart: BatchChart, before: object) -> None:
        covered = target.is_exact or not end_components(target.model, target.observed)
        self.coordinates = Coordinates(target, chart)
        self.diagnostics = {"frontier": float(self.coordinates.dimension), "proper_only": 0.0 if covered else 1.0}
        self.point: Point | None = self._carried(before) if isinstance(before, Walk) else None
        self.turn: int = before.turn if isinstance(before, Walk) else 0
        self._drawn: Drawn | None = None

    @property
    def sweep(self) -> int:
        """Steps in which a chain visits as many unobserved pairs as there are."""
        target = self.coordinates.target
        unseen = ~target.observed & target.coupled[target.model.pair_state]
        return -(-int(unseen.sum()) // PICKS)

    def draw(self, rng: np.random.Generator, optimism: int) -> Int[np.ndarray, "states"]:
        if self.point is None:
            shape = (*self.coordinates.chart.slot.shape, CHAINS)
            self.point = normal_point(_fresh_key(rng), shape, self.coordinates.scales)
            self._advance(rng, max(FIRST_SWEEPS * self.sweep, 0 if self._is_swift else FIRST_TURNS))
        stretches = -(-optimism // CHAINS)
        draws: list[Drawn] = []
        for stretch in range(stretches):
            least = LEAST_STEPS if self._is_swift else TURNS
            self._advance(rng, -(-max(self.sweep // CHAINS, least) // stretches))
            draws += [self._at(self._next_chain()) for _ in range(min(CHAINS, optimism - stretch * CHAINS))]
        self._drawn = max(draws, key=lambda drawn: drawn.at_start)
        return self._drawn.policy[:, 0]

    @property
    def _is_swift(self) -> bool:
        return ignores_residuals(self.coordinates.kind)

    def _advance(self, rng: np.random.Generator, steps: int) -> None:
        kind, structure = self.coordinates.kind, self.coordinates.structure
        assert self.point is not None, "the chains have begun"
        self.point = advance(kind, steps, structure, _fresh_key(rng), self.point)

    def _next_chain(self) -> int:
        self.turn = (self.turn + 1) % CHAINS
        return self.turn

    def _at(self, chain: int) -> Drawn:
        """What one chain would play."""
        assert self.point is not None, "the chains have begun"
        own = Point(*(leaf[..., chain : chain + 1] for leaf in self.point))
        weighed = weigh_normals(self.coordinates.kind, self.coordinates.structure, own)
        policy, at_start = greedy_policies(self.coordinates, weighed)
        return Drawn(policy, float(at_start[0]), weighed)

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


class SparseWalk:
    """The same on sparse systems, with one chain."""

    def __init__(self, target: Target, before: object, rng: np.random.Generator) -> None:
        self.coordinates = SparseCoordinates(target)
        self.diagnostics = {"frontier": float(self.coordinates.dimension)}
        if isinstance(before, SparseWalk):
            self.place: Place = self.coordinates.place(self._carried(before, rng), before.place.policy)
        else:
            self.place = self.coordinates.place(rng.standard_normal(self.coordinates.size), None)
            sweep = -(-len(self.coordinates.free) // PICKS)
            self._walk(min(FIRST_SWEEPS * sweep, FIRST_SPARSE_STEPS) if target.is_exact else FIRST_TURNS, rng)
        self._drawn = self.place.q

    def draw(self, rng: np.random.Generator, optimism: int) -> Int[np.ndarray, "states"]:
        model, draws = self.coordinates.target.model, []
        for _ in range(optimism):
            self._walk(-(-(SPARSE_STEPS if self.coordinates.is_exact else TURNS) // optimism), rng)
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
            self.place = step(self.coordinates, self.place, rng)

    def _carried(self, before: SparseWalk, rng: np.random.Generator) -> Float[np.ndarray, "coordinates"]:
        """The chain's coordinates with more data: what was a coordinate before keeps its number, the rest is drawn."""
        new, old, model = self.coordinates, before.coordinates, self.coordinates.target.model
        x, was = rng.standard_normal(new.size), before.place.x
        by_state, residual = np.full(model.n_states, np.nan), np.full(model.n_pairs, np.nan)
        by_state[model.pair_state[old.free]] = was[: len(old.free)]
        residual[old.residual] = was[len(old.free) :]
        kept = np.concatenate([by_state[model.pair_state[new.free]], residual[new.residual]])
        return np.where(np.isnan(kept), x, kept)
