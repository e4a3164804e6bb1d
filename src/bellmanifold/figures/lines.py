"""Lines: cumulative regret over episodes, and improper mass against tolerance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
from jaxtyping import Float

from bellmanifold.figures.palette import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = tuple[Float[np.ndarray, "episodes"], Float[np.ndarray, "episodes"]]
STYLES: Final = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D")


def improper_mass(
    epsilon: Float[np.ndarray, "epsilons"],
    prior_scale: Float[np.ndarray, "scales"],
    discount: Float[np.ndarray, "discounts"],
    mass: Float[np.ndarray, "discounts scales epsilons"],
    axes: Axes | None = None,
) -> Axes:
    """Draw improper mass against tolerance: a colour for each prior scale, a line style for each discount.

    Args:
        epsilon: tolerances, positive.
        prior_scale: at most eight prior standard deviations.
        discount: at most four discounts.
        mass: probabilities, as `identifiability.improper_mass_sweep` finds them.
        axes: where to draw; by default a new figure.
    """
    from matplotlib import pyplot
    from matplotlib.lines import Line2D

    if len(prior_scale) > len(COLOURS) or len(discount) > len(STYLES):
        raise ValueError(f"at most {len(COLOURS)} prior scales and {len(STYLES)} discounts can be told apart")
    if axes is None:
        _, axes = pyplot.subplots(figsize=(6.0, 3.6), layout="constrained")
    for d, s in np.ndindex(len(discount), len(prior_scale)):
        axes.plot(epsilon, mass[d, s], color=COLOURS[s], linestyle=STYLES[d], marker=MARKERS[d], markersize=3.5)
    axes.set_xscale("log")
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("tolerance epsilon")
    axes.set_ylabel("improper mass")
    handles = [Line2D([], [], color=COLOURS[s], label=f"prior scale {x:g}") for s, x in enumerate(prior_scale)]
    for d, x in enumerate(discount):
        label = "no discount" if x == 1.0 else f"discount {x:g}"
        handles.append(
            Line2D([], [], color="black", linestyle=STYLES[d], marker=MARKERS[d], markersize=3.5, label=label)
        )
    axes.legend(handles=handles, frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def draw_regret(curves: Mapping[str, Curve], axes: Axes | None = None, measure: str = "cumulative regret") -> Axes:
    """Draw regret curves, each with a band of one standard deviation over runs.

    Args:
        curves: label -> mean and standard deviation of the cumulative regret after each episode.
        axes: where to draw; by default a new figure.
        measure: which regret it is: the label of the vertical axis.
    """
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    if axes is None:
        _, axes = pyplot.subplots(figsize=(5.0, 3.5), layout="constrained")
    for k, (label, (mean, sd)) in enumerate(curves.items()):
        episode = np.arange(1, len(mean) + 1)
        colour = COLOURS[k % len(COLOURS)]
        axes.plot(episode, mean, color=colour, label=label)
        axes.fill_between(episode, mean - sd, mean + sd, color=colour, alpha=0.2, linewidth=0)
    axes.set_xlabel("episode")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(measure)
    axes.legend(frameon=False)
    return axes
