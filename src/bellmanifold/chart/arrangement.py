"""Laying out a problem for the batch chart: which states are solved together, and where their pairs are."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.chart.layout import Layout
from bellmanifold.chart.narrow import Narrow, narrow_block
from bellmanifold.chart.ways import Block, Way
from bellmanifold.problem.compressed_rows import Rows
from bellmanifold.problem.ssp import SSP


def lay_out(
    model: SSP,
    successor: Int[np.ndarray, "pairs successors"],
    order: Int[np.ndarray, "states"],
    runs: list[tuple[int, int, Way]],
) -> Layout:
    """The layout of a problem whose states are solved in a given order, run by run.

    If every run consists of consecutive states of the problem, the problem's own order is kept.
    """
    parts = [np.sort(order[begin:end]) for begin, end, _ in runs]
    if runs[0][2] != "windows" and all(part[-1] - part[0] == len(part) - 1 for part in parts):
        order = np.arange(model.n_states)
        runs = [(int(part[0]), int(part[-1]) + 1, way) for part, (_, _, way) in zip(parts, runs, strict=True)]
    counts = np.diff(model.pair_start)
    pair = np.concatenate([np.arange(model.pair_start[s], model.pair_start[s + 1]) for s in order])
    place, row = np.append(np.argsort(order), model.n_states), np.argsort(pair)
    start = np.append(0, np.cumsum(counts[order]))
    column = np.arange(counts.max())
    slot = np.where(column < counts[order, None], start[:-1, None] + column, model.n_pairs)
    blocks = []
    for begin, end, way in runs:
        own = counts[order[begin:end]]
        actions = int(own[0]) if (own == own[0]).all() else 0
        blocks.append(Block(begin, end, (int(start[begin]), int(start[end])), way, actions))
    return Layout(
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


def lay_out_by_levels(
    model: SSP, successor: Int[np.ndarray, "pairs successors"], level: Int[np.ndarray, "states"]
) -> Layout:
    """The layout of states on no cycle of known pairs: a window slides over their levels."""
    states = model.n_states
    order = np.argsort(level, kind="stable")
    width = 1 << int(np.log2(np.sqrt(states)))
    first = np.flatnonzero(np.diff(level[order], prepend=-1))
    begins = [np.arange(a, b, width) for a, b in zip(first, [*first[1:], states], strict=True)]
    windows = np.full(states, -1)
    found = np.minimum(np.concatenate(begins), states - width)  # the last windows overlap to end with the states
    windows[: len(found)] = found
    layout = lay_out(model, successor, order, [(0, states, "windows")])
    (block,) = layout.blocks
    return replace(layout, windows=jnp.asarray(windows), blocks=(block._replace(width=width),), permuted=True)


def with_narrow_blocks(model: SSP, law: Float[np.ndarray, "pairs successors"], layout: Layout) -> Layout:
    """The same layout, with the states of blocks in which they have few neighbours eliminated one by one."""

    def narrow(block: Block) -> Narrow | None:
        pair = np.asarray(layout.pair)[block.own]
        own = np.asarray(layout.place)[pair] - block.begin
        action = pair - model.pair_start[model.pair_state[pair]]
        successor = np.asarray(layout.successor)[block.own] - block.begin
        return narrow_block(own, action, successor, law[pair] > 0, block.end - block.begin)

    return replace(layout, narrow=tuple(narrow(b) if b.way == "policies" else None for b in layout.blocks))


def padded_successors(model: SSP) -> tuple[Int[np.ndarray, "pairs successors"], Float[np.ndarray, "pairs successors"]]:
    """Successors of each pair and their probabilities, padded with the goal at probability 0."""
    return Rows(model.next_start, model.next_state, model.next_prob).padded(model.n_states)


def runs_of_states(
    model: SSP, component: Int[np.ndarray, "states"], cyclic: Bool[np.ndarray, "n"], order: Int[np.ndarray, "states"]
) -> list[tuple[int, int]]:
    """Runs of states in the order of solution; states on no cycle share a run if none of them moves to another.

    `component` is that of each state in this order; `cyclic` marks the components that have a cycle.
    """
    place, start = np.append(np.argsort(order), -1), model.next_start[model.pair_start]
    latest = [place[model.next_state[start[s] : start[s + 1]]].max(initial=-1) for s in order]
    begins = [0]
    for k in range(1, len(order)):
        begin = begins[-1]
        share_a_cycle = component[k] == component[begin]
        are_free = not cyclic[component[begin]] and not cyclic[component[k]] and latest[k] < begin
        if not (share_a_cycle or are_free):
            begins.append(k)
    return list(pairwise([*begins, len(order)]))
