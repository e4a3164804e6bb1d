"""The ledger: every statement of the paper that can be measured, measured.

`CELLS` are the runs it needs, `measure_claims` judges every claim of `bellmanifold_paper.claims`. How numbers
become verdicts is said in `bellmanifold_paper.verdicts`, what a ledger's file holds in
`bellmanifold_paper.ledger_file`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from bellmanifold._util.interrupts import interruptible
from bellmanifold.learning.record import versions
from bellmanifold_paper.claims import (
    deep_sea,
    hmc,
    improper,
    published,
    pyramid,
    slippery,
    swirl,
    theory,
    two_state,
)
from bellmanifold_paper.claims.claim import Claim
from bellmanifold_paper.ledger_file import Entry, JudgedClaim, Ledger
from bellmanifold_paper.paper_runs import Cell, PaperRuns
from bellmanifold_paper.verdicts import Condition

SUBJECTS = (two_state, theory, improper, deep_sea, hmc, pyramid, swirl, slippery, published)
CLAIMS: tuple[Claim, ...] = tuple(claim for subject in SUBJECTS for claim in subject.CLAIMS)
CELLS: tuple[Cell, ...] = tuple(dict.fromkeys(cell for claim in CLAIMS for cell in claim.cells))
"""Every run the ledger needs."""


def measure_claims(
    runs: PaperRuns, tell: Callable[[str], object] = lambda name: None, claims: Sequence[Claim] = CLAIMS
) -> Ledger:
    """Judge claims.

    Args:
        runs: a store that has the runs of `CELLS`.
        tell: called with the name of each claim before it is measured.
        claims: which; by default all.
    """
    judged = []
    for claim in claims:
        tell(claim.id)
        with interruptible("the ledger is not written; run the same command again, runs and figures are kept"):
            judged.append(judge(claim, runs))
    made = versions()
    return Ledger(tuple(judged), runs.runs, made["version"], made["commit"], f"{datetime.now(UTC):%Y-%m-%d}")


def judge(claim: Claim, runs: PaperRuns) -> JudgedClaim:
    """Judge one claim."""
    found = claim.measure(runs)
    decisive = [_entry(condition) for condition in (*found.conditions, *found.qualified_by)]
    shown = [Entry(measurement) for measurement in found.beside]
    numbers = (*decisive, *shown)
    return JudgedClaim(
        claim.id, claim.source, claim.statement, claim.criterion, numbers, found.verdict, found.remarks()
    )


def _entry(condition: Condition) -> Entry:
    return Entry(condition.measurement, condition.bounds, condition.outcome)
