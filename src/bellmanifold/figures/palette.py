"""Colours of moves: the same action has the same colour where actions are few, else moves of one state differ."""

from __future__ import annotations

import colorsys

import numpy as np
from jaxtyping import Float

from bellmanifold.figures.positions import landings, positions
from bellmanifold.ssp import SSP

COLOURS = ("#CC6677", "#4477AA", "#DDCC77", "#117733", "#AA4499", "#88CCEE", "#882255", "#44AA99")
"""One per action, told apart by colour-blind eyes (Tol's muted and bright schemes)."""
COMPASS = tuple(COLOURS[k] for k in (1, 7, 2, 4, 0, 6, 3, 5))
"""The same by direction, from the right anticlockwise: opposite and neighbouring ones are told apart."""
MORE_COLOURS = (*COLOURS, "#EE7733", "#332288", "#999933", "#BBBBBB", "#000000", "#661100", "#6699CC", "#EE99AA")
"""For states with more moves than that."""


def few_actions(model: SSP) -> bool:
    """Can every action have a colour of its own?"""
    return len(model.actions) <= len(COLOURS)


def pair_colours(model: SSP) -> list[str]:
    """A colour for every pair; those of one state differ.

    Where there are too many actions for a colour each, a move has the colour of its direction on paper, or the next one
    that its state has not used yet.
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
    """That many different colours: hues around the circle, dark and light in turn."""
    each = [colorsys.hls_to_rgb(k / count, 0.42 + 0.26 * (k % 2), 0.55) for k in range(count)]
    return tuple("#" + "".join(f"{round(255 * part):02x}" for part in colour) for colour in each)


def directions(model: SSP) -> Float[np.ndarray, "pairs"]:
    """In which direction on paper each pair leads, an angle; 0 where it leads nowhere."""
    place, pair = positions(model), model.next_pair
    step = (landings(model) - place[model.pair_state[pair]]) * model.next_prob[:, None]
    x, y = (np.bincount(pair, step[:, axis], model.n_pairs) for axis in (0, 1))
    return np.arctan2(y, x)
