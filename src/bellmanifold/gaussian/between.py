"""Quantiles of the truncated standard normal distribution, accurate far out in the tails as well as in the middle.

With w uniform on (0, 1), the solution x of Phi(x) = (1 - w) Phi(low) + w Phi(high) is a standard normal truncated to
(low, high). In logarithms nothing underflows in the lower tail; intervals that lie mostly above 0 are mirrored.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr, ndtri_exp


def normal_between(low: float, high: float, uniform: float) -> float:
    """The quantile at level `uniform` of the standard normal truncated to (low, high); bounds may be infinite.

    >>> normal_between(-np.inf, np.inf, 0.5), round(normal_between(-np.inf, 0.0, 0.5), 6)
    (0.0, -0.67449)
    >>> round(normal_between(50.0, np.inf, 0.5), 4)
    50.0139
    """
    if low > -high:
        return -normal_between(-high, -low, 1.0 - uniform)
    with np.errstate(divide="ignore"):
        below = float(log_ndtr(low)) + float(np.log1p(-uniform))
        above = float(log_ndtr(high)) + float(np.log(uniform))
    found = float(ndtri_exp(np.logaddexp(below, above)))
    return min(max(found, low), high)
