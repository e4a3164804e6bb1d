"""A problem as a picture: a pie per state, an arrow per pair, the goal in grey."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from bellmanifold.figures.layout import on_grid, positions
from bellmanifold.ssp import SSP

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#CC6677", "#4477AA", "#DDCC77", "#117733", "#AA4499", "#88CCEE", "#882255", "#44AA99")
"""One per action, told apart by colour-blind eyes (Tol's muted and bright schemes)."""
GOAL_COLOUR = "#BBBBBB"
RADIUS = 0.3
MAX_STATES = 2000
NAMED_STATES = 60
"""Up to so many states are named, unless they lie on a grid, which says it all."""


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
    from matplotlib import pyplot
    from matplotlib.patches import Circle, Wedge

    if model.n_states > MAX_STATES:
        raise ValueError(f"{model.n_states} states are too many for a picture: at most {MAX_STATES}")
    place = positions(model)
    if axes is None:
        width, height = np.ptp(place, axis=0) + 1.5
        scale = min(1.0, 12.0 / max(width, height))
        _, axes = pyplot.subplots(figsize=(max(3.0, width * scale), max(2.0, height * scale)), layout="constrained")
    if pies is not None and not isinstance(pies, np.ndarray):
        pies, observed = pies.pies()
    share = np.ones(model.n_pairs) if pies is None else np.maximum(pies, 0.0)
    share = share / np.bincount(model.pair_state, share, model.n_states)[model.pair_state]
    seen = np.ones(model.n_pairs, dtype=bool) if observed is None else observed

    for i in range(model.n_pairs):
        for e in range(model.next_start[i], model.next_start[i + 1]):
            target = int(model.next_state[e])
            _arrow(axes, model, place, i, target, bool(seen[i]))
    for s in range(model.n_states):
        angle = 90.0
        for i in range(model.pair_start[s], model.pair_start[s + 1]):
            sweep = 360.0 * share[i]
            colour = COLOURS[model.pair_action[i] % len(COLOURS)]
            axes.add_patch(Wedge(tuple(place[s]), RADIUS, angle, angle + sweep, facecolor=colour, zorder=3))
            angle += sweep
        axes.add_patch(Circle(tuple(place[s]), RADIUS, facecolor="none", edgecolor="black", linewidth=0.8, zorder=4))
    axes.add_patch(Circle(tuple(place[-1]), RADIUS, facecolor=GOAL_COLOUR, edgecolor="black", linewidth=0.8, zorder=3))
    if model.n_states <= NAMED_STATES and not on_grid(model):
        for s, name in enumerate(model.states):
            corner = (place[s][0] - 0.7 * RADIUS, place[s][1] + 0.75 * RADIUS)
            axes.annotate(_plain(name), corner, ha="right", va="bottom", fontsize=7, zorder=5)
    axes.annotate("goal", tuple(place[-1]), ha="center", va="center", fontsize=8, zorder=5)
    _finish(axes, model, place)
    return axes


def _arrow(axes: Axes, model: SSP, place: np.ndarray, pair: int, target: int, seen: bool) -> None:
    source = int(model.pair_state[pair])
    style: dict[str, Any] = {
        "arrowstyle": "-|>",
        "color": COLOURS[model.pair_action[pair] % len(COLOURS)],
        "linestyle": "-" if seen else ":",
        "linewidth": 1.2,
        "shrinkA": 0,
        "shrinkB": 0,
    }
    order = pair - int(model.pair_start[source])
    if source == target:  # a loop beside the state, each action's larger than the one before
        away = place[source] + np.array([-RADIUS, 0.0])
        tip = place[source] + RADIUS * np.array([-0.7, 0.7])
        style["connectionstyle"] = f"arc3,rad={-1.6 - 0.5 * order}"
        axes.annotate("", tip, away, arrowprops=style, zorder=2)
        return
    step = place[target] - place[source]
    unit = step / np.hypot(*step)
    # bend each action its own way, so that none hides another
    style["connectionstyle"] = f"arc3,rad={0.1 + 0.08 * order}"
    axes.annotate("", place[target] - RADIUS * unit, place[source] + RADIUS * unit, arrowprops=style, zorder=2)


def _finish(axes: Axes, model: SSP, place: np.ndarray) -> None:
    from matplotlib.patches import Patch

    low, high = place.min(axis=0) - 0.8, place.max(axis=0) + 0.8
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.set_aspect("equal")
    axes.set_axis_off()
    shown = model.actions[: len(COLOURS)]
    handles = [Patch(facecolor=COLOURS[k], label=_plain(name)) for k, name in enumerate(shown)]
    axes.legend(handles=handles, frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)


def _plain(name: str) -> str:
    """A name that matplotlib shows as it is: no mathematics, nothing unprintable, not too long."""
    shown = "".join(c if c.isprintable() else "?" for c in name[:24]).replace("$", r"\$")
    return " " + shown if shown.startswith("_") else shown
