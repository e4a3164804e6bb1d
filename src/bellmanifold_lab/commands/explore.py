"""The command `explore`: an interactive page, served on this machine, that shows the posterior as data change."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from bellmanifold.cli.shared_options import PosteriorOptions, spread_options
from bellmanifold.cli.terminal import Model, refusing, report_dropped
from bellmanifold.errors import StoppedError
from bellmanifold.learning.environment import keep_compiled_programs


@spread_options
def explore(
    model: Model,
    options: PosteriorOptions,
    data: Annotated[
        Path | None,
        typer.Argument(metavar="[DATA]", help="A data file to begin with; by default no data.", show_default=False),
    ] = None,
    port: Annotated[
        int, typer.Option(metavar="N", help="Port of this machine to listen on; by default a free one.")
    ] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address, even if there is a browser.")
    ] = False,
) -> None:
    """Explore a problem interactively, on a page that only this machine can open.

    Click a move and enter its reward, or your belief about it: the pies show the new posterior. The page can save
    the data file. Ctrl-C ends it.

    Example: bellmanifold explore "env:deep-sea?depth=5"
    """
    from bellmanifold.io.models import load_model
    from bellmanifold.io.observations import load_data
    from bellmanifold_lab.explorer.server import serve
    from bellmanifold_lab.explorer.session import Session

    problem = load_model(model, options.prune)
    report_dropped(model, problem)
    observed = None if data is None else load_data(data, problem)
    keep_compiled_programs()
    with refusing(model):
        session = Session(problem, observed, **options.keywords())

    def announce(address: str) -> None:
        typer.echo(f"open {address}")
        typer.echo("Ctrl-C ends it.", err=True)
        sys.stdout.flush()
        if not no_browser and has_browser():
            webbrowser.open(address)

    try:
        serve(session, port, announce)
    except KeyboardInterrupt:
        lost = "; its data were changed and not saved" if session.unsaved else ""
        raise StoppedError(f"interrupted: the page is closed{lost}; the same command opens another one") from None


def has_browser() -> bool:
    """Whether there is a graphical browser: one in the terminal would take the terminal from this program."""
    if os.environ.get("BROWSER") or sys.platform in ("win32", "darwin"):
        return True
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True
