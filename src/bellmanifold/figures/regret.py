"""Cumulative regret over episodes: one curve an agent, with a band of one standard deviation over runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from bellmanifold.figures.problem import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = tuple[Float[np.ndarray, "episodes"], Float[np.ndarray, "episodes"]]


def draw_regret(curves: Mapping[str, Curve], axes: Axes | None = None) -> Axes:
    """Draw regret curves.

    Args:
        curves: label -> mean and standard deviation of the cumulative regret after each episode.
        axes: where to draw; by default a new figure.
    """
    from matplotlib import pyplot

    if axes is None:
        _, axes = pyplot.subplots(figsize=(5.0, 3.5), layout="constrained")
    for k, (label, (mean, sd)) in enumerate(curves.items()):
        episode = np.arange(1, len(mean) + 1)
        colour = COLOURS[k % len(COLOURS)]
        axes.plot(episode, mean, color=colour, label=label)
        axes.fill_between(episode, mean - sd, mean + sd, color=colour, alpha=0.2, linewidth=0)
    axes.set_xlabel("episode")
    axes.set_ylabel("cumulative regret")
    axes.legend(frameon=False)
    return axes
