"""Convergence of chains: R-hat and bulk effective sample size; the only module that calls ArviZ for them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

R_HAT_LIMIT = 1.02
LEAST_EFFECTIVE = 400.0
"""Chains are trusted if R-hat is below the first and effective sample size above the second."""
LEAST_DRAWS = 4
"""For shorter chains ArviZ returns NaN."""
LOOKED_AT = 64
"""Largest number of variables whose convergence is checked, evenly spread over all."""


class Convergence(NamedTuple):
    """R-hat and bulk effective sample size of each variable; infinite and 0 if a chain is stuck."""

    r_hat: Float[np.ndarray, "variables"]
    effective: Float[np.ndarray, "variables"]

    @property
    def worst(self) -> tuple[float, float]:
        """The largest R-hat and the smallest effective sample size."""
        return float(self.r_hat.max(initial=1.0)), float(self.effective.min())


def have_mixed(r_hat: float, effective: float) -> bool:
    """Whether the largest R-hat is small enough and the smallest effective sample size large enough."""
    return r_hat < R_HAT_LIMIT and effective > LEAST_EFFECTIVE


def doubt(r_hat: float, effective: float) -> str:
    """The warning about chains that have not mixed."""
    return f"the chains have not mixed (R-hat {r_hat:.3g}, {effective:.0f} effective draws)"


def r_hat_and_effective(values: Float[np.ndarray, "chains draws variables"]) -> Convergence:
    """R-hat and effective sample size of each variable; infinite and 0 where ArviZ returns NaN."""
    from arviz_stats.base import array_stats

    if values.shape[1] < LEAST_DRAWS:
        return Convergence(np.full(values.shape[2], np.inf), np.zeros(values.shape[2]))
    with np.errstate(invalid="ignore", divide="ignore"):
        r_hat = array_stats.rhat(values, chain_axis=0, draw_axis=1)
        effective = array_stats.ess(values, chain_axis=0, draw_axis=1)
    known = np.isfinite(r_hat) & np.isfinite(effective)
    return Convergence(np.where(known, r_hat, np.inf), np.where(known, effective, 0.0))


def evenly_spread(
    values: Float[np.ndarray, "chains draws variables"], most: int
) -> Float[np.ndarray, "chains draws looked_at"]:
    """All variables, or `most` of them, evenly spread: ArviZ is slow."""
    return values[:, :, np.unique(np.linspace(0, values.shape[2] - 1, most).astype(np.int64))]


def convergence_of(values: Float[np.ndarray, "chains draws variables"]) -> Convergence:
    """Convergence of the variables; of more than 64, 64 evenly spread ones are checked."""
    chosen = evenly_spread(values, LOOKED_AT)
    r_hat, effective = r_hat_and_effective(chosen)
    moved = np.ptp(chosen, axis=1).min(axis=0) > 0
    return Convergence(np.where(moved, r_hat, np.inf), np.where(moved, effective, 0.0))
