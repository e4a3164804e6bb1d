"""Curves over episodes, averaged over the runs of each cell, in the form that the page's plots use.

A problem with few cells has one panel that shows them all. With many cells, there is one panel per tolerance and prior
scale; agents without a tolerance appear in all panels of their prior scale.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from bellmanifold.learning.metrics import sample_sd
from bellmanifold_lab.report.overview import describe
from bellmanifold_lab.report.reading import Cell
from bellmanifold_lab.report.text import display_name, round_values

MOST_POINTS, LEAST_POINTS = 300, 20
"""Number of episodes at which a curve is drawn: with few curves, and at least with many."""
MOST_NUMBERS = 120_000
"""Size limit of all curves together, as far as `LEAST_POINTS` allows."""
MOST_CURVES = 800
MOST_TOGETHER = 12
"""Up to this many curves share a panel."""


def curves(cells: Sequence[Cell]) -> tuple[dict[str, Any], str]:
    """All curves and the panels of every problem, and a remark in HTML if some settings are left out."""
    total, cells = len(cells), cells[:MOST_CURVES]
    remark = f"<p>The plots show the first {len(cells)} of {total:,} settings.</p>" if total > len(cells) else ""
    points = min(MOST_POINTS, max(LEAST_POINTS, MOST_NUMBERS // (8 * len(cells))))
    by_problem: dict[str, list[int]] = {}
    for number, cell in enumerate(cells):
        by_problem.setdefault(cell.settings.model, []).append(number)
    panels = [
        {"problem": display_name(model), "panels": _panels(cells, numbers)} for model, numbers in by_problem.items()
    ]
    return {"curves": [_curve(cell, points) for cell in cells], "problems": panels}, remark


def _panels(cells: Sequence[Cell], numbers: Sequence[int]) -> list[dict[str, Any]]:
    everything = {"name": "all settings", "curves": _name_curves(cells, numbers, ())}
    if len(numbers) <= MOST_TOGETHER:
        return [everything]
    split = ("epsilon", "prior_scale")
    keys = {_key(cells[k]): None for k in numbers if cells[k].settings.epsilon is not None}
    found = []
    for key in sorted(keys, key=lambda key: (key[1] or 0.0, key[0] or 0.0)):
        members = [k for k in numbers if _key(cells[k]) in (key, (None, key[1]))]
        name = describe({name: value for name, value in zip(split, key, strict=True) if value is not None})
        found.append({"name": name, "curves": _name_curves(cells, members, split)})
    return [*found, everything]


def _key(cell: Cell) -> tuple[float | None, float | None]:
    return cell.settings.epsilon, cell.settings.prior_scale


def _name_curves(cells: Sequence[Cell], numbers: Sequence[int], hidden: Sequence[str]) -> list[list[Any]]:
    """Number and label of each curve in a panel; labels name the settings that differ between the agent's cells."""
    told = {k: cells[k].settings.choices() | {"episodes": cells[k].settings.episodes} for k in numbers}
    values: dict[tuple[str, str], set[Any]] = {}
    for k, choices in told.items():
        for name, value in choices.items():
            values.setdefault((cells[k].settings.agent, name), set()).add(value)
    named = []
    for k, choices in told.items():
        agent = cells[k].settings.agent
        differs = {n: v for n, v in choices.items() if n not in hidden and len(values[agent, n]) > 1}
        named.append([k, display_name(agent + (f" ({describe(differs)})" if differs else ""))])
    return named


def _curve(cell: Cell, points: int) -> dict[str, Any]:
    regret, believed = np.array(cell.completed), np.array(cell.believed)
    chosen = np.unique(np.linspace(0, regret.shape[1] - 1, points).astype(int))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # episodes with beliefs of at most one run
        belief_mean = np.nanmean(believed, axis=0)
        belief_sd = np.nan_to_num(np.nanstd(believed, axis=0, ddof=1))
    return {
        "agent": display_name(cell.settings.agent),
        "runs": len(cell.runs),
        "episode": (chosen + 1).tolist(),
        "regret": round_values(regret.mean(axis=0)[chosen]),
        "regret_sd": round_values(sample_sd(regret)[chosen]),
        "believed": round_values(belief_mean[chosen]) if np.isfinite(belief_mean).any() else [],
        "believed_sd": round_values(belief_sd[chosen]) if np.isfinite(belief_mean).any() else [],
        "optimal": round_values(np.mean(cell.optimal, axis=0)[chosen]),
        "arrived": round_values(np.mean(cell.arrived, axis=0)[chosen]),
        "coverage": round_values(np.mean(cell.coverage, axis=0)[chosen]),
        **_losses(cell, chosen),
    }


def _losses(cell: Cell, chosen: Int[np.ndarray, "points"]) -> dict[str, Any]:
    """Expected and true loss, means over runs, and where runs stopped exploring; empty without `until_loss`."""
    expected, true, stop = np.mean(cell.expected_loss, axis=0), np.mean(cell.true_loss, axis=0), cell.stop
    told = bool(np.isfinite(cell.expected_loss).any())
    at_stop: dict[str, Any] | None = None
    if stop is not None:
        lost, true_lost = round_values(np.array([stop.expected, stop.true]))
        at_stop = {"runs": stop.runs, "episode": stop.episode, "expected": lost, "true": true_lost}
    return {
        "expected_loss": round_values(expected[chosen]) if told else [],
        "true_loss": round_values(true[chosen]) if told else [],
        "stop": at_stop,
    }
