"""The linear system (I - P) x = b of a transient chain, strong component by strong component.

A chain that has left a strong component does not come back. In topological order, those first that others move to, the
system is block triangular, and each component is solved for itself with what lies behind it known. That is quicker
than the whole (a chain that is nearly acyclic looks like an expander to a factorisation) and more exact: a component
whose rewards are tiny does not see the rounding of another whose rewards are large.

Most components of most chains are single states or a few. Those of up to `FEW` states are inverted together, size by
size, into expected visits N, whatever their places in the order; with M = N P for the moves between components, what is
left is x = N b + M x, one substitution that goes through thousands of components in one call. No number is subtracted
from another in any of it: where all rewards have one sign every state's value is exact to a few roundings. Larger
components interrupt that sweep, and are solved by whatever suits them (`bellmanifold.blocks`). A chain that has larger
components and is narrow as a whole is factorised as a whole: elimination, in any order, fills in only where one state
reaches another, so that components stay apart in the factors, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from bellmanifold.blocks import STAYS, inverses, is_narrow, reordered, solve_block, solve_by_factors, sweep
from bellmanifold.compressed_rows import row_entries

FEW = 32
"""Components up to this size are inverted together."""
STRIP = 1.5
"""A chain with larger components is factorised as a whole if no move is longer than this many times the square root of
its size, as on a grid."""
NARROW, WIDE = 16, 64
"""Nodes that are ready at once: up to the first number they are better dealt with one by one, until there are more
than the second."""
AT_A_TIME = 2_000_000
"""Numbers in the matrices that are inverted together."""


def solve_by_components(
    moves: csr_array, leaving: Float[np.ndarray, "n"], out: Float[np.ndarray, "n"], rights: Float[np.ndarray, "n k"]
) -> Float[np.ndarray, "n k"]:
    """Solve x = right + P x for every column.

    Args:
        moves: probabilities among the states, without self-loops.
        leaving: mass that leaves each state.
        out: the part of it that leaves the set.
        rights: right-hand sides.

    Raises:
        UnsupportedError: if a large component is trapped to rounding.
    """
    count, label = connected_components(moves, connection="strong")
    if count == 1:
        return solve_block(moves, leaving, out, rights)
    if (np.bincount(label) > FEW).any() and is_narrow(moves, STRIP * np.sqrt(len(label))):
        answer = solve_by_factors(moves, leaving, rights, STAYS)
        if answer is not None:
            return answer
    label = topological(label, moves)
    order = np.argsort(label, kind="stable")
    place = np.empty(len(order), dtype=moves.indices.dtype)
    place[order] = np.arange(len(order))
    moves = reordered(moves, order, place)
    start = np.append(0, np.cumsum(np.bincount(label)))
    answer = np.empty_like(rights)
    answer[order] = _in_order(_Ordered(moves, leaving[order], out[order], label[order], start), rights[order])
    return answer


def topological(label: Int[np.ndarray, "n"], moves: csr_array) -> Int[np.ndarray, "n"]:
    """Numbers of strong components such that a move leads to its own component or to one with a smaller number.

    SciPy's numbers are of that kind, though it does not promise so; others are put in order here.
    """
    source = np.repeat(label, np.diff(moves.indptr))
    target = label[moves.indices]
    if not (target > source).any():
        return label.astype(np.int64)
    between = source != target
    count = int(label.max()) + 1
    condensed = csr_array((np.ones(int(between.sum())), (source[between], target[between])), shape=(count, count))
    depth = longest_paths(condensed)
    assert depth is not None, "a condensation has no cycle"
    rank = np.empty(count, dtype=np.int64)
    rank[np.argsort(depth, kind="stable")] = np.arange(count)
    return rank[label]


def longest_paths(graph: csr_array) -> Int[np.ndarray, "nodes"] | None:
    """Number of edges of the longest path from each node, or None if there is a cycle; no edge occurs twice."""
    waiting = np.diff(graph.indptr)  # successors whose own paths are not known yet
    backwards = csr_array(graph.T)
    length = np.zeros(graph.shape[0], dtype=np.int64)
    ready = np.flatnonzero(waiting == 0)
    done = 0
    while len(ready):
        if len(ready) <= NARROW:
            ready, few = _paths_one_by_one(backwards, waiting, length, ready)
            done += few
            continue
        done += len(ready)
        entries, start = row_entries(backwards.indptr, ready)
        parents = backwards.indices[entries]
        np.maximum.at(length, parents, np.repeat(length[ready], np.diff(start)) + 1)
        np.subtract.at(waiting, parents, 1)
        touched = np.unique(parents)
        ready = touched[waiting[touched] == 0]
    return length if done == len(length) else None


def _paths_one_by_one(
    backwards: csr_array,
    waiting: Int[np.ndarray, "nodes"],
    length: Int[np.ndarray, "nodes"],
    ready: Int[np.ndarray, "ready"],
) -> tuple[Int[np.ndarray, "later"], int]:
    """The same node by node, in place, while few are ready: who is ready at the end, and how many are done."""
    stack, done = ready.tolist(), 0
    wait, longest = waiting.data, length.data  # memory views: three times as quick as indexing arrays
    start, parent = backwards.indptr.data, backwards.indices.data
    while stack and len(stack) <= WIDE:
        node = stack.pop()
        done += 1
        further = longest[node] + 1
        for entry in range(start[node], start[node + 1]):
            before = parent[entry]
            longest[before] = max(longest[before], further)
            wait[before] -= 1
            if wait[before] == 0:
                stack.append(before)
    return np.array(stack, dtype=np.int64), done


@dataclass(frozen=True)
class _Ordered:
    """A chain whose states are sorted by component, and components so that moves go to smaller numbers.

    Attributes:
        moves, leaving, out: as of any chain.
        label: each state's component.
        start: component c is start[c]:start[c + 1].
    """

    moves: csr_array
    leaving: Float[np.ndarray, "n"]
    out: Float[np.ndarray, "n"]
    label: Int[np.ndarray, "n"]
    start: Int[np.ndarray, "components_plus_1"]

    def within(self, low: int, high: int) -> tuple[csr_array, csr_array]:
        """The moves of some components among themselves, and to what comes before them."""
        start = self.moves.indptr[low : high + 1] - self.moves.indptr[low]
        own = slice(self.moves.indptr[low], self.moves.indptr[high])
        rows = self.moves.data[own], self.moves.indices[own], start
        inner = rows[1] >= low
        return _entries(rows, inner, low, high - low), _entries(rows, ~inner, 0, low)


Rows: TypeAlias = tuple[Float[np.ndarray, "entries"], Int[np.ndarray, "entries"], Int[np.ndarray, "rows_plus_1"]]
"""Numbers, columns and starts of compressed rows."""


def _entries(rows: Rows, chosen: Bool[np.ndarray, "entries"], first: int, columns: int) -> csr_array:
    """Some entries of a matrix, in columns that are counted from the first."""
    data, column, start = rows
    begin = np.append(0, np.cumsum(chosen))[start]
    return csr_array((data[chosen], column[chosen] - first, begin), shape=(len(start) - 1, columns))


def _in_order(chain: _Ordered, rights: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Solve stretches of small components and large components, alternately."""
    answer = np.empty_like(rights)
    large = np.flatnonzero(np.diff(chain.start) > FEW)
    low = 0
    starts, ends = ([*chain.start[large + k].tolist(), len(rights)] for k in (0, 1))
    for first, last in zip(starts, ends, strict=True):
        if first > low:
            answer[low:first] = _solve_small(chain, (low, first), answer, rights)
        if last > first:
            answer[first:last] = _solve_large(chain, (first, last), answer, rights)
        low = last
    return answer


