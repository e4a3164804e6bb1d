"""Progress of long calls: a bar with an estimate of the remaining time.

Code that works reports its progress, `expect("points", 4096)` and `advance("points", 1024)`, without knowing whether it
is shown. It is shown only if a call has asked for it (`show_progress`), and not in the first two seconds. A terminal
gets a bar on stderr, which disappears at the end; a notebook gets a line that is updated in place and finally shows the
time taken; elsewhere nothing is shown unless `progress=True` asks for lines on stderr. Results never depend on it.

The remaining time is estimated from the work done since the first step, which often includes a compilation, and only
once a few steps were done or some seconds have passed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock, Timer
from typing import Any

from bellmanifold._util.stderr import remark
from bellmanifold.errors import require_flags

PATIENCE = 2.0
"""Seconds before anything is shown."""
BETWEEN = 0.2
"""Seconds between updates of a notebook's line."""
BETWEEN_LINES = 10.0
FEW_STEPS, FEW_SECONDS = 3, 10.0
"""Remaining time is estimated after this many steps, or this many seconds."""


@dataclass
class Count:
    """A count of finished work.

    Attributes:
        unit: what is counted, in the plural.
        total: expected total; None if unknown.
        first, began: number done when the clock was started, and the time then.
        steps: number of times that `done` has grown.
    """

    unit: str = ""
    done: float | int = 0
    total: float | int | None = None
    first: float | int = 0
    began: float = field(default_factory=time.monotonic)
    steps: int = 0

    def step(self, done: float | int) -> None:
        """Set the number done; the clock is restarted by the first step."""
        if done > self.done:
            self.steps += 1
            if self.steps == 1:
                self.first, self.began = done, time.monotonic()
        self.done = done

    def words(self) -> str:
        """The count in words, for instance "3 of 7 points, about 5 s left"."""
        if not self.unit:
            return ""
        of = "" if self.total is None else f" of {max(self.total, self.done):,.0f}"
        left = self.seconds_left()
        rest = "" if left is None else f", about {duration(left)} left"
        return f"{self.done:,.0f}{of} {self.unit}{rest}"

    def seconds_left(self) -> float | None:
        """Estimated remaining time; None if it is not known yet, or all is done."""
        seconds, done = time.monotonic() - self.began, self.done - self.first
        too_soon = self.steps < FEW_STEPS and seconds < FEW_SECONDS
        if not self.total or self.done >= self.total or done <= 0 or too_soon:
            return None
        return seconds / done * (self.total - self.done)


class Display:
    """Base class of progress displays, which shows nothing."""

    def open(self, title: str) -> None:
        """Begin, under a title."""
        self.title, self.last = title, float("-inf")

    def show(self, count: Count) -> None:
        """Show the current count."""

    def close(self, finished: bool = True) -> None:
        """End, because the work has finished or because it was interrupted."""


class CallProgress:
    """A count of work that is shown on a display, unless that is None, once the work has taken a while."""

    def __init__(self, title: str, display: Display | None, patience: float = PATIENCE) -> None:
        self.title, self.display, self.patience = title, display, patience
        self.count, self.is_open = Count(), False
        self.began = time.monotonic()
        self.timer: Timer | None = None
        self.lock = Lock()

    def __enter__(self) -> CallProgress:
        if isinstance(self.display, Bar | Cell):  # a timer shows them even if no count arrives
            self.timer = Timer(self.patience, self._show)
            self.timer.daemon = True
            self.timer.start()
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if self.timer is not None:
            self.timer.cancel()
        with self.lock:
            display, self.display = self.display, None
            if display is not None and self.is_open:
                with suppress(OSError, ValueError):
                    display.close(finished=kind is None)

    def expect(self, unit: str, total: float | int | None, done: float | int = 0) -> None:
        """Set the unit of work, its expected total, and how much of it is done."""
        if unit != self.count.unit:
            self.count = Count(unit, done, total, done)
        self.count.total = total
        self.count.step(done)
        self._look()

    def advance(self, unit: str, by: float | int) -> None:
        """Add to the count; units other than the expected one are ignored."""
        if unit == self.count.unit:
            self.count.step(self.count.done + by)
            self._look()

    def _look(self) -> None:
        if self.display is not None and time.monotonic() - self.began >= self.patience:
            self._show()

    def _show(self) -> None:
        with self.lock:
            if self.display is None:
                return
            try:
                if not self.is_open:
                    self.display.open(self.title)
                    self.is_open = True
                self.display.show(self.count)
            except (OSError, ValueError):  # stderr is closed: the work continues
                self.display = None


