"""The description of a problem: plain arrays, which `bellmanifold.assembly` turns into an `SSP`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike

from bellmanifold.stated_prior import StatedPrior


@dataclass(frozen=True)
class Description:
    """A problem as plain, unchecked arrays; the layout of the `.npz` format. Goals are among the states.

    Attributes:
        state_names: every state, goals included.
        action_names: every action.
        goals: indices of the goal states.
        initial_state, initial_prob: the initial distribution, entry by entry.
        pair_state, pair_action, reward: one entry per pair, in any order.
        next_start, next_state, next_prob: successors of all pairs in compressed rows.
        reward_sd: noise of each pair's simulated reward; None for none.
        prior: what is stated about action values, in the order of the pairs.
        may_be_open: rewards may be NaN and rows empty.
        open_discount: see `SSP`.
    """

    state_names: Sequence[str]
    action_names: Sequence[str]
    goals: ArrayLike
    initial_state: ArrayLike
    initial_prob: ArrayLike
    pair_state: ArrayLike
    pair_action: ArrayLike
    reward: ArrayLike
    next_start: ArrayLike
    next_state: ArrayLike
    next_prob: ArrayLike
    reward_sd: ArrayLike | None = None
    name: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    prior: StatedPrior | None = None
    may_be_open: bool = False
    open_discount: float = 1.0
