"""The chart for one point at a time on large cyclic problems: sparse policy iteration from where the last one ended.

The same map as `bellmanifold.chart.batch`, for problems whose strong components are too large to eliminate densely in
batches. Three things keep a point cheap:

- Only M~ itself is looked at: solved pairs, the states that have one or may be reached by one, and for each of these
  the unsolved pairs that count. Nothing grows with the unobserved part of the problem.
- A walk moves a little at a time, so the greedy policy of the last point is nearly that of the next, and the points
  tried in one step all begin with the same policy. Its chain is factorised once; the last few factorisations are kept.
- Sweeps of value iteration stand between two policies. They start from a proper policy's value, so they only rise
  (V <= TV), and carry news many states far for the price of one, where policy iteration moves it one state for every
  linear system. A policy that is greedy for such a V and improper holds a class with gain >= 0. The step is then taken
  again without sweeps: a policy that becomes improper by strict improvements alone proves that the gain is positive.

Only states whose policy plays a solved pair enter a system; the others end at once and pay their value. Where solved
pairs are on no cycle there is no system at all: one sweep does it (`bellmanifold.chart.sweeping`).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array

from bellmanifold.chart.nearby import MOST_NUMBERS, MOST_SWITCHED, Base, Laws, Played
from bellmanifold.chart.sweeping import LevelSweep, level_sweep
from bellmanifold.errors import UnsupportedError
from bellmanifold.graph import Pairs, Policy, leaving_policy, reaches_goal
from bellmanifold.linear import factorised_chain
from bellmanifold.ssp import SSP

STRICTLY = 1e-12
MOST_ITERATIONS = 1000
SWEEPS, SWEPT = 8, 50
"""Sweeps between two policies, and after how many policies there are no more of them (rounding may make two look better
than each other)."""
KEPT = 3
"""Factorised chains that are remembered."""
BASES = 4
"""Policies from which others are found: one for each chain of a posterior."""
SMALL = 1e-12
"""Largest residual of values that are found from others, relative to them."""

Own = Int[np.ndarray, "own_states"]
"""A policy of M~: the position, among its pairs, of the pair each of its states plays."""
Values = Float[np.ndarray, "pairs"]
OwnValues = Float[np.ndarray, "own_pairs"]
"""Numbers of the problem's pairs, and of those of M~."""


class Point(NamedTuple):
    """Action values at one point.

    Attributes:
        q: action values; -inf for pairs without a value, shape (pairs,).
        log_det: log |det A|.
        policy: the greedy policy, to start the next point from; None where there is no proper solution.
    """

    q: Values
    log_det: float
    policy: Policy | None


