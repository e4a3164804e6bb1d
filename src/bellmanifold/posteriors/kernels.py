"""Kernels: distributions of standardised residuals, the shape of a tolerance or of the noise in rewards.

A pair's reward is r = g(theta) + scale * w with w from such a distribution (the paper's p^W), or the kernel relaxes
r = g(theta). Charts need w as a function of a standard normal x, so that every sampler works with normal coordinates
only: `from_normal` is an increasing odd map, and

    log_correction(z) = log density(z) - log (the density that values of `from_normal` have at z)

corrects for the difference. The map is x -> quantile(Phi(x)), with a correction of 0, except for Student's t, which
has no elementary quantile function: there z = sqrt(nu (exp(x^2 / nu) - 1)) with the sign of x (Wallace 1959) has the
right tails, and the correction stays small.

For Gaussian noise `scale` is the standard deviation; otherwise it is the scale parameter of the standard form (a
Laplace distribution of scale b has standard deviation b sqrt(2); that of Student's t need not exist).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, log_ndtr, ndtr
from jaxtyping import Array, Float

import bellmanifold._util.jax_setup  # noqa: F401 (switches double precision on)
from bellmanifold.errors import BadInputError, quote, require

EDGE = 1e-9
LOG_2_PI = float(np.log(2 * np.pi))
MANY_DEGREES = 1e4
NAMES = "gaussian, student-t:DF (for instance student-t:4) or laplace"


@runtime_checkable
class Kernel(Protocol):
    """A symmetric distribution of residuals; immutable and hashable, as it is part of compiled programs."""

    def log_density(self, z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Log density."""

    def from_normal(self, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Map standard normals to residuals; increasing and odd."""

    def log_correction(self, z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Log density relative to that of the values of `from_normal`."""


class _Quantiles:
    """A kernel whose `from_normal` is exact, by its quantile function, and needs no correction."""

    def log_correction(self, z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return jnp.zeros_like(z)


@dataclass(frozen=True)
class Gaussian(_Quantiles):
    """The standard normal distribution."""

    def __str__(self) -> str:
        return "gaussian"

    def log_density(self, z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return log_normal(z)

    def from_normal(self, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return x


@dataclass(frozen=True)
class Uniform(_Quantiles):
    """Uniform on (-1, 1). A residual on the edge, up to rounding, counts as outside."""

    def __str__(self) -> str:
        return "uniform"

    def log_density(self, z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return jnp.where(jnp.abs(z) < 1.0 - EDGE, -jnp.log(2.0), -jnp.inf)

    def from_normal(self, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return 2 * ndtr(x) - 1


@dataclass(frozen=True)
class Laplace(_Quantiles):
    """Density exp(-|z|) / 2."""

    def __str__(self) -> str:
        return "laplace"

    def log_density(self, z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return -jnp.abs(z) - jnp.log(2.0)

    def from_normal(self, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return -jnp.sign(x) * (jnp.log(2.0) + log_ndtr(-jnp.abs(x)))


@dataclass(frozen=True)
class StudentT:
    """Student's t with `degrees` degrees of freedom, not rescaled."""

    degrees: float

    def __post_init__(self) -> None:
        require(0 < self.degrees < np.inf, f"student-t has {self.degrees} degrees of freedom: give a positive number")

    def __str__(self) -> str:
        return f"student-t:{self.degrees:g}"

    def log_density(self, z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        half = 0.5 * self.degrees
        growth = gammaln(half + 0.5) - gammaln(half)
        if half > MANY_DEGREES:  # the difference cancels; this is its expansion
            growth = 0.5 * jnp.log(half) - 0.125 / half
        constant = growth - 0.5 * jnp.log(self.degrees * jnp.pi)
        return constant - (half + 0.5) * jnp.log1p(z**2 / self.degrees)

    def from_normal(self, x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        exponent = jnp.minimum(x**2 / self.degrees, 600.0)
        return jnp.sign(x) * jnp.sqrt(self.degrees * jnp.expm1(exponent))

    def log_correction(self, z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        log_growth = jnp.log1p(z**2 / self.degrees)
        x_squared = self.degrees * log_growth
        near = x_squared < 1e-12  # there z / x is 1 to rounding, and may be 0 / 0
        log_z_over_x = 0.5 * jnp.log(jnp.where(near, 1.0, z**2 / jnp.where(near, 1.0, x_squared)))
        return self.log_density(z) + 0.5 * x_squared + 0.5 * LOG_2_PI - log_z_over_x + log_growth


def named_kernel(name: str) -> Kernel:
    """The kernel with the given name: gaussian, student-t:DF or laplace.

    >>> named_kernel("student-t:4")
    StudentT(degrees=4.0)
    """
    kind, _, degrees = name.partition(":")
    if name == "gaussian":
        return Gaussian()
    if name == "laplace":
        return Laplace()
    if kind == "student-t":
        try:
            number = float(degrees)
        except ValueError:
            raise BadInputError(f"noise is {quote(name)}: write student-t:DF, for instance student-t:4") from None
        return StudentT(number)
    raise BadInputError(f"noise is {quote(name)}: choose {NAMES}")


def log_normal(z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Log density of the standard normal distribution."""
    return -0.5 * z**2 - 0.5 * LOG_2_PI
