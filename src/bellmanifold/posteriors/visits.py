"""Rarely left loops: the largest expected number of visits to a state before a policy leaves a set of pairs.

`bellmanifold.posteriors.cuts` explains why that matters. It is the optimum of a small shortest path problem that pays 1
per visit; it is finite if no policy stays forever, and found by policy iteration within each component.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import breadth_first_order, connected_components

from bellmanifold.mdp.graph import state_graph
from bellmanifold.mdp.linear import solve_chain
from bellmanifold.problem.ssp import SSP

MOST_VISITS = 200.0
"""Loops with more expected visits than this are treated as if they were closed."""


@dataclass(frozen=True, eq=False)
class Lingering:
    """A way to stay long: the pair visited most often, the states its policy can reach, and its pairs there."""

    pair: int
    states: Int[np.ndarray, "loop"]
    pairs: Int[np.ndarray, "played"]


def without_rare_moves(model: SSP, factor: float = MOST_VISITS) -> SSP:
    """The problem without moves that are less probable by this factor than the likeliest of their pair."""
    likeliest = np.maximum.reduceat(model.next_prob, model.next_start[:-1])
    keep = model.next_prob * factor >= likeliest[model.next_pair]
    pair, probability = model.next_pair[keep], model.next_prob[keep]
    return replace(
        model,
        next_start=np.append(0, np.cumsum(np.bincount(pair, minlength=model.n_pairs))),
        next_state=model.next_state[keep],
        next_prob=probability / np.bincount(pair, probability)[pair],
    )


def most_visited(model: SSP, allowed: Bool[np.ndarray, "pairs"], most: float = MOST_VISITS) -> Lingering | None:
    """The pair that a policy of allowed pairs, started in its state, visits most often; None if at most `most` times.

    No policy of allowed pairs may stay forever.
    """
    if np.all(model.next_prob == 1.0):  # then no state is visited twice
        return None
    _, label = connected_components(state_graph(model, allowed), connection="strong")
    own = label[model.pair_state[model.next_pair]]
    stays = np.zeros(model.n_pairs, dtype=bool)
    stays[model.next_pair[label[model.next_state] == own]] = True
    stays &= allowed
    found = None
    for number in np.unique(label[model.pair_state[stays]]):
        states = np.flatnonzero(label[:-1] == number)
        steps, _ = longest(model, stays, states, np.ones(len(states)))
        if steps.max() <= most:  # no state is visited more often than all of them together
            continue
        for place, state in enumerate(states):
            visits, policy = longest(model, stays, states, (states == state).astype(float))
            if visits[place] > most:
                most = float(visits[place])
                played = state_graph(model, np.isin(np.arange(model.n_pairs), policy[states]))
                met = np.intersect1d(breadth_first_order(played, int(state))[0], states)
                found = Lingering(int(policy[state]), met, policy[met])
    return found


def longest(
    model: SSP, allowed: Bool[np.ndarray, "pairs"], states: Int[np.ndarray, "n"], pays: Float[np.ndarray, "n"]
) -> tuple[Float[np.ndarray, "n"], Int[np.ndarray, "states"]]:
    """The largest expected pay before a policy of allowed pairs leaves some states, and a policy that earns it.

    `pays` is the pay per visit of each of the states, in ascending order. Each has an allowed pair, and no policy of
    allowed pairs may stay forever.
    """
    own = allowed & np.isin(model.pair_state, states)
    policy = model.greedy(np.where(own, 0.0, -np.inf))
    everywhere = np.zeros(model.n_states)
    while True:
        value = everywhere[states] = solve_chain(model, policy, states, pays)
        ahead = np.where(own, model.expected_next(everywhere), -np.inf)
        better = states[model.best(ahead)[states] > ahead[policy[states]] * (1.0 + 1e-9)]
        if not len(better):
            return value, policy
        policy[better] = model.greedy(ahead)[better]
