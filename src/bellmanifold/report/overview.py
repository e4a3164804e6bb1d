"""The parts of a report that stand still: what was run, by what, and the ledger of claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from bellmanifold.agents.registry import AGENTS
from bellmanifold.experiments.plan import RunSettings
from bellmanifold.report.reading import Cell, Contents, libraries
from bellmanifold.report.text import escaped

MOST_MISSING = 20


def overview(contents: Contents) -> str:
    """The table of all cells."""
    head = ("problem", "agent", "settings", "runs", "episodes", "first optimal policy", "regret (sd)", "seconds a run")
    return _table(head, [_row(cell) for cell in contents.cells])


def _row(cell: Cell) -> list[str]:
    settings = cell.settings
    reached = [first for first in cell.first_optimal if first is not None]
    first = f"episode {median(reached):g} ({len(reached)} of {len(cell.runs)} runs)" if reached else "never"
    last = np.array([curve[-1] for curve in cell.regret])
    sd = f" ({last.std(ddof=1):.3g})" if len(last) > 1 else ""
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


def ledger(claims: Sequence[Mapping[str, Any]] | None) -> str:
    """The ledger of claims as a section; nothing if there is none."""
    if claims is None:
        return ""
    head = ("where", "statement", "criterion", "measured", "verdict")
    rows = []
    for claim in claims:
        verdict = str(claim.get("verdict", ""))
        remark = f'<div class="remark">{escaped(claim["remark"], 2000)}</div>' if claim.get("remark") else ""
        rows.append(
            [
                escaped(claim.get("source", "")),
                escaped(claim.get("statement", ""), 2000) + remark,
                escaped(claim.get("criterion", ""), 2000),
                _measured(claim.get("measured", "")),
                f'<span class="verdict {_mood(verdict)}">{escaped(verdict)}</span>',
            ]
        )
    counts = {mood: sum(_mood(str(c.get("verdict", ""))) == mood for c in claims) for mood in ("yes", "partly", "no")}
    line = f"{counts['yes']} hold, {counts['partly']} hold with a remark, {counts['no']} do not hold."
    title = f'<h2 id="ledger">The ledger</h2><p>{line}</p>'
    return f'<section class="ledger" aria-labelledby="ledger">{title}{_table(head, rows)}</section>'


def _mood(verdict: str) -> str:
    return {"holds": "yes", "holds with a remark": "partly", "does not hold": "no"}.get(verdict.strip().lower(), "open")


def _measured(value: Any) -> str:
    """What was measured: entries as `reproduce` writes them, a line each; anything else as it is."""
    lines = value if isinstance(value, list) else [value]
    return "<br>".join(escaped(_entry(line) if isinstance(line, dict) else _number(line), 2000) for line in lines)


def _entry(entry: Mapping[str, Any]) -> str:
    if "what" not in entry:
        return "; ".join(f"{name} {_number(value)}" for name, value in entry.items())
    said = f"{entry['what']}: {_number(entry.get('value'))}"
    low, high = entry.get("low"), entry.get("high")
    if (low is not None or high is not None) and not low == high == entry.get("value"):
        said += f" ({_number(low)} to {_number(high)})"
    if entry.get("wanted"):
        said += f"; wanted {entry['wanted']}" + (f": {entry['outcome']}" if entry.get("outcome") else "")
    return said


def _number(value: Any) -> str:
    if value is None:
        return "?"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    top = "".join(f'<th scope="col">{name}</th>' for name in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f'<div class="wide" tabindex="0"><table><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table></div>'
