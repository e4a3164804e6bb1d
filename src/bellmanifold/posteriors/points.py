"""Randomised quasi-Monte-Carlo points, made once and kept.

A scrambled Sobol net of 2^k points in the unit cube integrates smooth functions with an error close to 1/N, and each
independent scrambling gives an independent, unbiased estimate: their spread is an honest standard error (Owen 1997).
Making points and turning them into normal variates costs more than sending them through a chart, so they are cached.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr, ndtri
from scipy.stats import qmc

Net: TypeAlias = tuple[int, int, int, int]
"""What fixes a net: dimension, log2 of its size, number of scramblings, seed."""


@lru_cache(maxsize=8)
def uniform_points(dimension: int, log2_size: int, replicates: int, seed: int) -> Float[np.ndarray, "dimension points"]:
    """Independent scramblings of one net in the open unit cube, one after the other along the last axis."""
    children = np.random.SeedSequence([seed, dimension]).spawn(replicates)
    nets = [
        qmc.Sobol(dimension, scramble=True, rng=np.random.default_rng(child)).random_base2(log2_size).T
        for child in children
    ]
    tiny = 2.0**-54
    points = np.clip(np.concatenate(nets, axis=1), tiny, 1.0 - 2.0**-53)
    points.setflags(write=False)
    return points


@lru_cache(maxsize=64)
def largest_normal_points(net: Net, rows: int, of: int) -> Float[np.ndarray, "rows points"]:
    """The first rows of a net as draws of the largest of `of` independent standard normals (1: plain normals)."""
    points = ndtri(uniform_points(*net)[:rows] ** (1.0 / of))
    points.setflags(write=False)
    return points


@lru_cache(maxsize=64)
def member_moments(net: Net, row: int, of: int) -> tuple[Float[np.ndarray, "points"], Float[np.ndarray, "points"]]:
    """First and second moment of any one of `of` standard normals whose largest is the given point.

    It is the largest itself with probability 1/of, and otherwise a normal below it, which has moments -h and 1 - m h at
    the largest m, with h = phi(m) / Phi(m).
    """
    largest = ndtri(uniform_points(*net)[row] ** (1.0 / of))
    hazard = np.exp(-0.5 * largest**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(largest))
    first = (largest - (of - 1) * hazard) / of
    second = (largest**2 + (of - 1) * (1.0 - largest * hazard)) / of
    return first, second
