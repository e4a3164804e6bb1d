"""Pictures that commands draw on the side."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from bellmanifold.errors import BadInputError
from bellmanifold.formats.files import label, write_atomically

KINDS = ("png", "pdf", "svg")


def check_picture(path: Path) -> str:
    """The kind of picture a file name asks for."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in KINDS:
        raise BadInputError(f"{label(path)}: a picture ends in .png, .pdf or .svg")
    return kind


def save_picture(path: Path, draw: str, *shown: Any) -> None:
    """Write what a function of `bellmanifold.figures` draws, all of it or nothing."""
    kind = check_picture(path)
    import matplotlib as mpl

    mpl.use("Agg")
    from bellmanifold import figures

    figure = getattr(figures, draw)(*shown).get_figure(root=True)
    assert figure is not None, "axes are drawn on a figure"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a box stands for what no font here can draw
        write_atomically(path, lambda file: figure.savefig(file, format=kind, dpi=150))
