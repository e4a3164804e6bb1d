"""The ledger in the HTML report."""

from __future__ import annotations

from pathlib import Path

from bellmanifold_lab.report.text import escape_name, html_table
from bellmanifold_paper.ledger_file import read_ledger
from bellmanifold_paper.tables import basis, entry_text, origin, totals

MOST_SAID = 2000
"""Characters of a sentence."""
MOODS = {"holds": "yes", "holds with a remark": "partly", "does not hold": "no"}
"""Verdict -> its colour."""


def ledger_section(path: Path) -> str:
    """The ledger of a file as a section of the page."""
    found = read_ledger(path)
    head = ("where", "statement", "criterion", "measured", "verdict")
    rows = []
    for claim in found.claims:
        remark = f'<div class="remark">{escape_name(claim.remark, MOST_SAID)}</div>' if claim.remark else ""
        rows.append(
            [
                escape_name(claim.source),
                escape_name(claim.statement, MOST_SAID) + remark,
                escape_name(claim.criterion, MOST_SAID),
                "<br>".join(escape_name(entry_text(entry), MOST_SAID) for entry in claim.measured),
                f'<span class="verdict {MOODS[claim.verdict]}">{escape_name(claim.verdict)}</span>',
            ]
        )
    line = (
        f"{escape_name(f'{totals(found.claims)}, {basis(found)}')}. {escape_name(origin(found)) if found.date else ''}"
    )
    title = f'<h2 id="ledger">The ledger</h2><p>{line}</p>'
    return f'<section class="ledger" aria-labelledby="ledger">{title}{html_table(head, rows)}</section>'
