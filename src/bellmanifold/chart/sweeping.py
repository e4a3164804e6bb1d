"""Solving the equations of solved pairs that are on no cycle by one sweep backwards from the goal.

Solved pairs of a state at level k lead only to states of lower levels (`bellmanifold.mdp.graph.levels`), so

    theta_i = payment_i + sum_s' p(s'|i) max_a theta(s', a)

can be computed for all states of a level at once when lower levels are known. States and pairs are sorted by level
once; each level is then a slice. No policy has a cycle: every determinant is 1, and every policy is proper.

If a single unsolved pair changes its value, usually only a few other values change. These are updated state by state,
lower levels first (`LevelSweep.moved`).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.mdp.graph import Pairs, levels
from bellmanifold.problem.ssp import SSP, row_entries

NARROWEST = 8
"""Least number of states per level, on average; with fewer, a call per level takes longer than policy iteration."""

MOST_TOUCHED = 1000
"""Largest number of states updated one by one; if more change, a sweep is faster."""


class Moved(NamedTuple):
    """Action values after one has changed, the states that were updated, and their first best pairs."""

    q: Float[np.ndarray, "pairs"]
    states: Int[np.ndarray, "touched"]
    greedy: Int[np.ndarray, "touched"]


@dataclass(frozen=True, eq=False)
class LevelSweep:
    """A problem without cycles, sorted by levels.

    Attributes:
        model: the problem; all its pairs lead to lower levels.
        order: its states by rising level, shape (states,).
        bounds: where each level begins in that order, and the number of states, shape (levels + 1,).
    """

    model: SSP
    order: Int[np.ndarray, "states"]
    bounds: Int[np.ndarray, "levels_plus_1"]

    @cached_property
    def _pairs(self) -> tuple[Int[np.ndarray, "pairs"], Int[np.ndarray, "states_plus_1"]]:
        """The pairs of the sorted states, and where those of each state begin."""
        return row_entries(self.model.pair_start, self.order)

    @cached_property
    def is_sure(self) -> bool:
        """Whether every pair is deterministic."""
        return bool((self.model.next_prob == 1.0).all())

    @cached_property
    def _moves(
        self,
    ) -> tuple[Int[np.ndarray, "moves"], Float[np.ndarray, "moves"] | None, Int[np.ndarray, "pairs_plus_1"]]:
        """Sorted positions of the sorted pairs' successors, their probabilities (None if all are 1), and row starts."""
        place = np.append(np.argsort(self.order), self.model.n_states)
        entries, start = row_entries(self.model.next_start, self._pairs[0])
        return place[self.model.next_state[entries]], None if self.is_sure else self.model.next_prob[entries], start

    @cached_property
    def _slices(self) -> list[tuple[slice, slice, slice, Int[np.ndarray, "own"], Int[np.ndarray, "own_pairs"]]]:
        """For each level: its states, pairs and moves, and where its states' pairs and its pairs' moves begin."""
        (_, first), (_, _, start) = self._pairs, self._moves
        found = []
        for low, high in pairwise(self.bounds.tolist()):
            pairs = slice(int(first[low]), int(first[high]))
            moves = slice(int(start[pairs.start]), int(start[pairs.stop]))
            own = start[pairs.start : pairs.stop] - moves.start
            found.append((slice(low, high), pairs, moves, first[low:high] - pairs.start, own))
        return found

    def solve(self, pay: Float[np.ndarray, "pairs"]) -> Float[np.ndarray, "pairs"]:
        """Action values of all pairs, given the immediate payment of each."""
        (pair, _), (landing, prob, _) = self._pairs, self._moves
        q, best = pay[pair], np.zeros(self.model.n_states + 1)
        for states, pairs, moves, first, start in self._slices:
            following = best[landing[moves]]
            q[pairs] += following if prob is None else np.add.reduceat(prob[moves] * following, start)
            best[states] = np.maximum.reduceat(q[pairs], first)
        by_pair = np.empty_like(q)
        by_pair[pair] = q
        return by_pair

    @cached_property
    def _backwards(self) -> tuple[memoryview, ...]:
        """Predecessors, as memory views, which are three times as fast to index as arrays.

        The rank of each state in the order of levels, and the states in that order; where the pairs that may lead to
        each state begin, and these pairs; the state of each pair, and where the pairs of each state begin.
        """
        model, rank = self.model, np.argsort(self.order)
        inner = np.flatnonzero(model.next_state < model.n_states)
        inner = inner[np.argsort(model.next_state[inner], kind="stable")]
        into = np.append(0, np.cumsum(np.bincount(model.next_state[inner], minlength=model.n_states)))
        arrays = (rank, self.order, into, model.next_pair[inner], model.pair_state, model.pair_start)
        return tuple(np.ascontiguousarray(array, dtype=np.int64).data for array in arrays)

    def moved(
        self, q: Float[np.ndarray, "pairs"], pay: Float[np.ndarray, "pairs"], pair: int, value: float
    ) -> Moved | None:
        """The solution after one pair that ends at the goal has changed its payment; None if too much changes.

        `q` is the solution before; all other payments stay the same.
        """
        rank, order, into, parent, owner, begin = self._backwards
        following = self.model.next_state.data, self.model.next_prob.data, self.model.next_start.data
        q = q.copy()
        now, paid = cast("memoryview[float]", q.data), cast("memoryview[float]", pay.data)
        before = {owner[pair]: max(now[begin[owner[pair]] : begin[owner[pair] + 1]])}
        waiting, goal = [rank[owner[pair]]], self.model.n_states
        now[pair] = value
        while waiting:
            state = order[heapq.heappop(waiting)]
            best = max(now[begin[state] : begin[state + 1]])
            if best == before[state]:
                continue
            if len(before) > MOST_TOUCHED:
                return None
            for entry in range(into[state], into[state + 1]):
                i = parent[entry]
                above = owner[i]
                if above not in before:
                    before[above] = max(now[begin[above] : begin[above + 1]])
                    heapq.heappush(waiting, rank[above])
                now[i] = paid[i] + (best if self.is_sure else _expected_next(i, following, now, begin, goal))
        states = np.fromiter(before, np.int64, len(before))
        return Moved(q, states, _first_best(self.model, q, states))


def _expected_next(
    pair: int, following: tuple[memoryview, memoryview, memoryview], q: Sequence[float], begin: memoryview, goal: int
) -> float:
    """Expected value after a pair's move."""
    landing, prob, start = following
    total = 0.0
    for entry in range(start[pair], start[pair + 1]):
        state = landing[entry]
        total += prob[entry] * (max(q[begin[state] : begin[state + 1]]) if state < goal else 0.0)
    return total


def _first_best(model: SSP, q: Float[np.ndarray, "pairs"], states: Int[np.ndarray, "some"]) -> Int[np.ndarray, "some"]:
    """The first best pair of some states."""
    pairs, start = row_entries(model.pair_start, states)
    best = np.repeat(np.maximum.reduceat(q[pairs], start[:-1]), np.diff(start))
    return np.minimum.reduceat(np.where(q[pairs] == best, pairs, model.n_pairs), start[:-1])


def level_sweep(model: SSP, solved: Pairs) -> LevelSweep | None:
    """The sweep of a problem whose unsolved pairs end at the goal; None if there is a cycle or levels are narrow."""
    if not model.n_states:
        return None
    level = levels(model, solved)
    if level is None or model.n_states < NARROWEST * (level.max() + 1):
        return None
    order = np.argsort(level, kind="stable")
    first = np.flatnonzero(np.diff(level[order], prepend=-1))
    return LevelSweep(model, order, np.append(first, model.n_states))
