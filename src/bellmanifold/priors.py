"""Priors over the parameters of an action-value function, for the engines that take any of them.

A prior is a log density with respect to Lebesgue measure, which need not be normalised, and a way to draw points from
which chains start. The chart and the enumeration of Proposition 1 know the normal prior only and take its scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

import bellmanifold.jax_setup  # noqa: F401 (switches double precision on)
from bellmanifold.errors import BadInputError
from bellmanifold.laws import log_normal


@runtime_checkable
class Prior(Protocol):
    """A prior over theta; immutable and hashable, as it is part of compiled programs."""

    def log_density(self, theta: Float[Array, "dimension"]) -> Float[Array, ""]:
        """Log density, up to a constant; differentiable by JAX."""

    def draw(self, key: PRNGKeyArray, dimension: int) -> Float[Array, "dimension"]:
        """A point to start a chain from: a draw from the prior, or from anything about as wide."""


@dataclass(frozen=True)
class NormalPrior:
    """N(0, scale^2 I), the prior of the paper's studies.

    >>> float(NormalPrior(2.0).log_density(jnp.zeros(1))) == float(jnp.log(0.5) + log_normal(jnp.zeros(())))
    True
    """

    scale: float = 10.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise BadInputError(f"prior_scale is {self.scale}: give a positive number")

    def log_density(self, theta: Float[Array, "dimension"]) -> Float[Array, ""]:
        return jnp.sum(log_normal(theta / self.scale)) - len(theta) * jnp.log(self.scale)

    def draw(self, key: PRNGKeyArray, dimension: int) -> Float[Array, "dimension"]:
        return self.scale * jax.random.normal(key, (dimension,))
