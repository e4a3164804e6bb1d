"""Q-learning with upper confidence bounds (Jin, Allen-Zhu, Bubeck and Jordan 2018, the Hoeffding version).

After the t-th visit to a pair

    q(pair) += a_t (reward + min(start_value, max q(next state)) + b_t - q(pair)),
    a_t = (H + 1) / (H + t),   b_t = bonus sqrt(H / t),

with value 0 at the goal, and every move is greedy, with ties broken at random. Values are initialised to `start_value`,
1 unless given, which should exceed the return of any policy. The authors' episodes have H moves, a table of values for
each of them, and the bonus c sqrt(H^3 log(S A T / p) / t) for rewards from 0 to 1, with values from 0 to H: `bonus`
stands for c sqrt(log(...)) times the range of values. Here episodes have no fixed length, so there is one table for all
times, and H is an option, the number of states unless given. Of the bonuses 0.001, 0.01, 0.1 and 1 the first is best on
deep sea of depths 5 and 10, where it does as well as no bonus: the optimistic initial values do the work.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.agents.settings import UCBQSettings
from bellmanifold.problem.ssp import SSP


class UCBQ:
    """Learns move by move and is greedy with respect to its optimistic values."""

    shown_laws = False

    def __init__(self, model: SSP, settings: UCBQSettings) -> None:
        self.model, self.settings = model, settings
        self.horizon = model.n_states if settings.horizon is None else settings.horizon
        self.q = np.full(model.n_pairs, settings.start_value)
        self.count = np.zeros(model.n_pairs, dtype=np.int64)

    def policy(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The greedy policy, which is the one evaluated; moves are chosen by `act`."""
        return self.model.greedy(self.q)

    def act(self, playable: Int[np.ndarray, "actions"], rng: np.random.Generator) -> int:
        """A pair of highest value, with ties broken at random."""
        hoped = self.q[playable]
        best = playable[hoped == hoped.max()]
        return int(best[rng.integers(len(best))])

    def moved(self, pair: int, reward: float, next_state: int, playable: Int[np.ndarray, "actions"]) -> None:
        """Update the pair's value towards its reward plus the value of the next state plus the bonus."""
        self.count[pair] += 1
        visits, horizon = int(self.count[pair]), self.horizon
        ahead = min(self.settings.start_value, float(self.q[playable].max())) if len(playable) else 0.0
        hoped = reward + ahead + self.settings.bonus * math.sqrt(horizon / visits)
        self.q[pair] += (horizon + 1) / (horizon + visits) * (hoped - self.q[pair])

    def observe(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        """Do nothing: every move was learnt from in `moved`."""
