"""Advice as a picture: the best policy drawn into the problem, and untried moves coloured by what they may save."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from bellmanifold.figures.drawing import (
    COLOURS,
    RADIUS,
    arrow_ends,
    draw_goal,
    frame,
    name_actions,
    name_states,
    new_axes,
    points_per_unit,
    require_drawable,
)
from bellmanifold.figures.positions import is_triangle, landings, positions
from bellmanifold.ssp import SSP

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KNOWN_COLOUR, SCALE = "#BBBBBB", "plasma_r"


def draw_advice(
    model: SSP,
    policy: Bool[np.ndarray, "pairs"],
    gain: Float[np.ndarray, "pairs"],
    observed: Bool[np.ndarray, "pairs"],
    axes: Axes | None = None,
) -> Axes:
    """Draw a problem with a policy, and what it is worth to try each pair.

    States that the policy comes to have the colour of the action it plays there, and a thick arrow. Untried moves are
    dotted, in the colour of their gain; what is known and not played is grey.

    Args:
        model: the problem.
        policy: the pairs that the policy plays.
        gain: what knowing the value of each pair would save.
        observed: which pairs were seen.
        axes: where to draw; by default a new figure.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.patches import Circle

    require_drawable(model)
    axes = new_axes(model) if axes is None else axes
    frame(axes, model)
    place, size = positions(model), min(1.0, points_per_unit(axes) / 60.0)
    norm = Normalize(0.0, float(gain[~observed].max(initial=0.0)) or 1.0)
    action = [COLOURS[k % len(COLOURS)] for k in model.pair_action]
    for pair, tip in zip(model.next_pair, landings(model), strict=True):
        begin, end, bend = arrow_ends(model, int(pair), place[model.pair_state[pair]], tip)
        played = bool(policy[pair])
        colour: Any = action[pair] if played else KNOWN_COLOUR
        if not observed[pair]:
            colour = colormaps[SCALE](norm(gain[pair]))
        style: dict[str, Any] = {
            "arrowstyle": "-|>",
            "connectionstyle": f"arc3,rad={bend}",
            "color": colour,
            "linestyle": "-" if observed[pair] else ":",
            "linewidth": (0.6 + 0.6 * size) * (2.5 if played else 1.6 if not observed[pair] else 1.0),
            "mutation_scale": 3.0 + 7.0 * size,
            "shrinkA": 0,
            "shrinkB": 0,
        }
        axes.annotate("", end, begin, arrowprops=style, zorder=2)
    colours = ["white"] * model.n_states
    for pair in np.flatnonzero(policy):
        colours[model.pair_state[pair]] = action[pair]
    for state, colour in enumerate(colours):
        axes.add_patch(
            Circle(tuple(place[state]), RADIUS, facecolor=colour, edgecolor="black", linewidth=0.8, zorder=3)
        )
    draw_goal(axes, model, fontsize=8.0 if size > 0.7 or not is_triangle(model) else 0.0)
    name_states(axes, model)
    name_actions(axes, model)
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes are drawn on a figure"
    bar = figure.colorbar(ScalarMappable(norm, SCALE), ax=axes, shrink=0.6, aspect=30)
    bar.set_label("gain of a trial")
    return axes
