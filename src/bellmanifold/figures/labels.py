"""Numbers at moves, as many as fit: the most important first, none over another, over a name or over a state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from bellmanifold.figures.names import RADIUS, NamedState, points_per_unit, write
from bellmanifold.figures.positions import positions
from bellmanifold.ssp import SSP

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FONT, CHARACTER, LINE = 6.5, 4.4, 8.0
"""Size of a number, width of one of its characters and height of it, in points."""
LEAST_UNIT = 28.0
"""Drawings whose unit has fewer points than this have no room for numbers."""
MOST_NUMBERS = 200
ALONG = (0.42, 0.3, 0.55, 0.68)
"""Where on its arrow a number may stand, the best place first."""
CORE = 0.8
"""The part of a state's radius that a number must not cover."""


class Course(Protocol):
    """What numbers are written on: `at(share)` is the point so far along."""

    def at(self, share: float) -> tuple[float, float]: ...


class Number(NamedTuple):
    """What is to be written on which arrow; `weight` says how much it matters, `bold` whether it stands out."""

    text: str
    course: Course
    weight: float
    bold: bool = False


class Box(NamedTuple):
    """A rectangle of the drawing."""

    left: float
    low: float
    right: float
    high: float

    def meets(self, other: Box) -> bool:
        """Do they share a point?"""
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.high <= other.low or other.high <= self.low)


def write_numbers(axes: Axes, model: SSP, numbers: Iterable[Number], names: Iterable[NamedState] = ()) -> list[str]:
    """Write those numbers that fit, the weightiest first; returns what was written."""
    unit = points_per_unit(axes)
    if unit < LEAST_UNIT:
        return []
    core, written = CORE * RADIUS, []
    taken = [Box(x - core, y - core, x + core, y + core) for x, y in positions(model).tolist()]
    taken += [_of_name(name, unit) for name in names]
    for number in sorted(numbers, key=lambda number: -number.weight)[:MOST_NUMBERS]:
        for share in ALONG:
            box = _around(number.course.at(share), len(number.text), unit)
            if not any(box.meets(other) for other in taken):
                weight = "bold" if number.bold else "normal"
                write(axes, number.text, number.course.at(share), ha="center", va="center", size=FONT, weight=weight)
                taken.append(box)
                written.append(number.text)
                break
    return written


def _around(middle: tuple[float, float], characters: int, unit: float) -> Box:
    wide, high = characters * CHARACTER / unit / 2, LINE / unit / 2
    return Box(middle[0] - wide, middle[1] - high, middle[0] + wide, middle[1] + high)


def _of_name(name: NamedState, unit: float) -> Box:
    (x, y), wide, high = name.at, len(name.text) * CHARACTER / unit, LINE / unit
    left = x - wide if name.side == "right" else x
    low = y - high / 2 if name.up == "center" else y
    return Box(left, low, left + wide, low + high)
