"""Advice as a picture: the best policy drawn into the problem, and untried moves coloured by what they may save."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from bellmanifold.figures.drawing import arrow_look, arrows, draw_arrow, draw_goal, frame, new_axes, require_drawable
from bellmanifold.figures.names import RADIUS, labelled, name_actions, name_move, name_states, points_per_unit
from bellmanifold.figures.palette import pair_colours
from bellmanifold.figures.positions import is_triangle, positions
from bellmanifold.ssp import SSP

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KNOWN_COLOUR, SCALE = "#BBBBBB", "plasma_r"
LIGHTEST = 0.15
"""The scale begins here: its first colours would be lost on white paper."""
TELLING = 0.02
"""Moves that were tried are coloured if another trial is worth this share of the best."""


def draw_advice(
    model: SSP,
    policy: Bool[np.ndarray, "pairs"],
    gain: Float[np.ndarray, "pairs"],
    tried: Bool[np.ndarray, "pairs"],
    axes: Axes | None = None,
) -> Axes:
    """Draw a problem with a policy, and what it is worth to try each pair.

    States that the policy comes to have the colour of the action it plays there, and a thick arrow. Moves that are
    worth a trial have the colour of their gain. Untried ones are dotted, those of which nobody knows where they lead
    are stubs with a question mark; what is known and not played is grey.

    Args:
        model: the problem.
        policy: the pairs that the policy plays.
        gain: what knowing the value of each pair would save.
        tried: which pairs were; a belief is no trial.
        axes: where to draw; by default a new figure.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize
    from matplotlib.patches import Circle

    require_drawable(model)
    axes = new_axes(model) if axes is None else axes
    frame(axes, model)
    place, size = positions(model), min(1.0, points_per_unit(axes) / 60.0)
    norm = Normalize(0.0, float(gain.max(initial=0.0)) or 1.0)
    scale = ListedColormap(colormaps[SCALE](np.linspace(LIGHTEST, 1.0, 256)))
    action, named = pair_colours(model), labelled(model)
    for arrow in arrows(model):
        pair, known, played = arrow.pair, bool(tried[arrow.pair]), bool(policy[arrow.pair])
        tells = not known or norm(gain[pair]) > TELLING
        colour: Any = scale(norm(gain[pair])) if tells else action[pair] if played else KNOWN_COLOUR
        width = (0.6 + 0.6 * size) * (2.5 if played else 1.6 if tells else 1.0)
        draw_arrow(axes, arrow, arrow_look(colour, size, known, width))
        if named[pair] and not arrow.is_stub and (played or not known):
            name_move(axes, model.pair_name(pair)[1], arrow.at(0.4))
    colours = ["white"] * model.n_states
    for pair in np.flatnonzero(policy).tolist():
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
    bar = figure.colorbar(ScalarMappable(norm, scale), ax=axes, shrink=0.6, aspect=30)
    bar.set_label("what knowing its value would save")
    return axes
