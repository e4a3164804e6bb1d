"""Runs of agents beside each other, for the scripts that play what docs/agents.md shows."""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

Job = TypeVar("Job")
Row = TypeVar("Row")


def parser(about: str | None, problems: Collection[str] = ()) -> argparse.ArgumentParser:
    """What all of them are told: how many runs, by how many processes, where to, and of which problems, if they ask."""
    found = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if problems:
        found.add_argument("problems", nargs="*", metavar="PROBLEM", help=", ".join(problems))
    found.add_argument("--runs", type=int, default=10)
    found.add_argument("--workers", type=int, default=2)
    found.add_argument("--out", type=Path)
    return found


def chosen(asking: argparse.ArgumentParser, given: argparse.Namespace, problems: Collection[str]) -> Collection[str]:
    """The problems that were asked for, all if none were; wrong names end in one line."""
    if unknown := set(given.problems) - set(problems):
        asking.error(f"no problem is called {', '.join(sorted(unknown))}: give some of {', '.join(problems)}")
    return given.problems or problems


def play_all(play: Callable[[Job], Row], jobs: Sequence[Job], given: argparse.Namespace) -> list[Row]:
    """A row per job, in the order in which they end; written to a file as they come, if there is one."""
    rows: list[Row] = []
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        for row in pool.imap_unordered(play, jobs):
            rows.append(row)
            if given.out is not None:
                given.out.write_text(json.dumps(rows, default=vars))
    return rows
