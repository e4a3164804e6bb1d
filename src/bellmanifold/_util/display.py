"""How objects are displayed: a few lines of text, HTML in a notebook, and a table for pandas.

An object describes itself once, in a `Card`; `Shown` derives from it a `repr` of a few lines and `_repr_html_`, with
warnings first, then facts, a table and, for small problems, a picture. The whole table, tidy and without rounding, is
`to_frame()`; `x_se` is the standard error of column `x`.

Numbers with errors are formatted by `with_error` everywhere. pandas and matplotlib are imported when they are needed;
pictures are drawn by `bellmanifold.pictures`, which is imported by name because it depends on this module.
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
"""Characters per line of text; longer lines are wrapped."""
LONGEST_FACT, LONGEST_WARNING = 3 * WIDTH, 5 * WIDTH
"""Maximum length of a title or fact, and of a warning, which may be longer because it ends with the remedy."""
MOST_LINES = 5
MOST_ROWS = 12
"""Maximum number of rows of a table in a notebook."""
LONGEST_NAME = 60
LEAST, ROUNDING = 1e-15, 1e-10
"""Numbers below the first count as 0; errors below the second, relative to their number, are not shown."""
Columns = Mapping[str, Sequence[Any]]
"""Column names and their entries, all columns of the same length."""


def with_error(value: float, se: float) -> str:
    """A number with its standard error, to the first digit of the error.

    Numbers and errors below rounding are not shown.

    >>> with_error(0.31234, 0.0042), with_error(-1250.0, 37.0), with_error(0.5, 0.0), with_error(0.5, 4e-17)
    ('0.312 ± 0.004', '-1250 ± 40', '0.5', '0.5')
    >>> with_error(-0.03, 0.1), with_error(4e-17, 0.0)
    ('0.0 ± 0.1', '0')
    """
    value, se = _drop_rounding(value), _drop_rounding(se)
    if se <= ROUNDING * abs(value) or not math.isfinite(value):
        return f"{value:.4g}"
    if not math.isfinite(se):
        return f"{value:.4g} ± ?"
    digits = -math.floor(math.log10(se))
    if not 0 <= digits <= 8:
        error = round(se, digits)
        return f"{value:.4g} ± {error:.0f}" if digits < 0 and error < 1e6 else f"{value:.4g} ± {se:.0e}"
    return f"{round(value, digits) + 0.0:.{digits}f} ± {se:.{digits}f}"


def _drop_rounding(value: float) -> float:
    """0 for numbers that are mere rounding errors."""
    return 0.0 if abs(value) < LEAST else float(value)


def for_json(values: Iterable[Any]) -> list[float | None]:
    """Numbers for JSON; null for those that are infinite or NaN."""
    return [or_null(value) for value in values]


def or_null(value: Any) -> float | None:
    """A number for JSON; null if it is infinite or NaN."""
    number = float(value)
    return number if math.isfinite(number) else None


class Card(NamedTuple):
    """The description of an object for display.

    Attributes:
        title: one line that names the object.
        facts: its most important properties, one line each.
        warnings: shown before the facts.
        columns: function that returns the columns of a table; None for no table.
        picture: function that returns a picture as HTML, or an empty string if it cannot be drawn; None for no picture.
    """

    title: str
    facts: Sequence[str] = ()
    warnings: Sequence[str] = ()
    columns: Callable[[], Columns] | None = None
    picture: Callable[[], str] | None = None


class Words(NamedTuple):
    """Title and legend of a picture.

    Attributes:
        title: what is shown.
        best: what is highlighted.
        seen: meaning of solid lines.
        unseen: meaning of dotted lines.
        scale: meaning of colours.
    """

    title: str
    best: str
    seen: str
    unseen: str
    scale: str = ""


class Shown:
    """Base class of objects that are displayed by a `Card`."""

    def card(self) -> Card:
        """The description of the object for display."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return as_text(self.card())

    def _repr_html_(self) -> str:
        return as_html(self.card())


def as_text(card: Card) -> str:
    """A card as a few lines of text."""
    lines = [shorten(printable(f"warning: {warning}"), LONGEST_WARNING) for warning in card.warnings]
    lines += [shorten(printable(fact), LONGEST_FACT) for fact in card.facts]
    left_out = len(lines) - MOST_LINES
    shown = lines if left_out <= 0 else [*lines[: MOST_LINES - 1], f"... and {left_out + 1} more lines"]
    return "\n  ".join(_broken(line) for line in (shorten(printable(card.title), LONGEST_FACT), *shown))


def _broken(line: str) -> str:
    """Wrap a line that is too long; continuation lines are indented further."""
    parts = wrap(line, WIDTH, drop_whitespace=True, break_on_hyphens=False) if len(line) > WIDTH else [line]
    return "\n    ".join(parts)


def as_html(card: Card) -> str:
    """A card as HTML for a notebook."""
    parts = [f"<p><b>{escape(printable(card.title))}</b></p>"]
    parts += [f'<p style="color:#b00020"><b>Warning:</b> {escape(printable(line))}</p>' for line in card.warnings]
    parts += [f"<p>{escape(printable(line))}</p>" for line in card.facts]
    parts += [as_table(card.columns())] if card.columns is not None else []
    parts += [card.picture()] if card.picture is not None else []
    return f'<div style="max-width:60em">{"".join(parts)}</div>'


def as_table(columns: Columns) -> str:
    """The first rows of a table as HTML; standard errors are shown next to their values."""
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
        return with_error(value, columns[f"{name}_se"][row])
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
    return f"{_drop_rounding(value):.4g}" if isinstance(value, float) else str(value)


def as_frame(columns: Columns) -> pandas.DataFrame:
    """Columns as a pandas DataFrame."""
    import pandas

    return pandas.DataFrame(dict(columns))


def picture(kind: str, *arguments: Any) -> str:
    """A picture of the given kind (see `bellmanifold.pictures.inline`) as HTML; empty without matplotlib."""
    try:
        return str(import_module("bellmanifold.pictures.inline").image(kind, *arguments))
    except ImportError:
        return ""
