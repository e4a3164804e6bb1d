"""A ledger as a file: claims with their numbers and verdicts, and what measured them.

    {"format": "bellmanifold.claims/1", "runs": 10, "version": ..., "commit": ..., "date": ..., "claims": [
      {"id": ..., "source": ..., "statement": ..., "criterion": ..., "verdict": ..., "remark": ...,
       "measured": [{"what": ..., "value": ..., "low": ..., "high": ..., "sd": ..., "runs": ...,
                     "wanted": ..., "outcome": ...}]}]}

`version`, `commit` and `date` are those of the measurement. `wanted` says what the criterion asks of the number, and
`outcome` how that came out; both are null for numbers that are only shown. What is infinite or undefined is null, as
everywhere.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import Any, get_args

from bellmanifold.errors import BadInputError, quote
from bellmanifold.io.files import (
    kind,
    label,
    listing,
    locate_errors,
    number,
    parse_json,
    read_bytes,
    record,
    text,
    write_atomically,
)
from bellmanifold_paper.verdicts import Measurement, Outcome, Verdict

FORMAT = "bellmanifold.claims/1"


@dataclass(frozen=True)
class Entry:
    """A number of a claim.

    Attributes:
        measurement: the number with its uncertainty.
        wanted: what the criterion asks of it; None if it is only shown.
        outcome: how that came out.
    """

    measurement: Measurement
    wanted: str | None = None
    outcome: str | None = None


@dataclass(frozen=True)
class JudgedClaim:
    """A statement of the paper and what became of it.

    Attributes:
        id: its name.
        source: where in the paper it is.
        statement: what the paper says, in our words.
        criterion: when it counts as true.
        measured: the numbers, those that decide first.
        verdict: "holds", "holds with a remark" or "does not hold".
        remark: what a reader should know.
    """

    id: str
    source: str
    statement: str
    criterion: str
    measured: tuple[Entry, ...]
    verdict: Verdict
    remark: str


@dataclass(frozen=True)
class Ledger:
    """All claims, and what measured them.

    Attributes:
        claims: in their order.
        runs: how many runs per cell had.
        version: of this package.
        commit: of its source; empty if it was no checkout.
        date: of the measurement, as YYYY-MM-DD.
    """

    claims: tuple[JudgedClaim, ...]
    runs: int
    version: str = ""
    commit: str = ""
    date: str = ""


def write_ledger(path: str | os.PathLike[str], ledger: Ledger) -> None:
    """Write a ledger as JSON, whole or not at all."""
    made = {"version": ledger.version, "commit": ledger.commit, "date": ledger.date}
    content = {"format": FORMAT, "runs": ledger.runs, **made, "claims": [_plain(claim) for claim in ledger.claims]}
    encoded = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False).encode()
    write_atomically(path, lambda file: file.write(encoded))


def _plain(claim: JudgedClaim) -> dict[str, Any]:
    return {
        "id": claim.id,
        "source": claim.source,
        "statement": claim.statement,
        "criterion": claim.criterion,
        "measured": [_plain_entry(entry) for entry in claim.measured],
        "verdict": claim.verdict,
        "remark": claim.remark,
    }


def _plain_entry(entry: Entry) -> dict[str, Any]:
    found = entry.measurement
    numbers = {name: _finite(getattr(found, name)) for name in ("value", "low", "high", "sd")}
    return {"what": found.what, **numbers, "runs": found.runs, "wanted": entry.wanted, "outcome": entry.outcome}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def read_ledger(path: str | os.PathLike[str]) -> Ledger:
    """Read a ledger."""
    with locate_errors(label(path)):
        content = parse_json(read_bytes(path))
        if content.get("format") != FORMAT:
            raise BadInputError(f"not a ledger of the format {FORMAT}: make it with `bellmanifold reproduce`")
        runs = _count(content.get("runs"), "runs")
        made = {name: text(content.get(name, ""), name) for name in ("version", "commit", "date")}
        claims = [_claim(item, f"claims[{k}]") for k, item in enumerate(listing(content.get("claims"), "claims"))]
        return Ledger(tuple(claims), runs, **made)


def _claim(item: object, where: str) -> JudgedClaim:
    names = ("id", "source", "statement", "criterion", "measured", "verdict", "remark")
    fields = record(item, where, names)
    words = {name: text(fields[name], f"{where}.{name}") for name in names if name != "measured"}
    verdict = words.pop("verdict")
    if verdict not in get_args(Verdict):
        raise BadInputError(f"{where}: unknown verdict {quote(verdict)}: choose from {', '.join(get_args(Verdict))}")
    measured = listing(fields["measured"], f"{where}.measured")
    entries = [_read_entry(entry, f"{where}.measured[{k}]") for k, entry in enumerate(measured)]
    return JudgedClaim(**words, measured=tuple(entries), verdict=verdict)  # type: ignore[arg-type]  # checked above


def _read_entry(item: object, where: str) -> Entry:
    fields = record(item, where, ("what", "value", "low", "high", "sd", "runs", "wanted", "outcome"))
    value, low, high = (
        missing if fields[name] is None else number(fields[name], f"{where}.{name}")
        for name, missing in (("value", math.nan), ("low", -math.inf), ("high", math.inf))
    )
    sd = None if fields["sd"] is None else number(fields["sd"], f"{where}.sd")
    runs = None if fields["runs"] is None else _count(fields["runs"], f"{where}.runs")
    measurement = Measurement(text(fields["what"], f"{where}.what"), value, low, high, sd, runs)
    wanted, outcome = (
        None if fields[name] is None else text(fields[name], f"{where}.{name}") for name in ("wanted", "outcome")
    )
    if outcome is not None and outcome not in get_args(Outcome):
        known = ", ".join(get_args(Outcome))
        raise BadInputError(f"{where}.outcome: unknown outcome {quote(outcome)}: choose from {known}")
    return Entry(measurement, wanted, outcome)


def _count(value: object, what: str) -> int:
    """A number of runs."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInputError(f"{what} is {kind(value)}: give a whole number")
    if value < 0:
        raise BadInputError(f"{what} is {value}: give a whole number, 0 or more")
    return value
