"""Long tables for people: what matters first, and how much is left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from bellmanifold.commands.terminal import WIDEST, print_table

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
