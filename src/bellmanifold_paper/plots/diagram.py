"""A small problem as a labelled graph: circles for states, arrows with the action and the reward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bellmanifold.pictures.drawing import GOAL_COLOUR
from bellmanifold.pictures.labels import RADIUS
from bellmanifold.pictures.positions import positions
from bellmanifold.problem.ssp import SSP

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOOP = 0.75
"""How far a loop reaches from the middle of its state."""


def draw_diagram(axes: Axes, model: SSP, states: Sequence[str], pairs: Sequence[str], at_goal: str) -> Axes:
    """Draw a problem whose states lie in a row, with deterministic moves.

    Args:
        axes: where to draw.
        model: the problem.
        states: what to write into each state and, last, into the goal.
        pairs: what to write at each pair's arrow.
        at_goal: what to write at the goal's loop.
    """
    from matplotlib.patches import Circle, FancyArrowPatch

    place = positions(model)
    for s, text in enumerate(states):
        colour = GOAL_COLOUR if s == model.n_states else "white"
        axes.add_patch(Circle(tuple(place[s]), RADIUS, facecolor=colour, edgecolor="black", linewidth=0.8, zorder=3))
        axes.annotate(text, tuple(place[s]), ha="center", va="center", fontsize=9, zorder=4)
    for pair, text in enumerate(pairs):
        source, target = int(model.pair_state[pair]), int(model.next_state[model.next_start[pair]])
        if source == target:
            _loop(axes, place[source], -1.0, text)
            continue
        look: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 8, "shrinkA": 0.0, "shrinkB": 0.0, "color": "k"}
        look["connectionstyle"] = "arc3,rad=-0.35"
        arrow = FancyArrowPatch(tuple(place[source]), tuple(place[target]), **look)
        for patch in axes.patches:
            if isinstance(patch, Circle) and tuple(patch.center) == tuple(place[source]):
                arrow.set_patchA(patch)
            elif isinstance(patch, Circle) and tuple(patch.center) == tuple(place[target]):
                arrow.set_patchB(patch)
        axes.add_patch(arrow)
        middle = (place[source] + place[target]) / 2
        lift = 0.175 * float(abs(place[target][0] - place[source][0])) + 0.1
        axes.annotate(text, (middle[0], middle[1] + lift), ha="center", va="bottom")
    _loop(axes, place[-1], 1.0, at_goal)
    low, high = place.min(axis=0), place.max(axis=0)
    axes.set_xlim(low[0] - 2.1, high[0] + 1.8)
    axes.set_ylim(low[1] - 0.6, high[1] + 0.75)
    axes.set_aspect("equal")
    axes.set_axis_off()
    return axes


def _loop(axes: Axes, centre: object, side: float, text: str) -> None:
    """An arrow from a state to itself, on its left (-1) or right (1)."""
    import numpy as np
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    at = np.asarray(centre)
    leave, enter = (at + RADIUS * np.array([side * 0.87, up]) for up in (0.5, -0.5))
    away = [at + np.array([side * 1.15, 0.75]), at + np.array([side * 1.15, -0.75])]
    path = Path([leave, *away, enter], [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
    axes.add_patch(FancyArrowPatch(path=path, arrowstyle="-|>", mutation_scale=8, color="black", zorder=2))
    beside = (float(at[0]) + side * (LOOP + 0.25), float(at[1]))
    axes.annotate(text, beside, va="center", ha="right" if side < 0 else "left")
