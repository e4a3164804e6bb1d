"""Access to the package that reproduces the paper: the library never imports it; commands look it up when they run."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import typer

from bellmanifold._util.stderr import remark
from bellmanifold.errors import UnsupportedError
from bellmanifold.io.files import label

PACKAGE = "bellmanifold_paper"
MISSING = f"the package {PACKAGE} is not installed: install bellmanifold again, its wheel contains both"


def add_reproduce(app: typer.Typer) -> None:
    """Add the command `reproduce`, or a stand-in that says what is missing."""
    if find_spec(PACKAGE) is not None:
        app.command("reproduce")(import_module(f"{PACKAGE}.command").reproduce)
    else:
        anything = {"ignore_unknown_options": True, "allow_extra_args": True}
        app.command("reproduce", context_settings=anything)(_missing)


def _missing() -> None:
    """Reproduce the paper's figures (not installed)."""
    raise UnsupportedError(f"reproduce: {MISSING}")


def ledger_section(directory: Path) -> str:
    """The ledger of `reproduce` as a section of a report; empty without a ledger or the package that reads it."""
    path = directory / "claims.json"
    if not path.exists():
        return ""
    if find_spec(PACKAGE) is None:
        remark(f"{label(path)}: left out: {MISSING}")
        return ""
    section: str = import_module(f"{PACKAGE}.ledger_section").ledger_section(path)
    return section
