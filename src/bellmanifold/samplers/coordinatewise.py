"""Slice sampling one coordinate at a time, for many chains at once; moves of irrelevant coordinates cost nothing.

The target has density proportional to N(x; 0, I) L(x), and L has *ceilings*: below its ceiling a coordinate is *idle*,
that is, L and all ceilings stay the same as long as idle coordinates stay below theirs. (The value of an action that is
not the best one is idle.) Rotating all coordinates together, as elliptical slices do, is slow in many dimensions: the
first coordinate to reach its ceiling stops the rotation of all others. Two other moves leave the target invariant:

- `visit`: a chain picks a coordinate at random and makes an elliptical slice step in it alone. If the coordinate is
  idle and the first proposal is below the ceiling, it is accepted without evaluating L. A chain whose proposal is
  accepted picks its next coordinate at once; chains do not wait for each other, and each stops after a fixed number of
  picks (a fixed number of *evaluations* would favour points where moves are free).
- `refresh`: all idle coordinates rotate by independent random angles; each stays where it was if it would pass its
  ceiling. Given the others, idle coordinates are independent normals truncated at their ceilings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

MOST_TRIES = 100
"""Number of proposals after which a chain leaves a coordinate unchanged."""


class Evaluation(NamedTuple):
    """Log-likelihoods and ceilings of a batch of positions; a ceiling of -inf marks a coordinate that is not idle."""

    log_likelihood: Float[Array, "chains"]
    ceiling: Float[Array, "coordinates chains"]


class State(NamedTuple):
    """Positions of the chains."""

    position: Float[Array, "coordinates chains"]
    evaluation: Evaluation


Evaluate = Callable[[Float[Array, "coordinates chains"]], Evaluation]


class Visited(NamedTuple):
    """The coordinates to visit: the first `number` entries of an array."""

    coordinates: Int[Array, "coordinates"]
    number: Int[Array, ""]


class _Pick(NamedTuple):
    """The current pick of each chain: the picks left, including this one, and its coordinate's bracket of angles."""

    left: Int[Array, "chains"]
    tries: Int[Array, "chains"]
    coordinate: Int[Array, "chains"]
    here: Float[Array, "chains"]
    other: Float[Array, "chains"]
    level: Float[Array, "chains"]
    angle: Float[Array, "chains"]
    low: Float[Array, "chains"]
    high: Float[Array, "chains"]

    @property
    def tried(self) -> Float[Array, "chains"]:
        """The proposal: the coordinate's value at the angle."""
        return self.here * jnp.cos(self.angle) + self.other * jnp.sin(self.angle)


def visit(
    key: PRNGKeyArray, state: State, evaluate: Evaluate, visited: Visited, picks: Int[Array, ""]
) -> tuple[State, Int[Array, ""]]:
    """Let every chain of positive likelihood visit `picks` coordinates; also the most evaluations any chain needed."""
    chains = jnp.arange(state.evaluation.log_likelihood.shape[0])
    key_first, key_free, key = jax.random.split(key, 3)
    picks = jnp.where(visited.number > 0, picks, 0)

    def next_pick(key: PRNGKeyArray, state: State, pick: _Pick, moves_on: Bool[Array, "chains"]) -> _Pick:
        """Draw a new pick for the chains that move on."""
        which, turned, angled, sliced = jax.random.split(key, 4)
        drawn = jax.random.randint(which, chains.shape, 0, jnp.maximum(visited.number, 1))
        coordinate = visited.coordinates[drawn]
        angle = jax.random.uniform(angled, chains.shape, maxval=2 * jnp.pi)
        level = state.evaluation.log_likelihood + jnp.log(jax.random.uniform(sliced, chains.shape))
        here, other = state.position[coordinate, chains], jax.random.normal(turned, chains.shape)
        fresh = _Pick(pick.left - 1, 0 * pick.tries, coordinate, here, other, level, angle, angle - 2 * jnp.pi, angle)
        return jax.tree.map(lambda new, old: jnp.where(moves_on, new, old), fresh, pick)

    def is_free(state: State, pick: _Pick) -> Bool[Array, "chains"]:
        ceiling = state.evaluation.ceiling[pick.coordinate, chains]
        return (pick.left > 0) & (pick.tries == 0) & (pick.here < ceiling) & (pick.tried < ceiling)

    def skip_free(key: PRNGKeyArray, state: State, pick: _Pick) -> tuple[State, _Pick]:
        """Make all moves that need no evaluation."""

        def move(carry: tuple[Array, State, _Pick]) -> tuple[Array, State, _Pick]:
            count, state, pick = carry
            free = is_free(state, pick)
            state = _move(state, pick, chains, free)
            return count + 1, state, next_pick(jax.random.fold_in(key, count), state, pick, free)

        _, state, pick = jax.lax.while_loop(
            lambda carry: jnp.any(is_free(*carry[1:])), move, (jnp.array(0), state, pick)
        )
        return state, pick

    def work(carry: tuple[Array, State, _Pick]) -> tuple[Array, State, _Pick]:
        """Evaluate one proposal of every chain, then make all moves that need no further evaluation."""
        count, state, pick = carry
        picking, shrinking, skipping = jax.random.split(jax.random.fold_in(key, count), 3)
        evaluation = evaluate(state.position.at[pick.coordinate, chains].set(pick.tried))
        active = pick.left > 0
        accept = active & (evaluation.log_likelihood > pick.level)
        state = _move(state, pick, chains, accept)
        state = state._replace(
            evaluation=jax.tree.map(lambda a, b: jnp.where(accept, a, b), evaluation, state.evaluation)
        )
        pick = next_pick(picking, state, _shrunk(shrinking, pick), accept | (active & (pick.tries >= MOST_TRIES)))
        return count + 1, *skip_free(skipping, state, pick)

    nothing = jnp.zeros(chains.shape)
    none = jnp.zeros_like(chains)
    lost = jnp.isneginf(state.evaluation.log_likelihood)  # such a chain has no slice
    pick = _Pick(jnp.where(lost, 0, picks) + 1, none, none, *(nothing,) * 6)
    pick = next_pick(key_first, state, pick, none == 0)
    begin = (jnp.array(0), *skip_free(key_free, state, pick))
    count, state, _ = jax.lax.while_loop(lambda carry: jnp.any(carry[2].left > 0), work, begin)
    return state, count


def _move(state: State, pick: _Pick, chains: Int[Array, "chains"], which: Bool[Array, "chains"]) -> State:
    """Move some chains to their proposals."""
    value = jnp.where(which, pick.tried, state.position[pick.coordinate, chains])
    return state._replace(position=state.position.at[pick.coordinate, chains].set(value))


def _shrunk(key: PRNGKeyArray, pick: _Pick) -> _Pick:
    """Shrink the bracket to the rejected angle and draw the next angle from it."""
    low = jnp.where(pick.angle < 0, pick.angle, pick.low)
    high = jnp.where(pick.angle < 0, pick.high, pick.angle)
    angle = low + jax.random.uniform(key, low.shape) * (high - low)
    return pick._replace(tries=pick.tries + 1, angle=angle, low=low, high=high)


def refresh(key: PRNGKeyArray, state: State) -> State:
    """Rotate the idle coordinates independently."""
    turned, angled = jax.random.split(key)
    position, ceiling = state.position, state.evaluation.ceiling
    angle = jax.random.uniform(angled, position.shape, maxval=2 * jnp.pi)
    there = position * jnp.cos(angle) + jax.random.normal(turned, position.shape) * jnp.sin(angle)
    stays_idle = (position < ceiling) & (there < ceiling)
    return state._replace(position=jnp.where(stays_idle, there, position))
