"""Deep sea: a triangle with a small reward for going left and a treasure at the far right.

Cells (row, col), 0 <= col <= row < depth; every move goes one row down and leaving the last row ends the
episode. In the paper's convention left goes to (row + 1, max(col - 1, 0)) and pays +c, right goes to
(row + 1, col + 1) and pays -c, and right in the bottom-right cell pays 1 more; c is 0.15/depth unless
given. With `slip`, the other action's transition happens with that probability, except in the last row;
the reward stays that of the chosen action.

bsuite's convention (Osband et al. 2020) differs: left pays 0, right pays -0.01/depth; in its stochastic
variant the move right fails with probability 1/depth and drops straight down, and the rewards of the
last row's first and last column carry N(0, 1) noise.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from bellmanifold.envs.building import Move, cell, from_moves, require, require_depth, triangle
from bellmanifold.errors import quote, require_flags, require_numbers
from bellmanifold.ssp import SSP


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
        slip: probability that the other action's move happens (paper's convention).
        move_cost: size of a move's reward; by default 0.15/depth, or 0.01/depth in bsuite's convention.
        convention: "paper" or "bsuite".
        stochastic: bsuite's stochastic variant (bsuite's convention).
        action_seed: draws the order of each state's two actions; by default left comes first.

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
