"""Where to put the states of a problem on paper."""

from __future__ import annotations

import re

import numpy as np
from jaxtyping import Float

from bellmanifold.graph import state_graph
from bellmanifold.ssp import SSP

_CELL = re.compile(r"(\d+),(\d+)")


def positions(model: SSP) -> Float[np.ndarray, "states_and_goal 2"]:
    """Coordinates (x to the right, y up) of every state and, last, of the goal.

    Grids, whose states are named "row,col", are laid out by row and column; triangles (one cell in row 0, two in row
    1, ...) lean on their left edge as in the paper. The goal lies below them, or in the cell that the metadata call
    "goal_cell". Other problems are layered by the number of moves from the start.
    """
    if on_grid(model):
        cells = [_CELL.fullmatch(name) for name in model.states]
        place = np.array([[int(match[2]), -int(match[1])] for match in cells if match], dtype=np.float64)
        goal = _CELL.fullmatch(str(model.metadata.get("goal_cell")))
        below = [place[:, 0].mean(), place[:, 1].min() - 1.0]
        return np.vstack([place, [int(goal[2]), -int(goal[1])] if goal else below])
    return _layers(model)


def on_grid(model: SSP) -> bool:
    """Are all states named "row,col"?"""
    return all(_CELL.fullmatch(name) for name in model.states)


def _layers(model: SSP) -> Float[np.ndarray, "states_and_goal 2"]:
    graph = state_graph(model, np.ones(model.n_pairs, dtype=bool))
    depth = np.full(model.n_states + 1, -1)
    front = np.flatnonzero(model.initial)
    depth[front] = 0
    while len(front):
        ahead = np.unique(np.concatenate([graph.indices[graph.indptr[s] : graph.indptr[s + 1]] for s in front]))
        front_next = ahead[depth[ahead] < 0]
        depth[front_next] = depth[front].max() + 1
        front = front_next
    depth[depth < 0] = 0
    depth[-1] = depth.max() + (depth[:-1] == depth.max()).any()
    place = np.zeros((model.n_states + 1, 2))
    for level in np.unique(depth):
        members = np.flatnonzero(depth == level)
        place[members, 0] = level * 1.6
        place[members, 1] = (len(members) - 1) / 2 - np.arange(len(members))
    return place
