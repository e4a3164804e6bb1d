"""Numbers with standard errors, and the errors of ratios and of events that no draw met."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold._util.display import with_error
from bellmanifold.problem.names import find_pair, find_state
from bellmanifold.problem.ssp import SSP

SHOWN = 6
"""How many numbers the text of an estimate shows."""


@dataclass(frozen=True, repr=False)
class Estimate:
    """A number, or an array of them, with standard errors of the same shape.

    It is indexed like an array, and NumPy functions use its values.

    >>> found = Estimate.of(np.array([0.31234, 0.5]), np.array([0.0042, 0.0]))
    >>> found
    Estimate(0.312 ± 0.004, 0.5)
    >>> found[0].se, float(np.max(found))
    (array(0.0042), 0.5)
    """

    value: Float[np.ndarray, "..."]
    se: Float[np.ndarray, "..."]

    @classmethod
    def of(cls, value: float | np.ndarray, se: float | np.ndarray) -> Estimate:
        """Make an estimate of numbers or arrays."""
        return cls(np.asarray(value, dtype=np.float64), np.asarray(se, dtype=np.float64))

    def without(self, missing: Bool[np.ndarray, "..."]) -> Estimate:
        """The same with NaN for the numbers that do not exist."""
        return Estimate.of(np.where(missing, np.nan, self.value), np.where(missing, np.nan, self.se))

    def __len__(self) -> int:
        return len(self.value)

    def __bool__(self) -> bool:
        return True  # even if the value is 0, or a single number, which has no length

    def __getitem__(self, index: Any) -> Estimate:
        return Estimate.of(self.value[index], self.se[index])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.value, dtype=dtype, copy=copy)

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        pairs = zip(self.value.ravel()[:SHOWN], self.se.ravel()[:SHOWN], strict=True)
        more = f", ... {self.value.size} in all" if self.value.size > SHOWN else ""
        return f"{', '.join(with_error(value, se) for value, se in pairs)}{more}"

    def __repr__(self) -> str:
        return f"Estimate({self})"


def effective_size(weight: Float[np.ndarray, "draws"]) -> float:
    """Effective sample size of weighted draws, (sum w)^2 / sum w^2; 0 if none has any weight."""
    square = float((weight**2).sum())
    return float(weight.sum()) ** 2 / square if square > 0 else 0.0


def systematic(weight: Float[np.ndarray, "draws"], count: int, rng: np.random.Generator) -> Int[np.ndarray, "count"]:
    """Systematic resampling: indices of draws in order, one from each of `count` equal parts of the total weight."""
    share = np.cumsum(weight)
    level = (np.arange(count) + rng.random()) / max(count, 1) * share[-1:]
    return np.minimum(np.searchsorted(share, level), len(weight) - 1)


@dataclass(frozen=True, repr=False)
class PairEstimate(Estimate):
    """A number for each pair of a problem, indexed by the pair's number or by its names.

    `found["s1", "go"]` is the number of one pair; `found["s1"]` are those of a state in the order of its actions.

    >>> from bellmanifold import envs
    >>> found = PairEstimate.by_pair(envs.two_state(), Estimate.of(np.array([0.25, 0.75]), np.zeros(2)))
    >>> found["s1", "go"], found["s1"], found[1]
    (Estimate(0.75), Estimate(0.25, 0.75), Estimate(0.75))
    """

    model: SSP

    @classmethod
    def by_pair(cls, model: SSP, found: Estimate) -> PairEstimate:
        """Make an estimate of numbers in the order of the pairs."""
        return cls(found.value, found.se, model)

    def __getitem__(self, index: Any) -> Estimate:
        if isinstance(index, str):
            state = find_state(self.model, index, "estimate")
            return super().__getitem__(slice(self.model.pair_start[state], self.model.pair_start[state + 1]))
        if isinstance(index, tuple) and len(index) == 2 and all(isinstance(name, str) for name in index):
            index = find_pair(self.model, index[0], index[1], "estimate")
        return super().__getitem__(index)


def resolution_of(effective: float) -> float:
    """The least standard error of a probability that is estimated from draws.

    It is the mean probability of an event, under a flat prior, after `effective` draws without it. Quasi-random points
    of all replicates may also lie on the same side of a boundary by chance, which adds an error of up to one point.
    """
    return 1.0 / (effective + 2.0)


def ratio(part: Float[np.ndarray, "replicates *k"], whole: Float[np.ndarray, "replicates"]) -> Estimate:
    """Estimate E[part] / E[whole] from replicates, with the delta method's standard error; NaN without any weight."""
    replicates = len(whole)
    total = whole.sum() or np.nan
    value = np.asarray(part.sum(axis=0) / total)
    if replicates == 1:
        return Estimate.of(value, np.zeros_like(value))
    with np.errstate(over="ignore", invalid="ignore"):  # chains that have not reached the posterior yet
        residual = part - value * whole.reshape((-1,) + (1,) * (part.ndim - 1))
        spread = np.sqrt((residual**2).sum(axis=0) * replicates / (replicates - 1))
    return Estimate.of(value, spread / total)
