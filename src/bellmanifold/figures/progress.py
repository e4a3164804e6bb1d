"""How an exploration goes: pairs seen so far, and how often HMC's moves are accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from bellmanifold.figures.bands import draw_bands
from bellmanifold.figures.style import Stroke, steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TARGET = 0.7
"""The acceptance HMC is tuned to in the paper."""


def draw_progress(axes: Axes, coverage: Mapping[str, Float[np.ndarray, "runs episodes"]]) -> Axes:
    """Draw the percentage of pairs seen at least once, one curve a method.

    Args:
        axes: where to draw.
        coverage: label -> share of the pairs seen up to each episode, a row a run.
    """
    draw_bands(axes, {label: 100.0 * share for label, share in coverage.items()})
    axes.set_ylim(0.0, 104.0)
    return axes


def draw_acceptance(
    axes: Axes,
    acceptance: Mapping[str, Float[np.ndarray, "runs episodes"]],
    strokes: Mapping[str, Stroke] | None = None,
) -> Axes:
    """Draw HMC's acceptance probability in each episode, one curve a setting, and the target as a thin line.

    Args:
        axes: where to draw.
        acceptance: label -> acceptance, a row a run.
        strokes: label -> line; by default the settings are ordered, dark to light.
    """
    axes.axhline(TARGET, color="0.6", linewidth=0.6, zorder=0)
    draw_bands(axes, acceptance, strokes or steps(list(acceptance)))
    axes.set_ylim(0.0, 1.02)
    return axes
