"""The ledger: every statement of the paper that can be measured, measured.

`CELLS` are the runs it needs, `measure_claims` judges every question of `bellmanifold.reproduction.claims`. How numbers
become verdicts is said in `bellmanifold.reproduction.verdicts`, what a ledger's file holds in
`bellmanifold.reproduction.ledger_file`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from bellmanifold.experiments.runs import versions
from bellmanifold.interrupts import interruptible
from bellmanifold.reproduction.claims import (
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
from bellmanifold.reproduction.claims.questions import Question
from bellmanifold.reproduction.ledger_file import Claim, Entry, Ledger
from bellmanifold.reproduction.runs import Cell, PaperRuns
from bellmanifold.reproduction.verdicts import Condition

SUBJECTS = (two_state, theory, improper, deep_sea, hmc, pyramid, swirl, slippery, published)
QUESTIONS: tuple[Question, ...] = tuple(asked for subject in SUBJECTS for asked in subject.CLAIMS)
CELLS: tuple[Cell, ...] = tuple(dict.fromkeys(cell for asked in QUESTIONS for cell in asked.cells))
"""Every run the ledger needs."""


def measure_claims(runs: PaperRuns, tell: Callable[[str], object] = lambda name: None) -> Ledger:
    """Judge every claim.

    Args:
        runs: a store that has the runs of `CELLS`.
        tell: called with the name of each claim before it is measured.
    """
    claims = []
    for asked in QUESTIONS:
        tell(asked.id)
        with interruptible("the ledger is not written; give the same command again, runs and figures are kept"):
            claims.append(judge(asked, runs))
    made = versions()
    return Ledger(tuple(claims), runs.runs, made["version"], made["commit"], f"{datetime.now(UTC):%Y-%m-%d}")


def judge(asked: Question, runs: PaperRuns) -> Claim:
    """Judge one claim."""
    found = asked.measure(runs)
    decisive = [_entry(condition) for condition in (*found.conditions, *found.qualified_by)]
    shown = [Entry(measurement) for measurement in found.beside]
    numbers = (*decisive, *shown)
    return Claim(asked.id, asked.source, asked.statement, asked.criterion, numbers, found.verdict, found.remarks())


def _entry(condition: Condition) -> Entry:
    return Entry(condition.measurement, condition.bounds, condition.outcome)
