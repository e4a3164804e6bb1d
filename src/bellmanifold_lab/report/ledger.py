"""The ledger of `reproduce` as a section of a report, made by the paper's package where that is installed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from bellmanifold._util.stderr import remark
from bellmanifold.io.files import label

PACKAGE = "bellmanifold_paper"


def ledger_section(directory: Path) -> str:
    """The section; empty without a ledger or the package that reads it."""
    path = directory / "claims.json"
    if not path.exists():
        return ""
    if find_spec(PACKAGE) is None:
        remark(f"{label(path)}: left out: the package {PACKAGE} is not installed")
        return ""
    section: str = import_module(f"{PACKAGE}.ledger_section").ledger_section(path)
    return section
