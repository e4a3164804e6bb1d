"""Posteriors without integration: the solver's solution if everything is known, the prior if nothing is.

If every pair of the states that the data touch was observed, without noise and with a given law, an exact posterior
is a single point: the Bellman equations have one solution q. There is nothing to integrate. Means and standard
deviations are q and 0, the evidence is prod_i N(q_i; mean_i, sd_i^2) / |det A(q)|, and an action that is uniquely best
in its state has probability 1 with standard error 0. Exact ties are split as described in
`bellmanifold.posteriors.tie_split`, at scrambled nets of points and their mirror images: a tie of two actions that lead
to no other tie gives 1/2 in each point and its image together, again with standard error 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold._util.progress import expect
from bellmanifold.chart.sparse import SparseChart, sparse_chart
from bellmanifold.errors import UnsupportedError
from bellmanifold.gaussian.points import normal_points, uniform_points
from bellmanifold.mdp.graph import end_components
from bellmanifold.mdp.linear import evaluate_chain
from bellmanifold.mdp.solver import solve
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.cuts import lingering_loops
from bellmanifold.posteriors.estimated import Estimate, ratio, resolution_of
from bellmanifold.posteriors.most_probable import largest_error
from bellmanifold.posteriors.policies import PolicyTable, entries
from bellmanifold.posteriors.result import Result
from bellmanifold.posteriors.target import Target
from bellmanifold.posteriors.tie_split import Ties, tie_problem

REPLICATES = 32
FIRST = 11
"""Binary logarithm of the first number of points of each net; each point has a mirror image."""
LEAST = 2**15
"""Ties are left to walks if memory does not hold this many points."""
LEAST_DRAWS, MOST_DRAWS = 256, 8192
"""Bounds for the number of (identical) draws in `summary.draws`."""
MOST_TIED = 2048
"""Largest number of tied pairs with a dense covariance."""


@dataclass(frozen=True, eq=False)
class Known:
    """The single point of an exact posterior.

    Attributes:
        target: the posterior.
        chart: the states that the data touch, as a problem of its own.
        q: action values of its pairs, shape (own pairs,).
        policy: an optimal policy, shape (own states,).
        log_det: log |det A| of that policy.
        tied: pairs that tie for the best of their state, ascending, shape (tied pairs,).
        unique: pairs that are uniquely best in their state, ascending, shape (other states,).
    """

    target: Target
    chart: SparseChart
    q: Float[np.ndarray, "own_pairs"]
    policy: Int[np.ndarray, "own_states"]
    log_det: float
    tied: Int[np.ndarray, "tied_pairs"]
    unique: Int[np.ndarray, "other_states"]

    @cached_property
    def ties(self) -> Ties:
        """The small problem that splits the ties."""
        return tie_problem(self.chart.ended, self.tied, self.unique)

    @cached_property
    def log_weight(self) -> float:
        """Log of prior over |det A|, without the part of the determinant that differs between tied policies."""
        prior, pairs = self.target.prior, self.chart.pairs
        z = (self.q - prior.mean[pairs]) / prior.sd[pairs]
        log_prior = float((-0.5 * z**2 - np.log(np.sqrt(2.0 * np.pi) * prior.sd[pairs])).sum())
        first = np.searchsorted(self.tied, self.policy[self.ties.states])
        return log_prior - self.log_det + self.ties.log_det(first) + self.target.log_constant

    def most_points(self, budget: Budget) -> int:
        """Number of points that fit in memory."""
        return min(budget.points, budget.held // (len(self.tied) + len(self.policy)))


def everything_known(target: Target, budget: Budget) -> Known | None:
    """The single point of an exact posterior; None if it has more than one, or more ties than can be split."""
    if target.laws is not None or target.noise_scale is not None or not target.observed[target.own].all():
        return None
    try:
        chart = sparse_chart(target.model, target.observed)
        model = replace(chart.ended, reward=target.reward[chart.pairs])
        solution = solve(model)
        policy = model.greedy(np.where(solution.optimal, solution.q, -np.inf))
        log_det = evaluate_chain(model, policy, np.arange(model.n_states), model.reward[policy])[1]
    except UnsupportedError:  # the engines report the reason
        return None
    best = np.flatnonzero(solution.optimal)
    state = model.pair_state[best]
    several = (np.bincount(state, minlength=model.n_states) > 1)[state]
    known = Known(target, chart, solution.q, policy, log_det, best[several], best[~several])
    return known if not len(known.tied) or _can_split(known, solution.optimal, budget) else None


def _can_split(known: Known, optimal: Bool[np.ndarray, "own_pairs"], budget: Budget) -> bool:
    """Whether ties are few enough, and exact.

    They are not if tied pairs form a loop, whose cost is below rounding, or if rarely left loops accumulate rounding.
    """
    few = len(known.tied) <= MOST_TIED and known.most_points(budget) >= LEAST
    loops = few and (end_components(known.chart.ended, optimal) or lingering_loops(known.target) != ((), ""))
    return bool(few and not loops)


def by_prior(target: Target, reason: str) -> Result:
    """The exact result without data: everything keeps its prior."""
    return Result(
        table=PolicyTable(target.coupled, np.zeros((1, 0), dtype=np.int64), np.ones((1, 1))),
        q_mean=Estimate.of(target.prior.mean, np.zeros(target.model.n_pairs)),
        q_sd=Estimate.of(target.prior.sd, np.zeros(target.model.n_pairs)),
        log_evidence=Estimate.of(target.log_constant, 0.0),
        noise_scale=target.noise_scale.moments() if target.noise_scale else None,
        engine="prior",
        reason=reason,
        dimension=0,
    )


def by_solver(known: Known, budget: Budget) -> Result:
    """The result for a single-point posterior; ties are split to the accuracy that the budget asks for."""
    target, pairs = known.target, known.chart.pairs
    mean, sd = target.prior.mean.copy(), target.prior.sd.copy()
    mean[pairs], sd[pairs] = known.q, 0.0
    split = _split(known, budget)
    points = split.points if len(known.tied) else 0
    states = [target.model.states[s] for s in known.chart.states[known.ties.states]]
    evidence = ratio(split.weight.sum(axis=1) * len(split.weight) / split.points, np.ones(len(split.weight)))
    told = f"; ties of {len(states)} states are split at {points} points" if points else ""
    return Result(
        table=split.table(known),
        q_mean=Estimate.of(mean, np.zeros_like(mean)),
        q_sd=Estimate.of(sd, np.zeros_like(sd)),
        log_evidence=None
        if target.prior.flat
        else Estimate.of(np.log(evidence.value) + known.log_weight, evidence.se / evidence.value),
        engine="solver",
        reason=f"all that matters is known, so the Bellman equations have one solution{told}",
        dimension=0,
        effective_sample_size=split.effective if points else None,
        diagnostics={"points": points, "ties_split": states},
        points=np.repeat(mean[:, None], max(LEAST_DRAWS, min(MOST_DRAWS, budget.kept // len(mean))), axis=1),
    )


@dataclass(frozen=True, eq=False)
class _Split:
    """The distinct tied policies found at points, and their weights.

    Attributes:
        policy: distinct policies: a tied pair for each tied state, shape (rows, tied states).
        weight: total weight of each policy in each replicate, shape (replicates, rows).
        square: sum of the squared weights of points.
        points: number of points.
    """

    policy: Int[np.ndarray, "rows tied_states"]
    weight: Float[np.ndarray, "replicates rows"]
    square: float
    points: int

    @property
    def effective(self) -> float:
        return float(self.weight.sum() ** 2 / self.square)

    def table(self, known: Known) -> PolicyTable:
        """The policies as pairs of the whole problem; errors are 0 without a tie, and where a tie gives exactly 1/2."""
        chart, ties = known.chart, known.ties
        own = np.tile(known.policy, (len(self.policy), 1))
        own[:, ties.states] = known.tied[self.policy]
        certain = np.ones(known.target.model.n_states, dtype=bool)
        first = self.weight @ (self.policy == ties.start[:-1])
        is_half = (2.0 * first == self.weight.sum(axis=1)[:, None]).all(axis=0)  # mirror images prove it
        certain[chart.states[ties.states]] = is_half & (np.diff(ties.start) == 2)
        resolution = resolution_of(self.effective) if len(known.tied) else 0.0
        beaten = known.target.coupled[known.target.model.pair_state]
        beaten[chart.pairs[np.append(known.tied, known.unique)]] = False
        return PolicyTable(
            known.target.coupled,
            chart.pairs[own],
            self.weight,
            resolution=resolution,
            certain=certain,
            beaten=beaten,
        )


def _split(known: Known, budget: Budget) -> _Split:
    """Split ties with points until every probability is accurate enough, or with the number of points asked for."""
    if not len(known.tied):
        return _Split(np.zeros((1, 0), dtype=np.int64), np.ones((1, 1)), 1.0, 1)
    asked = None if budget.samples is None else int(np.ceil(np.log2(max(1.0, budget.samples / (2 * REPLICATES)))))
    found = _weigh(known, 0, 2 ** (FIRST if asked is None else asked), budget.seed)
    while asked is None and 2 * found.points <= known.most_points(budget):
        error = largest_error(known.target.model, found.table(known), budget.top, budget.accuracy)
        if error <= budget.accuracy:
            break
        expect("points", budget.points_needed(found.points, error, known.most_points(budget)), found.points)
        size = found.points // (2 * REPLICATES)
        found = _together(known.ties, found, _weigh(known, size, size, budget.seed))
    return found


def _weigh(known: Known, begin: int, size: int, seed: int) -> _Split:
    """Policies and weights at `size` points of every net, from `begin` on, and at their mirror images."""
    ties, dimension = known.ties, len(known.tied)
    normals = normal_points(uniform_points(dimension, begin, size, REPLICATES, seed)).reshape(dimension, REPLICATES, -1)
    choice, log_det = ties.greedy(np.concatenate([normals, -normals], axis=2).reshape(dimension, -1))
    weight = np.exp(-log_det)
    replicate = np.repeat(np.arange(REPLICATES), 2 * size)
    policy, summed = _sum_weights(ties, choice.T, replicate, weight)
    return _Split(policy, summed, float((weight**2).sum()), len(weight))


def _together(ties: Ties, one: _Split, other: _Split) -> _Split:
    """Two splits combined."""
    replicate, row, weight = entries(np.concatenate([one.weight, other.weight], axis=1))
    policy, summed = _sum_weights(ties, np.concatenate([one.policy, other.policy])[row], replicate, weight)
    return _Split(policy, summed, one.square + other.square, one.points + other.points)


def _sum_weights(
    ties: Ties,
    policy: Int[np.ndarray, "n tied_states"],
    replicate: Int[np.ndarray, "n"],
    weight: Float[np.ndarray, "n"],
) -> tuple[Int[np.ndarray, "rows tied_states"], Float[np.ndarray, "replicates rows"]]:
    """The distinct policies among weighted ones, and their total weights in each replicate."""
    code = ties.code(policy)
    _, first, row = np.unique(code, axis=0 if code.ndim > 1 else None, return_index=True, return_inverse=True)
    place = row.ravel() + len(first) * replicate
    return policy[first], np.bincount(place, weight, REPLICATES * len(first)).reshape(REPLICATES, -1)
