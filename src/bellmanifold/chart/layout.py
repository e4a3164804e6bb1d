"""The compiled program of the batch chart: a problem's blocks, solved one after the other from the goal backwards.

`bellmanifold.chart.batch` derives the equations, says which ways there are to solve a block, and lays problems out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

import bellmanifold.jax_setup  # noqa: F401 (switches double precision on)
from bellmanifold.chart.elimination import moves_within, narrow_policy_iteration, policy_iteration
from bellmanifold.chart.narrow import Narrow

Law: TypeAlias = Float[Array, "pairs successors *batch"]
"""Probability of each padded successor of each pair, for all members of the batch or (a last axis) for each."""
Values: TypeAlias = Float[Array, "pairs batch"]


Way = Literal["once", "sweeps", "policies", "windows"]


class Solved(NamedTuple):
    """Action values at a batch of coordinates.

    Attributes:
        q: action values, shape (pairs, batch).
        log_det: log |det A|, shape (batch,).
        solvable: whether a solution with a proper greedy policy exists, shape (batch,).
    """

    q: Values
    log_det: Float[Array, "batch"]
    solvable: Bool[Array, "batch"]


class Block(NamedTuple):
    """States that are solved together.

    Attributes:
        begin, end: a run of the states, sorted by blocks.
        pairs: the run of their pairs.
        way: "once" for states on no cycle, "sweeps", "policies" (policy iteration) or "windows".
        actions: how many pairs each of these states has; 0 if they differ.
        width: of a window.
    """

    begin: int
    end: int
    pairs: tuple[int, int]
    way: Way
    actions: int
    width: int = 0

    @property
    def states(self) -> slice:
        """The run as a slice."""
        return slice(self.begin, self.end)

    @property
    def own(self) -> slice:
        """The run of the pairs as a slice."""
        return slice(*self.pairs)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["state", "pair", "row", "place", "slot", "successor", "windows", "narrow"],
    meta_fields=["blocks", "permuted"],
)
@dataclass(frozen=True)
class Layout:
    """How a problem is solved, block by block: arrays for compiled programs, states and pairs sorted by blocks.

    Attributes:
        state: the problem's number of each state, shape (states,).
        pair, row: the problem's number of each pair, and the inverse of that, shape (pairs,).
        place: the sorted place of each pair's state, pairs in the problem's order, shape (pairs,).
        slot: the pairs of each state in turn, the number of pairs as padding, shape (states, actions).
        successor: successors of each pair among sorted states, S for the goal and padding, shape (pairs, successors).
        windows: where each window begins in the order of levels, then -1; empty without windows, shape (windows,).
        narrow: for each block how to eliminate its states one by one; None for those that are solved otherwise.
        blocks: the blocks, from the goal backwards.
        permuted: whether sorting moves anything.
    """

    state: Int[Array, "states"]
    pair: Int[Array, "pairs"]
    row: Int[Array, "pairs"]
    place: Int[Array, "pairs"]
    slot: Int[Array, "states actions"]
    successor: Int[Array, "pairs successors"]
    windows: Int[Array, "windows"]
    narrow: tuple[Narrow | None, ...]
    blocks: tuple[Block, ...]
    permuted: bool

    @property
    def actions(self) -> int:
        """How many pairs each state has; 0 if they differ."""
        found = {block.actions for block in self.blocks}
        return found.pop() if len(found) == 1 else 0

    def sort(self, per_pair: Shaped[Array, "pairs *rest"]) -> Shaped[Array, "pairs *rest"]:
        """From the problem's order of pairs to the order of blocks."""
        return per_pair[self.pair] if self.permuted else per_pair

    def unsort(self, per_pair: Shaped[Array, "pairs *rest"]) -> Shaped[Array, "pairs *rest"]:
        """Back to the problem's order."""
        return per_pair[self.row] if self.permuted else per_pair

    def slots(self, block: Block) -> Int[Array, "own actions"]:
        """The pairs of each of a block's states, counted within the block; their number as padding."""
        return jnp.minimum(self.slot[block.states] - block.pairs[0], block.pairs[1] - block.pairs[0])

    def by_action(self, values: Values, fill: float = -jnp.inf) -> Float[Array, "states actions batch"]:
        """Sorted values by state and action; `fill` where a state has no further action."""
        return _by_action(values, self.slot, self.actions, fill)

    def of_state(self, by_state: Shaped[Array, "states batch"]) -> Shaped[Array, "pairs batch"]:
        """What is known of each sorted state, for each of its pairs in the problem's order."""
        return by_state[self.place]

    def chosen(
        self, block: Block, table: Shaped[Array, "own *rest _"], choice: Int[Array, "own_states batch"]
    ) -> Shaped[Array, "own_states *rest batch"]:
        """The rows of a table that belong to the chosen actions of a block's states."""
        by_action = _by_action(table, self.slots(block), block.actions, 0)
        here = choice[:, None] == jnp.arange(by_action.shape[1])[:, None]
        here = here.reshape(here.shape[:2] + (1,) * (by_action.ndim - 3) + here.shape[2:])
        return jnp.sum(jnp.where(here, by_action, 0), axis=1)

    def greedy(self, q: Values) -> tuple[Int[Array, "states batch"], Float[Array, "states batch"]]:
        """The first best action of each state (of sorted states, counted from 0), and its value."""
        table = self.by_action(self.sort(q))
        return jnp.argmax(table, axis=1), jnp.max(table, axis=1)

    def ahead(self, law: Law, best: Float[Array, "states batch"]) -> Values:
        """Expected value of what follows each pair, in the problem's order, from the values of sorted states."""
        following = jnp.append(best, jnp.zeros((1, best.shape[1])), axis=0)
        return self.unsort(_following(self.successor, self.sort(law), following))

    def solve(
        self, law: Law, solved: Bool[Array, "pairs"], first: Int[Array, "states"], payment: Values, value: Values
    ) -> Solved:
        """Action values from coordinates.

        Args:
            law: transition probabilities of the padded successors.
            solved: pairs whose Bellman equation holds with `payment`.
            first: the action each sorted state plays in a proper policy of M~, for blocks solved by policy iteration.
            payment: what solved pairs pay; ignored elsewhere.
            value: action values of all other pairs.
        """
        return solve_layout(self, law, solved, first, payment, value)


