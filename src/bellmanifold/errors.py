"""What the library says when it cannot go on, and the exit code the command line gives it.

Every message is one line and names the place, what is wrong there and the remedy.
"""

from __future__ import annotations

import unicodedata

MAX_QUOTED = 60


class BellmanifoldError(Exception):
    """Base of everything this package raises on purpose."""

    exit_code = 70


class BadInputError(BellmanifoldError, ValueError):
    """A file, an option or an argument is wrong; the message says which and how to fix it."""

    exit_code = 2


class UnsupportedError(BellmanifoldError):
    """The input is sound, but this method cannot treat it; the message names one that can."""

    exit_code = 3


class DiskError(BellmanifoldError):
    """The disk failed while a result was written; nothing half-written is left behind."""

    exit_code = 74


class StoppedError(BellmanifoldError):
    """The user interrupted a longer piece of work; the message says what is kept and how to go on."""

    exit_code = 130


def quote(name: object) -> str:
    """Show a name inside a one-line message: quoted, unprintable characters escaped, shortened.

    >>> quote("a\\nb")
    '"a\\\\nb"'
    """
    text = str(name)
    if len(text) > MAX_QUOTED:
        text = text[: MAX_QUOTED - 1] + "…"
    return f'"{printable(text)}"'


def unstacked(text: str) -> str:
    """The text with at most one mark on each character: a tower of them would cover the lines above.

    >>> len(unstacked("e" + 20 * chr(0x301)))
    2
    """
    marks = [unicodedata.category(c) in ("Mn", "Me") for c in text]
    return "".join(c for k, c in enumerate(text) if not (marks[k] and k > 0 and marks[k - 1]))


def printable(text: str) -> str:
    """The text on one line, unprintable characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def counted(number: int, noun: str) -> str:
    """A number of things, in words.

    >>> counted(1, "state"), counted(2, "state")
    ('1 state', '2 states')
    """
    return f"{number} {noun}" + ("" if number == 1 else "s")
