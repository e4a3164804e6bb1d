"""A road network: forty junctions, two-way roads between neighbours, and the minutes that each road takes.

Junctions lie on a slightly perturbed grid of five rows and eight columns; `metadata["positions"]` holds their
coordinates. A move is a road, named after the junction it leads to. Costs are drawn once from N(5, 2^2) and are at
least 1; the metadata say that rewards are costs in minutes. Episodes start at the junction in one corner and end at the
depot in the opposite one, which no road leaves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import require, require_numbers
from bellmanifold.problem.ssp import SSP

ROWS, COLUMNS = 5, 8
MEAN, SPREAD, LEAST = 5.0, 2.0, 1.0
SEED = 2026


def roads(slip: float = 0.0) -> SSP:
    """The road network with its true costs.

    Args:
        slip: probability that a driver misses the turn and takes one of the junction's other roads, chosen uniformly.

    >>> roads()
    SSP("roads", 39 states, 132 pairs)
    """
    require_numbers(slip=slip)
    require(0.0 <= slip < 1.0, f"slip is {slip}: give a number from 0 to below 1")
    rng = np.random.default_rng(SEED)
    names = [f"J{number:02d}" for number in range(ROWS * COLUMNS)]
    positions = {
        name: [c + rng.uniform(-0.2, 0.2), -r + rng.uniform(-0.2, 0.2)]
        for name, (r, c) in zip(names, np.ndindex(ROWS, COLUMNS), strict=True)
    }
    cost = {road: max(LEAST, rng.normal(MEAN, SPREAD)) for road in _neighbours(names)}
    leaving: dict[str, list[str]] = {}
    for here, there in cost:
        leaving.setdefault(here, []).append(there)
    moves = {}
    for here, there in cost:
        others = [other for other in leaving[here] if other != there]
        ends = {there: 1.0 - (slip if others else 0.0)} | {other: slip / len(others) for other in others if slip}
        moves[here, there] = Move(-round(cost[here, there], 2), ends)
    model = from_moves("roads", moves, start=names[0], goal=names[-1])
    places = {name: [round(x, 3) for x in at] for name, at in positions.items()}
    return replace(model, metadata={"positions": places, "costs": {"unit": "minutes"}})


def _neighbours(names: list[str]) -> list[tuple[str, str]]:
    """Roads from every junction except the last, the depot, to its neighbours."""
    found = []
    for number, here in enumerate(names[:-1]):
        row, column = divmod(number, COLUMNS)
        for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            r, c = row + down, column + right
            if 0 <= r < ROWS and 0 <= c < COLUMNS:
                found.append((here, names[r * COLUMNS + c]))
    return found
