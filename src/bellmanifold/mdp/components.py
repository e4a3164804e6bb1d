"""The linear system (I - P) x = b of a transient chain, one strongly connected component at a time.

A chain that has left a strongly connected component does not return. In topological order, successors first, the
system is block triangular, and each component is solved given the solution of those before it. That is faster than
solving the whole (a nearly acyclic chain looks like an expander to a factorisation) and more accurate: a component
with tiny rewards is not affected by the rounding errors of another with large rewards.

Most components of most chains have one or a few states. Those of up to `FEW` states are inverted together, size by
size, into expected visits N, whatever their places in the order; with M = N P for the moves between components,
x = N b + M x remains, one substitution that passes through thousands of components in a single call. None of this
subtracts: where all rewards have the same sign, every state's value is accurate to a few roundings. Larger components
interrupt that sweep and are solved by the method that suits them (`bellmanifold.mdp.blocks`). A chain that has larger
components and is narrow as a whole is factorised as a whole: elimination, in any order, fills in only where one state
reaches another, so components stay separate in the factors, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from bellmanifold.mdp.blocks import (
    STAYS,
    Chain,
    Columns,
    Indices,
    Vector,
    is_narrow,
    reorder,
    solve_block,
    solve_by_factors,
    sweep,
)
from bellmanifold.mdp.subtraction_free import expected_visits
from bellmanifold.problem.compressed_rows import ranks, row_entries

FEW, MIDDLING = 12, 200
"""Components up to these sizes are inverted together, then solved in one substitution or one after the other."""
SHORT = 256
"""Runs of fewer small components than this are solved one after the other, too."""
STRIP, ALIKE = 1.5, 64
"""A chain with large components, or with fewer than `ALIKE` middling ones per size, is factorised as a whole if no move
is longer than `STRIP` times the square root of its size, as on a grid."""
NARROW, WIDE = 16, 64
"""Numbers of nodes ready in a round: up to the first, nodes are processed one by one until there are more than the
second."""
AT_A_TIME = 2_000_000
"""Total number of entries of the matrices that are inverted together."""


def solve_by_components(chain: Chain, rights: Columns) -> Columns:
    """Solve x = right + P x for every column.

    Raises:
        UnsupportedError: if a large component is trapped up to rounding.
    """
    moves, leaving, out = chain
    count, label = connected_components(moves, connection="strong")
    if count == 1:
        return solve_block(chain, rights)
    if _few_alike(np.bincount(label)) and is_narrow(moves, STRIP * np.sqrt(len(label))):
        answer = solve_by_factors(chain, rights, STAYS)
        if answer is not None:
            return answer
    label = topological(label, moves)
    order = np.argsort(label, kind="stable")
    moves = reorder(moves, order, ranks(order).astype(moves.indices.dtype))
    start = np.append(0, np.cumsum(np.bincount(label)))
    answer = np.empty_like(rights)
    answer[order] = _in_order(_Ordered(Chain(moves, leaving[order], out[order]), start), rights[order])
    return answer


def _few_alike(size: Int[np.ndarray, "components"]) -> bool:
    """Whether most states are in large components, or middling components of the same size are too few to batch."""
    middling = size[(size > FEW) & (size <= MIDDLING)]
    return bool(size[size > MIDDLING].sum() > 0.5 * size.sum() or len(middling) < ALIKE * len(np.unique(middling)))


def topological(label: Indices, moves: csr_array) -> Indices:
    """Renumber strongly connected components so that no move leads to a larger number.

    SciPy's numbers already have this property, though it is not documented; any others are reordered here.
    """
    goes_up = label[moves.indices] > np.repeat(label, np.diff(moves.indptr))
    return by_depth(label, moves) if goes_up.any() else label.astype(np.int64)


def by_depth(label: Indices, moves: csr_array) -> Indices:
    """Such numbers, ordered by the longest path out of a component, counted in components."""
    source, target = np.repeat(label, np.diff(moves.indptr)), label[moves.indices]
    between = source != target
    count = int(label.max()) + 1
    condensed = csr_array((np.ones(int(between.sum())), (source[between], target[between])), shape=(count, count))
    depth = longest_paths(condensed)
    assert depth is not None, "a condensation has no cycle"
    return ranks(np.argsort(depth, kind="stable"))[label]


def longest_paths(graph: csr_array) -> Indices | None:
    """Number of edges of the longest path from each node; None if there is a cycle. Edges must be distinct."""
    backwards = csr_array(graph.T)
    length = peeled(backwards.indptr, backwards.indices, np.diff(graph.indptr))
    return None if (length < 0).any() else length


def peeled(start: Int[np.ndarray, "n_plus_1"], before: Int[np.ndarray, "edges"], waiting: Indices) -> Indices:
    """Peel a graph: the round in which each node is removed, once enough of its successors are; -1 if it remains.

    Args:
        start, before: the predecessors of each node, in compressed rows.
        waiting: the number of successors that must be removed before each node; overwritten.
    """
    gone = np.full(len(waiting), -1)
    ready, number = np.flatnonzero(waiting == 0), 0
    while len(ready):
        if len(ready) <= NARROW:
            ready, number = _peeled_one_by_one((start, before, waiting, gone), ready, number)
            continue
        gone[ready] = number
        touched, times = np.unique(before[row_entries(start, ready)[0]], return_counts=True)
        waiting[touched] -= times
        ready, number = touched[(waiting[touched] <= 0) & (gone[touched] < 0)], number + 1
    return gone


def _peeled_one_by_one(
    arrays: tuple[np.ndarray, ...], ready: Int[np.ndarray, "ready"], number: int
) -> tuple[Int[np.ndarray, "later"], int]:
    """Peel node by node, in place, while few are ready; return the nodes ready at the end and their round."""
    start, before, waiting, gone = (array.data for array in arrays)  # memory views: indexed three times as fast
    nodes = ready.tolist()
    while nodes and len(nodes) <= WIDE:
        after = []
        for node in nodes:
            gone[node] = number
            for entry in range(start[node], start[node + 1]):
                earlier = before[entry]
                waiting[earlier] -= 1
                if waiting[earlier] == 0:
                    after.append(earlier)
        nodes, number = after, number + 1
    return np.array(nodes, dtype=np.int64), number


@dataclass(frozen=True)
class _Ordered:
    """A chain with states sorted by component, in an order in which no move leads to a larger component number.

    The states of component c are start[c]:start[c + 1].
    """

    chain: Chain
    start: Int[np.ndarray, "components_plus_1"]

    def part(self, first: int, last: int) -> tuple[_Ordered, csr_array]:
        """The chain on components `first` to `last` (exclusive), and their moves to earlier components."""
        (moves, leaving, out), low, high = self.chain, int(self.start[first]), int(self.start[last])
        own = slice(moves.indptr[low], moves.indptr[high])
        rows = moves.data[own], moves.indices[own], moves.indptr[low : high + 1] - moves.indptr[low]
        inner = rows[1] >= low
        within, before = _entries(rows, inner, low, high - low), _entries(rows, ~inner, 0, low)
        leaves = out[low:high] + before.sum(axis=1) if before.nnz else out[low:high]
        return _Ordered(Chain(within, leaving[low:high], leaves), self.start[first : last + 1] - low), before

    def split(self) -> tuple[csr_array, csr_array, Vector]:
        """The moves within components, those between them, and the mass that leaves each state's component."""
        moves, label = self.chain.moves, np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))
        own = np.repeat(label, np.diff(moves.indptr)) == label[moves.indices]
        rows = moves.data, moves.indices, moves.indptr
        within, between = _entries(rows, own, 0, len(label)), _entries(rows, ~own, 0, len(label))
        return within, between, self.chain.out + between.sum(axis=1)


