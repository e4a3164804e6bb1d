"""The command `learn`: let an agent learn a problem several times, and report how it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bellmanifold._util.interrupts import interruptible
from bellmanifold._util.options import LawsName
from bellmanifold.cli.completion import agents
from bellmanifold.cli.shared_options import Discount, PriorMean, read_scale, spread_options
from bellmanifold.cli.terminal import (
    AsJson,
    Model,
    Prune,
    check_picture,
    directory,
    print_json,
    print_table,
    refusing,
    report_dropped,
    save_picture,
)
from bellmanifold.errors import BadInputError, count_of
from bellmanifold.learning.environment import keep_compiled_programs

if TYPE_CHECKING:
    from bellmanifold.learning.run import Run
    from bellmanifold.learning.runs import Learning
    from bellmanifold.problem.costs import Costs

SHOWN_EPISODES = (1, 2, 5, 10, 20, 50)
FEW_ARRIVE = 0.25
"""If a smaller share of the episodes arrives, the output suggests other options."""


@dataclass(frozen=True)
class LearnOptions:
    """Options of the agent; None or False means the agent's own default."""

    epsilon: Annotated[float | None, typer.Option(help="Tolerance, where the agent has one [default: 0.01].")] = None
    prior_scale: Annotated[
        str | None,
        typer.Option(
            metavar="SD", help="Standard deviation of the prior of every action value [default: 10; rlsvi: 1]."
        ),
    ] = None
    prior_mean: PriorMean = None
    laws: Annotated[
        LawsName | None,
        typer.Option(
            help="Show the agent the law of every pair it plays (known, the default), or only where it lands: "
            "no table is used then.",
            show_default=False,
        ),
    ] = None
    concentration: Annotated[
        float | None,
        typer.Option(metavar="A", help="Of the Dirichlet prior of each law (also of psrl's); inferred unless given."),
    ] = None
    noise_sd: Annotated[
        float | None,
        typer.Option(metavar="ETA", help="Standard deviation of the rewards' noise, instead of a tolerance."),
    ] = None
    infer_noise: Annotated[bool, typer.Option("--infer-noise", help="Infer that standard deviation.")] = False
    explore: Annotated[
        str | None,
        typer.Option(metavar="HOW", help="thompson (play the draw, the default) or directed (head for unseen pairs)."),
    ] = None
    replan: Annotated[
        bool,
        typer.Option(
            "--replan", help="Go on when a state repeats; look again at what is new or seen twice as often as before."
        ),
    ] = False
    until_loss: Annotated[
        float | None,
        typer.Option(metavar="T", help="Stop exploring once the expected loss of the best policy is at most T."),
    ] = None

    def keywords(self) -> dict[str, Any]:
        """The options as agents take them; None for those not given."""
        told = {name: None if value is False else value for name, value in asdict(self).items()}
        return told | {"prior_scale": read_scale(self.prior_scale, may_be_flat=False)}


@spread_options
def learn(
    model: Model,
    agent: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Agent to train; an unknown name prints the list.",
            show_default=False,
            autocompletion=agents,
        ),
    ],
    options: LearnOptions,
    episodes: Annotated[int, typer.Option(help="Episodes per run.")] = 100,
    runs: Annotated[int, typer.Option(help="Independent runs; run i has seed K + i.")] = 10,
    seed: Annotated[int, typer.Option(metavar="K", help="Random seed; determines every result.")] = 0,
    discount: Discount = None,
    prune: Prune = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the completed regret, as .png, .pdf or .svg.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=directory,
            help="Keep the runs there; the same command goes on where it was interrupted.",
        ),
    ] = None,
    json_out: AsJson = False,
) -> None:
    """Let an agent learn a problem several times from scratch, and report its regret.

    Example: bellmanifold learn env:deep-sea?depth=5 --agent bayes-td-max --runs 20 --json
    """
    keep_compiled_programs()
    from bellmanifold.agents.environments import open_world
    from bellmanifold.agents.registry import check_supported, find_agent
    from bellmanifold.learning.environment import use_one_thread
    from bellmanifold.learning.run import check_memory

    use_one_thread()
    if picture is not None:
        check_picture(picture)
    reference, problem = _open_problem(model, discount, prune, out)
    told = options.keywords()
    with refusing(model):
        check_supported(find_agent(agent), open_world(problem), told)
        check_memory(problem, episodes, runs)
        entry = {"model": reference, "agent": agent, "episodes": episodes} | told
        learning = _play_runs(problem, entry, runs, seed, out)
    if picture is not None:
        save_picture(picture, "draw_regret", learning)
    answer = learning.to_dict()
    if json_out:
        print_json(answer)
    else:
        _print_learning(answer, learning.costs)


def _open_problem(model: str, discount: float | None, prune: bool, out: Path | None) -> tuple[str, Any]:
    """The reference under which runs are stored, and the problem, pruned and then discounted on request."""
    from bellmanifold.io.models import load_whole
    from bellmanifold.learning.runs import discounted

    if prune and out is not None:
        raise BadInputError(
            "--prune with --out needs a problem that has no dead ends, so that it can be found again: write it with "
            "`env export MODEL --prune --out FILE` and give that file, or leave one of the two out"
        )
    if discount is not None and model.startswith("env:") and not prune:
        model, discount = f"{model}{'&' if '?' in model else '?'}discount={discount:.17g}", None
    if discount is not None and out is not None:
        raise BadInputError(
            "--discount with --out needs a problem that states its discount, so that it can be found again: write "
            '"discount" into the problem file, or leave one of the two out'
        )
    problem = load_whole(model, "learn", needs_table=False, prune=prune)
    report_dropped(model, problem)
    return model, problem if discount is None else discounted(problem, discount)


