"""The chart for one point at a time on large cyclic problems: sparse policy iteration from where the last one ended.

The same map as `bellmanifold.chart`, for problems whose strong components are too large to eliminate densely in
batches. A walk moves a little at a time, so the greedy policy of the last point is nearly that of the next: a few
sparse systems solve it. Only states whose policy plays a solved pair enter a system; the others end at once and pay
their value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.errors import UnsupportedError
from bellmanifold.graph import Policy, leaving_policy, reaches_goal
from bellmanifold.linear import evaluate_chain
from bellmanifold.ssp import SSP

STRICTLY = 1e-12
MOST_ITERATIONS = 1000


class Point(NamedTuple):
    """Action values at one point.

    Attributes:
        q: action values; -inf for pairs without a value, shape (pairs,).
        log_det: log |det A|.
        policy: the greedy policy, to start the next point from; None where there is no proper solution.
    """

    q: Float[np.ndarray, "pairs"]
    log_det: float
    policy: Policy | None


@dataclass(frozen=True, eq=False)
class SparseChart:
    """A problem and the pairs that are solved.

    Attributes:
        model: the problem.
        solved: pairs whose Bellman equation holds.
        first: a proper policy of M~.
    """

    model: SSP
    solved: Bool[np.ndarray, "pairs"]
    first: Int[np.ndarray, "states"]

    def solve(
        self, payment: Float[np.ndarray, "pairs"], value: Float[np.ndarray, "pairs"], start: Policy | None = None
    ) -> Point:
        """Action values from what solved pairs pay and what the others are worth (-inf for pairs that do not count).

        Args:
            payment: what solved pairs pay.
            value: action values of the other pairs.
            start: a policy that is proper in M~ to start from; by default `first`.
        """
        model, policy = self.model, self.first if start is None else start
        for _ in range(MOST_ITERATIONS):
            inside = self.solved[policy]
            if not self._arrives(policy, inside):
                return Point(value, 0.0, None)
            states = np.flatnonzero(inside)
            best = np.where(inside, 0.0, value[policy])
            collected = payment[policy] + self._ahead(best)[policy]
            best[states], log_det = evaluate_chain(model, policy, states, collected[states])
            q = np.where(self.solved, payment + self._ahead(best), value)
            top = model.greedy(q)
            now = q[policy]
            switch = q[top] > now + STRICTLY * (1.0 + np.abs(now))
            if not switch.any():
                return Point(q, log_det, policy)
            policy = np.where(switch, top, policy)
        raise UnsupportedError(
            "policy iteration did not settle: rounding makes two policies look better than each other"
        )

    def _ahead(self, best: Float[np.ndarray, "states"]) -> Float[np.ndarray, "pairs"]:
        return self.model.backup(best) - self.model.reward

    def _arrives(self, policy: Policy, inside: Bool[np.ndarray, "states"]) -> bool:
        """Is the policy proper in M~? A state that plays an unsolved pair ends there."""
        return bool(reaches_goal(self.model, policy, ends=~inside).all())


def sparse_chart(model: SSP, solved: Bool[np.ndarray, "pairs"]) -> SparseChart:
    """The chart of a problem for one set of solved pairs.

    Raises:
        UnsupportedError: if some state can reach neither the goal nor an unsolved pair surely.
    """
    first = leaving_policy(model, solved)
    if first is None:
        raise UnsupportedError(
            "the observed pairs trap some state: no policy reaches the goal or an unobserved pair from there; "
            "use --discount 0.99"
        )
    return SparseChart(model, solved, first)
