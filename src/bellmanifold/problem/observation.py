"""A single observation by name: a move that was played, or a belief about one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from bellmanifold.errors import (
    BadInputError,
    kind_of_value,
    quote,
    require,
    require_keys,
    require_kind,
    require_numbers,
)

SMALLEST_SD, LARGEST_SD = 1e-100, 1e100
"""The square of an sd outside this range would leave the range of floating point."""


class Observation(NamedTuple):
    """One move, or one belief about a move.

    Attributes:
        state: the state where it was played.
        action: the action played.
        reward: the reward; None for the model's, or if it was not recorded.
        sd: the standard deviation of this reward, 0 for an exact one; None for the noise common to all rewards.
        next: the next state, or a goal; None if it was not recorded, or for a belief: a reward with an `sd` and
            without `next` counts as a belief about an untried pair.
    """

    state: str
    action: str
    reward: float | None = None
    sd: float | None = None
    next: str | None = None


Given: TypeAlias = Observation | Sequence[Any] | Mapping[str, Any]
"""An `Observation`, (state, action), (state, action, reward) or a mapping with the fields of `Observation`."""


def require_belief(mean: float, sd: float) -> None:
    """Raise unless these are the mean and the standard deviation of a belief."""
    require_numbers(mean=mean, sd=sd)
    require(abs(mean) <= LARGEST_SD, f"mean is {mean}: give a number of at most {LARGEST_SD:g} in size")
    if not SMALLEST_SD <= sd <= LARGEST_SD:
        raise BadInputError(f"sd is {sd}: give a positive number, from {SMALLEST_SD:g} to {LARGEST_SD:g}")


def as_observation(item: Given, where: str) -> Observation:
    """Convert one item given to `Dataset.from_pairs`."""
    if isinstance(item, Observation):
        return item
    if isinstance(item, Mapping):
        require_keys(item, where, Observation._fields[:2], Observation._fields[2:])
        return Observation(**item)
    remedy = "give (state, action), (state, action, reward) or a bm.Observation"
    if isinstance(item, str):
        raise BadInputError(f"{where} is {kind_of_value(item)}: {remedy}")
    require_kind(item, Sequence, where, remedy)
    require(len(item) in (2, 3), f"{where}: has {len(item)} entries: {remedy}")
    return Observation(*item)


def rows_of(observations: Any) -> Any:
    """The rows of a DataFrame like that of `Dataset.to_frame`, without empty cells; anything else is unchanged."""
    if not hasattr(observations, "itertuples"):
        return observations
    columns = [name for name in Observation._fields if name in observations.columns]
    rows = observations[columns].astype(object).where(observations[columns].notna(), None).to_dict("records")
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def number_or_nan(value: Any, what: str) -> float:
    """A finite number, or NaN for None."""
    if value is None:
        return float("nan")
    if isinstance(value, str):  # even if it looks like a number: "5,0" is not one for Python, and "1_0" is 10
        raise BadInputError(f"{what} is the string {quote(value)}: give a finite number")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise BadInputError(f"{what} is {quote(value)}: give a finite number") from None
    if not np.isfinite(number):
        raise BadInputError(f"{what} is {number}: give a finite number")
    return number
