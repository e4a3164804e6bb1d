"""Deep sea swirl: a pyramid in which some moves lead sideways, so that improper policies exist.

Moves and rewards are the pyramid's moves with deep sea's rewards (+c left, -c right, a treasure of 1 for
right in the bottom-right cell), except for sideways moves, which pay -3c. In rows with row % 3 == 1, right
from col % 3 == 0 and left from col % 3 == 1 lead to each other: a loop. In rows with row % 3 == 2, right from
col % 3 == 0 and left from col % 3 == 2 lead to the cell between them. c is 0.15/depth.
"""

from __future__ import annotations

import math

from bellmanifold.envs.building import Move, cell, from_moves, require, require_depth, triangle
from bellmanifold.errors import require_numbers
from bellmanifold.ssp import SSP


def swirl(depth: int = 5, move_cost: float | None = None, action_seed: int | None = None) -> SSP:
    """The deep sea swirl problem.

    Args:
        depth: number of rows; improper policies exist from 2 on.
        move_cost: size of a downward move's reward; by default 0.15/depth.
        action_seed: draws the order of each state's two actions; by default left comes first.

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
