"""The chart for one point at a time on large cyclic problems: sparse policy iteration, started from the last policy.

The map is that of `bellmanifold.chart.batch`, for problems whose strongly connected components are too large to be
eliminated densely in batches. Three things keep a point cheap:

- Only M~ is visited: solved pairs, the states that have one or may be reached by one, and the unsolved pairs of these
  states that count. Nothing grows with the unobserved part of the problem.
- A walk takes small steps, so the greedy policy of one point is nearly that of the next, and the points tried in one
  step all start from the same policy. Its chain is factorised once; the last few factorisations are kept.
- Sweeps of value iteration come between two policies. They start from a proper policy's value, so values only rise
  (V <= TV), and cheaply carry changes across many states, while policy iteration carries them one state further per
  linear system. An improper policy that is greedy for such a V has a class with gain >= 0. The step is then repeated
  without sweeps: a policy that becomes improper by strict improvements alone proves that the gain is positive.

Only states whose policy plays a solved pair enter a system; the others end at once and pay their value. Where solved
pairs are on no cycle, no system is needed: one sweep suffices (`bellmanifold.chart.sweeping`).
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
from bellmanifold.mdp.graph import Pairs, Policy, leaving_policy, reaches_goal
from bellmanifold.mdp.linear import factorised_chain
from bellmanifold.problem.ssp import SSP

STRICTLY = 1e-12
MOST_ITERATIONS = 1000
SWEEPS, SWEPT = 8, 50
"""Number of sweeps between two policies, and of policies after which there are none (rounding errors may make two
policies alternate)."""
KEPT = 3
"""Number of factorised chains that are cached."""
BASES = 4
"""Number of policies from which nearby ones are solved: one for each chain of a posterior."""
SMALL = 1e-12
"""Largest residual, relative to the values, of a solution found from a nearby one."""

Own = Int[np.ndarray, "own_states"]
"""A policy of M~: the position, among its pairs, of the pair each of its states plays."""
Values = Float[np.ndarray, "pairs"]
OwnValues = Float[np.ndarray, "own_pairs"]
"""One number for each pair of the problem, and for each pair of M~."""


class Point(NamedTuple):
    """Action values at one point.

    Attributes:
        q: action values; -inf for pairs without a value, shape (pairs,).
        log_det: log |det A|.
        policy: the greedy policy, to start the next point from; None if there is no proper solution.
    """

    q: Values
    log_det: float
    policy: Policy | None


@dataclass(frozen=True, eq=False)
class SparseChart:
    """A problem and the pairs that are solved.

    Attributes:
        model: the problem.
        ended: M~, where unsolved pairs end at the goal; its states and pairs are a subset of the problem's.
        states: the problem's number of each state of M~, ascending, shape (own states,).
        pairs: the problem's number of each pair of M~, ascending, shape (own pairs,).
        solved: which pairs of M~ are solved, shape (own pairs,).
        moves: transition law of M~ without the goal, shape (own pairs, own states).
        first: a proper policy of M~.
        may_sweep: whether to look for an order in which one sweep solves M~.
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
        """The transition law of M~."""
        return Laws.of(self.moves)

    @cached_property
    def sweep(self) -> LevelSweep | None:
        """The sweep that solves M~ if solved pairs are on no cycle; None otherwise."""
        return level_sweep(self.ended, self.solved) if self.may_sweep else None

    def solve(self, payment: Values, value: Values, start: Policy | None = None) -> Point:
        """Action values given payments of solved pairs and values of the others (-inf for pairs that do not count).

        Policy iteration starts from `start` if that is proper in M~, else from `first`.
        """
        pay = np.where(self.solved, payment[self.pairs], value[self.pairs])
        if self.sweep is not None:
            q = self.sweep.solve(pay)
            return self._point(value, q, 0.0, self.ended.greedy(q))
        found = None if start is None else self._solve_nearby(pay, value, self._own(start))
        return found or self._solve(pay, value, start)

    def _solve_nearby(self, pay: OwnValues, value: Values, policy: Own) -> Point | None:
        """The solution from the factors of a nearby policy; None unless that clearly succeeds."""
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
            improved = self._switch(q, policy)
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
        """The solution by policy iteration with factorised chains."""
        played = None if start is None else self._play(self._own(start))
        played = played or self._play(self.first)
        assert played is not None, "the first policy is proper"
        for iteration in range(MOST_ITERATIONS):
            best, log_det = self._evaluate(played, pay)
            q = pay + self.moves @ best
            improved = self._switch(q, played.policy)
            if improved is None:
                return self._point(value, q, log_det, played.policy)
            after = self._play(self._ahead(pay, q, played.policy)) if iteration < SWEPT else None
            after = after or self._play(improved)
            if after is None:
                return Point(value, 0.0, None)
            played = after
        raise UnsupportedError("policy iteration did not converge: rounding errors make two policies alternate")

    def moved(self, point: Point, payment: Values, pair: int, value: float) -> Point:
        """The solution after one unsolved pair has changed its value, from the solution before."""
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
        """The policy's value in every state, and the log determinant of its chain."""
        best = pay[played.policy]
        best[played.inside] = 0.0
        own = played.policy[played.inside]
        best[played.inside], log_det = played.chain.evaluate((pay + self.moves @ best)[own])
        return best, log_det

    def _switch(self, q: OwnValues, policy: Own) -> Own | None:
        """The policy switched to every action that is strictly better; None if there is none."""
        now = q[policy]
        switch = self.ended.best(q) > now + STRICTLY * (_unit(now) + np.abs(now))
        return np.where(switch, self.ended.greedy(q), policy) if switch.any() else None

    def _ahead(self, pay: OwnValues, q: OwnValues, policy: Own) -> Own | None:
        """The policy switched to strictly better actions after some sweeps; None if there are none."""
        best = self.ended.best(q)
        for _ in range(SWEEPS):
            q = pay + self.moves @ best
            before, best = best, self.ended.best(q)
            if (best - before).max() <= STRICTLY * np.abs(best).max():
                break
        return self._switch(q, policy)

    def _play(self, policy: Own | None) -> Played | None:
        """The policy with its chain, factorised or from the cache; None if it is improper in M~."""
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
        """A policy of the problem as one of M~; states whose pair is not in M~ play as in `first`."""
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
    """The absolute unit of tolerances, added to the size of values: 1, or the largest value if that is less."""
    return min(1.0, float(np.abs(values).max(initial=0.0)))


def sparse_chart(model: SSP, solved: Pairs, counts: Pairs | None = None, may_sweep: bool = True) -> SparseChart:
    """The chart of a problem for one set of solved pairs.

    Args:
        model: the problem.
        solved: pairs whose Bellman equation holds.
        counts: unsolved pairs that may have a value, at least one in each state with unsolved pairs; by default all.
        may_sweep: whether to look for an order in which one sweep solves it; not worthwhile for a few points.
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
            "remove it and all moves that lead there from the problem (--prune), or use --discount 0.99"
        )
    return SparseChart(model, ended, states, pairs, solved[pairs], moves, first, may_sweep)
