"""Have chains mixed? R-hat and bulk effective sample size, as ArviZ computes them; the one place that calls it."""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Float

R_HAT_LIMIT = 1.02
LEAST_EFFECTIVE = 400.0
"""Chains are trusted below the first and above the second."""
LEAST_DRAWS = 4
"""ArviZ finds no number for shorter chains, and logs that."""


def r_hat_and_effective(
    values: Float[np.ndarray, "chains draws variables"],
) -> tuple[Float[np.ndarray, "variables"], Float[np.ndarray, "variables"]]:
    """R-hat and effective sample size of each variable; infinite and 0 where ArviZ finds no number."""
    import arviz

    if values.shape[1] < LEAST_DRAWS:
        return np.full(values.shape[2], np.inf), np.zeros(values.shape[2])
    with warnings.catch_warnings(), np.errstate(invalid="ignore", divide="ignore"):
        warnings.filterwarnings("ignore", message="More chains", category=UserWarning)
        container = arviz.convert_to_dataset(values)
        r_hat, effective = np.asarray(arviz.rhat(container)["x"]), np.asarray(arviz.ess(container)["x"])
    known = np.isfinite(r_hat) & np.isfinite(effective)
    return np.where(known, r_hat, np.inf), np.where(known, effective, 0.0)


def evenly_spread(
    values: Float[np.ndarray, "chains draws variables"], most: int
) -> Float[np.ndarray, "chains draws looked_at"]:
    """All variables, or `most` of them, evenly spread: ArviZ is slow."""
    return values[:, :, np.unique(np.linspace(0, values.shape[2] - 1, most).astype(np.int64))]
