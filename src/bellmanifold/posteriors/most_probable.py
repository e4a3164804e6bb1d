"""The most probable routes, and the largest standard error of what a posterior reports.

A route's weight is that of all rows of the table that agree with it, times the shares of those of its pairs that stand
for others. Beginnings of routes are extended move by move. The weight of a beginning bounds that of every route that
starts with it, so one that is below as many routes as were requested is dropped. If there are more than `BEAM` times
that many, the least probable ones are dropped, too: the list is then very good, but not provably the best.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bellmanifold._util.progress import expect
from bellmanifold.errors import BadInputError
from bellmanifold.posteriors.policies import PolicyTable, action_probabilities
from bellmanifold.posteriors.route import Route
from bellmanifold.problem.ssp import SSP

BEAM = 16
"""Beginnings of routes kept for each requested route."""
MOST_ROUTES = 2**18
"""Beginnings of routes kept in all."""
ALL = 2**62
"""A limit that no number of routes reaches."""
MEASURED = 4096
"""Number of routes whose standard errors are computed at a time."""


class TooManyRoutesError(BadInputError):
    """More routes were requested than are kept."""


class _Beginning(NamedTuple):
    """Pairs played so far, states visited, rows of the table that agree, share by symmetry, and probability."""

    pairs: tuple[int, ...]
    states: tuple[int, ...]
    rows: Int[np.ndarray, "n"]
    share: float
    bound: float

    def is_route(self, goal: int) -> bool:
        """Whether it ends at the goal, or where a state repeats."""
        return self.states[-1] == goal or self.states[-1] in self.states[:-1]

    @property
    def order(self) -> tuple[float, tuple[int, ...]]:
        """Most probable first; equally probable ones in the order of their pairs."""
        return -self.bound, self.pairs


def most_probable_routes(model: SSP, table: PolicyTable, limit: int) -> list[Route] | None:
    """The most probable routes in descending order; None if moves are random or there are several initial states.

    With `ALL` as the limit nothing is dropped.

    Raises:
        TooManyRoutesError: if more than `MOST_ROUTES` are requested, and there are more.
    """
    if not model.is_deterministic or np.count_nonzero(model.initial) != 1:
        return None
    best = _best(model, table, limit) if limit > 0 else []
    routes: list[Route] = []
    for first in range(0, len(best), MEASURED):
        some = best[first : first + MEASURED]
        weight = {id(one.rows): table.of_rows(one.rows) for one in {id(one.rows): one for one in some}.values()}
        parts = np.stack([weight[id(one.rows)] * one.share for one in some], axis=1)
        errors = np.array([table.least_error[model.pair_state[list(one.pairs)]].max(initial=0.0) for one in some])
        estimate = table.share_of(parts, errors)
        routes += [
            Route(one.pairs, one.states[-1] == model.n_states, float(value), float(se), model)
            for one, value, se in zip(some, estimate.value, estimate.se, strict=True)
        ]
    return routes


def _best(model: SSP, table: PolicyTable, limit: int) -> list[_Beginning]:
    """The most probable routes, at most `limit`, most probable first."""
    goal, start = model.n_states, int(np.argmax(model.initial))
    stand, share = table.standing(model)
    found: list[_Beginning] = []
    alive = [_Beginning((), (start,), np.arange(len(table.policy)), 1.0, 1.0)]
    while len(found) < len(alive):
        expect("beginnings of routes", None, len(alive))
        longer = (
            more
            for one in alive
            for more in ([one] if one.is_route(goal) else _extensions(model, table, one, stand, share))
        )
        alive = nsmallest(min(BEAM * limit, MOST_ROUTES + 1), longer, key=lambda one: one.order)
        if len(alive) > MOST_ROUTES and limit > MOST_ROUTES:
            raise TooManyRoutesError(
                f"top is {limit}, and there are more than {MOST_ROUTES:,} routes: give a smaller --top"
            )
        found = [one for one in alive if one.is_route(goal)][:limit]
        least = found[-1].bound if len(found) == limit else 0.0
        alive = found + [one for one in alive if one.bound > least and not one.is_route(goal)]
    return found


def _extensions(
    model: SSP,
    table: PolicyTable,
    beginning: _Beginning,
    stand: Int[np.ndarray, "pairs"],
    share: Float[np.ndarray, "pairs"],
) -> Iterator[_Beginning]:
    """The beginning extended by each next move of positive probability; equal rows share one array."""
    state = beginning.states[-1]
    column = table.column[state]
    agreeing = {-1: (beginning.rows, beginning.bound / beginning.share)}
    for pair in range(model.pair_start[state], model.pair_start[state + 1]):
        like = int(stand[pair]) if column >= 0 else -1
        if like not in agreeing:
            rows = beginning.rows[table.policy[beginning.rows, column] == like]
            rows = beginning.rows if len(rows) == len(beginning.rows) else rows
            agreeing[like] = rows, float(table.share[rows].sum())
        rows, weight = agreeing[like]
        left = beginning.share * float(share[pair])
        if weight > 0:
            after = int(model.next_state[model.next_start[pair]])
            yield _Beginning((*beginning.pairs, pair), (*beginning.states, after), rows, left, weight * left)


def largest_error(model: SSP, table: PolicyTable, top: int, enough: float = np.inf) -> float:
    """The largest standard error of the action probabilities and of the most probable routes, if there are any.

    Routes are not considered if the action probabilities already have errors larger than `enough`.
    """
    error = float(action_probabilities(model, table).se.max(initial=0.0))
    if error > enough:
        return error
    return max([error, *(route.se for route in most_probable_routes(model, table, top) or [])])
