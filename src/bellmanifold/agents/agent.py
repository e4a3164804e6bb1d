"""What the loop of episodes asks of an agent, and what an agent may have besides (`bellmanifold.agents.episodes`).

What an agent has besides is one member each, which the functions at the end look for. `isinstance` would find the same,
but takes so long that small problems would spend a tenth of their time on it, as it is asked at every move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import numpy as np
from jaxtyping import Float, Int


@runtime_checkable
class Agent(Protocol):
    """What the loop asks of every agent."""

    def policy(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The pair each state plays in the next episode."""

    def observe(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        """Learn from an episode: the pairs played, in order, and what they paid."""


@runtime_checkable
class SeesMoves(Protocol):
    """An agent that is shown every move."""

    def moved(self, pair: int, reward: float, landing: int, playable: Int[np.ndarray, "actions"]) -> None:
        """A pair was played, paid, and led to a state in which these pairs can be played (none at the goal)."""


@runtime_checkable
class Acts(Protocol):
    """An agent that chooses every move on its own.

    Then `policy` is only what it would play if it stopped learning (the measures judge that), and loops do not end an
    episode: the agent may leave them by itself.
    """

    def act(self, playable: Int[np.ndarray, "actions"], rng: np.random.Generator) -> int:
        """Which of these pairs of the current state to play."""


@runtime_checkable
class Looks(Protocol):
    """An agent that can make up its mind again in the middle of an episode; others are asked for a `policy`."""

    def look(self, state: int, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The pair each state plays from now on, being in this state, after something new was seen."""


@runtime_checkable
class Diagnosed(Protocol):
    """An agent that has something to say about its work."""

    @property
    def diagnostics(self) -> Mapping[str, float]:
        """Numbers about the last episode; read after `observe`."""


@runtime_checkable
class Believes(Protocol):
    """An agent that knows how probable it thinks routes are."""

    def route_probabilities(self, routes: Sequence[tuple[int, ...]]) -> Float[np.ndarray, "routes"]:
        """The probability that each route is optimal, in the belief the last policy was drawn from; NaN if unknown."""


class Beliefs(NamedTuple):
    """What an agent believes about every pair.

    Attributes:
        action_probability: probability that the pair is optimal in its state, shape (pairs,).
        q_mean: mean of its value, shape (pairs,).
    """

    action_probability: Float[np.ndarray, "pairs"]
    q_mean: Float[np.ndarray, "pairs"]


@runtime_checkable
class ShowsBeliefs(Protocol):
    """An agent that can show what it believes."""

    def beliefs(self) -> Beliefs | None:
        """The belief the last policy was drawn from; None if it is not known. Drawing nothing, changing nothing."""


def _having(member: str) -> Any:
    return lambda agent: getattr(agent, member, None) is not None


sees_moves: Callable[[object], TypeGuard[SeesMoves]] = _having("moved")
acts: Callable[[object], TypeGuard[Acts]] = _having("act")
looks: Callable[[object], TypeGuard[Looks]] = _having("look")
is_diagnosed: Callable[[object], TypeGuard[Diagnosed]] = _having("diagnostics")
believes: Callable[[object], TypeGuard[Believes]] = _having("route_probabilities")
shows_beliefs: Callable[[object], TypeGuard[ShowsBeliefs]] = _having("beliefs")