def _solve_large(
    chain: _Ordered, where: tuple[int, int], known: Float[np.ndarray, "n k"], rights: Float[np.ndarray, "n k"]
) -> Float[np.ndarray, "m k"]:
    low, high = where
    inner, outer = chain.within(low, high)
    out = chain.out[low:high] + outer.sum(axis=1)
    return solve_block(inner, chain.leaving[low:high], out, rights[low:high] + outer @ known[:low])


def _solve_small(
    chain: _Ordered, where: tuple[int, int], known: Float[np.ndarray, "n k"], rights: Float[np.ndarray, "n k"]
) -> Float[np.ndarray, "m k"]:
    """Components of up to `FEW` states, all of a stretch in one substitution."""
    low, high = where
    inner, outer = chain.within(low, high) if low else (chain.within(low, high)[0], None)
    right = rights[low:high] if outer is None else rights[low:high] + outer @ known[:low]
    label, leaving = chain.label[low:high], chain.leaving[low:high]
    if label[-1] - label[0] + 1 == high - low:  # single states
        return sweep(inner, leaving, right)
    row = np.repeat(label, np.diff(inner.indptr))
    own = row == label[inner.indices]
    rows = inner.data, inner.indices, inner.indptr
    between = _entries(rows, ~own, 0, high - low)
    out = chain.out[low:high] + between.sum(axis=1)
    if outer is not None:
        out += outer.sum(axis=1)
    visits = _visits(_entries(rows, own, 0, high - low), out, label - label[0])
    onwards = csr_array(visits @ between)
    onwards.sort_indices()
    return sweep(onwards, np.ones(high - low), visits @ right)


def _visits(moves: csr_array, out: Float[np.ndarray, "n"], label: Int[np.ndarray, "n"]) -> csr_array:
    """Expected visits (I - P)^-1 of a chain whose components are small, do not move to each other, and are sorted."""
    size = np.bincount(label)
    start = np.append(0, np.cumsum(size))
    own = np.repeat(size, size)  # entries per row
    begin = np.append(0, np.cumsum(own))
    column = np.arange(begin[-1]) - np.repeat(begin[:-1] - np.repeat(start[:-1], size), own)
    entry = np.empty(begin[-1])
    for width in np.unique(size).tolist():
        members = np.flatnonzero(size == width)
        for part in np.array_split(members, -(-len(members) * width**2 // AT_A_TIME)):
            states = row_entries(start, part)[0]
            found = inverses(_dense(moves, states, width), out[states].reshape(-1, width).T)
            entry[row_entries(begin, states)[0]] = found.transpose(2, 0, 1).ravel()
    return csr_array((entry, column, begin), shape=moves.shape)


def _dense(moves: csr_array, states: Int[np.ndarray, "n"], width: int) -> Float[np.ndarray, "width width batch"]:
    """The moves inside components of one size, whose states are given one component after the other."""
    entries, start = row_entries(moves.indptr, states)
    row = np.repeat(np.arange(len(states)), np.diff(start))
    first = states[::width][row // width]
    dense = np.zeros((width, width, len(states) // width))
    dense[row % width, moves.indices[entries] - first, row // width] = moves.data[entries]
    return dense
