"""Arguments that several commands take."""

from __future__ import annotations

import os
from pathlib import Path

import typer


def directory(given: str | os.PathLike[str]) -> Path:
    """The name of a directory, which `--out ""` is not."""
    if not str(given).strip():
        raise typer.BadParameter('the name of a directory is empty: give one, or "." for this one')
    if "\0" in str(given):
        raise typer.BadParameter("the name of a directory holds a NUL character: give another one")
    return Path(given)
