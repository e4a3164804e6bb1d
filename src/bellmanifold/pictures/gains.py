"""Pictures of advice: a problem with its best policy, and moves coloured by what a trial may save."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from bellmanifold._util.display import Words
from bellmanifold.errors import BadInputError, kind_of_value
from bellmanifold.pictures.drawing import (
    Arrow,
    draw_moves,
    draw_plain_states,
    finish,
    line_keys,
    new_axes,
    require_drawable,
)
from bellmanifold.pictures.labels import Number, action_keys, figure_of, needs_label
from bellmanifold.pictures.palette import few_actions, pair_colours
from bellmanifold.problem.ssp import SSP

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SETTLED_COLOUR, PLAYED_COLOUR, SCALE = "#BBBBBB", "#333333", "YlOrRd"
"""Colours of moves not worth a trial, outside and inside the policy; colour map of gains."""
LIGHTEST = 0.35
"""Start of the colour map: lighter colours would be invisible on white."""
TELLING = 0.02
"""Moves are coloured if a trial is worth more than this share of the best."""
NUMBERED = 0.25
"""Gains are written at moves if they are at least this share of the best."""
SCALE_WIDTH = 1.1
"""Width of the colour bar, in inches."""


@runtime_checkable
class Advised(Protocol):
    """Interface of an advice to pictures: `picture()`, the three arrays of `draw_advice`, and `words()`."""

    def picture(self) -> tuple[Bool[np.ndarray, "p"], Float[np.ndarray, "p"], Bool[np.ndarray, "p"]]: ...

    def words(self) -> Words: ...


def draw_advice(
    model: SSP,
    policy: Advised | Bool[np.ndarray, "pairs"],
    gain: Float[np.ndarray, "pairs"] | None = None,
    tried: Bool[np.ndarray, "pairs"] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Draw a problem with a policy, and what a trial of each pair is worth.

    The policy lies on a grey band; if there are few actions, each state it visits has the colour of the action it plays
    there. Moves worth a trial have the colour of their gain, the best ones also its number; others are grey, or black
    if the policy plays them. Untried moves are dotted; moves with unknown laws are stubs with a question mark.

    Args:
        model: the problem.
        policy: an advice; or the pairs that the policy plays, which requires the next two arguments.
        gain: what a trial of each pair would save.
        tried: which pairs were tried; a belief is not a trial.
        axes: where to draw; by default a new figure.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize
    from matplotlib.lines import Line2D

    require_drawable(model)
    words = Words(model.name, "best policy", "tried", "not tried yet", "what a trial would save")
    if isinstance(policy, Advised):
        words = policy.words()
        policy, gain, tried = policy.picture()
    if not isinstance(policy, np.ndarray) or gain is None or tried is None:
        raise BadInputError(f"policy is {kind_of_value(policy)}: give an advice, or the arrays policy, gain and tried")
    norm = Normalize(0.0, float(gain.max(initial=0.0)) or 1.0)
    telling = np.asarray(norm(gain)) > TELLING
    handles = [*action_keys(model), *line_keys(model, words, tried, True)]
    if not (telling | policy).all():
        handles.append(Line2D([], [], color=SETTLED_COLOUR, label="not worth a trial"))
    place: dict[str, Any] = {"ax": axes, "shrink": 0.6, "aspect": 30}
    if axes is None:
        axes = new_axes(model, handles, words.title, SCALE_WIDTH)
        box = axes.get_position()
        room = (box.x1 + 0.2 * (1 - box.x1), box.y0 + 0.1 * box.height, 0.15 * (1 - box.x1), 0.8 * box.height)
        place = {"cax": axes.figure.add_axes(room)}
    scale = ListedColormap(colormaps[SCALE](np.linspace(LIGHTEST, 1.0, 256)))
    played = np.where(policy, PLAYED_COLOUR, SETTLED_COLOUR)
    colours = [scale(norm(gain[i])) if telling[i] else str(played[i]) for i in range(model.n_pairs)]
    broad, named = np.where(policy, 1.8, np.where(telling, 1.4, 1.0)), needs_label(model)
    drawn = draw_moves(axes, model, colours, tried, policy, named & (policy | ~tried), broad)
    action = pair_colours(model)
    states = {int(model.pair_state[pair]): action[pair] for pair in np.flatnonzero(policy).tolist()}
    draw_plain_states(axes, model, states if few_actions(model) else {})
    finish(axes, model, handles, words.title, () if named.any() else _gains(drawn, gain))
    bar = figure_of(axes).colorbar(ScalarMappable(norm, scale), **place)
    bar.set_label(words.scale, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return axes


def _gains(drawn: Iterable[Arrow], gain: Float[np.ndarray, "pairs"]) -> Iterator[Number]:
    """Numbers for what the best trials would save; the largest is bold."""
    most = float(gain.max(initial=0.0))
    for arrow in drawn:
        own = float(gain[arrow.pair])
        if arrow.is_likeliest and own > 0.0 and own >= NUMBERED * most:
            yield Number(f"{own:.2g}", arrow.at, own, own == most)
