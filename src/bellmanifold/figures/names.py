"""Names in pictures: states, the goal, actions in a legend or at their moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bellmanifold.errors import unstacked
from bellmanifold.figures.palette import COLOURS, few_actions
from bellmanifold.figures.positions import on_grid, positions
from bellmanifold.ssp import SSP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

RADIUS = 0.3
LONGEST_NAME = 24
NAME_WIDTH, CHARACTER = 1.2, 4.3
"""How wide the name of a state may be, in units of the drawing, and how wide a character is, in points."""
NAMED_STATES = 60
"""Up to this many states are named, unless they lie on a grid, which says it all."""
LABELLED_MOVES = 160
"""Up to this many moves are named where they begin, if there are too many actions for a legend."""
LONGEST_LABEL = 12
KEY_WIDTH = 40.0
"""What an entry of a legend takes besides its name, in points."""


def plain_name(name: str, limit: int = LONGEST_NAME) -> str:
    """A name that matplotlib shows as it is: no mathematics, nothing unprintable, not too long."""
    cut = unstacked(name[: 4 * LONGEST_NAME])
    cut = cut if len(cut) <= limit else cut[: limit - 1] + "…"
    shown = "".join(c if c.isprintable() else "?" for c in cut).replace("$", r"\$")
    return " " + shown if shown.startswith("_") else shown


def points_per_unit(axes: Axes) -> float:
    """How many points on paper a unit of framed axes will be, as far as their place in the figure tells."""
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes are drawn on a figure"
    box = axes.get_position()
    width, height = box.width * figure.get_figwidth(), box.height * figure.get_figheight()
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    return 72.0 * float(min(width / (right - left), height / (high - low)))


def name_states(axes: Axes, model: SSP) -> None:
    """The names of the states, if these are few and do not lie on a grid, which says it all."""
    if model.n_states > NAMED_STATES or on_grid(model):
        return
    place = positions(model)
    room = max(3, min(LONGEST_NAME, int(points_per_unit(axes) * NAME_WIDTH / CHARACTER)))
    for s, name in enumerate(model.states):
        corner = (place[s][0] - 0.7 * RADIUS, place[s][1] + 0.75 * RADIUS)
        inwards = place[s][0] == place[:, 0].min() and len(name) > room // 2  # it would leave the picture
        side, up = ("left", "center") if inwards else ("right", "bottom")
        at = (place[s][0] - RADIUS, place[s][1] + 1.5 * RADIUS) if inwards else corner
        write(axes, plain_name(name, room), at, ha=side, va=up, fontsize=7)


def name_actions(axes: Axes, model: SSP, more: Sequence[Artist] = ()) -> None:
    """A legend of the actions, if each has a colour of its own, and of whatever else is to be explained."""
    from matplotlib.patches import Patch

    handles: list[Any] = list(more)
    if few_actions(model):
        handles = [
            Patch(facecolor=COLOURS[k], label=plain_name(name)) for k, name in enumerate(model.actions)
        ] + handles
    if handles:
        axes.legend(
            handles=handles,
            frameon=False,
            fontsize=8,
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=_columns(axes, [str(handle.get_label()) for handle in handles]),
        )


def _columns(axes: Axes, names: Sequence[str]) -> int:
    """How many columns of a legend fit above a drawing, at most four."""
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes are drawn on a figure"
    width = 72.0 * axes.get_position().width * figure.get_figwidth()
    return int(np.clip(width // (KEY_WIDTH + CHARACTER * max(len(name) for name in names)), 1, 4))


def labelled(model: SSP) -> np.ndarray:
    """Which pairs have their action's name beside them: where there is no legend, unless the next state says it all."""
    if few_actions(model) or len(model.next_state) > LABELLED_MOVES:
        return np.zeros(model.n_pairs, dtype=bool)
    single = np.diff(model.next_start) == 1
    says_it_all = [
        bool(single[i]) and model.state_name(model.next_state[model.next_start[i]]) == model.pair_name(i)[1]
        for i in range(model.n_pairs)
    ]
    return ~np.array(says_it_all, dtype=bool)


def name_move(axes: Axes, name: str, at: tuple[float, float]) -> None:
    """The name of an action on its arrow."""
    write(axes, plain_name(name, LONGEST_LABEL), at, ha="center", va="center", fontsize=6)


def write(axes: Axes, text: str, at: tuple[float, float], **look: Any) -> None:
    """Words with a white edge, which must not squeeze the drawing."""
    from matplotlib.patheffects import withStroke

    label = axes.annotate(text, at, zorder=5, path_effects=[withStroke(linewidth=1.5, foreground="white")], **look)
    label.set_in_layout(False)
