"""Gaussian vectors brought into the form in which `bellmanifold.gaussian.orthant` sums over them.

D = mean + F z with z ~ N(0, I) is written as D = mean + T w with T lower triangular and w = Q'z standard normal, so
that D >= 0 reads, row after row, w_j >= -edge_j with edge_j = (mean_j + sum_{i<j} T_ji w_i) / T_jj.

**Tilting** (Botev). Deep in the tail the plain draws ignore what later rows will ask of them, and the products
scatter. Draw w_j around a shift m_j instead; the logarithm of the weight becomes

    psi(w, m) = sum_j m_j^2 / 2 - m_j w_j + log Phi(edge_j + m_j).

The shifts are best where max_w psi is smallest, at the saddle point: with hazard_j = phi / Phi at edge_j + m_j,

    w_j = m_j + hazard_j,     m_i = sum_{j>i} hazard_j T_ji / T_jj.

Substituting one into the other, half a step at a time, usually settles within a few rounds; where it does not, the
cell keeps m = 0. Any shift leaves the estimate unbiased; with these the *relative* error stays small however small
the probability is.

**Order.** Rows may be taken in any order. The product varies least when the hardest conditions come first, so at
every step the next row is the one with the smallest conditional probability, the rows before it held at their
conditional means. The order is found from the covariance (it need not be accurate), T and Q then from a QR
factorisation of F'.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float, Int
from scipy.special import erfcx

from bellmanifold.gaussian.chunks import chunks

EXACT_DIMENSION = 2
"""Up to this dimension no random numbers are used."""
DEGENERATE = 1e-13
"""A conditional standard deviation below this fraction of the marginal one counts as zero."""
FARTHEST = 1e100
ROUGHLY_FAR, ROUGHLY_ZERO = np.float32(1e12), np.float32(1e-7)
"""The same limits where single precision will do."""
SQRT_2_OVER_PI, SQRT_HALF = float(np.sqrt(2.0 / np.pi)), float(np.sqrt(0.5))
TILT_ROUNDS, TILT_ATTEMPTS, TILT_TOLERANCE = 3, 10, 0.3
"""Rounds towards the saddle point before a look, number of looks, and the change that is small enough."""
ORDER_NUMBERS = 2**17
"""Numbers of covariances treated at a time when rows are ordered."""


@dataclass(frozen=True, eq=False)
class Staircase:
    """Gaussian vectors in triangular form: component order[j] of D is scale_j (mean_j + sum_{i<=j} lower_ji w_i).

    Attributes:
        order: the component of D that each row stands for, hardest first, shape (cells, dim).
        scale: standard deviation of each row (1 where it is 0), shape (cells, dim).
        mean: its mean in units of scale, shape (cells, dim).
        lower: the triangular factor T in units of scale, diagonal not negative, shape (cells, dim, dim).
        direction: the matrix Q of w = Q'z, shape (cells, rank, dim).
        shift: the tilting of all coordinates but the last, shape (cells, dim - 1).
    """

    order: Int[np.ndarray, "cells dim"]
    scale: Float[np.ndarray, "cells dim"]
    mean: Float[np.ndarray, "cells dim"]
    lower: Float[np.ndarray, "cells dim dim"]
    direction: Float[np.ndarray, "cells rank dim"]
    shift: Float[np.ndarray, "cells rest"]

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def dimension(self) -> int:
        return self.mean.shape[1]

    def cells(self, chosen: Int[np.ndarray, "some"] | slice) -> Staircase:
        """The same for some of the cells."""
        return Staircase(*(getattr(self, field.name)[chosen] for field in fields(self)))


def arrange(
    mean: Float[np.ndarray, "cells dim"],
    factor: Float[np.ndarray, "cells dim rank"],
    tolerance: float = TILT_TOLERANCE,
    attempts: int = TILT_ATTEMPTS,
) -> Staircase:
    """Bring the vectors mean + factor z into triangular form, the hardest rows first.

    Args:
        mean, factor: of the vectors.
        tolerance: how close to the saddle point the tilting has to come.
        attempts: steps towards it, at most.
    """
    cells, dim, rank = factor.shape
    if rank < dim:
        factor = np.concatenate([factor, np.zeros((cells, dim, dim - rank))], axis=2)
    sd = np.linalg.norm(factor, axis=2)
    scale = np.where(sd > 0, sd, 1.0)
    mean, factor = mean / scale, factor / scale[:, :, None]
    order = _hardest_first(mean, factor)
    ordered = np.take_along_axis(factor, order[:, :, None], axis=1)
    direction, upper = np.linalg.qr(ordered.transpose(0, 2, 1))
    sign = np.where(np.diagonal(upper, axis1=1, axis2=2) < 0, -1.0, 1.0)
    mean = np.take_along_axis(mean, order, axis=1)
    lower = np.ascontiguousarray((upper * sign[:, :, None]).transpose(0, 2, 1))
    shift = _shifts(mean, lower, tolerance, attempts)
    return Staircase(order, np.take_along_axis(scale, order, axis=1), mean, lower, direction * sign[:, None, :], shift)


def _hardest_first(
    mean: Float[np.ndarray, "cells dim"], factor: Float[np.ndarray, "cells dim rank"], numbers: int = ORDER_NUMBERS
) -> Int[np.ndarray, "cells dim"]:
    """For every cell, the order of rows in which each is the least probable given those before it.

    Any order is valid, so single precision will do.
    """
    parts = chunks(len(mean), mean.shape[1] ** 2, numbers)
    return np.concatenate([_order_chunk(mean[part], factor[part]) for part in parts])


def _order_chunk(
    mean: Float[np.ndarray, "cells dim"], factor: Float[np.ndarray, "cells dim rank"]
) -> Int[np.ndarray, "cells dim"]:
    cells, dim = mean.shape
    every = np.arange(cells)
    centre = np.clip(mean.T, -ROUGHLY_FAR, ROUGHLY_FAR).astype(np.float32)
    rough = factor.astype(np.float32)
    covariance = np.ascontiguousarray((rough @ rough.transpose(0, 2, 1)).transpose(1, 2, 0))
    variance = np.einsum("iic->ic", covariance).copy()
    done = np.zeros((dim, cells), dtype=bool)
    order = np.zeros((dim, cells), dtype=np.int64)
    columns = np.empty((dim, dim, cells), dtype=np.float32)
    for j in range(dim):
        sd = np.sqrt(np.maximum(variance, ROUGHLY_ZERO))
        edge = np.clip(centre / sd, -ROUGHLY_FAR, ROUGHLY_FAR)
        pivot = np.argmin(np.where(done, np.float32(np.inf), edge), axis=0)
        order[j] = pivot
        done[pivot, every] = True
        explained = np.einsum("idc,ic->dc", columns[:j], columns[:j, pivot, every])
        columns[j] = (covariance[:, pivot, every] - explained) / sd[pivot, every]
        variance -= columns[j] ** 2
        centre += columns[j] * hazard_of(edge[pivot, every])
    return np.ascontiguousarray(order.T)


def _shifts(
    mean: Float[np.ndarray, "cells dim"], lower: Float[np.ndarray, "cells dim dim"], tolerance: float, attempts: int
) -> Float[np.ndarray, "cells rest"]:
    """The tilting of all coordinates but the last: near the saddle point, or 0 in cells where that was not found."""
    cells, dim = mean.shape
    shift = np.zeros((dim, cells))
    if dim <= EXACT_DIMENSION:
        return shift[:-1].T
    rows = np.ascontiguousarray(lower.transpose(1, 2, 0))
    diagonal = np.einsum("iic->ic", rows)
    diagonal = np.where(diagonal <= DEGENERATE, np.inf, diagonal)
    slope, offset = rows / diagonal[:, None, :], mean.T / diagonal
    active = np.arange(cells)
    for _ in range(attempts):
        shift[:, active], change = _towards_saddle(slope[:, :, active], offset[:, active], shift[:, active])
        active = active[~(change < tolerance)]
        if len(active) == 0:
            break
    shift[:, active] = 0.0
    return np.ascontiguousarray(shift[:-1].T)


def _towards_saddle(
    slope: Float[np.ndarray, "dim dim some"],
    offset: Float[np.ndarray, "dim some"],
    shift: Float[np.ndarray, "dim some"],
) -> tuple[Float[np.ndarray, "dim some"], Float[np.ndarray, "some"]]:
    """A few damped rounds of the saddle point's equations, and the largest change they still ask for."""
    dim = len(offset)
    hazard, w = np.zeros_like(offset), np.zeros_like(offset)
    asked = shift
    for _ in range(TILT_ROUNDS):
        for j in range(dim):
            edge = offset[j] + np.einsum("ic,ic->c", slope[j, :j], w[:j]) + shift[j]
            hazard[j] = hazard_of(np.clip(edge, -FARTHEST, FARTHEST))
            w[j] = shift[j] + hazard[j]
        asked = np.stack([np.einsum("jc,jc->c", slope[i + 1 :, i], hazard[i + 1 :]) for i in range(dim)])
        change = np.abs(asked - shift).max(axis=0)
        shift = 0.5 * (shift + asked)
    return shift, change


def hazard_of(edge: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """phi(edge) / Phi(edge): the mean of a normal number given that it exceeds -edge."""
    return SQRT_2_OVER_PI / erfcx(-edge * SQRT_HALF)