def _by_action(
    values: Shaped[Array, "own *rest _"], slot: Int[Array, "states _"], actions: int, fill: float | int = -jnp.inf
) -> Shaped[Array, "states actions *rest _"]:
    """Values of pairs by state and action; `fill` where a state has no further action."""
    if actions:
        return values.reshape(len(slot), actions, *values.shape[1:])
    return jnp.append(values, jnp.full((1, *values.shape[1:]), fill, dtype=values.dtype), axis=0)[slot]


def _following(
    successor: Int[Array, "own successors"], law: Law, best: Float[Array, "states_and_goal batch"]
) -> Values:
    """Expected value of what follows each pair."""
    law = law if law.ndim == 3 else law[..., None]
    total = law[:, 0] * best[successor[:, 0]]
    for k in range(1, successor.shape[1]):
        total = total + law[:, k] * best[successor[:, k]]
    return total


@jax.jit
def solve_layout(
    layout: Layout, law: Law, solved: Bool[Array, "pairs"], first: Int[Array, "states"], payment: Values, value: Values
) -> Solved:
    """Solve all blocks from the goal backwards; see `Layout.solve`."""
    law, solved, payment, value = (layout.sort(array) for array in (law, solved, payment, value))
    law = jnp.where(solved[:, None, None], law if law.ndim == 3 else law[..., None], 0.0)
    start = jnp.where(solved[:, None], payment, value)
    best = jnp.zeros((len(layout.state) + 1, payment.shape[-1]))
    log_det, solvable = jnp.zeros(payment.shape[-1]), jnp.ones(payment.shape[-1], dtype=bool)
    parts: dict[int, Array] = {}
    for block, narrow in zip(layout.blocks, layout.narrow, strict=True):
        own = _Own(block, layout.successor[block.own], law[block.own], layout.slots(block))
        if block.way == "once":
            q = start[block.own] + _following(own.successor, own.law, best)
        elif block.way == "windows":
            q = _slide(own, layout.windows, start)
        else:
            collected = start[block.own] + _following(own.successor, own.leaving, best)
            if block.way == "sweeps":
                q, fits = _sweep(own, collected)
            else:
                q, found, fits = _iterate(own, narrow, solved[block.own], first[block.states], collected)
                log_det = log_det + found
            solvable = solvable & fits
        best = best.at[block.states].set(jnp.max(_by_action(q, own.slot, block.actions), axis=1))
        parts[block.begin] = q
    return Solved(layout.unsort(jnp.concatenate([parts[begin] for begin in sorted(parts)])), log_det, solvable)


