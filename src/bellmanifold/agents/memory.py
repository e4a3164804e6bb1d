"""An agent's record of its visits: the count, mean reward and sum of squared deviations of each pair.

Means are updated incrementally, mean += (reward - mean) / count, so a pair that always pays the same has exactly that
mean. A reward that depends on the next state is averaged here. Rewards paid to an agent have no sd of their own.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

from bellmanifold.problem.ssp import SSP


class Memory:
    """An agent's `Visits`: counts, mean rewards and scatters (sums of squared deviations), one entry per pair."""

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
        """How often each pair was recorded as leading to each state, with the goal last."""
        keys = np.array(list(self._landings), dtype=np.int64).reshape(-1, 2)
        counts = np.array(list(self._landings.values()), dtype=np.int64)
        return csr_array((counts, (keys[:, 0], keys[:, 1])), shape=(self.model.n_pairs, self.model.n_states + 1))

    @property
    def known_model(self) -> SSP:
        """The problem as far as it is known; laws not given to the agent are the observed transition frequencies.

        Pairs without a recorded transition lead to the goal: nothing is read about pairs that were not played.
        """
        landed = self.landing_counts.astype(np.float64)
        pairs = np.flatnonzero(np.diff(landed.indptr))
        if not len(pairs):
            return self.model.closed_at_goal()
        rows = csr_array(landed[pairs])
        rows.sort_indices()
        rows.data /= np.repeat(rows.sum(axis=1), np.diff(rows.indptr))
        return self.model.with_rows(pairs, rows.indptr, rows.indices, rows.data).closed_at_goal()

    def land(self, pair: int, next_state: int) -> None:
        """Record that a pair led to a state."""
        self._landings[pair, next_state] = self._landings.get((pair, next_state), 0) + 1

    @property
    def observed(self) -> Bool[np.ndarray, "pairs"]:
        """Which pairs have been played."""
        return np.asarray(self.count > 0, dtype=np.bool_)

    def add(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        """Add observations."""
        for pair, reward in zip(pairs.tolist(), rewards.tolist(), strict=True):
            self.add_one(pair, reward)

    def add_one(self, pair: int, reward: float) -> None:
        """Add a single observation."""
        self.count[pair] += 1
        deviation = reward - self.mean_reward[pair]
        self.mean_reward[pair] += deviation / self.count[pair]
        self.scatter[pair] += deviation * (reward - self.mean_reward[pair])
