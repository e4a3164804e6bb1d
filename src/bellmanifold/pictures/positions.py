"""Layout of a problem's states in pictures."""

from __future__ import annotations

import re

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse.csgraph import dijkstra

from bellmanifold.mdp.graph import state_graph
from bellmanifold.problem.maps import places
from bellmanifold.problem.ssp import SSP

NEIGHBOURS, LEAST_GAP, MOST_STRETCH = 1.4, 0.7, 2.0
"""Median and minimal distance between neighbours on a map, and the largest stretch to achieve the minimum."""
_CELL = re.compile(r"(0|[1-9][0-9]{0,5}),(0|[1-9][0-9]{0,5})")
_NUMBER = re.compile(r"[0-9]{1,9}")


def positions(model: SSP) -> Float[np.ndarray, "states_and_goal 2"]:
    """Coordinates (x to the right, y up) of every state and, last, of the goal.

    A map (`metadata["positions"]`, a position for every state and optionally the goal) is used as given, up to scale.
    Grids (`on_grid`) are laid out by row and column. Triangles (one cell in row 0, two in row 1, ...) are aligned at
    their left edge, or centred if moves lead down to either side, as in the paper. The goal is below the grid, or in
    the cell `metadata["goal_cell"]`. Other problems are layered by the number of moves from the start.
    """
    mapped = _stated_positions(model)
    if mapped is not None:
        return mapped
    if on_grid(model):
        cells = _cells(model)
        place = _on_paper(model, cells)
        goal = _CELL.fullmatch(str(model.metadata.get("goal_cell")))
        below = [place[:, 0].mean(), place[:, 1].min() - 1.0]
        return np.vstack([place, [int(goal[2]), -int(goal[1])] if goal else below])
    return _layers(model)


def landings(model: SSP) -> Float[np.ndarray, "successors 2"]:
    """Position at which the arrow of each successor entry of each pair ends.

    This is the successor's position, except that triangles spread the goal over a row of cells below the last one: a
    pair that reaches the goal lands in the cell its action would lead to if there were another row.
    """
    place = positions(model)[model.next_state]
    if not is_triangle(model):
        return place
    cells, ends = _cells(model), model.next_state == model.n_states
    pair = model.next_pair
    source = cells[model.pair_state[pair]]
    shift = _shifts(model)[model.pair_action[pair]]
    below = np.column_stack([source[:, 0] + 1, np.maximum(source[:, 1] + shift, 0)])
    return np.where(ends[:, None], _on_paper(model, below), place)


def on_grid(model: SSP) -> bool:
    """Whether all states are named "row,col", or numbered row by row in a "grid": [rows, columns] of the metadata.

    False if the metadata contain a map.
    """
    if is_mapped(model):
        return False
    if all(_CELL.fullmatch(name) for name in model.states):
        return True
    rows, columns = _size(model)
    return all(_NUMBER.fullmatch(name) and int(name) < rows * columns for name in model.states)


def is_mapped(model: SSP) -> bool:
    """Whether the metadata give a position for every state."""
    return places(model) is not None


def _stated_positions(model: SSP) -> Float[np.ndarray, "states_and_goal 2"] | None:
    """Positions from the metadata, scaled to leave room for arrows between neighbours; None if there is no map."""
    given = places(model)
    if given is None:
        return None
    from scipy.spatial import cKDTree  # slow to import, and only maps need it

    goal = [name for name in model.goals if name in given][:1]
    place = np.array([given[name] for name in (*model.states, *goal)], dtype=np.float64)
    place = place / max(1e-9, float(np.abs(place[: model.n_states]).max()))
    nearest = np.asarray(cKDTree(place).query(place, k=min(2, len(place)))[0]).reshape(len(place), -1)[:, -1]
    usual, least = float(np.median(nearest)), float(nearest.min())
    scale = NEIGHBOURS / max(usual, 1e-9) if usual > 0 else 1.0
    scale *= float(np.clip(LEAST_GAP / max(least * scale, 1e-9), 1.0, MOST_STRETCH))
    place = scale * place
    beside = [place[:, 0].max() + NEIGHBOURS, place[:, 1].mean()]
    return place if goal else np.vstack([place, beside])


def _size(model: SSP) -> tuple[int, int]:
    """Rows and columns according to the metadata; 0, 0 if absent."""
    given = model.metadata.get("grid")
    if not isinstance(given, list) or len(given) != 2 or not all(type(part) is int and part > 0 for part in given):
        return 0, 0
    return given[0], given[1]


def is_triangle(model: SSP) -> bool:
    """Whether the states form rows of 1, 2, 3, ... cells."""
    if not on_grid(model) or "goal_cell" in model.metadata:
        return False
    rows = max(int(row) for row, _ in _cells(model)) + 1
    if model.n_states != rows * (rows + 1) // 2:  # a single distant cell must not create a huge triangle below
        return False
    return set(model.states) == {f"{row},{col}" for row in range(rows) for col in range(row + 1)}


def _cells(model: SSP) -> Int[np.ndarray, "states 2"]:
    """Row and column of every state."""
    if _CELL.fullmatch(model.states[0]):
        return np.array([[int(part) for part in name.split(",")] for name in model.states])
    return np.array([divmod(int(name), _size(model)[1]) for name in model.states])


def _on_paper(model: SSP, cells: Int[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
    """Coordinates of cells."""
    row, col = cells.astype(np.float64).T
    centred = is_triangle(model) and set(_shifts(model).tolist()) == {0, 1}
    return np.column_stack([col - row / 2 if centred else col, -row])


def _shifts(model: SSP) -> Int[np.ndarray, "actions"]:
    """The largest column shift of each action among moves whose likeliest successor lies one row below."""
    row, column = np.append(_cells(model), [[-1, 0]], axis=0).T
    pair, source = model.next_pair, model.pair_state[model.next_pair]
    likeliest = model.next_prob >= model.over_successors(np.maximum, model.next_prob, 0.0)[pair]
    shift = np.zeros(len(model.actions), dtype=np.int64)
    for entry in np.flatnonzero(likeliest & (row[model.next_state] == row[source] + 1)):
        action, by = model.pair_action[pair[entry]], column[model.next_state[entry]] - column[source[entry]]
        shift[action] = by if abs(by) > abs(shift[action]) else shift[action]
    return shift


def _layers(model: SSP) -> Float[np.ndarray, "states_and_goal 2"]:
    graph = state_graph(model, np.ones(model.n_pairs, dtype=bool))
    moves = dijkstra(graph, indices=np.flatnonzero(model.initial), unweighted=True, min_only=True)
    depth = np.where(np.isfinite(moves), moves, 0.0)
    depth[-1] = depth.max() + (depth[:-1] == depth.max()).any()
    place = np.zeros((model.n_states + 1, 2))
    for level in np.unique(depth):
        members = np.flatnonzero(depth == level)
        place[members, 0] = level * 1.6
        place[members, 1] = (len(members) - 1) / 2 - np.arange(len(members))
    return place
