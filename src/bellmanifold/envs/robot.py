"""The delivery robot of the guide: carpet, wet patches and one-way aisles, built from a human-readable map."""

from __future__ import annotations

from dataclasses import replace

from bellmanifold.envs.building import Move, from_moves
from bellmanifold.problem.ssp import SSP

FLOOR = (  # S start, D door, # shelf, . smooth floor, ~ carpet (slow), o wet floor (slippery)
    ".~~D",
    ".o#.",
    "Soo.",
)
COST = {"S": 1.0, ".": 1.0, "~": 3.0, "o": 1.0}
SLIP = {"o": 0.2}  # probability of sliding sideways instead, half of it to either side
DELIVERY = 10.0
PUSH = {"up": (-1, 0), "right": (0, 1), "down": (1, 0), "left": (0, -1)}
ALLOWED = ("up", "right")  # aisles are one-way ...
BACK_OUT = ("2,1", "left")  # ... except this one
SIDES = {"up": ("left", "right"), "left": ("up", "down"), "right": ("up", "down")}


def landing(row: int, column: int, way: str) -> str:
    """The cell in which a push ends: the neighbour, or the same cell at a shelf or a wall."""
    there = row + PUSH[way][0], column + PUSH[way][1]
    inside = 0 <= there[0] < len(FLOOR) and 0 <= there[1] < len(FLOOR[0]) and FLOOR[there[0]][there[1]] != "#"
    row, column = there if inside else (row, column)
    return f"{row},{column}"


def moves_from(row: int, column: int) -> dict[tuple[str, str], Move]:
    """The moves available in a cell."""
    here, kind = f"{row},{column}", FLOOR[row][column]
    if kind == "D":
        return {(here, "hand over"): Move(DELIVERY, {"delivered": 1.0})}
    moves = {}
    for action, sides in SIDES.items():
        allowed = action in ALLOWED or (here, action) == BACK_OUT
        if kind == "#" or not allowed or landing(row, column, action) == here:
            continue
        slip = SLIP.get(kind, 0.0)
        ends: dict[str, float] = {}
        for way, probability in ((action, 1.0 - slip), (sides[0], slip / 2), (sides[1], slip / 2)):
            if probability > 0:
                end = landing(row, column, way)
                ends[end] = round(ends.get(end, 0.0) + probability, 9)
        moves[here, action] = Move(-COST[kind], ends)
    return moves


def robot() -> SSP:
    """Drive from S to the door D and hand the parcel over."""
    cells = [(row, column) for row, line in enumerate(FLOOR) for column in range(len(line))]
    moves = {pair: move for cell in cells for pair, move in moves_from(*cell).items()}
    start = next(f"{row},{column}" for row, column in cells if FLOOR[row][column] == "S")
    model = from_moves("delivery robot", moves, start=start, goal="delivered")
    return replace(model, metadata={"goal_cell": "0,4"})  # where pictures show it
