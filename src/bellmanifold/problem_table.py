"""A problem as a table of its pairs, and what it says about itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

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


def name_columns(model: SSP, pairs: Iterable[Any]) -> dict[str, list[Any]]:
    """The names of pairs as the first columns of a table."""
    names = [model.pair_name(pair) for pair in pairs]
    return {"state": [state for state, _ in names], "action": [action for _, action in names]}


def pair_columns(model: SSP) -> Columns:
    """Pairs as columns of a table; where one leads as {state: probability}, None where it is unknown."""
    rows = [slice(a, b) for a, b in zip(model.next_start[:-1], model.next_start[1:], strict=True)]
    laws = [zip(map(model.state_name, model.next_state[r]), model.next_prob[r].tolist(), strict=True) for r in rows]
    return {
        **name_columns(model, range(model.n_pairs)),
        "reward": model.reward.tolist(),
        "reward_sd": model.reward_sd.tolist(),
        "next": [dict(law) or None for law in laws],
    }
