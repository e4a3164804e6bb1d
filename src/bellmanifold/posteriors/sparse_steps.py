"""One step of a walk on sparse systems: the moves of `bellmanifold.posteriors.steps`, one chain at a time.

Here idle values are drawn anew from their law, a normal below a ceiling, and a visit that stays idle costs nothing.
Visits change one value, hardly ever the policy, so that its factorised chain serves again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from bellmanifold.posteriors.sparse_coordinates import Place, SparseCoordinates
from bellmanifold.posteriors.steps import PICKS

MOST_SHRINKS = 200


def step(coordinates: SparseCoordinates, here: Place, rng: np.random.Generator) -> Place:
    """Residuals turn, some unobserved values are visited, idle ones refreshed."""
    here = turn(coordinates, here, rng)
    for _ in range(PICKS if len(coordinates.free) and np.isfinite(here.log_likelihood) else 0):
        here = visit(coordinates, here, int(rng.integers(len(coordinates.free))), rng)
    return refresh(coordinates, here, rng) if here.policy is not None else here


def turn(coordinates: SparseCoordinates, here: Place, rng: np.random.Generator) -> Place:
    """An elliptical slice step of all residuals together."""
    residuals = slice(len(coordinates.free), None)
    other = rng.standard_normal(len(coordinates.residual))

    def at(angle: float) -> Place:
        x = here.x.copy()
        x[residuals] = here.x[residuals] * np.cos(angle) + other * np.sin(angle)
        return coordinates.place(x, here.policy)

    return _slice(here, at, rng)


def visit(coordinates: SparseCoordinates, here: Place, which: int, rng: np.random.Generator) -> Place:
    """An elliptical slice step of one unobserved value; where it stays idle nothing else changes."""
    model, pair = coordinates.target.model, coordinates.free[which]
    assert here.policy is not None, "the chain has found a point of positive likelihood"
    own = slice(model.pair_start[model.pair_state[pair]], model.pair_start[model.pair_state[pair] + 1])
    is_idle, ceiling = here.policy[model.pair_state[pair]] != pair, here.q[own].max()
    other = rng.standard_normal()

    def at(angle: float) -> Place:
        x = here.x.copy()
        x[which] = here.x[which] * np.cos(angle) + other * np.sin(angle)
        value = coordinates.value(x[which], which)
        if not is_idle or value >= ceiling:
            return coordinates.place(x, here.policy)
        q = here.q.copy()
        q[pair] = value
        return here._replace(x=x, q=q)

    return _slice(here, at, rng)


def refresh(coordinates: SparseCoordinates, here: Place, rng: np.random.Generator) -> Place:
    """All idle unobserved values anew: of k exchangeable ones the largest is below t with probability Phi(t)^k."""
    target, free = coordinates.target, coordinates.free
    state = target.model.pair_state[free]
    assert here.policy is not None, "the chain has found a point of positive likelihood"
    is_idle, ceiling = here.policy[state] != free, target.model.best(here.q)[state] / target.prior_scale
    log_below = np.log(rng.random(len(free))) + coordinates.alternatives * log_ndtr(ceiling)
    x, q = here.x.copy(), here.q.copy()
    x[: len(free)] = np.where(is_idle, ndtri_exp(log_below), x[: len(free)])
    q[free] = np.where(is_idle, coordinates.values(x), q[free])
    return here._replace(x=x, q=q)


def _slice(here: Place, at: Callable[[float], Place], rng: np.random.Generator) -> Place:
    """Shrink a bracket of angles towards the chain's place until a point is above a level below it."""
    level = here.log_likelihood + np.log(rng.random())
    angle = rng.random() * 2 * np.pi
    low, high = angle - 2 * np.pi, angle
    for _ in range(MOST_SHRINKS):
        there = at(angle)
        if there.log_likelihood > level:
            return there
        del there  # large, and the next one is as large
        low, high = (angle, high) if angle < 0 else (low, angle)
        angle = low + rng.random() * (high - low)
    return here
