"""The parts of a report that stand still: what was run, by what, and the ledger of claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from bellmanifold.agents.registry import AGENTS
from bellmanifold.experiments.measures import sample_sd
from bellmanifold.experiments.plan import RunSettings
from bellmanifold.report.reading import Cell, Contents, libraries
from bellmanifold.report.text import escaped
from bellmanifold.reproduction.ledger_file import Ledger
from bellmanifold.reproduction.tables import basis, entry_text, origin, totals

MOST_MISSING = 20
MOST_SAID = 2000
"""Characters of a sentence in the ledger."""
MOODS = {"holds": "yes", "holds with a remark": "partly", "does not hold": "no"}
"""Verdict -> its colour."""


def overview(contents: Contents) -> str:
    """The table of all cells."""
    head = ("problem", "agent", "settings", "runs", "episodes", "first optimal policy", "regret (sd)", "seconds a run")
    return _table(head, [_row(cell) for cell in contents.cells])


def _row(cell: Cell) -> list[str]:
    settings = cell.settings
    reached = [first for first in cell.first_optimal if first is not None]
    missed = "never" if cell.has_optimum else "unknown"
    first = f"episode {median(reached):g} ({len(reached)} of {len(cell.runs)} runs)" if reached else missed
    last = np.array([curve[-1] for curve in cell.regret])
    sd = f" ({sample_sd(last):.3g})" if len(last) > 1 else ""
    return [
        escaped(settings.model),
        escaped(settings.agent),
        escaped(described(own_choices(settings))),
        str(len(cell.runs)),
        str(settings.episodes),
        first,
        "unknown" if np.isnan(last).any() else f"{last.mean():.3g}{sd}",
        f"{np.mean(cell.seconds):.2f}",
    ]


def own_choices(settings: RunSettings) -> dict[str, Any]:
    """What a run was told: tolerance and prior scale, and options that are not the agent's defaults."""
    kind = AGENTS.get(settings.agent)
    usual = {} if kind is None else {name: option.default for name, option in kind.options.items()}
    main = {"epsilon": settings.epsilon, "prior_scale": settings.prior_scale}
    others = {name: value for name, value in settings.options if name not in usual or usual[name] != value}
    return {name: value for name, value in main.items() if value is not None} | others


def described(choices: Mapping[str, Any]) -> str:
    """Settings in words.

    >>> described({"epsilon": 0.01, "prior_scale": 10.0})
    'epsilon 0.01, prior scale 10'
    """
    return ", ".join(f"{name.replace('_', ' ')} {_plain(value)}" for name, value in choices.items())


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def provenance(contents: Contents) -> str:
    """Which versions made the runs, most runs first."""
    items = []
    for (version, commit, versions), runs in sorted(contents.made_by.items(), key=lambda item: -item[1]):
        source = f", commit <code>{escaped(commit)}</code>" if commit else ""
        items.append(f"<li>{runs} runs by bellmanifold {escaped(version)}{source}; {escaped(libraries(versions))}</li>")
    seconds = sum(sum(cell.seconds) for cell in contents.cells)
    return f"<p>{seconds:,.0f} seconds of playing and learning in all.</p>\n<ul>{''.join(items)}</ul>"


def missing(contents: Contents) -> str:
    """Which problems cannot be drawn, and why."""
    items = [f"<li>{escaped(name)}: {escaped(why)}</li>" for name, why in contents.missing.items()]
    return f"<p>Not drawn:</p><ul>{''.join(items[:MOST_MISSING])}</ul>" if items else ""


def ledger(found: Ledger | None) -> str:
    """The ledger of claims as a section; nothing if there is none."""
    if found is None:
        return ""
    head = ("where", "statement", "criterion", "measured", "verdict")
    rows = []
    for claim in found.claims:
        remark = f'<div class="remark">{escaped(claim.remark, MOST_SAID)}</div>' if claim.remark else ""
        rows.append(
            [
                escaped(claim.source),
                escaped(claim.statement, MOST_SAID) + remark,
                escaped(claim.criterion, MOST_SAID),
                "<br>".join(escaped(entry_text(entry), MOST_SAID) for entry in claim.measured),
                f'<span class="verdict {MOODS[claim.verdict]}">{escaped(claim.verdict)}</span>',
            ]
        )
    line = f"{escaped(f'{totals(found.claims)}, {basis(found)}')}. {escaped(origin(found)) if found.date else ''}"
    title = f'<h2 id="ledger">The ledger</h2><p>{line}</p>'
    return f'<section class="ledger" aria-labelledby="ledger">{title}{_table(head, rows)}</section>'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    top = "".join(f'<th scope="col">{name}</th>' for name in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f'<div class="wide" tabindex="0"><table><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table></div>'
