"""The paper's general model of noisy rewards (equations 2 and 4 to 6).

A visit to pair i pays r = g_i(theta) + eta(psi) W with W from a known distribution p^W(. | i) of mean 0. Its density is

    p(r | theta, psi, i) = p^W((r - g_i(theta)) / eta(psi) | i) / eta(psi),

rewards are independent given the pairs, and the posterior of (theta, psi) is proportional to p(theta) p(psi) times the
product over all visits, repeats included. A `NoiseModel` defines psi, eta and p^W. Two are built in: a known scale, and
one common scale to be inferred. Any other object with the same four members can be used; the scale may differ between
pairs (eta is then an array with one entry per pair), and so may p^W, which takes the pair as an argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import bellmanifold._util.jax_setup  # noqa: F401 (switches double precision on)
from bellmanifold.errors import require
from bellmanifold.posteriors.kernels import Gaussian, Kernel

NORMAL = Gaussian()
Eta = TypeVar("Eta", Array, np.ndarray)
LogScalePrior = Callable[[Float[Array, ""]], Float[Array, ""]]
"""Log density of a prior over eta > 0, differentiable by JAX."""


@runtime_checkable
class NoiseModel(Protocol):
    """Noise of rewards; immutable and hashable, as it is part of compiled programs; its methods are JAX functions."""

    @property
    def dimension(self) -> int:
        """Number of entries of psi; 0 if the noise has no unknown parameters."""

    def log_prior(self, psi: Float[Array, "dimension"]) -> Float[Array, ""]:
        """Log prior density of psi with respect to Lebesgue measure; psi ranges over all of R^dimension."""

    def scale(self, psi: Float[Array, "dimension"]) -> Float[Array, "*pairs"]:
        """eta(psi) > 0: a single number, or one per pair."""

    def log_density(self, pair: Int[Array, "*shape"], w: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """log p^W(w | pair), entry by entry."""


@dataclass(frozen=True)
class KnownScale:
    """Noise of known scale.

    Attributes:
        value: eta; for Gaussian noise its standard deviation.
        kernel: the distribution of W.
    """

    value: float
    kernel: Kernel = NORMAL

    def __post_init__(self) -> None:
        require(0 < self.value < np.inf, f"the noise sd is {self.value}: give a positive number")

    @property
    def dimension(self) -> int:
        return 0

    def log_prior(self, psi: Float[Array, "dimension"]) -> Float[Array, ""]:
        return jnp.zeros(())

    def scale(self, psi: Float[Array, "dimension"]) -> Float[Array, ""]:
        return jnp.asarray(self.value)

    def log_density(self, pair: Int[Array, "*shape"], w: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return self.kernel.log_density(w)


@dataclass(frozen=True)
class HalfNormal:
    """The distribution of |x| for x ~ N(0, scale^2), as a prior over eta; takes NumPy or JAX arrays."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        require(0 < self.scale < np.inf, f"the prior scale of the noise is {self.scale}: give a positive number")

    def __call__(self, eta: Eta) -> Eta:
        return 0.5 * math.log(2.0 / math.pi) - math.log(self.scale) - 0.5 * (eta / self.scale) ** 2


HALF_NORMAL = HalfNormal()


@dataclass(frozen=True)
class InferredScale:
    """One common scale eta = exp(psi), to be inferred.

    The prior is that of eta; the density of psi = log eta has the extra factor d eta / d psi = eta.

    Attributes:
        prior: log prior density of eta.
        kernel: the distribution of W.
    """

    prior: LogScalePrior = HALF_NORMAL
    kernel: Kernel = NORMAL

    @property
    def dimension(self) -> int:
        return 1

    def log_prior(self, psi: Float[Array, "dimension"]) -> Float[Array, ""]:
        return self.prior(jnp.exp(psi[0])) + psi[0]

    def scale(self, psi: Float[Array, "dimension"]) -> Float[Array, ""]:
        return jnp.exp(psi[0])

    def log_density(self, pair: Int[Array, "*shape"], w: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return self.kernel.log_density(w)
