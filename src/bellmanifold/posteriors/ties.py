"""Near ties: actions that are almost, but not quite, equally good under an exact posterior.

An exact posterior splits exact ties between observed actions by infinitesimal residuals (`rounding.tie_width`: 1e-8 of
the largest reward, less if that is wide relative to the prior, or 1e-12 of the values if that is more). Actions whose
values differ, but by less than that, would be split as if they tied, where the right probabilities are 1 and 0. Here
the values are computed again without those residuals, at some points of the prior, to find the states in which that
happens. Values that differ by less than 1e-10 of their size, or by no more than rounding errors, tie, as in `solve`.

Rounding errors are a small share of the *gross*: what the greedy policy would collect if nothing were negative. That is
the solution of the same equations with absolute payments, in which all other actions are prohibitively expensive.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from bellmanifold._util.jax_setup import random_key
from bellmanifold.chart.batch import BatchChart, TooLargeError
from bellmanifold.chart.layout import Law
from bellmanifold.errors import count_of
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.result import Result
from bellmanifold.posteriors.rounding import tie_width
from bellmanifold.posteriors.system import System, chart_of, drawn_laws, from_normals, normal_point, system_of
from bellmanifold.posteriors.target import Target
from bellmanifold.problem.ssp import SSP

POINTS, LEAST_POINTS = 1024, 64
MOST_NUMBERS = 2**22
"""Large problems are checked at fewer points, so that no array is larger than this."""
SHARE = 0.1
"""Share of the points at which values must be near each other; by chance they are at far fewer."""
NEAR = 10.0
"""Values that differ by less than this many widths of the residuals, which may add up, may be confused."""
SAME = 1e-10
ROUNDING = 64 * float(np.finfo(np.float64).eps)
FORBIDDEN = -1e150
"""A payment so low that no policy can make up for it."""

Values = Float[np.ndarray, "pairs points"]


def without_near_ties(target: Target, result: Result, budget: Budget) -> Result:
    """The result, with a doubt if it split actions that do not tie. Walks on sparse systems are not checked."""
    if not _may_split(target) or result.diagnostics.get("ties_split") == []:
        return result
    try:
        chart = chart_of(target, budget.chart)
    except TooLargeError:
        return result
    states = near_ties(Coordinates(target), chart, budget.seed)
    if not states:
        return result
    doubt = f"actions of {count_of(len(states), 'state')} differ, but by less than {NEAR * tie_width(target):.1g}: "
    doubt += "too little to tell them apart"
    return result.doubted(doubt, near_ties=states)


def _may_split(target: Target) -> bool:
    """Whether some state has two actions that may tie."""
    return bool(np.bincount(target.model.pair_state[target.may_tie]).max(initial=0) > 1)


def near_ties(coordinates: Coordinates, chart: BatchChart, seed: int) -> list[str]:
    """States in which the best observed actions differ, but by too little to be told apart.

    Only actions with exact rewards and given laws count; noisy rewards and open laws differ from point to point.
    """
    system, model = system_of(coordinates, chart), coordinates.target.model
    number = points_of(system.layout.slot.size)
    drawn = drawn_laws(coordinates.target.laws, np.random.default_rng(seed), number)
    point = from_normals(system, normal_point(random_key(seed), system, number, drawn))
    law, (mean, width), value = system.laws(point), system.rewards(point), system.values(point.x)
    reward = mean + jnp.where(width > 0, width * system.drawn_residuals(point.x), 0.0)
    exact = coordinates.target.may_tie[:, None]
    q = np.asarray(system.solve(law, reward, value).q)
    best = np.maximum.reduceat(q, model.pair_start[:-1])[model.pair_state]
    gap = best - np.where(exact, q, -np.inf)
    known = np.logical_or.reduceat(exact & (gap == 0.0), model.pair_start[:-1])  # the best action is an observed one
    size = np.where(exact, np.maximum(np.abs(q), np.abs(reward)), 0.0)
    near = known[model.pair_state] & (gap < NEAR * coordinates.tie_width) & (gap > SAME * _or_of_best(model, size, gap))
    if not _often(model, near, known).any():
        return []
    rounding = ROUNDING * _gross(system, law, np.asarray(gap == 0.0), reward, value)
    near &= gap > SAME * _or_of_best(model, size, gap) + _or_of_best(model, rounding, gap)
    return [model.states[s] for s in np.flatnonzero(_often(model, near, known))]


def points_of(padded: int) -> int:
    """Number of points at which a problem with `padded` padded pairs is checked."""
    return int(np.clip(MOST_NUMBERS // padded, LEAST_POINTS, POINTS))


def _often(model: SSP, near: Bool[np.ndarray, "pairs points"], known: Bool[np.ndarray, "states points"]) -> np.ndarray:
    """States with near ties at a large enough share of the points at which the best action is an observed one."""
    anywhere = np.logical_or.reduceat(near, model.pair_start[:-1])
    return np.asarray(anywhere.sum(axis=1) > SHARE * known.sum(axis=1))


def _or_of_best(model: SSP, size: Values, gap: Values) -> Values:
    """The size of each action, or that of the best one of its state if it is larger."""
    of_best = np.maximum.reduceat(np.where(gap == 0.0, size, 0.0), model.pair_start[:-1])
    return np.maximum(size, of_best[model.pair_state])


def _gross(
    system: System,
    law: Law,
    greedy: Bool[np.ndarray, "pairs points"],
    reward: Float[Array, "pairs points"],
    value: Float[Array, "pairs points"],
) -> Values:
    """The gross of each action followed by the greedy policy: what they would collect if nothing were negative."""
    layout = system.layout
    counted = layout.by_action(layout.sort(jnp.asarray(greedy, dtype=reward.dtype)), 0.0)
    observed_best = layout.of_state(jnp.any(counted > 0, axis=1))
    payment = jnp.where(greedy, jnp.abs(reward), FORBIDDEN)
    other = jnp.where(observed_best & jnp.isfinite(value), FORBIDDEN, jnp.abs(value))
    other = jnp.where(jnp.isfinite(value), other, -jnp.inf)
    best = layout.greedy(system.solve(law, payment, other).q)[1]
    return np.asarray(jnp.abs(reward) + layout.ahead(law, best))
