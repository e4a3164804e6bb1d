"""The posterior of Example 1 by quadrature: density, evidence, marginals, and means of anything.

At the only state one may stay (theta_1) or go (theta_2); both pay -1, so Q* = (-2, -1). The integrand is smooth between
the kink at theta_1 = theta_2 and multiples of the scales sigma and epsilon around its peaks; Gauss's rule on each piece
gives integrals to rounding. In the coordinates theta_2 and d = theta_1 - theta_2, whose map keeps areas, kink and ridge
lie along the axes: d = 0 and d = -1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from bellmanifold.envs import two_state
from bellmanifold_paper.bellman import log_likelihood, transitions

PRIOR_SCALE = 10.0
TRUTH = (-2.0, -1.0)
COMPLETE, PARTIAL = np.array([True, True]), np.array([True, False])
WIDTHS = np.array([2.0, 3.0, 5.0, 9.0, 14.0])
"""Pieces of an integral end at these distances from each peak, in its scales."""
FAR = np.array([-9.0, -3.0, -1.0, 0.0, 1.0, 3.0, 9.0])
"""And at these multiples of the prior scale."""
NODES = 20

Points = Float[np.ndarray, "*shape"]


def log_density(
    theta: Float[np.ndarray, "*shape 2"],
    epsilon: float,
    observed: Bool[np.ndarray, "2"] = COMPLETE,
    prior_scale: float = PRIOR_SCALE,
) -> Float[np.ndarray, "*shape"]:
    """Log of prior times relaxed likelihood: the posterior's density up to the evidence."""
    model = two_state()
    law, reward = transitions(model), jnp.asarray(model.reward)
    seen, scale = jnp.asarray(observed), jnp.full(2, epsilon)
    likelihood = jax.vmap(lambda q: log_likelihood(law, q, seen, reward, scale))(jnp.asarray(theta.reshape(-1, 2)))
    prior = -0.5 * (theta**2).sum(axis=-1) / prior_scale**2 - np.log(2 * np.pi * prior_scale**2)
    return np.asarray(prior + np.asarray(likelihood).reshape(theta.shape[:-1]))


@lru_cache
def log_evidence(epsilon: float) -> float:
    """Log of the total mass of `log_density` with complete data."""
    peaks = np.array([TRUTH[1]])
    return float(np.log(_integrate(lambda y: _slice_mass(1, y, epsilon), _breaks(peaks, epsilon))))


def marginal(which: int, x: Float[np.ndarray, "points"], epsilon: float) -> Float[np.ndarray, "points"]:
    """Posterior density of theta_1 (`which` 0) or theta_2 (1) with complete data."""
    return _slice_mass(which, x, epsilon) / np.exp(log_evidence(epsilon))


def _slice_mass(which: int, x: Points, epsilon: float) -> Points:
    """Mass on the line where one coordinate is x."""
    x = np.asarray(x, dtype=np.float64)
    # over theta_2 the likelihood peaks at -1 and at theta_1 + 1; over theta_1 at theta_2 - 1; both have a kink at x
    peaks = np.stack([np.full_like(x, TRUTH[1]), x + 1.0, x] if which == 0 else [x - 1.0, x], axis=-1)

    def along(y: Points) -> Points:
        here = np.broadcast_to(x[..., None, None], y.shape)
        theta = np.stack([here, y] if which == 0 else [y, here], axis=-1)
        return np.exp(log_density(theta, epsilon))

    return _integrate(along, _breaks(peaks, epsilon))


def _breaks(
    peaks: Float[np.ndarray, "*shape peaks"], epsilon: float, wide: float = PRIOR_SCALE
) -> Float[np.ndarray, "*shape breaks"]:
    """Where pieces of an integral begin and end."""
    away = np.concatenate([-epsilon * WIDTHS, [0.0], epsilon * WIDTHS])
    near = (peaks[..., None] + away).reshape(*peaks.shape[:-1], -1)
    far = np.broadcast_to(wide * FAR, (*near.shape[:-1], len(FAR)))
    return np.sort(np.clip(np.concatenate([near, far], axis=-1), far.min(), far.max()), axis=-1)


def _rule(
    breaks: Float[np.ndarray, "*shape breaks"],
) -> tuple[Float[np.ndarray, "*shape pieces nodes"], Float[np.ndarray, "*shape pieces nodes"]]:
    """Points and weights of Gauss's rule on every piece."""
    node, weight = np.polynomial.legendre.leggauss(NODES)
    low, high = breaks[..., :-1, None], breaks[..., 1:, None]
    return (low + high) / 2 + (high - low) / 2 * node, weight * (high - low) / 2


def _integrate(integrand: Callable[[Points], Points], breaks: Float[np.ndarray, "*shape breaks"]) -> Points:
    """Gauss's rule on every piece, summed."""
    y, weight = _rule(breaks)
    return np.asarray((integrand(y) * weight).sum(axis=(-2, -1)))


class Plane:
    """The posterior as points q of shape (points, 2) and their probabilities.

    Args:
        epsilon: tolerance, or the sd of mean rewards.
        observed: which pairs were seen.
        prior_scale: sd of the prior.
    """

    def __init__(
        self, epsilon: float, observed: Bool[np.ndarray, "2"] = COMPLETE, prior_scale: float = PRIOR_SCALE
    ) -> None:
        second, across = _rule(_breaks(np.array([TRUTH[1]]), epsilon, prior_scale))
        apart, along = _rule(_breaks(np.array([-1.0, 0.0]), epsilon, 2 * prior_scale))
        apart, second = (grid.ravel() for grid in np.meshgrid(apart.ravel(), second.ravel(), indexing="ij"))
        self.q: Float[np.ndarray, "points 2"] = np.stack([second + apart, second], axis=1)
        log = log_density(self.q, epsilon, observed, prior_scale)
        weight = np.exp(log - log.max()) * np.outer(along.ravel(), across.ravel()).ravel()
        self.probability: Float[np.ndarray, "points"] = weight / weight.sum()

    def mean(self, values: Float[np.ndarray, "points *more"]) -> Float[np.ndarray, "*more"]:
        """Posterior mean of what has these values at the points."""
        return np.asarray(np.tensordot(self.probability, values, axes=1))

    @property
    def covariance(self) -> Float[np.ndarray, "2 2"]:
        centred = self.q - self.mean(self.q)
        return self.mean(centred[:, :, None] * centred[:, None, :])

    @property
    def improper(self) -> float:
        """Probability that staying is thought to be the better action."""
        return float(self.probability[self.q[:, 0] > self.q[:, 1]].sum())
