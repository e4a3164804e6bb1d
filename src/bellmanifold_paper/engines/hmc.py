"""Hamiltonian Monte Carlo tuned as in the paper's Appendix B.1, for many chains at once.

A move draws a momentum p ~ N(0, M), where M is the inverse of the variances, takes leapfrog steps

    p <- p + step/2 grad log density(x),   x <- x + step M^-1 p,   p <- p + step/2 grad log density(x)

and is accepted with probability min(1, exp(-energy change)), where energy = p M^-1 p / 2 - log density(x). The random
numbers and their keys are those of BlackJAX's kernel; the tests compare the two. One `episode` consists of

1. warm-up: `windows` windows of `window` iterations. After each window the step size is multiplied by `increase[0]` if
   the window's mean acceptance probability was above the target and by `decrease[0]` otherwise. Once the acceptance has
   crossed the target, that is, from the first window that lies on the other side of it than the previous window, the
   factors are `increase[1]` and `decrease[1]`;
2. sampling: the step size is fixed at that of the last window above the target (or the final one if there was none),
   and the chain continues with it; these points are returned;
3. preconditioning: the variance of each coordinate over the last `kept` points becomes the inverse mass matrix of the
   next episode, in which a step moves each coordinate in proportion to its standard deviation.

Position, step size and variances are the state that is passed to the next episode, whose log density may differ. A
coordinate that did not move at all keeps its variance: 0 would freeze it forever, and the paper does not cover this.

Each chain has its own key, state and argument of the log density, along the leading axis. Chains never interact, so a
batch gives the same results as its chains one by one. A move is only a few hundred additions, and dispatching them
takes as long as computing them. So all chains move in one program, in which they lie along the last axis, where one
read serves them all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

Positions = Float[Array, "dimension chains"]
Numbers = Float[Array, "chains"]
LogDensity = Callable[[Positions, Any], Numbers]
"""Log density of each chain's position, given an argument (any tree of arrays) with chains along the last axis."""
DIVERGENT = 1000.0
"""A move whose energy rises by more than this is divergent."""

PAPER_STEPS = {0.01: 1e-4, 0.1: 5e-3, 0.2: 0.01, 0.5: 0.03, 1.0: 0.05, 5.0: 0.1}
"""Tolerance -> initial step size at prior scale 10 (the paper's table of step sizes)."""


class Tuning(NamedTuple):
    """Settings of an episode; the defaults are the paper's.

    Attributes:
        windows, window: number of warm-up windows, and of iterations in each.
        leapfrogs: leapfrog steps per iteration.
        target: target acceptance probability.
        increase, decrease: factors of the step size, before and after the target has been crossed.
        kept: number of last points from which the variances are computed.
    """

    windows: int = 10
    window: int = 100
    leapfrogs: int = 10
    target: float = 0.7
    increase: tuple[float, float] = (1.3, 1.1)
    decrease: tuple[float, float] = (0.7, 0.8)
    kept: int = 500


PAPER = Tuning()
RETUNED = Tuning(decrease=(0.5, 0.7))
"""The paper's second attempt at tolerances 0.01 and 0.1."""


class State(NamedTuple):
    """State of tuned chains (HMC or NUTS), passed from episode to episode; variances are the inverse mass matrix."""

    position: Float[Array, "*chains dimension"]
    step_size: Float[Array, "*chains"]
    variance: Float[Array, "*chains dimension"]


class Info(NamedTuple):
    """Diagnostics of an episode.

    Attributes:
        window_acceptance: mean acceptance probability of each warm-up window, shape (chains, windows).
        window_step_size: step size of each warm-up window, shape (chains, windows).
        acceptance: acceptance probability of each iteration after warm-up, shape (chains, draws).
        is_divergent: whether that iteration was divergent, shape (chains, draws).
    """

    window_acceptance: Float[Array, "*chains windows"]
    window_step_size: Float[Array, "*chains windows"]
    acceptance: Float[Array, "*chains draws"]
    is_divergent: Bool[Array, "*chains draws"]


