"""The command `report`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from bellmanifold._util.extras import require_extra
from bellmanifold._util.progress import show_count
from bellmanifold.cli.terminal import directory
from bellmanifold.errors import BadInputError
from bellmanifold.io.files import label
from bellmanifold_lab.report.ledger import ledger_section

SUFFIXES = (".html", ".htm")


def report(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", parser=directory, help="The --out of learn, sweep, demo or reproduce.", show_default=False
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Where to write [default: DIR/report.html].")
    ] = None,
) -> None:
    """Write one HTML file that shows the runs of a directory: plots, the ledger and an episode player.

    Example: bellmanifold report out/demo
    """
    publish(directory, out or directory / "report.html")


def publish(directory: Path, out: Path) -> None:
    """Write the report and print its path on the last line."""
    require_extra("report", "the report")
    from bellmanifold_lab.report.page import write_report
    from bellmanifold_lab.report.reading import find_runs

    if os.path.isdir(out):
        raise BadInputError(f"{label(out)}: is a directory: give --out a file name")
    if out.suffix.lower() not in SUFFIXES:
        raise BadInputError(f"{label(out)}: the report is an HTML file: give --out a name that ends in .html")
    with show_count("reading", "runs", len(find_runs(directory))) as one_more:
        write_report(directory, out, one_more, ledger_section(directory))
    typer.echo(f"report: {os.path.relpath(out)}")
