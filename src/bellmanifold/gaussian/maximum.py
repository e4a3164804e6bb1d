"""The maximum of independent Gaussians: the probability that each is the largest, and the maximum's expectation.

Let X_1 .. X_k be independent with means m_j and standard deviations s_j. Their maximum has the distribution function
F(x) = prod_j Phi((x - m_j) / s_j), and

    P(a is the largest) = int phi((x - m_a) / s_a) / s_a  prod_{j != a} Phi((x - m_j) / s_j) dx,
    E[largest]          = int x F'(x) dx,    F'(x) = the sum of the integrands above over a.

*Two* variables need no integral. With t^2 = s_1^2 + s_2^2 and gap = (m_1 - m_2) / t, P(1 is the largest) = Phi(gap),
and the expectation is the larger mean plus t (phi(gap) - |gap| Phi(-|gap|)): the textbook formula, arranged so that
nothing large cancels.

*More* variables need one integral for all k answers together. The sds may differ by many orders of magnitude (1e-8 for
a pair that was seen, 1e6 for one that was not), so equal steps in x are hopeless. Let c and s be the mean and sd of the
variable whose lower end m_j - 9 s_j is highest. The maximum lies above c - 9 s except with probability 1e-19, so
another variable can matter only if m_j + 9 s_j reaches there, while m_j - 9 s_j does not exceed it: hence
|m_j - c| <= 9 (s + s_j). In words: at distance D from c the integrand varies on the scale s or on the scale D / 9,
and on none that is much smaller. (A variable narrower than s ends where the first one almost surely exceeds it.) The
substitution x = c + s sinh(y) makes these scales comparable, and the range of y grows only like the logarithm of the
largest ratio of sds. The integrand is analytic and vanishes at both ends, so the plain sum over equally spaced y
converges faster than any power of the step. The density of the maximum of k narrows slowly as k grows, and the step
shrinks with it. The probabilities must sum to 1, which the rule does not enforce: rows where they do not are integrated
again with half the step. Distances are measured from c, so means of 1e6 with sds of 1e-8 cost no digits beyond those
that the means themselves have lost.

*Zero sd*, the limit of exact observations: among constants only the largest can win, and constants that tie share
equally, as they do in the limit of equal sds that tend to zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from bellmanifold.gaussian.chunks import chunks

REACH = 9.0
"""Gaussians are truncated this many sds from their mean; the tail beyond has probability 1e-19."""
STEP = 0.08
"""Nodes are STEP / log k apart: found by experiment, errors stay below 3e-12 up to k = 10,000."""
OUT_OF_REACH = 40.0
"""Phi of this many sds is 0 or 1 in floating point."""
TOLERANCE = 1e-11
HALVINGS = 4
BATCH = 2**20
"""Rows times nodes times variables processed at once."""


Rows = Float[np.ndarray, "rows k"]


class Largest(NamedTuple):
    """For each row of Gaussians: the probability that each is the largest, and the expectation of the maximum."""

    probability: Rows
    expectation: Float[np.ndarray, "rows"]


def largest(mean: Rows, sd: Rows, tolerance: float = TOLERANCE, step: float = STEP, numbers: int = BATCH) -> Largest:
    """Compare the independent Gaussians of each row; the probabilities in a row sum to 1.

    The result is exact for one and two Gaussians, and accurate to about 1e-12 for more (the expectation to about 1e-12
    of the largest sd). Rows whose sum of probabilities is off by more than the tolerance are repeated with more nodes.

    >>> probability, expectation = largest(np.zeros((1, 2)), np.ones((1, 2)))
    >>> probability, np.round(expectation * np.sqrt(np.pi), 12)
    (array([[0.5, 0.5]]), array([1.]))
    """
    k = mean.shape[1]
    if k == 1:
        return Largest(np.ones_like(mean), mean[:, 0].copy())
    if k == 2:
        return _of_two(mean, sd)
    random = (sd > 0).any(axis=1)
    answer = _of_constants(mean)
    if random.any():
        of_many = _of_many(*_only_best_constants(mean[random], sd[random]), tolerance, step, numbers)
        answer.probability[random], answer.expectation[random] = of_many
    return answer


def _of_constants(mean: Rows) -> Largest:
    top = mean.max(axis=1, keepdims=True)
    wins = mean == top
    return Largest(wins / wins.sum(axis=1, keepdims=True), top[:, 0])


def _of_two(mean: Float[np.ndarray, "rows 2"], sd: Float[np.ndarray, "rows 2"]) -> Largest:
    spread = np.hypot(sd[:, 0], sd[:, 1])
    difference = mean[:, 0] - mean[:, 1]
    gap = np.sign(difference) * OUT_OF_REACH
    np.divide(difference, spread, out=gap, where=np.abs(difference) < OUT_OF_REACH * spread)
    gain = spread * (_density(gap) - np.abs(gap) * ndtr(-np.abs(gap)))
    return Largest(np.stack([ndtr(gap), ndtr(-gap)], axis=1), mean.max(axis=1) + gain)


def _only_best_constants(mean: Rows, sd: Rows) -> tuple[Rows, Rows]:
    """Move constants below the largest one to minus infinity; give the others, which tie, the same tiny sd."""
    constant = sd == 0
    best = np.where(constant, mean, -np.inf).max(axis=1, keepdims=True)
    tiny = 1e-20 * sd.max(axis=1, keepdims=True)
    return np.where(constant & (mean < best), -np.inf, mean), np.where(constant, tiny, sd)


def _of_many(mean: Rows, sd: Rows, tolerance: float, step: float, numbers: int) -> Largest:
    probability = np.empty_like(mean)
    expectation = np.empty(len(mean))
    step /= max(np.log(mean.shape[1]), 1.6)
    waiting = np.arange(len(mean))
    for _ in range(HALVINGS):
        probability[waiting], expectation[waiting] = _integrate(mean[waiting], sd[waiting], step, numbers)
        waiting = waiting[np.abs(probability[waiting].sum(axis=1) - 1.0) > tolerance]
        step /= 2
        if not len(waiting):
            break
    return Largest(probability / probability.sum(axis=1, keepdims=True), expectation)


def _integrate(mean: Rows, sd: Rows, step: float, numbers: int) -> Largest:
    """Sum over equally spaced y; all rows have as many nodes as the one with the longest range needs."""
    rows, k = mean.shape
    centre = np.argmax(mean - REACH * sd, axis=1)
    origin, unit = mean[np.arange(rows), centre], sd[np.arange(rows), centre]
    upper = np.arcsinh(((mean - origin[:, None] + REACH * sd) / unit[:, None]).max(axis=1))
    lower = -np.arcsinh(REACH)
    nodes = 1 + int(np.ceil((upper.max() - lower) / step))
    answer = Largest(np.empty_like(mean), np.empty(rows))
    for part in chunks(rows, nodes * k, numbers):
        y = np.linspace(np.full_like(upper[part], lower), upper[part], nodes, axis=1)
        width = (upper[part] - lower)[:, None] / (nodes - 1) * np.cosh(y)  # in units of the centre's sd, as is distance
        distance = np.sinh(y)
        ratio = unit[part, None] / sd[part]
        offset = (origin[part, None] - mean[part]) / sd[part]
        mass = _densities(distance[:, :, None] * ratio[:, None, :] + offset[:, None, :]) * ratio[:, None, :]
        mass *= width[:, :, None]
        answer.probability[part] = mass.sum(axis=1)
        answer.expectation[part] = origin[part] + unit[part] * (distance * mass.sum(axis=2)).sum(axis=1)
    return answer


def _densities(z: Float[np.ndarray, "rows nodes k"]) -> Float[np.ndarray, "rows nodes k"]:
    """phi(z_a) times the product of Phi(z_j) over j != a, for each a, by cumulative products from both sides."""
    np.clip(z, -OUT_OF_REACH, OUT_OF_REACH, out=z)
    below = ndtr(z)
    others = np.ones_like(z)
    np.cumprod(below[:, :, :-1], axis=2, out=others[:, :, 1:])
    above = np.cumprod(below[:, :, :0:-1], axis=2)[:, :, ::-1]
    others[:, :, :-1] *= above
    return _density(z) * others


def _density(z: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    return np.asarray(np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi))
