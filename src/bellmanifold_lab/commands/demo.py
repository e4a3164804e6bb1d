"""The command `demo`: three problems, three agents, a table and the report, in about a minute."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Annotated

import typer

from bellmanifold._util.extras import require_extra
from bellmanifold._util.interrupts import interruptible
from bellmanifold._util.progress import show_count
from bellmanifold.cli.terminal import directory, print_table
from bellmanifold.learning.environment import keep_compiled_programs
from bellmanifold_lab.commands.report import publish

if TYPE_CHECKING:
    from bellmanifold.learning.run_settings import RunSettings
    from bellmanifold.problem.ssp import SSP
    from bellmanifold_lab.report.reading import Cell
    from bellmanifold_lab.sweeps.plan import Plan
    from bellmanifold_lab.sweeps.runner import Player

    Improper = Callable[[SSP, RunSettings, list[int]], float]

PROBLEMS = tuple(f"env:{name}?depth=5" for name in ("deep-sea", "pyramid", "swirl"))
AGENTS: tuple[dict[str, str], ...] = (
    {"agent": "manifold", "explore": "directed"},
    {"agent": "manifold"},
    {"agent": "bayes-br"},
)
"""The best agent, and the paper's way of exploring with the exact posterior and with the relaxed one."""
EPISODES, RUNS, WORKERS = 100, 3, 2


def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", parser=directory, help="Where runs and report are, or will be.")
    ] = Path("out/demo"),
) -> None:
    """Let agents learn three problems, with directed exploration and with the paper's, and write the report.

    Example: bellmanifold demo --out out/demo
    """
    require_extra("report", "the report")
    keep_compiled_programs()
    from bellmanifold_lab.sweeps.plan import plan_entries
    from bellmanifold_lab.sweeps.workers import play_in_processes

    entries = [
        {"model": model, "episodes": EPISODES, "seed": seed, **agent}
        for model in PROBLEMS
        for agent in AGENTS
        for seed in range(RUNS)
    ]
    show(plan_entries(entries), out, partial(play_in_processes, workers=WORKERS))


def show(plan: Plan, out: Path, player: Player, improper: Improper | None = None) -> None:
    """Play a plan whose cells all have the same number of runs and episodes, print a table and write the report.

    `improper` computes the improper mass after a run; the default is that of the run's posterior.
    """
    from bellmanifold_lab.report.reading import read_directory
    from bellmanifold_lab.sweeps.runner import require_success, sweep
    from bellmanifold_lab.sweeps.store import runs_in

    require_success(sweep(plan, runs_in(out), player))
    cells = {cell.settings.cell: cell for cell in read_directory(runs_in(out)).cells}
    typer.echo(
        f"{len(plan.runs) // len(cells)} runs of {plan.runs[0].episodes} episodes each; agents know nothing at first"
    )
    rows: list[tuple[str, ...]] = [
        ("problem", "agent", "first optimal episode", "completed regret", "arrived", "improper mass", "seconds")
    ]
    with show_count("computing final", "posteriors", len(plan.runs)) as one_more:
        for shared in dict.fromkeys(run.cell for run in plan.runs):
            measure = partial(improper or improper_mass, plan.problems[shared.model])
            name = shared.agent + (", directed" if dict(shared.options).get("explore") == "directed" else "")
            rows.append((shared.model, name, *_cell_text(cells[shared], measure, one_more)))
    print_table(rows)
    typer.echo(
        "Medians of first episodes, means of the rest; improper mass: the final posterior's probability that its"
    )
    typer.echo("policy may miss the goal forever. manifold draws from the exact posterior, bayes-br at tolerance 0.01;")
    typer.echo("directed takes the shortest way to unseen pairs whenever its draw wants something unseen.")
    publish(out, out / "report.html")


def _cell_text(
    cell: Cell, measure: Callable[[RunSettings, list[int]], float], one_more: Callable[[], None]
) -> tuple[str, ...]:
    """The measured columns of a cell's table row."""
    from bellmanifold.learning.run_file import read_arrays

    improper = []
    for path, settings in cell.runs:
        found, _ = read_arrays(path, ["pair"])
        with interruptible("run the same command again to resume"):
            improper.append(measure(settings, found["pair"].tolist()))
        one_more()
    reached = [episode for episode in cell.first_optimal if episode is not None]
    never = f" ({len(cell.runs) - len(reached)} never)" if len(reached) < len(cell.runs) else ""
    when = f"{median(reached):g}{never}" if reached else "never"
    regret, arrived = mean(float(curve[-1]) for curve in cell.completed), mean(float(a.mean()) for a in cell.arrived)
    return when, f"{regret:.2f}", f"{arrived:.0%}", f"{mean(improper):.4f}", f"{mean(cell.seconds):.1f}"


def improper_mass(model: SSP, run: RunSettings, pairs: list[int]) -> float:
    """The posterior probability, given all of a run's data, that the optimal policy is improper."""
    from bellmanifold.mdp.graph import end_components
    from bellmanifold.posteriors.inference import posterior
    from bellmanifold.problem.dataset import Dataset

    if not end_components(model):  # every policy is proper
        return 0.0
    data = Dataset.from_pairs(model, [model.pair_name(pair) for pair in sorted(set(pairs))])
    summary = posterior(model, data, epsilon=run.epsilon or 0.0, prior_scale=run.prior_scale or 10.0)
    mass = summary.improper_mass_model
    assert mass is not None, "the demonstration's problems have no open laws"
    return float(mass.value)