def _play_runs(problem: Any, entry: dict[str, Any], runs: int, seed: int, out: Path | None) -> Learning:
    """Play the runs that are not stored, and store each one when it ends; `entry` is an entry of a plan."""
    from bellmanifold.learning.runs import learn as let_learn

    done = 0

    def how_to_go_on() -> str:
        if out is None:
            return "nothing is kept without --out; the same command plays all runs from the start"
        return f"{done} of {runs} runs are in {out}; the same command plays only the others"

    with _keeper(out, entry, range(seed, seed + runs)) as (kept, keep), interruptible(how_to_go_on) as require_none:
        done = len(kept)
        if kept:
            typer.echo(f"{done} of {runs} runs are in {out} and are not played again", err=True)

        def after_run(run: Run) -> None:
            nonlocal done
            require_none()
            keep(run)
            done += 1

        how = {name: value for name, value in entry.items() if name != "model"}
        learning = let_learn(problem, runs=runs, seed=seed, after_run=after_run, kept=kept, **how)
    return replace(learning, out=None if out is None else str(out))


def _keeper(
    out: Path | None, entry: dict[str, Any], seeds: range
) -> AbstractContextManager[tuple[Mapping[int, Run], Callable[[Run], None]]]:
    """Runs that are stored, and a function that stores another."""
    from bellmanifold.learning.kept import keep_runs
    from bellmanifold.learning.run import LARGEST_SEED

    wrong = not seeds or seeds[0] < 0 or seeds[-1] > LARGEST_SEED or entry["episodes"] < 1
    if out is None or wrong:  # `learn` itself reports the error
        return nullcontext(({}, lambda run: None))
    return keep_runs(out, entry, seeds, partial(typer.echo, err=True))


def _print_learning(answer: dict[str, Any], costs: Costs | None) -> None:
    from bellmanifold.problem.costs import amount, column_name, signed, worded

    said = {name: value for name, value in answer["options"].items() if value is not None and value is not False}
    chosen = ", ".join(f"{name} {value}" for name, value in said.items())
    for message in answer["messages"]:
        typer.echo(f"warning: {message}")
    typer.echo(f"{answer['agent']} ({chosen})")
    best = answer["optimal_value"]
    best = "unknown" if best is None else amount(signed(best, costs), costs, 6)
    size = f"{count_of(answer['runs'], 'run')} of {answer['episodes']} episodes"
    typer.echo(f"{size}, {worded('optimal value', costs)} {best}")
    last = answer["episodes"]
    rows: list[tuple[str, ...]] = [
        (
            "episode",
            column_name("completed regret", costs),
            "sd",
            "95% interval",
            "arrived",
            "pairs seen",
            "optimal policy",
        )
    ]
    for episode in [*(k for k in SHOWN_EPISODES if k < last), last]:
        k = episode - 1
        low, high = answer["cumulative_completed_regret_interval"][k]
        rows.append(
            (
                str(episode),
                _number(answer["cumulative_completed_regret_mean"][k]),
                _number(answer["cumulative_completed_regret_sd"][k]),
                f"{_number(low)} to {_number(high)}",
                f"{mean(answer['goal_reached_mean'][:episode]):.0%}",
                f"{answer['coverage_mean'][k]:.0%}",
                "unknown" if (share := answer["optimal_mean"][k]) is None else f"{share:.0%}",
            )
        )
    print_table(rows)
    typer.echo("completed regret: the loss so far, as if an optimal policy had completed the episodes that end early")
    for hint in _hints(answer):
        typer.echo(hint)
    names = {"first_optimal_episode": "first optimal policy", "all_pairs_episode": "every pair seen"}
    for key, meaning in {**names, "solved_episode": "solved by bsuite's rule"}.items():
        reached = [k for k in answer[key] if k is not None]
        if reached:
            middle = f"{median(reached):g}"
            typer.echo(f"{meaning}: {len(reached)} of {answer['runs']} runs, median: after {middle} episodes")
    stopped = [k for k in answer.get("stopped_episode", []) if k is not None]
    if "stopped_episode" in answer:
        middle = f", median: before episode {median(stopped):g}" if stopped else ""
        typer.echo(f"stopped exploring: {len(stopped)} of {answer['runs']} runs{middle}")
    if any(answer["capped_episodes"]):
        typer.echo(f"episodes given up after too many moves: {sum(answer['capped_episodes'])}")


def _hints(answer: dict[str, Any]) -> list[str]:
    """Suggestions for an agent that rarely arrives, if it has unused options that may help."""
    options, arrived = answer["options"], mean(answer["goal_reached_mean"])
    unused = options.get("explore") == "thompson" and options.get("replan") is False
    if arrived >= FEW_ARRIVE or not unused:
        return []
    return [f"only {arrived:.0%} of the episodes arrived: --explore directed --replan seeks what was not seen"]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
