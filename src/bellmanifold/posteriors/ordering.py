"""Which pairs of a large problem to show first: those on the way that is probably optimal, then doubtful ones."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.ssp import SSP


def on_the_way(model: SSP, played: Bool[np.ndarray, "pairs"]) -> Int[np.ndarray, "states"]:
    """How many moves from the start playing these pairs takes to each state; n_states where it does not come."""
    moves = np.full(model.n_states + 1, model.n_states)
    front, count = np.flatnonzero(model.initial), 0
    while len(front):
        moves[front] = count
        leads = model.next_state[(played & np.isin(model.pair_state, front))[model.next_pair]]
        front = np.unique(leads[(leads < model.n_states) & (moves[leads] == model.n_states)])
        count += 1
    return moves[:-1]


def by_doubt(
    model: SSP, probability: Float[np.ndarray, "pairs"], touched: Bool[np.ndarray, "states"]
) -> Int[np.ndarray, "pairs"]:
    """All pairs, those that matter most first.

    The states that the most probable actions lead through come first, nearest to the start first, then those that the
    data touch, where the best action is least certain first, then the others; in each state its most probable action.
    """
    best = np.maximum.reduceat(probability, model.pair_start[:-1])
    moves = on_the_way(model, probability >= best[model.pair_state])
    doubt = np.where(moves < model.n_states, 0.0, np.where(touched, best, 2.0))
    state = model.pair_state
    return np.lexsort((-probability, state, doubt[state], moves[state]))
