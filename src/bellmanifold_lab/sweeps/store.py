"""The store of results: a directory with one netCDF file per run.

The files are those of `bellmanifold.learning.run_file`.

`plan.json` says which plan the directory belongs to: its runs and digests of its problems. A reader that selects
the runs it wants is not misled by others, and may widen the plan instead of matching it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bellmanifold.errors import BadInputError
from bellmanifold.io.files import (
    label,
    locate_errors,
    parse_json,
    read_bytes,
    temporary_prefix,
    unwritten,
    write_atomically,
)
from bellmanifold.learning.run_file import fault_of, file_name, make_directory, write_run
from bellmanifold.learning.run_settings import RunSettings
from bellmanifold_lab.sweeps.locks import Presence, one_at_a_time
from bellmanifold_lab.sweeps.plan import Plan

PLAN_FILE = "plan.json"
PLAN_LOCK = ".plan.lock"
PLAN_FORMAT = "bellmanifold.plan/1"
LOG_FILE = "failures.log"
RUNS_FOLDER = "runs"
STALE_SECONDS = 3600
REMEDY = "choose another --out (.nc files copied there are used again)"


def runs_in(directory: Path) -> Path:
    """The folder of runs in the output directory of `demo` or `reproduce`; raises if it is a symbolic link."""
    runs = directory / RUNS_FOLDER
    if runs.is_symlink():
        raise BadInputError(f"{label(runs)}: is a symbolic link: make it a folder, or give --out the directory itself")
    return runs


def _canonical(entry: Any) -> str:
    return json.dumps(entry, sort_keys=True)


@dataclass(frozen=True)
class Store:
    """The output directory of a plan."""

    root: Path

    def path(self, settings: RunSettings) -> Path:
        return self.root / file_name(settings)

    @contextmanager
    def claim(self, plan: Plan, widen: bool = False) -> Iterator[None]:
        """Claim the directory for this plan, as a context manager around the work.

        Raises if it belongs to another plan, even to one without results that is being played, or if it is not
        accessible. With `widen` this plan's runs are added to those of another plan instead.
        """
        make_directory(self.root)
        with closing(Presence(self.root)) as presence:
            if widen:
                with one_at_a_time(self.root / PLAN_LOCK):
                    self._widen(plan)
            else:
                self._take(plan, presence)
            presence.share()
            self._sweep_up(plan)
            yield

    def _take(self, plan: Plan, presence: Presence) -> None:
        if presence.alone:
            if not self.compare(plan):
                self._write_plan(plan.models, [run.to_dict() for run in plan.runs])
            presence.share()
        if not self.compare(plan, in_use=True):  # another process may have been quicker
            self._write_plan(plan.models, [run.to_dict() for run in plan.runs])

    def compare(self, plan: Plan, in_use: bool = False) -> bool:
        """Whether the directory belongs to this plan; False if it belongs to none, raises if it belongs to another.

        A plan without any results, because it was refused or stopped at once, has no claim unless another process is
        playing it (`in_use`).
        """
        known = self._read_plan()
        if known is None or not (in_use or any(self.root.glob("*.nc"))):
            return False
        models, runs = known
        before, now = set(map(_canonical, runs)), {_canonical(run.to_dict()) for run in plan.runs}
        if before != now:
            counts = f"{len(before - now)} of its runs are not in this plan, {len(now - before)} are new"
            raise BadInputError(f"{label(self.root)}: belongs to another plan ({counts}): {REMEDY}")
        self._require_same_problems(plan, models)
        return True

    def _widen(self, plan: Plan) -> None:
        """Add this plan's runs to the directory's plan."""
        models, runs = self._read_plan() or ({}, [])
        self._require_same_problems(plan, {**plan.models, **models})
        known = set(map(_canonical, runs))
        new = [entry for entry in (run.to_dict() for run in plan.runs) if _canonical(entry) not in known]
        if new:
            self._write_plan({**models, **plan.models}, [*runs, *new])

    def _require_same_problems(self, plan: Plan, models: dict[str, Any]) -> None:
        changed = [name for name, value in plan.models.items() if models.get(name) != value]
        if changed:
            raise BadInputError(f"{label(self.root)}: {changed[0]} was a different problem when this began: {REMEDY}")

    def _write_plan(self, models: dict[str, Any], runs: list[Any]) -> None:
        own = {"format": PLAN_FORMAT, "models": models, "runs": runs}
        text = json.dumps(own, indent=1, allow_nan=False).encode()
        write_atomically(self.root / PLAN_FILE, lambda file: file.write(text))

    def _read_plan(self) -> tuple[dict[str, Any], list[Any]] | None:
        """Problems and runs of the directory's plan; None if it has none."""
        where = self.root / PLAN_FILE
        if not where.exists():
            return None
        with locate_errors(label(where)):
            found = parse_json(read_bytes(where))
            if found.get("format") != PLAN_FORMAT:
                raise BadInputError("not a file of this program: choose another --out")
            runs, models = found.get("runs"), found.get("models")
            if not isinstance(runs, list) or not isinstance(models, dict):
                raise BadInputError("runs or models are missing: choose another --out")
        return models, runs

    def _sweep_up(self, plan: Plan) -> None:
        """Remove temporary files of killed writers; recent ones, which may still be being written, are kept."""
        begins = {temporary_prefix(name) for name in (PLAN_FILE, *map(file_name, plan.runs))}
        for path in self.root.glob(".*"):
            with suppress(OSError):
                stale = time.time() - path.stat().st_mtime > STALE_SECONDS
                if stale and any(path.name.startswith(begin) for begin in begins):
                    path.unlink()

    def fault(self, settings: RunSettings, model_digest: str) -> str | None:
        """Why a run must be played (again): "missing", or what is wrong with its file; None if the file is good."""
        return fault_of(self.path(settings), settings, model_digest)

    def write(self, settings: RunSettings, content: bytes) -> None:
        """Write a run's file."""
        write_run(self.path(settings), content)

    def log(self, text: str) -> Path:
        """Append to the log of failures; symbolic links are not followed."""
        path = self.root / LOG_FILE
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
            with open(handle, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except OSError as error:
            remedy = "remove it, or choose another --out"
            raise unwritten(f"{label(path)}: cannot be written", error, remedy) from None
        return path
