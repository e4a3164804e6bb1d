"""Exceptions with their exit codes on the command line, and checks of arguments.

Every message is one line that names the place, the fault and the remedy. Options in a remedy are written as on the
command line, `--noise-sd 1`; a caller in Python reads `noise_sd=1` (`bellmanifold._util.options`).
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import get_close_matches
from numbers import Integral, Number, Real
from types import FunctionType
from typing import TypeVar

from bellmanifold._util.options import spoken

T = TypeVar("T")
MAX_QUOTED = 60
NEAR, MOST_COMPARED = 0.75, 5000
"""The least similarity (at most 1) of a name that is suggested; among more names than this none is looked for."""


class BellmanifoldError(Exception):
    """Base class of all errors that this package raises on purpose."""

    exit_code = 70

    def __init__(self, *said: object) -> None:
        super().__init__(*(spoken(part) if isinstance(part, str) else part for part in said))


class BadInputError(BellmanifoldError, ValueError):
    """A file, an option or an argument is wrong; the message says which and how to fix it."""

    exit_code = 2


class UnsupportedError(BellmanifoldError):
    """The input is valid, but this method does not support it; the message names one that does."""

    exit_code = 3


class DiskError(BellmanifoldError):
    """The disk failed while a result was written; nothing half-written is left behind."""

    exit_code = 74


class StoppedError(BellmanifoldError):
    """The user interrupted a long computation; the message says what is kept and how to continue."""

    exit_code = 130


def quote(name: object) -> str:
    """A name for a one-line message: quoted and shortened, with unprintable characters escaped.

    >>> quote("a\\nb")
    '"a\\\\nb"'
    """
    return f'"{printable(shorten(str(name)))}"'


def quote_pair(state: str, action: str) -> str:
    """The quoted names of a pair, for a message."""
    return f"({quote(state)}, {quote(action)})"


def listed(things: Sequence[T], most: int, show: Callable[[T], str] = str) -> str:
    """The first few items of a list, and the number of the others.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    return ", ".join(map(show, things[:most])) + (f" and {len(things) - most} more" if len(things) > most else "")


def shorten(text: str, most: int = MAX_QUOTED) -> str:
    """The text, cut to at most `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def guess(name: str, names: Iterable[str]) -> str:
    """A question whether a similar name was meant; empty if there is none.

    >>> guess("Chruch", ["Mill", "Church"])
    'did you mean "Church"?'
    """
    folded = {one.casefold(): one for one in reversed(list(names))}
    near = get_close_matches(name.strip().casefold(), folded, 1, NEAR) if len(folded) <= MOST_COMPARED else []
    return f"did you mean {quote(folded[near[0]])}?" if near else ""


def first_repeated(names: Sequence[str]) -> str | None:
    """The first name that occurs more than once; None if all are distinct.

    >>> first_repeated(["a", "b", "b"])
    'b'
    """
    if len(set(names)) == len(names):
        return None
    return next(name for name, count in Counter(names).items() if count > 1)


def require(condition: object, message: str) -> None:
    """Raise unless a condition holds; the message names the place, the fault and the remedy."""
    if not condition:
        raise BadInputError(message)


def require_kind(value: object, kinds: type | tuple[type, ...], what: str, remedy: str) -> None:
    """Raise if a value has the wrong type; the message says what it is and what to give instead.

    >>> require_kind([1, 2], dict, "data", "give a dictionary")
    Traceback (most recent call last):
    ...
    bellmanifold.errors.BadInputError: data is a list: give a dictionary
    """
    if not isinstance(value, kinds):
        raise BadInputError(f"{what} is {kind_of_value(value)}: {remedy}")


def require_keys(given: Collection[str], what: str, required: Sequence[str], optional: Sequence[str] = ()) -> None:
    """Raise if an object lacks a required key or has an unknown one; likely misspellings are reported first.

    >>> require_keys({"goal": []}, "problem", ["goals"])
    Traceback (most recent call last):
    ...
    bellmanifold.errors.BadInputError: problem: unknown key "goal": did you mean "goals"?
    """
    takes = (*required, *optional)
    unknown = [key for key in given if key not in takes]
    for key in unknown:
        if near := guess(str(key), [name for name in takes if name not in given]):
            raise BadInputError(f"{what}: unknown key {quote(key)}: {near}")
    for key in required:
        if key not in given:
            raise BadInputError(f"{what}: {quote(key)} is missing: add it")
    for key in unknown:
        raise BadInputError(f"{what}: unknown key {quote(key)}: it takes {', '.join(takes)}")


def require_numbers(**values: object) -> None:
    """Raise if an option is not a number; None means not given."""
    for name, value in values.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
            raise BadInputError(f"{name} is {kind_of_value(value)}: give a number")


def require_whole(**values: object) -> None:
    """Raise if an option is not a whole number; None means not given.

    >>> require_whole(samples=1.5)
    Traceback (most recent call last):
    ...
    bellmanifold.errors.BadInputError: samples is 1.5: give a whole number
    """
    require_numbers(**values)
    for name, value in values.items():
        if value is not None and not isinstance(value, Integral):
            raise BadInputError(f"{name} is {value}: give a whole number")


def require_count(**values: object) -> None:
    """Raise if an option is not a whole number, or is None: these options have a default.

    >>> require_count(seed=None)
    Traceback (most recent call last):
    ...
    bellmanifold.errors.BadInputError: seed is None: give a whole number
    """
    for name, value in values.items():
        require_kind(value, Number, name, "give a whole number")
    require_whole(**values)


def require_flags(**values: object) -> None:
    """Raise if an option is neither True nor False; None means not given.

    >>> require_flags(proper_only="no")
    Traceback (most recent call last):
    ...
    bellmanifold.errors.BadInputError: proper_only is the string "no": give True or False
    """
    for name, value in values.items():
        if value is not None and type(value).__name__ not in ("bool", "bool_"):
            raise BadInputError(f"{name} is {kind_of_value(value)}: give True or False")


def kind_of_value(value: object) -> str:
    """A value in words: texts and numbers are shown, other values are described by their type.

    >>> kind_of_value("a"), kind_of_value(3), kind_of_value(None), kind_of_value([])
    ('the string "a"', 'the number 3', 'None', 'a list')
    """
    if isinstance(value, str):
        return f"the string {quote(value)}"
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, Number):
        return f"the number {value}"
    name = "function" if isinstance(value, FunctionType) else type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def limit_marks(text: str) -> str:
    """The text with at most one combining mark per character: a stack of them would cover the lines above.

    >>> len(limit_marks("e" + 20 * chr(0x301)))
    2
    """
    marks = [unicodedata.category(c) in ("Mn", "Me") for c in text]
    return "".join(c for k, c in enumerate(text) if not (marks[k] and k > 0 and marks[k - 1]))


def printable(text: str) -> str:
    """The text on one line, with unprintable characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def count_of(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun, in the singular or plural.

    >>> count_of(1, "state"), count_of(2, "state"), count_of(3, "entry", "entries")
    ('1 state', '2 states', '3 entries')
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
