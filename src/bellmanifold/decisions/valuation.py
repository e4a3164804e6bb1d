"""Values of policies in each of many draws.

In a draw (`bellmanifold.decisions.joint_draws`) a policy defines a Markov chain: a solved pair pays and leads on by its
law; a free pair pays its value and ends the episode. With x_s the expected number of visits to state s, the value at
the start is

    V^pi = sum_s x_s pay(pi(s)),      x_s = initial_s + sum_{s'} x_{s'} p(s | s', pi(s')).

Where all laws are given, visits are the same in all draws, and the values of many policies in many draws are a single
matrix product. Where laws are open, each draw has its own visits. The linear systems are solved by elimination without
subtraction (`bellmanifold.mdp.subtraction_free`), restricted to the states that a policy can reach.

*The best policy.* If all laws are given, the expected value of a policy over draws is linear in the payments: it is
the policy's value in the problem in which every pair pays its mean. So the best of all policies on half of the draws is
found by solving that one problem; if theta_i is known, likewise with means given theta_i (`Planner`). Where laws are
open this is only a good guess, since visits and payments are correlated: it is one candidate among others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csc_array, eye_array
from scipy.sparse.linalg import splu

from bellmanifold.chart.arrangement import padded_successors
from bellmanifold.chart.layout import solve_layout
from bellmanifold.chart.sparse import SparseChart, sparse_chart
from bellmanifold.decisions.joint_draws import JointDraws, PerDraw
from bellmanifold.errors import UnsupportedError
from bellmanifold.mdp.subtraction_free import expected_visits
from bellmanifold.problem.ssp import SSP

Policies = Int[np.ndarray, "_ states"]
"""The pair to play in each state, one row per policy."""
Values = Float[np.ndarray, "policies draws"]
"""Values of policies in draws."""
PerState = Float[np.ndarray, "states"]
HELD = 2**23
"""Most transition probabilities that are held in one batch of eliminations."""
WORST = 1e15
"""Bound on how much worse than the best a policy can be, in units of a tie: a drawn law may leave a loop only with
tiny probability."""
DENSE = 300
"""Chains with more states than this are factorised one by one."""
BATCH = 16
"""Number of problems solved in one call of a compiled program."""


@dataclass(frozen=True, eq=False)
class Walks:
    """Chains of policies on solved pairs of a problem.

    Attributes:
        model: the problem.
        solved: pairs that lead to their successors; all others end the episode.
    """

    model: SSP
    solved: Bool[np.ndarray, "pairs"]

    @cached_property
    def _padded(self) -> tuple[Int[np.ndarray, "pairs k"], Float[np.ndarray, "pairs k"]]:
        successor, law = padded_successors(self.model)
        return successor, np.where(self.solved[:, None], law, 0.0)

    def reachable(self, policies: Policies, start: PerState) -> Bool[np.ndarray, "policies states"]:
        """The states that each policy can reach."""
        successor, law = self._padded
        found = np.zeros((len(policies), self.model.n_states + 1), dtype=bool)
        found[:, :-1] = start > 0
        new = found.copy()
        while new[:, :-1].any():
            rows, states = np.nonzero(new[:, :-1])
            pairs = policies[rows, states]
            after = np.zeros_like(found)
            after[rows[:, None], np.where(law[pairs] > 0, successor[pairs], self.model.n_states)] = True
            new = after & ~found
            found |= after
        return found[:, :-1]

    def visits(self, policies: Policies, start: PerState) -> Float[np.ndarray, "policies states"]:
        """Expected number of visits of each policy to each state."""
        reached = self.reachable(policies, start)
        total = np.zeros(policies.shape)
        size = reached.sum(axis=1)
        for rows in _chunks(size):
            if size[rows].max(initial=0) > DENSE:
                total[rows] = [self._sparse_visits(policies[k], reached[k], start) for k in rows]
            else:
                total[rows] = self._dense_visits(policies[rows], reached[rows], start)
        return total

    def _dense_visits(
        self, policies: Policies, reached: Bool[np.ndarray, "policies states"], start: PerState
    ) -> Float[np.ndarray, "policies states"]:
        successor, law = self._padded
        size = reached.sum(axis=1)[:, None]
        most, rows = max(1, int(size.max(initial=0))), np.arange(len(policies))[:, None]
        own = np.argsort(~reached, axis=1, kind="stable")[:, :most]  # reached states come first
        inside = np.arange(most) < size
        place = np.where(reached, np.cumsum(reached, axis=1) - 1, most)  # the goal and unreached states come last
        place = np.append(place, np.full((len(policies), 1), most), axis=1)
        pair = policies[rows, own]
        moves = np.zeros((len(policies), most, most + 1))
        for k in range(successor.shape[1]):
            prob = np.where(inside, law[pair, k], 0.0)
            np.add.at(moves, (rows, np.arange(most), place[rows, successor[pair, k]]), prob)
        out = moves[:, :, -1] + np.where(inside & self.solved[pair], 0.0, 1.0)
        begin = np.where(inside, start[own], 0.0)
        total = np.zeros(policies.shape)
        total[rows, own] = (begin[:, None] @ expected_visits(moves[:, :, :-1], out))[:, 0]
        return total

    def _sparse_visits(
        self, policy: Int[np.ndarray, "states"], reached: Bool[np.ndarray, "states"], start: PerState
    ) -> PerState:
        successor, law = self._padded
        own = np.flatnonzero(reached)
        number = np.full(self.model.n_states + 1, -1)
        number[own] = np.arange(len(own))
        column, prob = number[successor[policy[own]]], law[policy[own]]
        inside = (column >= 0) & (prob > 0)
        source = np.broadcast_to(np.arange(len(own))[:, None], column.shape)
        moves = csc_array((prob[inside], (column[inside], source[inside])), shape=(len(own), len(own)))
        total = np.zeros(self.model.n_states)
        total[own] = splu(csc_array(eye_array(len(own)) - moves)).solve(start[own])
        return total


def _chunks(size: Int[np.ndarray, "n"]) -> list[Int[np.ndarray, "_"]]:
    """Groups of rows to eliminate together: of similar size, and few enough to hold in memory."""
    order = np.argsort(size, kind="stable")
    chunks, begin = [], 0
    while begin < len(order):
        most = max(1, HELD // max(1, int(size[order[min(len(order) - 1, begin + 255)]]) ** 2))
        chunks.append(order[begin : begin + min(256, most)])
        begin += min(256, most)
    return chunks


class Valuation:
    """Values of policies in draws."""

    def __init__(self, draws: JointDraws) -> None:
        self.draws, self.walks = draws, Walks(draws.target.model, draws.target.observed)

    def at_start(self, policies: Policies, start: PerState | None = None) -> Values:
        """Values of policies under an initial distribution, by default that of the problem."""
        start = self.draws.target.model.initial if start is None else start
        if self.draws.law is not None:
            return np.array([self._in_laws(policy, start) for policy in policies])
        visits = np.zeros((len(policies), self.draws.target.model.n_pairs))
        visits[np.arange(len(policies))[:, None], policies] = self.walks.visits(policies, start)
        used = np.flatnonzero(visits.any(axis=0))
        return visits[:, used] @ self.draws.pay[used]

    def _in_laws(self, policy: Int[np.ndarray, "states"], start: PerState) -> PerDraw:
        """Values of a policy where every draw has its own laws."""
        target, law = self.draws.target, self.draws.law
        assert law is not None, "only asked where laws are open"
        assert target.laws is not None, "then the target has them"
        reached = np.flatnonzero(self.walks.reachable(policy[None], start)[0])
        pair, count = policy[reached], law.shape[-1]
        row = np.full(target.model.n_pairs, -1)
        row[target.laws.pairs] = np.arange(len(target.laws.pairs))
        given = np.zeros((len(reached), target.model.n_states + 1))
        successor, prob = self.walks._padded
        np.add.at(given, (np.arange(len(reached))[:, None], successor[pair]), prob[pair])
        given[~target.observed[pair], -1] = 1.0
        value = np.empty(count)
        step = max(1, HELD // max(1, len(reached) ** 2))
        for begin in range(0, count, step):
            own = slice(begin, min(count, begin + step))
            rows = np.broadcast_to(given, (own.stop - own.start, *given.shape)).copy()
            is_open = (row[pair] >= 0) & target.observed[pair]
            rows[:, is_open] = np.moveaxis(law[row[pair[is_open]], :, own], -1, 0)
            visits = start[reached] @ expected_visits(rows[:, :, reached], rows[:, :, -1])
            value[own] = (visits * self.draws.pay[pair, own].T).sum(axis=1)
        return np.maximum(value, self.draws.at_start - WORST * self.draws.tie)


class Planner:
    """Solver of M~, the problem of some draws, for other payments."""

    def __init__(self, draws: JointDraws) -> None:
        self.draws, self.target = draws, draws.target
        self._sparse: SparseChart | None = None
        if draws.chart is None:
            self._sparse = sparse_chart(self.target.model, self.target.observed)
            return
        first = draws.chart.first_policy(self.target.observed)
        if first is None:
            raise UnsupportedError("the observed pairs trap some state: use --discount 0.99")
        self._first = first

    def plan(self, weight: Float[np.ndarray, "draws n"], pay: Float[np.ndarray, "pairs n"]) -> Policies:
        """Optimal policies for given payments and the mean of open laws; problems that have none are left out.

        Each column is a problem; its weights of the draws, by which laws are averaged, sum to 1.
        """
        starts = range(0, pay.shape[1], BATCH)
        parts = [self._solve(weight[:, k : k + BATCH], pay[:, k : k + BATCH]) for k in starts]
        q = np.concatenate([part[0][part[1]] for part in parts]) if parts else np.zeros((0, len(pay)))
        return self.target.model.greedy(q)

    def solvable(self, pay: Float[np.ndarray, "pairs n"]) -> Bool[np.ndarray, "n"]:
        """Whether each problem with these payments has a solution, where all laws are given: no loop pays."""
        starts = range(0, pay.shape[1], BATCH)
        return np.concatenate([self._solve(pay[:0, k : k + BATCH], pay[:, k : k + BATCH])[1] for k in starts])

    def _solve(
        self, weight: Float[np.ndarray, "draws n"], pay: Float[np.ndarray, "pairs n"]
    ) -> tuple[Float[np.ndarray, "n pairs"], Bool[np.ndarray, "n"]]:
        if self._sparse is not None:
            points = [self._sparse.solve(one, one) for one in pay.T]
            return np.array([point.q for point in points]), np.array([point.policy is not None for point in points])
        chart, laws = self.draws.chart, self.target.laws
        assert chart is not None, "there is a sparse chart where there is no other"
        count, law, size = pay.shape[1], chart.law, BATCH
        if laws is not None and self.draws.law is not None:
            mean = np.pad(self.draws.law @ weight, ((0, 0), (0, 0), (0, size - count)), mode="edge")
            law = jnp.broadcast_to(law[..., None], (*law.shape, size)).at[laws.pairs].set(jnp.asarray(mean))
        padded = jnp.asarray(np.pad(pay, ((0, 0), (0, size - count)), mode="edge"))
        found = solve_layout(chart.layout, law, jnp.asarray(self.target.observed), self._first, padded, padded)
        return np.asarray(found.q).T[:count], np.asarray(found.solvable)[:count]
