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

    def way(self, end: str, most: int = MOST_MOVES) -> str:
        """Its text; see `way`."""
        return way(self.model, self.pairs, end, most)

    def __repr__(self) -> str:
        return f"Route({with_error(self.probability, self.se)}: {self.way('goal' if self.ends_at_goal else 'loop')})"


def way(model: SSP, pairs: Sequence[int], end: str, most: int = MOST_MOVES) -> str:
    """A route in one line, as `home -> mill -(towpath)-> market -> office`: the places, and names of actions that have
    a name of their own. Of the moves after the first `most` only the last place is shown.

    Args:
        model: the problem, whose moves are deterministic.
        pairs: the pairs played.
        end: "goal", "loop" if it ends in a place where it has been, "open" if nobody knows where the last move leads.
        most: number of moves to show.
    """
    text = model.pair_name(pairs[0])[0]
    for k, pair in enumerate(pairs[:most]):
        is_last = k == len(pairs) - 1
        text += _step(model, pair, is_unknown=is_last and end == "open")
    if len(pairs) > most:
        text += f" -> ... -> {'?' if end == 'open' else _place(model, pairs[-1])}"
    return printable(text + (" (a loop)" if end == "loop" else ""))


def _step(model: SSP, pair: int, is_unknown: bool) -> str:
    """The action, unless it is called by the place where it leads, and that place."""
    action, place = model.pair_name(pair)[1], "?" if is_unknown else _place(model, pair)
    return f" -> {place}" if action == place else f" -({action})-> {place}"


def _place(model: SSP, pair: int) -> str:
    """Where a pair leads; of several goals, the one that its action is called by, if any."""
    landing, action = int(model.next_state[model.next_start[pair]]), model.pair_name(pair)[1]
    if landing < model.n_states or len(model.goals) == 1:
        return model.state_name(landing)
    return action if action in model.goals else "goal"


def title_of_best(routes: Sequence[Route]) -> str:
    """Title of the first of some routes, most probable first; it mentions others that are equally probable."""
    equal = sum(route.probability >= routes[0].probability - SAME_PROBABILITY for route in routes)
    return "most probable route" if equal == 1 else f"one of {equal} equally probable routes"
