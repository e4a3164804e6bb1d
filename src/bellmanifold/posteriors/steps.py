"""One step of a walk through a posterior, for many chains at once.

In the chart's coordinates a step is made of three moves, each of which keeps the posterior:

- residuals, and an unknown noise scale, turn together on an ellipse (`bellmanifold.samplers.elliptical`);
- a few unobserved pairs are visited one at a time (`bellmanifold.samplers.coordinatewise`): the posterior forbids
  unobserved values that are much better than what was seen, so that turning all of them together is stopped by one;
- those that are not the best choice of their state are idle below its value, and are refreshed.

The infinitesimal residuals of an exact posterior without determinants do not matter at all: they are idle everywhere.
In centred coordinates residuals tie observed and unobserved values together, and all coordinates turn at once.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from bellmanifold.laws import log_normal
from bellmanifold.posteriors.coordinates import Kind, Point, Structure, from_normals, solve_structure, weigh_normals
from bellmanifold.samplers import coordinatewise, elliptical
from bellmanifold.samplers.coordinatewise import Height, Visited

PICKS = 8
"""Unobserved pairs that each chain visits in a step, if there are so many."""


class Stand(NamedTuple):
    """Where chains are, and what is known there; coordinates are counted slot by slot."""

    point: Point
    height: Height


class Cost(NamedTuple):
    """How often the slowest chain evaluated the likelihood in a step."""

    evaluations: Int[Array, ""]


def stand(kind: Kind, s: Structure, point: Point) -> Stand:
    """Start chains at given points."""
    return Stand(point, look(kind, s, point))


def look(kind: Kind, s: Structure, point: Point) -> Height:
    """The log weight of standard normal vectors, and below which values unobserved pairs are idle."""
    x = point.x
    if kind.centred:
        return Height(weigh_normals(kind, s, point).log_weight, jnp.full((x[..., 0].size, x.shape[-1]), -jnp.inf))
    if ignores_residuals(kind):
        log_weight, q = _weigh_without_residuals(kind, s, point)
        elsewhere = jnp.inf
    else:
        weighed = weigh_normals(kind, s, point)
        log_weight, q, elsewhere = weighed.log_weight, weighed.q, -jnp.inf
    best = jnp.max(q, axis=0)
    ceiling = jnp.where(s.prior_scale * x < best, best / s.prior_scale, -jnp.inf)
    ceiling = jnp.where(s.member[..., None], ceiling, elsewhere)
    return Height(log_weight, ceiling.reshape(-1, x.shape[-1]))


def ignores_residuals(kind: Kind) -> bool:
    """An exact posterior without determinants does not depend on how ties are split."""
    return kind.exact and not kind.centred and not any(block.cyclic and not block.sweeps for block in kind.blocks)


def _weigh_without_residuals(
    kind: Kind, s: Structure, point: Point
) -> tuple[Float[Array, "chains"], Float[Array, "actions states chains"]]:
    """Log weight and action values of an exact posterior without determinants, from one solution."""
    x = from_normals(s, point).x
    value = jnp.where(s.free[..., None], s.prior_scale * x, -jnp.inf)
    q, _, solvable = solve_structure(kind, s, jnp.broadcast_to(s.reward[..., None], x.shape), value)
    terms = log_normal(q / s.prior_scale) - jnp.log(s.prior_scale) + kind.law.log_correction(kind.law.from_normal(x))
    total = jnp.sum(jnp.where(s.system.solved[..., None], terms, 0.0), axis=(0, 1))
    return jnp.where(solvable, total, -jnp.inf), q


def step(kind: Kind, s: Structure, key: PRNGKeyArray, here: Stand) -> tuple[Stand, Cost]:
    """Move every chain."""
    turning, visiting, refreshing = jax.random.split(key, 3)
    turns = jnp.array(0)
    if not ignores_residuals(kind):
        here, turns = _turn(kind, s, turning, here)
    if kind.centred:
        return here, Cost(turns)
    shape, chains = here.point.x.shape, here.point.x.shape[-1]

    def evaluate(x: Float[Array, "coordinates chains"]) -> Height:
        return look(kind, s, here.point._replace(x=x.reshape(shape)))

    (members,) = jnp.nonzero(s.member.ravel(), size=s.member.size, fill_value=0)
    state = coordinatewise.State(here.point.x.reshape(-1, chains), here.height)
    visited = Visited(members, jnp.sum(s.member))
    state, visits = coordinatewise.visit(visiting, state, evaluate, visited, jnp.minimum(PICKS, visited.number))
    state = coordinatewise.refresh(refreshing, state)
    return Stand(here.point._replace(x=state.position.reshape(shape)), state.height), Cost(turns + visits)


def _turn(kind: Kind, s: Structure, key: PRNGKeyArray, here: Stand) -> tuple[Stand, Int[Array, ""]]:
    """Residuals and the noise scale turn together; in centred coordinates all."""
    which = Point(jnp.full_like(s.member, True) if kind.centred else ~s.member, jnp.ones(len(here.point.z), dtype=bool))
    state = elliptical.State(here.point, here.height.log_likelihood)
    state, info = elliptical.step(key, state, lambda point: look(kind, s, point).log_likelihood, which)
    return stand(kind, s, state.position), info.evaluations


@partial(jax.jit, static_argnames="kind")
def advance(kind: Kind, steps: int | Int[Array, ""], s: Structure, key: PRNGKeyArray, point: Point) -> Point:
    """Where chains are after a number of steps that nobody needs a record of."""

    def move(k: Int[Array, ""], here: Stand) -> Stand:
        return step(kind, s, jax.random.fold_in(key, k), here)[0]

    return jax.lax.fori_loop(0, steps, move, stand(kind, s, point)).point
