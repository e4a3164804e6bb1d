"""Priors over the parameters of an action-value function, for the engines that accept any prior.

A prior is a log density with respect to Lebesgue measure, which need not be normalised, and a way to draw starting
points of chains. The chart and the enumeration of Proposition 1 support the normal prior only and take its scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

import bellmanifold._util.jax_setup  # noqa: F401 (switches double precision on)
from bellmanifold.errors import BadInputError
from bellmanifold.posteriors.kernels import log_normal


@runtime_checkable
class Prior(Protocol):
    """A prior over theta; immutable and hashable, as it is part of compiled programs."""

    def log_density(self, theta: Float[Array, "dimension"]) -> Float[Array, ""]:
        """Log density, up to a constant; differentiable by JAX."""

    def draw(self, key: PRNGKeyArray, dimension: int) -> Float[Array, "dimension"]:
        """A starting point for a chain: a draw from the prior, or from any distribution that is about as wide."""


@dataclass(frozen=True)
class NormalPrior:
    """Independent N(mean, scale^2), the prior of the paper's studies; mean and scale are numbers, or one per parameter.

    >>> float(NormalPrior(2.0).log_density(jnp.zeros(1))) == float(jnp.log(0.5) + log_normal(jnp.zeros(())))
    True
    """

    scale: float | tuple[float, ...] = 10.0
    mean: float | tuple[float, ...] = 0.0

    def __post_init__(self) -> None:
        scale = np.asarray(self.scale)
        if not (np.isfinite(scale) & (scale > 0)).all():
            raise BadInputError(f"prior_scale is {scale.min()}: give a positive number")

    @classmethod
    def of(cls, mean: Float[np.ndarray, "parameters"], scale: Float[np.ndarray, "parameters"]) -> NormalPrior:
        """The prior with one mean and scale per parameter, stored as single numbers where all are equal."""

        def short(numbers: np.ndarray) -> float | tuple[float, ...]:
            same = len(numbers) > 0 and bool((numbers == numbers[0]).all())
            return float(numbers[0]) if same else tuple(numbers.tolist())

        return cls(short(scale), short(mean))

    def log_density(self, theta: Float[Array, "dimension"]) -> Float[Array, ""]:
        scale = jnp.broadcast_to(jnp.asarray(self.scale), theta.shape)
        return jnp.sum(log_normal((theta - jnp.asarray(self.mean)) / scale)) - jnp.sum(jnp.log(scale))

    def draw(self, key: PRNGKeyArray, dimension: int) -> Float[Array, "dimension"]:
        return jnp.asarray(self.mean) + jnp.asarray(self.scale) * jax.random.normal(key, (dimension,))
