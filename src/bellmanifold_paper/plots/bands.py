"""Curves over episodes or ranks: the mean over runs, and a band of one standard deviation on either side.

They show regret, how an exploration goes (pairs seen so far, how often HMC's moves are accepted), how probable each
route is thought to be, and how evenly a posterior spreads over things that are equally good.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

from bellmanifold.learning.metrics import sample_sd
from bellmanifold_paper.plots.style import METHODS, Stroke, steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

TARGET = 0.7
"""The acceptance HMC is tuned to in the paper."""
COLOUR_MAP = "viridis_r"
NARROW = 0.004
"""A band that is nowhere wider than this share of the axes is not drawn: it would be hidden by its line."""


def draw_bands(
    axes: Axes,
    curves: Mapping[str, Float[np.ndarray, "runs points"]],
    strokes: Mapping[str, Stroke] = METHODS,
    marker: str = "",
    opacity: float = 0.15,
    within: tuple[float, float] = (-np.inf, np.inf),
) -> Axes:
    """Draw the mean over runs of each curve against 1, 2, ..., and a band of one standard deviation.

    Where a run has no value (NaN) there is a gap.

    Args:
        axes: where to draw.
        curves: label -> a curve per run.
        strokes: label -> colour and kind of line.
        marker: of the points of the mean, if any.
        opacity: of the bands.
        within: what values there are: bands do not leave it.
    """
    for label, curve in curves.items():
        mean, sd = curve.mean(axis=0), sample_sd(curve)
        x, stroke = np.arange(1, len(mean) + 1), strokes[label]
        low, high = np.clip([mean - sd, mean + sd], *within)
        axes.fill_between(x, low, high, color=stroke.colour, alpha=opacity, linewidth=0)
        axes.plot(x, mean, color=stroke.colour, linestyle=stroke.line, marker=marker, markersize=2.0, label=label)
    return axes


def draw_progress(axes: Axes, coverage: Mapping[str, Float[np.ndarray, "runs episodes"]]) -> Axes:
    """Draw the percentage of pairs seen at least once, one curve per method.

    Args:
        axes: where to draw.
        coverage: label -> share of the pairs seen up to each episode, a row per run.
    """
    draw_bands(axes, {label: 100.0 * share for label, share in coverage.items()}, within=(0.0, 100.0))
    axes.set_ylim(0.0, 104.0)
    return axes


def draw_acceptance(
    axes: Axes,
    acceptance: Mapping[str, Float[np.ndarray, "runs episodes"]],
    strokes: Mapping[str, Stroke] | None = None,
) -> Axes:
    """Draw HMC's acceptance probability in each episode, one curve per setting, and the target as a thin line.

    Args:
        axes: where to draw.
        acceptance: label -> acceptance, a row per run.
        strokes: label -> line; by default the settings are ordered, dark to light.
    """
    axes.axhline(TARGET, color="0.6", linewidth=0.6, zorder=0)
    draw_bands(axes, acceptance, strokes or steps(list(acceptance)), within=(0.0, 1.0))
    axes.set_ylim(0.0, 1.02)
    return axes


def draw_ranked(axes: Axes, probability: Mapping[str, Float[np.ndarray, "runs things"]]) -> Axes:
    """Draw probabilities sorted from the largest down in each run, then averaged; dashed: all equal.

    Args:
        axes: where to draw.
        probability: label -> probability of each thing, a row per run.
    """
    ranked = {label: -np.sort(-values, axis=1) for label, values in probability.items()}
    things = max(values.shape[1] for values in ranked.values())
    axes.axhline(1.0 / things, color="0.5", linewidth=0.8, linestyle="--", zorder=0)
    draw_bands(axes, ranked, marker="o", within=(0.0, 1.0))
    axes.set_xticks(range(1, things + 1))
    return axes


def scale_of(value: Float[np.ndarray, "routes"]) -> ScalarMappable:
    """The colours of routes, from those that pay least to those that pay most."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    return ScalarMappable(Normalize(float(value.min()), float(value.max())), COLOUR_MAP)


def draw_routes(
    axes: Axes,
    probability: Float[np.ndarray, "runs episodes routes"],
    value: Float[np.ndarray, "routes"],
    loops: Bool[np.ndarray, "routes"],
    scale: ScalarMappable | None = None,
) -> Axes:
    """Draw how probable each route is in each episode: mean over runs and a band of one standard deviation.

    Routes that pay most are drawn last, on top; loops are dashed. Where a run has no value (NaN) there is a gap.

    Args:
        axes: where to draw.
        probability: that each route is optimal, in each episode of each run.
        value: what each route pays.
        loops: routes that never reach the goal.
        scale: colours of the values, if several axes share them.
    """
    scale = scale or scale_of(value)
    mean, sd = probability.mean(axis=0), sample_sd(probability)
    x = np.arange(1, len(mean) + 1)
    colours = scale.to_rgba(value)
    for order, k in enumerate(np.argsort(value, kind="stable")):
        colour = tuple(colours[k])
        if np.nanmax(sd[:, k], initial=0.0) > NARROW:
            low, high = np.clip([mean[:, k] - sd[:, k], mean[:, k] + sd[:, k]], 0.0, 1.0)
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0, zorder=1 + order * 1e-3)
        line = (0, (3, 1)) if loops[k] else "-"
        axes.plot(x, mean[:, k], color=colour, linewidth=0.9, linestyle=line, zorder=2 + order * 1e-3)
    return axes
