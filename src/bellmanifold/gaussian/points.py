"""Randomised quasi-Monte-Carlo points.

A scrambled Sobol net of 2^k points in the unit cube integrates smooth functions with an error close to 1/N, and each
independent scrambling gives an independent, unbiased estimate: their spread is an honest standard error (Owen 1997).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from bellmanifold.gaussian.sobol import sobol_points

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
    points = sobol_points(dimension, begin, size, [np.random.default_rng(child) for child in children])
    return np.maximum(points, 2.0**-54, out=points)


def normal_points(uniform: Float[np.ndarray, "*shape"], of: int = 1) -> Float[np.ndarray, "*shape"]:
    """Uniform points as draws of the largest of `of` independent standard normals."""
    return np.asarray(ndtri(uniform if of == 1 else uniform ** (1.0 / of)))
