"""Ranks of the truth among posterior draws, and whether many of them look uniform."""

from __future__ import annotations

import numpy as np
from scipy import stats

DRAWS = 99
"""Posterior draws of a replication: ranks are 0 ... 99."""
BINS = 20
SAME = 1e-6
"""Values closer than this are equal: an action value can be known exactly, and the chart splits its ties by 1e-8."""


def ranks(truth: np.ndarray, draws: np.ndarray, rng: np.random.Generator) -> list[int]:
    """Rank of each true quantity among its draws; among equals the truth takes a random place.

    Args:
        truth: shape (quantities,).
        draws: shape (draws, quantities).
        rng: for the places among equals.
    """
    gap = draws - truth
    below, equal = (gap < -SAME).sum(axis=0), (np.abs(gap) <= SAME).sum(axis=0)
    return [int(b + rng.integers(0, e + 1)) for b, e in zip(below, equal, strict=True)]


def counts(found: np.ndarray) -> np.ndarray:
    """How many ranks fall into each of `BINS` bins of equal width."""
    return np.histogram(found, bins=BINS, range=(0, DRAWS + 1))[0]


def p_value(found: np.ndarray) -> float:
    """Of the chi-square test that ranks are uniform."""
    return float(stats.chisquare(counts(found)).pvalue)
