"""Saying how far a sweep has come: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from bellmanifold.meter import duration
from bellmanifold.stderr import remark

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Plain lines on stderr: one at least every ten seconds in which something was finished, and one at the end."""

    def __init__(self, total: int, kept: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.kept, self.done = total, kept, kept
        self.clock = clock
        self.started = self.spoken = clock()

    def __enter__(self) -> Progress:
        if self.kept:
            self.say(f"{self.kept} of {self.total} runs are there already")
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def advance(self, runs: int) -> None:
        """Some runs were finished."""
        self.done += runs
        now = self.clock()
        if now - self.spoken >= SECONDS_BETWEEN_LINES or self.done == self.total:
            self.spoken = now
            left = (now - self.started) * (self.total - self.done) / (self.done - self.kept)
            rest = f", about {duration(left)} left" if self.done < self.total else ""
            self.say(f"{self.done} of {self.total} runs done{rest}")

    def say(self, text: str) -> None:
        """A remark that stays."""
        remark(text)


class Bar(Progress):
    """A bar with the number of runs and the time left."""

    def __init__(self, total: int, kept: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Display

        super().__init__(total, kept)
        left: Any = (TextColumn("left"), TimeRemainingColumn(), TextColumn("elapsed"), TimeElapsedColumn())
        columns: Any = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), *left)
        self.display = Display(*columns, console=Console(stderr=True))
        self.task = self.display.add_task("runs", total=total, completed=kept)

    def __enter__(self) -> Progress:
        self.display.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.display.stop()

    def advance(self, runs: int) -> None:
        self.done += runs
        self.display.advance(self.task, runs)

    def say(self, text: str) -> None:
        self.display.console.print(text, markup=False, highlight=False, soft_wrap=True)


def show_progress(total: int, kept: int) -> Progress:
    """The progress display that suits where stderr goes."""
    return Bar(total, kept) if sys.stderr.isatty() else Progress(total, kept)
