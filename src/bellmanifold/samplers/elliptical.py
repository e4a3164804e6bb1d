"""Elliptical slice sampling (Murray, Adams and MacKay 2010), many chains at once.

The target has density proportional to N(x; 0, I) L(x). A step draws an ellipse through the current point and a fresh
normal vector, a level below the current log L, and shrinks an interval of angles towards the current point until it
meets a point above the level. There is nothing to tune, and points of zero likelihood are simply shrunk away from.
Chains lie along the last axis and shrink independently; those that are done wait for the others. A position may be
one array or a tree of arrays.

A *lone* chain shrinks faster. The angles that it tries one after the other depend on nothing but the angles before
them, as long as all are refused. So several are drawn ahead and their points evaluated side by side, where a batch
costs little more than a point; the first above the level is taken. The chain's law is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

Position: TypeAlias = Any
"""An array or a tree of arrays, whose last axis runs over the chains."""
LogLikelihood = Callable[[Position], Float[Array, "chains"]]
MOST_SHRINKS = 100
AHEAD = 4
"""Angles a lone chain tries at once."""
_Carry = tuple[Array, Array, Array, Array, Array, Position, Array]
"""Shrinks so far, who is done, angle, bracket, position, log likelihood."""


class State(NamedTuple):
    """Where the chains are.

    Attributes:
        position: the last axis runs over the chains.
        log_likelihood: shape (chains,).
    """

    position: Position
    log_likelihood: Float[Array, "chains"]


_LoneCarry = tuple[Array, Array, Array, Array, Array, State]
"""Rounds so far, whether it is done, angle, bracket, what was found."""


class Info(NamedTuple):
    """What the last step cost.

    Attributes:
        evaluations: likelihood evaluations of the slowest chain.
    """

    evaluations: Int[Array, ""]


def init(position: Position, log_likelihood: LogLikelihood) -> State:
    """Start chains at given positions."""
    return State(position, log_likelihood(position))


def lone_step(key: PRNGKeyArray, state: State, log_likelihood: LogLikelihood) -> State:
    """Move a single chain once; `log_likelihood` must take batches."""
    key_ellipse, key_level, key_angle, key_shrink = jax.random.split(key, 4)
    other = _normals(key_ellipse, state.position)
    level = state.log_likelihood + jnp.log(jax.random.uniform(key_level, (1,)))
    first = jax.random.uniform(key_angle, maxval=2 * jnp.pi)

    def shrink(carry: _LoneCarry) -> _LoneCarry:
        count, _, angle, low, high, _ = carry
        fresh = jax.random.uniform(jax.random.fold_in(key_shrink, count), (AHEAD,))
        angles = []
        for k in range(AHEAD):
            angles.append(angle)
            low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
            angle = low + fresh[k] * (high - low)
        tried = jnp.stack(angles)
        points = _on_ellipse(tried, state.position, other)
        values = log_likelihood(points)
        above = values > level
        taken = jnp.argmax(above)
        found = State(jax.tree.map(lambda leaf: leaf[..., taken][..., None], points), values[taken][None])
        return count + 1, jnp.any(above), angle, low, high, found

    begin = (jnp.array(0), jnp.array(False), first, first - 2 * jnp.pi, first, state)
    most = -(-MOST_SHRINKS // AHEAD)
    _, done, *_, found = jax.lax.while_loop(lambda carry: ~carry[1] & (carry[0] < most), shrink, begin)
    return jax.tree.map(lambda new, old: jnp.where(done, new, old), found, state)


def _normals(key: PRNGKeyArray, like: Position) -> Position:
    """Standard normal numbers in the shape of a position."""
    leaves, tree = jax.tree.flatten(like)
    keys = jax.random.split(key, len(leaves))
    drawn = [jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(tree, drawn)


def _on_ellipse(angle: Float[Array, "chains"], position: Position, other: Position) -> Position:
    return jax.tree.map(lambda a, b: a * jnp.cos(angle) + b * jnp.sin(angle), position, other)


def step(key: PRNGKeyArray, state: State, log_likelihood: LogLikelihood) -> tuple[State, Info]:
    """Move every chain once."""
    key_ellipse, key_level, key_angle, key_shrink = jax.random.split(key, 4)
    chains = state.log_likelihood.shape
    other = _normals(key_ellipse, state.position)
    level = state.log_likelihood + jnp.log(jax.random.uniform(key_level, chains))
    angle = jax.random.uniform(key_angle, chains, maxval=2 * jnp.pi)

    def shrink(carry: _Carry) -> _Carry:
        count, done, angle, low, high, position, value = carry
        proposal = _on_ellipse(angle, state.position, other)
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
    return State(position, value), Info(count)
