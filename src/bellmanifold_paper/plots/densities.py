"""Densities: contours in two dimensions, each enclosing a stated share of the mass, and marginals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from bellmanifold_paper.plots.style import steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHARES = (0.99, 0.9, 0.75, 0.5, 0.25, 0.1)
"""Of the mass inside each contour, from the outermost inwards."""


def density_levels(log_density: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "shares"]:
    """Log densities above which `SHARES` of the mass lie, ascending; all cells of the grid have the same area."""
    order = np.sort(log_density.ravel())[::-1]
    mass = np.cumsum(np.exp(order - order[0]))
    return order[np.searchsorted(mass, np.array(SHARES) * mass[-1])]


def draw_contours(
    axes: Axes,
    x: Float[np.ndarray, "rows columns"],
    y: Float[np.ndarray, "rows columns"],
    log_density: Float[np.ndarray, "rows columns"],
) -> Axes:
    """Draw filled contours.

    Args:
        axes: where to draw.
        x, y: a grid all of whose cells have the same area; it may be sheared.
        log_density: at its points, up to a constant.
    """
    from matplotlib import colormaps

    levels = density_levels(log_density)
    shade = colormaps["Blues"](np.linspace(0.2, 1.0, len(levels)))
    top = float(log_density.max()) + 1.0
    axes.contourf(x, y, log_density, levels=[*levels, top], colors=shade)
    axes.contour(x, y, log_density, levels=levels, colors="#08306B", linewidths=0.4, linestyles="solid")
    return axes


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
