"""The chart: coordinates of the posterior <-> action values, with the log-determinant of the change of variables.

Let O be the pairs that are *solved* (the observed ones), U all others. In the modified problem M~ solved pairs keep
their transitions and pay `payment`, and every other pair ends at the goal and pays its own `value`. The equations

    theta_i = payment_i + sum_s' p(s'|i) max_a theta(s', a),  i in O;      theta_u = value_u,  u in U

have at most one solution whose greedy policy is proper. So (theta_U, payments) are coordinates for theta. If pair i is
paid r_i + epsilon xi_i, the residual g_i(theta) - r_i is epsilon xi_i: this is the relaxed posterior in coordinates
(theta_U, xi), and for epsilon = 0 the manifold posterior in coordinates theta_U alone. The change of variables from
theta to coordinates divides densities by |det A|, A_ij = 1(i = j) - p(s_j | i) 1(a_j greedy at s_j) for i, j in O, and

    |det A| = det(I - P_mu),

P_mu the greedy policy's moves among states whose greedy pair is solved: a pair that is not greedy has a unit column,
and expanding along those leaves just that. It is 1 when no greedy cycle is possible.

The equations are solved block by block, a block being a strong component of the problem's graph, from the goal
backwards. States on no cycle need one maximum each; a cyclic block is solved by policy iteration from a proper
policy of M~, switching only where strictly better. An iterate that turns improper certifies a class of positive gain:
then no solution has a proper greedy policy and `solvable` is False. Each policy is evaluated by subtraction-free (GTH)
elimination, whose pivots multiply up to the determinant; a pivot is 0 exactly where the policy is improper.

In a block without random moves, or whose solved pairs have no cycle, plain sweeps V <- max(payment + P V, value) that
start from minus infinity end exactly at the solution too, after no more sweeps than there are states (Bellman and
Ford's argument: sweep k finds the best value within k moves); values that still change then certify a loop that pays.
A chart of *known* pairs is one block solved like this: it needs no order of the states, so it can be laid out once
while the known pairs grow, and it does not look at what is not known. Where no known pair is on a cycle and there are
many states, these are put in the order of their levels and solved a *stretch* at a time: a window of fixed width slides
from level to level. A window may reach into the next level, whose values it gets wrong; the next window begins there
and overwrites them. So one compiled program serves while the levels change, and each state is solved once or twice.

`BatchChart` sends many coordinate vectors through one compiled program. The batch is the last axis and states are
ordered from the goal backwards, so that a sweep is a few contiguous vector operations. The law is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

import bellmanifold.jax_setup  # noqa: F401 (switches double precision on)
from bellmanifold.errors import UnsupportedError
from bellmanifold.graph import leaving_policy, levels, strong_components
from bellmanifold.ssp import SSP

MAX_BLOCK = 40
"""States of one strong component that are still eliminated densely."""
MANY_STATES = 64
"""More known states than this are solved by levels instead of sweeps."""
MAX_SLOTS = 20_000
"""Padded pairs (states times the largest number of actions, times successors) a batch chart may have."""
STRICTLY = 1e-14
"""How much better, relative to the values at hand, an action must be to be switched to."""


class TooLargeError(UnsupportedError):
    """The problem does not fit a batch chart; a sparse chart takes it, one point at a time."""


class Solved(NamedTuple):
    """Action values at a batch of coordinates.

    Attributes:
        q: action values by slot; -inf in slots without a pair, shape (actions, states, batch).
        log_det: log |det A|, shape (batch,).
        solvable: whether a solution with a proper greedy policy exists, shape (batch,).
    """

    q: Float[Array, "actions states batch"]
    log_det: Float[Array, "batch"]
    solvable: Bool[Array, "batch"]


class Block(NamedTuple):
    """A run of states in elimination order.

    Attributes:
        begin, end: the run.
        cyclic: its states are solved together, not each on its own.
        sweeps: by sweeps instead of policy iteration; right where no solved pair of the block is random.
        width: if positive, the block is all states in the order of their levels, and stretches of so many are solved
            at a time.
    """

    begin: int
    end: int
    cyclic: bool
    sweeps: bool = False
    width: int = 0


class System(NamedTuple):
    """The equations to solve, by slot, as compiled programs take them; see `BatchChart`.

    Attributes:
        successor, law: the chart's, shape (actions, states, successors).
        solved: pairs whose Bellman equation is to hold, shape (actions, states).
        first: action slots of a proper policy, where a block is solved by policy iteration, shape (states,).
        stretches: the chart's, shape (stretches,).
    """

    successor: Int[Array, "actions states successors"]
    law: Float[Array, "actions states successors"]
    solved: Bool[Array, "actions states"]
    first: Int[Array, "states"]
    stretches: Int[Array, "stretches"]


@dataclass(frozen=True, eq=False)
class BatchChart:
    """The structure of one problem, padded and ordered for batches.

    Attributes:
        model: the problem.
        order: states from the goal backwards, shape (states,).
        slot: pair in each (action, state) slot, n_pairs where there is none, shape (actions, states).
        successor: place of each successor in `order`, S for the goal, shape (actions, states, successors).
        law: transition probabilities, 0 in padding, shape (actions, states, successors).
        blocks: the runs of `order` that are solved together.
        stretches: where each stretch begins if states are solved by levels, then -1, shape (stretches,).
    """

    model: SSP
    order: Int[np.ndarray, "states"]
    slot: Int[np.ndarray, "actions states"]
    successor: Int[np.ndarray, "actions states successors"]
    law: Float[np.ndarray, "actions states successors"]
    blocks: tuple[Block, ...]
    stretches: Int[np.ndarray, "stretches"] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @cached_property
    def place(self) -> tuple[Int[np.ndarray, "pairs"], Int[np.ndarray, "pairs"]]:
        """The (action, state) slot of each pair."""
        action, state = np.nonzero(self.slot < self.model.n_pairs)
        inverse = np.argsort(self.slot[action, state])
        return action[inverse], state[inverse]

    def spread(self, per_pair: np.ndarray, fill: float | int | bool) -> np.ndarray:
        """An array with one entry a pair (first axis), arranged by slots."""
        padded = np.full((*self.slot.shape, *per_pair.shape[1:]), fill, dtype=per_pair.dtype)
        padded[self.place] = per_pair
        return padded

    def first_policy(self, solved: Bool[np.ndarray, "pairs"]) -> Int[np.ndarray, "states"] | None:
        """The action slot each state plays in a proper policy of M~, or None if M~ has none."""
        pair = leaving_policy(self.model, solved)
        return None if pair is None else self.place[0][pair][self.order]

    def solve(
        self,
        solved: Bool[np.ndarray, "pairs"],
        payment: Float[Array, "actions states batch"],
        value: Float[Array, "actions states batch"],
    ) -> Solved:
        """Action values from coordinates.

        Args:
            solved: pairs whose Bellman equation holds with `payment`.
            payment: what solved pairs pay, by slot; ignored elsewhere.
            value: action values of all other pairs, by slot; -inf in slots without a pair.
        """
        return solve_blocks(self.blocks, self.system(solved), payment, value)

    def system(self, solved: Bool[np.ndarray, "pairs"]) -> System:
        """The equations of the solved pairs."""
        first = self.first_policy(solved)
        if first is None:
            raise UnsupportedError(
                "the observed pairs alone never reach the goal nor an unobserved pair from some state"
            )
        arrays = (self.successor, self.law, self.spread(solved, False), first, self.stretches)
        return System(*(jnp.asarray(array) for array in arrays))


@lru_cache(maxsize=4)
def batch_chart(model: SSP) -> BatchChart:
    """Lay a problem out for batches; the last few are kept.

    Raises:
        UnsupportedError: if a strong component, or the padded problem, is too large for that.
    """
    component = strong_components(model)
    size = np.bincount(component)
    loops, random = np.zeros(len(size), dtype=bool), np.zeros(len(size), dtype=bool)
    own = model.next_state == model.pair_state[model.next_pair]
    loops[component[model.next_state[own]]] = True
    random[component[model.pair_state[model.next_pair[model.next_prob < 1.0]]]] = True
    cyclic = (size > 1) | loops
    if size[random].max(initial=0) > MAX_BLOCK:
        largest = size[random].max()
        raise TooLargeError(f"a strong component has {largest} states: a batch chart takes at most {MAX_BLOCK}")
    order = np.argsort(component, kind="stable")
    slot, successor, law = _slots(model, order)
    kinds = np.stack([cyclic, cyclic & ~random], axis=1)[component[order]]
    return BatchChart(model, order, slot, successor, law, _blocks(component[order], kinds, successor))


def known_chart(model: SSP, known: Bool[np.ndarray, "pairs"]) -> BatchChart:
    """Lay a problem out for batches without looking at pairs that are not known: they must not be solved.

    Raises:
        UnsupportedError: if known pairs are random and cyclic and there are too many states, or the padded problem is
            too large.
    """
    law, level = model.next_prob[known[model.next_pair]], levels(model, known)
    sweeps = bool((law == 1.0).all()) or level is not None
    if level is not None and model.n_states > MANY_STATES:
        return _by_levels(model, level)
    if not sweeps and model.n_states > MAX_BLOCK:
        raise TooLargeError(f"random moves in cycles among {model.n_states} states: at most {MAX_BLOCK} are eliminated")
    order = np.arange(model.n_states)
    block = Block(0, model.n_states, True, sweeps)
    return BatchChart(model, order, *_slots(model, order), (block,))


def _by_levels(model: SSP, level: Int[np.ndarray, "states"]) -> BatchChart:
    """The chart of known pairs that are on no cycle."""
    states = model.n_states
    order = np.argsort(level, kind="stable")
    width = 1 << int(np.log2(np.sqrt(states)))
    first = np.flatnonzero(np.diff(level[order], prepend=-1))
    begins = [np.arange(a, b, width) for a, b in zip(first, [*first[1:], states], strict=True)]
    stretches = np.full(states, -1)
    found = np.minimum(np.concatenate(begins), states - width)  # the last windows repeat states instead of running out
    stretches[: len(found)] = found
    block = Block(0, states, cyclic=False, width=width)
    return BatchChart(model, order, *_slots(model, order), (block,), stretches)


def _slots(
    model: SSP, order: Int[np.ndarray, "states"]
) -> tuple[
    Int[np.ndarray, "actions states"],
    Int[np.ndarray, "actions states successors"],
    Float[np.ndarray, "actions states successors"],
]:
    """Pairs, successors and transition law by slot, for states in a given order."""
    n_actions, n_next = int(np.diff(model.pair_start).max()), int(np.diff(model.next_start).max())
    if n_actions * model.n_states * n_next > MAX_SLOTS:
        raise TooLargeError(f"the padded problem has more than {MAX_SLOTS} entries: too large for a batch chart")
    place = np.empty(model.n_states + 1, dtype=np.int64)
    place[order] = np.arange(model.n_states)
    place[model.n_states] = model.n_states
    slot = np.full((n_actions, model.n_states), model.n_pairs)
    action = np.arange(model.n_pairs) - model.pair_start[model.pair_state]
    slot[action, place[model.pair_state]] = np.arange(model.n_pairs)
    successor = np.full((n_actions, model.n_states, n_next), model.n_states)
    law = np.zeros((n_actions, model.n_states, n_next))
    k = np.arange(len(model.next_state)) - model.next_start[model.next_pair]
    entry = (action[model.next_pair], place[model.pair_state[model.next_pair]], k)
    successor[entry] = place[model.next_state]
    law[entry] = model.next_prob
    return slot, successor, law


def _blocks(
    component: Int[np.ndarray, "states"],
    kinds: Bool[np.ndarray, "states 2"],
    successor: Int[np.ndarray, "actions states successors"],
) -> tuple[Block, ...]:
    """Runs of states in elimination order; neighbours on no cycle share one as long as none moves to another in it.

    Args:
        component: of each state, in elimination order.
        kinds: whether that component is cyclic, and whether it is solved by sweeps.
        successor: as in `BatchChart`.
    """
    blocks: list[Block] = []
    n, cyclic = len(component), kinds[:, 0]
    begin = 0
    while begin < n:
        end = begin + 1
        if cyclic[begin]:
            while end < n and component[end] == component[begin]:
                end += 1
        else:
            while end < n and not cyclic[end] and not _moves_into(successor[:, end], begin, end):
                end += 1
        blocks.append(Block(begin, end, *(bool(kind) for kind in kinds[begin])))
        begin = end
    return tuple(blocks)


def _moves_into(successor: Int[np.ndarray, "actions successors"], begin: int, end: int) -> bool:
    return bool(((successor >= begin) & (successor < end)).any())


@partial(jax.jit, static_argnames="blocks")
def solve_blocks(
    blocks: tuple[Block, ...],
    system: System,
    payment: Float[Array, "actions states batch"],
    value: Float[Array, "actions states batch"],
) -> Solved:
    """Solve all blocks from the goal backwards; see `BatchChart.solve`."""
    successor, law, solved, first, stretches = system
    batch = payment.shape[-1]
    best = jnp.zeros((payment.shape[1] + 1, batch))
    log_det = jnp.zeros(batch)
    solvable = jnp.ones(batch, dtype=bool)
    parts = []
    for begin, end, cyclic, sweeps, width in blocks:
        if width:
            start = jnp.where(solved[..., None], payment, value)
            inside = jnp.where(solved[..., None], law, 0.0)
            return Solved(_solve_stretches(width, stretches, successor, inside, start), log_det, solvable)
        own = slice(begin, end)
        outside = jnp.where((successor[:, own] < begin) | (successor[:, own] >= end), law[:, own], 0.0)
        if not cyclic:
            outside = law[:, own]
        pays = payment[:, own]
        for k in range(successor.shape[-1]):
            pays = pays + outside[:, :, k, None] * best[successor[:, own, k]]
        is_solved = solved[:, own, None]
        if sweeps:
            start = jnp.where(is_solved, pays, value[:, own])
            inside = jnp.where(is_solved, law[:, own] - outside, 0.0)
            q, settled = _sweep(successor[:, own] - begin, inside, start)
            solvable = solvable & settled
        elif cyclic:
            inside = moves_within(successor[:, own], law[:, own], begin, end)
            inside = jnp.where(is_solved, inside, 0.0)
            out = jnp.where(solved[:, own], jnp.sum(outside, axis=-1), 1.0)
            start = jnp.where(is_solved, pays, value[:, own])
            q, pivots, proper = _policy_iteration(inside, out, start, first[own])
            log_det = log_det + jnp.sum(jnp.log(jnp.where(proper, pivots, 1.0)), axis=0)
            solvable = solvable & proper
        else:
            q = jnp.where(is_solved, pays, value[:, own])
        best = best.at[own].set(jnp.max(q, axis=0))
        parts.append(q)
    return Solved(jnp.concatenate(parts, axis=1), log_det, solvable)


def _solve_stretches(
    width: int,
    stretches: Int[Array, "stretches"],
    successor: Int[Array, "actions states successors"],
    inside: Float[Array, "actions states successors"],
    start: Float[Array, "actions states batch"],
) -> Float[Array, "actions states batch"]:
    """Action values of states in the order of their levels.

    Args:
        width: how many states a stretch has.
        stretches: where each begins, then -1.
        successor: as in `BatchChart`.
        inside: probability of moves of solved pairs.
        start: what each pair collects at once.
    """

    def window(table: Array, begin: Int[Array, ""]) -> Array:
        return jax.lax.dynamic_slice_in_dim(table, begin, width, axis=1)

    def solve(k: Int[Array, ""], state: tuple[Array, Array]) -> tuple[Array, Array]:
        best, q = state
        begin = stretches[k]
        after, share, own = window(successor, begin), window(inside, begin), window(start, begin)
        for j in range(successor.shape[-1]):
            own = own + share[:, :, j, None] * best[after[:, :, j]]
        best = jax.lax.dynamic_update_slice_in_dim(best, jnp.max(own, axis=0), begin, axis=0)
        return best, jax.lax.dynamic_update_slice_in_dim(q, own, begin, axis=1)

    best = jnp.zeros((start.shape[1] + 1, start.shape[-1]))
    return jax.lax.fori_loop(0, jnp.sum(stretches >= 0), solve, (best, start))[1]


def moves_within(
    successor: Int[Array, "actions own successors"], law: Float[Array, "actions own successors"], begin: int, end: int
) -> Float[Array, "actions own own"]:
    """Transition probabilities among the states of a block."""
    hits = successor[..., None] == jnp.arange(begin, end)
    return jnp.sum(jnp.where(hits, law[..., None], 0.0), axis=2)


def _sweep(
    successor: Int[Array, "actions own successors"],
    inside: Float[Array, "actions own successors"],
    start: Float[Array, "actions own batch"],
) -> tuple[Float[Array, "actions own batch"], Bool[Array, "batch"]]:
    """Sweep over a block until nothing changes.

    Args:
        successor: place in the block, anything for moves out of it.
        inside: probability of moves of solved pairs within the block.
        start: what each pair collects before the block is entered again.

    Returns:
        Action values, and whether they have settled at finite state values.
    """
    most = start.shape[1] + 1

    def collect(best: Float[Array, "own batch"]) -> Float[Array, "actions own batch"]:
        q = start
        for k in range(successor.shape[-1]):
            share = inside[:, :, k, None]
            q = q + jnp.where(share > 0, share * best[successor[:, :, k]], 0.0)
        return q

    def sweep(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        best, _, count = state
        new = jnp.max(collect(best), axis=0)
        return new, jnp.any(new != best, axis=0), count + 1

    nowhere = jnp.full(start.shape[1:], -jnp.inf)
    begin = (nowhere, jnp.ones(start.shape[-1], dtype=bool), jnp.array(0))
    best, changed, _ = jax.lax.while_loop(lambda state: jnp.any(state[1]) & (state[2] < most), sweep, begin)
    return collect(best), ~changed & jnp.all(jnp.isfinite(best), axis=0)


_Iterate = tuple[Array, Array, Array, Array, Array]
"""Policy, pivots, action values, properness, and how many more switches are allowed."""


def _policy_iteration(
    inside: Float[Array, "actions own own"],
    out: Float[Array, "actions own"],
    start: Float[Array, "actions own batch"],
    first: Int[Array, "own"],
) -> tuple[Float[Array, "actions own batch"], Float[Array, "own batch"], Bool[Array, "batch"]]:
    """Solve a block for every member of the batch at once.

    Args:
        inside: moves of solved pairs among the block's states (0 for other pairs).
        out: mass leaving the block.
        start: what each pair collects before the block is entered again.
        first: action slots of a proper policy.
    """
    slots = jnp.arange(start.shape[0])[:, None, None]
    size = jnp.max(jnp.where(jnp.isfinite(start), jnp.abs(start), 0.0), axis=(0, 1))

    def chosen(table: Float[Array, "actions own ..."], policy: Int[Array, "own batch"]) -> Float[Array, "..."]:
        here = slots == policy
        here = here.reshape(here.shape[:2] + (1,) * (table.ndim - here.ndim) + here.shape[2:])
        return jnp.sum(jnp.where(here, table, 0.0), axis=0)

    def evaluate(policy: Int[Array, "own batch"]) -> tuple[Array, Array, Array]:
        moves = chosen(inside[..., None], policy)
        pivots, values = eliminate_batch(moves, chosen(out[..., None], policy), chosen(start, policy))
        proper = jnp.all(pivots > 0, axis=0)
        q = start + jnp.einsum("aij,jb->aib", inside, jnp.where(proper, values, 0.0))
        return pivots, q, proper

    def improve(state: _Iterate) -> _Iterate:
        policy, _, _, _, left = state
        pivots, q, proper = evaluate(policy)
        now = chosen(jnp.where(jnp.isfinite(q), q, 0.0), policy)
        top = jnp.max(q, axis=0)
        switch = (top > now + STRICTLY * (size + jnp.max(jnp.abs(now), axis=0))) & proper
        policy = jnp.where(switch, jnp.argmax(q, axis=0), policy)
        return policy, pivots, q, proper, jnp.where(jnp.any(switch), left - 1, 0)

    policy = jnp.broadcast_to(first[:, None], start.shape[1:])
    most = jnp.array(50 + 10 * len(first))  # two policies that rounding makes look better than each other swap for ever
    blank = (jnp.ones(start.shape[1:]), start, jnp.ones(start.shape[-1], dtype=bool), most)
    _, pivots, q, proper, _ = jax.lax.while_loop(lambda state: state[-1] > 0, improve, (policy, *blank))
    return q, pivots, proper


def eliminate_batch(
    moves: Float[Array, "own own batch"], out: Float[Array, "own batch"], right: Float[Array, "own batch"]
) -> tuple[Float[Array, "own batch"], Float[Array, "own batch"]]:
    """Pivots and solution of (I - P) x = right by GTH elimination; see `bellmanifold.linear.eliminate`."""
    n = len(out)
    pivots = []
    for k in range(n - 1, -1, -1):
        pivot = jnp.sum(moves[k, :k], axis=0) + out[k]
        pivots.append(pivot)
        share = moves[:k, k] / jnp.where(pivot > 0, pivot, 1.0)
        moves = moves.at[:k, :k].add(share[:, None] * moves[k, :k])
        out = out.at[:k].add(share * out[k])
        right = right.at[:k].add(share * right[k])
    pivots = pivots[::-1]
    x: list[Array] = []
    for k in range(n):
        total = right[k]
        for j in range(k):
            total = total + moves[k, j] * x[j]
        x.append(total / jnp.where(pivots[k] > 0, pivots[k], 1.0))
    return jnp.stack(pivots), jnp.stack(x)
