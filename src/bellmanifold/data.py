"""Observations: which pairs were played, in order of time, and what they paid.

A pair's transition law counts as known once the pair has been observed (the paper's assumption), so the
data about pair i are its number of visits, its mean reward and the scatter of its rewards around that
mean. All three are arrays with one entry per pair, whatever the number of observations: programs compiled
for a problem serve every data set of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.errors import BadInputError, quote
from bellmanifold.ssp import SSP

SAME_REWARD = 1e-9


@runtime_checkable
class Visits(Protocol):
    """What posteriors need of observations: how often each pair was seen, the mean of its rewards and their scatter."""

    @property
    def model(self) -> SSP: ...
    @property
    def count(self) -> Int[np.ndarray, "pairs"]: ...
    @property
    def observed(self) -> Bool[np.ndarray, "pairs"]: ...
    @property
    def mean_reward(self) -> Float[np.ndarray, "pairs"]: ...
    @property
    def scatter(self) -> Float[np.ndarray, "pairs"]: ...


@dataclass(frozen=True, eq=False)
class Dataset:
    """Observed pairs and rewards of one problem.

    Attributes:
        model: the problem they belong to.
        pair: the pairs played, in order of time, shape (observations,).
        reward: what each of them paid, shape (observations,).

    >>> from bellmanifold import envs
    >>> data = Dataset.from_pairs(envs.two_state(), [("s1", "stay"), ("s1", "stay")])
    >>> data.count, data.mean_reward
    (array([2, 0]), array([-1.,  0.]))
    """

    model: SSP
    pair: Int[np.ndarray, "observations"]
    reward: Float[np.ndarray, "observations"]

    @classmethod
    def from_pairs(cls, model: SSP, observations: Iterable[tuple[str, str] | tuple[str, str, float | None]]) -> Dataset:
        """Observations given as (state, action) or (state, action, reward); no reward means the model's."""
        pairs, rewards = [], []
        for t, (state, action, *given) in enumerate(observations):
            pair = find_pair(model, state, action, f"observations[{t}]")
            reward = given[0] if given and given[0] is not None else model.reward[pair]
            if not np.isfinite(reward):
                raise BadInputError(f"observations[{t}]: reward is {reward}: give a finite number")
            pairs.append(pair)
            rewards.append(float(reward))
        return cls(model, np.array(pairs, dtype=np.int64), np.array(rewards, dtype=np.float64))

    @classmethod
    def complete(cls, model: SSP) -> Dataset:
        """Every pair seen once, with the model's reward."""
        return cls(model, np.arange(model.n_pairs), model.reward)

    def extended(self, pair: Int[np.ndarray, "new"], reward: Float[np.ndarray, "new"]) -> Dataset:
        """The same data with later observations appended."""
        return Dataset(self.model, np.append(self.pair, pair), np.append(self.reward, reward))

    def __len__(self) -> int:
        return len(self.pair)

    @cached_property
    def count(self) -> Int[np.ndarray, "pairs"]:
        """How often each pair was seen."""
        return np.bincount(self.pair, minlength=self.model.n_pairs)

    @property
    def observed(self) -> Bool[np.ndarray, "pairs"]:
        """Which pairs were seen at all?"""
        return np.asarray(self.count > 0, dtype=np.bool_)

    @cached_property
    def mean_reward(self) -> Float[np.ndarray, "pairs"]:
        """Mean of each pair's rewards, exactly that reward where all are equal; 0 where it was never seen."""
        first = self._first_reward
        rest = np.bincount(self.pair, self.reward - first[self.pair], self.model.n_pairs)
        return first + rest / np.maximum(self.count, 1)

    @cached_property
    def _first_reward(self) -> Float[np.ndarray, "pairs"]:
        """What each pair paid when it was first seen; 0 where it never was."""
        first = np.zeros(self.model.n_pairs)
        seen, at = np.unique(self.pair, return_index=True)
        first[seen] = self.reward[at]
        return first

    @cached_property
    def scatter(self) -> Float[np.ndarray, "pairs"]:
        """Sum of squared deviations of each pair's rewards from their mean."""
        deviation = self.reward - self.mean_reward[self.pair]
        return np.bincount(self.pair, deviation**2, self.model.n_pairs).astype(np.float64)

    def deterministic_reward(self) -> Float[np.ndarray, "pairs"]:
        """Each pair's reward when rewards have no noise, so that repeats must agree; 0 where it was never seen.

        Raises:
            BadInputError: if two rewards of one pair differ by more than 1e-9 (relative above 1).
        """
        first = self._first_reward.copy()
        expected = first[self.pair]
        size = np.maximum(1.0, np.maximum(np.abs(expected), np.abs(self.reward)))
        wrong = np.abs(self.reward - expected) > SAME_REWARD * size
        if wrong.any():
            t = int(np.argmax(wrong))
            state, action = self.model.pair_name(self.pair[t])
            raise BadInputError(
                f"observations[{t}]: pair ({quote(state)}, {quote(action)}) paid {self.reward[t]:.12g} but "
                f"{expected[t]:.12g} before: deterministic rewards must repeat: "
                "correct the data"
            )
        return first


def require_same_problem(model: SSP, data: Dataset) -> None:
    """Refuse observations of another problem, whose pairs are numbered otherwise."""
    if data.model is not model and data.model != model:
        raise BadInputError(
            f"the data belong to {data.model}, not to {model}: load or build them with the same problem"
        )


def find_pair(model: SSP, state: str, action: str, where: str) -> int:
    """The index of a pair by its names, or a clear error that starts with `where`."""
    pair = model.pair_index.get((state, action))
    if pair is not None:
        return pair
    if state in model.goals:
        raise BadInputError(f"{where}: {quote(state)} is a goal: nothing is played there, remove the observation")
    if state not in model.state_index:
        raise BadInputError(f"{where}: unknown state {quote(state)}: the problem has {_some(model.states)}")
    s = model.state_index[state]
    own = [model.pair_name(i)[1] for i in range(model.pair_start[s], model.pair_start[s + 1])]
    raise BadInputError(f"{where}: state {quote(state)} has no action {quote(action)}: it has {_some(own)}")


def _some(names: Iterable[str], limit: int = 5) -> str:
    listed = list(names)
    shown = ", ".join(quote(n) for n in listed[:limit])
    return shown + (f" and {len(listed) - limit} more" if len(listed) > limit else "")
