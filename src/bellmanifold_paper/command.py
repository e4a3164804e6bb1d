"""The command `reproduce`: the paper's figures and the ledger of its claims; runs are played where they are missing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bellmanifold._util.progress import duration
from bellmanifold._util.stderr import remark
from bellmanifold.cli.terminal import directory, print_table, require_workers
from bellmanifold.errors import BadInputError, count_of
from bellmanifold.learning.environment import keep_compiled_programs

if TYPE_CHECKING:
    from bellmanifold.learning.run_settings import RunSettings
    from bellmanifold_lab.sweeps.plan import Plan
    from bellmanifold_paper.figure_list import PaperFigure
    from bellmanifold_paper.paper_runs import Cell


def reproduce(
    figures: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FIGURE ...]", help="Names of figures, or their numbers; by default all.", show_default=False
        ),
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
    list_figures: Annotated[bool, typer.Option("--list", help="List the figures, and what they cost.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say which runs are missing and how long they take, and play none.")
    ] = False,
) -> None:
    """Make the paper's figures, as PNG and PDF; all of them, if none is named, and the ledger of its claims.

    Example: bellmanifold reproduce 7 --out out/paper
    """
    require_workers(workers)
    keep_compiled_programs()
    from bellmanifold_lab.sweeps.workers import play_in_processes
    from bellmanifold_paper.figure_list import find_figures
    from bellmanifold_paper.render import draw_figures, play_cells

    wanted = find_figures(figures or ())
    if list_figures:
        print_table([(f.name, f"Figure {f.number}", *_cost(f.settings(runs)), f.about) for f in wanted])
        return
    if out is None and not dry_run:
        raise BadInputError("--out is missing: say where the figures go, e.g. --out out/paper (--list lists them)")
    from bellmanifold_paper.ledger import CELLS, CLAIMS, measure_claims
    from bellmanifold_paper.ledger_file import write_ledger
    from bellmanifold_paper.tables import print_claims

    everything = not figures
    if out is None or dry_run:
        _preview(wanted, out, runs, workers or os.cpu_count() or 1, CELLS if everything else ())
        return
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


def _cost(runs: Iterable[RunSettings]) -> tuple[str, str]:
    """How many runs these are, and roughly how long they take."""
    from bellmanifold_paper.figure_list import cost

    listed = list(runs)
    seconds = cost(listed)
    return count_of(len(listed), "run") if listed else "no runs", f"about {duration(seconds)}" if listed else "seconds"


def _preview(figures: Sequence[PaperFigure], out: Path | None, runs: int, workers: int, also: Sequence[Cell]) -> None:
    """Which runs of some figures are missing, all of them if there is no directory, and how long they will take."""
    from bellmanifold_lab.sweeps.plan import plan_runs
    from bellmanifold_paper.figure_list import cost

    wanted = {figure.name: figure.settings(runs) for figure in figures}
    if also:
        wanted["the ledger"] = [settings for cell in also for settings in cell.settings(runs)]
    faults = _missing(plan_runs([run for settings in wanted.values() for run in settings]), out)
    for name, settings in wanted.items():
        missing = [run for run in dict.fromkeys(settings) if run in faults]
        typer.echo(f"{name}: {count_of(len(set(settings)), 'run')}, {len(missing)} of them to play")
    number, time = _cost(faults)
    typer.echo(f"together {number} to play (figures share them): {time} of one core")
    if faults:
        typer.echo(f"roughly {duration(cost(faults) / workers)} with --workers {workers}")


def _missing(plan: Plan, out: Path | None) -> Collection[RunSettings]:
    """The runs of a plan that a directory does not hold, or holds damaged."""
    from bellmanifold_lab.sweeps.runner import find_faults
    from bellmanifold_lab.sweeps.store import Store, runs_in

    return plan.runs if out is None or not plan.runs else find_faults(Store(runs_in(out)), plan)


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
