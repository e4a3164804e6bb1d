"""Progress of a sweep: a bar on a terminal, a line every ten seconds elsewhere.

The time left is estimated from *work*, the expected cost of runs in any unit: runs of one plan may differ by a factor
of ten, and counting runs would be misleading. No estimate is given before a twentieth of the work is done, since the
first runs also compile programs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from bellmanifold._util.progress import duration
from bellmanifold._util.stderr import remark

SECONDS_BETWEEN_LINES = 10.0
FIRST_SHARE = 0.05
"""Fraction of the work after which the time left is estimated."""


class Progress:
    """Plain lines on stderr: at most one every ten seconds, when something was finished, and one at the end."""

    def __init__(self, total: int, kept: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.kept, self.done = total, kept, kept
        self.clock = clock
        self.started = self.spoken = clock()
        self.work, self.worked = float(total - kept), 0.0

    def __enter__(self) -> Progress:
        if self.kept:
            self.say(f"{self.kept} of {self.total} runs are already there")
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def expect(self, work: float) -> None:
        """Set the expected cost of all runs to be played; by default their number."""
        self.work = work

    def advance(self, runs: int, work: float | None = None) -> None:
        """Count finished runs and the work they took, by default their number."""
        self.done += runs
        self.worked += float(runs) if work is None else work
        self.show()

    def show(self) -> None:
        """Report progress, unless it was reported a moment ago."""
        now = self.clock()
        if now - self.spoken >= SECONDS_BETWEEN_LINES or self.done == self.total:
            self.spoken = now
            self.say(f"{self.done} of {self.total} runs done{self.left(', about {} left')}")

    def left(self, words: str) -> str:
        """The estimated time left, formatted with `words`; empty if there is no estimate."""
        if self.done == self.total or self.worked < max(FIRST_SHARE * self.work, 1e-9):
            return ""
        rate = (self.clock() - self.started) / self.worked
        return words.format(duration(rate * max(self.work - self.worked, 0.0)))

    def say(self, text: str) -> None:
        """Print a line that stays on the screen."""
        remark(text)


class Bar(Progress):
    """A bar with the number of runs and the time left."""

    def __init__(self, total: int, kept: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Display

        super().__init__(total, kept)
        time_columns: Any = (TextColumn("{task.fields[left]}"), TextColumn("elapsed"), TimeElapsedColumn())
        columns: Any = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), *time_columns)
        self.display = Display(*columns, console=Console(stderr=True))
        self.task = self.display.add_task("runs", total=total, completed=kept, left="")

    def __enter__(self) -> Progress:
        self.display.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.display.stop()

    def show(self) -> None:
        self.display.update(self.task, completed=self.done, left=self.left("about {} left"))

    def say(self, text: str) -> None:
        self.display.console.print(text, markup=False, highlight=False, soft_wrap=True)


def show_progress(total: int, kept: int) -> Progress:
    """A progress bar if stderr is a terminal, otherwise plain lines."""
    return Bar(total, kept) if sys.stderr.isatty() else Progress(total, kept)
