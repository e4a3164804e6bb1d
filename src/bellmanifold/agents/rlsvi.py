"""RLSVI, randomised least-squares value iteration, for tables (Osband, Van Roy and Wen 2016).

The transition laws are unknown. A pair that was played n times, paid r on average and led to the states s' with
relative frequencies f(s') is given the value

    q = shrink (r + sum f(s') max_a q(s', a)) + w,    w ~ N(0, 1 / precision),
    precision = n / noise_sd^2 + 1 / prior_scale^2,   shrink = (n / noise_sd^2) / precision,

which is Bayesian regression on the rewards and values of the next states, with one parameter per pair; w is drawn anew
for each episode. The authors solve it backwards from a fixed horizon. Here there is none: q is the fixed point of the
equations, which is unique because shrink < 1 makes the right-hand side a contraction; where shrink would round to 1 it
is capped just below. prior_scale and noise_sd are 1 unless given, as in Osband's code (lam = 1, sigma = 1 in TabulaRL).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array

from bellmanifold.agents.memory import Memory
from bellmanifold.agents.planning import solve_leaky
from bellmanifold.agents.settings import RLSVISettings
from bellmanifold.problem.ssp import SSP

MOST_SHRINK = 1.0 - 1e-10


class RLSVI:
    """Plays the greedy policy of randomly perturbed action values."""

    shown_laws = False

    def __init__(self, model: SSP, settings: RLSVISettings) -> None:
        self.model, self.settings = model, settings
        self.memory = Memory(model)
        self._last = model.pair_start[:-1]

    def policy(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The greedy policy of perturbed action values."""
        self._last = self.model.greedy(self.draw(rng))
        return self._last

    def draw(self, rng: np.random.Generator) -> Float[np.ndarray, "pairs"]:
        """Perturbed action values."""
        seen = self.memory.count / self.settings.noise_sd**2
        precision = seen + 1.0 / self.settings.prior_scale**2
        shrink = np.minimum(seen / precision, MOST_SHRINK)
        law = self._frequencies(shrink)
        noise = rng.standard_normal(len(seen)) / np.sqrt(precision)
        return solve_leaky(self.model, shrink * self.memory.mean_reward + noise, law, self._last)

    def moved(self, pair: int, reward: float, next_state: int, playable: Int[np.ndarray, "actions"]) -> None:
        self.memory.land(pair, next_state)

    def observe(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        self.memory.add(pairs, rewards)

    def _frequencies(self, shrink: Float[np.ndarray, "pairs"]) -> csr_array:
        """Observed transition frequencies times `shrink`; the goal, whose value is 0, is left out."""
        times = self.memory.landing_counts[:, :-1]
        pair = np.repeat(np.arange(self.model.n_pairs), np.diff(times.indptr))
        return csr_array(
            (shrink[pair] * times.data / self.memory.count[pair], times.indices, times.indptr), times.shape
        )
