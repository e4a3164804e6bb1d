"""Walking the chart of a large cyclic problem, one chain after the other on sparse linear systems.

The same coordinates and the same moves as `bellmanifold.posteriors.batch_walk`: residuals (and an unknown noise scale)
turn together, some unobserved values are visited one at a time, idle ones are drawn anew from their law, a normal below
a ceiling. A visit that stays idle costs nothing; one that does not changes one value, hardly ever the policy, so that
policy iteration starts from the policy of a point nearby and its factorised chain serves again.

Where laws are open (`bellmanifold.posteriors.sparse_laws`) each chain has its own, and a chart of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr, ndtri_exp

from bellmanifold.chart.sparse import SparseChart, sparse_chart
from bellmanifold.gaussian.exchangeable import largest_of_normals, member_moments
from bellmanifold.graph import Policy
from bellmanifold.kernels import Gaussian
from bellmanifold.meter import advance
from bellmanifold.posteriors.batch_walk import PICKS
from bellmanifold.posteriors.coordinates import TIE_WIDTH, Coordinates
from bellmanifold.posteriors.noise_scale import combined
from bellmanifold.posteriors.result import Moments
from bellmanifold.posteriors.sparse_laws import Drawer, SparseLaws
from bellmanifold.posteriors.trace import Draw, Trace, Welford

MOST_SHRINKS = 200
CHARTS = 3
"""Charts that are kept, one for each point's laws."""
LAWS_SHARE = 0.25
"""The share of the steps that propose laws: these take the longest."""
ROWS = 2
"""How often such a step proposes laws of pairs that may be greedy: of one, two, four ... of them, or of all."""
KEPT_EVERY = 4
"""Steps between two points of a chain that are kept."""
TILT = 1e-4
"""Infinitesimal residuals, which split ties, may change the log density by this much; beyond it the prior is taken at
the solution without them."""


class State(NamedTuple):
    """Where a chain is: coordinates, action values, log likelihood, greedy policy, and laws where they are open."""

    x: Float[np.ndarray, "coordinates"]
    q: Float[np.ndarray, "pairs"]
    log_likelihood: float
    policy: Policy | None
    laws: SparseLaws | None = None