Solver: TypeAlias = Callable[[_Ordered, Columns], Columns]
"""Solves some components, given a right-hand side that includes their moves to earlier ones."""
Rows: TypeAlias = tuple[Float[np.ndarray, "entries"], Int[np.ndarray, "entries"], Int[np.ndarray, "rows_plus_1"]]
"""Data, columns and starts of compressed rows."""


def _entries(rows: Rows, chosen: Bool[np.ndarray, "entries"], first: int, columns: int) -> csr_array:
    """The matrix of the chosen entries, with columns counted from `first`."""
    data, column, start = rows
    begin = np.append(0, np.cumsum(chosen))[start]
    return csr_array((data[chosen], column[chosen] - first, begin), shape=(len(start) - 1, columns))


def _in_order(whole: _Ordered, rights: Columns) -> Columns:
    """Solve runs of small components, runs of middling ones, and single large components in order."""
    answer = np.empty_like(rights)
    for first, last, solve in _stretches(np.diff(whole.start)):
        low, high = int(whole.start[first]), int(whole.start[last])
        part, before = whole.part(first, last)
        right = rights[low:high] + before @ answer[:low] if before.nnz else rights[low:high]
        answer[low:high] = solve(part, right)
    return answer


def _stretches(size: Int[np.ndarray, "components"]) -> Iterator[tuple[int, int, Solver]]:
    """Ranges of components in order, and the solver of each."""
    kind = np.digitize(size, [FEW, MIDDLING], right=True)
    ends = np.append(np.flatnonzero(np.diff(kind)) + 1, len(kind))
    short = np.diff(ends, prepend=0) < SHORT
    kind = np.maximum(kind, np.repeat(short, np.diff(ends, prepend=0)).astype(kind.dtype))
    room = np.cumsum(size.astype(np.int64) ** 2) // AT_A_TIME * (kind == 1)
    alone = np.where(kind == 2, np.arange(len(kind)), -1)
    changes = (np.diff(kind) != 0) | (np.diff(room) != 0) | (np.diff(alone) != 0)
    begin = np.append(0, np.flatnonzero(changes) + 1)
    solvers = (_solve_small, _solve_middling, lambda part, right: solve_block(part.chain, right))
    for first, last in zip(begin.tolist(), [*begin[1:].tolist(), len(kind)], strict=True):
        yield first, last, solvers[kind[first]]


