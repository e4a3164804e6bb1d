"""Dead ends: states from which no policy is sure to reach the goal, left out with the moves that may lead there.

Let K be a set of states and M a set of moves. The largest pair (K, M) such that every move of M leads to K or the goal
only, every state of K has a move in M, and every state of K can reach the goal by moves of M, is found by dropping what
violates this until nothing does: states that cannot reach the goal, moves that may lead to a dropped state, states that
lost their last move. It is unique, since the union of two such pairs is another one, and K consists of the states that
reach the goal with probability 1 under some policy (`graph.reach_goal`).

A move whose law is open may lead anywhere, also to the goal: it counts as a way there and is kept.

A state that has no move at all is a dead end, too. Files and tables may name such states as successors;
`bellmanifold.problem.builder` gives each a loop, builds the problem, and takes them out again by `without_loops`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Bool

from bellmanifold.errors import BadInputError, quote
from bellmanifold.mdp.graph import cascade, reach_goal
from bellmanifold.problem.description import Dropped
from bellmanifold.problem.ssp import SSP, require_problem


def pruned(model: SSP) -> SSP:
    """The problem without dead ends: states that cannot be sure to reach the goal, and moves that may lead there.

    The result's `dropped` holds the names of what was dropped, and its `repr` counts them. A data set for it leaves out
    observations of dropped pairs and counts them (`Dataset.left_out`); data of the whole problem are taken over by
    `Dataset.from_pairs(result, data.to_frame())`. Moves whose law is open are kept: they may lead anywhere. A problem
    without dead ends is returned unchanged.

    Raises:
        BadInputError: if an episode may start in a dead end.

    >>> from bellmanifold import Move, from_moves
    >>> moves = {("a", "on"): Move(-1.0, {"goal": 1.0}), ("a", "jump"): Move(0.0, {"pit": 1.0})}
    >>> pruned(from_moves("pit", moves | {("pit", "wait"): Move(-1.0, {"pit": 1.0})}, start="a"))
    SSP("pit", 1 state, 1 pair, without 1 dead end and 2 moves)
    """
    require_problem(model)
    closed = model.closed_at_goal()
    arrives, _ = reach_goal(closed)
    if arrives.all():
        return model
    _check_start(model, arrives)
    safe = closed.over_successors(np.logical_and, np.append(arrives, True)[closed.next_state], False)
    return _restricted(model, arrives[model.pair_state] & safe)


def without_loops(model: SSP, loops: Bool[np.ndarray, "pairs"]) -> SSP:
    """The problem without states that have nothing but these loops, moves that may lead there, and so on."""
    keep = ~loops
    cascade(model, keep, np.zeros(model.n_states, dtype=bool))
    _check_start(model, np.bincount(model.pair_state[keep], minlength=model.n_states) > 0)
    return _restricted(model, keep, loops)


def _check_start(model: SSP, lives: Bool[np.ndarray, "states"]) -> None:
    """Raise if a dead end is a start."""
    dead = np.flatnonzero((model.initial > 0) & ~lives)
    if len(dead):
        raise BadInputError(
            f"the start {quote(model.states[dead[0]])} is a dead end, too: no policy is sure to reach the goal from "
            "there, so that nothing is left without dead ends; give it a way that cannot miss the goal"
        )


def _restricted(model: SSP, keep: Bool[np.ndarray, "pairs"], unnamed: Bool[np.ndarray, "pairs"] | None = None) -> SSP:
    """The problem with the pairs to keep; it says what was dropped, except for pairs that are `unnamed`."""
    left = model.subproblem(keep)
    gone = ~keep if unnamed is None else ~keep & ~unnamed
    dropped = Dropped(
        states=tuple(name for name in model.states if name not in left.state_index),
        pairs=tuple(model.pair_name(pair) for pair in np.flatnonzero(gone)),
    )
    return replace(left, dropped=model.dropped + dropped, metadata=_without_places(dict(model.metadata), dropped))


def _without_places(metadata: dict[str, Any], dropped: Dropped) -> dict[str, Any]:
    """The metadata without the positions of states that were dropped."""
    places = metadata.get("positions")
    if not isinstance(places, dict):
        return metadata
    return metadata | {"positions": {name: place for name, place in places.items() if name not in dropped.states}}
