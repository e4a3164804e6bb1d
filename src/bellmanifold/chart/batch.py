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

A `BatchChart` says how the states of a problem are grouped into *blocks* that are solved one after the other, from the
goal backwards; `solve` does it for many coordinate vectors in one compiled program. Arrays are in the order of the
problem's pairs with the batch as the last axis. The transition law is an argument, one for all members of the batch or
one for each. Inside, pairs are sorted by blocks; where the problem's own order does that already nothing is moved.

- States on no cycle need one maximum each.
- A block with random moves in cycles is solved by policy iteration from a proper policy of M~, switching only where
  strictly better. An iterate that turns improper certifies a class of positive gain: then no solution has a proper
  greedy policy and `solvable` is False. Policies are evaluated by subtraction-free (GTH) elimination, whose pivots
  multiply up to the determinant; a pivot is 0 exactly where the policy is improper. Where states have few neighbours
  (`bellmanifold.chart.narrow`) only entries that can differ from 0 are kept.
- In a block without random moves, or whose solved pairs have no cycle, sweeps V <- max(payment + P V, value) that start
  from minus infinity end exactly at the solution too, after no more sweeps than there are states (Bellman and Ford's
  argument: sweep k finds the best value within k moves); values that still change then certify a loop that pays.
- A chart of *known* pairs (`known_chart`) is one block: it needs no order of the states, so it is laid out once while
  the known pairs grow, and it does not look at what is not known. Where no known pair is on a cycle and there are many
  states, a *window* of fixed width slides over the states in the order of their levels. It may reach into the next
  level, whose values it gets wrong; the next window begins there and overwrites them. The order is an argument too, so
  one program serves while the levels change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bellmanifold.chart.layout import Block, Law, Layout, Solved, Values, Way
from bellmanifold.chart.narrow import Narrow, narrow_block
from bellmanifold.errors import UnsupportedError
from bellmanifold.graph import leaving_policy, levels, strong_components
from bellmanifold.ssp import SSP


class TooLargeError(UnsupportedError):
    """The problem does not fit a batch chart; a sparse chart takes it, one point at a time."""


@dataclass(frozen=True)
class ChartLimits:
    """What a batch chart takes.

    Attributes:
        block: states of one strong component that are still eliminated densely.
        swept: known states up to which sweeps are used; more are solved by levels.
        entries: padded successors of all pairs.
    """

    block: int = 40
    swept: int = 64
    entries: int = 20_000


LIMITS = ChartLimits()
SWEEPS, POLICIES = 16, 6
"""Typical numbers of sweeps and of policies until nothing changes."""


@dataclass(frozen=True, eq=False)
class BatchChart:
    """The chart of one problem for batches.

    Attributes:
        model: the problem.
        layout: how it is solved.
        law: the problem's transition law, as `Layout` takes it.
    """

    model: SSP
    layout: Layout
    law: Float[Array, "pairs successors"]

    @property
    def work(self) -> int:
        """About how many operations a point takes, those of sweeps and eliminations included."""
        successors = int(self.layout.successor.shape[1])
        total = 0
        for block, narrow in zip(self.layout.blocks, self.layout.narrow, strict=True):
            states, pairs = block.end - block.begin, block.pairs[1] - block.pairs[0]
            once = pairs * successors
            if block.way == "sweeps":
                total += SWEEPS * once
            elif block.way == "policies":
                products = states**3 // 3 if narrow is None else states * int(narrow.near.shape[1]) ** 2
                total += POLICIES * (products + once)
            else:
                total += once
        return total

    @cached_property
    def _zeros(self) -> Int[Array, "states"]:
        return jnp.zeros(self.model.n_states, dtype=jnp.int64)

    def first_policy(
        self, solved: Bool[np.ndarray, "pairs"], avoided: Bool[np.ndarray, "pairs"] | None = None
    ) -> Int[Array, "states"] | None:
        """The action each sorted state plays in a proper policy of M~ without avoided pairs; None if there is none.

        Zeros where solved pairs are on no cycle: then every policy is proper.
        """
        if all(block.way in ("once", "windows") for block in self.layout.blocks):
            return self._zeros
        policy = leaving_policy(self.model, solved, avoided)
        if policy is None:
            return None
        return jnp.asarray((policy - self.model.pair_start[:-1])[np.asarray(self.layout.state)])

    def solve(
        self, solved: Bool[np.ndarray, "pairs"], payment: Values, value: Values, law: Law | None = None
    ) -> Solved:
        """Action values from coordinates; see `Layout.solve`. The problem's own law unless another one is given."""
        first = self.first_policy(solved)
        if first is None:
            raise UnsupportedError(
                "the observed pairs alone never reach the goal nor an unobserved pair from some state"
            )
        return self.layout.solve(self.law if law is None else law, jnp.asarray(solved), first, payment, value)

    def pairs(self, choice: Int[np.ndarray, "states *batch"]) -> Int[np.ndarray, "states *batch"]:
        """The pair each state plays, from the actions of sorted states."""
        pair = np.empty(choice.shape, dtype=np.int64)
        for row, state in zip(choice, np.asarray(self.layout.state), strict=True):  # one temporary array less
            np.add(row, self.model.pair_start[state], out=pair[state, ...])
        return pair


