"""Route probabilities over episodes: one line a route, coloured by what the route pays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

from bellmanifold.figures.bands import scatter

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

COLOUR_MAP = "viridis_r"
NARROW = 0.004
"""A band that is nowhere wider than this share of the axes is not drawn: it would be hidden by its line."""


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
    mean, sd = probability.mean(axis=0), scatter(probability)
    x = np.arange(1, len(mean) + 1)
    colours = scale.to_rgba(value)
    for order, k in enumerate(np.argsort(value, kind="stable")):
        colour = tuple(colours[k])
        if np.nanmax(sd[:, k], initial=0.0) > NARROW:
            low, high = mean[:, k] - sd[:, k], mean[:, k] + sd[:, k]
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0, zorder=1 + order * 1e-3)
        line = (0, (3, 1)) if loops[k] else "-"
        axes.plot(x, mean[:, k], color=colour, linewidth=0.9, linestyle=line, zorder=2 + order * 1e-3)
    return axes
