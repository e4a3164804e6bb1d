"""Numbers with standard errors, and the errors of ratios and of what no draw met."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from bellmanifold.display import measured

SHOWN = 6
"""Numbers that the text of an estimate shows."""


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
        """From numbers or arrays."""
        return cls(np.asarray(value, dtype=np.float64), np.asarray(se, dtype=np.float64))

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, index: Any) -> Estimate:
        return Estimate.of(self.value[index], self.se[index])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.value, dtype=dtype, copy=copy)

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        pairs = zip(self.value.ravel()[:SHOWN], self.se.ravel()[:SHOWN], strict=True)
        more = f", ... {self.value.size} in all" if self.value.size > SHOWN else ""
        return f"{', '.join(measured(value, se) for value, se in pairs)}{more}"

    def __repr__(self) -> str:
        return f"Estimate({self})"


def resolution_of(effective: float) -> float:
    """Standard error of the probability of what no draw met: its mean after `effective` failures, from a flat prior."""
    return 1.0 / (effective + 2.0)


def resolved(
    value: Float[np.ndarray, "*k"], se: Float[np.ndarray, "*k"], resolution: float | Float[np.ndarray, "*k"]
) -> Float[np.ndarray, "*k"]:
    """Errors that are no less than a resolution where a probability is that close to 0 or 1."""
    at_edge = (value < resolution) | (value > 1.0 - np.asarray(resolution))
    return np.where(at_edge, np.maximum(se, resolution), se)


def ratio(part: Float[np.ndarray, "replicates *k"], whole: Float[np.ndarray, "replicates"]) -> Estimate:
    """Estimate E[part] / E[whole] from replicates, with the delta method's standard error; NaN without any weight."""
    replicates = len(whole)
    total = whole.sum() or np.nan
    value = np.asarray(part.sum(axis=0) / total)
    if replicates == 1:
        return Estimate.of(value, np.zeros_like(value))
    with np.errstate(over="ignore", invalid="ignore"):  # chains that are not yet where the posterior is
        residual = part - value * whole.reshape((-1,) + (1,) * (part.ndim - 1))
        spread = np.sqrt((residual**2).sum(axis=0) * replicates / (replicates - 1))
    return Estimate.of(value, spread / total)
