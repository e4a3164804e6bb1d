"""Gaussian vectors in the triangular form that `bellmanifold_paper.engines.orthant` integrates.

D = mean + F z with z ~ N(0, I) is written as D = mean + T w with T lower triangular and w = Q'z standard normal, so
that D >= 0 reads, row after row, w_j >= -edge_j with edge_j = (mean_j + sum_{i<j} T_ji w_i) / T_jj.

**Tilting** (Botev). Deep in the tail the plain draws ignore the constraints of later rows, and the weights become
uneven. Draw w_j around a shift m_j instead; the log weight becomes

    psi(w, m) = sum_j m_j^2 / 2 - m_j w_j + log Phi(edge_j + m_j).

The shifts are best where max_w psi is smallest, at the saddle point: with hazard_j = phi / Phi at edge_j + m_j,

    w_j = m_j + hazard_j,     m_i = sum_{j>i} hazard_j T_ji / T_jj.

Substituting one into the other, half a step at a time, usually converges within a few rounds. Where rows nearly
determine one another it does not. There Newton's method solves for x_j = edge_j + m_j: with S_ji = T_ji / T_jj, hazards
h(x) and w = S'h, both equations become one,

    x + h(x) = mean_j / T_jj + S S' h(x),

whose left side minus its right side has the derivative (I - A) + S S' A with 0 < A_j = -h'(x_j) < 1. That is never
singular, and x = 0 is near enough to start from. A cell where neither converges keeps m = 0: any shift leaves the
estimate unbiased; with those of the saddle point the *relative* error stays small however small the probability is.

**Order.** Rows may be taken in any order. The product varies least when the hardest conditions come first and those
implied by others come last: of a >= 0, b >= 0, a + b >= 0, the third is certain once the others hold; placed before
them it would leave them to chance. So each row is ranked by its edge given *all* others, x_k = mean_k + sum_l R_kl
h(x_l), where R has the correlations with other rows: the truncation of the others pushes every row up. A few damped
rounds of this iteration suffice.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float, Float32, Int
from scipy.special import erfcx

from bellmanifold.gaussian.chunks import chunks

EXACT_DIMENSION = 2
"""Up to this dimension no random numbers are used."""
DEGENERATE = 1e-13
"""A conditional standard deviation below this fraction of the marginal one counts as zero."""
FARTHEST = 1e100
ROUGHLY_FAR, ROUGHLY_ZERO = np.float32(1e12), np.float32(1e-7)
"""The same limits where single precision suffices."""
SQRT_2_OVER_PI, SQRT_HALF = float(np.sqrt(2.0 / np.pi)), float(np.sqrt(0.5))
TILT_ROUNDS, TILT_LOOKS, TILT_TOLERANCE = 3, 3, 0.3
"""Rounds towards the saddle point between checks, number of checks, and the change that is small enough."""
NEWTON_STEPS, STEEPEST = 30, 1e14
"""Maximum number of Newton steps, and the largest entry of S S' for which they keep enough digits."""
ORDER_ROUNDS = 4
ORDER_NUMBERS = 2**17
"""Entries of covariance matrices processed at a time when rows are ordered."""


Vectors = Float[np.ndarray, "cells dim"]


@dataclass(frozen=True, eq=False)
class Staircase:
    """Gaussian vectors in triangular form: component order[j] of D is scale_j (mean_j + sum_{i<=j} lower_ji w_i).

    Attributes:
        order: the component of D that each row stands for, hardest first, shape (cells, dim).
        scale: standard deviation of each row (1 where it is 0), shape (cells, dim).
        mean: its mean in units of scale, shape (cells, dim).
        lower: the triangular factor T in units of scale, with non-negative diagonal, shape (cells, dim, dim).
        direction: the matrix Q of w = Q'z, shape (cells, rank, dim).
        shift: the tilting of all coordinates but the last, shape (cells, dim - 1).
    """

    order: Int[np.ndarray, "cells dim"]
    scale: Vectors
    mean: Vectors
    lower: Float[np.ndarray, "cells dim dim"]
    direction: Float[np.ndarray, "cells rank dim"]
    shift: Float[np.ndarray, "cells rest"]

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def dimension(self) -> int:
        return self.mean.shape[1]

    def cells(self, chosen: Int[np.ndarray, "some"] | slice) -> Staircase:
        """The staircase of a subset of the cells."""
        return Staircase(*(getattr(self, field.name)[chosen] for field in fields(self)))


def arrange(
    mean: Vectors,
    factor: Float[np.ndarray, "cells dim rank"],
    tolerance: float = TILT_TOLERANCE,
    looks: int = TILT_LOOKS,
) -> Staircase:
    """Bring the vectors mean + factor z into triangular form, the hardest rows first.

    The tilting has to come within `tolerance` of the saddle point; cells where damped rounds have not done so after
    `looks` checks are left to Newton's method.
    """
    cells, dim, rank = factor.shape
    if rank < dim:
        factor = np.concatenate([factor, np.zeros((cells, dim, dim - rank))], axis=2)
    sd = np.sqrt(np.einsum("cij,cij->ci", factor, factor))
    scale = np.where(sd > 0, sd, 1.0)
    order = _hardest_first(mean / scale, factor / scale[:, :, None])
    row = np.arange(cells)[:, None]
    scale = scale[row, order]
    mean = mean[row, order] / scale
    direction, upper = np.linalg.qr(factor[row, order].transpose(0, 2, 1))
    sign = np.where(np.diagonal(upper, axis1=1, axis2=2) < 0, -1.0, 1.0)
    lower = np.multiply(upper.transpose(0, 2, 1), sign[:, None, :] / scale[:, :, None], order="C")
    shift = _shifts(mean, lower, tolerance, looks)
    return Staircase(order, scale, mean, lower, direction * sign[:, None, :], shift)


