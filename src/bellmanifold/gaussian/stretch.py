"""Normal points, stretched towards where they weigh.

Points x of independent standard normals have weights w(x), and averages E[w f] are wanted. Where w lives on a small
part of the space most points are wasted. Where it says of each single coordinate where that has to be, a map of each
coordinate brings the points there: x -> T(x) with

    T(x) = c + b x  for x < 0,      c + a x  for x >= 0,

so that T(x) has a *split normal* law with median c and spreads b below and a above it. These three numbers are those of
the coordinate's weighed marginal in a pilot: its median, and the root mean squares of the distances below and above.

**Any map gives the right answers**: points are drawn from another density, which is known, and weights are divided by
it. Relative to the normal density, a stretched point y = T(x) has the density

    r(y) = prod_i  phi(x_i) / (phi(y_i) s_i),      s_i = b_i or a_i.

The map must only not depend on the points. If its pilot is independent of them then, given the pilot, the scramblings
of a net are independent and unbiased, and their spread is an honest standard error.

**No map does much harm**: one point of eight is not stretched, and all are weighed against the mixture of both laws
(the balance heuristic of Veach and Guibas 1995): weights are divided by 1/8 + 7/8 r, and grow by a factor of 8 at most.
What the pilot has missed, a second mode or a heavy tail, is met as often as by an eighth of the points without a map,
and shows in the standard errors and in the effective sample size alike.

A coordinate keeps its law unless the marginal differs from it by more than chance: three estimated numbers for each of
many coordinates would themselves make weights uneven.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import bellmanifold.jax_setup  # noqa: F401 (switches double precision on)

PLAIN = 8
"""One in this many points is not stretched, and no weight grows by more than this factor."""
CHANCE = 8.0
"""(mean)^2 + 2 (sd - 1)^2 of a marginal is ignored below this, over the effective sample size: four times what chance
makes of it where the law is normal."""
RESAMPLED = 512
"""Equally weighted points that stand for the weighted ones of a pilot."""
LEAST = 1e-3
"""Spreads are no less than this."""
BLOCK = 8
"""Coordinates that a program stretches at a time."""


class Stretch(NamedTuple):
    """A map of some coordinates, as compiled programs take it: however many it changes, its arrays have one length.

    Attributes:
        row: the coordinates that are changed, then, as padding, the number of all of them, shape (padded,).
        centre: where 0 is sent, shape (padded,).
        below, above: spread of the numbers below and above the centre, shape (padded,).
    """

    row: Int[np.ndarray, "padded"]
    centre: Float[np.ndarray, "padded"]
    below: Float[np.ndarray, "padded"]
    above: Float[np.ndarray, "padded"]

    @classmethod
    def none(cls, coordinates: int) -> Stretch:
        """The map that changes none of the given number of coordinates."""
        padded = -(-coordinates // BLOCK) * BLOCK
        return cls(np.full(padded, coordinates), np.zeros(padded), np.ones(padded), np.ones(padded))


def learnt_stretch(
    x: Float[np.ndarray, "some points"],
    weight: Float[np.ndarray, "points"],
    place: Int[np.ndarray, "some"],
    coordinates: int,
) -> Stretch:
    """The map that gives each of some coordinates about its weighed marginal.

    Points `x` hold the coordinates that may be changed, at `place` among all of them; some weight is positive.

    Half of a normal number, and one that no weight depends on:

    >>> x = np.random.default_rng(0).normal(size=(2, 100_000))
    >>> found = learnt_stretch(x, np.where(x[0] > 0.0, 1.0, 0.0), np.array([3, 4]), 5)
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
def stretched(
    stretch: Stretch, x: Float[Array, "coordinates points"]
) -> tuple[Float[Array, "coordinates points"], Float[Array, "points"]]:
    """Stretched points, and the log of the normal density over the density that they were drawn from.

    The first eighth of the points is kept as it is; without a map that holds of all, to the bit.
    """
    arrays = [jnp.asarray(array) for array in stretch]
    every = jnp.ones(BLOCK)  # a product of matrices sums faster than a sum over rows

    def block(k: Int[Array, ""], found: tuple[Array, Array]) -> tuple[Array, Array]:
        """Stretch some coordinates, and add log r of these. Padding has the normal law: it adds nothing."""
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
