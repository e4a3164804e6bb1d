"""Compressed rows, as in a CSR matrix: the successors of all pairs in a single array."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

Some: TypeAlias = Int[np.ndarray, "some"] | Bool[np.ndarray, "rows"]
"""Row numbers in any order, or a mask of the rows."""


class Rows(NamedTuple):
    """Transition laws in compressed rows.

    Attributes:
        start: row i is start[i]:start[i + 1], shape (rows + 1,).
        state: successors, ascending within a row, shape (entries,).
        prob: their probabilities, shape (entries,).
    """

    start: Int[np.ndarray, "rows_plus_1"]
    state: Int[np.ndarray, "entries"]
    prob: Float[np.ndarray, "entries"]

    @classmethod
    def empty(cls, rows: int) -> Rows:
        """The given number of empty rows."""
        return cls(np.zeros(rows + 1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))

    def replaced(self, some: Int[np.ndarray, "some"], others: Rows) -> Rows:
        """The rows with some of them replaced by others."""
        source = np.arange(len(self.start) - 1)
        source[some] = len(source) + np.arange(len(some))
        entries, start = row_entries(np.append(self.start, self.start[-1] + others.start[1:]), source)
        return Rows(start, np.append(self.state, others.state)[entries], np.append(self.prob, others.prob)[entries])

    def kept(self, some: Some) -> Rows:
        """The selected rows only."""
        entries, start = row_entries(self.start, some)
        return Rows(start, self.state[entries], self.prob[entries])

    def padded(self, fill: int) -> tuple[Int[np.ndarray, "rows width"], Float[np.ndarray, "rows width"]]:
        """Successors and probabilities as dense tables, padded to the longest row with `fill` and 0.

        >>> Rows(np.array([0, 2, 3]), np.array([0, 1, 1]), np.array([0.5, 0.5, 1.0])).padded(7)[0].tolist()
        [[0, 1], [1, 7]]
        """
        length = np.diff(self.start)
        row = np.repeat(np.arange(len(length)), length)
        place = (row, np.arange(len(row)) - self.start[:-1][row])
        state, prob = (np.full((len(length), int(length.max(initial=1))), blank) for blank in (fill, 0.0))
        state[place], prob[place] = self.state, self.prob
        return state, prob

    def discounted(self, some: Bool[np.ndarray, "rows"], discount: float, goal: int) -> Rows:
        """Discount some non-empty rows: with probability 1 - discount they lead to the goal, the last state."""
        own = self.prob * np.repeat(np.where(some, discount, 1.0), np.diff(self.start))
        count, shape = int(some.sum()), (len(some), goal + 1)
        ends = (np.full(count, 1.0 - discount), np.full(count, goal), np.append(0, np.cumsum(some)))
        law = csr_array((own, self.state, self.start), shape=shape) + csr_array(ends, shape=shape)
        return Rows(law.indptr.astype(np.int64), law.indices.astype(np.int64), law.data)


def row_entries(
    start: Int[np.ndarray, "rows_plus_1"], rows: Some
) -> tuple[Int[np.ndarray, "entries"], Int[np.ndarray, "n_plus_1"]]:
    """Positions of the entries of the selected compressed rows, and the row starts of the selection.

    >>> row_entries(np.array([0, 2, 3, 5]), np.array([2, 0]))
    (array([3, 4, 0, 1]), array([0, 2, 4]))
    """
    length = np.diff(start)[rows]
    begin = np.append(0, np.cumsum(length))
    return np.arange(begin[-1]) - np.repeat(begin[:-1] - start[:-1][rows], length), begin


def ranks(order: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
    """The inverse of a permutation: the rank of each number in an order.

    >>> ranks(np.array([2, 0, 1]))
    array([1, 2, 0])
    """
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank


def by_first_use(pair_action: Int[np.ndarray, "pairs"]) -> tuple[Int[np.ndarray, "used"], Int[np.ndarray, "pairs"]]:
    """The actions in use, in order of first use, and the index of each pair's action among them."""
    used, first_use, code = np.unique(pair_action, return_index=True, return_inverse=True)
    by_use = np.argsort(first_use)
    return used[by_use], np.argsort(by_use)[code]
