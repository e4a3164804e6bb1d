"""The command `advise`: the best policy given the data, the expected loss of stopping, and what to try next."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bellmanifold.cli.shared_options import (
    Data,
    PosteriorOptions,
    compute_answer,
    end_unless_trusted,
    spread_options,
)
from bellmanifold.cli.terminal import All, AsJson, Model, from_the_start, print_first, print_json, say

if TYPE_CHECKING:
    from bellmanifold.decisions.advice import Advice

SHOWN = 20
"""Number of trials and states that the text output shows."""
LONGEST_ROUTE = 60
"""Number of moves of the best policy that are shown."""


@spread_options
def advise(
    model: Model,
    data: Data,
    options: PosteriorOptions,
    tolerance: Annotated[
        float | None, typer.Option(metavar="T", help="Recommend stopping if the expected loss is at most T.")
    ] = None,
    trial_sd: Annotated[
        float | None,
        typer.Option(metavar="S", help="Noise of the next trial, 0 if it is exact; by default that of trials made."),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also draw the best policy and what to try, as .png, .pdf, .svg."),
    ] = None,
    every: All = False,
    json_out: AsJson = False,
) -> None:
    """Recommend a policy given the data; report what stopping now costs and what to try next.

    Example: bellmanifold advise examples/robot/robot.json examples/robot/trips.json --prior-scale 5 --tolerance 0.1
    """
    from bellmanifold.decisions.advice import advise as compute

    weigh, title = partial(compute, tolerance=tolerance, trial_sd=trial_sd), "weighing what is known"
    advice, answer = compute_answer(weigh, title, "draw_advice", model, data, options, picture)
    if json_out:
        print_json(answer)
    else:
        _print_advice(advice, answer, every)
    end_unless_trusted(advice.trustworthy, "trustworthy, reason")


def _print_advice(advice: Advice, answer: dict[str, Any], every: bool) -> None:
    from bellmanifold.problem.costs import amount, worth

    for warning in answer.get("warnings", []):
        say(f"warning: {warning}")
    say(advice.headline)
    loss, best = answer["expected_loss"], answer["best"]
    value, optimal = best["value"], best["optimal"]
    typer.echo(f"expected loss {amount(loss['mean'], advice.costs, 4)} (se {loss['se']:.1g})")
    typer.echo(f"the best policy {worth(value['mean'], advice.costs, 4)} (se {value['se']:.1g})")
    typer.echo(f"it is optimal with probability {optimal['probability']:.4f} (se {optimal['se']:.1g})")
    if advice.tolerance is not None and not advice.trustworthy:
        typer.echo("stop: undecided (the posterior is not trustworthy)")
    elif advice.tolerance is not None:
        typer.echo(f"stop: {'yes' if advice.stop else 'no'} (tolerance {advice.tolerance:g})")
    _print_policy(advice, best["policy"], every)
    _print_trials(advice, answer, every)
    typer.echo(f"engine {answer['engine']}: {answer['reason']}")


def _print_policy(advice: Advice, policy: dict[str, str], every: bool) -> None:
    """The best policy: a route in one line, or a table of states where it is no route."""
    from bellmanifold.decisions.wording import route_of

    if route := route_of(advice, LONGEST_ROUTE):
        say(f"best policy: {route}")
        return
    typer.echo("best policy:")
    states = list(policy)
    if len(states) > SHOWN:
        states = from_the_start(advice.target.model, advice.picture()[0], states)
    print_first(("state", "action"), [(state, policy[state]) for state in states], "states", every, SHOWN)


def _print_trials(advice: Advice, answer: dict[str, Any], every: bool) -> None:
    """A table of the trials that tell something, those that may save something first."""
    from bellmanifold.decisions.wording import KNOWING_ALL, ONE_TRIAL, unit_of

    trials = [trial for trial in answer["trials"] if trial["tells"]]
    if not trials:
        return
    loss = answer["expected_loss"]["mean"]
    if advice.gain is None:
        typer.echo(f"moves, ranked by {KNOWING_ALL}{unit_of(advice)}:")
        trials.sort(key=lambda trial: not _matters(trial["perfect"], loss))
        matter = sum(_matters(trial["perfect"], loss) for trial in trials)
    else:
        typer.echo(f"gain: {ONE_TRIAL}; perfect: {KNOWING_ALL}{unit_of(advice)}:")
        matter = sum(trial["gain"]["mean"] > 0.0 for trial in trials)
    columns = ("state", "action", *(() if advice.gain is None else ("gain",)), "perfect", "se", "tried")
    rows = [(t["state"], t["action"], *_numbers(t, loss), str(t["tried"])) for t in trials]
    print_first(columns, rows, "pairs", every, min(SHOWN, max(1, matter)))


def _numbers(trial: dict[str, Any], loss: float) -> tuple[str, ...]:
    """What one trial would save, if that is known, and what knowing all would save."""
    one = () if trial["gain"] is None else (f"{trial['gain']['mean']:.4g}",)
    return (*one, *_gain(trial["perfect"], loss))


def _gain(gain: dict[str, float], loss: float) -> tuple[str, str]:
    """What would be saved and its standard error; it is between 0 and the loss, so a larger error is uninformative."""
    return ("not known", "-") if gain["se"] > max(loss, 0.0) else (f"{gain['mean']:.4g}", f"{gain['se']:.1g}")


def _matters(gain: dict[str, float], loss: float) -> bool:
    """Whether it is significant (two standard errors above 0) or unknown what would be saved."""
    return gain["mean"] > 2.0 * gain["se"] or gain["se"] > max(loss, 0.0)
