"""How printed figures look: sizes, fonts, and for each method one colour and one kind of line in all of them.

Colours are those of Okabe and Ito, which colour-blind eyes tell apart. Ordered things, such as tolerances, take steps
of a map whose lightness rises evenly. Sizes are those on paper: a figure as wide as the text needs no scaling.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

TEXT_WIDTH = 6.3
"""Width of the text on a page, in inches."""

PRINT: Final[dict[Any, Any]] = {
    "font.size": 7.0,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 7.5,
    "figure.titlesize": 8.0,
    "lines.linewidth": 1.0,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.titlepad": 3.0,
    "axes.labelpad": 2.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
}


class Stroke(NamedTuple):
    """Colour and kind of a line."""

    colour: str
    line: Any = "-"


METHODS: Final = {
    "BR": Stroke("#0072B2"),
    "exact": Stroke("#000000", (0, (4, 1, 1, 1))),
    "HMC": Stroke("#E69F00", (0, (5, 1))),
    "TD": Stroke("#009E73", (0, (3, 1, 1, 1, 1, 1))),
    "TD-En": Stroke("#CC79A7", (0, (1, 1))),
    "TD-Max": Stroke("#D55E00", (0, (7, 2))),
}
"""Label of a method in the figures -> its line."""

_LINES = ("-", (0, (5, 1)), (0, (1, 1)), (0, (4, 1, 1, 1)), (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))


def steps(labels: list[str]) -> dict[str, Stroke]:
    """Lines for ordered things: dark to light, and of different kinds."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    shade = colormaps["viridis"]
    most = max(len(labels) - 1, 1)
    return {label: Stroke(to_hex(shade(0.88 * k / most)), _LINES[k % len(_LINES)]) for k, label in enumerate(labels)}


@contextmanager
def printed() -> Iterator[None]:
    """Draw and save figures as they are printed."""
    import matplotlib as mpl

    with mpl.rc_context(PRINT):
        yield


def handles(axes: Axes) -> list[Line2D]:
    """The labelled lines of some axes, for a legend that several share."""
    return [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
