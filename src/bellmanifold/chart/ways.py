"""Blocks of states that the batch chart solves together, and the ways to solve a block with cycles or windows.

`bellmanifold.chart.batch` explains which way suits which block, and why each ends at the solution.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from bellmanifold.chart.elimination import (
    chosen,
    eliminate_batch,
    eliminate_in_loops,
    moves_within,
    narrow_policy_iteration,
    policy_iteration,
)
from bellmanifold.chart.narrow import Narrow

Law: TypeAlias = Float[Array, "pairs successors *batch"]
"""Probability of each pair's padded successors, for all members of the batch or (with a last axis) for each."""
Values: TypeAlias = Float[Array, "pairs batch"]
Way = Literal["once", "sweeps", "policies", "windows"]


class Block(NamedTuple):
    """States that are solved together.

    Attributes:
        begin, end: range of the sorted states.
        pairs: range of their sorted pairs.
        way: "once" for states on no cycle, "sweeps", "policies" (policy iteration) or "windows".
        actions: number of pairs of each of these states; 0 if it differs between them.
        width: width of a window.
    """

    begin: int
    end: int
    pairs: tuple[int, int]
    way: Way
    actions: int
    width: int = 0

    @property
    def states(self) -> slice:
        """The range of states as a slice."""
        return slice(self.begin, self.end)

    @property
    def own(self) -> slice:
        """The range of pairs as a slice."""
        return slice(*self.pairs)


def as_table(
    values: Shaped[Array, "own *rest _"], slot: Int[Array, "states _"], actions: int, fill: float | int = -jnp.inf
) -> Shaped[Array, "states actions *rest _"]:
    """Values of pairs by state and action; `fill` where a state has no further action."""
    if actions:
        return values.reshape(len(slot), actions, *values.shape[1:])
    return jnp.append(values, jnp.full((1, *values.shape[1:]), fill, dtype=values.dtype), axis=0)[slot]


def expected_next(
    successor: Int[Array, "own successors"], law: Law, best: Float[Array, "states_and_goal batch"]
) -> Values:
    """Expected value of the next state of each pair."""
    law = law if law.ndim == 3 else law[..., None]
    total = law[:, 0] * best[successor[:, 0]]
    for k in range(1, successor.shape[1]):
        total = total + law[:, k] * best[successor[:, k]]
    return total


class Own(NamedTuple):
    """The part of a problem that belongs to a block: successors, moves of solved pairs, pairs by state and action."""

    block: Block
    successor: Int[Array, "own successors"]
    law: Float[Array, "own successors _"]
    slot: Int[Array, "own_states actions"]

    @property
    def leaving(self) -> Float[Array, "own successors _"]:
        """Moves out of the block."""
        outside = (self.successor < self.block.begin) | (self.successor >= self.block.end)
        return jnp.where(outside[..., None], self.law, 0.0)


def slide(own: Own, windows: Int[Array, "windows"], start: Values) -> Values:
    """Action values of states in the order of their levels, window by window; `start` is what each pair pays."""
    width, pairs = own.block.width, len(start)

    def solve(k: Int[Array, ""], state: tuple[Array, Array]) -> tuple[Array, Array]:
        best, q = state
        slot = jax.lax.dynamic_slice_in_dim(own.slot, windows[k], width)
        own_pairs = jnp.minimum(slot, pairs - 1).ravel()
        there = start[own_pairs] + expected_next(own.successor[own_pairs], own.law[own_pairs], best)
        table = jnp.where((slot < pairs)[..., None], there.reshape(*slot.shape, -1), -jnp.inf)
        best = jax.lax.dynamic_update_slice_in_dim(best, jnp.max(table, axis=1), windows[k], axis=0)
        return best, q.at[slot.ravel()].set(there, mode="drop")

    best = jnp.zeros((len(own.slot) + 1, start.shape[-1]))
    return jax.lax.fori_loop(0, jnp.sum(windows >= 0), solve, (best, start))[1]


def sweep_block(own: Own, start: Values) -> tuple[Values, Bool[Array, "batch"]]:
    """Sweep over a block until nothing changes: action values, and whether they converged to finite state values.

    `start` is the payment of each pair plus the expected value of leaving the block.
    """
    most = len(own.slot) + 1
    inside, place = own.law - own.leaving, own.successor - own.block.begin

    def collect(best: Float[Array, "own batch"]) -> Values:
        q = start
        for k in range(place.shape[1]):
            q = q + jnp.where(inside[:, k] > 0, inside[:, k] * best[place[:, k]], 0.0)
        return q

    def sweep(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        best, _, count = state
        new = jnp.max(as_table(collect(best), own.slot, own.block.actions), axis=1)
        return new, jnp.any(new != best, axis=0), count + 1

    nowhere = jnp.full((len(own.slot), start.shape[-1]), -jnp.inf)
    begin = (nowhere, jnp.ones(start.shape[-1], dtype=bool), jnp.array(0))
    best, changed, _ = jax.lax.while_loop(lambda state: jnp.any(state[1]) & (state[2] < most), sweep, begin)
    return collect(best), ~changed & jnp.all(jnp.isfinite(best), axis=0)


def iterate(
    own: Own, narrow: Narrow | None, solved: Bool[Array, "own"], first: Int[Array, "own_states"], start: Values
) -> tuple[Values, Float[Array, "batch"], Bool[Array, "batch"]]:
    """Policy iteration in a block: action values, log-determinant, and whether there is a proper solution.

    It begins with the actions `first` of a proper policy; `start` is the payment of each pair plus the expected value
    of leaving the block, and `narrow` describes how to eliminate states that have few neighbours.
    """
    actions, batch = own.block.actions, start.shape[-1]
    out = jnp.where(solved[:, None], jnp.sum(own.leaving, axis=1), 1.0)

    def by_action(table: Array, fill: float) -> Array:
        return as_table(table, own.slot, actions, fill).swapaxes(0, 1)

    def ahead(values: Float[Array, "own_states part"]) -> Float[Array, "actions own_states part"]:
        # successors outside have probability 0 here, so any index will do
        return by_action(expected_next(own.successor - own.block.begin, own.law - own.leaving, values), 0.0)

    begin, leaves = by_action(start, -jnp.inf), by_action(out, 0.0)
    if narrow is not None and own.law.shape[-1] == 1:
        found, pivots, proper = narrow_policy_iteration(narrow, own.law[..., 0], leaves[..., 0], begin, first, ahead)
    else:
        inside = by_action(moves_within(own.successor, own.law, own.block.begin, own.block.end), 0.0)
        eliminate = eliminate_batch if inside.shape[-1] == 1 else eliminate_in_loops

        def evaluate(policy: Int[Array, "own_states batch"]) -> tuple[Array, Array]:
            return eliminate(chosen(inside, policy), chosen(leaves, policy), chosen(begin, policy))

        found, pivots, proper = policy_iteration(begin, first, evaluate, ahead)
    by_state = found.swapaxes(0, 1).reshape(-1, batch)
    q = by_state if actions else jnp.zeros_like(start).at[own.slot.ravel()].set(by_state, mode="drop")
    return q, jnp.sum(jnp.log(jnp.where(proper, pivots, 1.0)), axis=0), proper
