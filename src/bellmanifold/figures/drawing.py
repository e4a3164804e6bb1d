"""A problem as a picture: a pie per state, an arrow per pair, the goal in grey."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from bellmanifold.errors import BadInputError, unstacked
from bellmanifold.figures.positions import is_triangle, landings, on_grid, positions
from bellmanifold.ssp import SSP

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#CC6677", "#4477AA", "#DDCC77", "#117733", "#AA4499", "#88CCEE", "#882255", "#44AA99")
"""One per action, told apart by colour-blind eyes (Tol's muted and bright schemes)."""
GOAL_COLOUR = "#BBBBBB"
RADIUS = 0.3
MAX_STATES, MAX_ARROWS = 2000, 10_000
LONGEST_NAME = 24
NAME_WIDTH, CHARACTER = 1.2, 4.3
"""How wide the name of a state may be, in units of the drawing, and how wide a character is, in points."""
NAMED_STATES = 60
"""Up to this many states are named, unless they lie on a grid, which says it all."""


Ends: TypeAlias = tuple[tuple[float, float], tuple[float, float], float]
"""Where an arrow begins, where it ends, and how it bends."""


@runtime_checkable
class Pies(Protocol):
    """What a posterior's summary offers to a picture: `pies()`, a share for each pair and which pairs were seen."""

    def pies(self) -> tuple[Float[np.ndarray, "pairs"], Bool[np.ndarray, "pairs"]]: ...


def draw(
    model: SSP,
    pies: Pies | Float[np.ndarray, "pairs"] | None = None,
    observed: Bool[np.ndarray, "pairs"] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Draw a problem with a pie per state.

    Args:
        model: the problem, of at most 2,000 states.
        pies: a posterior's summary, or how much of its state's pie each pair gets; by default equal shares.
        observed: pairs drawn with a full line, the others dotted; by default all of them, or those of the summary.
        axes: where to draw; by default a new figure.
    """
    require_drawable(model)
    place = positions(model)
    axes = new_axes(model) if axes is None else axes
    if pies is not None and not isinstance(pies, np.ndarray):
        pies, observed = pies.pies()
    share = np.ones(model.n_pairs) if pies is None else np.maximum(pies, 0.0)
    share = share / np.bincount(model.pair_state, share, model.n_states)[model.pair_state]
    seen = np.ones(model.n_pairs, dtype=bool) if observed is None else observed

    frame(axes, model)
    size = min(1.0, points_per_unit(axes) / 60.0)
    for pair, tip in zip(model.next_pair, landings(model), strict=True):
        ends = arrow_ends(model, int(pair), place[model.pair_state[pair]], tip)
        _arrow(axes, ends, COLOURS[model.pair_action[pair] % len(COLOURS)], size, bool(seen[pair]))
    draw_pies(axes, model, share)
    draw_goal(axes, model, fontsize=8.0 if size > 0.7 or not is_triangle(model) else 0.0)
    name_states(axes, model)
    name_actions(axes, model)
    return axes


def new_axes(model: SSP) -> Axes:
    """A figure of its own for a problem."""
    from matplotlib import pyplot

    width, height = np.ptp(positions(model), axis=0) + 1.5
    scale = min(1.0, 12.0 / max(width, height))
    return pyplot.subplots(figsize=(max(3.0, width * scale), max(2.0, height * scale)), layout="constrained")[1]


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
        label = axes.annotate(_plain(name, room), at, ha=side, va=up, fontsize=7, zorder=5)
        label.set_in_layout(False)  # names must not squeeze the drawing


def require_drawable(model: SSP) -> None:
    """Refuse a problem that is too large for a picture."""
    if model.n_states > MAX_STATES:
        raise BadInputError(f"{model.n_states} states are too many for a picture: at most {MAX_STATES}, leave it out")
    if len(model.next_state) > MAX_ARROWS:
        raise BadInputError(
            f"{len(model.next_state)} arrows are too many for a picture: at most {MAX_ARROWS}, leave it out"
        )


def draw_pies(axes: Axes, model: SSP, share: Float[np.ndarray, "pairs"]) -> None:
    """A pie for each state, in which each of its pairs has the given share."""
    from matplotlib.patches import Circle, Wedge

    place = positions(model)
    for s in range(model.n_states):
        angle = 90.0
        for i in sorted(range(model.pair_start[s], model.pair_start[s + 1]), key=lambda i: int(model.pair_action[i])):
            sweep = 360.0 * share[i]
            colour = COLOURS[model.pair_action[i] % len(COLOURS)]
            axes.add_patch(Wedge(tuple(place[s]), RADIUS, angle, angle + sweep, facecolor=colour, zorder=3))
            angle += sweep
        axes.add_patch(Circle(tuple(place[s]), RADIUS, facecolor="none", edgecolor="black", linewidth=0.8, zorder=4))


def draw_goal(axes: Axes, model: SSP, fontsize: float) -> None:
    """The goal: one grey state, or the row of them below a triangle, with its name unless the font has no size."""
    from matplotlib.patches import Circle

    for x, y in goal_places(model):
        axes.add_patch(Circle((x, y), RADIUS, facecolor=GOAL_COLOUR, edgecolor="black", linewidth=0.8, zorder=3))
        if fontsize > 0:
            axes.annotate("goal", (x, y), ha="center", va="center", fontsize=fontsize, zorder=5)


def goal_places(model: SSP) -> Float[np.ndarray, "places 2"]:
    """Where the goal is drawn."""
    if is_triangle(model):
        return np.unique(landings(model)[model.next_state == model.n_states], axis=0)
    return positions(model)[-1:]


def _arrow(axes: Axes, ends: Ends, colour: str, size: float, seen: bool) -> None:
    """An arrow, smaller than usual where the drawing is."""
    begin, end, bend = ends
    style: dict[str, Any] = {
        "arrowstyle": "-|>",
        "connectionstyle": f"arc3,rad={bend}",
        "color": colour,
        "linestyle": "-" if seen else ":",
        "linewidth": 0.6 + 0.6 * size,
        "mutation_scale": 3.0 + 7.0 * size,
        "shrinkA": 0,
        "shrinkB": 0,
    }
    axes.annotate("", end, begin, arrowprops=style, zorder=2)


def arrow_ends(model: SSP, pair: int, begin: Float[np.ndarray, "2"], end: Float[np.ndarray, "2"]) -> Ends:
    """Where an arrow between two states begins and ends, and how it bends: each action its own way, none hides another.

    An action that stays where it is gets a loop beside the state, larger than that of the action before.
    """
    order = pair - int(model.pair_start[model.pair_state[pair]])
    step = end - begin
    length = float(np.hypot(*step))
    bend = (0.1 if step[1] else 0.3) + 0.08 * order  # a sideways move may have one that leads back
    away, into = RADIUS * step / max(length, 1e-9), -RADIUS * step / max(length, 1e-9)
    if length == 0.0:
        bend, away, into = -1.6 - 0.5 * order, np.array([-RADIUS, 0.0]), RADIUS * np.array([-0.7, 0.7])
    first, last = begin + away, end + into
    return (float(first[0]), float(first[1])), (float(last[0]), float(last[1])), bend


def frame(axes: Axes, model: SSP, margin: float = 0.8) -> None:
    """Axes that show the whole problem and nothing else."""
    place = np.vstack([positions(model)[:-1], goal_places(model)])
    low, high = place.min(axis=0) - margin, place.max(axis=0) + margin
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.set_aspect("equal")
    axes.set_axis_off()


def points_per_unit(axes: Axes) -> float:
    """How many points on paper a unit of framed axes will be, as far as their place in the figure tells."""
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes are drawn on a figure"
    box = axes.get_position()
    width, height = box.width * figure.get_figwidth(), box.height * figure.get_figheight()
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    return 72.0 * float(min(width / (right - left), height / (high - low)))


def name_actions(axes: Axes, model: SSP) -> None:
    """A legend of the actions."""
    from matplotlib.patches import Patch

    shown = model.actions[: len(COLOURS)]
    handles = [Patch(facecolor=COLOURS[k], label=_plain(name)) for k, name in enumerate(shown)]
    axes.legend(handles=handles, frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)


def _plain(name: str, limit: int = LONGEST_NAME) -> str:
    """A name that matplotlib shows as it is: no mathematics, nothing unprintable, not too long."""
    cut = unstacked(name[: 4 * LONGEST_NAME])
    cut = cut if len(cut) <= limit else cut[: limit - 1] + "…"
    shown = "".join(c if c.isprintable() else "?" for c in cut).replace("$", r"\$")
    return " " + shown if shown.startswith("_") else shown
