"""Randomised quasi-Monte-Carlo points.

A scrambled Sobol net of 2^k points in the unit cube integrates smooth functions with an error close to 1/N, and each
independent scrambling gives an independent, unbiased estimate: their spread is an honest standard error (Owen 1997).

With many coordinates some two of them always fit badly: until the net is huge their points lie in stripes, and whatever
depends on the difference of those two is known worse than from random numbers. So in many dimensions every scrambling
puts the coordinates in an order of its own. Each net is a net as before, but no two coordinates are the bad ones
everywhere. On a road network of 132 coordinates that halves the largest standard error.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri

from bellmanifold.gaussian.sobol import sobol_points

ORDERED, MANY = 16, 64
"""The first coordinates, which are the best ones, always keep their place; the others do unless there are many."""

Part: TypeAlias = tuple[int, int, int, int, int]
"""What fixes a part of a net: dimension, its first point, its size, number of scramblings, seed."""


def uniform_points(
    dimension: int, begin: int, size: int, replicates: int, seed: int, only: int | None = None
) -> Float[np.ndarray, "dimension points"]:
    """A part of independent scramblings of one net in the open unit cube, one after the other along the last axis.

    A net is the beginning of every larger one. Parts that start at 0 or at their own size are nets themselves. If only
    one of the scramblings is wanted, the others are not made.
    """
    children = np.random.SeedSequence([seed, dimension]).spawn(replicates)
    children = children if only is None else [children[only]]
    orders = None if dimension <= MANY else [_order(dimension, [*child.spawn_key, seed]) for child in children]
    points = sobol_points(dimension, begin, size, [np.random.default_rng(child) for child in children], orders)
    return np.maximum(points, 2.0**-54, out=points)


def _order(dimension: int, seed: list[int]) -> Int[np.ndarray, "dimension"]:
    """A random order of all coordinates except the first ones; of its own random numbers."""
    moved = np.random.default_rng([*seed, dimension]).permutation(dimension - ORDERED)
    return np.append(np.arange(ORDERED), ORDERED + moved)


def normal_points(uniform: Float[np.ndarray, "*shape"], of: int = 1) -> Float[np.ndarray, "*shape"]:
    """Uniform points as draws of the largest of `of` independent standard normals."""
    return np.asarray(ndtri(uniform if of == 1 else uniform ** (1.0 / of)))
