"""Words in pictures: names of states and actions, legends and titles, and numbers at moves.

Of the numbers as many are written as fit: the most important first, none over another, over a name or over a state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from bellmanifold.errors import shorten, unstacked
from bellmanifold.figures.palette import COLOURS, few_actions
from bellmanifold.figures.positions import on_grid, positions
from bellmanifold.ssp import SSP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RADIUS = 0.3
LONGEST_NAME = 24
NAME_WIDTH, CHARACTER = 1.2, 4.3
"""How wide the name of a state may be, in units of the drawing, and how wide a character is, in points."""
NAMED_STATES = 60
"""Up to this many states are named, unless they lie on a grid, which says it all."""
LABELLED_MOVES = 160
"""Up to this many moves are named where they begin, if there are too many actions for a legend."""
LONGEST_LABEL = 12
TITLE_CHARACTER, SMALL_TITLE = 5.2, 9.0
"""Width of a character of a title, in points, and its size."""
RING = 1.2
"""Radius of the ring around an initial state, in radii of states."""
NAMED_STARTS = 6
"""Up to this many initial states are called so; where there are more, a legend says what their ring means."""
KEY_WIDTH = 40.0
"""What an entry of a legend takes besides its name, in points."""
NUMBER_SIZE, NUMBER_CHARACTER, NUMBER_LINE = 6.5, 4.4, 8.0
"""Size of a number, width of one of its characters and height of it, in points."""
LEAST_UNIT = 28.0
"""Drawings whose unit has fewer points than this have no room for numbers."""
MOST_NUMBERS = 200
ALONG = (0.42, 0.3, 0.55, 0.68)
"""Where on its arrow a number may stand, the best place first."""
CORE = 0.8
"""The part of a state's radius that a number must not cover."""


class Number(NamedTuple):
    """What to write on an arrow, whose points are `at(share)`, how much it matters, and whether it stands out."""

    text: str
    at: Callable[[float], tuple[float, float]]
    weight: float
    bold: bool = False


Box: TypeAlias = tuple[float, float, float, float]
"""A rectangle of the drawing: left, low, right, high."""


def plain_name(name: str, limit: int = LONGEST_NAME) -> str:
    """A name that matplotlib shows as it is: no mathematics, nothing unprintable, not too long."""
    cut = shorten(unstacked(name[: 4 * max(limit, LONGEST_NAME)]), limit)
    shown = "".join(c if c.isprintable() else "?" for c in cut).replace("$", r"\$")
    return " " + shown if shown.startswith("_") else shown


def figure_of(axes: Axes) -> Figure:
    """The figure that axes are drawn on."""
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes are drawn on a figure"
    return figure


def points_per_unit(axes: Axes) -> float:
    """How many points on paper a unit of framed axes will be, as far as their place in the figure tells."""
    figure, box = figure_of(axes), axes.get_position()
    width, height = box.width * figure.get_figwidth(), box.height * figure.get_figheight()
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    return 72.0 * float(min(width / (right - left), height / (high - low)))


def name_states(axes: Axes, model: SSP) -> list[Box]:
    """The names of the states, if these are few and do not lie on a grid, which says it all; starts are called so.

    Returns the room that they take.
    """
    silent = model.n_states > NAMED_STATES or on_grid(model)
    starts = np.flatnonzero(model.initial).tolist()
    called = set(starts) if len(starts) <= NAMED_STARTS else set()
    place = positions(model)
    unit, taken = points_per_unit(axes), []
    room = max(3, min(LONGEST_NAME, int(unit * NAME_WIDTH / CHARACTER)))
    for s, name in enumerate(model.states):
        if silent and s not in called:
            continue
        short = plain_name(name, room)
        text = short if s not in called else "start" if silent or name.casefold() == "start" else f"start: {short}"
        (x, y), away = place[s], RING if s in called else 1.0
        inwards = x == place[:, 0].min() and len(text) > room // 2  # it would leave the picture
        side, up = ("left", "center") if inwards else ("right", "bottom")
        at = (x - RADIUS, y + 1.5 * away * RADIUS) if inwards else (x - 0.7 * away * RADIUS, y + 0.75 * away * RADIUS)
        write(axes, text, at, ha=side, va=up, fontsize=7, fontweight="bold" if s in called else "normal")
        wide, high = len(text) * NUMBER_CHARACTER / unit, NUMBER_LINE / unit
        left, low = (at[0], at[1] - high / 2) if inwards else (at[0] - wide, at[1])
        taken.append((left, low, left + wide, low + high))
    return taken


def write_numbers(axes: Axes, model: SSP, numbers: Iterable[Number], taken: list[Box]) -> None:
    """Write those numbers that fit beside what is taken already, the weightiest first."""
    unit = points_per_unit(axes)
    if unit < LEAST_UNIT:
        return
    core = CORE * RADIUS
    taken += [(x - core, y - core, x + core, y + core) for x, y in positions(model).tolist()]
    for number in sorted(numbers, key=lambda number: -number.weight)[:MOST_NUMBERS]:
        wide, high = len(number.text) * NUMBER_CHARACTER / unit / 2, NUMBER_LINE / unit / 2
        for x, y in map(number.at, ALONG):
            left, low, right, top = x - wide, y - high, x + wide, y + high
            if not any(a < right and left < c and b < top and low < d for a, b, c, d in taken):
                weight = "bold" if number.bold else "normal"
                write(axes, number.text, (x, y), ha="center", va="center", size=NUMBER_SIZE, weight=weight)
                taken.append((left, low, right, top))
                break


def draw_starts(axes: Axes, model: SSP) -> list[Artist]:
    """A ring around every initial state; what a legend has to say of it where there are too many to be named."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Circle

    place, starts = positions(model), np.flatnonzero(model.initial).tolist()
    for s in starts:
        ring = Circle(tuple(place[s]), RING * RADIUS, facecolor="none", edgecolor="black", linewidth=1.4, zorder=4)
        axes.add_patch(ring)
    if len(starts) <= NAMED_STARTS:
        return []
    return [Line2D([], [], linestyle="", marker="o", markerfacecolor="none", color="black", label="start")]


def action_keys(model: SSP) -> list[Artist]:
    """What a legend says of the actions, if each has a colour of its own."""
    from matplotlib.patches import Patch

    if not few_actions(model):
        return []
    return [Patch(facecolor=COLOURS[k], label=plain_name(name)) for k, name in enumerate(model.actions)]


def explain(axes: Axes, handles: Sequence[Artist], title: str) -> None:
    """A legend below a drawing, if there is anything to be explained, and a title of as many lines as it needs."""
    width = 72.0 * float(axes.get_position(original=True).width * figure_of(axes).get_figwidth())
    if handles:
        axes.legend(
            handles=handles,
            frameon=False,
            fontsize=8,
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
            ncols=columns(width, [str(handle.get_label()) for handle in handles]),
        )
    axes.set_title(plain_lines(title, width), fontsize=SMALL_TITLE)


def plain_lines(text: str, width: float) -> str:
    """Text broken into lines of the given width in points, since matplotlib does not break lines."""
    most = max(20, int(width / TITLE_CHARACTER))
    lines = [line for part in text.split("\n") for line in wrap(part, most)]
    return "\n".join(plain_name(line, most) for line in lines)


def columns(width: float, names: Sequence[str]) -> int:
    """How many columns of a legend fit into a width in points, at most four."""
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
