"""The protocol of agents: what the episode loop (`bellmanifold.learning.episodes`) requires, and optional capabilities.

Each optional capability is a single member, and the functions at the end test for it. `isinstance` would do the same,
but this is tested at every move, and small problems would spend a tenth of their time on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import numpy as np
from jaxtyping import Float, Int


@runtime_checkable
class Agent(Protocol):
    """The methods every agent must have."""

    def policy(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The pair to play in each state during the next episode."""

    def observe(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        """Learn from an episode: the pairs played, in order, and their rewards."""


@runtime_checkable
class SeesMoves(Protocol):
    """An agent that is shown every move."""

    def moved(self, pair: int, reward: float, next_state: int, playable: Int[np.ndarray, "actions"]) -> None:
        """Take note of a move: the pair, its reward, the next state and the pairs playable there (none at the goal)."""


@runtime_checkable
class Acts(Protocol):
    """An agent that chooses every move individually.

    Then `policy` is only what it would play if it stopped learning (the policy that is evaluated), and loops do not end
    an episode: the agent may leave them by itself.
    """

    def act(self, playable: Int[np.ndarray, "actions"], rng: np.random.Generator) -> int:
        """The pair to play next, out of the playable pairs of the current state."""


@runtime_checkable
class Looks(Protocol):
    """An agent with its own way of replanning in the middle of an episode; others are asked for a new `policy`."""

    def look(self, state: int, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The pair to play in each state from now on; called in `state`, once there is more to learn from."""


@runtime_checkable
class Diagnosed(Protocol):
    """An agent that reports diagnostics."""

    @property
    def diagnostics(self) -> Mapping[str, float]:
        """Numbers about the last episode; read after `observe`."""


@runtime_checkable
class Believes(Protocol):
    """An agent that can compute posterior probabilities of routes."""

    def route_probabilities(self, routes: Sequence[tuple[int, ...]]) -> Float[np.ndarray, "routes"]:
        """The probability that each route is optimal under the last policy's posterior; NaN if unknown."""


class Beliefs(NamedTuple):
    """What an agent believes about every pair.

    Attributes:
        action_probability: probability that the pair is optimal in its state, shape (pairs,).
        q_mean: posterior mean of its value, shape (pairs,).
    """

    action_probability: Float[np.ndarray, "pairs"]
    q_mean: Float[np.ndarray, "pairs"]


@runtime_checkable
class ShowsBeliefs(Protocol):
    """An agent that can show what it believes."""

    def beliefs(self) -> Beliefs | None:
        """The beliefs the last policy was drawn from, or None if unknown; must not draw or change anything."""


@runtime_checkable
class NotShown(Protocol):
    """An agent that is not shown the laws of the pairs it plays.

    The loop of episodes then plays in a world without a table (`bellmanifold.agents.environments.WithoutTable`) and has
    no laws either; what it knows it takes from next states. Agents without this member are shown the law of every pair
    they play. The registry gives an agent a problem with open laws in the same cases (`AgentKind.is_shown_laws`).
    """

    @property
    def shown_laws(self) -> bool:
        """Whether it is shown the law of every pair it plays."""


@runtime_checkable
class TakesLandings(Protocol):
    """An agent that takes the next state of a pair to be its law: to it, a state that repeats closes a loop."""

    @property
    def takes_next_as_law(self) -> bool:
        """Whether it does."""


def is_shown_laws(agent: object) -> bool:
    """Whether an agent is shown the law of every pair it plays; yes unless it says otherwise."""
    return bool(getattr(agent, "shown_laws", True))


def takes_next_as_law(agent: object) -> bool:
    """Whether an agent takes the next state that it saw for the law; no unless it says so."""
    return bool(getattr(agent, "takes_next_as_law", False))


def _having(member: str) -> Any:
    return lambda agent: getattr(agent, member, None) is not None


sees_moves: Callable[[object], TypeGuard[SeesMoves]] = _having("moved")
acts: Callable[[object], TypeGuard[Acts]] = _having("act")
looks: Callable[[object], TypeGuard[Looks]] = _having("look")
is_diagnosed: Callable[[object], TypeGuard[Diagnosed]] = _having("diagnostics")
believes: Callable[[object], TypeGuard[Believes]] = _having("route_probabilities")
shows_beliefs: Callable[[object], TypeGuard[ShowsBeliefs]] = _having("beliefs")
