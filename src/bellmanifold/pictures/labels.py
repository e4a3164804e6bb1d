"""Text in pictures: names of states and actions, legends, titles, and numbers at moves.

As many numbers are written as fit, the most important first, without covering each other, names or states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from bellmanifold.errors import limit_marks, shorten
from bellmanifold.pictures.palette import COLOURS, few_actions
from bellmanifold.pictures.positions import on_grid, positions
from bellmanifold.problem.ssp import SSP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RADIUS = 0.3
LONGEST_NAME = 24
NAME_WIDTH, CHARACTER = 1.2, 4.3
"""Maximal width of a state's name, in units of the drawing, and width of a character, in points."""
NAMED_STATES = 60
"""Up to this many states are named, unless they lie on a grid, where positions identify them."""
LABELLED_MOVES = 160
"""Up to this many moves are labelled with their action, if there are too many actions for a legend."""
LONGEST_LABEL = 12
TITLE_CHARACTER, SMALL_TITLE = 5.2, 9.0
"""Width of a character of a title, and its font size, in points."""
RING = 1.2
"""Radius of the ring around an initial state, in radii of states."""
NAMED_STARTS = 6
"""Up to this many initial states are labelled "start"; if there are more, the legend explains their ring."""
KEY_WIDTH = 40.0
"""Width of a legend entry without its name, in points."""
NUMBER_SIZE, NUMBER_CHARACTER, NUMBER_LINE = 6.5, 4.4, 8.0
"""Font size of a number, width of a character and height of a line, in points."""
LEAST_UNIT = 28.0
"""Drawings with fewer points per unit than this have no room for numbers."""
MOST_NUMBERS = 200
ALONG = (0.42, 0.3, 0.55, 0.68)
"""Shares of an arrow's length at which a number may be placed, best first."""
CORE = 0.8
"""Share of a state's radius that a number must not cover."""


class Number(NamedTuple):
    """A text to write on an arrow whose points are `at(share)`, its priority `weight`, and whether it is bold."""

    text: str
    at: Callable[[float], tuple[float, float]]
    weight: float
    bold: bool = False


Box: TypeAlias = tuple[float, float, float, float]
"""A rectangle of the drawing: left, bottom, right, top."""


def plain_name(name: str, limit: int = LONGEST_NAME) -> str:
    """A name that matplotlib shows literally: no mathematics, printable, not too long."""
    cut = shorten(limit_marks(name[: 4 * max(limit, LONGEST_NAME)]), limit)
    shown = "".join(c if c.isprintable() else "?" for c in cut).replace("$", r"\$")
    return " " + shown if shown.startswith("_") else shown


def figure_of(axes: Axes) -> Figure:
    """The figure of some axes."""
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes are drawn on a figure"
    return figure


def points_per_unit(axes: Axes) -> float:
    """Estimated number of points per data unit of framed axes, given their position in the figure."""
    figure, box = figure_of(axes), axes.get_position()
    width, height = box.width * figure.get_figwidth(), box.height * figure.get_figheight()
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    return 72.0 * float(min(width / (right - left), height / (high - low)))


def name_states(axes: Axes, model: SSP) -> list[Box]:
    """Write the names of the states if there are few and they do not lie on a grid; initial states are labelled.

    Returns the boxes that the names occupy.
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
        wide, high = len(text) * NUMBER_CHARACTER / unit, NUMBER_LINE / unit
        beyond = x - 0.7 * away * RADIUS - wide < axes.get_xlim()[0]
        inwards = beyond or (x == place[:, 0].min() and len(text) > room // 2)
        side, up = ("left", "center") if inwards else ("right", "bottom")
        at = (x - RADIUS, y + 1.5 * away * RADIUS) if inwards else (x - 0.7 * away * RADIUS, y + 0.75 * away * RADIUS)
        write(axes, text, at, ha=side, va=up, fontsize=7, fontweight="bold" if s in called else "normal")
        left, low = (at[0], at[1] - high / 2) if inwards else (at[0] - wide, at[1])
        taken.append((left, low, left + wide, low + high))
    return taken


def write_numbers(axes: Axes, model: SSP, numbers: Iterable[Number], taken: list[Box]) -> None:
    """Write the numbers that do not overlap the boxes `taken`, by decreasing weight."""
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
    """Draw a ring around every initial state; returns a legend entry if there are too many to label."""
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
    """Legend entries for the actions, if each has its own colour."""
    from matplotlib.patches import Patch

    if not few_actions(model):
        return []
    return [Patch(facecolor=COLOURS[k], label=plain_name(name)) for k, name in enumerate(model.actions)]


def explain(axes: Axes, handles: Sequence[Artist], title: str) -> None:
    """Add a legend below a drawing, unless empty, and a title broken into lines."""
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
    """Number of legend columns that fit into a width in points, at most four."""
    return int(np.clip(width // (KEY_WIDTH + CHARACTER * max(len(name) for name in names)), 1, 4))


def needs_label(model: SSP) -> np.ndarray:
    """Which pairs are labelled with their action: without a legend, unless the next state has the same name."""
    if few_actions(model) or len(model.next_state) > LABELLED_MOVES:
        return np.zeros(model.n_pairs, dtype=bool)
    single = np.diff(model.next_start) == 1
    says_it_all = [
        bool(single[i]) and model.state_name(model.next_state[model.next_start[i]]) == model.pair_name(i)[1]
        for i in range(model.n_pairs)
    ]
    return ~np.array(says_it_all, dtype=bool)


def name_move(axes: Axes, name: str, at: tuple[float, float]) -> None:
    """Write the name of an action on its arrow."""
    write(axes, plain_name(name, LONGEST_LABEL), at, ha="center", va="center", fontsize=6)


def write(axes: Axes, text: str, at: tuple[float, float], **look: Any) -> None:
    """Write text with a white outline, ignored by matplotlib's layout engine."""
    from matplotlib.patheffects import withStroke

    label = axes.annotate(text, at, zorder=5, path_effects=[withStroke(linewidth=1.5, foreground="white")], **look)
    label.set_in_layout(False)
