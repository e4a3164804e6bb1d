"""The command `posterior`: probabilities that actions and routes are optimal, given observations."""

from __future__ import annotations

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
from bellmanifold.cli.terminal import SHOWN, WIDEST_ROUTE, All, AsJson, Model, print_first, print_json, say
from bellmanifold.errors import count_of

if TYPE_CHECKING:
    from bellmanifold.posteriors.summary import Summary
    from bellmanifold.problem.costs import Costs

SHOWN_ROUTES, LONGEST_ROUTE = 10, 60
"""Number of routes shown, and of the moves of each."""
SHOWN_MASS = 5e-5
"""Improper mass below this, which four digits would show as 0, is not printed."""


@spread_options
def posterior(
    model: Model,
    data: Data,
    options: PosteriorOptions,
    picture: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw it, as .png, .pdf or .svg.")] = None,
    every: All = False,
    json_out: AsJson = False,
) -> None:
    """Compute the probability that each action and route is optimal, given observations.

    Example: bellmanifold posterior env:two-state data.json --epsilon 0.01 --json
    """
    from bellmanifold.posteriors.inference import posterior as compute

    title = "computing the posterior"
    summary, answer = compute_answer(compute, title, "draw", model, data, options, picture)
    if json_out:
        print_json(answer)
    else:
        _print_posterior(summary, answer, every)
    end_unless_trusted(summary.trustworthy, "trustworthy, effective_sample_size, diagnostics")


def _print_posterior(summary: Summary, answer: dict[str, Any], every: bool) -> None:
    from bellmanifold.posteriors.reporting import end_of
    from bellmanifold.problem.costs import column_name, worded

    costs = summary.costs
    for warning in answer.get("warnings", []):
        typer.echo(f"warning: {warning}")
    if (noise := answer.get("noise")) is None:
        width = f"epsilon {answer['epsilon']:g}"
    else:
        width = f"{noise['law']} noise of scale {noise['mean']:.4g}" + (
            f" (sd {noise['sd']:.2g})" if noise["sd"] else ""
        )
    seen = count_of(answer["observed_pairs"] - summary.believed, "observed pair")
    seen += f", a belief about {summary.believed} more" if summary.believed else ""
    typer.echo(f"{seen}, {width}, {worded(_prior(answer, costs), costs)}")
    if first := _first_move(summary):
        say(first)
    for key, meaning in (
        ("improper_mass", "known from the data"),
        ("improper_mass_model", "under the true transitions"),
    ):
        mass = answer[key]
        if mass is not None and mass["probability"] >= SHOWN_MASS:
            typer.echo(f"improper policies, {meaning}: {mass['probability']:.4f} (se {mass['se']:.1g})")
    value = (column_name("expected value", costs), *(worded(f"{spread} of value", costs) for spread in ("se", "sd")))
    print_first(
        ("state", "action", "optimal with probability", "se", *value),
        [_row(summary, answer, *summary.target.model.pair_name(pair)) for pair in _order_pairs(summary)],
        "pairs",
        every,
    )
    routes = summary.routes
    if routes:
        typer.echo("most probable routes:")
        listed = [
            (f"{r['probability']:.4f}", f"{r['se']:.1g}", route.way(end_of(summary, route), LONGEST_ROUTE))
            for route, r in zip(routes, answer["routes"], strict=True)
        ]
        print_first((), listed, "routes", every, SHOWN_ROUTES, WIDEST_ROUTE)
    if answer["log_evidence"] is not None:
        typer.echo(f"log evidence {answer['log_evidence']:.6g} (se {answer['log_evidence_se']:.1g})")
    typer.echo(f"engine {answer['engine']}: {answer['reason']}")


def _first_move(summary: Summary) -> str:
    """A sentence about the most probable move at the start; empty if there are several starts or no choice."""
    model, chance = summary.target.model, summary.action_probability
    starts = model.initial.nonzero()[0].tolist()
    own = range(model.pair_start[starts[0]], model.pair_start[starts[0] + 1])
    if len(starts) > 1 or len(own) < 2:
        return ""
    best = max(own, key=lambda pair: float(chance.value[pair]))
    state, action = model.pair_name(best)
    value, se = float(chance.value[best]), _or_zero(float(chance.se[best]), 1e-12)
    return f"at the start ({state}) {action} is optimal with probability {min(1.0, value):.4f} (se {se:.1g})"


def _order_pairs(summary: Summary) -> list[int]:
    """Pairs in the problem's order if there are few, otherwise the most relevant first."""
    model, target = summary.target.model, summary.target
    if model.n_pairs <= SHOWN:
        return list(range(model.n_pairs))
    from bellmanifold.posteriors.reporting import by_doubt

    return by_doubt(model, summary.action_probability.value, target.coupled).tolist()


def _row(summary: Summary, answer: dict[str, Any], state: str, action: str) -> tuple[str, ...]:
    from bellmanifold.problem.costs import signed

    found = answer["actions"][state][action]
    mean, error, sd = (answer[name][state][action] for name in ("q_mean", "q_mean_se", "q_sd"))
    rounding = 1e-6 * abs(mean or 0.0)
    return (
        state,
        action,
        f"{found['probability']:.4f}",
        f"{_or_zero(found['se'], 1e-12):.1g}",
        "-" if mean is None else f"{signed(mean, summary.costs):.4g}",
        "-" if error is None else f"{_or_zero(error, rounding):.1g}",
        "-" if sd is None else f"{_or_zero(sd, rounding):.4g}",
    )


def _prior(answer: dict[str, Any], costs: Costs | None) -> str:
    """The prior in words, with any restriction to proper policies."""
    from bellmanifold.problem.costs import signed

    scale, mean = answer["prior_scale"], answer["prior_mean"]
    if scale == "flat":
        told = "flat prior over rewards"
    elif scale is None or mean is None:
        told = "priors that differ by pair"
    else:
        told = f"prior scale {scale:g}" + (f" and mean {signed(mean, costs):g}" if mean else "")
    told += ", no move pays" if answer["costs_only"] else ""
    return told + (", proper policies only" if answer["proper_only"] else "")


def _or_zero(value: float, rounding: float) -> float:
    """The value, or 0 if it is no larger than the rounding error."""
    return value if value > rounding else 0.0
