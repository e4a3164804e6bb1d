"""The command `reproduce`: the paper's figures and the ledger of its claims; runs are played where they are missing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bellmanifold.commands.terminal import directory, print_table, require_workers
from bellmanifold.errors import BadInputError
from bellmanifold.runs.environment import keep_compiled_programs
from bellmanifold.stderr import remark


def reproduce(
    figures: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FIGURE ...]", help="Names of figures; by default all.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", parser=directory, help="Where figures and runs are, or will be.", show_default=False
        ),
    ] = None,
    runs: Annotated[int, typer.Option(metavar="N", help="Runs behind each curve.")] = 10,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", help="Processes on this machine (default: its cores).", show_default=False),
    ] = None,
    list_figures: Annotated[bool, typer.Option("--list", help="List the figures.")] = False,
) -> None:
    """Make the paper's figures, as PNG and PDF; all of them, if none is named, and the ledger of its claims.

    Example: bellmanifold reproduce deep-sea-regret --out out/paper
    """
    require_workers(workers)
    keep_compiled_programs()
    from bellmanifold.sweeps.workers import play_in_processes
    from bellmanifold_paper.figure_list import find_figures
    from bellmanifold_paper.render import draw_figures, play_cells

    wanted = find_figures(figures or ())
    if list_figures:
        print_table([(figure.name, f"Figure {figure.number}", figure.about) for figure in wanted])
        return
    if out is None:
        raise BadInputError("--out is missing: say where the figures go, e.g. --out out/paper (--list lists them)")
    from bellmanifold_paper.ledger import CELLS, CLAIMS, measure_claims
    from bellmanifold_paper.ledger_file import write_ledger
    from bellmanifold_paper.tables import print_claims

    everything = not figures
    player = partial(play_in_processes, workers=workers or os.cpu_count() or 1)
    played = play_cells(wanted, out, runs, player, also=CELLS if everything else ())
    with _watching(len(wanted) + everything * len(CLAIMS)) as begin:
        made = list(draw_figures(wanted, played, out, lambda figure: begin(f"drawing {figure.name}")))
        ledger = measure_claims(played, lambda name: begin(f"measuring {name}")) if everything else None
    if ledger is not None:
        made.append(out / "claims.json")
        write_ledger(made[-1], ledger)
        print_claims(ledger)
    for path in made:
        typer.echo(str(path))


@contextmanager
def _watching(total: int) -> Iterator[Callable[[str], None]]:
    """Say what is being made: a bar on a terminal, a line on stderr elsewhere."""
    if not sys.stderr.isatty():
        yield remark
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        begun = 0

        def begin(what: str) -> None:
            nonlocal begun
            bar.update(task, description=what, completed=begun)
            begun += 1

        yield begin
