"""Pictures inside a notebook's HTML: small problems with their pies, what trials are worth, curves of regret."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from bellmanifold.figures.drawing import Pies, draw
from bellmanifold.figures.gains import Advised, draw_advice
from bellmanifold.figures.lines import Learnt, draw_regret
from bellmanifold.figures.names import figure_of
from bellmanifold.ssp import SSP

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_STATES, MOST_ARROWS = 60, 400
"""Larger problems are drawn only when somebody asks for it."""
DOTS_PER_INCH = 80


def problem(model: SSP, pies: Pies | Float[np.ndarray, "pairs"] | None = None) -> str:
    """A problem with a pie per state."""
    return _image(draw(model, pies)) if is_small(model) else ""


def advice(model: SSP, given: Advised) -> str:
    """The best policy, and what trials are worth."""
    return _image(draw_advice(model, given)) if is_small(model) else ""


def regret(learning: Learnt) -> str:
    """What an agent lost, over episodes."""
    return _image(draw_regret(learning))


def is_small(model: SSP) -> bool:
    """Is it drawn without being asked?"""
    return model.n_states <= MOST_STATES and len(model.next_state) <= MOST_ARROWS


def _image(axes: Axes) -> str:
    """The figure as an image, closed so that a notebook does not show it once more."""
    from matplotlib import pyplot

    figure, buffer = figure_of(axes), BytesIO()
    figure.savefig(buffer, format="png", dpi=DOTS_PER_INCH)
    pyplot.close(figure)
    return f'<img alt="picture" src="data:image/png;base64,{b64encode(buffer.getvalue()).decode("ascii")}">'
