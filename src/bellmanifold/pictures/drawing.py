"""Pictures of problems: a pie per state, an arrow per pair, the goal in grey, the best route on a grey band.

The picture of a posterior is self-explanatory: it has a title, a ring and a name at the start, the probability that
each move is optimal where there is room for the number, and a legend below. A pair with an unknown law is drawn as a
dashed stub that ends in a question mark.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from bellmanifold._util.display import Words
from bellmanifold.errors import BadInputError, kind_of_value
from bellmanifold.pictures.labels import (
    RADIUS,
    Number,
    action_keys,
    columns,
    draw_starts,
    explain,
    name_move,
    name_states,
    needs_label,
    plain_lines,
    plain_name,
    points_per_unit,
    write,
    write_numbers,
)
from bellmanifold.pictures.palette import pair_colours
from bellmanifold.pictures.positions import is_mapped, is_triangle, landings, positions
from bellmanifold.problem.maps import map_fault
from bellmanifold.problem.ssp import SSP, require_problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GOAL_COLOUR, ROUTE_COLOUR = "#BBBBBB", "#C8C8C8"
MAX_STATES, MAX_ARROWS = 2000, 10_000
STUB = 0.42
"""Length of the stub of a pair with an unknown law."""
LEAST_CHANCE = 0.01
"""Smaller probabilities are not written at moves."""
MARGIN, STUB_MARGIN, NARROWEST = 0.65, 0.9, 4.8
"""Margin around the states, without and with stubs, in units of the drawing; minimal width of a figure, in inches."""
LEGEND_LINE, TITLE_LINE = 0.18, 0.16
"""Line heights of legend and title, in inches."""
SHORT_NAME = 5
"""Maximal number of characters of the goal's name that fit into its circle."""


Ends: TypeAlias = tuple[tuple[float, float], tuple[float, float], float]
"""The two end points of an arrow, and its curvature."""


@runtime_checkable
class Pies(Protocol):
    """Interface of a posterior's summary to pictures.

    `pies()` returns a share for each pair and which pairs were observed, `best_pairs()` the pairs of the best route,
    `words()` the title and the legend.
    """

    def pies(self) -> tuple[Float[np.ndarray, "pairs"], Bool[np.ndarray, "pairs"]]: ...

    def best_pairs(self) -> Bool[np.ndarray, "pairs"]: ...

    def words(self) -> Words: ...


class Arrow(NamedTuple):
    """An arrow from a pair's state to one of its successors, or the stub of a pair with an unknown law."""

    pair: int
    ends: Ends
    is_likeliest: bool = True
    is_stub: bool = False

    def at(self, share: float) -> tuple[float, float]:
        """The point a given share of the way along the arrow."""
        (x, y), (to_x, to_y), bend = self.ends
        middle_x, middle_y = (x + to_x) / 2 + bend * (to_y - y), (y + to_y) / 2 - bend * (to_x - x)
        first, second, third = (1 - share) ** 2, 2 * share * (1 - share), share**2
        return first * x + second * middle_x + third * to_x, first * y + second * middle_y + third * to_y