class SparseSystem:
    """A posterior in its coordinates on a sparse chart: values of free pairs, residuals, noise scale, in this order."""

    def __init__(self, coordinates: Coordinates) -> None:
        target = coordinates.target
        self.coordinates, self.target, self.prior = coordinates, target, target.prior
        self.free, self.residual = np.flatnonzero(coordinates.free), np.flatnonzero(coordinates.residual)
        self.solved = np.flatnonzero(coordinates.solved)
        self.chart: SparseChart = sparse_chart(target.model, target.observed, coordinates.free)
        self.drawer = None if target.laws is None else Drawer(target.laws)
        self._charts: OrderedDict[int, tuple[SparseLaws, SparseChart]] = OrderedDict()
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

    def chart_with(self, laws: SparseLaws) -> SparseChart:
        """The chart for some laws of the open pairs; the last few are kept."""
        assert self.target.laws is not None, "some laws are open"
        if id(laws) not in self._charts:
            while len(self._charts) >= CHARTS:
                self._charts.popitem(last=False)
            model = laws.applied(self.target.laws, self.target.model)
            self._charts[id(laws)] = laws, sparse_chart(model, self.target.observed, self.coordinates.free)
        self._charts.move_to_end(id(laws))
        return self._charts[id(laws)][1]

    def evaluate(
        self, x: Float[np.ndarray, "coordinates"], start: Policy | None, laws: SparseLaws | None = None
    ) -> State:
        """Evaluate a point, starting from a policy near it."""
        target, model, kernel = self.target, self.target.model, self.target.kernel
        chart = self.chart if laws is None else self.chart_with(laws)
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
        point = chart.solve(payment, value, start)
        if point.policy is None and splits:  # infinitesimal residuals must not undo a loop that costs less
            point = chart.solve(plain, value, start)
        del payment, value  # large; unobserved values are in q as well
        if point.policy is None:
            return State(x, point.q, -np.inf, None, laws)
        if target.prior.flat:
            return State(x, point.q, correction, point.policy, laws)
        square = self._squares(point.q)
        if splits and TIE_WIDTH * square > TILT:
            square = self._squares(chart.solve(plain, point.q, point.policy).q)
        return State(x, point.q, correction - 0.5 * square - point.log_det, point.policy, laws)

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
        with np.errstate(over="ignore"):  # a loop that is hardly ever left may be worth more than numbers hold
            return float(np.square(self.prior.standardised(q)[self.solved]).sum())

    def followed(self, here: State) -> Float[np.ndarray, "followed"]:
        """Probabilities of landings that were seen, and the concentration."""
        if here.laws is None or self.target.laws is None:
            return np.zeros(0)
        rows, landings = self.target.laws.seen
        return np.append(np.asarray(here.laws.law[rows, landings]).ravel(), here.laws.concentration)

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
        begin: list[tuple[Float[np.ndarray, "coordinates"], Policy | None, SparseLaws | None]]
        if before is None:
            begin = [(rng.standard_normal(self.system.size), None, self._laws(rng, None, None)) for _ in range(chains)]
        else:
            begin = [
                (self._carried(before.system, old.x, rng), old.policy, self._laws(rng, before.system, old.laws))
                for old in before.states
            ]
        self.states: list[State] = [self.system.evaluate(x, policy, laws) for x, policy, laws in begin]

    def _laws(self, rng: np.random.Generator, before: SparseSystem | None, old: SparseLaws | None) -> SparseLaws | None:
        """Laws to begin with: a chain's own where no more landings were seen since, else new ones."""
        drawer = self.system.drawer
        if drawer is None:
            return None
        if before is None or before.drawer is None or old is None:
            return drawer.draw(rng, drawer.first_concentration(rng))
        return drawer.carried(rng, before.drawer, old)

    @property
    def sweep(self) -> int:
        """Steps in which a chain visits as many unobserved values as there are."""
        return -(-len(self.system.free) // PICKS)

    @property
    def ignores_residuals(self) -> bool:
        """Whether residuals, which turn once a step, hardly matter."""
        return self.coordinates.target.is_exact

    @property
    def _followed(self) -> int:
        """How many numbers are followed besides the action values."""
        laws = self.coordinates.target.laws
        return 0 if laws is None else len(laws.seen[0]) + 1

    def advance(self, rng: np.random.Generator, steps: int) -> None:
        """Walk a number of steps without recording them."""
        for chain in range(self.chains):
            for _ in range(steps):
                self.states[chain] = step(self.system, self.states[chain], rng)
                advance("steps")

    def draw(self, chain: int) -> Draw:
        """Where a chain is now."""
        model, q = self.coordinates.target.model, self.states[chain].q
        mean, _ = self.system.member_moments(q)
        at_start = float(model.initial @ np.nan_to_num(model.best(q)))
        return Draw(model.greedy(q), at_start, mean[self.coordinates.stand_in])

    def record(
        self, rng: np.random.Generator, steps: int, kept: list[Float[np.ndarray, "pairs"]] | None = None
    ) -> Trace:
        """Walk on and keep what answers need.

        Args:
            rng: fixes the steps.
            steps: of each chain.
            kept: takes the action values of every few steps, chain by chain.
        """
        target = self.coordinates.target
        model, coupled, scales = target.model, target.coupled, self.coordinates.scales
        found = [chain for chain in range(self.chains) if np.isfinite(self.states[chain].log_likelihood)]
        policies = np.zeros((len(found), steps, int(coupled.sum())), dtype=np.int64)
        values = np.zeros((len(found), steps, int(coupled.sum()) + scales))
        nothing = np.zeros(model.n_pairs + self._followed)
        ends = []
        for number, chain in enumerate(found):
            moments, here = Welford(0.0, nothing, nothing), self.states[chain]
            for k in range(steps):
                here = step(self.system, here, rng)
                advance("steps")
                if kept is not None and k % KEPT_EVERY == 0:
                    kept.append(here.q)
                policies[number, k] = model.greedy(here.q)[coupled]
                eta = [self.system.noise_scale(here.x)] * scales
                values[number, k] = np.append(model.best(here.q)[coupled], eta)
                mean, variance = self.system.member_moments(here.q)
                followed = self.system.followed(here)
                moments = moments.with_one_more(np.append(mean, followed), np.append(variance, np.zeros(len(followed))))
            self.states[chain] = here
            ends.append(moments)
        rows, row = np.unique(np.concatenate([*policies, policies[:0, 0]]), axis=0, return_inverse=True)
        kept = [np.reshape([getattr(end, name) for end in ends], (-1, len(nothing))) for name in ("mean", "square")]
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
    """Laws are proposed now and then, residuals turn, some unobserved values are visited, idle ones refreshed."""
    if here.laws is not None and rng.random() < LAWS_SHARE:
        here = propose_laws(system, here, rng)
    if len(system.residual) or system.coordinates.scales:
        here = turn(system, here, rng)
    for _ in range(PICKS if len(system.free) and np.isfinite(here.log_likelihood) else 0):
        here = visit(system, here, int(rng.integers(len(system.free))), rng)
    return refresh(system, here, rng) if here.policy is not None else here


def propose_laws(system: SparseSystem, here: State, rng: np.random.Generator) -> State:
    """A concentration given the laws; laws of pairs that stay idle, all at once; laws of any pairs, solved anew.

    Many laws hold the concentration fast, so another one is also proposed together with all laws, given landings alone.
    """
    drawer, target = system.drawer, system.target
    assert drawer is not None, "laws are open"
    assert target.laws is not None, "laws are open"
    assert here.laws is not None, "the chain has laws"
    here = here._replace(laws=replace(here.laws, concentration=drawer.concentration_given(rng, here.laws)))
    if here.policy is not None:
        here = _swap_idle(system, here, rng)
    here = _taken(system, here, drawer.draw(rng, drawer.first_concentration(rng)), rng)
    rows = len(drawer.total)
    for _ in range(ROWS):
        assert here.laws is not None, "the chain has laws"
        some = rng.choice(rows, size=min(rows, 1 << int(rng.integers(rows.bit_length() + 1))), replace=False)
        laws = here.laws.with_rows(drawer.draw(rng, here.laws.concentration, some), some)
        here = _taken(system, here, laws, rng)
    return here


def _taken(system: SparseSystem, here: State, laws: SparseLaws, rng: np.random.Generator) -> State:
    """Laws that were drawn from their distribution given landings, accepted with the ratio of the weights."""
    there = system.evaluate(here.x, here.policy, laws)
    is_lost = not np.isfinite(here.log_likelihood)
    return there if is_lost or there.log_likelihood - here.log_likelihood > np.log(rng.random()) else here


def _swap_idle(system: SparseSystem, here: State, rng: np.random.Generator) -> State:
    """Propose the laws of all pairs that are not greedy; those that stay so change nothing but their own values."""
    drawer, laws, model = system.drawer, system.target.laws, system.target.model
    assert drawer is not None, "laws are open"
    assert laws is not None, "laws are open"
    assert here.laws is not None, "the chain has laws"
    assert here.policy is not None, "the chain has found a point of positive likelihood"
    drawn = drawer.draw(rng, here.laws.concentration)
    best = np.append(model.best(here.q), 0.0)
    pairs = laws.pairs[laws.active]
    state = model.pair_state[pairs]
    value = here.q[pairs] + laws.discount * (drawn.law @ best - here.laws.law @ best)
    mean, sd = system.prior.mean[pairs], system.prior.sd[pairs]
    gain = (
        np.zeros(len(pairs)) if system.prior.flat else 0.5 * ((here.q[pairs] - mean) ** 2 - (value - mean) ** 2) / sd**2
    )
    idle = (here.policy[state] != pairs) & (value < best[state])
    taken = np.flatnonzero(idle & (np.log(rng.random(len(pairs))) < gain))
    q = here.q.copy()
    q[pairs[taken]] = value[taken]
    changed = here.log_likelihood + float(gain[taken].sum())
    return here._replace(q=q, log_likelihood=changed, laws=here.laws.with_rows(drawn, taken))


def turn(system: SparseSystem, here: State, rng: np.random.Generator) -> State:
    """An elliptical slice step of all residuals together."""
    other = rng.standard_normal(system.size - len(system.free))

    def at(angle: float) -> State:
        x = here.x.copy()
        x[system.turning] = here.x[system.turning] * np.cos(angle) + other * np.sin(angle)
        return system.evaluate(x, here.policy, here.laws)

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
            return system.evaluate(x, here.policy, here.laws)
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