@lru_cache(maxsize=4)
def batch_chart(model: SSP, limits: ChartLimits = LIMITS) -> BatchChart:
    """Lay a problem out for batches; the last few are kept.

    Raises:
        TooLargeError: if a strong component, or the padded problem, is too large for that.
    """
    component = strong_components(model)
    size = np.bincount(component)
    loops, random = np.zeros(len(size), dtype=bool), np.zeros(len(size), dtype=bool)
    own = model.next_state == model.pair_state[model.next_pair]
    loops[component[model.next_state[own]]] = True
    random[component[model.pair_state[model.next_pair[model.next_prob < 1.0]]]] = True
    cyclic = (size > 1) | loops
    if size[random].max(initial=0) > limits.block:
        largest = size[random].max()
        raise TooLargeError(f"a strong component has {largest} states: a batch chart takes at most {limits.block}")
    order = np.argsort(component, kind="stable")
    runs = _runs(model, component[order], cyclic, order)
    ways: list[Way] = [
        "policies" if r else "sweeps" if c else "once" for c, r in zip(cyclic, cyclic & random, strict=True)
    ]
    chart = _chart(model, order, [(begin, end, ways[component[order[begin]]]) for begin, end in runs], limits)
    narrow = tuple(_narrow(chart, block) if block.way == "policies" else None for block in chart.layout.blocks)
    return replace(chart, layout=replace(chart.layout, narrow=narrow))


def _narrow(chart: BatchChart, block: Block) -> Narrow | None:
    """How to eliminate the states of a block one by one, if they have few neighbours."""
    pair = np.asarray(chart.layout.pair)[block.own]
    own = np.asarray(chart.layout.place)[pair] - block.begin
    action = pair - chart.model.pair_start[chart.model.pair_state[pair]]
    successor = np.asarray(chart.layout.successor)[block.own] - block.begin
    return narrow_block(own, action, successor, np.asarray(chart.law)[pair] > 0, block.end - block.begin)


def known_chart(model: SSP, known: Bool[np.ndarray, "pairs"], limits: ChartLimits = LIMITS) -> BatchChart:
    """Lay a problem out for batches without looking at pairs that are not known: they must not be solved.

    Raises:
        TooLargeError: if known pairs are random and cyclic and there are too many states, or the padded problem is
            too large.
    """
    law, level = model.next_prob[known[model.next_pair]], levels(model, known)
    sweeps = bool((law == 1.0).all()) or level is not None
    if level is not None and model.n_states > limits.swept:
        return _by_levels(model, level, limits)
    if not sweeps and model.n_states > limits.block:
        raise TooLargeError(
            f"random moves in cycles among {model.n_states} states: at most {limits.block} are eliminated"
        )
    return _chart(model, np.arange(model.n_states), [(0, model.n_states, "sweeps" if sweeps else "policies")], limits)


