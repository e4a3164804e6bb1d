"""The page: one HTML file that needs no network and loads nothing.

A content security policy in its head allows the two scripts it contains, by their digests, and nothing else: no other
script and no request. Plots are drawn by plotly.js, which comes with plotly's Python package. Everything else is in
`page.html`, `page.css` and `page.js` beside this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

import bellmanifold
from bellmanifold.io.files import write_atomically
from bellmanifold_lab.report.curves import curves
from bellmanifold_lab.report.overview import missing, overview, provenance
from bellmanifold_lab.report.reading import Contents, read_directory
from bellmanifold_lab.report.scenes import fits, run_of, scene
from bellmanifold_lab.report.text import asset, digest, embed_json, escape_name, fill_template, program

MOST_PLAYER_BYTES = 1_500_000
"""Runs are added to the player until it is this large."""
MOST_PLAYER_RUNS = 200


def write_report(directory: Path, out: Path, one_more: Callable[[], None] = lambda: None, ledger: str = "") -> None:
    """Write the report of a directory, optionally with a ledger section; `one_more` is called after each run read."""
    page = make_page(read_directory(directory, one_more), directory.name or str(directory.resolve().name), ledger)
    write_atomically(out, lambda file: file.write(page.encode("utf-8")))


def make_page(contents: Contents, title: str, ledger: str = "") -> str:
    """The HTML text of the page."""
    from plotly.offline import get_plotlyjs

    scripts = {"plotly": get_plotlyjs(), "program": program("report", "page.js")}
    player, not_played = make_player(contents)
    runs = sum(len(cell.runs) for cell in contents.cells)
    drawn, left_out = curves(contents.cells)
    parts = {
        "title": escape_name(title),
        "plain_title": re.sub("</?bdi>", "", escape_name(title)),
        "policy": " ".join(map(digest, scripts.values())),
        "style": asset("report", "page.css"),
        "runs": f"{runs:,} run{'s' * (runs != 1)}",
        "version": escape_name(bellmanifold.__version__),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "ledger": ledger,
        "overview": overview(contents, paper=bool(ledger)),
        "provenance": provenance(contents),
        "missing": missing(contents) + left_out + not_played,
        "curves": embed_json(drawn),
        "player": embed_json(player),
        **scripts,
    }
    return fill_template(asset("report", "page.html"), parts)


def make_player(
    contents: Contents, most_runs: int = MOST_PLAYER_RUNS, most_bytes: int = MOST_PLAYER_BYTES
) -> tuple[dict[str, Any], str]:
    """Scenes and runs of the player (each cell's first run, then the second, ...), and a remark on what is left out."""
    drawn = {name: model for name, model in contents.problems.items() if fits(model)}
    scenes = {name: number for number, name in enumerate(drawn)}
    ordered = [sorted(cell.runs, key=lambda file: file.settings.seed) for cell in contents.cells]
    in_turn = [file for turn in zip_longest(*ordered) for file in turn if file is not None]
    files = [file for file in in_turn if file.settings.model in scenes]
    runs: list[dict[str, Any]] = []
    size = 0
    for file in files[:most_runs]:
        run = run_of(file, drawn[file.settings.model], scenes[file.settings.model])
        size += len(embed_json(run))
        if runs and size > most_bytes:
            break
        runs.append(run)
    shown = [scene(model, name) for name, model in drawn.items()]
    data = {"scenes": shown, "runs": sorted(runs, key=lambda run: (run["scene"], run["agent"], run["settings"]))}
    total = sum(len(cell.runs) for cell in contents.cells)
    fits_all = "those whose problem can be drawn"
    which = fits_all if len(runs) == len(files) else "those with the first seeds of each setting, as many as fit"
    remark = f"<p>The player contains {len(runs)} of {total:,} runs: {which}.</p>" if len(runs) < total else ""
    large = [name for name in contents.problems if name not in drawn]
    if large:
        remark += f"<p>Too large to be drawn: {', '.join(escape_name(name) for name in large[:20])}.</p>"
    return data, remark