def draw(
    model: SSP,
    pies: Pies | Float[np.ndarray, "pairs"] | None = None,
    observed: Bool[np.ndarray, "pairs"] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Draw a problem with a pie per state.

    Args:
        model: the problem, of at most 2,000 states.
        pies: a posterior's summary, or each pair's share of its state's pie; by default states are plain circles.
        observed: pairs drawn with solid lines, the others dotted; by default all, or those of the summary.
        axes: where to draw; by default a new figure.
    """
    require_drawable(model)
    best, words = np.zeros(model.n_pairs, dtype=bool), Words(model.name, "", "seen", "not seen")
    if isinstance(pies, Pies):
        best, words = pies.best_pairs(), pies.words()
        pies, observed = pies.pies()
    elif pies is not None and not isinstance(pies, np.ndarray):
        raise BadInputError(f"pies is {kind_of_value(pies)}: give a posterior's summary, or one number per pair")
    seen = np.ones(model.n_pairs, dtype=bool) if observed is None else observed
    handles = [*action_keys(model), *line_keys(model, words, seen, bool(best.any()))]
    axes = new_axes(model, handles, words.title) if axes is None else axes

    named = needs_label(model)
    drawn = draw_moves(axes, model, pair_colours(model), seen, best, named)
    if pies is None:
        draw_plain_states(axes, model)
    else:
        share = np.maximum(pies, 0.0)
        draw_pies(axes, model, share / np.bincount(model.pair_state, share, model.n_states)[model.pair_state])
    numbers = chances(model, drawn, pies, best) if words.best and pies is not None and not named.any() else ()
    finish(axes, model, handles, words.title, numbers)
    return axes


def draw_moves(
    axes: Axes,
    model: SSP,
    colours: Sequence[Any],
    seen: Bool[np.ndarray, "pairs"],
    best: Bool[np.ndarray, "pairs"],
    named: Bool[np.ndarray, "pairs"],
    width: Float[np.ndarray, "pairs"] | None = None,
) -> list[Arrow]:
    """Frame a problem and draw its moves: dotted unless seen, the best ones on a band, some of them named.

    Array arguments have one entry per pair; `width` scales the width of lines. Returns the arrows.
    """
    frame(axes, model)
    size, drawn = _size(axes), list(arrows(model))
    for arrow in drawn:
        pair, broad = arrow.pair, 1.0 if width is None else float(width[arrow.pair])
        if best[pair] and arrow.is_likeliest:
            draw_arrow(axes, arrow, zorder=1, arrowstyle="-", color=ROUTE_COLOUR, linewidth=4.5 + 3.5 * size)
        draw_arrow(
            axes,
            arrow,
            arrowstyle="-|>",
            color=colours[pair],
            linestyle="-" if seen[pair] else ":",
            linewidth=(0.6 + 0.6 * size) * broad,
            mutation_scale=3.0 + 7.0 * size,
        )
        if named[pair] and not arrow.is_stub:
            name_move(axes, model.pair_name(pair)[1], arrow.at(0.4))
    return drawn


def _size(axes: Axes) -> float:
    """The scale of a drawing: below 1 if arrows and names have to be smaller than usual."""
    return min(1.0, points_per_unit(axes) / 60.0)


def finish(axes: Axes, model: SSP, handles: Sequence[Any], title: str, numbers: Iterable[Number]) -> None:
    """Add goals, starts, names of states, numbers at moves, the legend and the title."""
    draw_goal(axes, model, fontsize=8.0 if _size(axes) > 0.7 or not is_triangle(model) else 0.0)
    handles = [*handles, *draw_starts(axes, model)]
    write_numbers(axes, model, numbers, name_states(axes, model))
    explain(axes, handles, title)


def chances(
    model: SSP, drawn: Iterable[Arrow], chance: Float[np.ndarray, "pairs"], best: Bool[np.ndarray, "pairs"]
) -> Iterator[Number]:
    """Probabilities that moves are optimal, for states with a choice; those of the best route have priority.

    Where all moves of a state are equally probable nothing is known, and only the best route is numbered.
    """
    first, state = model.pair_start[:-1], model.pair_state
    told = np.maximum.reduceat(chance, first) - np.minimum.reduceat(chance, first) >= LEAST_CHANCE
    choice = (np.diff(model.pair_start) > 1)[state] & (told[state] | best)
    for arrow in drawn:
        pair = arrow.pair
        if choice[pair] and arrow.is_likeliest and chance[pair] >= LEAST_CHANCE:
            doubt = float(chance[pair] * (1.0 - chance[pair]))
            yield Number(f"{chance[pair]:.0%}", arrow.at, doubt + bool(best[pair]), bool(best[pair]))


def line_keys(model: SSP, words: Words, seen: Bool[np.ndarray, "pairs"], has_best: bool) -> list[Any]:
    """Legend entries for lines: the best ones, those seen and not seen, those with unknown laws."""
    from matplotlib.lines import Line2D

    keys = [Line2D([], [], color=ROUTE_COLOUR, linewidth=5.0, label=words.best)] if has_best else []
    if not seen.all():
        keys += [Line2D([], [], color="black", linewidth=1.0, label=words.seen)] if seen.any() else []
        keys.append(Line2D([], [], color="black", linewidth=1.0, linestyle=":", label=words.unseen))
    if model.open_law.any():
        keys.append(Line2D([], [], color="black", linestyle="", marker="$?$", label="destination unknown"))
    return keys


def new_axes(model: SSP, handles: Sequence[Any] = (), title: str = "", beside: float = 0.0) -> Axes:
    """Axes of a new figure for a problem, with room for a legend, a title and a colour bar `beside` inches wide."""
    from matplotlib import pyplot

    low, high = _corners(model)
    width, height = high - low
    scale = min(1.0, 12.0 / max(width, height))
    width, height = max(NARROWEST, width * scale), max(1.4, height * scale)
    names = [str(handle.get_label()) for handle in handles]
    rows = -(-len(names) // columns(72.0 * width, names)) if names else 0
    lines = len(plain_lines(title, 72.0 * width).split("\n"))
    below, above = 0.1 + LEGEND_LINE * rows, 0.15 + TITLE_LINE * lines
    figure = pyplot.figure(figsize=(width + beside, below + height + above))
    whole = below + height + above
    return figure.add_axes((0.0, below / whole, width / (width + beside), height / whole))


def require_drawable(model: SSP) -> None:
    """Refuse anything but a problem small enough for a picture; warn if its map is faulty."""
    require_problem(model)
    if model.n_states > MAX_STATES:
        raise BadInputError(f"{model.n_states} states are too many for a picture: at most {MAX_STATES}, leave it out")
    if len(model.next_state) > MAX_ARROWS:
        raise BadInputError(
            f"{len(model.next_state)} arrows are too many for a picture: at most {MAX_ARROWS}, leave it out"
        )
    if fault := map_fault(model):
        warnings.warn(fault, UserWarning, stacklevel=3)


def draw_pies(axes: Axes, model: SSP, share: Float[np.ndarray, "pairs"]) -> None:
    """Draw a pie for each state, in which each of its pairs has the given share."""
    from matplotlib.patches import Circle, Wedge

    place, colours = positions(model), pair_colours(model)
    for s in range(model.n_states):
        angle = 90.0
        for i in sorted(range(model.pair_start[s], model.pair_start[s + 1]), key=lambda i: int(model.pair_action[i])):
            sweep = 360.0 * share[i]
            axes.add_patch(Wedge(tuple(place[s]), RADIUS, angle, angle + sweep, facecolor=colours[i], zorder=3))
            angle += sweep
        axes.add_patch(Circle(tuple(place[s]), RADIUS, facecolor="none", edgecolor="black", linewidth=0.8, zorder=4))


def draw_plain_states(axes: Axes, model: SSP, colours: Mapping[int, str] | None = None) -> None:
    """Draw a circle for each state, white unless it has a colour."""
    from matplotlib.patches import Circle

    for s, place in enumerate(positions(model)[:-1]):
        look = {"facecolor": (colours or {}).get(s, "white"), "edgecolor": "black", "linewidth": 0.8}
        axes.add_patch(Circle((float(place[0]), float(place[1])), RADIUS, zorder=3, **look))


def draw_goal(axes: Axes, model: SSP, fontsize: float) -> None:
    """Draw the goal as one grey state, or as a row of them below a triangle; named unless `fontsize` is 0."""
    from matplotlib.patches import Circle

    places = goal_places(model)
    name = plain_name(model.goals[0] + (" …" if len(model.goals) > 1 else ""))
    name = name if "goal" in name.casefold() else f"goal: {name}"
    for x, y in places:
        axes.add_patch(Circle((x, y), RADIUS, facecolor=GOAL_COLOUR, edgecolor="black", linewidth=0.8, zorder=3))
        if fontsize > 0 and len(name) <= SHORT_NAME:
            axes.annotate(name, (x, y), ha="center", va="center", fontsize=fontsize, zorder=5)
    if fontsize > 0 and len(name) > SHORT_NAME:
        x, y = places[len(places) // 2]
        write(axes, name, (x, y - 1.2 * RADIUS), ha="center", va="top", fontsize=fontsize)


def goal_places(model: SSP) -> Float[np.ndarray, "places 2"]:
    """The positions at which the goal is drawn."""
    if is_triangle(model):
        return np.unique(landings(model)[model.next_state == model.n_states], axis=0)
    return positions(model)[-1:]


def draw_arrow(axes: Axes, arrow: Arrow, zorder: int = 2, **look: Any) -> None:
    """Draw an arrow, or a band along it; stubs are dashed and end in a question mark."""
    begin, end, bend = arrow.ends
    if arrow.is_stub and look["arrowstyle"] != "-":
        write(axes, "?", end, ha="center", va="center", fontsize=9, color=look["color"], fontweight="bold")
        look |= {"arrowstyle": "-", "linestyle": "-" if look["linestyle"] == "-" else "--"}
        end = arrow.at(0.75)
    course = {"connectionstyle": f"arc3,rad={bend}", "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, begin, arrowprops=course | look, zorder=zorder)


def arrows(model: SSP) -> Iterator[Arrow]:
    """All arrows of a problem, and the stubs of pairs whose law is open."""
    place, likeliest = positions(model), model.over_successors(np.maximum, model.next_prob, 0.0)
    for pair, tip, prob in zip(model.next_pair.tolist(), landings(model), model.next_prob, strict=True):
        ends = arrow_ends(model, pair, place[model.pair_state[pair]], tip)
        yield Arrow(pair, ends, bool(prob >= likeliest[pair]))
    lost = np.flatnonzero(model.open_law)
    for state in np.unique(model.pair_state[lost]).tolist():
        own = [pair for pair in lost.tolist() if model.pair_state[pair] == state]
        for pair, angle in zip(own, _free_angles(model, state, len(own)), strict=True):
            outwards = np.array([np.cos(angle), np.sin(angle)])
            begin, end = place[state] + RADIUS * outwards, place[state] + (RADIUS + STUB) * outwards
            yield Arrow(pair, ((float(begin[0]), float(begin[1])), (float(end[0]), float(end[1])), 0.0), is_stub=True)


def _free_angles(model: SSP, state: int, count: int) -> Float[np.ndarray, "count"]:
    """Angles spread over the widest gap between the arrows from and to a state."""
    place, source = positions(model), model.pair_state[model.next_pair]
    tips = landings(model)
    touching = np.concatenate([tips[source == state], place[source[model.next_state == state]]]) - place[state]
    taken = np.sort(np.arctan2(touching[:, 1], touching[:, 0])[np.abs(touching).max(axis=1) > 0])
    if not len(taken):
        return -np.pi / 2 + 2 * np.pi * np.arange(count) / count
    gap = np.diff(np.append(taken, taken[0] + 2 * np.pi))
    widest = int(np.argmax(gap))
    return taken[widest] + gap[widest] * np.arange(1, count + 1) / (count + 1)


def arrow_ends(model: SSP, pair: int, begin: Float[np.ndarray, "2"], end: Float[np.ndarray, "2"]) -> Ends:
    """End points and curvature of an arrow between two states; actions differ in curvature, so that none hides another.

    An action that stays in its state gets a loop beside it, larger than that of the previous action.
    """
    order = pair - int(model.pair_start[model.pair_state[pair]])
    step = end - begin
    length = float(np.hypot(*step))
    bend = (0.1 if step[1] else 0.3) + 0.08 * order  # a sideways move may have a counterpart that leads back
    if is_mapped(model):
        bend = 0.12 + 0.1 * _alike_before(model, pair)
    away, into = RADIUS * step / max(length, 1e-9), -RADIUS * step / max(length, 1e-9)
    if length == 0.0:
        bend, away, into = -1.6 - 0.5 * order, np.array([-RADIUS, 0.0]), RADIUS * np.array([-0.7, 0.7])
    first, last = begin + away, end + into
    return (float(first[0]), float(first[1])), (float(last[0]), float(last[1])), bend


def _alike_before(model: SSP, pair: int) -> int:
    """Number of earlier pairs of the same state that share a successor with this one."""
    own = set(model.next_state[model.next_start[pair] : model.next_start[pair + 1]].tolist())
    before = range(model.pair_start[model.pair_state[pair]], pair)
    return sum(not own.isdisjoint(model.next_state[model.next_start[i] : model.next_start[i + 1]]) for i in before)


def _corners(model: SSP, margin: float | None = None) -> tuple[Float[np.ndarray, "2"], Float[np.ndarray, "2"]]:
    """The lower left and upper right corners of a drawing; the default margin leaves room for arrows."""
    room = margin if margin is not None else STUB_MARGIN if model.open_law.any() else MARGIN
    place = np.vstack([positions(model)[:-1], goal_places(model)])
    return place.min(axis=0) - room, place.max(axis=0) + room


def frame(axes: Axes, model: SSP, margin: float | None = None) -> None:
    """Fit the axes to the whole problem and hide everything else."""
    low, high = _corners(model, margin)
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.set_aspect("equal")
    axes.set_axis_off()
