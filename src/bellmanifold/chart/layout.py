"""The compiled program of the batch chart: a problem's blocks, solved one after the other from the goal backwards.

`bellmanifold.chart.batch` derives the equations and describes the ways to solve a block, which are implemented in
`bellmanifold.chart.ways`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from bellmanifold._util.jax_setup import STATIC
from bellmanifold.chart.elimination import chosen
from bellmanifold.chart.narrow import Narrow
from bellmanifold.chart.ways import Block as Block
from bellmanifold.chart.ways import Law as Law
from bellmanifold.chart.ways import Own, as_table, expected_next, iterate, slide, sweep_block
from bellmanifold.chart.ways import Values as Values


class Solved(NamedTuple):
    """Action values for a batch of coordinates.

    Attributes:
        q: action values, shape (pairs, batch).
        log_det: log |det A|, shape (batch,).
        solvable: whether a solution with a proper greedy policy exists, shape (batch,).
    """

    q: Values
    log_det: Float[Array, "batch"]
    solvable: Bool[Array, "batch"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Layout:
    """How a problem is solved, block by block: arrays for compiled programs, states and pairs sorted by blocks.

    Attributes:
        state: index of each sorted state in the problem, shape (states,).
        pair, row: index of each sorted pair in the problem, and the inverse permutation, shape (pairs,).
        place: sorted index of each pair's state, pairs in the problem's order, shape (pairs,).
        slot: pairs of each state, padded with the number of pairs, shape (states, actions).
        successor: successors of each pair among sorted states, S for the goal and padding, shape (pairs, successors).
        windows: beginning of each window in the order of levels, then -1; empty without windows, shape (windows,).
        narrow: how to eliminate the states of each block one by one; None for blocks that are solved otherwise.
        blocks: the blocks, from the goal backwards.
        permuted: whether sorting changes the order of pairs.
    """

    state: Int[Array, "states"]
    pair: Int[Array, "pairs"]
    row: Int[Array, "pairs"]
    place: Int[Array, "pairs"]
    slot: Int[Array, "states actions"]
    successor: Int[Array, "pairs successors"]
    windows: Int[Array, "windows"]
    narrow: tuple[Narrow | None, ...]
    blocks: tuple[Block, ...] = field(metadata=STATIC)
    permuted: bool = field(metadata=STATIC)

    @property
    def actions(self) -> int:
        """Number of pairs of each state; 0 if it differs between states."""
        found = {block.actions for block in self.blocks}
        return found.pop() if len(found) == 1 else 0

    def sort(self, per_pair: Shaped[Array, "pairs *rest"]) -> Shaped[Array, "pairs *rest"]:
        """Rearrange from the problem's order of pairs to the order of blocks."""
        return per_pair[self.pair] if self.permuted else per_pair

    def unsort(self, per_pair: Shaped[Array, "pairs *rest"]) -> Shaped[Array, "pairs *rest"]:
        """Rearrange from the order of blocks to the problem's order of pairs."""
        return per_pair[self.row] if self.permuted else per_pair

    def slots(self, block: Block) -> Int[Array, "own actions"]:
        """Indices of the pairs of each of a block's states within the block, padded with their number."""
        return jnp.minimum(self.slot[block.states] - block.pairs[0], block.pairs[1] - block.pairs[0])

    def by_action(self, values: Values, fill: float = -jnp.inf) -> Float[Array, "states actions batch"]:
        """Sorted values by state and action; `fill` where a state has no further action."""
        return as_table(values, self.slot, self.actions, fill)

    def of_state(self, by_state: Shaped[Array, "states batch"]) -> Shaped[Array, "pairs batch"]:
        """Expand an array over sorted states to one over pairs in the problem's order."""
        return by_state[self.place]

    def chosen(
        self, block: Block, table: Shaped[Array, "own *rest _"], choice: Int[Array, "own_states batch"]
    ) -> Shaped[Array, "own_states *rest batch"]:
        """The rows of a table that belong to the chosen actions of a block's states."""
        return chosen(as_table(table, self.slots(block), block.actions, 0).swapaxes(0, 1), choice)

    def greedy(self, q: Values) -> tuple[Int[Array, "states batch"], Float[Array, "states batch"]]:
        """The first best action of each sorted state, counted from 0, and its value."""
        table = self.by_action(self.sort(q))
        return jnp.argmax(table, axis=1), jnp.max(table, axis=1)

    def ahead(self, law: Law, best: Float[Array, "states batch"]) -> Values:
        """Expected value of the next state of each pair, in the problem's order, from the values of sorted states."""
        following = jnp.append(best, jnp.zeros((1, best.shape[1])), axis=0)
        return self.unsort(expected_next(self.successor, self.sort(law), following))


@jax.jit
def solve_layout(
    layout: Layout, law: Law, solved: Bool[Array, "pairs"], first: Int[Array, "states"], payment: Values, value: Values
) -> Solved:
    """Action values from coordinates: all blocks are solved, from the goal backwards.

    Args:
        layout: how the problem is solved.
        law: transition probabilities of the padded successors.
        solved: pairs whose Bellman equation holds with `payment`.
        first: action of each sorted state in a proper policy of M~, for blocks solved by policy iteration.
        payment: payments of solved pairs; ignored elsewhere.
        value: action values of all other pairs.
    """
    law, solved, payment, value = (layout.sort(array) for array in (law, solved, payment, value))
    law = jnp.where(solved[:, None, None], law if law.ndim == 3 else law[..., None], 0.0)
    start = jnp.where(solved[:, None], payment, value)
    best = jnp.zeros((len(layout.state) + 1, payment.shape[-1]))
    log_det, solvable = jnp.zeros(payment.shape[-1]), jnp.ones(payment.shape[-1], dtype=bool)
    parts: dict[int, Array] = {}
    for block, narrow in zip(layout.blocks, layout.narrow, strict=True):
        own = Own(block, layout.successor[block.own], law[block.own], layout.slots(block))
        if block.way == "once":
            q = start[block.own] + expected_next(own.successor, own.law, best)
        elif block.way == "windows":
            q = slide(own, layout.windows, start)
        else:
            collected = start[block.own] + expected_next(own.successor, own.leaving, best)
            if block.way == "sweeps":
                q, fits = sweep_block(own, collected)
            else:
                q, found, fits = iterate(own, narrow, solved[block.own], first[block.states], collected)
                log_det = log_det + found
            solvable = solvable & fits
        best = best.at[block.states].set(jnp.max(as_table(q, own.slot, block.actions), axis=1))
        parts[block.begin] = q
    return Solved(layout.unsort(jnp.concatenate([parts[begin] for begin in sorted(parts)])), log_det, solvable)
