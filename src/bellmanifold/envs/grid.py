"""A slippery grid world: walk from one cell to another around walls.

There are four moves, `up`, `down`, `left` and `right`, each paying -move_cost. With probability `slip` a move goes
sideways instead, to either side with equal probability. A move into a wall or off the grid stays in its cell. Cells
that cannot be reached from the start are left out.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool

from bellmanifold._util.limits import SIZE
from bellmanifold.envs.building import GOAL, with_action_order
from bellmanifold.errors import BadInputError, quote, require, require_count, require_numbers
from bellmanifold.problem.builder import assemble
from bellmanifold.problem.ssp import SSP, Description

_MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
_SIDEWAYS = {"up": ("left", "right"), "down": ("left", "right"), "left": ("up", "down"), "right": ("up", "down")}


def grid(
    rows: int = 5,
    columns: int = 5,
    slip: float = 0.0,
    move_cost: float = 1.0,
    walls: str = "",
    start: str = "0,0",
    goal: str | None = None,
    action_seed: int | None = None,
) -> SSP:
    """A slippery grid world.

    Args:
        rows, columns: size of the grid.
        slip: probability that a move goes sideways.
        move_cost: cost of every move.
        walls: cells that cannot be entered, as "1,1;2,3".
        start: the cell in which episodes start.
        goal: the cell in which episodes end; the bottom-right one by default.
        action_seed: seed for a random order of each state's actions; by default up, down, left, right.

    >>> grid(rows=3, columns=3, walls="1,1")
    SSP("grid-3x3", 7 states, 28 pairs)
    """
    require_count(rows=rows, columns=columns)
    require_numbers(slip=slip, move_cost=move_cost)
    require(rows >= 1, f"rows is {rows}: it must be at least 1")
    require(columns >= 1, f"columns is {columns}: it must be at least 1")
    require(0.0 <= slip <= 1.0, f"slip is {slip}: it must lie in [0, 1]")
    SIZE.require(len(_MOVES) * rows * columns * (4 if slip > 0.0 else 2), "rows times columns")
    require(math.isfinite(move_cost), f"move_cost is {move_cost}: give a finite number")
    size = (rows, columns)
    free = np.ones(size, dtype=bool)
    for wall in filter(None, walls.split(";")):
        free[_cell(wall, "walls", size)] = False
    first = _cell(start, "start", size)
    last = _cell(goal, "goal", size) if goal is not None else (rows - 1, columns - 1)
    require(bool(free[first]), f"start is {quote(start)}: a wall stands there")
    require(bool(free[last]), "goal: a wall stands there")
    require(first != last, "start is the goal: choose two cells")

    model = assemble(_describe(free, first, last, slip, float(move_cost)))
    return model if action_seed is None else with_action_order(model, action_seed)


def _describe(
    free: Bool[np.ndarray, "rows columns"], first: tuple[int, int], last: tuple[int, int], slip: float, move_cost: float
) -> Description:
    """The grid as arrays: states row by row, the actions of each state, and the possible outcomes of each action."""
    states = np.argwhere(_reachable(free, first, last))
    number = np.full(free.shape, -1, dtype=np.int32)
    number[tuple(states.T)] = np.arange(len(states))
    number[last] = len(states)
    actions, ways = list(_MOVES), 3 if slip > 0.0 else 1
    lands = {action: number[_landing(free, states, action)] for action in actions}
    aside = {action: dict.fromkeys(_SIDEWAYS[action][: ways - 1], slip / 2) for action in actions}
    weights = {action: {action: 1.0 - slip, **aside[action]} for action in actions}
    pairs = len(actions) * len(states)
    return Description(
        state_names=[*(f"{row},{col}" for row, col in zip(*states.T.tolist(), strict=True)), GOAL],
        action_names=actions,
        goals=[len(states)],
        initial_state=[int(number[first])],
        initial_prob=[1.0],
        pair_state=np.repeat(np.arange(len(states), dtype=np.int32), len(actions)),
        pair_action=np.tile(np.arange(len(actions), dtype=np.int32), len(states)),
        reward=np.full(pairs, -move_cost),
        next_start=np.arange(0, pairs * ways + 1, ways, dtype=np.int32),
        next_state=np.stack([lands[way] for a in actions for way in weights[a]], axis=1).ravel(),
        next_prob=np.tile([chance for a in actions for chance in weights[a].values()], len(states)),
        name=f"grid-{free.shape[0]}x{free.shape[1]}",
        metadata={"goal_cell": f"{last[0]},{last[1]}"},
    )


def _cell(text: str, what: str, size: tuple[int, int]) -> tuple[int, int]:
    try:
        row, col = (int(part) for part in text.split(","))
    except ValueError:
        raise BadInputError(f"{what}: {quote(text)} is not a cell: write row,column as in 1,2") from None
    if not (0 <= row < size[0] and 0 <= col < size[1]):
        raise BadInputError(f"{what}: cell {quote(text)} lies outside the {size[0]} x {size[1]} grid")
    return row, col


def _reachable(free: Bool[np.ndarray, "rows columns"], first: tuple[int, int], last: tuple[int, int]) -> np.ndarray:
    """Cells that can be reached from the start; episodes end at the goal, so no path leads through it."""
    from scipy.ndimage import label as connected_areas  # slow to import, and only grids need it

    open_cells = free.copy()
    open_cells[last] = False
    areas, _ = connected_areas(open_cells)
    return np.asarray(areas == areas[first])


def _landing(free: Bool[np.ndarray, "rows columns"], states: np.ndarray, action: str) -> tuple[np.ndarray, np.ndarray]:
    """The cell in which a move from each state ends: the neighbour, or the same cell at a wall or an edge."""
    target = states + np.array(_MOVES[action])
    inside = np.all((target >= 0) & (target < np.array(free.shape)), axis=1)
    clipped = np.clip(target, 0, np.array(free.shape) - 1)
    enters = inside & free[tuple(clipped.T)]
    row, col = np.where(enters[:, None], target, states).T
    return row, col
