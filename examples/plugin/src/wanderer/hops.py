"""`bellmanifold hops MODEL`: the fewest moves from the start to the goal, whatever they pay."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
import typer

import bellmanifold as bm


def hops(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The problem.")],
    json_out: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count the expected moves of the quickest policy from the start to the goal.

    Example: bellmanifold hops env:robot
    """
    problem = bm.load_model(model)
    counted = replace(problem, reward=np.full(problem.n_pairs, -1.0))  # every move costs 1
    moves = -bm.solve(counted).value_at_start
    typer.echo(f'{{"moves": {moves:.17g}}}' if json_out else f"{problem.name}: {moves:.6g} moves")
