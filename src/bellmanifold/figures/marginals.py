"""Marginal densities for several tolerances, and the true value they should gather at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from bellmanifold.figures.style import steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_marginals(
    axes: Axes, x: Float[np.ndarray, "points"], density: Mapping[str, Float[np.ndarray, "points"]], truth: float
) -> Axes:
    """Draw densities of one number on a logarithmic axis, which shows tails and peaks together.

    Args:
        axes: where to draw.
        x: where the densities are given.
        density: label -> density.
        truth: a vertical line.
    """
    axes.axvline(truth, color="0.6", linewidth=0.8, linestyle="--", zorder=0)
    for label, stroke in steps(list(density)).items():
        axes.plot(x, density[label], color=stroke.colour, linestyle=stroke.line, label=label)
    axes.set_yscale("log")
    return axes
