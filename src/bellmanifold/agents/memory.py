"""What an agent keeps of its visits: how often it played each pair, and the mean of what that paid.

Means are kept by steps, mean += (reward - mean) / count, so that a pair that always pays the same keeps exactly that
number. A reward that depends on the next state is averaged here.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


class Memory:
    """Counts and mean rewards, one entry a pair."""

    def __init__(self, n_pairs: int) -> None:
        self.count = np.zeros(n_pairs, dtype=np.int64)
        self.mean_reward = np.zeros(n_pairs)

    def add(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        """Add observations."""
        for pair, reward in zip(pairs.tolist(), rewards.tolist(), strict=True):
            self.count[pair] += 1
            self.mean_reward[pair] += (reward - self.mean_reward[pair]) / self.count[pair]
