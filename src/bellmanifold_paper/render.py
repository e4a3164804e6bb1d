"""Making figures: the runs they need are played once and kept, then each figure is drawn and written.

Files are written whole or not at all, as PNG and PDF. They hold no dates, so the same runs give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bellmanifold._util.interrupts import interruptible
from bellmanifold._util.limits import RUNS
from bellmanifold.errors import BadInputError, count_of
from bellmanifold.io.files import label, write_atomically
from bellmanifold_lab.sweeps.plan import plan_runs
from bellmanifold_lab.sweeps.runner import Player, require_success, sweep
from bellmanifold_lab.sweeps.store import runs_in
from bellmanifold_paper.figure_list import PaperFigure, cost
from bellmanifold_paper.paper_runs import Cell, PaperRuns
from bellmanifold_paper.plots.style import printed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 300
_UNDATED: dict[str, dict[str, str | None]] = {"png": {"Software": None}, "pdf": {"CreationDate": None}}


def play_cells(
    figures: Sequence[PaperFigure], out: Path, runs: int, player: Player, also: Sequence[Cell] = ()
) -> PaperRuns:
    """Play what is missing of the runs that some figures need.

    Args:
        figures: what will be drawn.
        out: the output directory; runs of other figures that are there already stay there.
        runs: how many a curve averages over.
        player: who plays.
        also: further cells that are wanted.
    """
    if runs < 1:
        raise BadInputError(f"--runs is {runs}: give a whole number, 1 or more")
    each = {settings for figure in figures for settings in figure.settings(1)} | {c.settings(1)[0] for c in also}
    total = len(each) * runs
    RUNS.require(total, f"--runs is {runs}")
    make_directory(out)
    wanted = [settings for figure in figures for settings in figure.settings(runs)]
    wanted += [settings for cell in also for settings in cell.settings(runs)]
    if wanted:
        played = sweep(plan_runs(wanted), runs_in(out), player, widen=True, cost=lambda run: cost([run]))
        require_success(played)
    return PaperRuns(runs_in(out), runs)


def draw_figures(
    figures: Sequence[PaperFigure], runs: PaperRuns, out: Path, begin: Callable[[PaperFigure], object]
) -> Iterator[Path]:
    """Draw figures and write them; hands over each file as soon as it is there.

    Args:
        figures: what to draw.
        runs: the runs they need.
        out: where the files go.
        begin: told which figure comes next.
    """
    for done, figure in enumerate(figures):
        begin(figure)
        there = f"{done} of {len(figures)} figures are in {label(out)}; run the same command again to resume"
        with interruptible(there) as require_none, printed():
            drawn = figure.draw(runs)
            if figure.cells and not figure.first_only:
                _note_runs(drawn, runs.runs)
            require_none()
            files = save(drawn, out, figure.name)
        yield from files


def _note_runs(figure: Figure, runs: int) -> None:
    """Say in the corner of a figure how many runs its curves are from."""
    figure.text(0.998, 0.004, count_of(runs, "run"), ha="right", va="bottom", fontsize=5.5, color="0.4")


def make_directory(out: Path) -> None:
    """Make the output directory if it is not there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInputError(f"{label(out)}: cannot be made: {reason}: choose another --out") from None


def save(figure: Figure, out: Path, name: str) -> list[Path]:
    """Write a figure as PNG and PDF into a directory that is there."""
    files = [out / f"{name}.{kind}" for kind in _UNDATED]
    for path, (kind, metadata) in zip(files, _UNDATED.items(), strict=True):
        look = partial(figure.savefig, format=kind, dpi=DOTS_PER_INCH, metadata=metadata)
        write_atomically(path, look)
    return files
