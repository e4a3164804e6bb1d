"""Traces of chains: the policies they met, some values over time, and moments of the action values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.posteriors.convergence import evenly_spread, r_hat_and_effective
from bellmanifold.posteriors.estimated import Estimate, resolution_of
from bellmanifold.posteriors.policies import PolicyTable
from bellmanifold.posteriors.result import Moments
from bellmanifold.posteriors.target import Target

LOOKED_AT, MOST_RECORDED = 32, 128
"""Largest numbers of values for which R-hat is computed, and of states whose values are recorded."""


class Welford(NamedTuple):
    """Running mean and sum of squared deviations (Welford 1962), of NumPy or JAX arrays."""

    count: Any
    mean: Any
    square: Any

    def with_one_more(self, mean: Any, variance: Any) -> Welford:
        """Moments after one more value with this mean and variance."""
        count, gap = self.count + 1.0, mean - self.mean
        centre = self.mean + gap / count
        return Welford(count, centre, self.square + gap * (mean - centre) + variance)


class Trace(NamedTuple):
    """A stretch of the chains that found a point of positive likelihood.

    Attributes:
        policy: distinct greedy policies of the coupled states, shape (rows, coupled states).
        row: which of them each chain had at each step, shape (chains, steps).
        value: some state values and then the noise scale, shape (chains, steps, recorded).
        scales: number of noise scales.
        moments: moments of the action values; replicates are chains.
        chain: the walker's number of each chain, ascending, shape (chains,).
        lost: number of chains that found no point of positive likelihood; they are left out.
        evaluations: mean likelihood evaluations of the slowest chain per step; None if they were not counted.
        points: action values that a single stretch of chains met, chain by chain; None if they were not kept.
    """

    policy: Int[np.ndarray, "rows coupled_states"]
    row: Int[np.ndarray, "chains steps"]
    value: Float[np.ndarray, "chains steps recorded"]
    scales: int
    moments: Moments
    chain: Int[np.ndarray, "chains"]
    lost: int
    evaluations: float | None = None
    points: Float[np.ndarray, "pairs points"] | None = None

    @classmethod
    def joined(cls, parts: list[Trace]) -> Trace:
        """Consecutive stretches of the same chains, joined; chains that were lost in the first one are left out."""
        first, *others = parts
        if not others:
            return first
        parts = [part._of_chains(first.chain) for part in parts]
        offset = np.cumsum([0, *(len(part.policy) for part in parts)])
        policy, again = np.unique(np.concatenate([part.policy for part in parts]), axis=0, return_inverse=True)
        rows = [again.ravel()[part.row + begin] for part, begin in zip(parts, offset, strict=False)]
        counted = [part.evaluations for part in parts if part.evaluations is not None]
        return first._replace(
            policy=policy,
            row=np.concatenate(rows, axis=1),
            value=np.concatenate([part.value for part in parts], axis=1),
            moments=Moments.pooled([part.moments for part in parts]),
            evaluations=float(np.mean(counted)) if counted else None,
        )

    def _of_chains(self, chain: Int[np.ndarray, "chosen"]) -> Trace:
        """The trace of some of the chains."""
        own, moments = np.searchsorted(self.chain, chain), self.moments
        return self._replace(
            row=self.row[own],
            value=self.value[own],
            moments=Moments(moments.weight[own], moments.mean[own], moments.square[own]),
            chain=chain,
        )

    def table(self, coupled: np.ndarray, stand_in: np.ndarray, effective: float) -> PolicyTable:
        """The policies with the number of steps each chain spent on them; replicates are chains."""
        return PolicyTable.of_chains(coupled, self.policy, self.row, stand_in, resolution_of(effective))

    def diagnose(self) -> tuple[float, float]:
        """The largest R-hat and the smallest bulk effective sample size over recorded values that vary.

        If there are more than 32, 32 evenly spread ones are checked.
        """
        value = self.value
        spread = np.ptp(value, axis=(0, 1)) > 1e-6 * (1.0 + np.abs(value).max(axis=(0, 1)))
        varying = np.flatnonzero(spread)
        if not len(varying):
            return 1.0, float(value.shape[0] * value.shape[1])
        return r_hat_and_effective(evenly_spread(value[:, :, varying], LOOKED_AT)).worst

    def estimate(self, target: Target, effective: float) -> tuple[Estimate, Estimate]:
        """Means and standard deviations of the action values, with errors from the spread between chains.

        For a single chain the errors are those of its effective draws (at least one).
        """
        mean, sd = self.moments.estimate(target)
        if len(self.row) != 1:
            return mean, sd
        error = sd.value / np.sqrt(max(effective, 1.0))
        varies = target.coupled[target.model.pair_state]
        return (
            Estimate.of(mean.value, np.where(varies, error, mean.se)),
            Estimate.of(sd.value, np.where(varies, error / np.sqrt(2.0), sd.se)),
        )
