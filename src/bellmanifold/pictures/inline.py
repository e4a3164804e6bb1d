"""Pictures embedded in a notebook's HTML: small problems with pies, advice, regret curves."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO
from typing import Any

from bellmanifold.pictures.drawing import draw
from bellmanifold.pictures.gains import draw_advice
from bellmanifold.pictures.labels import figure_of
from bellmanifold.pictures.lines import draw_regret
from bellmanifold.problem.ssp import SSP

DRAWN: dict[str, Any] = {"problem": draw, "advice": draw_advice, "regret": draw_regret}
MOST_STATES, MOST_ARROWS = 60, 400
"""Larger problems are drawn only on request."""
DOTS_PER_INCH = 80


def image(kind: str, *given: Any) -> str:
    """A picture as an HTML image; its figure is closed, so that a notebook does not show it twice."""
    if isinstance(model := given[0], SSP) and (model.n_states > MOST_STATES or len(model.next_state) > MOST_ARROWS):
        return ""
    from matplotlib import pyplot

    figure, buffer = figure_of(DRAWN[kind](*given)), BytesIO()
    figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH)
    pyplot.close(figure)
    return f'<img alt="picture" src="data:image/png;base64,{b64encode(buffer.getvalue()).decode("ascii")}">'
