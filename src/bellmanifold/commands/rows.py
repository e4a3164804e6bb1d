"""Long tables for people: what matters first, and how much is left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from bellmanifold.commands.terminal import WIDEST, print_table

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float, Int

    from bellmanifold.ssp import SSP

SHOWN = 40
"""Rows that a table has unless all are asked for."""
All = Annotated[bool, typer.Option("--all", help="Print every row, not only those that matter most.")]


def print_first(
    head: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    what: str,
    every: bool,
    most: int = SHOWN,
    widest_last: int = WIDEST,
) -> None:
    """Print the first rows of a table and how many are left out, or all of them.

    Args:
        head: names of the columns; empty for none.
        rows: the rows, those that matter most first.
        what: what the rows are, in the plural.
        every: print them all.
        most: maximum number of rows otherwise.
        widest_last: characters that a cell of the last column may have.
    """
    shown = rows if every or len(rows) <= most else rows[:most]
    if shown:
        print_table([head, *shown] if head else list(shown), widest_last)
    if len(shown) < len(rows):
        typer.echo(f"... and {len(rows) - len(shown)} more {what} (--all prints them)")


def on_the_way(model: SSP, played: Bool[np.ndarray, "pairs"]) -> Int[np.ndarray, "states"]:
    """How many moves from the start playing these pairs takes to each state; n_states where it does not come."""
    import numpy as np

    moves = np.full(model.n_states + 1, model.n_states)
    front, count = np.flatnonzero(model.initial), 0
    while len(front):
        moves[front] = count
        leads = model.next_state[(played & np.isin(model.pair_state, front))[model.next_pair]]
        front = np.unique(leads[(leads < model.n_states) & (moves[leads] == model.n_states)])
        count += 1
    return moves[:-1]


def by_doubt(
    model: SSP, probability: Float[np.ndarray, "pairs"], touched: Bool[np.ndarray, "states"]
) -> Int[np.ndarray, "pairs"]:
    """All pairs, those that matter most first.

    The states that the most probable actions lead through come first, nearest to the start first, then those that the
    data touch, where the best action is least certain first, then the others; in each state its most probable action.
    """
    import numpy as np

    best = np.maximum.reduceat(probability, model.pair_start[:-1])
    moves = on_the_way(model, probability >= best[model.pair_state])
    doubt = np.where(moves < model.n_states, 0.0, np.where(touched, best, 2.0))
    state = model.pair_state
    return np.lexsort((-probability, state, doubt[state], moves[state]))