class Bar(Display):
    """A progress bar on a terminal, on stderr."""

    def open(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        columns: Any = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[said]}"),
        )
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.bar.add_task(title, total=None, said="")
        self.bar.start()

    def show(self, count: Count) -> None:
        self.bar.update(self.task, total=count.total, completed=count.done, said=count.words())

    def close(self, finished: bool = True) -> None:
        self.bar.stop()


class Cell(Display):
    """A line in a notebook, updated a few times per second; at the end it shows how long the work took.

    The line remains in the cell's output: outputs cannot be removed one by one.
    """

    def __init__(self) -> None:
        self.began, self.last = time.monotonic(), float("-inf")
        self.handle: Any = None

    def open(self, title: str) -> None:
        from IPython import display as shell

        super().open(title)
        self.handle = shell.display(self._line(title), display_id=True, raw=True)

    def show(self, count: Count) -> None:
        now = time.monotonic()
        if now - self.last < BETWEEN:
            return
        self.last = now
        share = f' value="{min(1.0, count.done / count.total):.4f}"' if count.total else ""
        bar = f"<progress{share}></progress>"
        self.handle.update(
            self._line(f"{self.title}: {count.words()}", f"{self.title} {bar} {count.words()}"), raw=True
        )

    def close(self, finished: bool = True) -> None:
        how = "took" if finished else "stopped after"
        self.handle.update(self._line(f"{self.title} {how} {duration(time.monotonic() - self.began)}"), raw=True)

    def _line(self, text: str, html: str = "") -> dict[str, str]:
        return {"text/plain": text, "text/html": f'<small style="opacity:0.7">{html or text}</small>'}


class Lines(Display):
    """An occasional line on stderr."""

    def show(self, count: Count) -> None:
        now = time.monotonic()
        if now - self.last >= BETWEEN_LINES:
            self.last = now
            remark(f"{self.title}: {count.words()}" if count.unit else f"{self.title} ...")


_current: ContextVar[CallProgress | None] = ContextVar("progress", default=None)


def expect(unit: str, total: float | int | None, done: float | int = 0) -> None:
    """Announce a unit of work, its expected total (None if unknown), and how much of it is done."""
    current = _current.get()
    if current is not None:
        current.expect(unit, total, done)


def advance(unit: str, by: float | int = 1) -> None:
    """Report progress in a unit."""
    current = _current.get()
    if current is not None:
        current.advance(unit, by)


@contextmanager
def show_progress(title: str, progress: bool | None = None) -> Iterator[None]:
    """Show the progress of the enclosed code; nested calls are shown by the outermost one.

    `progress` True shows it wherever stderr goes, False never, None on terminals and in notebooks.
    """
    require_flags(progress=progress)
    if _current.get() is not None and progress is not False:
        yield
        return
    with _listening(CallProgress(title, None if progress is False else _display(bool(progress)))):
        yield


@contextmanager
def show_count(title: str, unit: str, total: int, progress: bool | None = None) -> Iterator[Callable[..., None]]:
    """Show how many of a total are done, without the progress within each of them.

    Yields a function that adds 1, or the given number, to the count.
    """
    require_flags(progress=progress)
    outer = _current.get() is not None or progress is False
    current = CallProgress(title, None if outer else _display(bool(progress)))
    with current, _listening(CallProgress("", None)):
        current.expect(unit, total)
        yield lambda by=1: current.advance(unit, by)


@contextmanager
def _listening(current: CallProgress) -> Iterator[None]:
    token = _current.set(current)
    try:
        with current:
            yield
    finally:
        _current.reset(token)


def _display(asked: bool) -> Display | None:
    """The display for the current output: a notebook, a terminal, or other."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if type(shell).__name__ == "ZMQInteractiveShell":  # a notebook's kernel
        return Cell()
    if sys.stderr is not None and sys.stderr.isatty():
        return Bar()
    return Lines() if asked else None


def duration(seconds: float) -> str:
    """A duration in readable units, rounded up.

    >>> duration(4.2), duration(200.0), duration(7000.0)
    ('5 s', '4 min', '2.0 h')
    """
    if seconds < 90:
        return f"{int(-(-seconds // 1))} s"
    return f"{int(-(-seconds // 60))} min" if seconds < 5400 else f"{seconds / 3600 + 0.05:.1f} h"
