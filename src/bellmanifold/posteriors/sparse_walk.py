"""Walking the chart of a large cyclic problem, one chain after the other on sparse linear systems.

The same coordinates and the same moves as `bellmanifold.posteriors.batch_walk`: residuals (and an unknown noise scale)
turn together, some unobserved values are visited one at a time, idle ones are drawn anew from their law, a normal below
a ceiling. A visit that stays idle costs nothing; one that does not changes one value, hardly ever the policy, so that
policy iteration starts from the policy of a point nearby and its factorised chain serves again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr, ndtri_exp

from bellmanifold.chart.sparse import SparseChart, sparse_chart
from bellmanifold.gaussian.exchangeable import largest_of_normals, member_moments
from bellmanifold.graph import Policy
from bellmanifold.kernels import Gaussian
from bellmanifold.posteriors.batch_walk import PICKS
from bellmanifold.posteriors.coordinates import TIE_WIDTH, Coordinates
from bellmanifold.posteriors.noise_scale import combined
from bellmanifold.posteriors.result import Moments
from bellmanifold.posteriors.trace import Draw, Trace, Welford

MOST_SHRINKS = 200
TILT = 1e-4
"""Infinitesimal residuals, which split ties, may change the log density by this much; beyond it the prior is taken at
the solution without them."""


class State(NamedTuple):
    """Where a chain is: coordinates, action values, log likelihood and greedy policy."""

    x: Float[np.ndarray, "coordinates"]
    q: Float[np.ndarray, "pairs"]
    log_likelihood: float
    policy: Policy | None


class SparseSystem:
    """A posterior in its coordinates on a sparse chart: values of free pairs, residuals, noise scale, in this order."""

    def __init__(self, coordinates: Coordinates) -> None:
        target = coordinates.target
        self.coordinates, self.target, self.prior = coordinates, target, target.prior
        self.free, self.residual = np.flatnonzero(coordinates.free), np.flatnonzero(coordinates.residual)
        self.solved = np.flatnonzero(coordinates.solved)
        self.chart: SparseChart = sparse_chart(target.model, target.observed, coordinates.free)
        self.alternatives = coordinates.alternatives[self.free]
        self.width, self.split = target.scale[self.residual], coordinates.split[self.residual]
        self.size = coordinates.size

    @property
    def turning(self) -> slice:
        """Coordinates that turn together: residuals and the noise scale."""
        return slice(len(self.free), None)

    def noise_scale(self, x: Float[np.ndarray, "coordinates"]) -> float:
        """eta at a point; 1 where it is known."""
        table = self.target.noise_scale
        return 1.0 if table is None else float(np.exp(np.interp(x[-1], table.normal, table.log_scale)))

    def evaluate(self, x: Float[np.ndarray, "coordinates"], start: Policy | None) -> State:
        """Evaluate a point, starting from a policy near it."""
        target, model, kernel = self.target, self.target.model, self.target.kernel
        value = np.full(model.n_pairs, -np.inf)
        value[model.pair_start[:-1][~target.coupled]] = 0.0
        value[self.free] = self.values(x)
        residual = x[len(self.free) : len(self.free) + len(self.residual)]
        correction = 0.0
        if not isinstance(kernel, Gaussian):
            drawn = kernel.from_normal(jnp.asarray(residual))
            residual, correction = np.asarray(drawn), float(jnp.sum(kernel.log_correction(drawn)))
        reward, width = target.reward[self.residual], self.noise_scale(x) * self.width
        if target.own_precision is not None and target.own_mean is not None:
            own = target.own_mean[self.residual], target.own_precision[self.residual]
            reward, width = combined(reward, width, *own, np)
        plain, payment = target.reward.copy(), target.reward.copy()
        plain[self.residual] = reward + width * residual
        payment[self.residual] = plain[self.residual] + self.split * residual
        splits = bool(self.split.any())
        point = self.chart.solve(payment, value, start)
        if point.policy is None and splits:  # infinitesimal residuals must not undo a loop that costs less
            point = self.chart.solve(plain, value, start)
        del payment, value  # large; unobserved values are in q as well
        if point.policy is None:
            return State(x, point.q, -np.inf, None)
        if target.prior.flat:
            return State(x, point.q, correction, point.policy)
        square = self._squares(point.q)
        if splits and TIE_WIDTH * square > TILT:
            square = self._squares(self.chart.solve(plain, point.q, point.policy).q)
        return State(x, point.q, correction - 0.5 * square - point.log_det, point.policy)

    def values(self, x: Float[np.ndarray, "coordinates"]) -> Float[np.ndarray, "free"]:
        """The largest unobserved value of each state that has one."""
        largest = largest_of_normals(x[: len(self.free)], self.alternatives)
        return self.prior.mean[self.free] + self.prior.sd[self.free] * largest

    def value(self, x: float, which: int) -> float:
        """The value of one free pair."""
        largest = float(largest_of_normals(np.array([x]), self.alternatives[which : which + 1])[0])
        return float(self.prior.mean[self.free[which]] + self.prior.sd[self.free[which]] * largest)

    def _squares(self, q: Float[np.ndarray, "pairs"]) -> float:
        """Sum of squared standardised values of observed pairs (summed here: threads of a BLAS wait for each other)."""
        return float(np.square(self.prior.standardised(q)[self.solved]).sum())

    def member_moments(
        self, q: Float[np.ndarray, "pairs"]
    ) -> tuple[Float[np.ndarray, "pairs"], Float[np.ndarray, "pairs"]]:
        """Mean and variance of the action values, given those of pairs that stand for several as their largest."""
        mean, variance = np.where(np.isfinite(q), q, 0.0), np.zeros(len(q))
        own = (q[self.free], self.alternatives, self.prior.mean[self.free], self.prior.sd[self.free])
        mean[self.free], _ = member_moments(*own, np.zeros(len(self.free)))
        _, variance[self.free] = member_moments(*own, mean[self.free])
        return mean, variance


class SparseWalker:
    """Chains of slice steps on sparse systems; as `bellmanifold.posteriors.batch_walk.BatchWalker`."""

    least, most = 20, 20

    def __init__(
        self, coordinates: Coordinates, rng: np.random.Generator, chains: int, before: SparseWalker | None = None
    ) -> None:
        self.coordinates, self.chains, self.is_fresh = coordinates, chains, before is None
        self.system = SparseSystem(coordinates)
        begin: list[tuple[Float[np.ndarray, "coordinates"], Policy | None]]
        if before is None:
            begin = [(rng.standard_normal(self.system.size), None) for _ in range(chains)]
        else:
            begin = [(self._carried(before.system, old.x, rng), old.policy) for old in before.states]
        self.states: list[State] = [self.system.evaluate(x, policy) for x, policy in begin]

    @property
    def sweep(self) -> int:
        """Steps in which a chain visits as many unobserved values as there are."""
        return -(-len(self.system.free) // PICKS)

    @property
    def ignores_residuals(self) -> bool:
        """Whether residuals, which turn once a step, hardly matter."""
        return self.coordinates.target.is_exact

    def advance(self, rng: np.random.Generator, steps: int) -> None:
        """Walk a number of steps without recording them."""
        for chain in range(self.chains):
            for _ in range(steps):
                self.states[chain] = step(self.system, self.states[chain], rng)

    def draw(self, chain: int) -> Draw:
        """Where a chain is now."""
        model, q = self.coordinates.target.model, self.states[chain].q
        mean, _ = self.system.member_moments(q)
        at_start = float(model.initial @ np.nan_to_num(model.best(q)))
        return Draw(model.greedy(q), at_start, mean[self.coordinates.stand_in])

    def record(self, rng: np.random.Generator, steps: int) -> Trace:
        """Walk on and keep what answers need."""
        target = self.coordinates.target
        model, coupled, scales = target.model, target.coupled, self.coordinates.scales
        found = [chain for chain in range(self.chains) if np.isfinite(self.states[chain].log_likelihood)]
        policies = np.zeros((len(found), steps, int(coupled.sum())), dtype=np.int64)
        values = np.zeros((len(found), steps, int(coupled.sum()) + scales))
        nothing = np.zeros(model.n_pairs)
        ends = []
        for number, chain in enumerate(found):
            moments, here = Welford(0.0, nothing, nothing), self.states[chain]
            for k in range(steps):
                here = step(self.system, here, rng)
                policies[number, k] = model.greedy(here.q)[coupled]
                eta = [self.system.noise_scale(here.x)] * scales
                values[number, k] = np.append(model.best(here.q)[coupled], eta)
                moments = moments.with_one_more(*self.system.member_moments(here.q))
            self.states[chain] = here
            ends.append(moments)
        rows, row = np.unique(np.concatenate([*policies, policies[:0, 0]]), axis=0, return_inverse=True)
        kept = [np.reshape([getattr(end, name) for end in ends], (-1, model.n_pairs)) for name in ("mean", "square")]
        return Trace(
            policy=rows,
            row=row.reshape(len(found), steps),
            value=values,
            scales=scales,
            moments=Moments(np.full(len(found), float(steps)), *kept).standing(self.coordinates.stand_in),
            chain=np.array(found, dtype=np.int64),
            lost=self.chains - len(found),
            evaluations=None,
        )

    def _carried(
        self, old: SparseSystem, was: Float[np.ndarray, "fewer"], rng: np.random.Generator
    ) -> Float[np.ndarray, "coordinates"]:
        """A chain's coordinates with more data: what was a coordinate before keeps its number, the rest is drawn."""
        new, model = self.system, self.coordinates.target.model
        x = rng.standard_normal(new.size)
        by_state, residual = np.full(model.n_states, np.nan), np.full(model.n_pairs, np.nan)
        by_state[model.pair_state[old.free]] = was[: len(old.free)]
        residual[old.residual] = was[len(old.free) : len(old.free) + len(old.residual)]
        scale = was[len(was) - self.coordinates.scales :]
        kept = np.concatenate([by_state[model.pair_state[new.free]], residual[new.residual], scale])
        return np.where(np.isnan(kept), x, kept)


