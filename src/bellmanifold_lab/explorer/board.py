"""The fixed part of an exploration's drawing: positions, arrows, names and colours, as numbers and text for JSON.

Positions are those of the library's pictures, scaled so that nearly all states are at least 1 apart, as on a grid: a
map may be in any unit (metres or degrees).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from bellmanifold._util.display import for_json
from bellmanifold.errors import BadInputError
from bellmanifold.pictures.drawing import goal_places
from bellmanifold.pictures.palette import pair_colours
from bellmanifold.pictures.positions import landings, positions
from bellmanifold.problem.ssp import SSP
from bellmanifold_lab.report.text import display_name, outline, round_values

MOST_STATES, MOST_ARROWS = 200, 4000
"""Limits on the problems that can be explored."""
CLOSE = 0.1
"""Share of states whose nearest neighbour may be closer than 1."""


def make_board(model: SSP) -> dict[str, Any]:
    """The drawing of a problem, for JSON; y points down, as on screens. Refuses problems that are too large."""
    arrows = len(model.next_state)
    if model.n_states > MOST_STATES or arrows > MOST_ARROWS:
        raise BadInputError(
            f"explore: {model.n_states:,} states and {arrows:,} arrows are too many to draw, at most {MOST_STATES:,} "
            f"and {MOST_ARROWS:,}: use `posterior`, which has no such limit"
        )
    places, tips, goals = _spread(positions(model), landings(model), goal_places(model))
    return {
        **outline(model),
        "name": display_name(model.name or "a problem"),
        "goal": display_name(", ".join(model.goals[:3])),
        "places": [round_values(spot) for spot in places],
        "goals": [round_values(spot) for spot in goals],
        "pair_colour": pair_colours(model),
        "reward": for_json(model.reward),
        "open_law": model.open_law.tolist(),
        "arrows": [
            {"pair": int(pair), "target": int(target), "probability": float(f"{share:.4g}"), "tip": round_values(tip)}
            for pair, target, share, tip in zip(model.next_pair, model.next_state, model.next_prob, tips, strict=True)
        ],
    }


def _spread(place: Float[np.ndarray, "states 2"], *others: Float[np.ndarray, "_ 2"]) -> list[Float[np.ndarray, "_ 2"]]:
    """Scale positions and other points alike so that nearly all positions are at least 1 apart, and flip the y axis."""
    apart = np.hypot(*(place[:, None] - place[None]).transpose(2, 0, 1))
    apart[apart == 0.0] = np.inf
    nearest = apart.min(axis=1)
    nearest = nearest[np.isfinite(nearest)]
    unit = float(np.quantile(nearest, CLOSE)) if len(nearest) else 1.0
    return [np.column_stack([points[:, 0], -points[:, 1]]) / unit for points in (place, *others)]
