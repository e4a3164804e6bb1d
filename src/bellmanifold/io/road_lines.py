"""Roads as columns, which readers of tables and graphs fill in, and the checks of their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from bellmanifold._util.limits import SIZE
from bellmanifold.errors import BadInputError

LARGEST = 1e100
"""Costs are at most this: squares of larger ones leave the range of floating point."""


@dataclass(frozen=True, eq=False)
class Lines:
    """Roads as columns, with an entry for each line of a table or edge of a graph.

    Attributes:
        tail, head: names of the junctions where each begins and ends.
        name: its name; empty if it has none.
        cost: its cost, NaN if it is unknown, shape (lines,).
        sd: standard deviation of the noise of its cost, shape (lines,).
        probability: how often it leads to its head, shape (lines,).
        both_ways: whether it also leads back, shape (lines,).
        shares: whether probabilities are stated, so that lines of one name and tail are one road.
        repeats: whether several roads out of one junction may have the same name.
        where: what an entry is called in messages.
        positions: coordinates of junctions.
        lonely: further junctions, without roads.
    """

    tail: Sequence[str]
    head: Sequence[str]
    name: Sequence[str]
    cost: Float[np.ndarray, "lines"]
    sd: Float[np.ndarray, "lines"]
    probability: Float[np.ndarray, "lines"]
    both_ways: Bool[np.ndarray, "lines"]
    shares: bool
    repeats: bool
    where: Callable[[int], str]
    positions: Mapping[str, list[float]]
    lonely: Sequence[str] = ()


def check_numbers(lines: Lines, gains: bool) -> None:
    """Raise for negative or huge costs, for negative sds, and for probabilities outside (0, 1]."""
    SIZE.require(2 * len(lines.tail), "the roads")
    if not gains:
        _refuse(
            lines,
            lines.cost < 0,
            lambda k: f"cost is {lines.cost[k]:g}: costs are positive, unless allow_gains says that roads may pay",
        )
    _refuse(
        lines,
        np.abs(lines.cost) > LARGEST,
        lambda k: f"cost is {lines.cost[k]:g}: it must be at most {LARGEST:g}: choose another unit",
    )
    _refuse(lines, lines.sd < 0, lambda k: f"sd is {lines.sd[k]:g}: give a number that is not negative")
    wrong = ~((lines.probability > 0) & (lines.probability <= 1))
    _refuse(lines, wrong, lambda k: f"probability is {lines.probability[k]:g}: give a number above 0, at most 1")
    partial = lines.probability < 1
    nameless = np.array([not name for name in lines.name], dtype=bool)
    _refuse(
        lines,
        partial & nameless,
        lambda k: f"has the probability {lines.probability[k]:g} but no name: lines of one name are one road",
    )
    _refuse(
        lines,
        partial & lines.both_ways,
        lambda k: f"has the probability {lines.probability[k]:g} and is two-way: write a line for each way",
    )


def _refuse(lines: Lines, wrong: Bool[np.ndarray, "lines"], message: Callable[[int], str]) -> None:
    """Raise, with its message, for the first line that is wrong."""
    if wrong.any():
        k = int(np.argmax(wrong))
        raise BadInputError(f"{lines.where(k)}: {message(k)}")
