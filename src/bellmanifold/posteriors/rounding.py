"""Ties and rounding: which residuals are too small to be added to action values.

Action values are sums of rewards, residuals and unobserved values, rounded to about 1e-16 of their size. Residuals
decide which of several equally good actions is greedy, so they must exceed the rounding error. The infinitesimal
residuals of an exact posterior have a width of 1e-8 of the largest reward, or more if values are far larger than that.
They are narrower where that would be wide relative to the prior: one reward of -1e9 must not blur the values of all
other states. A tolerance lost in rounding is replaced by 0: the exact posterior, which splits ties as in the limit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bellmanifold.posteriors.kernels import Gaussian
from bellmanifold.posteriors.target import Target

TIE_WIDTH, LEAST_TIE_WIDTH = 1e-8, 1e-12
"""Width of the residuals that split ties at epsilon = 0, relative to rewards, and its minimum, relative to values."""
BESIDE_PRIOR = 1e-6
"""Residuals are no wider than this share of the smallest prior standard deviation, or than 1e-8 of the competing values
if that is more (differences of 1e-10 of these count as ties)."""
SWALLOWED = 1e-13
"""A tolerance below this share of a value is lost when added to it."""
SWEEPS = 100
"""Number of moves for which rewards are added up; values of longer paths are bounded by the prior."""


def tie_width(target: Target) -> float:
    """A width of residuals that is small relative to the rewards and the prior, but not lost in rounding."""
    largest = float(np.abs(target.reward[target.observed]).max(initial=0.0) or 1.0)
    width = TIE_WIDTH * largest
    finest = np.inf if target.prior.flat else BESIDE_PRIOR * float(target.prior.sd.min(initial=np.inf))
    if LEAST_TIE_WIDTH * float(target.prior.likely_size.max(initial=0.0)) <= width <= finest:
        return width
    competing = largest_competing(target)
    return max(min(width, max(finest, TIE_WIDTH * competing)), LEAST_TIE_WIDTH * competing)


def without_lost_tolerance(target: Target) -> Target:
    """The target, exact where rounding would lose tolerance or noise, for engines that add these to values.

    Only ties require it: where no two observed actions compete, spreads keep more digits with their tolerance.
    """
    small = target.observed & (target.scale > 0) & (target.scale <= tie_width(target))
    if target.noise_scale is not None or target.every_visit is not None or not small.any():
        return target
    lost = small & (target.scale <= SWALLOWED * largest_competing(target))
    if not lost.any():
        return target
    scale = np.where(lost, 0.0, target.scale)
    return replace(target, scale=scale, kernel=target.kernel if scale.any() else Gaussian())


def largest_competing(target: Target) -> float:
    """An upper bound for the size of the values of observed actions that compete in a state.

    Values are sums of rewards and unobserved values; where loops sum many of them, the prior bounds them.
    """
    model, observed, pays, likely = target.model, target.observed, np.abs(target.reward), target.prior.likely_size
    size = np.where(observed, pays, likely)
    for _ in range(SWEEPS):
        ahead = np.nan_to_num(model.expected_next(model.best(size)))
        before, size = size, np.where(observed, np.minimum(pays + ahead, np.maximum(pays, likely)), likely)
        if (size == before).all():
            break
    else:
        size = np.maximum(pays, likely)
    competes = np.bincount(model.pair_state[observed], minlength=model.n_states)[model.pair_state] > 1
    return float(size[observed & competes].max(initial=0.0))
