"""Routes of deterministic problems as rows of pairs: their rewards, where they end, and which are optimal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.learning.metrics import SAME_VALUE
from bellmanifold.problem.ssp import SSP

MOST_ROUTES = 1000


@dataclass(frozen=True, eq=False)
class Routes:
    """Routes of a deterministic problem.

    Attributes:
        pairs: pairs of each route, shape (routes, steps), padded with -1.
        reward: total reward of each route.
        after: the state after its last pair; the number of states for the goal.
        is_loop: whether it ends where a state repeats, instead of at the goal.
    """

    pairs: Int[np.ndarray, "routes steps"]
    reward: Float[np.ndarray, "routes"]
    after: Int[np.ndarray, "routes"]
    is_loop: Bool[np.ndarray, "routes"]

    def collecting(self, value: float) -> Bool[np.ndarray, "routes"]:
        """Which routes reach the goal with a given total reward; none if that is NaN."""
        return ~self.is_loop & (np.abs(self.reward - value) <= SAME_VALUE * max(1.0, abs(value)))

    @property
    def is_optimal(self) -> Bool[np.ndarray, "routes"]:
        """Which routes are optimal, if these are all routes: those that reach the goal with the largest reward."""
        return self.collecting(float(self.reward[~self.is_loop].max()))


def read_routes(model: SSP, pairs: Int[np.ndarray, "routes steps"]) -> Routes:
    """Routes from rows of pairs, padded with -1."""
    last = pairs[np.arange(len(pairs)), (pairs >= 0).sum(axis=1) - 1]
    after = model.next_state[model.next_start[last]]
    return Routes(pairs, np.append(model.reward, 0.0)[pairs].sum(axis=1), after, after < model.n_states)


def filled_up(routes: Sequence[Sequence[int]]) -> Int[np.ndarray, "routes steps"]:
    """Routes as rows of equal length, padded with -1."""
    longest = max(map(len, routes))
    return np.array([[*route, *[-1] * (longest - len(route))] for route in routes])


def all_routes(model: SSP) -> tuple[tuple[int, ...], ...]:
    """All routes from the start, each given by the pairs played until the goal or until a state repeats.

    Empty if transitions are random, if there are several starts, or if there are more than 1,000 routes.
    """
    if not model.is_deterministic or np.count_nonzero(model.initial) != 1:
        return ()
    unfinished: list[tuple[int, ...]] = [()]
    routes: list[tuple[int, ...]] = []
    first = int(np.argmax(model.initial))
    while unfinished and len(routes) + len(unfinished) <= MOST_ROUTES:
        route = unfinished.pop()
        state = int(model.next_state[model.next_start[route[-1]]]) if route else first
        if state == model.n_states or state in model.pair_state[list(route)]:
            routes.append(route)
        else:
            unfinished += [(*route, pair) for pair in range(model.pair_start[state], model.pair_start[state + 1])]
    return () if unfinished else tuple(sorted(routes))
