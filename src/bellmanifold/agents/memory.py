"""What an agent keeps of its visits: how often it played each pair, the mean of what that paid, and its scatter.

Means are kept by steps, mean += (reward - mean) / count, so that a pair that always pays the same keeps exactly that
number. A reward that depends on the next state is averaged here.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.ssp import SSP


class Memory:
    """Counts, mean rewards and scatters, one entry per pair: the `Visits` an agent has made."""

    def __init__(self, model: SSP) -> None:
        self.model = model
        self.count = np.zeros(model.n_pairs, dtype=np.int64)
        self.mean_reward = np.zeros(model.n_pairs)
        self.scatter = np.zeros(model.n_pairs)

    @property
    def observed(self) -> Bool[np.ndarray, "pairs"]:
        """Which pairs were played at all?"""
        return np.asarray(self.count > 0, dtype=np.bool_)

    def add(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        """Add observations."""
        for pair, reward in zip(pairs.tolist(), rewards.tolist(), strict=True):
            self.add_one(pair, reward)

    def add_one(self, pair: int, reward: float) -> None:
        """Add one of them."""
        self.count[pair] += 1
        deviation = reward - self.mean_reward[pair]
        self.mean_reward[pair] += deviation / self.count[pair]
        self.scatter[pair] += deviation * (reward - self.mean_reward[pair])
