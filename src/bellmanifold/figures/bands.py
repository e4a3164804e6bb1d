"""Curves with a band: the mean over runs, and one standard deviation on either side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from bellmanifold.figures.style import METHODS, Stroke

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def scatter(curve: Float[np.ndarray, "runs *more"]) -> Float[np.ndarray, "*more"]:
    """One standard deviation over runs, of a sample (divided by runs - 1); 0 for a single run."""
    return np.asarray(curve.std(axis=0, ddof=1) if len(curve) > 1 else np.zeros(curve.shape[1:]))


def draw_bands(
    axes: Axes,
    curves: Mapping[str, Float[np.ndarray, "runs points"]],
    strokes: Mapping[str, Stroke] = METHODS,
    marker: str = "",
    opacity: float = 0.15,
) -> Axes:
    """Draw the mean over runs of each curve against 1, 2, ..., and a band of one standard deviation.

    Where a run has no value (NaN) there is a gap.

    Args:
        axes: where to draw.
        curves: label -> a curve a run.
        strokes: label -> colour and kind of line.
        marker: of the points of the mean, if any.
        opacity: of the bands.
    """
    for label, curve in curves.items():
        mean, sd = curve.mean(axis=0), scatter(curve)
        x, stroke = np.arange(1, len(mean) + 1), strokes[label]
        axes.fill_between(x, mean - sd, mean + sd, color=stroke.colour, alpha=opacity, linewidth=0)
        axes.plot(x, mean, color=stroke.colour, linestyle=stroke.line, marker=marker, markersize=2.0, label=label)
    return axes
