"""The description of a problem: plain arrays that `bellmanifold.problem.builder` turns into an `SSP`; stated priors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from bellmanifold.errors import count_of, listed, quote, quote_pair, require
from bellmanifold.problem.costs import Costs, signed

SHOWN = 5
"""Number of dropped states, and of dropped pairs, that a message names."""


@dataclass(frozen=True, eq=False)
class StatedPrior:
    """Normal priors over action values that are stated with a problem, in whole or in part.

    A pair's own number takes precedence over the problem's, and that over the caller's default. Means and standard
    deviations may be stated separately. `assemble` checks those of pairs.

    Attributes:
        mean: prior mean of all action values; None if not stated.
        sd: prior standard deviation of all action values, positive; None if not stated.
        pair_mean: prior means of single pairs, NaN where not stated, shape (pairs,).
        pair_sd: prior standard deviations of single pairs, NaN where not stated, shape (pairs,).
    """

    mean: float | None
    sd: float | None
    pair_mean: Float[np.ndarray, "pairs"]
    pair_sd: Float[np.ndarray, "pairs"]

    def __post_init__(self) -> None:
        require(self.mean is None or np.isfinite(self.mean), f"prior: mean is {self.mean}: give a finite number")
        require(self.sd is None or 0 < self.sd < np.inf, f"prior: sd is {self.sd}: give a positive number")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StatedPrior):
            return NotImplemented
        return (self.mean, self.sd) == (other.mean, other.sd) and all(
            np.array_equal(getattr(self, f), getattr(other, f), equal_nan=True) for f in ("pair_mean", "pair_sd")
        )

    __hash__ = object.__hash__

    def __str__(self) -> str:
        whole = [f"{name} {value:g}" for name, value in (("mean", self.mean), ("sd", self.sd)) if value is not None]
        own = int((~np.isnan(self.pair_mean) | ~np.isnan(self.pair_sd)).sum())
        return ", ".join(whole + ([f"stated for {own} of {len(self.pair_mean)} pairs"] if own else []))

    def in_terms(self, costs: Costs | None) -> StatedPrior:
        """The prior for people: of costs where the problem was given in costs."""
        return replace(self, mean=None if self.mean is None else signed(self.mean, costs))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stated."""
        nothing = np.isnan(self.pair_mean).all() and np.isnan(self.pair_sd).all()
        return self.mean is None and self.sd is None and bool(nothing)

    def of_pairs(self, pairs: Int[np.ndarray, "some"] | Bool[np.ndarray, "pairs"]) -> StatedPrior:
        """The prior of a selection of pairs, in the given order."""
        return replace(self, pair_mean=self.pair_mean[pairs], pair_sd=self.pair_sd[pairs])


@dataclass(frozen=True)
class Dropped:
    """What `bellmanifold.pruned` left out of a problem, by name.

    Attributes:
        states: dead ends: states from which no policy is sure to reach the goal.
        pairs: the pairs of these states, and those that may lead there.
    """

    states: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()

    @cached_property
    def _known(self) -> frozenset[tuple[str, str]]:
        return frozenset(self.pairs)

    def __bool__(self) -> bool:
        return bool(self.states)

    def __contains__(self, pair: tuple[str, str]) -> bool:
        return pair in self._known

    def __add__(self, other: Dropped) -> Dropped:
        return Dropped(self.states + other.states, self.pairs + other.pairs)

    @property
    def size(self) -> str:
        """How much was dropped."""
        return f"{count_of(len(self.states), 'dead end')} and {count_of(len(self.pairs), 'move')}"

    def __str__(self) -> str:
        states = listed(self.states, SHOWN, quote)
        pairs = listed(self.pairs, SHOWN, lambda pair: quote_pair(*pair))
        moves = f" and {count_of(len(self.pairs), 'move')} from or to dead ends ({pairs})" if pairs else ""
        return f"{count_of(len(self.states), 'dead end')} ({states}){moves}"


@dataclass(frozen=True)
class Description:
    """A problem as plain, unchecked arrays; the layout of the `.npz` format. Goals are among the states.

    Attributes:
        state_names: every state, goals included.
        action_names: every action.
        goals: indices of the goal states.
        initial_state, initial_prob: states and probabilities of the initial distribution.
        pair_state, pair_action, reward: one entry per pair, in any order.
        next_start, next_state, next_prob: successors of all pairs in compressed rows.
        reward_sd: standard deviation of the noise of each pair's simulated reward; None for no noise.
        prior: stated priors over action values, in the order of the pairs.
        may_be_open: whether rewards may be NaN and rows empty.
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
