"""Ranked probabilities: how evenly a posterior spreads over things that are equally good."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from bellmanifold.figures.bands import draw_bands

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_ranked(axes: Axes, probability: Mapping[str, Float[np.ndarray, "runs things"]]) -> Axes:
    """Draw probabilities sorted from the largest down in each run, then averaged; dashed: all equal.

    Args:
        axes: where to draw.
        probability: label -> probability of each thing, a row a run.
    """
    ranked = {label: -np.sort(-values, axis=1) for label, values in probability.items()}
    things = max(values.shape[1] for values in ranked.values())
    axes.axhline(1.0 / things, color="0.5", linewidth=0.8, linestyle="--", zorder=0)
    draw_bands(axes, ranked, marker="o")
    axes.set_xticks(range(1, things + 1))
    return axes