def _hardest_first(
    mean: Vectors, factor: Float[np.ndarray, "cells dim rank"], numbers: int = ORDER_NUMBERS
) -> Int[np.ndarray, "cells dim"]:
    """For every cell, the rows in ascending order of their edges given all other rows.

    Any order is valid, so single precision suffices.
    """
    parts = chunks(len(mean), mean.shape[1] ** 2, numbers)
    return np.concatenate([np.argsort(_edges_given_others(mean[p], factor[p]), axis=1, kind="stable") for p in parts])


def _edges_given_others(mean: Vectors, factor: Float[np.ndarray, "cells dim rank"]) -> Float32[np.ndarray, "cells dim"]:
    rough = factor.astype(np.float32)
    correlation = rough @ rough.transpose(0, 2, 1)
    np.einsum("cii->ci", correlation)[...] = 0.0
    alone = np.clip(mean, -ROUGHLY_FAR, ROUGHLY_FAR).astype(np.float32)
    edge = alone
    for _ in range(ORDER_ROUNDS):
        pushed = alone + np.einsum("cij,cj->ci", correlation, hazard_of(edge))
        edge = np.clip(np.float32(0.5) * (edge + pushed), -ROUGHLY_FAR, ROUGHLY_FAR)
    return edge


def _shifts(
    mean: Vectors, lower: Float[np.ndarray, "cells dim dim"], tolerance: float, looks: int
) -> Float[np.ndarray, "cells rest"]:
    """The tilting of all coordinates but the last: near the saddle point, or 0 in cells where none was found."""
    cells, dim = mean.shape
    shift = np.zeros((dim, cells))
    if dim <= EXACT_DIMENSION:
        return shift[:-1].T
    rows = np.ascontiguousarray(lower.transpose(1, 2, 0))
    diagonal = np.einsum("iic->ic", rows)
    flat = diagonal <= DEGENERATE
    diagonal = np.where(flat, np.inf, diagonal)
    slope, offset = rows / diagonal[:, None, :], np.where(flat, FARTHEST, mean.T / diagonal)
    active = np.arange(cells)
    for _ in range(looks):
        shift[:, active], change = _towards_saddle(slope, offset, shift[:, active])
        left = ~(change < tolerance)
        active, slope, offset = active[left], slope[:, :, left], offset[:, left]
        if len(active) == 0:
            break
    shift[:, active] = _saddle_by_newton(np.ascontiguousarray(slope.transpose(2, 0, 1)), offset.T, tolerance).T
    return np.ascontiguousarray(shift[:-1].T)


def _saddle_by_newton(slope: Float[np.ndarray, "cells dim dim"], offset: Vectors, tolerance: float) -> Vectors:
    """The shifts at the saddle point; 0 where Newton's method does not come within the tolerance of it."""
    product = slope @ slope.transpose(0, 2, 1)
    shift, edge = np.zeros_like(offset), np.zeros_like(offset)
    active = np.flatnonzero(product.max(axis=(1, 2)) < STEEPEST)
    for _ in range(NEWTON_STEPS):
        hazard = hazard_of(edge[active])
        miss = offset[active] + np.einsum("cij,cj->ci", product[active], hazard) - edge[active] - hazard
        found = np.abs(miss).max(axis=1) < tolerance
        shift[active[found]] = np.einsum("cji,cj->ci", slope[active[found]], hazard[found]) - hazard[found]
        active, hazard, miss = active[~found], hazard[~found], miss[~found]
        if len(active) == 0:
            break
        falls = np.clip(hazard * (hazard + edge[active]), 0.0, 1.0)
        derivative = product[active] * falls[:, None, :]
        np.einsum("cii->ci", derivative)[...] += 1.0 - falls
        step = np.linalg.solve(derivative, miss[:, :, None])[:, :, 0]
        edge[active] = np.clip(edge[active] + step, -FARTHEST, FARTHEST)
    return shift


def _towards_saddle(
    slope: Float[np.ndarray, "dim dim some"],
    offset: Float[np.ndarray, "dim some"],
    shift: Float[np.ndarray, "dim some"],
) -> tuple[Float[np.ndarray, "dim some"], Float[np.ndarray, "some"]]:
    """Shifts after a few damped rounds of the saddle-point equations, and the last round's largest undamped change."""
    dim = len(offset)
    hazard, w = np.zeros_like(offset), np.zeros_like(offset)
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
    """phi(edge) / Phi(edge): the mean of a standard normal given that it exceeds -edge."""
    return SQRT_2_OVER_PI / erfcx(-edge * SQRT_HALF)