@dataclass(frozen=True, eq=False)
class SparseChart:
    """A problem and the pairs that are solved.

    Attributes:
        model: the problem.
        ended: M~, where unsolved pairs end at the goal; its states and pairs are a part of the problem's.
        states: the problem's number of each of its states, ascending, shape (own states,).
        pairs: the problem's number of each of its pairs, ascending, shape (own pairs,).
        solved: which of its pairs are solved, shape (own pairs,).
        moves: its transition law without the goal, shape (own pairs, own states).
        first: a proper policy of M~.
        may_sweep: whether to look for an order in which one sweep solves it.
    """

    model: SSP
    ended: SSP
    states: Int[np.ndarray, "own_states"]
    pairs: Int[np.ndarray, "own_pairs"]
    solved: Bool[np.ndarray, "own_pairs"]
    moves: csr_array
    first: Own
    may_sweep: bool = True
    _recent: OrderedDict[bytes, Played] = field(default_factory=OrderedDict)
    _bases: list[Base] = field(default_factory=list)

    @cached_property
    def laws(self) -> Laws:
        """Where its pairs lead."""
        return Laws.of(self.moves)

    @cached_property
    def sweep(self) -> LevelSweep | None:
        """How it is solved where solved pairs are on no cycle; None elsewhere."""
        return level_sweep(self.ended, self.solved) if self.may_sweep else None

    def solve(self, payment: Values, value: Values, start: Policy | None = None) -> Point:
        """Action values from what solved pairs pay and what the others are worth (-inf for pairs that do not count).

        Policy iteration starts from a given policy if that is proper in M~, else from `first`.
        """
        pay = np.where(self.solved, payment[self.pairs], value[self.pairs])
        if self.sweep is not None:
            q = self.sweep.solve(pay)
            return self._point(value, q, 0.0, self.ended.greedy(q))
        found = None if start is None else self._solve_nearby(pay, value, self._own(start))
        return found or self._solve(pay, value, start)

    def _solve_nearby(self, pay: OwnValues, value: Values, policy: Own) -> Point | None:
        """The same from the factors of a policy nearby; None where that does not plainly succeed."""
        base, evaluated = self._base(policy), None
        for _ in range(SWEPT):
            if base is None:
                return None
            if base is not evaluated:
                (there, log_det), evaluated = self._evaluate(base.played, pay), base
            change = base.change(there, pay, policy)
            if change is None:
                return None
            best = there + change[0]
            q = pay + self.moves @ best
            improved = self._switched(q, policy)
            if improved is None:
                is_solved = np.abs(q[policy] - best).max() <= SMALL * (_unit(best) + np.abs(best).max())
                return self._point(value, q, log_det + change[1], policy) if is_solved else None
            after = self._ahead(pay, q, policy)
            policy = improved if after is None else after
            if base.differs(policy) > MOST_SWITCHED:
                base = self._base(policy)
        return None

    def _base(self, policy: Own) -> Base | None:
        """A base near a policy, or the policy itself; None if M~ is large, or the policy improper or nearly trapped."""
        near = min(self._bases, key=lambda base: base.differs(policy), default=None)
        if near is not None and near.differs(policy) <= MOST_SWITCHED // 2:
            return near
        played = self._play(policy) if len(policy) ** 2 <= MOST_NUMBERS else None
        if played is None or played.chain.factors is None:
            return None
        if len(self._bases) >= BASES:
            del self._bases[0]
        self._bases.append(Base(self.laws, played))
        return self._bases[-1]

    def _solve(self, pay: OwnValues, value: Values, start: Policy | None) -> Point:
        """The same by policy iteration with factorised chains."""
        played = None if start is None else self._play(self._own(start))
        played = played or self._play(self.first)
        assert played is not None, "the first policy is proper"
        for iteration in range(MOST_ITERATIONS):
            best, log_det = self._evaluate(played, pay)
            q = pay + self.moves @ best
            improved = self._switched(q, played.policy)
            if improved is None:
                return self._point(value, q, log_det, played.policy)
            after = self._play(self._ahead(pay, q, played.policy)) if iteration < SWEPT else None
            after = after or self._play(improved)
            if after is None:
                return Point(value, 0.0, None)
            played = after
        raise UnsupportedError(
            "policy iteration did not settle: rounding makes two policies look better than each other"
        )

    def moved(self, point: Point, payment: Values, pair: int, value: float) -> Point:
        """The solution where one pair that is not solved is worth something else, from the solution before."""
        assert point.policy is not None, "there was a solution"
        own = int(np.searchsorted(self.pairs, pair))
        found = None
        if self.sweep is not None:
            found = self.sweep.moved(point.q[self.pairs], payment[self.pairs], own, value)
        q = point.q.copy()
        if found is None:
            q[pair] = value
            return self.solve(payment, q, point.policy)
        q[self.pairs] = found.q
        policy = point.policy.copy()
        policy[self.states[found.states]] = self.pairs[found.greedy]
        return Point(q, 0.0, policy)

    def _evaluate(self, played: Played, pay: OwnValues) -> tuple[Float[np.ndarray, "own_states"], float]:
        """The value of a policy in every state, and the log determinant of its chain."""
        best = pay[played.policy]
        best[played.inside] = 0.0
        own = played.policy[played.inside]
        best[played.inside], log_det = played.chain.evaluate((pay + self.moves @ best)[own])
        return best, log_det

    def _switched(self, q: OwnValues, policy: Own) -> Own | None:
        """The policy with every action that is strictly better; None if there is none."""
        now = q[policy]
        switch = self.ended.best(q) > now + STRICTLY * (_unit(now) + np.abs(now))
        return np.where(switch, self.ended.greedy(q), policy) if switch.any() else None

    def _ahead(self, pay: OwnValues, q: OwnValues, policy: Own) -> Own | None:
        """The policy switched to what is best after some sweeps."""
        best = self.ended.best(q)
        for _ in range(SWEEPS):
            q = pay + self.moves @ best
            before, best = best, self.ended.best(q)
            if (best - before).max() <= STRICTLY * np.abs(best).max():
                break
        return self._switched(q, policy)

    def _play(self, policy: Own | None) -> Played | None:
        """The policy with its chain, factorised now or not long ago; None if it is improper in M~."""
        if policy is None:
            return None
        key = policy.tobytes()
        if key not in self._recent:
            inside = self.solved[policy]
            if not reaches_goal(self.ended, policy).all():
                return None
            states = np.flatnonzero(inside)
            if len(self._recent) >= KEPT:
                self._recent.popitem(last=False)
            self._recent[key] = Played(policy, states, factorised_chain(self.ended, policy, states))
        self._recent.move_to_end(key)
        return self._recent[key]

    def _own(self, policy: Policy) -> Own:
        """A policy of the problem as one of M~; states play as in `first` where it names a pair that is not there."""
        wanted = policy[self.states]
        position = np.minimum(np.searchsorted(self.pairs, wanted), len(self.pairs) - 1)
        return np.where(self.pairs[position] == wanted, position, self.first)

    def _point(self, value: Values, own: OwnValues, log_det: float, greedy: Own) -> Point:
        q = value.copy()
        q[self.pairs] = own
        policy = self.model.pair_start[:-1].copy()
        policy[self.states] = self.pairs[greedy]
        return Point(q, log_det, policy)