def _solve_middling(part: _Ordered, right: Columns) -> Columns:
    """Solve components that are inverted together, then substituted one after the other."""
    own, between, out = part.split()
    visits: list[Float[np.ndarray, "_ _"]] = [np.zeros((0, 0))] * (len(part.start) - 1)
    for members, found in _invert(own, out, part.start):
        for component, one in zip(members.tolist(), found, strict=True):
            visits[component] = one
    right, answer = right.copy(), np.empty_like(right)
    length = np.diff(between.indptr)
    row = np.flatnonzero(length)  # states with moves to other components
    begin = between.indptr[row]
    moves, landing = between.data[:, None], between.indices
    states = part.start.tolist()
    rows, entries = np.searchsorted(row, part.start).tolist(), between.indptr[part.start].tolist()
    for k, one in enumerate(visits):
        low, high = states[k], states[k + 1]
        first, last = entries[k], entries[k + 1]
        if first < last:
            own_rows = slice(rows[k], rows[k + 1])
            ahead = moves[first:last] * answer[landing[first:last]]
            right[row[own_rows]] += np.add.reduceat(ahead, begin[own_rows] - first)
        for column in range(right.shape[1]):  # one at a time: no result depends on the other columns
            answer[low:high, column] = one[: high - low, : high - low] @ right[low:high, column]
    return answer


def _solve_small(part: _Ordered, right: Columns) -> Columns:
    """Solve components of up to `FEW` states in a single substitution."""
    size = len(right)
    if len(part.start) == size + 1:  # single states
        return sweep(part.chain.moves, part.chain.leaving, right)
    own, between, out = part.split()
    visits = _visits(own, out, part.start)
    onwards = csr_array(visits @ between)
    onwards.sort_indices()
    return sweep(onwards, np.ones(size), visits @ right)


def _visits(moves: csr_array, out: Vector, start: Int[np.ndarray, "components_plus_1"]) -> csr_array:
    """Expected visits (I - P)^-1 of a chain of small components without moves between them."""
    size = np.diff(start)
    own = np.repeat(size, size)  # entries per row
    begin = np.append(0, np.cumsum(own))
    column = np.arange(begin[-1]) - np.repeat(begin[:-1] - np.repeat(start[:-1], size), own)
    entry = np.empty(begin[-1])
    for members, found in _invert(moves, out, start):
        used = np.arange(found.shape[1]) < size[members][:, None]
        entry[row_entries(begin, row_entries(start, members)[0])[0]] = found[used[:, :, None] & used[:, None, :]]
    return csr_array((entry, column, begin), shape=moves.shape)


def _invert(
    moves: csr_array, out: Vector, start: Int[np.ndarray, "components_plus_1"]
) -> Iterator[tuple[Int[np.ndarray, "some"], Float[np.ndarray, "some width width"]]]:
    """Batches of components of similar size, and the expected visits among their states.

    Smaller components are padded with states that are never visited.
    """
    size = np.diff(start)
    unit = 2 ** np.maximum(np.frexp(size - 0.5)[1] - 3, 0)  # four widths from one power of two to the next
    for about in np.unique(-(-size // unit) * unit).tolist():
        members = np.flatnonzero(-(-size // unit) * unit == about)
        width = int(size[members].max())
        for part in np.array_split(members, -(-len(members) * width**2 // AT_A_TIME)):
            states, first = row_entries(start, part)
            entries, begin = row_entries(moves.indptr, states)
            which = np.repeat(np.arange(len(part)), size[part])
            place = np.arange(len(states)) - first[which]
            row = np.repeat(np.arange(len(states)), np.diff(begin))
            dense, leaves = np.zeros((len(part), width, width)), np.ones((len(part), width))
            dense[which[row], place[row], moves.indices[entries] - start[part][which[row]]] = moves.data[entries]
            leaves[which, place] = out[states]
            yield part, expected_visits(dense, leaves)
