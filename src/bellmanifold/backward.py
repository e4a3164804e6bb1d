"""Backward induction: problems in which no state is met again once left are solved by one sweep, the last states first.

A move that leaves with probability c and stays otherwise is worth (reward + sum over other states) / c: it is tried
until it leaves.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.components import NARROW
from bellmanifold.graph import Policy, last_first, levels
from bellmanifold.linear import solve_chain
from bellmanifold.ssp import SSP, row_entries

BY_LEVEL = 100_000
"""Problems with more successors are swept level by level, if levels are not narrow; others state by state."""


def once_through(model: SSP, may_stay: bool) -> tuple[Float[np.ndarray, "states"], Float[np.ndarray, "states"]] | None:
    """Values by one sweep, and what the greedy policy collects in all (`gross_of`); None where states are met again.

    Args:
        model: the problem.
        may_stay: whether a move may lead to the own state.
    """
    if len(model.next_state) > BY_LEVEL:
        level = levels(model, may_stay=may_stay)
        return None if level is None else _sweep(model, level)
    order = last_first(model, may_stay)
    return None if order is None else _sweep_one_by_one(model, order)


def _sweep(
    model: SSP, level: Int[np.ndarray, "states"]
) -> tuple[Float[np.ndarray, "states"], Float[np.ndarray, "states"]]:
    """Backward induction, level by level."""
    order = np.argsort(level, kind="stable")
    bounds = np.flatnonzero(np.diff(level[order])) + 1
    if len(order) < NARROW * len(bounds):
        return _sweep_one_by_one(model, order)
    value, gross = np.zeros((2, model.n_states + 1))
    away, share = _moving_on(model)
    for states in np.split(order, bounds):
        pairs, first = row_entries(model.pair_start, states)
        entries, start = row_entries(model.next_start, pairs)
        prob, landing = away[entries], model.next_state[entries]
        with np.errstate(divide="ignore"):  # a move that always stays is worth -inf
            q = (model.reward[pairs] + np.add.reduceat(prob * value[landing], start[:-1])) / share[pairs]
            gross_q = (np.abs(model.reward[pairs]) + np.add.reduceat(prob * gross[landing], start[:-1])) / share[pairs]
        value[states] = np.maximum.reduceat(q, first[:-1])
        taken = q == np.repeat(value[states], np.diff(first))
        gross[states] = np.maximum.reduceat(np.where(taken, gross_q, 0.0), first[:-1])
    return value[:-1], gross[:-1]


def _moving_on(model: SSP) -> tuple[Float[np.ndarray, "successors"], Float[np.ndarray, "pairs"]]:
    """Probabilities of successors other than the own state, 0 for that, and what they are together for each pair."""
    stays = model.next_state == model.pair_state[model.next_pair]
    away = np.where(stays, 0.0, model.next_prob)
    share = np.ones(model.n_pairs)
    loops = model.next_pair[stays]
    share[loops] = np.add.reduceat(away, model.next_start[:-1])[loops]
    return away, share


def _sweep_one_by_one(
    model: SSP, order: Int[np.ndarray, "states"]
) -> tuple[Float[np.ndarray, "states"], Float[np.ndarray, "states"]]:
    """The same, state by state: a call for each of many levels of a few states would take longer."""
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
    found = np.array(value[:-1])
    return found, gross_of(model, np.array(best), found)


def gross_of(model: SSP, policy: Policy, value: Float[np.ndarray, "states"]) -> Float[np.ndarray, "states"]:
    """What a policy collects in all, every reward taken as positive, given its value."""
    reward = model.reward[policy]
    if reward.max() <= 0 or reward.min() >= 0:
        return np.abs(value)
    return solve_chain(model, policy, np.arange(model.n_states), np.abs(reward))