def _unit(values: Float[np.ndarray, "own_states"]) -> float:
    """What is added to a value before a small share is taken of it: 1, or the largest of them if that is less."""
    return min(1.0, float(np.abs(values).max(initial=0.0)))


def sparse_chart(model: SSP, solved: Pairs, counts: Pairs | None = None, may_sweep: bool = True) -> SparseChart:
    """The chart of a problem for one set of solved pairs.

    Args:
        model: the problem.
        solved: pairs whose Bellman equation holds.
        counts: unsolved pairs that may have a value; by default all; a state with any needs one.
        may_sweep: whether to look for an order in which one sweep solves it: not worth it for a few points.
    """
    met = np.zeros(model.n_states + 1, dtype=bool)
    met[model.next_state[solved[model.next_pair]]] = True
    met[model.pair_state[solved]] = True
    states = np.flatnonzero(met[:-1])
    own = (True if counts is None else solved | counts) & met[model.pair_state]
    pairs, ends = np.flatnonzero(own), np.flatnonzero(own & ~solved)
    goal, surely = np.full(len(ends), model.n_states), np.ones(len(ends))
    ended = model.with_rows(ends, np.arange(len(ends) + 1), goal, surely).subproblem(own)
    inner = ended.next_state < len(states)
    entries = (ended.next_prob[inner], (ended.next_pair[inner], ended.next_state[inner]))
    moves = csr_array(entries, shape=(len(pairs), len(states)))
    first = leaving_policy(ended, solved[pairs])
    if first is None:
        raise UnsupportedError(
            "the observed pairs trap some state: no policy reaches the goal or an unobserved pair from there; "
            "use --discount 0.99"
        )
    return SparseChart(model, ended, states, pairs, solved[pairs], moves, first, may_sweep)
