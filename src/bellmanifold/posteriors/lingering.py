"""Loops that are left, but hardly ever.

They are not improper, and yet almost as hard to meet by points of the chart: where a greedy policy comes back to a
state N times before it leaves, values of a moderate size need residuals in a window of width 1/N, where points weigh N.
How rare single moves are does not tell: four states that are each left backwards with probability 0.97 hold a policy
for tens of thousands of steps. So the question is asked for every state: how often can a policy of observed pairs visit
it, from there on, before it leaves them? That is the optimum of a small shortest path problem which pays 1 for a visit;
it is finite if no policy stays for ever, and found by policy iteration within each strong component.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import connected_components

from bellmanifold.graph import state_graph
from bellmanifold.linear import solve_chain
from bellmanifold.ssp import SSP

MOST_VISITS = 200.0
"""Loops that are visited more often than this are treated as if they were closed."""


def lingering_cut(model: SSP, allowed: Bool[np.ndarray, "pairs"], most: int) -> list[int]:
    """Pairs without which no policy of allowed pairs lingers; `most` + 1 of them if more would be needed.

    Args:
        model: the problem.
        allowed: pairs that hold no policy for ever.
        most: how many pairs may be cut.
    """
    left = allowed.copy()
    cut: list[int] = []
    while len(cut) <= most and (pair := most_visited(model, left)) is not None:
        cut.append(pair)
        left[pair] = False
    return cut


def most_visited(model: SSP, allowed: Bool[np.ndarray, "pairs"]) -> int | None:
    """The pair that some policy of allowed pairs visits most often from its own state on, if that is too often."""
    if np.all(model.next_prob == 1.0):  # then what is left is not come back to
        return None
    _, label = connected_components(state_graph(model, allowed), connection="strong")
    own = label[model.pair_state[model.next_pair]]
    stays = np.zeros(model.n_pairs, dtype=bool)
    stays[model.next_pair[label[model.next_state] == own]] = True
    stays &= allowed
    pair, most = None, MOST_VISITS
    for number in np.unique(label[model.pair_state[stays]]):
        states = np.flatnonzero(label[:-1] == number)
        steps, _ = longest(model, stays, states, np.ones(len(states)))
        if steps.max() <= most:  # no state is visited more often than all of them together
            continue
        for place, state in enumerate(states):
            visits, policy = longest(model, stays, states, (states == state).astype(float))
            if visits[place] > most:
                pair, most = int(policy[state]), float(visits[place])
    return pair


def longest(
    model: SSP, allowed: Bool[np.ndarray, "pairs"], states: Int[np.ndarray, "n"], pays: Float[np.ndarray, "n"]
) -> tuple[Float[np.ndarray, "n"], Int[np.ndarray, "states"]]:
    """The largest expected pay before a policy of allowed pairs leaves some states, and a policy that earns it.

    Args:
        model: the problem.
        allowed: pairs, at least one for each of the states, that hold no policy for ever.
        states: ascending.
        pays: what a visit to each of them pays.
    """
    pairs = np.flatnonzero(allowed & np.isin(model.pair_state, states))
    begin = np.searchsorted(model.pair_state[pairs], states)
    policy = np.zeros(model.n_states, dtype=np.int64)
    policy[states] = pairs[begin]
    while True:
        value = solve_chain(model, policy, states, pays)
        everywhere = np.zeros(model.n_states + 1)
        everywhere[states] = value
        ahead = np.add.reduceat(model.next_prob * everywhere[model.next_state], model.next_start[:-1])
        best = np.maximum.reduceat(ahead[pairs], begin)
        better = best > ahead[policy[states]] * (1.0 + 1e-9)
        if not better.any():
            return value, policy
        for state, top in zip(states[better], best[better], strict=True):
            own = pairs[model.pair_state[pairs] == state]
            policy[state] = own[np.argmax(ahead[own] == top)]
