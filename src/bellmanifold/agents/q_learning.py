"""Q-learning (Watkins 1989; Watkins and Dayan 1992) with epsilon-greedy exploration and an optimistic start.

After every move q(pair) += step_size (reward + max q(next state) - q(pair)), undiscounted, with value 0 at the goal.
With probability `exploration` a move is uniform over the state's pairs; otherwise it is greedy (the first best pair).
Step size 0.5 and exploration 0.1 are those of the cliff-walking example of Sutton and Barto (2018, example 6.6). Values
are initialised to `start_value`, 1 unless given, which is optimistic wherever no policy earns more than 1: in every
built-in problem (unless its parameters make it pay more).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.agents.settings import QLearningSettings
from bellmanifold.problem.ssp import SSP


class QLearning:
    """Learns move by move."""

    shown_laws = False

    def __init__(self, model: SSP, settings: QLearningSettings) -> None:
        self.model, self.settings = model, settings
        self.q = np.full(model.n_pairs, settings.start_value)

    def policy(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The greedy policy, which is the one evaluated; moves are chosen by `act`."""
        return self.model.greedy(self.q)

    def act(self, playable: Int[np.ndarray, "actions"], rng: np.random.Generator) -> int:
        """An epsilon-greedy choice."""
        if rng.random() < self.settings.exploration:
            return int(playable[rng.integers(len(playable))])
        return int(playable[np.argmax(self.q[playable])])

    def moved(self, pair: int, reward: float, next_state: int, playable: Int[np.ndarray, "actions"]) -> None:
        """Update the pair's value towards its reward plus the value of the next state."""
        ahead = self.q[playable].max() if len(playable) else 0.0
        self.q[pair] += self.settings.step_size * (reward + ahead - self.q[pair])

    def observe(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        """Do nothing: every move was learnt from in `moved`."""
