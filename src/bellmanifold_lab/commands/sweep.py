"""The command `sweep`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bellmanifold._util.extras import require_extra
from bellmanifold._util.progress import duration
from bellmanifold._util.stderr import remark
from bellmanifold.cli.terminal import directory, require_workers
from bellmanifold.errors import BadInputError
from bellmanifold.learning.environment import keep_compiled_programs

if TYPE_CHECKING:
    from bellmanifold_lab.sweeps.plan import Plan


def sweep(
    plan: Annotated[Path, typer.Argument(metavar="PLAN.toml", help="What to run.", show_default=False)],
    out: Annotated[
        Path, typer.Option(metavar="DIR", parser=directory, help="Where results are, or will be.", show_default=False)
    ],
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Processes on this machine (default 1).", show_default=False)
    ] = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Dask scheduler to send the runs to instead.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs and estimate the time.")] = False,
) -> None:
    """Run a plan: play every run that is missing or damaged in DIR.

    Example: bellmanifold sweep plan.toml --out results --workers 2
    """
    if workers is not None and dask is not None:
        raise BadInputError(
            "--workers and --dask contradict each other: the cluster has its own workers, leave one out"
        )
    if dask is not None:
        require_extra("cluster", "--dask")
    require_workers(workers)
    keep_compiled_programs()
    from bellmanifold_lab.sweeps.plan import read_plan

    wanted = read_plan(plan)
    for note in wanted.notes:
        remark(note)
    if dry_run:
        _preview(wanted, out, workers or 1)
    else:
        _run(wanted, out, workers or 1, dask)


def _run(plan: Plan, out: Path, workers: int, dask: str | None) -> None:
    from bellmanifold_lab.sweeps.cluster import play_on_cluster
    from bellmanifold_lab.sweeps.runner import Player, require_success
    from bellmanifold_lab.sweeps.runner import sweep as run
    from bellmanifold_lab.sweeps.workers import play_in_processes

    player: Player = partial(play_in_processes, workers=workers)
    if dask is not None:
        player = partial(play_on_cluster, address=dask)
    tally = run(plan, out, player)
    require_success(tally)
    typer.echo(f"{tally.total} runs in {out}: {tally.played} played now, {tally.kept} already there")


def _preview(plan: Plan, out: Path, workers: int) -> None:
    from bellmanifold_lab.sweeps.estimate import estimate
    from bellmanifold_lab.sweeps.runner import find_faults
    from bellmanifold_lab.sweeps.store import Store

    store = Store(out)
    store.compare(plan)
    faults = find_faults(store, plan)
    about = estimate(plan, list(faults), store)
    for run in plan.runs:
        state = "done" if run not in faults else "missing" if faults[run] == "missing" else "damaged"
        refusal = about.refused.get(run.cell)
        typer.echo(f"{state:8}{run}" + (f" (refused: {refusal})" if refusal else ""))
    typer.echo(f"{len(plan.runs)} runs, {len(plan.runs) - len(faults)} done, {len(faults)} to play")
    if faults:
        total = about.total(list(faults))
        basis = f"{about.tried} short trials, {about.found} finished runs, {about.guessed} guesses from other runs"
        typer.echo(f"roughly {duration(total / workers)} with --workers {workers} (from {basis})")
