"""Colours of moves: one per action if there are few actions, otherwise distinct within each state."""

from __future__ import annotations

import colorsys

import numpy as np
from jaxtyping import Float

from bellmanifold.pictures.positions import landings, positions
from bellmanifold.problem.ssp import SSP

COLOURS = ("#CC6677", "#4477AA", "#DDCC77", "#117733", "#AA4499", "#88CCEE", "#882255", "#44AA99")
"""One per action, distinguishable for colour-blind readers (Tol's muted and bright schemes)."""
COMPASS = tuple(COLOURS[k] for k in (1, 7, 2, 4, 0, 6, 3, 5))
"""The same by direction, anticlockwise from the right: opposite and neighbouring colours are easy to distinguish."""
MORE_COLOURS = (*COLOURS, "#EE7733", "#332288", "#999933", "#BBBBBB", "#000000", "#661100", "#6699CC", "#EE99AA")
"""Colours for states with more moves."""


def few_actions(model: SSP) -> bool:
    """Whether there are enough colours for all actions."""
    return len(model.actions) <= len(COLOURS)


def pair_colours(model: SSP) -> list[str]:
    """A colour for every pair, distinct within each state.

    If there are too many actions, a move has the colour of its direction in the picture, or the next one that its state
    has not used yet.
    """
    if few_actions(model):
        return [COLOURS[action] for action in model.pair_action]
    sector = np.round(directions(model) / (2 * np.pi) * len(COLOURS)).astype(np.int64) % len(COLOURS)
    colours = [""] * model.n_pairs
    for state in range(model.n_states):
        own = range(model.pair_start[state], model.pair_start[state + 1])
        palette = COMPASS if len(own) <= len(COMPASS) else MORE_COLOURS
        palette = palette if len(own) <= len(palette) else _wheel(len(own))
        free = list(range(len(palette)))
        for number, pair in enumerate(own):
            wanted = int(sector[pair]) if palette is COMPASS else number
            chosen = min(free, key=lambda k: (k - wanted) % len(palette))
            free.remove(chosen)
            colours[pair] = palette[chosen]
    return colours


def _wheel(count: int) -> tuple[str, ...]:
    """`count` distinct colours: hues around the circle, alternately dark and light."""
    each = [colorsys.hls_to_rgb(k / count, 0.42 + 0.26 * (k % 2), 0.55) for k in range(count)]
    return tuple("#" + "".join(f"{round(255 * part):02x}" for part in colour) for colour in each)


def directions(model: SSP) -> Float[np.ndarray, "pairs"]:
    """The angle of each pair's mean move in the picture; 0 if there is none."""
    place, pair = positions(model), model.next_pair
    step = (landings(model) - place[model.pair_state[pair]]) * model.next_prob[:, None]
    x, y = (np.bincount(pair, step[:, axis], model.n_pairs) for axis in (0, 1))
    return np.arctan2(y, x)
