"""Q-learning (Watkins 1989; Watkins and Dayan 1992) with epsilon-greedy exploration and an optimistic start.

After every move q(pair) += step_size (reward + max q(next state) - q(pair)), without discount, the goal being worth 0.
A move is greedy (the first best pair) except with probability `exploration`, when it is any of the state's pairs alike.
Step size 0.5 and exploration 0.1 are those of the cliff-walking example of Sutton and Barto (2018, example 6.6). Every
value begins at `start_value`, 1 unless given: optimistic wherever no policy earns more than 1, so in every built-in
problem (unless its parameters make it pay more).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.agents.settings import QLearningSettings
from bellmanifold.ssp import SSP


class QLearning:
    """Learns move by move."""

    def __init__(self, model: SSP, settings: QLearningSettings) -> None:
        self.model, self.settings = model, settings
        self.q = np.full(model.n_pairs, settings.start_value)

    def policy(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The greedy policy, which is what the measures judge; moves are chosen by `act`."""
        return self.model.greedy(self.q)

    def act(self, playable: Int[np.ndarray, "actions"], rng: np.random.Generator) -> int:
        """The best pair, or now and then any."""
        if rng.random() < self.settings.exploration:
            return int(playable[rng.integers(len(playable))])
        return int(playable[np.argmax(self.q[playable])])

    def moved(self, pair: int, reward: float, landing: int, playable: Int[np.ndarray, "actions"]) -> None:
        """One step towards what the move paid and promises."""
        ahead = self.q[playable].max() if len(playable) else 0.0
        self.q[pair] += self.settings.step_size * (reward + ahead - self.q[pair])

    def observe(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        """Nothing is left to learn at the end of an episode."""
