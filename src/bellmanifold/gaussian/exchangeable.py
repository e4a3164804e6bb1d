"""Independent, identically distributed Gaussians of which only the maximum is known.

Let x_1 .. x_k be independent draws from N(mean, sd^2) and m their maximum. **The maximum** has the distribution
function Phi((m - mean) / sd)^k, so a standard normal z becomes the maximum of k standard normals by

    Phi(m)^k = Phi(z),     log Phi(m) = log Phi(z) / k.

In the upper tail log Phi(z) vanishes; there 1 - Phi(m) = (1 - Phi(z)) / k to rounding, which does not.

**Any one of them**, given m: the x_i are exchangeable, so x_1 is the maximum with probability 1/k. Otherwise m belongs
to another one, and x_1 is only known to lie below m: its distribution is the normal, truncated above at m. Hence

    E[f(x_1) | m] = f(m) / k + (1 - 1/k) E[f(x) | x < m].

Write z = (m - mean) / sd, h = phi(z) / Phi(z) and u = (m - x) / sd for the distance below. Integrating by parts,

    E[x | x < m] = mean - sd h = m - sd g,     g = E[u | x < m] = z + h,     Var(u | x < m) = 1 - h g.

Second moments are taken about a centre c, E[(x_1 - c)^2 | m]. If c is near the mean of the averaged quantity, the
standard deviation computed from both moments loses no digits, however large the values are relative to their spread.
About c all terms are squares and variances, so nothing cancels in their sum:

    E[(x_1 - c)^2 | m] = (m - c)^2 / k + (1 - 1/k) ((E[x | x < m] - c)^2 + sd^2 Var(u | x < m)).

Far below the mean, where z = -t with t large, h is close to t, and both z + h and 1 - h g would lose all digits. There
Laplace's continued fraction h = t + 1 / (t + 2 / (t + 3 / ...)) has positive terms only. With r = 2 / (t + 3 / ...),

    g = 1 / (t + r),     1 - h g = g (t + r) - (t + g) g = g (r - g),

and r is about twice g. Sixteen levels give twelve digits for t >= 6; for smaller t the plain formulas suffice.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
import scipy.special
from jaxtyping import Array, Float, Int
from scipy.special import log_ndtr, ndtri_exp

import bellmanifold._util.jax_setup  # noqa: F401 (switches double precision on)

Numbers = TypeVar("Numbers", np.ndarray, Array)
"""NumPy or JAX arrays."""
FAR = 6.0
"""The continued fraction is used further than this many sds below the mean."""
LEVELS = 16
"""Levels of the continued fraction."""
SQRT_2_PI = math.sqrt(2.0 * math.pi)
HIGH = 8.0
"""Above this, the square of 1 - Phi is below rounding."""


def largest_of_normals(
    normal: Float[np.ndarray, "*#shape"], count: Int[np.ndarray, "*#shape"]
) -> Float[np.ndarray, "*shape"]:
    """Map a standard normal to the maximum of `count` independent ones at the same quantile.

    >>> largest_of_normals(np.array([0.0, 0.0]), np.array([1, 2])).round(6)
    array([0.      , 0.544952])
    """
    low = ndtri_exp(log_ndtr(np.minimum(normal, HIGH)) / count)
    high = -ndtri_exp(log_ndtr(-np.maximum(normal, HIGH)) - np.log(count))
    return np.where(count > 1, np.where(normal > HIGH, high, low), normal)


def member_moments(
    largest: Float[Numbers, "*#shape"],
    count: Int[Numbers, "*#shape"],
    mean: Float[Numbers, "*#shape"],
    sd: Float[Numbers, "*#shape"],
    centre: Float[Numbers, "*#shape"],
) -> tuple[Float[Numbers, "*shape"], Float[Numbers, "*shape"]]:
    """E[x | largest] and E[(x - centre)^2 | largest] for any one x of `count` i.i.d. Gaussians with known maximum.

    They are accurate to about twelve digits; all arguments are broadcast.

    Of two standard normals whose maximum is 0, one is 0 and the other is a negative half-normal:

    >>> first, square = member_moments(np.zeros(1), np.array([2]), np.zeros(1), np.ones(1), np.zeros(1))
    >>> (first * np.sqrt(2 * np.pi)).round(12), square.round(12)
    (array([-1.]), array([0.5]))
    """
    xp, special = (jnp, jax.scipy.special) if isinstance(largest, jax.Array) else (np, scipy.special)
    z, count = (largest - mean) / sd, count.astype(np.float64)
    near = xp.maximum(z, -FAR)
    hazard = xp.exp(-0.5 * near**2) / (SQRT_2_PI * special.ndtr(near))
    gap, variance = _far_below(xp.maximum(-z, FAR), xp)
    is_far = z < -FAR
    gap = xp.where(is_far, gap, near + hazard)
    variance = xp.where(is_far, variance, 1.0 - hazard * gap)
    others = (count - 1.0) / count
    below, below_from_centre = (
        xp.where(z < 0, (largest - origin) - sd * gap, (mean - origin) - sd * hazard) for origin in (0.0, centre)
    )
    first = largest / count + others * below
    square = (largest - centre) ** 2 / count + others * (below_from_centre**2 + sd**2 * variance)
    return first, square


def _far_below(t: Any, xp: ModuleType) -> tuple[Any, Any]:
    """Mean and variance of u, the distance of a normal below -t; the continued fraction is evaluated bottom-up."""
    tail = 0.5 * (t + xp.sqrt(t**2 + 4.0 * LEVELS))
    for level in range(LEVELS, 2, -1):
        tail = t + level / tail
    rest = 2.0 / tail
    gap = 1.0 / (t + rest)
    return gap, gap * (rest - gap)
