"""The exact value of a policy from the start, computed on the states it can come to.

A policy need not be proper to have a value: only the states it reaches count. There its chain either reaches the goal
from everywhere, and the value is finite, or some class of states keeps it for ever. Under Assumption 2 that costs
without end and the value is minus infinity; it is reported as NaN, because without the assumption it may be anything.
In a deterministic problem there is only a route to follow.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from bellmanifold.graph import Policy, reaches_goal
from bellmanifold.linear import solve_chain
from bellmanifold.ssp import SSP


class PolicyValues:
    """Values of policies of one problem; a policy that does the same as an earlier one is not evaluated again."""

    def __init__(self, model: SSP) -> None:
        self.model = model
        self.known: dict[tuple[bytes, bytes], float] = {}

    def at_start(self, policy: Policy) -> float:
        """Expected total reward from the start; NaN if the goal may be missed.

        >>> from bellmanifold.envs import two_state
        >>> PolicyValues(two_state()).at_start(np.array([1])), PolicyValues(two_state()).at_start(np.array([0]))
        (-1.0, nan)
        """
        if self.model.is_deterministic:
            starts = np.flatnonzero(self.model.initial)
            return float(sum(self.model.initial[s] * along_route(self.model, policy, int(s)) for s in starts))
        states = reached(self.model, policy)
        key = states.tobytes(), policy[states].tobytes()
        if key not in self.known:
            self.known[key] = self._evaluate(policy, states)
        return self.known[key]

    def _evaluate(self, policy: Policy, states: Int[np.ndarray, "n"]) -> float:
        if not reaches_goal(self.model, policy)[states].all():
            return float("nan")
        value = solve_chain(self.model, policy, states, self.model.reward[policy[states]])
        return float(self.model.initial[states] @ value)


def along_route(model: SSP, policy: Policy, start: int) -> float:
    """What a policy of a deterministic problem collects on its way to the goal; NaN if it never comes there."""
    state, total = start, 0.0
    for _ in range(model.n_states):
        pair = policy[state]
        total += float(model.reward[pair])
        state = int(model.next_state[pair])  # one successor a pair, so pairs number them
        if state == model.n_states:
            return total
    return float("nan")


def reached(model: SSP, policy: Policy) -> Int[np.ndarray, "n"]:
    """The states a policy can come to from the start, ascending."""
    seen = np.append(model.initial > 0, True)
    front = np.flatnonzero(seen[:-1])
    while len(front):
        pairs = policy[front]
        length = model.next_start[pairs + 1] - model.next_start[pairs]
        offset = np.repeat(model.next_start[pairs] - np.append(0, np.cumsum(length)[:-1]), length)
        ahead = np.unique(model.next_state[np.arange(length.sum()) + offset])
        front = ahead[~seen[ahead]]
        seen[front] = True
    return np.flatnonzero(seen[:-1])