def _by_levels(model: SSP, level: Int[np.ndarray, "states"], limits: ChartLimits) -> BatchChart:
    """The chart of known pairs that are on no cycle."""
    states = model.n_states
    order = np.argsort(level, kind="stable")
    width = 1 << int(np.log2(np.sqrt(states)))
    first = np.flatnonzero(np.diff(level[order], prepend=-1))
    begins = [np.arange(a, b, width) for a, b in zip(first, [*first[1:], states], strict=True)]
    windows = np.full(states, -1)
    found = np.minimum(np.concatenate(begins), states - width)  # the last windows repeat states instead of running out
    windows[: len(found)] = found
    chart = _chart(model, order, [(0, states, "windows")], limits)
    (block,) = chart.layout.blocks
    layout = replace(chart.layout, windows=jnp.asarray(windows), blocks=(block._replace(width=width),), permuted=True)
    return replace(chart, layout=layout)


def _chart(
    model: SSP, order: Int[np.ndarray, "states"], runs: list[tuple[int, int, Way]], limits: ChartLimits
) -> BatchChart:
    """The chart of a problem whose states are solved in a given order, run by run.

    Runs that are runs of the problem's own states as well stay where they are.
    """
    parts = [np.sort(order[begin:end]) for begin, end, _ in runs]
    if runs[0][2] != "windows" and all(part[-1] - part[0] == len(part) - 1 for part in parts):
        order = np.arange(model.n_states)
        runs = [(int(part[0]), int(part[-1]) + 1, way) for part, (_, _, way) in zip(parts, runs, strict=True)]
    counts = np.diff(model.pair_start)
    n_actions, n_next = int(counts.max()), int(np.diff(model.next_start).max())
    if n_actions * model.n_states * n_next > limits.entries:
        raise TooLargeError(f"the padded problem has more than {limits.entries} entries: too large for a batch chart")
    pair = np.concatenate([np.arange(model.pair_start[s], model.pair_start[s + 1]) for s in order])
    place, row = np.append(np.argsort(order), model.n_states), np.argsort(pair)
    start = np.append(0, np.cumsum(counts[order]))
    column = np.arange(n_actions)
    slot = np.where(column < counts[order, None], start[:-1, None] + column, model.n_pairs)
    successor, law = padded_successors(model)
    blocks = []
    for begin, end, way in runs:
        own = counts[order[begin:end]]
        actions = int(own[0]) if (own == own[0]).all() else 0
        blocks.append(Block(begin, end, (int(start[begin]), int(start[end])), way, actions))
    layout = Layout(
        state=jnp.asarray(order),
        pair=jnp.asarray(pair),
        row=jnp.asarray(row),
        place=jnp.asarray(place[model.pair_state]),
        slot=jnp.asarray(slot),
        successor=jnp.asarray(place[successor[pair]]),
        windows=jnp.zeros(0, dtype=jnp.int64),
        narrow=(None,) * len(blocks),
        blocks=tuple(blocks),
        permuted=not np.array_equal(row, np.arange(model.n_pairs)),
    )
    return BatchChart(model, layout, jnp.asarray(law))


def padded_successors(model: SSP) -> tuple[Int[np.ndarray, "pairs successors"], Float[np.ndarray, "pairs successors"]]:
    """Successors of each pair and their probabilities, padded by the goal with probability 0."""
    shape = (model.n_pairs, int(np.diff(model.next_start).max()))
    successor, law = np.full(shape, model.n_states), np.zeros(shape)
    entry = (model.next_pair, np.arange(len(model.next_state)) - model.next_start[model.next_pair])
    successor[entry], law[entry] = model.next_state, model.next_prob
    return successor, law


def _runs(
    model: SSP, component: Int[np.ndarray, "states"], cyclic: Bool[np.ndarray, "n"], order: Int[np.ndarray, "states"]
) -> list[tuple[int, int]]:
    """Runs of states in elimination order; neighbours on no cycle share one as long as none moves to another in it.

    Args:
        model: the problem.
        component: of each state, in elimination order.
        cyclic: which components have a cycle.
        order: of the states.
    """
    runs: list[tuple[int, int]] = []
    n, place = len(component), np.append(np.argsort(order), -1)
    start = model.next_start[model.pair_start]
    latest = [place[model.next_state[start[s] : start[s + 1]]].max(initial=-1) for s in order]
    begin = 0
    while begin < n:
        end = begin + 1
        if cyclic[component[begin]]:
            while end < n and component[end] == component[begin]:
                end += 1
        else:
            while end < n and not cyclic[component[end]] and latest[end] < begin:
                end += 1
        runs.append((begin, end))
        begin = end
    return runs
