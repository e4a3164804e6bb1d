"""The sparse chart written plainly: policy iteration on the whole problem, one new linear system for every policy."""

from __future__ import annotations

import numpy as np

from bellmanifold.chart.sparse import STRICTLY, Point
from bellmanifold.mdp.graph import leaving_policy, reaches_goal
from bellmanifold.mdp.linear import evaluate_chain


class PlainChart:
    """What `bellmanifold.chart.sparse.SparseChart` computes, without its savings."""

    def __init__(self, model, solved):
        self.model, self.solved, self.sweep = model, solved, None
        self.first = leaving_policy(model, solved)

    def solve(self, payment, value, start=None):
        """Policy iteration that switches wherever an action is strictly better."""
        model, policy = self.model, self.first if start is None else start
        while True:
            inside = self.solved[policy]
            if not reaches_goal(model, policy, ends=~inside).all():
                return Point(value, 0.0, None)
            states = np.flatnonzero(inside)
            best = np.where(inside, 0.0, value[policy])
            collected = payment[policy] + self._ahead(best)[policy]
            best[states], log_det = evaluate_chain(model, policy, states, collected[states])
            q = np.where(self.solved, payment + self._ahead(best), value)
            top, now = model.greedy(q), q[policy]
            switch = q[top] > now + STRICTLY * (1.0 + np.abs(now))
            if not switch.any():
                return Point(q, log_det, policy)
            policy = np.where(switch, top, policy)

    def _ahead(self, best):
        return self.model.backup(best) - self.model.reward
