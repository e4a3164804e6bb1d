"""PSRL, posterior sampling for reinforcement learning (Strens 2000; Osband, Russo and Van Roy 2013).

The transition laws are unknown. A pair's law has the prior Dirichlet(a b), with b uniform over all states and the
goal; the concentration a, which says how random the world is, is drawn from its own posterior unless it is given
(`bellmanifold.posteriors.laws`). A pair's expected reward has the prior N(0, 1), and rewards are taken to be normal
with sd `noise_sd`, 1 unless given. Before each episode a problem is drawn from the posterior and solved, and its
optimal policy is played.

Rewards are treated as in Osband's code (mu0 = 0, tau0 = 1, tau = 1 in TabulaRL). Its Dirichlet weight of 1 on every
state (alpha0 = 1, here a concentration of one more than the number of states) says that a move may lead anywhere; where
moves lead to few states that takes hundreds of visits to unlearn.

The published algorithm has a fixed horizon. Here episodes have none, and a sampled problem may come close to violating
Assumption 2, or violate it up to rounding (loops pay if their rewards are drawn positive). So it is solved with the
discount 1 - 1/H, where H is the limit on the number of moves in an episode: values are bounded, and one stationary
policy suffices.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.agents.environments import default_cap
from bellmanifold.agents.memory import Memory
from bellmanifold.agents.planning import solve_leaky
from bellmanifold.agents.settings import PSRLSettings
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.laws import OpenLaws, open_laws
from bellmanifold.problem.ssp import SSP

REWARD_PRECISION = 1.0
LARGEST = 20_000_000


class PSRL:
    """Plays the optimal policy of a problem drawn from the posterior."""

    shown_laws = False

    def __init__(self, model: SSP, settings: PSRLSettings) -> None:
        size = model.n_pairs * (model.n_states + 1)
        if size > LARGEST:
            raise UnsupportedError(
                f"psrl keeps a weight for every pair and state, {size} here, more than {LARGEST}: use rlsvi"
            )
        self.model, self.settings = model, settings
        self.memory = Memory(model)
        self._discount = 1.0 - 1.0 / default_cap(model)
        self._last = model.pair_start[:-1]

    def policy(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The optimal policy of a sampled problem."""
        self._last = self.model.greedy(self.sample(rng, self.laws()))
        return self._last

    def laws(self) -> OpenLaws:
        """The posterior of all laws."""
        landed = self.memory.landing_counts.astype(np.float64)
        return open_laws(landed, np.arange(self.model.n_pairs), self.settings.concentration)

    def sample(self, rng: np.random.Generator, laws: OpenLaws) -> Float[np.ndarray, "pairs"]:
        """Optimal action values of a problem drawn from the posterior."""
        law = self._discount * np.exp(laws.draw(rng, laws.draw_concentration(rng, 1))[:, :, 0])
        mean, sd = self.reward_posterior()
        reward = mean + sd * rng.standard_normal(len(mean))
        return solve_leaky(self.model, reward, law[:, :-1], self._last)

    def reward_posterior(self) -> tuple[Float[np.ndarray, "pairs"], Float[np.ndarray, "pairs"]]:
        """Mean and sd of each pair's expected reward: prior N(0, 1), normal noise of known sd."""
        seen = self.memory.count / self.settings.noise_sd**2
        precision = REWARD_PRECISION + seen
        return seen * self.memory.mean_reward / precision, 1.0 / np.sqrt(precision)

    def moved(self, pair: int, reward: float, next_state: int, playable: Int[np.ndarray, "actions"]) -> None:
        self.memory.land(pair, next_state)

    def observe(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        self.memory.add(pairs, rewards)
