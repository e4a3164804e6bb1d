"""Two problems small enough to solve by hand."""

from __future__ import annotations

from bellmanifold.envs.building import Move, from_moves
from bellmanifold.problem.ssp import SSP


def two_state() -> SSP:
    """Example 1 of the paper: stay (pays -1) or go to the goal (pays -1). Staying forever is improper.

    >>> two_state().reward
    array([-1., -1.])
    """
    moves = {("s1", "stay"): Move(-1.0, {"s1": 1.0}), ("s1", "go"): Move(-1.0, {"goal": 1.0})}
    return from_moves("two-state", moves, start="s1")


def four_state() -> SSP:
    """Four states in a row, the last of which is the goal; the routes 1-2-3-4 and 1-2-4 are both optimal, at -4.

    >>> four_state().n_pairs
    5
    """
    moves = {
        ("1", "to-2"): Move(-2.0, {"2": 1.0}),
        ("1", "to-3"): Move(-4.0, {"3": 1.0}),
        ("2", "to-3"): Move(-1.0, {"3": 1.0}),
        ("2", "to-4"): Move(-2.0, {"4": 1.0}),
        ("3", "to-4"): Move(-1.0, {"4": 1.0}),
    }
    return from_moves("four-state", moves, start="1", goal="4")
