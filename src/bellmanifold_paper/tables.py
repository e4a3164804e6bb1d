"""The ledger for people: a table on the terminal, plain lines in a pipe, a page of documentation."""

from __future__ import annotations

import math
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence

from bellmanifold_paper.ledger_file import Entry, JudgedClaim, Ledger
from bellmanifold_paper.verdicts import Measurement

COLOURS = {"holds": "green", "holds with a remark": "yellow", "does not hold": "red"}
PLURAL = ("hold", "hold with a remark", "do not hold")
ENOUGH = 10
"""Runs per cell, as many as in the paper; verdicts from fewer come with a warning."""
SHOWN = 3
"""Numbers of a claim that the table shows; the file has all of them."""


def number_text(found: Measurement, wanted: str | None = None) -> str:
    """A number with its interval, with digits enough to tell the number from a bound in what was wanted.

    >>> number_text(Measurement("regret", 12.345, 11.0, 13.7, 2.0, 10))
    '12.3 [11, 13.7]'
    >>> number_text(Measurement("ratio", 1.00042, 1.00042, 1.00042), "below 1")
    '1.0004'
    """
    if math.isnan(found.value):
        return "not measured"
    value = _told_apart(found.value, (wanted or "").split())
    if found.low == found.high:
        return value
    if math.isinf(found.low) or math.isinf(found.high):
        return f"{value} (interval unknown)"
    return f"{value} [{found.low:.3g}, {found.high:.3g}]"


def _told_apart(value: float, bounds: Sequence[str]) -> str:
    """Three digits, or as many more as make it differ from each bound; three if nine do not."""
    texts = (f"{value:.{digits}g}" for digits in range(3, 10))
    return next((text for text in texts if text not in bounds), f"{value:.3g}")


def entry_text(entry: Entry) -> str:
    """A number, what it is, and what was wanted of it."""
    wanted = f" (wanted {entry.wanted}: {entry.outcome})" if entry.wanted is not None else ""
    return f"{entry.measurement.what}: {number_text(entry.measurement, entry.wanted)}{wanted}"


def totals(claims: Sequence[JudgedClaim]) -> str:
    """How many claims came out how."""
    count = Counter(str(claim.verdict) for claim in claims)
    parts = [f"{count[verdict]} {words}" for verdict, words in zip(COLOURS, PLURAL, strict=True)]
    return f"{len(claims)} claims: {', '.join(parts)}"


def basis(ledger: Ledger) -> str:
    """From how many runs a ledger was measured, and what that means if they are few."""
    runs = f"from {ledger.runs} run{'s' * (ledger.runs != 1)} per cell"
    return runs if ledger.runs >= ENOUGH else f"{runs} (so few runs decide little: the paper has {ENOUGH})"


def print_claims(ledger: Ledger) -> None:
    """Print a ledger on stdout: a table on a terminal, else a few lines for each claim."""
    claims = ledger.claims
    if sys.stdout.isatty():
        _print_table(claims)
    else:
        for claim in claims:
            print("\n".join(_lines(claim)))
    print(f"{totals(claims)}, {basis(ledger)}")


def _print_table(claims: Sequence[JudgedClaim]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_lines=True)
    for name in ("claim", "measured", "verdict"):
        table.add_column(name)
    for claim in claims:
        said = Text(f"{claim.id}\n", style="bold").append(claim.statement, style="not bold")
        table.add_row(said, Text(_measured(claim)), Text(claim.verdict, style=COLOURS[claim.verdict]))
    Console().print(table)


def _measured(claim: JudgedClaim) -> str:
    entries = [entry_text(entry) for entry in claim.measured[:SHOWN]]
    more = len(claim.measured) - SHOWN
    return "\n".join([*entries, *([f"and {more} more"] if more > 0 else []), *([claim.remark] if claim.remark else [])])


def _lines(claim: JudgedClaim) -> list[str]:
    said = textwrap.wrap(f"{claim.statement} [{claim.source}]", 116)
    return [f"{claim.verdict.upper()}: {claim.id}", *(f"    {line}" for line in (*said, *_measured(claim).split("\n")))]


def origin(ledger: Ledger) -> str:
    """What measured a ledger, and when; empty if it does not say."""
    if not ledger.date:
        return ""
    return f"Measured on {ledger.date} by bellmanifold {ledger.version}, commit {ledger.commit or 'unknown'}."


def page(ledger: Ledger) -> str:
    """The ledger as Markdown: a table of verdicts, then every claim with all its numbers."""
    claims = ledger.claims
    head = ["| claim | where | verdict |", "|---|---|---|"]
    rows = [f"| [{claim.id}](#{_anchor(claim.id)}) | {claim.source} | {claim.verdict} |" for claim in claims]
    count = f"{origin(ledger)} {totals(claims)}, {basis(ledger)}.".strip()
    return "\n".join([count, "", *head, *rows, *(line for claim in claims for line in _section(claim))]) + "\n"


def _anchor(name: str) -> str:
    return name.replace(".", "")


def _section(claim: JudgedClaim) -> list[str]:
    lines = ["", f"## {claim.id}", "", f"**{claim.verdict}.** {claim.statement} *({claim.source})*", ""]
    lines += [f"Criterion: {claim.criterion}", ""]
    if claim.remark:
        lines += [f"Remark: {claim.remark}", ""]
    lines += ["| measured | value [95% interval] | sd | runs | wanted | outcome |", "|---|---|---|---|---|---|"]
    for entry in claim.measured:
        found = entry.measurement
        cells = [
            found.what,
            number_text(found, entry.wanted),
            "" if found.sd is None else f"{found.sd:.3g}",
            "" if found.runs is None else str(found.runs),
            entry.wanted or "",
            entry.outcome or "",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines
