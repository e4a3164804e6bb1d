"""What the columns of a table of roads or trips mean: their names, and other names that people use for them.

Names are compared without regard to case, and to signs between words: "Travel-Time [min]" is `travel_time_min`. A
column that has a part's own name is taken before those that have another name for it, and the caller may choose.
A column of costs may end in a unit, or be called one: `time_min`, `minutes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bellmanifold.errors import BadInputError, guess, listed, printable, quote, shorten

SHOWN = 8
"""Maximal number of columns that a message names."""
TAILS = ("source", "u", "tail", "origin", "from_node", "from_junction", "start_node", "start", "begin", "src")
HEADS = ("target", "v", "head", "destination", "to_node", "to_junction", "end_node", "end", "dest", "dst")
COSTS = ("costs", "weight", "length", "distance", "dist", "time", "duration", "travel_time", "traveltime")
MORE_COSTS = ("price", "toll", "fare", "expense", "impedance")
UNITS = {
    **dict.fromkeys(("seconds", "second", "secs", "sec", "s"), "seconds"),
    **dict.fromkeys(("minutes", "minute", "mins", "min"), "minutes"),
    **dict.fromkeys(("hours", "hour", "hrs", "hr", "h"), "hours"),
    **dict.fromkeys(("days", "day"), "days"),
    **dict.fromkeys(("metres", "metre", "meters", "meter", "m"), "metres"),
    **dict.fromkeys(("km", "kilometres", "kilometre", "kilometers", "kilometer"), "km"),
    **dict.fromkeys(("miles", "mile", "mi"), "miles"),
    **dict.fromkeys(("euros", "euro", "eur"), "euros"),
    **dict.fromkeys(("dollars", "dollar", "usd"), "dollars"),
}
ALONE = (*(word for word in UNITS if word.endswith("s") and len(word) > 3), "km")
"""Units that may name a column by themselves."""
ENDS = {"from": ("from", *TAILS), "to": ("to", *HEADS)}
AXES = {"x": ("x", "lon", "longitude", "easting"), "y": ("y", "lat", "latitude", "northing")}
OTHER_NAMES = {
    "from": TAILS,
    "to": HEADS,
    "name": ("road", "label", "id", "edge", "link", "street", "road_name", "road_id", "edge_id", "link_id"),
    "cost": (*COSTS, *MORE_COSTS, *ALONE),
    "sd": ("std", "stdev", "std_dev", "sigma", "noise", "error"),
    "probability": ("p", "prob", "chance", "share"),
    "oneway": ("one_way",),
    **{
        f"{end}_{axis}": tuple(
            name
            for place in ENDS[end]
            for word in AXES[axis]
            for name in (f"{place}_{word}", f"{word}_{place}")
            if name != f"{end}_{axis}"
        )
        for end in ENDS
        for axis in AXES
    },
    "node": ("id", "name", "junction", "osmid", "label", "key"),
    "x": AXES["x"][1:],
    "y": AXES["y"][1:],
    "reward": ("r", "payoff", "gain"),
    "next": ("next_state", "led_to", "landing"),
}
"""Part of a road, junction or trip -> other names of its column."""
ROADS = ("from", "to", "name", "cost", "sd", "probability", "oneway", "from_x", "from_y", "to_x", "to_y")
NODES = ("node", "x", "y")
TRIPS = ("from", "to", "name", "cost", "reward", "sd", "next", "state", "action")


class Chosen(NamedTuple):
    """Which columns a reader takes.

    Attributes:
        column: part -> name of its column, for the parts that have one.
        unused: the other columns.
    """

    column: Mapping[str, str]
    unused: Sequence[str]

    @property
    def unit(self) -> str:
        """The unit of the costs, as far as the name of their column says it."""
        return unit_in(self.column.get("cost", ""))


def choose_columns(
    names: Sequence[str],
    parts: Iterable[str],
    told: Mapping[str, str] | None = None,
    others: Mapping[str, Sequence[str]] = OTHER_NAMES,
) -> Chosen:
    """The column of each part, whose other names are `others`; `told` says some, an empty name that there is none.

    Raises:
        BadInputError: if two columns may be the same part, or a column that was told is not there.
    """
    told = told or {}
    column: dict[str, str] = {}
    for part in parts:
        if part in told:
            found = [told[part]] if told[part] else []
            if found and found[0] not in names:
                there = described(names, told[part])
                raise BadInputError(f"{_said(part, told[part])}: there is no such column: {there}")
        else:
            found = _candidates(part, others[part], [name for name in names if name not in told.values()])
        if len(found) > 1:
            raise BadInputError(
                f"columns {listed(found, SHOWN, quote)} may each be the {part}: say which, as {_said(part, found[0])}, "
                f"or call one of them {quote(part)}"
            )
        column |= dict.fromkeys([part], *found) if found else {}
    return Chosen(column, [name for name in names if name not in column.values()])


def require_columns(chosen: Chosen, names: Sequence[str], parts: Sequence[str]) -> None:
    """Raise unless each of these parts has a column."""
    for part in parts:
        if part not in chosen.column:
            raise BadInputError(
                f"column {quote(part)} is missing: {described(names)}; rename one, or say which it is, as "
                + _said(part, (chosen.unused or ["COLUMN"])[0])
            )


def _said(part: str, name: str) -> str:
    """How the column of a part is told."""
    return f"{part}={printable(shorten(name))}"


def described(names: Sequence[str], name: str = "") -> str:
    """The columns that there are, for a message; the one that was meant, if it has nearly this name."""
    return guess(name, names) or f"the columns are {listed(names, SHOWN, quote)}"


def doubtful(chosen: Chosen, parts: Iterable[str]) -> str:
    """One line about columns that are not used; empty if all are."""
    if not chosen.unused:
        return ""
    free = [part for part in parts if part not in chosen.column]
    near = next((text for name in chosen.unused if (text := guess(plain(name), free))), "")
    more = "s" if len(chosen.unused) > 1 else ""
    verb = "are" if more else "is"
    return f"column{more} {listed(chosen.unused, SHOWN, quote)} {verb} not used{': ' + near if near else ''}"


def _candidates(part: str, others: Sequence[str], names: Sequence[str]) -> list[str]:
    """The columns that have a part's own name; without one, those that have another name for it."""
    own = [name for name in names if _is_called(name, part, (part,))]
    return own or [name for name in names if _is_called(name, part, others)]


def _is_called(name: str, part: str, words: Sequence[str]) -> bool:
    said = plain(name)
    base, _, unit = said.rpartition("_")
    return said in words or (part == "cost" and unit in UNITS and base in words)


def unit_in(name: str) -> str:
    """The unit that the name of a column of costs ends in; empty if it says none.

    >>> unit_in("Travel time [min]"), unit_in("minutes"), unit_in("cost")
    ('minutes', 'minutes', '')
    """
    base, _, last = plain(name).rpartition("_")
    return UNITS.get(last, "") if base or last in ALONE else ""


def plain(name: str) -> str:
    """The name of a column in lower case, words joined by underscores."""
    return re.sub(r"[\W_]+", "_", name.casefold()).strip("_")
