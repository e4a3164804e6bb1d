"""Standard coordinates of a posterior on a large cyclic problem, one point at a time on sparse linear systems.

The same target as `bellmanifold.posteriors.coordinates`: standard normal coordinates (the largest value of the
unobserved pairs of each coupled state, then a residual for each observed pair) and the weight
prod N(theta_i; 0, sigma^2) / |det A| as likelihood. Policy iteration starts from the policy of a point nearby.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import log_ndtr, ndtri_exp

from bellmanifold.graph import Policy
from bellmanifold.posteriors.target import TIE_WIDTH, Target, tie_width
from bellmanifold.sparse_chart import SparseChart, sparse_chart

TILT = 1e-4
"""Infinitesimal residuals, which split ties, may change the log density by this much; beyond it the prior is taken at
the solution without them."""


class Place(NamedTuple):
    """Where a chain is: coordinates, action values, log likelihood and greedy policy."""

    x: Float[np.ndarray, "coordinates"]
    q: Float[np.ndarray, "pairs"]
    log_likelihood: float
    policy: Policy | None


class SparseCoordinates:
    """Standard coordinates of a posterior on a large problem."""

    way = "non-centred"

    def __init__(self, target: Target) -> None:
        model = target.model
        self.target, self.is_exact = target, target.is_exact
        pairs = np.arange(model.n_pairs)
        unseen = ~target.observed & target.coupled[model.pair_state]
        first = np.minimum.reduceat(np.where(unseen, pairs, model.n_pairs), model.pair_start[:-1])
        self.stand_in: Int[np.ndarray, "pairs"] = np.where(unseen, first[model.pair_state], pairs)
        self.free = np.flatnonzero(unseen & (self.stand_in == pairs))
        counts = np.zeros(model.n_pairs, dtype=bool)
        counts[self.free] = True
        self.chart: SparseChart = sparse_chart(model, target.observed, counts)
        self.alternatives = np.bincount(self.stand_in, minlength=model.n_pairs)[self.free]
        self.residual = np.flatnonzero(target.observed)
        self.scale = np.maximum(target.scale, tie_width(target))[self.residual]

    @property
    def size(self) -> int:
        """Number of coordinates, infinitesimal residuals included."""
        return len(self.free) + len(self.residual)

    @property
    def dimension(self) -> int:
        """Number of coordinates that are integrated over."""
        return len(self.free) if self.target.is_exact else self.size

    def place(self, x: Float[np.ndarray, "coordinates"], start: Policy | None) -> Place:
        """Evaluate a point, starting from a policy near it."""
        target, model = self.target, self.target.model
        value = np.full(model.n_pairs, -np.inf)
        value[model.pair_start[:-1][~target.coupled]] = 0.0
        value[self.free] = self.values(x)
        payment = target.reward.copy()
        payment[self.residual] += self.scale * x[len(self.free) :]
        point = self.chart.solve(payment, value, start)
        if point.policy is None and self.is_exact:  # infinitesimal residuals must not undo a loop that costs less
            point = self.chart.solve(target.reward, value, start)
        del payment, value  # large; unobserved values are in q as well
        if point.policy is None:
            return Place(x, point.q, -np.inf, None)
        square = self._squares(point.q)
        if self.is_exact and TIE_WIDTH * square > TILT:
            square = self._squares(self.chart.solve(target.reward, point.q, point.policy).q)
        return Place(x, point.q, -0.5 * square - point.log_det, point.policy)

    def values(self, x: Float[np.ndarray, "coordinates"]) -> Float[np.ndarray, "free"]:
        """The largest unobserved value of each state that has one."""
        normal = x[: len(self.free)]
        largest = np.where(self.alternatives > 1, ndtri_exp(log_ndtr(normal) / self.alternatives), normal)
        return self.target.prior_scale * largest

    def value(self, x: float, which: int) -> float:
        """One of them."""
        k = self.alternatives[which]
        return float(self.target.prior_scale * (ndtri_exp(log_ndtr(x) / k) if k > 1 else x))

    def _squares(self, q: Float[np.ndarray, "pairs"]) -> float:
        """Sum of squared standardised values of observed pairs (summed here: threads of a BLAS wait for each other)."""
        return float(np.square(q[self.residual] / self.target.prior_scale).sum())

    def moments(self, q: Float[np.ndarray, "pairs"]) -> tuple[Float[np.ndarray, "pairs"], Float[np.ndarray, "pairs"]]:
        """First and second moments of the action values; for exchangeable pairs those of any one of them.

        One of k such pairs is the largest, m, with probability 1/k, and otherwise a normal below it.
        """
        sigma, k, m = self.target.prior_scale, self.alternatives, q[self.free]
        hazard = np.exp(-0.5 * (m / sigma) ** 2 - 0.5 * np.log(2 * np.pi) - log_ndtr(m / sigma))
        first = np.where(np.isfinite(q), q, 0.0)
        second = first**2
        first[self.free] = (m - (k - 1) * sigma * hazard) / k
        second[self.free] = (m**2 + (k - 1) * (sigma**2 - sigma * m * hazard)) / k
        return first, second