class _Own(NamedTuple):
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


def _slide(own: _Own, windows: Int[Array, "windows"], start: Values) -> Values:
    """Action values of states in the order of their levels, one window after the other.

    Args:
        own: all of the problem.
        windows: where each begins, then -1.
        start: what each pair collects at once.
    """
    width, pairs = own.block.width, len(start)

    def solve(k: Int[Array, ""], state: tuple[Array, Array]) -> tuple[Array, Array]:
        best, q = state
        slot = jax.lax.dynamic_slice_in_dim(own.slot, windows[k], width)
        own_pairs = jnp.minimum(slot, pairs - 1).ravel()
        there = start[own_pairs] + _following(own.successor[own_pairs], own.law[own_pairs], best)
        table = jnp.where((slot < pairs)[..., None], there.reshape(*slot.shape, -1), -jnp.inf)
        best = jax.lax.dynamic_update_slice_in_dim(best, jnp.max(table, axis=1), windows[k], axis=0)
        return best, q.at[slot.ravel()].set(there, mode="drop")

    best = jnp.zeros((len(own.slot) + 1, start.shape[-1]))
    return jax.lax.fori_loop(0, jnp.sum(windows >= 0), solve, (best, start))[1]


def _sweep(own: _Own, start: Values) -> tuple[Values, Bool[Array, "batch"]]:
    """Sweep over a block until nothing changes.

    Args:
        own: the block.
        start: what each pair collects before the block is entered again.

    Returns:
        Action values, and whether they have settled at finite state values.
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
        new = jnp.max(_by_action(collect(best), own.slot, own.block.actions), axis=1)
        return new, jnp.any(new != best, axis=0), count + 1

    nowhere = jnp.full((len(own.slot), start.shape[-1]), -jnp.inf)
    begin = (nowhere, jnp.ones(start.shape[-1], dtype=bool), jnp.array(0))
    best, changed, _ = jax.lax.while_loop(lambda state: jnp.any(state[1]) & (state[2] < most), sweep, begin)
    return collect(best), ~changed & jnp.all(jnp.isfinite(best), axis=0)


def _iterate(
    own: _Own, narrow: Narrow | None, solved: Bool[Array, "own"], first: Int[Array, "own_states"], start: Values
) -> tuple[Values, Float[Array, "batch"], Bool[Array, "batch"]]:
    """Policy iteration in a block: action values, log-determinant, and whether there is a proper solution.

    Args:
        own: the block.
        narrow: how to eliminate its states if these have few neighbours.
        solved: which of its pairs are solved.
        first: actions of a proper policy.
        start: what each pair collects before the block is entered again.
    """
    actions, batch = own.block.actions, start.shape[-1]
    out = jnp.where(solved[:, None], jnp.sum(own.leaving, axis=1), 1.0)

    def by_action(table: Array, fill: float) -> Array:
        return _by_action(table, own.slot, actions, fill).swapaxes(0, 1)

    def ahead(values: Float[Array, "own_states part"]) -> Float[Array, "actions own_states part"]:
        inside = (own.law - own.leaving)[..., 0]
        following = jnp.zeros((len(inside), values.shape[-1]))
        for k in range(inside.shape[1]):  # of successors outside, which count for nothing, any will do
            following = following + inside[:, k, None] * values[own.successor[:, k] - own.block.begin]
        return by_action(following, 0.0)

    begin, leaves = by_action(start, -jnp.inf), by_action(out, 0.0)
    if narrow is not None and own.law.shape[-1] == 1:
        found, pivots, proper = narrow_policy_iteration(narrow, own.law[..., 0], leaves[..., 0], begin, first, ahead)
    else:
        inside = moves_within(own.successor, own.law, own.block.begin, own.block.end)
        found, pivots, proper = policy_iteration(by_action(inside, 0.0), leaves, begin, first)
    by_state = found.swapaxes(0, 1).reshape(-1, batch)
    q = by_state if actions else jnp.zeros_like(start).at[own.slot.ravel()].set(by_state, mode="drop")
    return q, jnp.sum(jnp.log(jnp.where(proper, pivots, 1.0)), axis=0), proper
