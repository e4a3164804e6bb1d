"""Elimination for batches in blocks whose states have few neighbours: road networks, corridors, grids.

Eliminating a state connects its neighbours and nothing else. So it takes far less work and memory than a full matrix if
states with the fewest neighbours are eliminated first (the minimum degree rule of Tinney and Walker 1967): a road
network of 40 junctions keeps 284 entries of 1,521 and needs 600 products instead of 20,000. The sparsity pattern does
not depend on the policy. It is found once, from the moves of all pairs together; a compiled program then follows the
tables of a `Narrow`, step by step:

    pivot  = sum_j m(s, j) + out(s),    share_i = m(i, s) / pivot,
    m(i, j) += share_i m(s, j),  out(i) += share_i out(s),  right(i) += share_i right(s)    for neighbours i, j of s.

This is the GTH elimination of `bellmanifold.chart.elimination` in another order: no pivot is a difference, the product
of pivots is det(I - P), and one of them is 0 if and only if the policy never leaves some states.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bellmanifold._util.jax_setup import STATIC

LEAST_STATES = 17
"""Smaller blocks are eliminated as full matrices."""
SAVED = 8
"""Sparse elimination is worthwhile if it takes fewer products than a full matrix by this factor."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Narrow:
    """The order in which the states of a block are eliminated, and the matrix entries that each step touches.

    Entries are numbered, those of moves first; after them come one that stays 0 and one that is never read.

    Attributes:
        state: index within the block of the state that each step eliminates, shape (own,).
        near: neighbours of that state at that time, padded with the number of states, shape (own, width).
        row, column: entries of moves to and from these neighbours, padded with the zero entry, shape (own, width).
        update: entries between these neighbours, padded with the entry that is never read, shape (own, width, width).
        entry: entry of each successor of a pair, padded likewise, shape (own pairs, successors).
        action: index of each pair among its state's actions, shape (own pairs,).
        source: state that each move's entry starts from, shape (moves,).
        entries: number of entries without the last two.
    """

    state: Int[Array, "own"]
    near: Int[Array, "own width"]
    row: Int[Array, "own width"]
    column: Int[Array, "own width"]
    update: Int[Array, "own width width"]
    entry: Int[Array, "own_pairs successors"]
    action: Int[Array, "own_pairs"]
    source: Int[Array, "moves"]
    entries: int = field(metadata=STATIC)

    def moves(self, law: Float[Array, "own_pairs successors"], actions: int) -> Float[Array, "moves actions"]:
        """Probability of each move under each action of its state."""
        number = len(self.source)
        found = jnp.zeros((number + 1, actions))
        where = jnp.minimum(self.entry, number)
        return found.at[where, jnp.broadcast_to(self.action[:, None], where.shape)].add(law)[:-1]

    def eliminate(
        self, moves: Float[Array, "moves batch"], out: Float[Array, "own batch"], right: Float[Array, "own batch"]
    ) -> tuple[Float[Array, "own batch"], Float[Array, "own batch"]]:
        """Pivots in the order of the steps, and the solution of (I - P) x = right."""
        states, batch = out.shape
        none = jnp.zeros((1, batch))

        def down(k: Int[Array, ""], kept: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            matrix, out, right, pivots = kept
            state, near, row = self.state[k], self.near[k], matrix[self.row[k]]
            pivot = jnp.sum(row, axis=0) + out[state]
            share = matrix[self.column[k]] / divisor(pivot)
            joined = (share[:, None] * row).reshape(-1, batch)
            return (
                matrix.at[self.update[k].ravel()].add(joined, mode="promise_in_bounds"),
                out.at[near].add(share * out[state], mode="promise_in_bounds"),
                right.at[near].add(share * right[state], mode="promise_in_bounds"),
                pivots.at[k].set(pivot),
            )

        matrix = jnp.concatenate([moves, jnp.zeros((self.entries - len(moves) + 2, batch))])
        begin = (matrix, jnp.append(out, none, axis=0), jnp.append(right, none, axis=0), jnp.ones((states, batch)))
        matrix, _, right, pivots = jax.lax.fori_loop(0, states, down, begin)

        def up(step: Int[Array, ""], x: Float[Array, "own_and_none batch"]) -> Float[Array, "own_and_none batch"]:
            k = states - 1 - step
            total = right[self.state[k]] + jnp.sum(matrix[self.row[k]] * x[self.near[k]], axis=0)
            return x.at[self.state[k]].set(total / divisor(pivots[k]))

        return pivots, jax.lax.fori_loop(0, states, up, jnp.zeros((states + 1, batch)))[:-1]


def divisor(pivot: Float[Array, "batch"]) -> Float[Array, "batch"]:
    """The pivot as a divisor: 1 where it is 0, since the chain then never leaves and its values are meaningless."""
    return jnp.where(pivot > 0, pivot, 1.0)


def narrow_block(
    state: Int[np.ndarray, "own_pairs"],
    action: Int[np.ndarray, "own_pairs"],
    successor: Int[np.ndarray, "own_pairs successors"],
    possible: Bool[np.ndarray, "own_pairs successors"],
    states: int,
) -> Narrow | None:
    """How to eliminate a block; None if it is small, or so dense that a full matrix is faster.

    Args:
        state: index of each pair's state within the block.
        action: index of each pair among its state's actions.
        successor: index of each pair's successors within the block; other numbers are outside.
        possible: which successors have a positive probability.
        states: number of states of the block.
    """
    if states < LEAST_STATES:
        return None
    inside = possible & (successor >= 0) & (successor < states) & (successor != state[:, None])
    pair, _ = np.nonzero(inside)
    moves = np.zeros((states, states), dtype=bool)
    moves[state[pair], successor[inside]] = True
    steps = _minimum_degree(moves | moves.T)
    width = max(1, max(len(near) for _, near in steps))
    if SAVED * states * width**2 > states**3 / 3:
        return None
    source, target = np.nonzero(moves)
    number = {(int(i), int(j)): k for k, (i, j) in enumerate(zip(source, target, strict=True))}
    for at, near in steps:
        for move in permutations((at, *near), 2):
            number.setdefault(move, len(number))
    nothing, unread = len(number), len(number) + 1
    neighbours, row, column = (np.full((states, width), fill) for fill in (states, nothing, nothing))
    update = np.full((states, width, width), unread)
    for k, (at, near) in enumerate(steps):
        for a, i in enumerate(near):
            neighbours[k, a], row[k, a], column[k, a] = i, number[at, i], number[i, at]
            for b, j in enumerate(near):
                update[k, a, b] = unread if i == j else number[i, j]
    entry = np.full(successor.shape, unread)
    entry[inside] = [number[int(i), int(j)] for i, j in zip(state[pair], successor[inside], strict=True)]
    order = np.array([at for at, _ in steps])
    steps_of = {"state": order, "near": neighbours, "row": row, "column": column, "update": update}
    of_pairs = {"entry": entry, "action": action, "source": source}
    return Narrow(**jax.tree.map(jnp.asarray, steps_of | of_pairs), entries=len(number))


def _minimum_degree(joined: Bool[np.ndarray, "states states"]) -> list[tuple[int, tuple[int, ...]]]:
    """States in order of elimination, each with its neighbours at that time."""
    near = [set(np.flatnonzero(row).tolist()) for row in joined]
    left, steps = set(range(len(near))), []
    while left:
        at = min(left, key=lambda state: (len(near[state]), state))
        left.remove(at)
        for i in near[at]:
            near[i] |= near[at]
            near[i] -= {i, at}
        steps.append((at, tuple(sorted(near[at]))))
    return steps
