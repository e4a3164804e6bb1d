"""Scrambled Sobol nets, all scramblings and dimensions at once.

Point n of a Sobol sequence is, read as an integer of 30 bits, the exclusive or of the direction numbers v_b over the
bits b that are set in the Gray code n ^ (n >> 1). So the points from 2^b to 2^(b+1) are the points before them in
reverse order, each XORed with v_b: a net is built by doubling whole arrays. A scrambling multiplies the bits of the
direction numbers by a random lower triangular matrix of zeros and ones, and shifts all points at random (Matousek
1998). Random numbers are drawn in the same order as in `scipy.stats.qmc.Sobol`, and the direction numbers (Joe and Kuo
2008) are SciPy's, so the points are the same; but importing `scipy.stats` takes longer than computing a posterior.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import scipy
from jaxtyping import Float, Float32, Int, UInt32

BITS = 30
TABLE = Path(scipy.__file__).parent / "stats" / "_sobol_direction_numbers.npz"
"""SciPy's table of primitive polynomials and initial direction numbers."""
MOST_DOUBLINGS = 24
"""Direction numbers inferred from points if SciPy's table is not there: nets then have at most 2^24 points."""


def sobol_points(
    dimension: int,
    begin: int,
    size: int,
    generators: list[np.random.Generator],
    orders: list[Int[np.ndarray, "dimension"]] | None = None,
) -> Float[np.ndarray, "dimension points"]:
    """Points `begin` to `begin + size` of one scrambled net per generator, net after net.

    `orders` gives, for each net, the coordinate of the Sobol sequence that each of its coordinates uses.
    """
    assert size & (size - 1) == 0, "a part of a net has a power of two of points"
    assert begin % size == 0, "a part of a net begins at a multiple of its size"
    used = max(1, (begin + size - 1).bit_length())
    digits = directions(dimension)[:, None, :used] >> np.arange(BITS - 1, -1, -1, dtype=np.uint32)[:, None] & 1
    of_order = [slice(None)] * len(generators) if orders is None else orders
    own = (digits[order].astype(np.float32) for order in of_order)
    shift, direction = zip(*(_scrambling(part, of) for part, of in zip(own, generators, strict=True)), strict=True)
    start, step = np.stack(shift, axis=1), np.stack(direction, axis=1)
    gray = begin ^ (begin >> 1)
    for digit in range(used):
        if gray >> digit & 1:
            start = start ^ step[:, :, digit]
    points = np.empty((dimension, len(generators), size), dtype=np.uint32)
    points[:, :, 0] = start
    for digit in range(size.bit_length() - 1):
        half = 1 << digit
        np.bitwise_xor(points[:, :, half - 1 :: -1], step[:, :, digit, None], out=points[:, :, half : 2 * half])
    return points.reshape(dimension, len(generators) * size) * 2.0**-BITS


def _scrambling(
    digits: Float32[np.ndarray, "dimension bits used"], generator: np.random.Generator
) -> tuple[UInt32[np.ndarray, "dimension"], UInt32[np.ndarray, "dimension used"]]:
    """A random shift, and direction numbers, given by bits, times a random lower triangular matrix of unit diagonal.

    As in SciPy, the generator's first child draws. Sums of 30 bits are exact in single precision.
    """
    child, dimension = generator.spawn(1)[0], len(digits)
    value = np.uint32(1) << np.arange(BITS, dtype=np.uint32)
    shift = child.integers(2, size=(dimension, BITS), dtype=np.uint32) @ value
    drawn = child.integers(2, size=(dimension, BITS, BITS), dtype=np.uint32)
    lower = drawn.astype(np.float32)
    lower *= np.tri(BITS, k=-1, dtype=np.float32)
    lower += np.eye(BITS, dtype=np.float32)
    return shift, np.einsum("dbu,b->du", (lower @ digits).astype(np.uint32) & np.uint32(1), value[::-1])


@lru_cache(maxsize=8)
def directions(dimension: int, table: Path = TABLE) -> UInt32[np.ndarray, "dimension bits"]:
    """The direction numbers of each coordinate."""
    if not table.exists():
        return _from_points(dimension)
    with np.load(table) as known:
        polynomial, first = known["poly"][:dimension].tolist(), known["vinit"][:dimension].tolist()
    rows = [[1] * BITS] + [_recurrence(p, v) for p, v in zip(polynomial[1:], first[1:], strict=True)]
    return np.array([[v << (BITS - 1 - b) for b, v in enumerate(row)] for row in rows], dtype=np.uint32)


def _recurrence(polynomial: int, first: list[int]) -> list[int]:
    """The integers m_b of v_b = m_b / 2^(b+1), by the recurrence of a primitive polynomial with binary coefficients."""
    degree = polynomial.bit_length() - 1
    numbers = first[:degree]
    for b in range(degree, BITS):
        new = numbers[b - degree]
        for k in range(1, degree + 1):
            if polynomial >> (degree - k) & 1:
                new ^= numbers[b - k] << k
        numbers.append(new)
    return numbers


def _from_points(dimension: int) -> UInt32[np.ndarray, "dimension bits"]:
    """Direction numbers inferred from SciPy's points: v_b is point 2^b - 1 XOR point 2^b."""
    from scipy.stats import qmc

    rows = np.zeros((dimension, BITS), dtype=np.uint32)
    net = qmc.Sobol(dimension, scramble=False)
    for b in range(MOST_DOUBLINGS):
        net.reset()
        if b > 0:
            net.fast_forward(2**b - 1)
        before, after = (net.random(2) * 2.0**BITS).astype(np.int64)
        rows[:, b] = before ^ after
    return rows
