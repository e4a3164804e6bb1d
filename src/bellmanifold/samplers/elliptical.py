"""Elliptical slice sampling (Murray, Adams and MacKay 2010), for many chains at once.

The target has density proportional to N(x; 0, I) L(x). A step draws an ellipse through the current point and a fresh
normal vector, and a level below the current log L; then it shrinks an interval of angles towards the current point
until it finds a point above the level. There is nothing to tune, and points of zero likelihood are simply rejected.
Chains lie along the last axis and shrink independently; those that are done wait for the others. A position is an
array or a tree of arrays. If only some coordinates rotate, the others are conditioned on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

Position: TypeAlias = Any
"""An array or a tree of arrays with chains along the last axis."""
LogLikelihood = Callable[[Position], Float[Array, "chains"]]
MOST_SHRINKS = 100
_Carry = tuple[Array, Array, Array, Array, Array, Position, Array]
"""Number of shrinks so far, which chains are done, angle, bracket (two arrays), position, log-likelihood."""


class State(NamedTuple):
    """Positions of the chains."""

    position: Position
    log_likelihood: Float[Array, "chains"]


def _normals(key: PRNGKeyArray, like: Position) -> Position:
    """Standard normal numbers in the shape of a position."""
    leaves, tree = jax.tree.flatten(like)
    keys = jax.random.split(key, len(leaves))
    drawn = [jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(tree, drawn)


def step(
    key: PRNGKeyArray, state: State, log_likelihood: LogLikelihood, turning: Position
) -> tuple[State, Int[Array, ""]]:
    """Move every chain once; also the most likelihood evaluations that any chain needed.

    `turning`, a tree of masks without the axis of chains, says which coordinates rotate.
    """
    key_ellipse, key_level, key_angle, key_shrink = jax.random.split(key, 4)
    chains = state.log_likelihood.shape
    other = _normals(key_ellipse, state.position)
    level = state.log_likelihood + jnp.log(jax.random.uniform(key_level, chains))
    angle = jax.random.uniform(key_angle, chains, maxval=2 * jnp.pi)

    def turned(angle: Float[Array, "chains"]) -> Position:
        def turn(here: Array, there: Array, which: Array) -> Array:
            return jnp.where(which[..., None], here * jnp.cos(angle) + there * jnp.sin(angle), here)

        return jax.tree.map(turn, state.position, other, turning)

    def shrink(carry: _Carry) -> _Carry:
        count, done, angle, low, high, position, value = carry
        proposal = turned(angle)
        proposed = log_likelihood(proposal)
        accept = ~done & (proposed > level)
        position = jax.tree.map(lambda new, old: jnp.where(accept, new, old), proposal, position)
        value = jnp.where(accept, proposed, value)
        done = done | accept
        low = jnp.where(~done & (angle < 0), angle, low)
        high = jnp.where(~done & (angle >= 0), angle, high)
        fresh = jax.random.uniform(jax.random.fold_in(key_shrink, count), chains)
        angle = jnp.where(done, angle, low + fresh * (high - low))
        return count + 1, done, angle, low, high, position, value

    def going_on(carry: _Carry) -> Array:
        return ~jnp.all(carry[1]) & (carry[0] < MOST_SHRINKS)

    begin = (jnp.array(0), jnp.zeros(chains, dtype=bool), angle, angle - 2 * jnp.pi, angle, *state)
    count, _, _, _, _, position, value = jax.lax.while_loop(going_on, shrink, begin)
    return State(position, value), count
