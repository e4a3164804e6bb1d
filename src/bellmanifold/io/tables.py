"""Tables as people bring them: CSV, a DataFrame, a dictionary of columns or records, all read into columns of cells.

A CSV file is UTF-8 text, with or without a byte order mark; its columns are separated by commas, or by semicolons or
tabs if the first line uses those, and a name that contains the separator is quoted: "0,1". Empty lines are skipped, and
rows of empty cells at the end, which spreadsheets write; further up these count as rows. An empty cell, None and NaN
all mean that nothing is said. Faults are reported by line of the file, or by row of the object.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
from jaxtyping import Float

from bellmanifold.errors import BadInputError, first_repeated, kind_of_value, printable, quote, require, shorten
from bellmanifold.io.files import decoded, require_short

SEPARATORS = ",;\t"
RECORD = ("from", "to", "cost")
"""What the entries of a record are that is a plain tuple."""
MISSING = ("NAType", "NaTType")
"""The types of pandas that mark a missing value."""


@dataclass(frozen=True)
class Table:
    """A table of unread cells.

    Attributes:
        columns: the cells of each column, by its name; all columns have the same length.
        places: what each row is called: the number of its line, or its label.
        kind: "line" or "row", which precedes this in messages.
    """

    columns: Mapping[str, Sequence[Any]]
    places: Sequence[Any]
    kind: str

    def __len__(self) -> int:
        return len(self.places)

    def where(self, row: int, column: str = "") -> str:
        """The place of a row, or of its cell in a column, for messages."""
        place = f"{self.kind} {printable(shorten(str(self.places[row])))}"
        return place + (f", column {printable(shorten(column))}" if column else "")

    def texts(self, column: str | None) -> list[str]:
        """The cells of a column as texts; empty ones if there is no such column."""
        return [""] * len(self) if column is None else [text_in(cell) for cell in self.columns[column]]

    def numbers(self, column: str | None) -> Float[np.ndarray, "rows"]:
        """The cells of a column as numbers, NaN where a cell is empty or there is no such column."""
        if column is None:
            return np.full(len(self), np.nan)
        cells = enumerate(self.columns[column])
        return np.array([number_in(cell, partial(self.where, k, column)) for k, cell in cells], dtype=np.float64)


def read_table(content: bytes) -> Table:
    """The table in the bytes of a CSV file."""
    require_short(content, "split the table, or write many observations as .npz (`bellmanifold.write_data`)")
    lines, separator = numbered_lines(content)
    _, names = next(lines, (1, []))
    header = [name.strip() for name in names]
    require(header, "the table is empty: begin with a line that names the columns")
    _require_distinct(header, "line 1: ")
    places, rows = [], []
    for line, cells in lines:
        if len(cells) != len(header):
            raise BadInputError(
                f"line {line}: has {len(cells)} cells, the first line {len(header)}: put names that contain "
                f"{quote(separator)} in quotes, or correct the line (numbers have a decimal point)"
            )
        places.append(line)
        rows.append(cells)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    return Table(dict(zip(header, columns, strict=True)), places, "line")


def numbered_lines(content: bytes) -> tuple[Iterator[tuple[int, list[str]]], str]:
    """The lines of a CSV file that count with their numbers, counted from 1, and the separator of its columns."""
    text = decoded(content, "save the table as CSV in UTF-8")
    first = text.lstrip("\r\n").split("\n", 1)[0]
    separator = next((mark for mark in SEPARATORS if mark in first), ",")
    return _lines(text, separator), separator


def _lines(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True)
    has_header, blank = False, list[tuple[int, list[str]]]()
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield from blank
                yield reader.line_num, cells
                has_header, blank = True, []
            elif has_header and len(cells) > 1:
                blank.append((reader.line_num, cells))
    except csv.Error as error:
        raise BadInputError(f"line {reader.line_num}: {error}: close the quotes, or save the table again") from None


def table_of(given: Any, what: str = "the table") -> Table:
    """The table in a DataFrame, a dictionary of columns, or records: dictionaries, or tuples (from, to, cost)."""
    if isinstance(given, Table):
        return given
    remedy = "give a DataFrame, a dictionary of columns, or a list of dictionaries"
    if hasattr(given, "columns"):
        return _of_frame(given)
    if isinstance(given, Mapping):
        columns = {str(name): _cells(cells, f"{what}: {quote(name)}") for name, cells in given.items()}
        lengths = {len(cells) for cells in columns.values()}
        require(len(lengths) <= 1, f"{what}: its columns differ in length: give one cell per row")
        return Table(columns, range(max(lengths, default=0)), "row")
    require(
        isinstance(given, Iterable) and not isinstance(given, (str, bytes)),
        f"{what} is {kind_of_value(given)}: {remedy}",
    )
    return _of_records(list(given), what, remedy)


def _of_frame(frame: Any) -> Table:
    """The table of a pandas or polars DataFrame; named levels of its index are columns, too."""
    index = getattr(frame, "index", None)
    if any(name is not None for name in getattr(index, "names", ())):
        frame, index = frame.reset_index(), None
    names = [str(name) for name in frame.columns]
    _require_distinct(names, "")
    columns = {name: list(frame[own]) for name, own in zip(names, frame.columns, strict=True)}
    return Table(columns, range(len(frame)) if index is None else list(index), "row")


def _of_records(records: list[Any], what: str, remedy: str) -> Table:
    names: dict[str, None] = {}
    rows: list[Mapping[Any, Any]] = []
    for k, record in enumerate(records):
        if isinstance(record, tuple) and 2 <= len(record) <= len(RECORD):
            record = dict(zip(RECORD, record, strict=False))
        require(isinstance(record, Mapping), f"{what}: row {k} is {kind_of_value(record)}: {remedy}")
        names |= dict.fromkeys(map(str, record))
        rows.append(record)
    return Table({name: [row.get(name) for row in rows] for name in names}, range(len(rows)), "row")


def _cells(given: Any, what: str) -> list[Any]:
    require(isinstance(given, Iterable) and not isinstance(given, str), f"{what} is no column: give a list of cells")
    return list(given)


def _require_distinct(names: Sequence[str], where: str) -> None:
    twice = first_repeated([name.casefold() for name in names])
    if twice is not None:
        raise BadInputError(f"{where}column {quote(twice)} occurs twice: keep one of them")


def text_in(cell: Any) -> str:
    """A cell as text: whole numbers without a decimal point, several entries joined, empty if nothing is said."""
    if isinstance(cell, str):
        return cell.strip()
    if cell is None or type(cell).__name__ in MISSING:
        return ""
    if isinstance(cell, (list, tuple)):
        return " / ".join(map(text_in, cell))
    if isinstance(cell, Real) and not isinstance(cell, Integral):
        value = float(cell)
        return "" if math.isnan(value) else str(int(value)) if value.is_integer() else str(value)
    return str(cell).strip()


def number_in(cell: Any, where: Callable[[], str]) -> float:
    """The finite number in a cell, NaN if nothing is said; `where` names the cell in errors."""
    if isinstance(cell, str):
        return plain_number(cell, where)
    if cell is None or type(cell).__name__ in MISSING:
        return math.nan
    try:
        found = math.inf if type(cell).__name__ in ("bool", "bool_") else float(cell)
    except (TypeError, ValueError, OverflowError):
        found = math.inf
    if math.isinf(found):
        raise BadInputError(f"{where()}: {quote(cell)} is not a finite number: give one, or leave it out")
    return found


def plain_number(cell: str, where: Callable[[], str]) -> float:
    """The finite number in a text, NaN if it is empty."""
    plain = cell.strip()
    if not plain:
        return math.nan
    found = _number(plain)
    if not math.isfinite(found):
        point = plain.replace(",", ".", 1)
        has_comma = math.isfinite(_number(point))
        remedy = f", with a decimal point, such as {point}" if has_comma else ", or leave the cell empty"
        raise BadInputError(f"{where()}: {quote(plain)} is not a finite number: give one{remedy}")
    return found


def _number(text: str) -> float:
    """A number as tables write it; NaN if it is none, or has the underscores that only Python allows."""
    try:
        return float(text) if "_" not in text else math.nan
    except ValueError:
        return math.nan
