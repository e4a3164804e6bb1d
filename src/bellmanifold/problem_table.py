"""A problem as a table of its pairs, and what it says about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bellmanifold.display import Card, Columns, picture
from bellmanifold.errors import quote

if TYPE_CHECKING:
    from bellmanifold.ssp import SSP


def card_of_problem(model: SSP) -> Card:
    """Starts and goals, the table and, for small problems, a picture."""
    starts = [f"{quote(model.states[s])} with {model.initial[s]:.3g}" for s in np.flatnonzero(model.initial)[:3]]
    more = ", ..." if int((model.initial > 0).sum()) > len(starts) else ""
    start = f"starts in {', '.join(starts)}{more}; goals: {', '.join(map(quote, model.goals[:3]))}"
    return Card(repr(model), [start], (), lambda: pair_columns(model), lambda: picture("problem", model))


def pair_columns(model: SSP) -> Columns:
    """Pairs as columns of a table; where one leads as {state: probability}, None where it is unknown."""
    rows = [slice(a, b) for a, b in zip(model.next_start[:-1], model.next_start[1:], strict=True)]
    laws = [zip(map(model.state_name, model.next_state[r]), model.next_prob[r].tolist(), strict=True) for r in rows]
    return {
        "state": [model.states[s] for s in model.pair_state],
        "action": [model.actions[a] for a in model.pair_action],
        "reward": model.reward.tolist(),
        "reward_sd": model.reward_sd.tolist(),
        "next": [dict(law) or None for law in laws],
    }
