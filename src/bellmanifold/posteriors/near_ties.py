"""Actions that are almost, but not quite, equally good under an exact posterior.

An exact posterior splits exact ties between observed actions by infinitesimal residuals (`target.tie_width`: 1e-8 of
the largest reward). Actions whose values really differ, but by less than that, would be split as if they tied, where
the right answer is 1 and 0. Here the values are computed once more without those residuals, at a few points, and states
in which that happens are found. What differs by less than 1e-10 of the values is a tie, here as in `solve`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bellmanifold.chart import batch_chart, solve_blocks
from bellmanifold.posteriors.coordinates import Coordinates, Kind, Point, Structure, from_normals, normal_point
from bellmanifold.posteriors.summary import Summary
from bellmanifold.posteriors.target import tie_width

POINTS = 64
SHARE = 0.1
"""Chance alone puts values that close together at far fewer points than this share."""
NEAR = 10.0
"""Widths of the residuals, which may add up, below which values may be confused."""
SAME = 1e-10


def without_near_ties(summary: Summary) -> Summary:
    """The summary, no longer trusted if it split actions that do not tie."""
    target = summary.target
    if not target.is_exact or not summary.diagnostics.get("ties_split"):
        return summary
    states = near_ties(Coordinates(target, batch_chart(target.model)), summary.seed)
    if not states:
        return summary
    found = {**summary.diagnostics, "near_ties": states}
    doubt = f"actions of {len(states)} states differ, but by less than 1e-7 of the largest reward: too little to tell"
    return replace(summary, trustworthy=False, diagnostics=found, reason=f"{summary.reason}; {doubt}")


def near_ties(coordinates: Coordinates, seed: int) -> list[str]:
    """States in which the best of the observed actions differ, but by too little to be told apart."""
    point = normal_point(jax.random.key(seed % 2**32), (*coordinates.chart.slot.shape, POINTS), coordinates.scales)
    q = np.asarray(_plain_values(coordinates.kind, coordinates.structure, point))
    solved = np.asarray(coordinates.structure.system.solved)[..., None]
    width = NEAR * tie_width(coordinates.target)
    best = q.max(axis=0)
    gap = best - np.where(solved, q, -np.inf)
    known = np.any(solved & (gap == 0.0), axis=0)  # the best action is an observed one
    near = known & np.any((gap > SAME * np.maximum(np.abs(best), 1e-300)) & (gap < width), axis=0)
    often = near.mean(axis=1) > SHARE
    return [coordinates.target.model.states[s] for s in coordinates.chart.order[np.flatnonzero(often)].tolist()]


@partial(jax.jit, static_argnames="kind")
def _plain_values(kind: Kind, s: Structure, point: Point) -> Float[Array, "actions states points"]:
    x = from_normals(s, point).x
    value = jnp.where(s.free[..., None], s.prior_scale * x, -jnp.inf)
    return solve_blocks(kind.blocks, s.system, jnp.broadcast_to(s.reward[..., None], x.shape), value).q
