"""Backward induction: problems in which no state is revisited once left are solved by one sweep, last states first.

A move that leaves with probability c and otherwise stays is worth (reward + sum over other states) / c: it is repeated
until it leaves.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.mdp.graph import Policy, StateValues, all_pairs, levels, state_graph
from bellmanifold.mdp.linear import solve_chain
from bellmanifold.problem.ssp import SSP, row_entries

MANY = 100_000
"""Levels are computed level by level in problems with more successors than this, state by state in others."""
NARROW = 4
"""Problems with fewer states per level are swept state by state: calls for each level would take longer."""


def once_through(
    model: SSP, component: Int[np.ndarray, "states"], may_stay: bool
) -> tuple[StateValues, StateValues] | None:
    """Values by one sweep, and the gross reward of the greedy policy (`gross_of`); None if states are revisited.

    Strongly connected components are numbered in topological order; with `may_stay` self-loops are allowed.
    """
    if np.bincount(component).max() > 1:
        return None
    if not may_stay and (model.next_state == model.pair_state[model.next_pair]).any():
        return None
    order = np.argsort(component)
    level = levels(model, may_stay=True) if len(model.next_state) > MANY else _levels(model, order)
    assert level is not None, "components are single states"
    if len(order) < NARROW * level.max():
        value, policy = _sweep_one_by_one(model, order)
    else:
        value, policy = _sweep(model, level)
    return value, gross_of(model, policy, value)


def _levels(model: SSP, order: Int[np.ndarray, "states"]) -> Int[np.ndarray, "states"]:
    """The largest number of moves from each state to the goal, given an order in which moves lead to earlier states."""
    graph = state_graph(model, all_pairs(model))
    start, target = graph.indptr.tolist(), graph.indices.tolist()
    level = [0] * (model.n_states + 1)
    for state in order.tolist():
        most = 0
        for after in target[start[state] : start[state + 1]]:
            if level[after] >= most:  # its own level is still 0
                most = level[after] + 1
        level[state] = most
    return np.array(level[:-1])


def _sweep(model: SSP, level: Int[np.ndarray, "states"]) -> tuple[StateValues, Policy]:
    """Backward induction level by level, on a copy of the problem in which the states of a level are contiguous."""
    order = np.argsort(level, kind="stable")
    away, share = _moving_on(model)
    pairs, first = row_entries(model.pair_start, order)
    entries, start = row_entries(model.next_start, pairs)
    prob, landing = away[entries], model.next_state[entries]
    reward, share, value = model.reward[pairs], share[pairs], np.zeros(model.n_states + 1)
    q = np.empty(model.n_pairs)
    bounds = np.append(np.flatnonzero(np.diff(level[order], prepend=-1)), len(order))
    limits = zip(*(b.tolist() for b in (bounds, first[bounds], start[first[bounds]])), strict=True)
    low, low_pair, low_entry = next(limits)
    with np.errstate(divide="ignore"):  # a move that always stays is worth -inf
        for high, high_pair, high_entry in limits:
            ahead = prob[low_entry:high_entry] * value[landing[low_entry:high_entry]]
            own = q[low_pair:high_pair]
            np.add.reduceat(ahead, start[low_pair:high_pair] - low_entry, out=own)
            own += reward[low_pair:high_pair]
            own /= share[low_pair:high_pair]
            value[order[low:high]] = np.maximum.reduceat(own, first[low:high] - low_pair)
            low, low_pair, low_entry = high, high_pair, high_entry
    of_pair = np.empty(model.n_pairs)
    of_pair[pairs] = q
    return value[:-1], model.greedy(of_pair)


def _moving_on(model: SSP) -> tuple[Float[np.ndarray, "successors"], Float[np.ndarray, "pairs"]]:
    """Successor probabilities with self-loops set to 0, and the probability that each pair leaves its state."""
    stays = model.next_state == model.pair_state[model.next_pair]
    away = np.where(stays, 0.0, model.next_prob)
    share = np.ones(model.n_pairs)
    loops = model.next_pair[stays]
    share[loops] = np.add.reduceat(away, model.next_start[:-1])[loops]
    return away, share


def _sweep_one_by_one(model: SSP, order: Int[np.ndarray, "states"]) -> tuple[StateValues, Policy]:
    """Backward induction state by state."""
    away, share = _moving_on(model)
    moving = away > 0
    prob, landing = away[moving].tolist(), model.next_state[moving].tolist()
    begin = np.append(0, np.cumsum(moving))[model.next_start].tolist()
    reward, pair_start, shares = model.reward.tolist(), model.pair_start.tolist(), share.tolist()
    value, best = [0.0] * (model.n_states + 1), [0] * model.n_states
    for state in order.tolist():
        most = -math.inf
        for pair in range(pair_start[state], pair_start[state + 1]):
            low, high = begin[pair], begin[pair + 1]
            if low == high:
                continue  # it always stays
            q = reward[pair]
            for chance, after in zip(prob[low:high], landing[low:high], strict=True):
                q += chance * value[after]
            if shares[pair] != 1.0:
                q /= shares[pair]
            if q > most:
                most, best[state] = q, pair
        value[state] = most
    return np.array(value[:-1]), np.array(best)


def gross_of(model: SSP, policy: Policy, value: StateValues) -> StateValues:
    """The expected total of |reward| under a policy, given its value."""
    reward = model.reward[policy]
    if reward.max() <= 0 or reward.min() >= 0:
        return np.abs(value)
    return solve_chain(model, policy, np.arange(model.n_states), np.abs(reward))
