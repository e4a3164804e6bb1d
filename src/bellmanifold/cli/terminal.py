"""What commands share: arguments, tables, JSON, pictures, one-line error messages."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bellmanifold._util.limits import WORKERS
from bellmanifold._util.stderr import remark
from bellmanifold.cli.completion import problems
from bellmanifold.errors import BadInputError, UnsupportedError, printable, shorten
from bellmanifold.io.files import label, locate_errors, write_atomically

if TYPE_CHECKING:
    import numpy as np

    from bellmanifold.problem.ssp import SSP

WIDEST, WIDEST_ROUTE = 60, 600
"""Maximal number of characters of a table cell, and of a route."""
SHOWN = 40
"""Maximal number of rows of a table, unless all are requested."""
LONGEST = 2000
"""Maximal number of characters of a line that quotes files or arguments."""
PICTURES = ("png", "pdf", "svg")
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A problem file, a table of roads as roads.csv?goal=NAME&start=NAME, env:NAME?key=value&..., gym:ENV_ID, "
        "or FILE.prism?key=value.",
        show_default=False,
        autocompletion=problems,
    ),
]
Prune = Annotated[
    bool,
    typer.Option("--prune", help="Drop states that cannot be sure to reach the goal, and moves that may lead there."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
All = Annotated[bool, typer.Option("--all", help="Print every row, not only those that matter most.")]


def directory(given: str | os.PathLike[str]) -> Path:
    """The path of a directory; refuses an empty name (`--out ""`)."""
    if not str(given).strip():
        raise typer.BadParameter('the name of a directory is empty: give one, or "." for this one')
    return Path(given)


def print_table(rows: Sequence[tuple[str, ...]], widest_last: int = WIDEST) -> None:
    """Print rows in aligned columns, cells cut at 60 characters, those of the last column at `widest_last`."""
    last = len(rows[0]) - 1
    cut = [[cell[: WIDEST if k < last else widest_last] for k, cell in enumerate(row)] for row in rows]
    plain = [["".join(c if c.isprintable() else "?" for c in cell) for cell in row] for row in cut]
    widths = [max(len(row[k]) for row in plain) for k in range(len(rows[0]))]
    for row in plain:
        typer.echo("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_first(
    head: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
    what: str,
    every: bool,
    most: int = SHOWN,
    widest_last: int = WIDEST,
) -> None:
    """Print the first rows of a table and how many more `what` (a plural noun) there are, or all rows."""
    shown = rows if every or len(rows) <= most else rows[:most]
    if shown:
        print_table([head, *shown] if head else list(shown), widest_last)
    if len(shown) < len(rows):
        typer.echo(f"... and {len(rows) - len(shown)} more {what} (--all prints them)")


def from_the_start(model: SSP, played: np.ndarray, states: Sequence[str]) -> list[str]:
    """States sorted by the number of moves that playing the given pairs takes to reach them from the start."""
    from bellmanifold.posteriors.reporting import on_the_way

    moves = dict(zip(model.states, on_the_way(model, played).tolist(), strict=True))
    return sorted(states, key=lambda state: moves[state])


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on stdout; NaN and Infinity are errors."""
    typer.echo(json.dumps(value, allow_nan=False))


def complain(message: str) -> None:
    """Print one line on stderr, shortened if very long, without control characters."""
    remark(f"bellmanifold: {shorten(printable(' '.join(message.split())), LONGEST)}")


def report_dropped(model: str, problem: object) -> None:
    """Say on stderr which dead ends were dropped from a problem, if any."""
    dropped = getattr(problem, "dropped", None)
    if dropped:
        complain(f"{label(model)}: dropped {dropped}")


def say(message: str) -> None:
    """Print one line on stdout that may contain names from files."""
    typer.echo(shorten(printable(message), LONGEST))


def refusing(model: str) -> AbstractContextManager[None]:
    """Prefix errors about unsupported problems with the problem's name as given on the command line."""
    return locate_errors(label(model), UnsupportedError)


def require_workers(workers: int | None) -> None:
    """Refuse an invalid number of processes; None means not given."""
    if workers is not None and workers < 1:
        raise BadInputError(f"--workers is {workers}: give a whole number, 1 or more")
    WORKERS.require(workers or 1, "--workers")


def check_picture(path: Path) -> str:
    """The picture format that a file name's suffix requests."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in PICTURES:
        raise BadInputError(f"{label(path)}: a picture ends in .png, .pdf or .svg")
    return kind


def save_picture(path: Path, draw: str, *shown: Any) -> None:
    """Atomically write the picture drawn by a function of `bellmanifold.pictures`."""
    kind = check_picture(path)
    import matplotlib as mpl

    mpl.use("Agg")
    from bellmanifold import figures
    from bellmanifold.pictures.labels import figure_of

    figure = figure_of(getattr(figures, draw)(*shown))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # characters without a glyph are drawn as boxes
        write_atomically(path, lambda file: figure.savefig(file, format=kind, dpi=150))
