"""Walking the chart of a large cyclic problem, one chain after the other on sparse linear systems.

The coordinates are those of `bellmanifold.posteriors.batch_walk`, and the moves nearly the same: residuals (and an
unknown noise scale) turn together, unobserved values are visited one at a time, and idle ones are redrawn from their
conditional distribution, a normal below a ceiling. A visit that stays idle costs nothing; any other changes one value
but rarely the policy, so policy iteration starts from the policy of a nearby point and reuses its factorised chain.

Two details of visits make chains mix faster. Values are visited in turn, not at random, so none waits long. And a visit
is a slice step on the line, not on an ellipse: the bracket starts as the whole line, points are drawn from the prior
within it, and it shrinks towards the current value. Where k unobserved pairs of a state share a coordinate, the
posterior lies in the lower tail of the prior of their largest, and an ellipse through x and a normal number nu does not
reach beyond sqrt(x^2 + nu^2), so moving down would take many visits.

Where a solved pair mostly stays (at a wall of a grid), leaving with probability L, the mode in which the policy does
not choose to leave has little prior mass and a likelihood of up to 1/L: slices that begin there rarely leave it. Let c
be the value of the state without the unobserved value x, given all else, and p the prior probability of a value below
c. Below c the likelihood does not depend on x. So after its visit such a value is *flipped*: from above to a prior draw
below c, with acceptance ratio L(below) p / (L(x) (1 - p)), and from below to a prior draw above c, with the inverse.

Such pairs also slow down values of the states that they leave for. Where such a value x is high, its neighbours at the
wall wait until they slip there, and each multiplies the likelihood by up to 1/L: a narrow mode in the upper tail of the
prior with a weight of hundreds. Where it begins depends on all else, and finding out would take many evaluations. So
an *awaited* value leaps over a bound b that is drawn independently of it: from above to a prior draw below b, from
below to one above. Let a be the prior probability of lying above b. For every b this is a Metropolis step that leaves
the posterior invariant: from x > b the point y < b is proposed with density pi(y) / (1 - a), on the way back x with
pi(x) / a, so pi(y) L(y) and pi(x) L(x) are in balance if the acceptance ratio is L(y) (1 - a) / (L(x) a), and its
inverse from below. Choosing among such steps independently of the chain's position leaves the posterior invariant as
well. The logarithm of a is uniform, since it is unknown how far out the mode lies.

Points are evaluated by `bellmanifold.posteriors.sparse_system`; where laws are open, each chain has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from jaxtyping import Bool
from scipy.special import log_ndtr, ndtri_exp

from bellmanifold._util.progress import advance
from bellmanifold.gaussian.between import normal_between
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.result import Moments
from bellmanifold.posteriors.sparse_laws import Drawer, SparseLaws
from bellmanifold.posteriors.sparse_system import SparseSystem, State
from bellmanifold.posteriors.trace import Trace, Welford
from bellmanifold.posteriors.walker import PICKS, Draw, Ends, Walker

MOST_SHRINKS = 200
LOWEST = -37.0
"""A standard normal number below any that matters."""
NEVER = 1e-12
"""A value is not flipped if its prior probability of lying above the ceiling is smaller than this."""
LIKELY, RARE = 0.5, 1e-3
"""Bounds for leaps are exceeded with prior probabilities between these."""
LAWS_SHARE = 0.25
"""Share of the steps that propose laws, which take the longest."""
ROWS = 2
"""Number of times such a step proposes laws of any pairs: of one, two, four ... of them, or of all."""
KEPT_EVERY = 4
"""Thinning: one point in this many steps of a chain is kept."""


class SparseWalker(Walker):
    """Chains that move one after the other; they continue `before`, chains with fewer data, if given."""

    least = 20

    def __init__(
        self, coordinates: Coordinates, rng: np.random.Generator, chains: int, before: SparseWalker | None = None
    ) -> None:
        self.coordinates, self.chains, self.is_fresh = coordinates, chains, before is None
        self.system = SparseSystem(coordinates)
        self.visited, self.ignores_residuals = len(self.system.free), coordinates.target.is_exact
        self.most = 2**62 if self.system.ignores_residuals else self.least  # the latter where steps are expensive
        if before is None:
            self.states = [self._begun(rng) for _ in range(chains)]
        else:
            self.states = [self._carry(rng, before.system, old) for old in before.states]
        self._shown = [state.q for state in self.states]  # values with ties split

    def _begun(self, rng: np.random.Generator) -> State:
        """A new chain."""
        x, drawer = rng.standard_normal(self.system.size), self.system.drawer
        laws = None if drawer is None else drawer.draw(rng)
        return self.system.evaluate(x, None, laws)

    def _carry(self, rng: np.random.Generator, old: SparseSystem, was: State) -> State:
        """A chain with more data: keeps the values of earlier coordinates, and laws without new landings."""
        new, model, drawer = self.system, self.coordinates.target.model, self.system.drawer
        x = rng.standard_normal(new.size)
        value, residual = np.full((2, model.n_pairs), np.nan)
        value[old.free] = was.x[: len(old.free)]
        residual[old.residual] = was.x[len(old.free) : len(old.free) + len(old.residual)]
        scale = was.x[len(was.x) - self.coordinates.scales :]
        kept = np.concatenate([value[old.coordinates.stand_in[new.free]], residual[new.residual], scale])
        laws = None if drawer is None else drawer.carry(rng, old.drawer, was.laws)
        return new.evaluate(np.where(np.isnan(kept), x, kept), was.policy, laws)._replace(visits=was.visits)

    def advance(self, rng: np.random.Generator, steps: int) -> None:
        for chain in range(self.chains):
            for _ in range(steps):
                self.states[chain] = step(self.system, self.states[chain], rng)
                advance("steps")
            self._shown[chain] = self.system.with_ties_split(self.states[chain], rng)

    def draw(self, chain: int) -> Draw:
        model, q = self.coordinates.target.model, self.states[chain].q
        mean, _ = self.system.member_moments(q)
        at_start = float(model.initial @ np.nan_to_num(model.best(q)))
        return Draw(model.greedy(self._shown[chain]), at_start, mean[self.coordinates.stand_in])

    def ends(self, kept: Bool[np.ndarray, "chains"] | None = None) -> Ends:
        kept = np.array([np.isfinite(state.log_likelihood) for state in self.states]) if kept is None else kept
        scale = [[self.system.noise_scale(state.x) for state in self.states]] * self.coordinates.scales
        q = np.stack([state.q for state in self.states], axis=1)
        return Ends(kept, q[:, kept], np.reshape(scale, (-1, self.chains))[:, kept], None)

    def record(self, rng: np.random.Generator, steps: int, keeps: bool = False) -> Trace:
        target = self.coordinates.target
        model, coupled, scales = target.model, target.coupled, self.coordinates.scales
        found = np.flatnonzero(self.ends().kept)
        policies = np.zeros((len(found), steps, int(coupled.sum())), dtype=np.int64)
        values = np.zeros((len(found), steps, int(coupled.sum()) + scales))
        nothing = np.zeros(model.n_pairs + len(self.system.tracked_values(self.states[0])))
        mean, square = np.zeros((2, len(found), len(nothing)))
        points = []
        for number, chain in enumerate(found):
            moments, here = Welford(0.0, nothing, nothing), self.states[chain]
            for k in range(steps):
                here = step(self.system, here, rng)
                advance("steps")
                if keeps and k % KEPT_EVERY == 0:
                    points.append(here.q)
                policies[number, k] = model.greedy(self.system.with_ties_split(here, rng))[coupled]
                eta = [self.system.noise_scale(here.x)] * scales
                values[number, k] = np.append(model.best(here.q)[coupled], eta)
                own, variance = self.system.member_moments(here.q)
                followed = self.system.tracked_values(here)
                moments = moments.with_one_more(np.append(own, followed), np.append(variance, np.zeros(len(followed))))
            self.states[chain] = here
            mean[number], square[number] = moments.mean, moments.square
        rows, row = np.unique(np.concatenate([*policies, policies[:0, 0]]), axis=0, return_inverse=True)
        return Trace(
            policy=rows,
            row=row.reshape(len(found), steps),
            value=values,
            scales=scales,
            moments=Moments(np.full(len(found), float(steps)), mean, square).standing(self.coordinates.stand_in),
            chain=found,
            lost=self.chains - len(found),
            points=np.stack(points, axis=1) if points else None,
        )


def step(system: SparseSystem, here: State, rng: np.random.Generator) -> State:
    """One step: sometimes propose laws; turn residuals, visit the next few values, and refresh idle ones."""
    before = here.visits
    if here.laws is not None and rng.random() < LAWS_SHARE:
        here = propose_laws(system, here, rng)
    if (len(system.residual) or system.coordinates.scales) and not system.ignores_residuals:
        here = turn(system, here, rng)
    visits = PICKS if len(system.free) and np.isfinite(here.log_likelihood) else 0
    for count in range(before, before + visits):
        which = count % len(system.free)
        here = visit(system, here, which, rng)
        if system.lingers[which]:
            here = flip(system, here, which, rng)
        if system.awaited[which]:
            here = leap(system, here, which, rng)
    return refresh(system, here, rng)._replace(visits=before + visits) if here.policy is not None else here


def propose_laws(system: SparseSystem, here: State, rng: np.random.Generator) -> State:
    """Draw the concentration given the laws; propose laws of idle pairs, all at once, and laws of any pairs.

    Many laws nearly determine the concentration, so it is also proposed together with all laws, given landings alone.
    """
    drawer = system.drawer
    assert drawer is not None, "laws are open"
    assert here.laws is not None, "the chain has laws"
    here = here._replace(laws=replace(here.laws, concentration=drawer.concentration_given(rng, here.laws)))
    if here.policy is not None:
        here = _swap_idle(system, drawer, here, rng)
    here = _accept_laws(system, here, drawer.draw(rng), rng)
    rows = len(drawer.total)
    for _ in range(ROWS):
        assert here.laws is not None, "the chain has laws"
        some = rng.choice(rows, size=min(rows, 1 << int(rng.integers(rows.bit_length() + 1))), replace=False)
        laws = here.laws.with_rows(drawer.draw(rng, here.laws.concentration, some), some)
        here = _accept_laws(system, here, laws, rng)
    return here


def _accept_laws(system: SparseSystem, here: State, laws: SparseLaws, rng: np.random.Generator) -> State:
    """Accept laws that were drawn from their distribution given landings with the ratio of the weights, or stay."""
    there = system.evaluate(here.x, here.policy, laws)
    is_lost = not np.isfinite(here.log_likelihood)
    return there if is_lost or there.log_likelihood - here.log_likelihood > np.log(rng.random()) else here


def _swap_idle(system: SparseSystem, drawer: Drawer, here: State, rng: np.random.Generator) -> State:
    """Propose the laws of all pairs that are not greedy; where a pair stays so, only its own value changes."""
    laws, model = drawer.laws, system.target.model
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
    """A slice step of one unobserved value."""
    was = float(here.x[which])
    level = here.log_likelihood + np.log(rng.random())
    low, high = -np.inf, np.inf
    for _ in range(MOST_SHRINKS):
        tried = normal_between(low, high, rng.random())
        there = _at(system, here, which, tried)
        if there.log_likelihood > level:
            return there
        del there  # large, and the next one is as large
        low, high = (tried, high) if tried < was else (low, tried)
    return here


def _at(system: SparseSystem, here: State, which: int, number: float) -> State:
    """The point with another number for one unobserved value; if that stays idle, nothing else changes."""
    model, pair = system.target.model, system.free[which]
    state = model.pair_state[pair]
    assert here.policy is not None, "the chain has found a point of positive likelihood"
    x, value = here.x.copy(), system.value(number, which)
    x[which] = number
    ceiling = here.q[model.pair_start[state] : model.pair_start[state + 1]].max()
    if here.policy[state] == pair or value >= ceiling:
        return system.moved(here, x, which, value)
    q = here.q.copy()
    q[pair] = value
    return here._replace(x=x, q=q)


def refresh(system: SparseSystem, here: State, rng: np.random.Generator) -> State:
    """Redraw all idle unobserved values; the largest of k exchangeable ones is below t with probability Phi(t)^k."""
    target, free = system.target, system.free
    state = target.model.pair_state[free]
    assert here.policy is not None, "the chain has found a point of positive likelihood"
    best = np.maximum.reduceat(here.q[system.beside], system.beside_start) if len(free) else np.zeros(0)
    ceiling = (best - system.prior.mean[free]) / system.prior.sd[free]
    log_below = np.log(rng.random(len(free))) + system.alternatives * log_ndtr(ceiling)
    is_idle = here.policy[state] != free
    x, q = here.x.copy(), here.q.copy()
    x[: len(free)] = np.where(is_idle, ndtri_exp(log_below), x[: len(free)])
    q[free] = np.where(is_idle, system.values(x), q[free])
    return here._replace(x=x, q=q)


def _slice(here: State, at: Callable[[float], State], rng: np.random.Generator) -> State:
    """Shrink a bracket of angles towards 0, the current point, until a point lies above the slice level."""
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


def flip(system: SparseSystem, here: State, which: int, rng: np.random.Generator) -> State:
    """Propose that a value falls below its state's value without it, or rises above that; see above."""
    model, pair, k = system.target.model, system.free[which], int(system.alternatives[which])
    state = model.pair_state[pair]
    assert here.policy is not None, "the chain has found a point of positive likelihood"
    x = here.x.copy()
    without = here
    if here.policy[state] == pair:
        x[which] = LOWEST
        without = system.evaluate(x, here.policy, here.laws)
        if without.policy is None or without.policy[state] == pair:
            return here
    best = float(model.best(without.q)[state])
    ceiling = (best - float(system.prior.mean[pair])) / float(system.prior.sd[pair])
    log_below = k * float(log_ndtr(ceiling))
    if log_below > -NEVER:
        return here
    log_odds = log_below - float(np.log(-np.expm1(log_below)))
    edge = float(ndtri_exp(log_below))
    if without is here:
        x[which] = normal_between(edge, np.inf, rng.random())
        there, log_odds = system.evaluate(x, here.policy, here.laws), -log_odds
    else:
        x[which] = normal_between(-np.inf, edge, rng.random())
        q = without.q.copy()
        q[pair] = system.value(float(x[which]), which)
        there = without._replace(x=x, q=q)
    return there if there.log_likelihood - here.log_likelihood + log_odds > np.log(rng.random()) else here


def leap(system: SparseSystem, here: State, which: int, rng: np.random.Generator) -> State:
    """Propose that a value falls below a bound drawn independently of it, or rises above that; see above."""
    log_above = float(np.log(LIKELY) + rng.random() * np.log(RARE / LIKELY))
    bound, log_odds = -float(ndtri_exp(log_above)), float(np.log(-np.expm1(log_above))) - log_above
    falls = here.x[which] > bound
    low, high = (-np.inf, bound) if falls else (bound, np.inf)
    there = _at(system, here, which, normal_between(low, high, rng.random()))
    log_ratio = there.log_likelihood - here.log_likelihood + (log_odds if falls else -log_odds)
    return there if log_ratio > np.log(rng.random()) else here
