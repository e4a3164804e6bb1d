"""Observations as a table (CSV), as spreadsheets write it: one line per observation, in chronological order.

The first line names the columns: `state` and `action`, and any of `reward`, `sd` and `next`, in any order. An empty
cell or an absent column means the same as an absent key in JSON. A table of trips names roads instead, and costs
(`bellmanifold.io.trips`).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import IO

from bellmanifold.errors import BadInputError, first_repeated, quote
from bellmanifold.io.files import require_short
from bellmanifold.io.tables import SEPARATORS, numbered_lines, plain_number
from bellmanifold.io.trips import are_trips, from_trips
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.observation import Observation
from bellmanifold.problem.ssp import SSP

SHOWN = 5
"""Maximal number of columns that an error names."""
NEEDED, OPTIONAL = ("state", "action"), ("reward", "sd", "next")
TRIPS_HAVE = ", one of trips from, to, name, cost, sd, next"
COSTS = ("cost", "costs", "time", "duration", "minutes", "loss", "price")
MEANT = {
    **dict.fromkeys(("from", "source", "node", "place", "junction", "s", "current", "start"), "state"),
    **dict.fromkeys(("to", "road", "edge", "move", "a", "choice"), "action"),
    **dict.fromkeys((*COSTS, "r", "value", "payoff", "gain", "return"), "reward"),
    **dict.fromkeys(("std", "stdev", "sigma", "se", "error", "noise"), "sd"),
    **dict.fromkeys(("next_state", "next state", "destination", "target", "s2", "end"), "next"),
}
"""Other names that people use for the columns."""


def looks_like_table(content: bytes) -> bool:
    """Whether the first line looks like the header of a table of observations."""
    first = content[:1000].lstrip(b"\xef\xbb\xbf").split(b"\n", 1)[0]
    return not first.lstrip().startswith(b"{") and b"state" in first and b"action" in first


def looks_like_trips(content: bytes) -> bool:
    """Whether the first line looks like the header of a table of trips."""
    first = content[:1000].lstrip(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    return not first.startswith("{") and any(mark in first and are_trips(first.split(mark)) for mark in SEPARATORS)


def from_csv(content: bytes, model: SSP) -> Dataset:
    """Build a data set from a table of observations or trips; errors name the line, the column and the remedy."""
    require_short(content, "write many observations as .npz (`bellmanifold.write_data`)")
    lines, separator = numbered_lines(content)
    names = next(lines, (1, []))[1]
    if are_trips(names):
        return from_trips(content, model)
    header = _header(names)
    seen, places = [], []
    for line, cells in lines:
        if len(cells) != len(header):
            raise BadInputError(
                f"line {line}: has {len(cells)} cells, the first line {len(header)}: "
                + (_decimal_comma(header, cells, separator) or f"put names that contain {quote(separator)} in quotes, ")
                + "or correct the line"
            )
        seen.append(_observation(dict(zip(header, cells, strict=True)), line))
        places.append(f"line {line}")
    return Dataset.from_pairs(model, seen, places)


def _header(cells: Sequence[str]) -> list[str]:
    """The names of the columns, checked."""
    names = [cell.strip().lower() for cell in cells]
    known = ", ".join((*NEEDED, *OPTIONAL))
    unknown = [name for name in names if name not in (*NEEDED, *OPTIONAL)]
    if unknown:
        listed = ", ".join(quote(name) for name in unknown[:SHOWN])
        hint = TRIPS_HAVE if set(unknown) == set(names) else ""
        raise BadInputError(
            f"line 1: unknown column{'s' if len(unknown) > 1 else ''} {listed}: "
            f"a table of observations has {known}{_suggestion(names, unknown) or hint}"
        )
    if (twice := first_repeated(names)) is not None:
        raise BadInputError(f"line 1: column {quote(twice)} occurs twice: keep one of them")
    for name in NEEDED:
        if name not in names:
            raise BadInputError(f"line 1: column {quote(name)} is missing: begin with a line such as {known}")
    return names


def _suggestion(names: Sequence[str], unknown: Sequence[str]) -> str:
    """A hint at what unknown columns are probably meant to be; empty if there is no free match."""
    guesses: dict[str, str] = {}
    for name in unknown:
        meant = MEANT.get(name)
        if meant is not None and meant not in names and meant not in guesses:
            guesses[meant] = quote(name) + (" (a cost of 5 is a reward of -5)" if name in COSTS else "")
    told = [f"{meant} instead of {name}" for meant, name in guesses.items()]
    return f": write {', '.join(told)}" if told else ""


def _decimal_comma(header: Sequence[str], cells: Sequence[str], separator: str) -> str:
    """The remedy for a decimal comma that splits a number into two cells; empty if there is none."""
    numbers = [header.index(name) for name in ("reward", "sd") if name in header]
    if separator != "," or len(cells) <= len(header):
        return ""
    for k in numbers:
        whole, decimals = (cell.strip() for cell in cells[k : k + 2])
        if whole.lstrip("-").isdigit() and decimals.isdigit():
            return f"write {whole}.{decimals}, not {whole},{decimals}, "
    return ""


def _observation(cells: Mapping[str, str], line: int) -> Observation:
    for name in NEEDED:
        if not cells[name]:
            raise BadInputError(f"line {line}, column {name}: is empty: give a name, or remove the line")
    numbers = [plain_number(cells.get(name, ""), f"line {line}, column {name}".__str__) for name in ("reward", "sd")]
    reward, sd = (None if math.isnan(number) else number for number in numbers)
    return Observation(cells["state"], cells["action"], reward, sd, cells.get("next") or None)


def is_missing(value: object) -> bool:
    """Whether a value is None or NaN, which mark what was not recorded."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def write_csv(data: Dataset, file: IO[bytes]) -> None:
    """Write observations as a table, without columns that would be empty."""
    columns = {
        name: ["" if is_missing(value) else value for value in values]
        for name, values in data.columns().items()
        if name not in ("sd", "next") or not all(map(is_missing, values))
    }
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    file.write(text.getvalue().encode())
