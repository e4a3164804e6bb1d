"""Importance sampling from normals that are stretched coordinate by coordinate, with the map learnt from a pilot.

Points x of independent standard normals have weights w(x), and averages E[w f] are wanted. Where w is concentrated on
a small part of the space, most points are wasted. Where it constrains each coordinate separately, a map of each
coordinate moves the points there: x -> T(x) with

    T(x) = c + b x  for x < 0,      c + a x  for x >= 0,

so that T(x) has a *split normal* distribution with median c and spreads b below and a above it. These three numbers
come from the coordinate's weighted marginal in a pilot: its median, and the root mean square distances below and above.

**Any map is valid**: points are drawn from another density, which is known, and weights are divided by it. Relative to
the normal density, a stretched point y = T(x) has the density

    r(y) = prod_i  phi(x_i) / (phi(y_i) s_i),      s_i = b_i or a_i.

The map only has to be independent of the points. If its pilot is, then, given the pilot, the scramblings of a net are
independent and unbiased, and their spread is a valid standard error.

**No map does much harm**: one point in eight is not stretched, and weights are those of the mixture of both
distributions (the balance heuristic of Veach and Guibas 1995): they are divided by 1/8 + 7/8 r, so they grow by a
factor of 8 at most. Whatever the pilot has missed, a second mode or a heavy tail, is found as often as by an eighth of
the points without a map, and shows both in the standard errors and in the effective sample size.

A coordinate stays normal unless its marginal differs from that by more than chance: three estimated numbers for each of
many coordinates would themselves make weights uneven.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import bellmanifold._util.jax_setup  # noqa: F401 (switches double precision on)

PLAIN = 8
"""One in this many points is not stretched, and no weight grows by more than this factor."""
CHANCE = 8.0
"""A marginal's mean^2 + 2 (sd - 1)^2 is ignored below this divided by the effective sample size: four times its
expectation if the marginal is normal."""
RESAMPLED = 512
"""Number of equally weighted points that the weighted points of a pilot are resampled to."""
LEAST = 1e-3
"""Lower bound of the spreads."""
BLOCK = 8
"""Coordinates stretched at a time by the compiled program."""


class Stretch(NamedTuple):
    """A map of some coordinates, for compiled programs: its arrays have the same length however many it changes.

    Attributes:
        row: the coordinates that are changed, padded with the total number of coordinates, shape (padded,).
        centre: the image of 0, shape (padded,).
        below, above: spread below and above the centre, shape (padded,).
    """

    row: Int[np.ndarray, "padded"]
    centre: Float[np.ndarray, "padded"]
    below: Float[np.ndarray, "padded"]
    above: Float[np.ndarray, "padded"]

    @classmethod
    def none(cls, coordinates: int) -> Stretch:
        """The identity map of the given number of coordinates."""
        padded = -(-coordinates // BLOCK) * BLOCK
        return cls(np.full(padded, coordinates), np.zeros(padded), np.ones(padded), np.ones(padded))


def learn_stretch(
    x: Float[np.ndarray, "some points"],
    weight: Float[np.ndarray, "points"],
    place: Int[np.ndarray, "some"],
    coordinates: int,
) -> Stretch:
    """The map that gives some coordinates approximately their weighted marginals.

    Points `x` hold the coordinates that may be changed, at positions `place`; at least one weight must be positive.

    A half-normal coordinate, and one on which the weights do not depend:

    >>> x = np.random.default_rng(0).normal(size=(2, 100_000))
    >>> found = learn_stretch(x, np.where(x[0] > 0.0, 1.0, 0.0), np.array([3, 4]), 5)
    >>> found.row[0], float(found.centre[0].round(1)), float(found.below[0].round(1)), float(found.above[0].round(1))
    (np.int64(3), 0.7, 0.4, 0.8)
    >>> found.row[1]
    np.int64(5)
    """
    total = float(weight.sum())
    effective = total**2 / float((weight**2).sum())
    mean, square = x @ weight / total, x**2 @ weight / total
    differs = mean**2 + 2.0 * (np.sqrt(square - mean**2) - 1.0) ** 2 > CHANCE / effective
    level = (np.arange(RESAMPLED) + 0.5) / RESAMPLED * total
    drawn = x[differs][:, np.minimum(np.searchsorted(np.cumsum(weight), level), len(weight) - 1)]
    centre = np.median(drawn, axis=1)
    distance = drawn - centre[:, None]
    below, above = (
        np.maximum(np.sqrt((np.where(side, distance, 0.0) ** 2).sum(axis=1) / np.maximum(side.sum(axis=1), 1)), LEAST)
        for side in (distance < 0.0, distance >= 0.0)
    )
    found = Stretch.none(coordinates)
    for array, numbers in zip(found, (place[differs], centre, below, above), strict=True):
        array[: len(numbers)] = numbers
    return found


@jax.jit
def stretch_points(
    stretch: Stretch, x: Float[Array, "coordinates points"]
) -> tuple[Float[Array, "coordinates points"], Float[Array, "points"]]:
    """Stretched points, and the log of the ratio of the normal density to the density they were drawn from.

    The first eighth of the points is unchanged; with the identity map all points are, bit for bit.
    """
    arrays = [jnp.asarray(array) for array in stretch]
    every = jnp.ones(BLOCK)  # a product of matrices sums faster than a sum over rows

    def block(k: Int[Array, ""], found: tuple[Array, Array]) -> tuple[Array, Array]:
        """Stretch a block of coordinates and add their log r. Padding is the identity and adds nothing."""
        x, log_density = found
        here, *own = (jax.lax.dynamic_slice_in_dim(array, k * BLOCK, BLOCK) for array in arrays)
        centre, below, above = (numbers[:, None] for numbers in own)
        plain, rest = jnp.split(x.at[here].get(mode="clip"), [x.shape[1] // PLAIN], axis=1)
        is_low = plain < centre
        source = (plain - centre) / jnp.where(is_low, below, above)
        log_plain = 0.5 * (plain**2 - source**2) - jnp.where(is_low, jnp.log(below), jnp.log(above))
        is_low = rest < 0.0
        moved = centre + jnp.where(is_low, below, above) * rest
        log_rest = 0.5 * (moved**2 - rest**2) - jnp.where(is_low, jnp.log(below), jnp.log(above))
        log_ratio = jnp.concatenate([every @ log_plain, every @ log_rest])
        return x.at[here].set(jnp.concatenate([plain, moved], axis=1), mode="drop"), log_density + log_ratio

    def over_mixture(log_density: Float[Array, "points"]) -> Float[Array, "points"]:
        return -jnp.log(1.0 / PLAIN + (1.0 - 1.0 / PLAIN) * jnp.exp(log_density))

    blocks = -(-jnp.sum(arrays[0] < len(x)) // BLOCK)
    x, log_density = jax.lax.fori_loop(0, blocks, block, (x, jnp.zeros(x.shape[1])))
    return x, jax.lax.cond(blocks > 0, over_mixture, jnp.zeros_like, log_density)