def step(system: SparseSystem, here: State, rng: np.random.Generator) -> State:
    """Residuals turn, some unobserved values are visited, idle ones refreshed."""
    here = turn(system, here, rng)
    for _ in range(PICKS if len(system.free) and np.isfinite(here.log_likelihood) else 0):
        here = visit(system, here, int(rng.integers(len(system.free))), rng)
    return refresh(system, here, rng) if here.policy is not None else here


def turn(system: SparseSystem, here: State, rng: np.random.Generator) -> State:
    """An elliptical slice step of all residuals together."""
    other = rng.standard_normal(system.size - len(system.free))

    def at(angle: float) -> State:
        x = here.x.copy()
        x[system.turning] = here.x[system.turning] * np.cos(angle) + other * np.sin(angle)
        return system.evaluate(x, here.policy)

    return _slice(here, at, rng)


def visit(system: SparseSystem, here: State, which: int, rng: np.random.Generator) -> State:
    """An elliptical slice step of one unobserved value; where it stays idle nothing else changes."""
    model, pair = system.target.model, system.free[which]
    assert here.policy is not None, "the chain has found a point of positive likelihood"
    own = slice(model.pair_start[model.pair_state[pair]], model.pair_start[model.pair_state[pair] + 1])
    is_idle, ceiling = here.policy[model.pair_state[pair]] != pair, here.q[own].max()
    other = rng.standard_normal()

    def at(angle: float) -> State:
        x = here.x.copy()
        x[which] = here.x[which] * np.cos(angle) + other * np.sin(angle)
        value = system.value(x[which], which)
        if not is_idle or value >= ceiling:
            return system.evaluate(x, here.policy)
        q = here.q.copy()
        q[pair] = value
        return here._replace(x=x, q=q)

    return _slice(here, at, rng)


def refresh(system: SparseSystem, here: State, rng: np.random.Generator) -> State:
    """All idle unobserved values anew: of k exchangeable ones the largest is below t with probability Phi(t)^k."""
    target, free = system.target, system.free
    state = target.model.pair_state[free]
    assert here.policy is not None, "the chain has found a point of positive likelihood"
    ceiling = (target.model.best(here.q)[state] - system.prior.mean[free]) / system.prior.sd[free]
    log_below = np.log(rng.random(len(free))) + system.alternatives * log_ndtr(ceiling)
    is_idle = here.policy[state] != free
    x, q = here.x.copy(), here.q.copy()
    x[: len(free)] = np.where(is_idle, ndtri_exp(log_below), x[: len(free)])
    q[free] = np.where(is_idle, system.values(x), q[free])
    return here._replace(x=x, q=q)


def _slice(here: State, at: Callable[[float], State], rng: np.random.Generator) -> State:
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
