"""How objects show themselves to a person: a few lines of text, HTML in a notebook, and a table for pandas.

An object states once, in a `Card`, what is worth knowing about it; `Shown` makes of it a `repr` of a few lines and
`_repr_html_`, where warnings come first, then facts, a table and, for small problems, a picture. Its whole table,
tidy and without rounding, is `to_frame()`; `x_se` is the standard error of column `x`.

A number with an error looks the same everywhere: `measured`. pandas and matplotlib are imported when they are needed;
pictures are made by `bellmanifold.figures`, which is found by name, because it draws what this module shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib import import_module
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from bellmanifold.errors import printable, shorten

if TYPE_CHECKING:
    import pandas

WIDTH = 96
"""Characters of a line of text; longer ones are broken."""
LONGEST_FACT, LONGEST_WARNING = 3 * WIDTH, 5 * WIDTH
"""Characters after which a title or a fact, and a warning, whose end is the remedy, is cut."""
MOST_LINES = 5
MOST_ROWS = 12
"""Rows of a table that a notebook shows."""
LONGEST_NAME = 60
LEAST, ROUNDING = 1e-15, 1e-10
"""Numbers smaller than the first, and errors smaller than the second relative to their number, are shown as 0."""
Columns = Mapping[str, Sequence[Any]]
"""Names of columns and their entries, all of the same number."""


def measured(value: float, se: float) -> str:
    """A number with its standard error, to the digit that the error leaves.

    What is smaller than rounding is not shown.

    >>> measured(0.31234, 0.0042), measured(-1250.0, 37.0), measured(0.5, 0.0), measured(0.5, 4e-17)
    ('0.312 ± 0.004', '-1250 ± 40', '0.5', '0.5')
    >>> measured(-0.03, 0.1), measured(4e-17, 0.0)
    ('0.0 ± 0.1', '0')
    """
    value, se = _unrounded(value), _unrounded(se)
    if se <= ROUNDING * abs(value) or not math.isfinite(value):
        return f"{value:.4g}"
    if not math.isfinite(se):
        return f"{value:.4g} ± ?"
    digits = -math.floor(math.log10(se))
    if not 0 <= digits <= 8:
        error = round(se, digits)
        return f"{value:.4g} ± {error:.0f}" if digits < 0 and error < 1e6 else f"{value:.4g} ± {se:.0e}"
    return f"{round(value, digits) + 0.0:.{digits}f} ± {se:.{digits}f}"


def _unrounded(value: float) -> float:
    """0 where nothing but rounding is left."""
    return 0.0 if abs(value) < LEAST else float(value)


def for_json(values: Iterable[Any]) -> list[float | None]:
    """Numbers for JSON; null where one is infinite or undefined."""
    return [or_null(value) for value in values]


def or_null(value: Any) -> float | None:
    """The same for one number."""
    number = float(value)
    return number if math.isfinite(number) else None


class Card(NamedTuple):
    """What an object says about itself.

    Attributes:
        title: what it is, in a line.
        facts: what is worth knowing, a line each.
        warnings: what a reader should know first.
        columns: makes the columns of a table; None for no table.
        picture: makes a picture as HTML, empty if there is none to be made; None for no picture.
    """

    title: str
    facts: Sequence[str] = ()
    warnings: Sequence[str] = ()
    columns: Callable[[], Columns] | None = None
    picture: Callable[[], str] | None = None


class Words(NamedTuple):
    """What a picture of an object says in words.

    Attributes:
        title: what is shown.
        best: what is highlighted.
        seen: what full lines are, as opposed to dotted ones.
        unseen: what dotted lines are.
    """

    title: str
    best: str
    seen: str
    unseen: str


class Shown:
    """An object that shows itself by a `Card`."""

    def card(self) -> Card:
        """What it says about itself."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return as_text(self.card())

    def _repr_html_(self) -> str:
        return as_html(self.card())


def as_text(card: Card) -> str:
    """A card as a few lines."""
    lines = [shorten(printable(f"warning: {warning}"), LONGEST_WARNING) for warning in card.warnings]
    lines += [shorten(printable(fact), LONGEST_FACT) for fact in card.facts]
    left_out = len(lines) - MOST_LINES
    shown = lines if left_out <= 0 else [*lines[: MOST_LINES - 1], f"... and {left_out + 1} more lines"]
    return "\n  ".join(_broken(line) for line in (shorten(printable(card.title), LONGEST_FACT), *shown))


def _broken(line: str) -> str:
    """A line that is too long as several, those after the first indented further."""
    parts = wrap(line, WIDTH, drop_whitespace=True, break_on_hyphens=False) if len(line) > WIDTH else [line]
    return "\n    ".join(parts)


def as_html(card: Card) -> str:
    """A card for a notebook."""
    parts = [f"<p><b>{escape(printable(card.title))}</b></p>"]
    parts += [f'<p style="color:#b00020"><b>Warning:</b> {escape(printable(line))}</p>' for line in card.warnings]
    parts += [f"<p>{escape(printable(line))}</p>" for line in card.facts]
    parts += [as_table(card.columns())] if card.columns is not None else []
    parts += [card.picture()] if card.picture is not None else []
    return f'<div style="max-width:60em">{"".join(parts)}</div>'


def as_table(columns: Columns) -> str:
    """The first rows of a table as HTML; standard errors stand beside what they belong to."""
    names = [name for name in columns if not (name.endswith("_se") and name.removesuffix("_se") in columns)]
    count = len(columns[names[0]]) if names else 0
    if not count:
        return ""
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in names)
    shown = range(min(count, MOST_ROWS))
    rows = ("".join(f"<td>{escape(_cell(columns, name, row))}</td>" for name in names) for row in shown)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    more = f"<p>and {count - MOST_ROWS:,} more rows: <code>.to_frame()</code></p>" if count > MOST_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(columns: Columns, name: str, row: int) -> str:
    value = columns[name][row]
    if f"{name}_se" in columns:
        return measured(value, columns[f"{name}_se"][row])
    if isinstance(value, str):
        return shorten(printable(value), LONGEST_NAME)
    if isinstance(value, Mapping):  # where a pair leads
        value = [str(key) if share == 1.0 else f"{key} {share:.3g}" for key, share in value.items()]
    if isinstance(value, list):
        return shorten(printable(", ".join(map(str, value))), LONGEST_NAME)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return "yes" if value else "no"
    return f"{_unrounded(value):.4g}" if isinstance(value, float) else str(value)


def as_frame(columns: Columns) -> pandas.DataFrame:
    """Columns as a pandas table."""
    import pandas

    return pandas.DataFrame(dict(columns))


def picture(kind: str, *arguments: Any) -> str:
    """A picture of some kind (one of `bellmanifold.figures.inline`) as HTML; empty without matplotlib."""
    try:
        return str(import_module("bellmanifold.figures.inline").image(kind, *arguments))
    except ImportError:
        return ""
