"""Dense elimination for batches: policies of a block of states are evaluated without subtraction.

GTH elimination (Grassmann, Taksar and Heyman 1985) solves (I - P) x = right with the probabilities of leaving as an
explicit column, so no pivot is a difference, and a loop that is left with probability 1e-12 keeps its digits. The
product of the pivots is det(I - P), and one of them is 0 if and only if the policy never leaves some states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from bellmanifold.chart.narrow import Narrow, divisor

STRICTLY = 1e-14
"""Least improvement, relative to the magnitude of the values, for which an action is switched."""

_Iterate = tuple[Array, Array, Array, Array, Array]
"""Policy, pivots, action values, properness, and number of iterations left."""
Evaluate: TypeAlias = Callable[[Int[Array, "own batch"]], tuple[Array, Array]]
"""Pivots and state values of a policy."""
Ahead: TypeAlias = Callable[[Float[Array, "own batch"]], Float[Array, "actions own batch"]]
"""Expected value of each pair's next state within the block, from the state values."""
UNROLLED = 16
"""Up to this many actions are added one by one, as a sum over an axis is compiled to slow loops."""
CPU_BATCH = 128
"""Number of points for which narrow blocks are solved at a time on a CPU, so that their matrices stay in its cache."""


def policy_iteration(
    start: Float[Array, "actions own batch"],
    first: Int[Array, "own"],
    evaluate: Evaluate,
    ahead: Ahead,
) -> tuple[Float[Array, "actions own batch"], Float[Array, "own batch"], Bool[Array, "batch"]]:
    """Policy iteration for a batch: action values, pivots and properness of policies that no switch improves.

    Args:
        start: payment of each pair plus the expected value of leaving the block; -inf for actions that do not exist.
        first: actions of a proper policy.
        evaluate: evaluates a policy in the block.
        ahead: expected value of each pair's next state within the block.
    """
    size = jnp.max(jnp.where(jnp.isfinite(start), jnp.abs(start), 0.0), axis=(0, 1))

    def improve(state: _Iterate) -> _Iterate:
        policy, _, _, _, left = state
        pivots, values = evaluate(policy)
        proper = jnp.all(pivots > 0, axis=0)
        q = start + ahead(jnp.where(proper, values, 0.0))
        now = chosen(jnp.where(jnp.isfinite(q), q, 0.0), policy)
        top = jnp.max(q, axis=0)
        switch = (top > now + STRICTLY * (size + jnp.max(jnp.abs(now), axis=0))) & proper
        policy = jnp.where(switch, jnp.argmax(q, axis=0), policy)
        return policy, pivots, q, proper, jnp.where(jnp.any(switch), left - 1, 0)

    policy = jnp.broadcast_to(first[:, None], start.shape[1:])
    most = jnp.array(50 + 10 * len(first))  # by rounding, each of two policies may look better than the other forever
    blank = (jnp.ones(start.shape[1:]), start, jnp.ones(start.shape[-1], dtype=bool), most)
    _, pivots, q, proper, _ = jax.lax.while_loop(lambda state: state[-1] > 0, improve, (policy, *blank))
    return q, pivots, proper


def narrow_policy_iteration(
    narrow: Narrow,
    law: Float[Array, "own_pairs successors"],
    out: Float[Array, "actions own"],
    start: Float[Array, "actions own batch"],
    first: Int[Array, "own"],
    ahead: Ahead,
) -> tuple[Float[Array, "actions own batch"], Float[Array, "own batch"], Bool[Array, "batch"]]:
    """Policy iteration in a block whose states have few neighbours; on a CPU, one part of the batch after the other.

    Pairs that are not solved have a law of 0; `out` is the probability of leaving the block.
    """
    table = narrow.moves(law, len(start))

    def solve(start: Float[Array, "actions own part"]) -> tuple[Array, Array, Array]:
        def evaluate(policy: Int[Array, "own part"]) -> tuple[Array, Array]:
            moves = chosen(table.T[..., None], policy[narrow.source])
            return narrow.eliminate(moves, chosen(out[..., None], policy), chosen(start, policy))

        return policy_iteration(start, first, evaluate, ahead)

    batch = start.shape[-1]
    if batch <= CPU_BATCH or jax.default_backend() != "cpu":
        return solve(start)
    missing = -batch % CPU_BATCH
    padded = jnp.pad(start, ((0, 0), (0, 0), (0, missing)), mode="edge")
    parts = jnp.moveaxis(padded.reshape(*start.shape[:2], -1, CPU_BATCH), 2, 0)
    found = jax.lax.map(solve, parts)
    q, pivots, proper = (jnp.moveaxis(part, 0, -2).reshape(*part.shape[1:-1], -1)[..., :batch] for part in found)
    return q, pivots, proper


