"""The static parts of a report: what was run, and with which versions."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np
from jaxtyping import Float

from bellmanifold.agents.registry import every_agent
from bellmanifold.learning.metrics import sample_sd
from bellmanifold.learning.run_settings import RunSettings
from bellmanifold_lab.report.reading import Cell, Contents, libraries
from bellmanifold_lab.report.text import escape_name, html_table

MOST_MISSING = 20
REGRETS = ("completed regret (sd)", "gap regret (sd)")
ROUNDING = 1e-12
"""Final values that differ by at most this share count as equal: the difference is due to the order of summation."""


def overview(contents: Contents, paper: bool = False) -> str:
    """The table of all cells; for the `paper` with its definition of regret as well, which giving up improves."""
    head = ("problem", "agent", "settings", "runs", "episodes", "first optimal policy", *REGRETS)
    stops = any(np.isfinite(cell.expected_loss).any() for cell in contents.cells)
    at_stop = ("stopped exploring", "expected loss then", "true loss then") if stops else ()
    more = ("arrived", *(("regret as in the paper (sd)",) if paper else ()), *at_stop, "seconds per run")
    return html_table((*head, *more), [_row(cell, paper, stops) for cell in contents.cells])


def _row(cell: Cell, paper: bool, stops: bool) -> list[str]:
    settings = cell.settings
    reached = [first for first in cell.first_optimal if first is not None]
    missed = "never" if cell.has_optimum else "unknown"
    first = f"episode {median(reached):g} ({len(reached)} of {len(cell.runs)} runs)" if reached else missed
    return [
        escape_name(settings.model),
        escape_name(settings.agent),
        escape_name(describe(own_choices(settings))),
        str(len(cell.runs)),
        str(settings.episodes),
        first,
        _at_the_end(cell.completed),
        _at_the_end(cell.gap),
        f"{np.mean(cell.arrived):.0%}",
        *([_at_the_end(cell.regret)] if paper else []),
        *(_at_the_stop(cell) if stops else []),
        f"{np.mean(cell.seconds):.2f}",
    ]


def _at_the_stop(cell: Cell) -> tuple[str, str, str]:
    """The episode before which runs stopped exploring, and the expected and true loss at that point."""
    stop = cell.stop
    if stop is None:
        return ("no" if np.isfinite(cell.expected_loss).any() else ""), "", ""
    where = f"before episode {stop.episode:g} ({stop.runs} of {len(cell.runs)} runs)"
    return where, f"{stop.expected:.3g}", "unknown" if np.isnan(stop.true) else f"{stop.true:.3g}"


def _at_the_end(curves: list[Float[np.ndarray, "episodes"]]) -> str:
    """Mean and standard deviation over runs of the final values of their curves."""
    last = np.array([curve[-1] for curve in curves])
    spread = sample_sd(last) if np.ptp(last) > ROUNDING * np.abs(last).max() else 0.0
    sd = f" ({spread:.3g})" if len(last) > 1 else ""
    return "unknown" if np.isnan(last).any() else f"{last.mean():.3g}{sd}"


def own_choices(settings: RunSettings) -> dict[str, Any]:
    """A run's tolerance and prior scale, and the options that differ from the agent's defaults."""
    kind = next((kind for kind in every_agent() if kind.name == settings.agent), None)
    usual = {} if kind is None else {name: option.default for name, option in kind.options.items()}
    main = ("epsilon", "prior_scale")
    return {n: v for n, v in settings.choices().items() if n in main or n not in usual or usual[n] != v}


def describe(choices: Mapping[str, Any]) -> str:
    """Settings in words.

    >>> describe({"epsilon": 0.01, "prior_scale": 10.0})
    'epsilon 0.01, prior scale 10'
    """
    return ", ".join(f"{name.replace('_', ' ')} {_plain(value)}" for name, value in choices.items())


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def provenance(contents: Contents) -> str:
    """The versions that made the runs, those with most runs first."""
    items = []
    for (version, commit, versions), runs in sorted(contents.made_by.items(), key=lambda item: -item[1]):
        source = f", commit <code>{escape_name(commit)}</code>" if commit else ""
        items.append(
            f"<li>{runs} runs by bellmanifold {escape_name(version)}{source}; {escape_name(libraries(versions))}</li>"
        )
    seconds = sum(sum(cell.seconds) for cell in contents.cells)
    return f"<p>{seconds:,.0f} seconds of playing and learning in total.</p>\n<ul>{''.join(items)}</ul>"


def missing(contents: Contents) -> str:
    """The problems that cannot be drawn, and why."""
    items = [f"<li>{escape_name(name)}: {escape_name(why)}</li>" for name, why in contents.missing.items()]
    return f"<p>Not drawn:</p><ul>{''.join(items[:MOST_MISSING])}</ul>" if items else ""
