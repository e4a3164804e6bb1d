"""Deep sea pyramid: a triangle in which everything that keeps to the central axis is optimal.

Left goes to (row + 1, col), right to (row + 1, col + 1). Moves to or from a cell on the central axis (col =
row/2 in even rows) pay 1/depth, all others nothing, so that the best routes collect 1 and there are several
of them: eight at depth 5.
"""

from __future__ import annotations

from bellmanifold.envs.building import Move, cell, from_moves, triangle
from bellmanifold.ssp import SSP


def pyramid(depth: int = 5, action_seed: int | None = None) -> SSP:
    """The deep sea pyramid problem.

    Args:
        depth: number of rows.
        action_seed: draws the order of each state's two actions; by default left comes first.

    >>> pyramid(depth=3)
    SSP("pyramid-3", 6 states, 12 pairs)
    """

    def move(row: int, col: int, action: str) -> Move:
        step = 0 if action == "left" else 1
        on_axis = 2 * col == row or 2 * (col + step) == row + 1
        return Move(1.0 / depth if on_axis else 0.0, {cell(row + 1, col + step, depth): 1.0})

    return from_moves(f"pyramid-{depth}", triangle(depth, move), start=cell(0, 0), action_seed=action_seed)
