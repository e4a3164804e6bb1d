"""What an exploration draws and never changes: places, arrows, names and colours, as numbers and text for JSON.

Places come from the library's pictures. Theirs may be in any unit (a map's metres or degrees), so they are scaled:
nearly all states are at least 1 apart, as on a grid.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from bellmanifold.errors import BadInputError
from bellmanifold.figures.drawing import goal_places
from bellmanifold.figures.palette import pair_colours
from bellmanifold.figures.positions import landings, on_grid, positions
from bellmanifold.report.text import SHORT, shown
from bellmanifold.ssp import SSP

MOST_STATES, MOST_ARROWS = 200, 4000
"""The largest problem a person can explore by hand."""
CLOSE = 0.1
"""The share of states whose nearest neighbour may be closer than 1."""


def make_board(model: SSP) -> dict[str, Any]:
    """The drawing of a problem, for JSON; y points down, as on screens.

    Raises:
        BadInputError: if it is too large to be drawn and clicked at.
    """
    arrows = len(model.next_state)
    if model.n_states > MOST_STATES or arrows > MOST_ARROWS:
        raise BadInputError(
            f"explore: {model.n_states:,} states and {arrows:,} arrows are too many to draw, at most {MOST_STATES:,} "
            f"and {MOST_ARROWS:,}: use `posterior`, which has no such limit"
        )
    places, tips, goals = _spread(positions(model), landings(model), goal_places(model))
    return {
        "name": shown(model.name or "a problem"),
        "states": [shown(name) for name in model.states],
        "short": [shown(name, SHORT) for name in model.states],
        "goal": shown(", ".join(model.goals[:3])),
        "actions": [shown(name) for name in model.actions],
        "grid": on_grid(model),
        "places": _numbers(places),
        "goals": _numbers(goals),
        "initial": np.flatnonzero(model.initial).tolist(),
        "pair_state": model.pair_state.tolist(),
        "pair_action": model.pair_action.tolist(),
        "pair_colour": pair_colours(model),
        "reward": [None if np.isnan(reward) else float(reward) for reward in model.reward],
        "open_law": model.open_law.tolist(),
        "arrows": [
            {"pair": int(pair), "target": int(target), "probability": float(f"{share:.4g}"), "tip": tip}
            for pair, target, share, tip in zip(
                model.next_pair, model.next_state, model.next_prob, _numbers(tips), strict=True
            )
        ],
    }


def _spread(place: Float[np.ndarray, "states 2"], *others: Float[np.ndarray, "_ 2"]) -> list[Float[np.ndarray, "_ 2"]]:
    """Places and others on the same paper, scaled until nearly all places are at least 1 apart, and turned over."""
    apart = np.hypot(*(place[:, None] - place[None]).transpose(2, 0, 1))
    apart[apart == 0.0] = np.inf
    nearest = apart.min(axis=1)
    nearest = nearest[np.isfinite(nearest)]
    unit = float(np.quantile(nearest, CLOSE)) if len(nearest) else 1.0
    return [np.column_stack([points[:, 0], -points[:, 1]]) / unit for points in (place, *others)]


def _numbers(points: Float[np.ndarray, "n 2"]) -> list[list[float]]:
    return [[float(f"{x:.5g}") + 0.0, float(f"{y:.5g}") + 0.0] for x, y in points]
