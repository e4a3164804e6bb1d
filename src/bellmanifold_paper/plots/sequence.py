"""One episode on the drawing of its problem: what was believed before it, and what was played.

Each state is a pie of the probabilities that its actions are optimal. Pairs without data are dotted. Orange arrows show
the route an optimal policy takes: the more opaque, the more probable it is that the route goes there. The arrows of the
route that was played have a border.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from bellmanifold.pictures.drawing import arrow_ends, draw_goal, draw_pies, frame
from bellmanifold.pictures.labels import RADIUS, points_per_unit
from bellmanifold.pictures.positions import landings, positions
from bellmanifold.problem.ssp import SSP

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ORANGE = "#F07800"
BEND = 0.75
"""Arrows of an episode bend this much of what those of a problem do."""
FAINTEST = 0.005
"""Arrows less probable than this are not drawn."""
MARGIN = RADIUS + 0.08


@dataclass(frozen=True, eq=False)
class Shown:
    """What is shown of an episode.

    Attributes:
        title: over the drawing.
        probability: that each pair is optimal in its state, shape (pairs,).
        observed: pairs with data, shape (pairs,).
        on_route: probability that an optimal policy's route takes each pair, shape (pairs,).
        played: pairs played in the episode.
    """

    title: str
    probability: Float[np.ndarray, "pairs"]
    observed: Bool[np.ndarray, "pairs"]
    on_route: Float[np.ndarray, "pairs"]
    played: Sequence[int]


def draw_episode(axes: Axes, model: SSP, shown: Shown) -> Axes:
    """Draw an episode.

    Args:
        axes: where to draw.
        model: the problem.
        shown: what was believed and played.
    """
    from matplotlib.patches import FancyArrowPatch

    place, tips = positions(model), landings(model)
    frame(axes, model, MARGIN)
    point = points_per_unit(axes)
    thin: dict[str, Any] = {"arrowstyle": "-|>,head_length=0.08,head_width=0.05", "color": "0.55", "linewidth": 0.6}
    wide: dict[str, Any] = {"arrowstyle": "simple,head_length=0.17,head_width=0.22,tail_width=0.09"}
    probable, bordered = {"facecolor": ORANGE, "linewidth": 0.0}, {"facecolor": "none", "linewidth": 0.6}
    for entry, pair in enumerate(model.next_pair):
        begin, end, bend = arrow_ends(model, int(pair), place[model.pair_state[pair]], tips[entry])
        course: dict[str, Any] = {"connectionstyle": f"arc3,rad={BEND * bend}", "mutation_scale": point}
        looks = [{**thin, "linestyle": "-" if shown.observed[pair] else (0, (1, 1.5)), "zorder": 1.0}]
        if shown.on_route[pair] > FAINTEST:
            looks.append({**wide, **probable, "alpha": float(min(shown.on_route[pair], 1.0)), "zorder": 2.0})
        if pair in shown.played:
            looks.append({**wide, **bordered, "edgecolor": "black", "zorder": 2.5})
        for look in looks:
            axes.add_patch(FancyArrowPatch(begin, end, shrinkA=0.0, shrinkB=0.0, **course, **look))
    share = shown.probability / np.bincount(model.pair_state, shown.probability)[model.pair_state]
    draw_pies(axes, model, share)
    draw_goal(axes, model, fontsize=0.0)
    axes.set_title(shown.title)
    return axes
