"""Elimination of transient chains without subtraction (Grassmann, Taksar and Heyman 1985), singly or in batches.

A state is eliminated by redirecting its visits to the states it moves to, which leaves the chain watched at the other
states. The diagonal of I - P is computed as a sum, the mass that leaves a state, so nothing is ever subtracted: every
number keeps its digits however rarely the chain leaves.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Shaped

LEAF = 8
"""Chains up to this size are eliminated state by state, larger ones half by half."""


def eliminate(
    moves: Shaped[np.ndarray, "n n"], out: Shaped[np.ndarray, "n"], right: Shaped[np.ndarray, "n"]
) -> tuple[Shaped[np.ndarray, "n"], Shaped[np.ndarray, "n"]]:
    """Solve (I - P) x = right; also return the pivots, whose product is det(I - P).

    Works with floats and with rationals. The diagonal of `moves` is ignored; `out` is the mass that leaves the set.

    >>> eliminate(np.array([[0.0, 0.5], [1.0, 0.0]]), np.array([0.5, 0.0]), np.array([-1.0, -1.0]))
    (array([-3., -4.]), array([0.5, 1. ]))
    """
    moves, out, x = moves.copy(), out.copy(), right.copy()
    pivots = np.empty_like(out)
    for k in range(len(out) - 1, -1, -1):  # censor the chain on the states before k
        pivots[k] = moves[k, :k].sum() + out[k]
        share = moves[:k, k] / pivots[k]
        moves[:k, :k] += np.outer(share, moves[k, :k])
        out[:k] += share * out[k]
        x[:k] += share * x[k]
    for k in range(len(out)):
        x[k] = (x[k] + moves[k, :k] @ x[:k]) / pivots[k]
    return x, pivots


def expected_visits(
    moves: Float[np.ndarray, "batch n n"], out: Float[np.ndarray, "batch n"]
) -> Float[np.ndarray, "batch n n"]:
    """(I - P)^-1 of many transient chains of one size: expected visits to each state from each.

    Within one half of the states, a chain makes N = (I - P)^-1 visits, with the moves of that half alone, before it
    moves to the other half; watched only there, it moves by P' = P + back N over. All are sums of products of
    non-negative numbers, and matrix products are fast.

    >>> expected_visits(np.array([[[0.0, 0.5], [1.0, 0.0]]]), np.array([[0.5, 0.0]]))
    array([[[2., 1.],
            [2., 2.]]])
    """
    size = out.shape[1]
    if size <= LEAF:
        return _state_by_state(moves, out)
    half = size // 2
    over, back = moves[:, :half, half:], moves[:, half:, :half]
    first = expected_visits(moves[:, :half, :half], out[:, :half] + over.sum(axis=2))
    landing, ends = first @ over, first @ out[:, :half, None]
    second = expected_visits(moves[:, half:, half:] + back @ landing, out[:, half:] + (back @ ends)[:, :, 0])
    visits = np.empty_like(moves)
    visits[:, half:, half:] = second
    np.matmul(second, back @ first, out=visits[:, half:, :half])
    np.matmul(landing, second, out=visits[:, :half, half:])
    np.matmul(landing, visits[:, half:, :half], out=visits[:, :half, :half])
    visits[:, :half, :half] += first
    return visits


def _state_by_state(
    moves: Float[np.ndarray, "batch n n"], out: Float[np.ndarray, "batch n"]
) -> Float[np.ndarray, "batch n n"]:
    """Expected visits of chains with few states, eliminated in all chains at once."""
    size = out.shape[1]
    moves, out = moves.transpose(1, 2, 0).copy(), out.T.copy()  # the batch is the last axis, contiguous in memory
    visits = np.zeros_like(moves)
    visits[np.arange(size), np.arange(size)] = 1.0
    pivots = np.empty_like(out)
    for k in range(size - 1, -1, -1):
        pivots[k] = moves[k, :k].sum(axis=0) + out[k]
        share = moves[:k, k] / pivots[k]
        moves[:k, :k] += share[:, None] * moves[k, :k]
        out[:k] += share * out[k]
        visits[:k, k:] += share[:, None] * visits[k, k:]
    for k in range(size):
        visits[k] += (moves[k, :k, None] * visits[:k]).sum(axis=0)
        visits[k] /= pivots[k]
    return visits.transpose(2, 0, 1)
