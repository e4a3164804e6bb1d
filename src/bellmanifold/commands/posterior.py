"""The command `posterior`: how probable it is that each action and route is optimal, given observations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bellmanifold.commands.pictures import save_picture
from bellmanifold.commands.posterior_options import PosteriorOptions, open_files, takes_posterior_options, trusted
from bellmanifold.commands.terminal import AsJson, print_json, print_table, working
from bellmanifold.errors import counted
from bellmanifold.interrupts import interruptible

SHOWN_MASS = 5e-5
"""Improper mass that four digits would show as 0 is not mentioned."""


@takes_posterior_options
def posterior(
    model: str,
    data: Path,
    options: PosteriorOptions,
    picture: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw it, as .png, .pdf or .svg.")] = None,
    json_out: AsJson = False,
) -> None:
    """Say how probable it is that each action and route is optimal, given observations.

    Example: bellmanifold posterior env:two-state data.json --epsilon 0.01 --json
    """
    from bellmanifold.posteriors.inference import posterior as compute

    problem, observed = open_files(model, data, options, picture)
    with working("computing the posterior"), interruptible("give the same command again; nothing was printed"):
        summary = compute(problem, observed, **options.keywords())
        answer = summary.to_dict()
    if picture is not None:
        save_picture(picture, lambda: _drawn(problem, summary))
    if json_out:
        print_json(answer)
    else:
        _print_posterior(answer)
    trusted(summary.trustworthy, "trustworthy, effective_sample_size, diagnostics")


def _print_posterior(answer: dict[str, Any]) -> None:
    for warning in answer.get("warnings", []):
        typer.echo(f"warning: {warning}")
    if (noise := answer.get("noise")) is None:
        width = f"epsilon {answer['epsilon']:g}"
    else:
        width = f"{noise['law']} noise of scale {noise['mean']:.4g}" + (
            f" (sd {noise['sd']:.2g})" if noise["sd"] else ""
        )
    typer.echo(f"{counted(answer['observed_pairs'], 'observed pair')}, {width}, {_prior(answer)}")
    typer.echo(f"engine {answer['engine']}: {answer['reason']}")
    if answer["log_evidence"] is not None:
        typer.echo(f"log evidence {answer['log_evidence']:.6g} (se {answer['log_evidence_se']:.1g})")
    for key, meaning in (
        ("improper_mass", "known from the data"),
        ("improper_mass_model", "under the true transitions"),
    ):
        mass = answer[key]
        if mass is not None and mass["probability"] >= SHOWN_MASS:
            typer.echo(f"improper policies, {meaning}: {mass['probability']:.4f} (se {mass['se']:.1g})")
    rows: list[tuple[str, ...]] = [("state", "action", "optimal with probability", "se", "mean of q", "sd of q")]
    with_error = "laws" in answer  # elsewhere it is small
    rows[0] += ("se of mean",) if with_error else ()
    for state, actions in list(answer["actions"].items())[:40]:
        for action, found in actions.items():
            mean, sd = answer["q_mean"][state][action], answer["q_sd"][state][action]
            se, sd = _or_zero(found["se"], 1e-12), _or_zero(sd, 1e-6 * abs(mean))
            error = _or_zero(answer["q_mean_se"][state][action], 1e-6 * abs(mean))
            numbers = (f"{found['probability']:.4f}", f"{se:.1g}", f"{mean:.4g}", f"{sd:.4g}")
            rows.append((state, action, *numbers, *([f"{error:.1g}"] if with_error else [])))
    print_table(rows)
    routes = answer.get("routes", [])[:10]
    if routes:
        typer.echo("most probable routes:")
        print_table(
            [
                (f"{r['probability']:.4f}", f"{r['se']:.1g}", r["ends"], " ".join(f"{s}:{a}" for s, a in r["pairs"]))
                for r in routes
            ]
        )


def _prior(answer: dict[str, Any]) -> str:
    """The prior, and whether it leaves anything out, in words."""
    scale, mean = answer["prior_scale"], answer["prior_mean"]
    if scale == "flat":
        told = "flat prior over rewards"
    elif scale is None or mean is None:
        told = "priors that differ by pair"
    else:
        told = f"prior scale {scale:g}" + (f" and mean {mean:g}" if mean else "")
    return told + (", proper policies only" if answer["proper_only"] else "")


def _or_zero(value: float, rounding: float) -> float:
    """0 where nothing but rounding is left."""
    return value if value > rounding else 0.0


def _drawn(problem: Any, summary: Any) -> Any:
    from bellmanifold.figures import draw

    return draw(problem, summary)
