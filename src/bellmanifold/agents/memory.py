"""What an agent keeps of its visits: how often it played each pair, the mean of what that paid, and its scatter.

Means are kept by steps, mean += (reward - mean) / count, so that a pair that always pays the same keeps exactly that
number. A reward that depends on the next state is averaged here. No reward that an agent is paid has an sd of its own.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

from bellmanifold.ssp import SSP


class Memory:
    """Counts, mean rewards and scatters, one entry per pair: the `Visits` an agent has made."""

    def __init__(self, model: SSP) -> None:
        self.model = model
        self.count = np.zeros(model.n_pairs, dtype=np.int64)
        self.mean_reward = np.zeros(model.n_pairs)
        self.scatter = np.zeros(model.n_pairs)
        self.own_precision, self.own_mean, self.own_scatter, self.own_log_sd = np.zeros((4, model.n_pairs))
        self.own_count, self.exact_reward = np.zeros(model.n_pairs, dtype=np.int64), np.zeros(model.n_pairs)
        self.exact = np.zeros(model.n_pairs, dtype=np.bool_)

        self._landings: dict[tuple[int, int], int] = {}

    @property
    def landing_counts(self) -> csr_array:
        """How often each pair led to each state, the goal last, as far as the agent was told."""
        keys = np.array(list(self._landings), dtype=np.int64).reshape(-1, 2)
        counts = np.array(list(self._landings.values()), dtype=np.int64)
        return csr_array((counts, (keys[:, 0], keys[:, 1])), shape=(self.model.n_pairs, self.model.n_states + 1))

    @property
    def known_model(self) -> SSP:
        """The problem as far as it is known; a law that the agent was not told is how often the pair led where.

        Pairs without any landing lead to the goal: of pairs that were not played nothing is looked at.
        """
        landed = self.landing_counts.astype(np.float64)
        pairs = np.flatnonzero(np.diff(landed.indptr))
        if not len(pairs):
            return self.model.closed_at_goal()
        rows = csr_array(landed[pairs])
        rows.sort_indices()
        rows.data /= np.repeat(rows.sum(axis=1), np.diff(rows.indptr))
        return self.model.with_rows(pairs, rows.indptr, rows.indices, rows.data).closed_at_goal()

    def land(self, pair: int, landing: int) -> None:
        """A pair led to a state."""
        self._landings[pair, landing] = self._landings.get((pair, landing), 0) + 1

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