def chosen(
    table: Shaped[Array, "actions own *rest _"], policy: Int[Array, "own batch"]
) -> Shaped[Array, "own *rest batch"]:
    """The entries of a table that belong to the chosen action of each state."""
    policy = jnp.expand_dims(policy, tuple(range(1, table.ndim - 2)))
    if len(table) > UNROLLED:
        here = jnp.expand_dims(jnp.arange(len(table)), tuple(range(1, table.ndim))) == policy
        return jnp.sum(jnp.where(here, table, 0), axis=0)
    total = jnp.where(policy == 0, table[0], 0)
    for action in range(1, len(table)):
        total = total + jnp.where(policy == action, table[action], 0)
    return total


def eliminate_batch(
    moves: Float[Array, "own own batch"], out: Float[Array, "own batch"], right: Float[Array, "own batch"]
) -> tuple[Float[Array, "own batch"], Float[Array, "own batch"]]:
    """Pivots and solution of (I - P) x = right by GTH elimination; see `bellmanifold.mdp.blocks.eliminate`."""
    pivots: list[Array] = []
    for k in reversed(range(len(out))):
        pivot, moves, (out, right) = _eliminate(k, moves, (out, right))
        pivots.insert(0, pivot)
    x: list[Array] = []
    for k, pivot in enumerate(pivots):
        total = right[k]
        for j, value in enumerate(x):
            total = total + moves[k, j] * value
        x.append(total / divisor(pivot))
    return jnp.stack(pivots), jnp.stack(x)


def censor(
    moves: Float[Array, "own own batch"], out: Float[Array, "own batch"], first: int
) -> tuple[Float[Array, "batch"], Float[Array, "first first batch"], Float[Array, "first batch"]]:
    """Log-determinant of the last states, and the chain watched at the first: moves and probabilities of leaving."""
    log_det = jnp.zeros(out.shape[-1])
    for k in reversed(range(first, len(out))):
        pivot, moves, (out,) = _eliminate(k, moves, (out,))
        log_det = log_det + jnp.log(pivot)
    return log_det, moves[:first, :first], out[:first]


def _eliminate(
    k: int, moves: Float[Array, "own own batch"], sides: tuple[Float[Array, "own batch"], ...]
) -> tuple[Float[Array, "batch"], Array, tuple[Array, ...]]:
    """Eliminate state k, the last one: its pivot, and the moves and sides of the states before it."""
    pivot = jnp.sum(moves[k, :k], axis=0) + sides[0][k]
    share = moves[:k, k] / divisor(pivot)
    moves = moves.at[:k, :k].add(share[:, None] * moves[k, :k])
    return pivot, moves, tuple(side.at[:k].add(share * side[k]) for side in sides)


def eliminate_in_loops(
    moves: Float[Array, "own own batch"], out: Float[Array, "own batch"], right: Float[Array, "own batch"]
) -> tuple[Float[Array, "own batch"], Float[Array, "own batch"]]:
    """The same in loops that are not unrolled: they compile in a tenth of the time, but take up to twice as long.

    This is for laws that differ between draws: any state may then follow any other, so blocks are large.
    """
    states = jnp.arange(len(out))

    def down(step: Int[Array, ""], state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        moves, out, right, pivots = state
        k = len(states) - 1 - step
        before = (states < k)[:, None]
        row = jnp.where(before, moves[k], 0.0)
        pivot = jnp.sum(row, axis=0) + out[k]
        share = jnp.where(before, moves[:, k], 0.0) / divisor(pivot)
        return moves + share[:, None] * row, out + share * out[k], right + share * right[k], pivots.at[k].set(pivot)

    begin = (moves, out, right, jnp.ones_like(out))
    moves, out, right, pivots = jax.lax.fori_loop(0, len(states), down, begin)

    def up(k: Int[Array, ""], x: Float[Array, "own batch"]) -> Float[Array, "own batch"]:
        known = jnp.sum(jnp.where((states < k)[:, None], moves[k] * x, 0.0), axis=0)
        return x.at[k].set((right[k] + known) / divisor(pivots[k]))

    return pivots, jax.lax.fori_loop(0, len(states), up, jnp.zeros_like(right))


def moves_within(
    successor: Int[Array, "own successors"], law: Float[Array, "own successors _"], begin: int, end: int
) -> Float[Array, "own states _"]:
    """Transition probabilities of pairs to each state of a range."""
    hits = successor[..., None] == jnp.arange(begin, end)
    return jnp.sum(jnp.where(hits[..., None], law[:, :, None], 0.0), axis=1)
