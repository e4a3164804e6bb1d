"""Deep sea and its relatives: triangles of cells in which every state has the actions left and right.

Cells are pairs (row, col), 0 <= col <= row < depth; leaving the last row ends the episode.

**Deep sea** has a small reward for going left and a treasure at the far right. Every move goes one row down. In the
paper's convention left goes to (row + 1, max(col - 1, 0)) and pays +c, right goes to (row + 1, col + 1) and pays -c,
and right in the bottom-right cell pays 1 more; c is 0.15/depth unless given. With probability `slip`, except in the
last row, the other action's transition happens instead; the reward is still that of the chosen action.

bsuite's convention (Osband et al. 2020) differs: left pays 0, right pays -0.01/depth; in its stochastic variant the
move right fails with probability 1/depth and goes straight down, and the rewards in the first and last cells of the
last row have N(0, 1) noise.

**Pyramid**: every route along the central axis is optimal. Left goes to (row + 1, col), right to (row + 1, col + 1).
Moves to or from a cell on the central axis (col = row/2 in even rows) pay 1/depth and all others 0, so the optimal
routes earn 1, and there are several of them: eight at depth 5.

**Swirl**: some moves lead sideways, so improper policies exist. It combines the pyramid's moves with deep sea's
rewards (+c left, -c right, a treasure of 1 for right in the bottom-right cell), except for sideways moves,
which pay -3c. In rows with row % 3 == 1, right from col % 3 == 0 and left from col % 3 == 1 lead to each other: a loop.
In rows with row % 3 == 2, right from col % 3 == 0 and left from col % 3 == 2 lead to the cell between them. c is
0.15/depth unless given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from bellmanifold._util.limits import SIZE
from bellmanifold.envs.building import GOAL, Move, from_moves
from bellmanifold.errors import quote, require, require_count, require_flags, require_numbers
from bellmanifold.problem.ssp import SSP


def deep_sea(
    depth: int = 5,
    slip: float = 0.0,
    move_cost: float | None = None,
    convention: Literal["paper", "bsuite"] = "paper",
    stochastic: bool = False,
    action_seed: int | None = None,
) -> SSP:
    """The deep sea problem.

    Args:
        depth: number of rows.
        slip: probability that the other action's move happens (paper's convention only).
        move_cost: size of a move's reward; by default 0.15/depth, or 0.01/depth in bsuite's convention.
        convention: "paper" or "bsuite".
        stochastic: whether to use bsuite's stochastic variant (bsuite's convention only).
        action_seed: seed for a random order of each state's two actions; by default left comes first.

    >>> deep_sea(depth=3)
    SSP("deep-sea-3", 6 states, 12 pairs)
    """
    require_depth(depth)
    require_numbers(slip=slip, move_cost=move_cost)
    require_flags(stochastic=stochastic)
    require(convention in ("paper", "bsuite"), f"convention is {quote(convention)}: choose from paper, bsuite")
    bsuite = convention == "bsuite"
    require(0.0 <= slip <= 1.0, f"slip is {slip}: it must lie in [0, 1]")
    require(not (bsuite and slip > 0), "slip belongs to the paper's convention: use stochastic=true for bsuite's")
    require(bsuite or not stochastic, "stochastic belongs to convention=bsuite: use slip in the paper's")
    cost = (0.01 if bsuite else 0.15) / depth if move_cost is None else move_cost
    require(math.isfinite(cost), f"move_cost is {move_cost}: give a finite number")

    def move(row: int, col: int, action: str) -> Move:
        last, corner = row == depth - 1, row == col == depth - 1
        treasure = 1.0 if corner and action == "right" else 0.0
        left, right = cell(row + 1, max(col - 1, 0), depth), cell(row + 1, col + 1, depth)
        if bsuite:
            noise = 1.0 if stochastic and last and col in (0, depth - 1) else 0.0
            if action == "left":
                return Move(0.0, {left: 1.0}, noise)
            stay = 1.0 / depth if stochastic and not last else 0.0
            down = cell(row + 1, col, depth)
            return Move(treasure - cost, {right: 1.0 - stay, down: stay} if stay else {right: 1.0}, noise)
        wanted, other = (left, right) if action == "left" else (right, left)
        reward = cost if action == "left" else treasure - cost
        return Move(reward, {wanted: 1.0 - slip, other: slip} if slip and not last else {wanted: 1.0})

    model = from_moves(f"deep-sea-{depth}", triangle(depth, move), start=cell(0, 0), action_seed=action_seed)
    return replace(model, metadata={"bsuite": "deep_sea"}) if bsuite else model


def pyramid(depth: int = 5, action_seed: int | None = None) -> SSP:
    """The deep sea pyramid problem.

    Args:
        depth: number of rows.
        action_seed: seed for a random order of each state's two actions; by default left comes first.

    >>> pyramid(depth=3)
    SSP("pyramid-3", 6 states, 12 pairs)
    """

    def move(row: int, col: int, action: str) -> Move:
        step = 0 if action == "left" else 1
        on_axis = 2 * col == row or 2 * (col + step) == row + 1
        return Move(1.0 / depth if on_axis else 0.0, {cell(row + 1, col + step, depth): 1.0})

    return from_moves(f"pyramid-{depth}", triangle(depth, move), start=cell(0, 0), action_seed=action_seed)


def swirl(depth: int = 5, move_cost: float | None = None, action_seed: int | None = None) -> SSP:
    """The deep sea swirl problem.

    Args:
        depth: number of rows; improper policies exist if there are at least 2.
        move_cost: size of a downward move's reward; by default 0.15/depth.
        action_seed: seed for a random order of each state's two actions; by default left comes first.

    >>> swirl(depth=3)
    SSP("swirl-3", 6 states, 12 pairs)
    """
    require_depth(depth)
    require_numbers(move_cost=move_cost)
    cost = 0.15 / depth if move_cost is None else move_cost
    require(math.isfinite(cost), f"move_cost is {move_cost}: give a finite number")
    sideways_left = {1: 1, 2: 2}  # row % 3 -> the col % 3 whose left move is sideways

    def move(row: int, col: int, action: str) -> Move:
        kind = row % 3
        if kind in sideways_left:
            if action == "right" and col % 3 == 0:
                return Move(-3 * cost, {cell(row, col + 1): 1.0})
            if action == "left" and col % 3 == sideways_left[kind]:
                return Move(-3 * cost, {cell(row, col - 1): 1.0})
        if action == "left":
            return Move(cost, {cell(row + 1, col, depth): 1.0})
        treasure = 1.0 if row == col == depth - 1 else 0.0
        return Move(treasure - cost, {cell(row + 1, col + 1, depth): 1.0})

    return from_moves(f"swirl-{depth}", triangle(depth, move), start=cell(0, 0), action_seed=action_seed)


def triangle(depth: int, move: Callable[[int, int, str], Move]) -> dict[tuple[str, str], Move]:
    """The moves of a triangle of cells (row, col), 0 <= col <= row < depth, with actions left and right."""
    require_depth(depth)
    SIZE.require(2 * depth * (depth + 1), "depth")
    return {
        (cell(row, col), action): move(row, col, action)
        for row in range(depth)
        for col in range(row + 1)
        for action in ("left", "right")
    }


def require_depth(depth: int) -> None:
    """Raise unless the depth is a positive integer."""
    require_count(depth=depth)
    require(depth >= 1, f"depth is {depth}: it must be at least 1")


def cell(row: int, col: int, depth: int | None = None) -> str:
    """The name of a cell, or of the goal if the row lies below the last one."""
    return GOAL if depth is not None and row >= depth else f"{row},{col}"
