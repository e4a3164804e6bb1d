"""What episodes are played in: a problem that is simulated, or a Gymnasium environment that is stepped from outside.

A world speaks of states and pairs by their numbers in `model`. Where its transition laws are unknown (`has_laws` is
False) `model` is only a table of states and actions, and its laws and rewards mean nothing.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from bellmanifold.graph import levels
from bellmanifold.ssp import SSP


class Step(NamedTuple):
    """What one move did: what it paid, the state it led to (the number of states is the goal), cut off from outside?"""

    reward: float
    landing: int
    cut_off: bool = False


@runtime_checkable
class World(Protocol):
    """What the loop of episodes asks of a world."""

    model: SSP
    has_laws: bool

    def start(self, rng: np.random.Generator) -> int:
        """Begin an episode and say in which state."""

    def step(self, pair: int, rng: np.random.Generator) -> Step:
        """Play a pair of the current state."""

    def playable(self, state: int) -> Int[np.ndarray, "actions"]:
        """The pairs that may be played in a state; none at the goal."""

    @property
    def may_loop(self) -> bool:
        """Could an episode come to a state twice, as far as anybody knows?"""


class SimulatedWorld:
    """A problem whose transitions and noisy rewards are drawn from its own laws."""

    has_laws = True

    def __init__(self, model: SSP) -> None:
        self.model = model
        self._starts = np.cumsum(model.initial)
        self._state = model.n_states
        self._next_start = model.next_start.tolist()
        self._reward, self._sd = model.reward.tolist(), model.reward_sd.tolist()

    @cached_property
    def may_loop(self) -> bool:
        """Could an episode come to a state twice?"""
        return levels(self.model) is None

    def start(self, rng: np.random.Generator) -> int:
        """Draw a state from the initial distribution."""
        self._state = _drawn(self._starts, rng)
        return self._state

    def step(self, pair: int, rng: np.random.Generator) -> Step:
        """Draw the reward's noise, if it has any, and the next state."""
        model, first, last = self.model, self._next_start[pair], self._next_start[pair + 1]
        reward = self._reward[pair]
        if self._sd[pair] > 0:
            reward += self._sd[pair] * float(rng.standard_normal())
        entry = first if last == first + 1 else first + _drawn(np.cumsum(model.next_prob[first:last]), rng)
        self._state = int(model.next_state[entry])
        return Step(reward, self._state)

    def playable(self, state: int) -> Int[np.ndarray, "actions"]:
        """Every pair of the state."""
        return pairs_of(self.model, state)


def open_world(problem: Any) -> World:
    """The world of a problem or of a Gymnasium environment; a world stays what it is."""
    if isinstance(problem, SSP):
        return SimulatedWorld(problem)
    if isinstance(problem, World):
        return problem
    from bellmanifold.agents.stepping import SteppedWorld

    return SteppedWorld(problem)


def pairs_of(model: SSP, state: int) -> Int[np.ndarray, "actions"]:
    """The pairs of a state, none for the goal."""
    if state == model.n_states:
        return np.zeros(0, dtype=np.int64)
    return np.arange(model.pair_start[state], model.pair_start[state + 1])


def _drawn(cumulative: np.ndarray, rng: np.random.Generator) -> int:
    """An index drawn with the probabilities whose running sums are given."""
    return int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
