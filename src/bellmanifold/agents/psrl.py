"""PSRL, posterior sampling for reinforcement learning (Strens 2000; Osband, Russo and Van Roy 2013).

The transition laws are unknown. A pair's law has a Dirichlet prior with weight 1 on every state and on the goal, its
expected reward has the prior N(0, 1), and rewards are taken to be normal with sd `noise_sd`, 1 unless given: the
defaults of Osband's code (alpha0 = 1, mu0 = 0, tau0 = 1, tau = 1 in TabulaRL). Before each episode a problem is drawn
from the posterior and solved, and its optimal policy is played.

The published algorithm has a fixed horizon. Here episodes have none, and a sampled problem may come close to violating
Assumption 2, or violate it up to rounding (loops pay if their rewards are drawn positive). So it is solved with the
discount 1 - 1/H, where H is the limit on the number of moves in an episode: values are bounded, and one stationary
policy suffices.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.agents.episodes import default_cap
from bellmanifold.agents.memory import Memory
from bellmanifold.agents.planning import most_promising, solve_leaky
from bellmanifold.agents.settings import PSRLSettings
from bellmanifold.errors import UnsupportedError
from bellmanifold.ssp import SSP

CONCENTRATION = 1.0
REWARD_PRECISION = 1.0
LARGEST = 20_000_000


class PSRL:
    """Plays the optimal policy of a problem drawn from the posterior."""

    def __init__(self, model: SSP, settings: PSRLSettings) -> None:
        size = model.n_pairs * (model.n_states + 1)
        if size > LARGEST:
            raise UnsupportedError(
                f"psrl keeps a weight for every pair and state, {size} here, more than {LARGEST}: use rlsvi"
            )
        self.model, self.settings = model, settings
        self.memory = Memory(model)
        self.weight = np.full((model.n_pairs, model.n_states + 1), CONCENTRATION)
        self._discount = 1.0 - 1.0 / default_cap(model)
        self._last = model.pair_start[:-1]

    def policy(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The optimal policy of a sampled problem."""
        draws = np.stack([self.sample(rng) for _ in range(self.settings.optimism)])
        self._last = self.model.greedy(most_promising(self.model, draws))
        return self._last

    def sample(self, rng: np.random.Generator) -> Float[np.ndarray, "pairs"]:
        """Optimal action values of a problem drawn from the posterior."""
        law = rng.standard_gamma(self.weight)
        law *= self._discount / law.sum(axis=1, keepdims=True)
        mean, sd = self.reward_posterior()
        reward = mean + sd * rng.standard_normal(len(mean))
        return solve_leaky(self.model, reward, law[:, :-1], self._last)

    def reward_posterior(self) -> tuple[Float[np.ndarray, "pairs"], Float[np.ndarray, "pairs"]]:
        """Mean and sd of each pair's expected reward: prior N(0, 1), normal noise of known sd."""
        seen = self.memory.count / self.settings.noise_sd**2
        precision = REWARD_PRECISION + seen
        return seen * self.memory.mean_reward / precision, 1.0 / np.sqrt(precision)

    def moved(self, pair: int, reward: float, landing: int, playable: Int[np.ndarray, "actions"]) -> None:
        self.weight[pair, landing] += 1.0

    def observe(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        self.memory.add(pairs, rewards)