def first_step_size(epsilon: float, prior_scale: float = 10.0) -> float:
    """The paper's initial step size for a tolerance; ten times larger for a prior scale of 1.

    For a tolerance outside the table, the nearest entry (in ratio) is scaled in proportion. The published runs use only
    prior scales 10 and 1; other scales take the step size of the nearer of the two.

    >>> first_step_size(0.1), first_step_size(10.0), first_step_size(0.5, prior_scale=1.0)
    (0.005, 0.2, 0.3)
    """
    nearest = min(PAPER_STEPS, key=lambda entry: abs(float(np.log(entry / epsilon))))
    step = PAPER_STEPS[nearest] * (epsilon / nearest)
    return 10 * step if prior_scale < np.sqrt(10.0) else step


def init(position: Float[Array, "chains dimension"], step_size: float | Numbers) -> State:
    """Start chains at given positions, without preconditioning."""
    steps = jnp.asarray(step_size, dtype=position.dtype)
    return State(position, jnp.broadcast_to(steps, position.shape[:1]), jnp.ones_like(position))


def episode(
    key: Key[Array, "chains"], state: State, log_density: LogDensity, argument: Any, draws: int, tuning: Tuning = PAPER
) -> tuple[State, Float[Array, "chains draws dimension"], Info]:
    """Tune every chain and sample: the state for the next episode, the points after warm-up, and diagnostics.

    The argument, a tree of arrays, has chains along its leading axis; it is passed to the log density with chains along
    the last. Without warm-up windows the step size stays as it is.
    """
    last, own = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), (state, argument))
    found = _episode(key, last, lambda position: log_density(position, own), draws, tuning)
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), found)


def _episode(
    key: Key[Array, "chains"], state: State, log_density: Callable[[Array], Array], draws: int, tuning: Tuning
) -> tuple[State, Array, Info]:
    """`episode` with chains along the last axis; warm-up and sampling share a loop, so the move is compiled once."""
    warm_up = tuning.windows * tuning.window
    move = _Move(log_density, state.variance, tuning.leapfrogs)

    def iterate(
        carry: tuple[_Chains, _Rule], drawn: tuple[Array, Array, Array]
    ) -> tuple[tuple[_Chains, _Rule], _Record]:
        (chains, rule), (iteration, normals, uniform) = carry, drawn
        there, lost = move.propose(chains, normals, rule.step_size)
        chance = jnp.clip(jnp.exp(lost), max=1.0)
        chains = jax.tree.map(partial(jnp.where, uniform < chance), there, chains)
        record = _Record(chains.position, chance, -lost > DIVERGENT, rule.step_size)
        total = rule.total + chance
        adjusted = _adjust(rule, total / tuning.window, tuning)
        fixed = jnp.where(jnp.isnan(adjusted.last_good), adjusted.step_size, adjusted.last_good)
        adjusted = adjusted._replace(step_size=jnp.where(iteration + 1 == warm_up, fixed, adjusted.step_size))
        window_ends = (iteration < warm_up) & ((iteration + 1) % tuning.window == 0)
        after = jax.tree.map(partial(jnp.where, window_ends), adjusted, rule._replace(total=total))
        return (chains, after), record

    zero = jnp.zeros_like(state.step_size)
    rule = _Rule(state.step_size, zero, jnp.nan * zero, zero, zero > 0)
    drawn = (jnp.arange(warm_up + draws), *_draw(key, warm_up + draws, len(state.position)))
    (chains, rule), record = jax.lax.scan(iterate, (move.start(state.position), rule), drawn)
    points = record.position[warm_up:]
    spread = jnp.var(points[-tuning.kept :], axis=0)
    variance = jnp.where((spread > 0) & jnp.isfinite(spread), spread, state.variance)
    by_window = record.acceptance[:warm_up].reshape(tuning.windows, tuning.window, len(key))
    info = Info(
        window_acceptance=jnp.mean(by_window, axis=1),
        window_step_size=record.step_size[: warm_up : tuning.window],
        acceptance=record.acceptance[warm_up:],
        is_divergent=record.is_divergent[warm_up:],
    )
    return State(chains.position, rule.step_size, variance), points, info


