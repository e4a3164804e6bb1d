"""How rows are measured: repeats of ours and of a peer in one process, their spread, and a goal.

Every subject is a script of its own with a function `rows(quick)`; `run.py` starts each in a fresh process on one core.
The seconds of a row are processor time, which other programs on the machine disturb less than the clock; the clock is
kept beside it. A ratio is the peer's median over ours; its range is the least the repeats allow to the most.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Times:
    """Repeats of one job.

    Attributes:
        what: what was run.
        processor: processor seconds of every repeat, scaled to the whole job.
        clock: seconds by the clock, scaled alike.
    """

    what: str
    processor: list[float]
    clock: list[float]

    @property
    def seconds(self) -> float:
        """The median of the repeats' processor seconds."""
        return statistics.median(self.processor)

    @property
    def span(self) -> tuple[float, float]:
        """Fastest and slowest repeat."""
        return min(self.processor), max(self.processor)

    def scaled(self, factor: float) -> Times:
        """The same for `factor` times the work."""
        return Times(self.what, [factor * t for t in self.processor], [factor * t for t in self.clock])

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        low, high = self.span
        clock = statistics.median(self.clock)
        return asdict(self) | {"seconds": self.seconds, "low": low, "high": high, "clock_seconds": clock}


@dataclass(frozen=True)
class Goal:
    """What a row should reach: a speed-up over its peer, at least, or a time in seconds, at most.

    Attributes:
        ratio: least ratio.
        seconds: most seconds.
    """

    ratio: float | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        parts = []
        if self.ratio is not None:
            parts = [f">= {self.ratio:,.0f}x" if self.ratio >= 1 else f"<= {1 / self.ratio:g} times the peer's time"]
        return ", ".join(parts + ([] if self.seconds is None else [f"<= {self.seconds:g} s"]))


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: what was asked.
        ours: our seconds.
        peer: the peer's seconds; None if the row has no peer or the peer is absent.
        goal: what is aimed at.
        comparable: whether ours is at least as precise as the peer; a goal is not met where it is not.
        compile_seconds: what the first call cost beyond a later one, where compilation is left out of `ours`.
        notes: what a reader must know to judge the numbers.
        extra: further numbers.
    """

    name: str
    ours: Times
    peer: Times | None = None
    goal: Goal | None = None
    comparable: bool = True
    compile_seconds: float | None = None
    notes: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> tuple[float, float, float] | None:
        """Peer over ours: median, least, most."""
        if self.peer is None:
            return None
        (ours_low, ours_high), (peer_low, peer_high) = self.ours.span, self.peer.span
        return self.peer.seconds / self.ours.seconds, peer_low / ours_high, peer_high / ours_low

    @property
    def met(self) -> bool | None:
        """Whether the medians reach the goal, at matched precision; None without a goal or where its peer is absent."""
        if self.goal is None or (self.goal.ratio is not None and self.ratio is None):
            return None
        fast = self.goal.ratio is None or (self.ratio is not None and self.ratio[0] >= self.goal.ratio)
        return self.comparable and fast and (self.goal.seconds is None or self.ours.seconds <= self.goal.seconds)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        ratio = self.ratio
        return {
            "row": self.name,
            "ours": self.ours.to_dict(),
            "peer": None if self.peer is None else self.peer.to_dict(),
            "ratio": None if ratio is None else ratio[0],
            "ratio_range": None if ratio is None else [ratio[1], ratio[2]],
            "goal": None if self.goal is None else str(self.goal),
            "met": self.met,
            "compile_seconds": self.compile_seconds,
            "notes": self.notes,
            "extra": self.extra,
        }


def timed(what: str, job: Callable[[], object], repeats: int = 5) -> Times:
    """Run a job again and again."""
    processor, clock = [], []
    for _ in range(repeats):
        begin = time.process_time(), time.perf_counter()
        job()
        processor.append(time.process_time() - begin[0])
        clock.append(time.perf_counter() - begin[1])
    return Times(what, processor, clock)


def compiled(what: str, job: Callable[[], object], repeats: int = 5) -> tuple[Times, float]:
    """Run a job once to compile, then again and again; also what the first run cost more."""
    first = timed(what, job, 1).seconds
    later = timed(what, job, repeats)
    return later, max(0.0, first - later.seconds)


def report(rows: Callable[[bool], Iterator[Row]]) -> None:
    """Print a subject's rows as lines of JSON: what every subject does when it is run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    for row in rows(parser.parse_args().quick):
        print(json.dumps(row.to_dict()), flush=True)
