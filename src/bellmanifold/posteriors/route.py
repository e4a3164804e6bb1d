"""A route: the pairs played from the start, and the probability that the optimal policy takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bellmanifold._util.display import with_error
from bellmanifold.errors import printable
from bellmanifold.problem.ssp import SSP

MOST_MOVES = 6
"""Number of moves of a route that its text shows."""
SAME_PROBABILITY = 1e-9
"""Routes whose probabilities differ by less count as equally probable."""


class Route(NamedTuple):
    """A route from the start: the pairs played until the goal, or until a state would repeat.

    Attributes:
        pairs: the pairs, in order.
        ends_at_goal: False for a loop.
        probability, se: probability that the optimal policy takes it, and its standard error.
        model: the problem, which names the pairs.
    """

    pairs: tuple[int, ...]
    ends_at_goal: bool
    probability: float
    se: float
    model: SSP

    @property
    def names(self) -> list[tuple[str, str]]:
        """State and action of each pair."""
        return [self.model.pair_name(pair) for pair in self.pairs]

    def way(self, end: str) -> str:
        """Text of its first moves, and of its end if all moves are shown."""
        shown = " -> ".join(f"{state} {action}" for state, action in self.names[:MOST_MOVES])
        return printable(f"{shown} -> {'...' if len(self.pairs) > MOST_MOVES else end}")

    def __repr__(self) -> str:
        return f"Route({with_error(self.probability, self.se)}: {self.way('goal' if self.ends_at_goal else 'loop')})"


def title_of_best(routes: Sequence[Route]) -> str:
    """Title of the first of some routes, most probable first; it mentions others that are equally probable."""
    equal = sum(route.probability >= routes[0].probability - SAME_PROBABILITY for route in routes)
    return "most probable route" if equal == 1 else f"one of {equal} equally probable routes"
