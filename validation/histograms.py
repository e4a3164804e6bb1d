"""Rank histograms of all engines as one picture, and their p-values as a table.

`PYTHONPATH=src python validation/histograms.py RANKS.json ... --out docs/images/calibration.png`

A panel holds the ranks of one quantity under one engine, all problems together, with the p-value of a chi-square test
in 20 bins; the grey band holds 99 % of the bars of a uniform law. The table has the smallest p-value over the four
quantities for each problem by itself.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from ranks import BINS, DRAWS, counts, p_value
from scipy import stats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Found = dict[str, dict[str, np.ndarray]]
"""Engine -> problem -> ranks, shape (replications, quantities)."""
WIDTH, ROW = 4.6, 0.62
"""Inches of the picture, and of a row of panels: narrow, so that labels can be read on a page of 400 pixels."""
LOOK = {"font.size": 8.0, "axes.titlesize": 7.5, "axes.labelsize": 8.0, "xtick.labelsize": 7.5, "axes.titlepad": 2.0}


def read(paths: Iterable[Path]) -> tuple[Found, list[str], dict[str, int]]:
    """Ranks from files, the names of the quantities, and how many replications of each engine failed.

    Raises:
        ValueError: if files hold the same replication twice.
    """
    rows: dict[str, dict[str, dict[int, list[int]]]] = {}
    failed: dict[str, int] = {}
    names: list[str] = []
    for path in paths:
        content = json.loads(path.read_text())
        own, names = rows.setdefault(content["engine"], {}), content["quantities"]
        for row in content["replications"]:
            if "failed" in row:
                failed[content["engine"]] = failed.get(content["engine"], 0) + 1
                continue
            known = own.setdefault(row["problem"], {})
            if row["index"] in known:
                raise ValueError(f"{path}: replication {row['index']} of {row['problem']} was in another file already")
            known[row["index"]] = row["ranks"]
    found = {e: {p: np.array([by[k] for k in sorted(by)]) for p, by in own.items()} for e, own in rows.items()}
    return found, names, failed


def in_order(found: Found) -> list[str]:
    """The engines in the order of `engines.ENGINES`."""
    from engines import ENGINES

    return [engine for engine in ENGINES if engine in found]


def picture(found: Found, names: list[str]) -> Figure:
    """One row of panels an engine, one column a quantity."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from bellmanifold_paper.plots.style import PRINT

    engines = in_order(found)
    with rc_context(PRINT | LOOK):
        figure = Figure(figsize=(WIDTH, ROW * len(engines) + 0.7), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.02, h_pad=0.01, hspace=0.0, wspace=0.0)
        panels = figure.subplots(len(engines), len(names), squeeze=False, sharex=True)
        width = (DRAWS + 1) / BINS
        for row, engine in zip(panels, engines, strict=True):
            ranks = np.concatenate(list(found[engine].values()))
            low, high = stats.binom.ppf([0.005, 0.995], len(ranks), 1.0 / BINS)
            for axes, column in zip(row, ranks.T, strict=True):
                p = p_value(column)
                axes.axhspan(low, high, color="0.85", linewidth=0)
                colour = "#D55E00" if p < 1e-3 else "#0072B2"
                axes.bar(np.arange(BINS) * width, counts(column), width, align="edge", color=colour, alpha=0.8)
                axes.set_title(f"p = {p:.2g}" if p >= 1e-6 else "p < 1e-6", loc="right")
                axes.set_ylim(0, max(1.6 * high, 1.05 * counts(column).max()))
                axes.set_yticks([])
            row[0].set_ylabel(engine.replace("-", "\n", 1), rotation=0, ha="right", va="center")
        for axes, name in zip(panels[0], names, strict=True):
            axes.annotate(_broken(name), (0.5, 1.4), xycoords="axes fraction", ha="center", va="bottom")
        figure.supxlabel(f"rank among {DRAWS} draws", fontsize=LOOK["axes.labelsize"])
    return figure


def _broken(name: str) -> str:
    """A name on two lines, broken near its middle.

    >>> _broken("Q of a seen pair")
    'Q of a\\nseen pair'
    """
    spaces = [k for k, letter in enumerate(name) if letter == " "]
    if not spaces:
        return name
    middle = min(spaces, key=lambda k: abs(2 * k - len(name)))
    return f"{name[:middle]}\n{name[middle + 1 :]}"


def table(found: Found) -> str:
    """Markdown: the smallest of the quantities' p-values for every engine and problem, and number of replications."""
    problems = list(dict.fromkeys(problem for own in found.values() for problem in own))
    lines = ["| engine | " + " | ".join(problems) + " | replications of each |", "|---" * (len(problems) + 2) + "|"]
    for engine in in_order(found):
        own = found[engine]
        smallest = [min(p_value(c) for c in own[p].T) if p in own else None for p in problems]
        cells = ["-" if p is None else ("< 1e-6" if p < 1e-6 else f"{p:.2g}") for p in smallest]
        lines.append(f"| {engine} | " + " | ".join(cells) + f" | {min(len(ranks) for ranks in own.values())} |")
    return "\n".join(lines)


def main() -> None:
    """Read files, draw, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ranks", type=Path, nargs="+", help="files that calibration.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="picture to write")
    options = parser.parse_args()
    found, names, failed = read(options.ranks)
    picture(found, names).savefig(options.out, dpi=160, bbox_inches="tight")
    print(table(found))
    for engine, number in failed.items():
        print(f"\n{engine}: {number} replications failed")


if __name__ == "__main__":
    main()
