"""Actions that are almost, but not quite, equally good under an exact posterior.

An exact posterior splits exact ties between observed actions by infinitesimal residuals (`target.tie_width`: 1e-8 of
the largest reward). Actions whose values really differ, but by less than that, would be split as if they tied, where
the right answer is 1 and 0. Here the values are computed once more without those residuals, at some points of the
prior, and states in which that happens are found. What differs by less than 1e-10 of the values, or by what rounding
may have left of a sum, is a tie, here as in `solve`.

Rounding is a small share of the *gross*: what the greedy policy would collect if nothing were negative. That is the
value of the same equations with absolute payments, in which all other actions cost more than anything can pay.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from bellmanifold.chart import TooLargeError, batch_chart, solve_blocks
from bellmanifold.jax_setup import random_key
from bellmanifold.posteriors.coordinates import Coordinates, from_normals, normal_point
from bellmanifold.posteriors.summary import Summary
from bellmanifold.posteriors.target import Target, tie_width

POINTS, LEAST_POINTS = 1024, 64
MOST_NUMBERS = 2**22
"""Large problems are looked at in fewer points, so that an array has no more numbers than this."""
SHARE = 0.1
"""Chance alone puts values that close together at far fewer points than this share."""
NEAR = 10.0
"""Widths of the residuals, which may add up, below which values may be confused."""
SAME = 1e-10
ROUNDING = 64 * float(np.finfo(np.float64).eps)
FORBIDDEN = -1e150
"""Pays less than any policy can make good."""

Values = Float[np.ndarray, "actions states points"]


def without_near_ties(summary: Summary) -> Summary:
    """The summary, no longer trusted if it split actions that do not tie. Walks on sparse systems are not checked."""
    target = summary.target
    if not target.is_exact or not _may_split(target) or summary.diagnostics.get("ties_split") == []:
        return summary
    try:
        chart = batch_chart(target.model)
    except TooLargeError:
        return summary
    states = near_ties(Coordinates(target, chart), summary.seed)
    if not states:
        return summary
    found = {**summary.diagnostics, "near_ties": states}
    doubt = f"actions of {len(states)} states differ, but by less than 1e-7 of the largest reward: too little to tell"
    return replace(summary, trustworthy=False, diagnostics=found, reason=f"{summary.reason}; {doubt}")


def _may_split(target: Target) -> bool:
    """Has some state two observed actions?"""
    return bool(np.bincount(target.model.pair_state[target.observed]).max(initial=0) > 1)


def near_ties(coordinates: Coordinates, seed: int) -> list[str]:
    """States in which the best of the observed actions differ, but by too little to be told apart."""
    slots = coordinates.chart.slot
    points = int(np.clip(MOST_NUMBERS // slots.size, LEAST_POINTS, POINTS))
    x = from_normals(
        coordinates.structure, normal_point(random_key(seed), (*slots.shape, points), coordinates.scales)
    ).x
    s = coordinates.structure
    solved = np.asarray(s.system.solved)[..., None]
    reward = jnp.broadcast_to(s.reward[..., None], x.shape)
    value = jnp.where(s.free[..., None], s.prior_scale * x, -jnp.inf)
    q = np.asarray(solve_blocks(coordinates.kind.blocks, s.system, reward, value).q)
    gap = q.max(axis=0) - np.where(solved, q, -np.inf)
    known = np.any(solved & (gap == 0.0), axis=0)  # the best action is an observed one
    size = np.where(solved, np.maximum(np.abs(q), np.abs(reward)), 0.0)
    near = known & (gap < NEAR * tie_width(coordinates.target)) & (gap > SAME * _or_of_best(size, gap))
    if not _often(near, known).any():
        return []
    rounding = ROUNDING * _gross(coordinates, gap == 0.0, reward, value)
    near &= gap > SAME * _or_of_best(size, gap) + _or_of_best(rounding, gap)
    often = np.flatnonzero(_often(near, known))
    return [coordinates.target.model.states[s] for s in coordinates.chart.order[often].tolist()]


def _often(near: Bool[np.ndarray, "actions states points"], known: Bool[np.ndarray, "states points"]) -> np.ndarray:
    """States in which that happens at many of the points at which the best action is an observed one."""
    return np.asarray(near.any(axis=0).sum(axis=1) > SHARE * known.sum(axis=1))


def _or_of_best(size: Values, gap: Values) -> Values:
    """Of each action, or of the best one if that is larger."""
    return np.maximum(size, np.where(gap == 0.0, size, 0.0).max(axis=0))


def _gross(
    coordinates: Coordinates,
    greedy: Bool[np.ndarray, "actions states points"],
    reward: Float[Array, "actions states points"],
    value: Float[Array, "actions states points"],
) -> Values:
    """What each action and then the greedy policy would collect if nothing were negative."""
    s, chart = coordinates.structure, coordinates.chart
    observed_best = jnp.asarray(greedy.any(axis=0))
    payment = jnp.where(greedy, jnp.abs(reward), FORBIDDEN)
    other = jnp.where(observed_best & jnp.isfinite(value), FORBIDDEN, jnp.abs(value))
    other = jnp.where(jnp.isfinite(value), other, -jnp.inf)
    best = np.asarray(solve_blocks(coordinates.kind.blocks, s.system, payment, other).q).max(axis=0)
    best = np.append(best, np.zeros((1, best.shape[1])), axis=0)
    gross = np.abs(np.asarray(reward))
    for k in range(chart.law.shape[2]):
        gross = gross + chart.law[:, :, k, None] * best[chart.successor[:, :, k]]
    return gross