def _draw(
    key: Key[Array, "chains"], iterations: int, dimension: int
) -> tuple[Float[Array, "iterations dimension chains"], Float[Array, "iterations chains"]]:
    """The normal and uniform numbers of all moves, in advance: drawing them move by move is several times slower."""

    def of_chain(key: PRNGKeyArray) -> tuple[Array, Array]:
        keys = jax.vmap(jax.random.split)(jax.random.split(key, iterations))
        normals = jax.vmap(lambda own: jax.random.normal(own, (dimension,)))(keys[:, 0])
        return normals, jax.vmap(jax.random.uniform)(keys[:, 1])

    return jax.vmap(of_chain, out_axes=-1)(key)


class _Chains(NamedTuple):
    """Positions of the chains, with their log densities and gradients."""

    position: Positions
    log_density: Numbers
    gradient: Positions


class _Move(NamedTuple):
    """The proposal of HMC, for all chains along the last axis."""

    log_density: Callable[[Array], Array]
    variance: Positions
    leapfrogs: int

    def gradient(self, position: Positions) -> Positions:
        """Gradient of each chain's log density."""
        return jax.grad(lambda x: jnp.sum(self.log_density(x)))(position)

    def start(self, position: Positions) -> _Chains:
        """The chains at given positions."""
        return _Chains(position, self.log_density(position), self.gradient(position))

    def propose(self, chains: _Chains, normals: Positions, step: Numbers) -> tuple[_Chains, Numbers]:
        """The proposals, and the energy that each move loses: minus infinity if that is NaN."""

        def leapfrog(_: Int[Array, ""], at: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            position, momentum, gradient = at
            momentum = momentum + 0.5 * step * gradient
            position = position + step * (self.variance * momentum)
            gradient = self.gradient(position)
            return position, momentum + 0.5 * step * gradient, gradient

        momentum = normals / jnp.sqrt(self.variance)
        begin = (chains.position, momentum, chains.gradient)
        position, left, gradient = jax.lax.fori_loop(0, self.leapfrogs, leapfrog, begin)
        there = _Chains(position, self.log_density(position), gradient)
        kinetic, remaining = (0.5 * jnp.sum(self.variance * p * p, axis=0) for p in (momentum, left))
        lost = kinetic - chains.log_density - (remaining - there.log_density)
        return there, jnp.where(jnp.isnan(lost), -jnp.inf, lost)


class _Record(NamedTuple):
    """Record of one iteration."""

    position: Float[Array, "*iterations dimension chains"]
    acceptance: Float[Array, "*iterations chains"]
    is_divergent: Bool[Array, "*iterations chains"]
    step_size: Float[Array, "*iterations chains"]


class _Rule(NamedTuple):
    """State of the tuning.

    Attributes:
        step_size: the current one.
        total: sum of the window's acceptance probabilities so far.
        last_good: the last step size whose window was above the target; NaN if there was none.
        side: the previous window's side of the target: 1 above, -1 below, 0 if there is no previous window.
        crossed: whether the acceptance has crossed the target.
    """

    step_size: Numbers
    total: Numbers
    last_good: Numbers
    side: Numbers
    crossed: Bool[Array, "chains"]


def _adjust(rule: _Rule, acceptance: Numbers, tuning: Tuning) -> _Rule:
    """The state at the start of the next window, given the mean acceptance probability of this one."""
    above = acceptance > tuning.target
    side = jnp.where(above, 1.0, -1.0)
    crossed = rule.crossed | (rule.side == -side)
    increase = jnp.where(crossed, tuning.increase[1], tuning.increase[0])
    decrease = jnp.where(crossed, tuning.decrease[1], tuning.decrease[0])
    return _Rule(
        step_size=rule.step_size * jnp.where(above, increase, decrease),
        total=jnp.zeros_like(rule.total),
        last_good=jnp.where(above, rule.step_size, rule.last_good),
        side=side,
        crossed=crossed,
    )
