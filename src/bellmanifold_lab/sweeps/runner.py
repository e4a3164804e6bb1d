"""Running a plan: runs that are missing or damaged are played and written to the store.

Results are written only by this process, each as soon as it arrives. So a crash of a worker, of the machine or of this
program costs only the runs in progress; the same command resumes from there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from bellmanifold.errors import BellmanifoldError, StoppedError
from bellmanifold.io.files import label
from bellmanifold.learning.run_settings import RunSettings
from bellmanifold_lab.sweeps.plan import Plan
from bellmanifold_lab.sweeps.progress import Progress, show_progress
from bellmanifold_lab.sweeps.store import Store
from bellmanifold_lab.sweeps.units import Failure, Played, Unit, units_of

Player: TypeAlias = Callable[[Sequence[Unit]], Generator[Played, None, None]]
"""Plays units and yields the outcome of each: in this process, in others, or on a cluster."""


@dataclass
class Tally:
    """The outcome of a plan.

    Attributes:
        total, kept, played: runs in the plan, those that were already there, and those that were played and written.
        damaged: files that were there but had to be made again, and why.
        failures: units that could not be played, and why.
        log: the file with the failures' tracebacks.
    """

    total: int
    kept: int
    played: int = 0
    damaged: list[str] = field(default_factory=list)
    failures: list[tuple[Unit, Failure]] = field(default_factory=list)
    log: Path | None = None

    @property
    def exit_code(self) -> int:
        """0 without failures; the exit code of the failures if they agree, otherwise 70."""
        codes = {failure.exit_code for _, failure in self.failures}
        return 0 if not codes else codes.pop() if len(codes) == 1 else 70


def sweep(
    plan: Plan,
    out: str | Path,
    player: Player,
    show: Callable[[int, int], Progress] = show_progress,
    widen: bool = False,
    cost: Callable[[RunSettings], float] = lambda run: 1.0,
) -> Tally:
    """Play the missing runs of a plan.

    Args:
        out: the output directory; created if it does not exist, refused if it belongs to another plan.
        show: makes the progress display from the number of runs and the number of those already there.
        widen: see `Store.claim`.
        cost: expected cost of a run, in any unit, for the estimate of the time left; by default the same for all.
    """
    store = Store(Path(out))
    with store.claim(plan, widen):
        faults = find_faults(store, plan)
        damaged = [fault for fault in faults.values() if fault != "missing"]
        tally = Tally(len(plan.runs), len(plan.runs) - len(faults), damaged=damaged)
        try:
            with show(tally.total, tally.kept) as progress:
                for fault in tally.damaged:
                    progress.say(f"{fault}; playing it again")
                progress.expect(float(sum(map(cost, faults))))
                _play(store, units_of(plan, list(faults)), player, (tally, progress), cost)
        except KeyboardInterrupt:
            there = f"{tally.kept + tally.played} of {tally.total} runs are in {label(out)}"
            raise StoppedError(f"interrupted: {there}; run the same command again to resume") from None
    return tally


def find_faults(store: Store, plan: Plan) -> dict[RunSettings, str]:
    """The runs that must be played, and why: "missing", or what is wrong with their file."""
    digests = plan.models
    found = {run: store.fault(run, digests[run.model]) for run in plan.runs}
    return {run: fault for run, fault in found.items() if fault is not None}


def _play(
    store: Store,
    units: Sequence[Unit],
    player: Player,
    watch: tuple[Tally, Progress],
    cost: Callable[[RunSettings], float],
) -> None:
    if not units:
        return
    tally, progress = watch
    with closing(player(units)) as answers:
        for unit, answer in answers:
            if isinstance(answer, Failure):
                tally.failures.append((unit, answer))
                tally.log = store.log(_entry(unit, answer))
                progress.say(f"failed: {unit.runs[0]}: {answer.message}")
                continue
            for run in unit.runs:
                store.write(run, answer[run.seed])
                tally.played += 1
            progress.advance(len(unit.runs), sum(map(cost, unit.runs), 0.0))


def _entry(unit: Unit, failure: Failure) -> str:
    when = datetime.now(UTC).isoformat(timespec="seconds")
    seeds = ", ".join(str(run.seed) for run in unit.runs)
    return f"{when} {unit.runs[0]} (seeds {seeds})\n{failure.message}\n{failure.details.rstrip()}\n\n"


def require_success(tally: Tally) -> None:
    """Raise an error for the caller if not all runs could be played."""
    if tally.failures:
        _, first = tally.failures[0]
        runs = sum(len(unit.runs) for unit, _ in tally.failures)
        message = f"{runs} of {tally.total} runs failed, the first with: {first.message} (tracebacks: {tally.log})"
        error = BellmanifoldError(message)
        error.exit_code = tally.exit_code
        raise error
