"""Measures of an episode, of a run, and over several runs.

The *regret* of an episode, as in the paper, is the optimal expected value at the start minus the reward collected until
the episode ended. It is random, and may even be negative if the episode was cut short: giving up pays. *Completed
regret* treats an episode that did not reach the goal as if an optimal policy had continued from its last state,

    completed regret = V*(start) - (reward collected + V*(last state)),

so it is non-negative in expectation, whatever an agent does; V*(goal) = 0, and the two agree for episodes that reach
the goal. *Expected regret* is a property of the played policy: the optimal value minus the policy's exact value; NaN
where this is infinite because the policy, played from the start, may never reach the goal, or was replaced on the way.
*Gap regret* belongs to the moves, whoever decided them and however often the agent changed its mind:

    gap regret = sum over the moves played of V*(state) - Q*(state, action).

Each term is what that move gives up if everything after it is optimal, so it is never negative and free of the luck of
landings and rewards. Since V*(s) - Q*(s, a) = V*(s) - E[reward + V*(next state)], the sum over an episode differs from
its completed regret by a martingale, and the two have the same expectation.

A policy is *optimal* if its exact value at the start equals the optimum within a relative tolerance of 1e-9 (and within
rounding where that is 0).

*Coverage* is the fraction of the pairs reachable from the start that have been played: other pairs can never be seen,
so an agent that has seen all it can has coverage 1.

*Solved* is the rule of bsuite's deep sea (Osband et al. 2020): an episode is bad if it went left on the diagonal, which
loses the treasure, and the problem is solved in the first episode up to which fewer than 90% of the episodes were bad.
(The axis label in bsuite says 90%, although there are copies of its `find_solution` with the default 0.8. bsuite counts
only the episodes it logs, which become sparse; here every episode counts, so the number may be slightly smaller.) A bad
episode is defined by its moves, so noise in transitions and rewards needs no further treatment. The rule applies only
to `convention=bsuite`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import bootstrap, trim_mean

from bellmanifold.agents.frontier import states_visited
from bellmanifold.mdp.checks import assumption_2
from bellmanifold.mdp.graph import reachable, reaches_goal
from bellmanifold.mdp.linear import solve_chain
from bellmanifold.mdp.solver import solve
from bellmanifold.problem.ssp import SSP

SAME_VALUE = 1e-9
ROUNDING = 1e-12
BAD_SHARE = 0.9
CONFIDENCE = 0.95
RESAMPLES = 1000
MAX_CACHED = 100_000


class Optimum(NamedTuple):
    """Optimal values of a problem.

    Attributes:
        at_start: expected optimal value of an episode; NaN if there is none.
        value: optimal value of each state and, last, of the goal; NaN if there is none, and for unreachable states.
        reason: why there is no optimum; None if there is one.
    """

    at_start: float
    value: Float[np.ndarray, "states_and_goal"]
    reason: str | None = None


class Evaluator:
    """The standard against which episodes of a problem are measured; values of `most_cached` policies are cached.

    Attributes:
        reachable: pairs that can be reached from the start, shape (pairs,).
        optimum: the optimal values.
    """

    def __init__(self, model: SSP, optimum: Optimum | None = None, most_cached: int = MAX_CACHED) -> None:
        self.model, self._most_cached = model, most_cached
        self.reachable: Bool[np.ndarray, "pairs"] = reachable(model, model.initial > 0)[model.pair_state]
        self.optimum = find_optimum(model) if optimum is None else optimum
        self._known: dict[bytes, float] = {}

    @cached_property
    def bad_pairs(self) -> Bool[np.ndarray, "pairs"] | None:
        """Pairs that make an episode of bsuite's deep sea bad; None for every other problem."""
        if self.model.metadata.get("bsuite") != "deep_sea":
            return None
        names = [self.model.pair_name(i) for i in range(self.model.n_pairs)]
        return np.array([action == "left" and len(set(state.split(","))) == 1 for state, action in names])

    @cached_property
    def gaps(self) -> Float[np.ndarray, "pairs"]:
        """V*(s) - Q*(s, a) of each pair; NaN without an optimum, and for pairs that cannot be reached."""
        value = self.optimum.value[:-1]
        return np.maximum(value[self.model.pair_state] - self.model.backup(value), 0.0)

    def value(self, policy: Int[np.ndarray, "states"]) -> float:
        """Expected reward of an episode with a policy; -inf if it may never reach the goal."""
        states = np.array(sorted(states_visited(self.model, policy)))
        key = states.tobytes() + policy[states].tobytes()
        if key not in self._known:
            if len(self._known) >= self._most_cached:
                self._known.clear()
            self._known[key] = self._evaluate(policy, states)
        return self._known[key]

    def is_optimal(self, value: float) -> bool:
        """Whether an exact value equals the optimum."""
        best = self.optimum.at_start
        return value >= best - max(SAME_VALUE * abs(best), ROUNDING * float(np.abs(self.model.reward).max()))

    def _evaluate(self, policy: Int[np.ndarray, "states"], states: Int[np.ndarray, "visited"]) -> float:
        model = self.model
        if not reaches_goal(model, policy)[states].all():
            return -np.inf
        value = solve_chain(model, policy, states, model.reward[policy[states]])
        return float(model.initial[states] @ value)


def find_optimum(model: SSP, has_laws: bool = True) -> Optimum:
    """The optimal values, or the reason why there are none; an environment may have no known laws (`has_laws`).

    Only the part of the problem that can be reached from the start is solved, and must satisfy Assumption 2.
    """
    if not has_laws:
        return no_optimum(model, "the environment has no table P")
    states = reachable(model, model.initial > 0)
    part = model if states.all() else model.subproblem(states[model.pair_state])
    verdict = assumption_2(part)
    if not verdict.holds:
        return no_optimum(model, verdict.reasons[0])
    solution, value = solve(part), np.full(model.n_states + 1, np.nan)
    value[:-1][states], value[-1] = solution.value, 0.0
    return Optimum(solution.value_at_start, value)


def no_optimum(model: SSP, reason: str) -> Optimum:
    """NaN values for a problem without an optimum, or with an unknown one."""
    return Optimum(np.nan, np.full(model.n_states + 1, np.nan), reason)


def first_episode(flags: Bool[np.ndarray, "episodes"]) -> int | None:
    """The first episode, counted from 1, with the flag set.

    >>> first_episode(np.array([False, True, True])), first_episode(np.array([False]))
    (2, None)
    """
    return int(np.argmax(flags)) + 1 if flags.any() else None


def solved_episode(bad: Bool[np.ndarray, "episodes"]) -> int | None:
    """The first episode up to which fewer than 90% of the episodes were bad.

    >>> solved_episode(np.array([True] * 9 + [False] * 3))
    11
    """
    episodes = np.arange(1, len(bad) + 1)
    return first_episode(np.cumsum(bad) / episodes < BAD_SHARE)


@dataclass(frozen=True, eq=False)
class Spread:
    """Statistics over runs for each episode, of shape (episodes,) unless stated otherwise.

    Attributes:
        mean: mean over runs.
        sd: sample standard deviation over runs (ddof=1); 0 for a single run.
        interquartile_mean: mean of the middle half of the runs.
        interval: 95% bootstrap interval of the mean, (2, episodes); NaN for a single run or an unknown optimum.
        interquartile_interval: the same for the interquartile mean.
    """

    mean: Float[np.ndarray, "episodes"]
    sd: Float[np.ndarray, "episodes"]
    interquartile_mean: Float[np.ndarray, "episodes"]
    interval: Float[np.ndarray, "2 episodes"]
    interquartile_interval: Float[np.ndarray, "2 episodes"]


def spread(values: Float[np.ndarray, "runs episodes"]) -> Spread:
    """Mean, standard deviation, interquartile mean and bootstrap intervals over runs.

    Whole runs are resampled, 1,000 times with a fixed seed, and intervals are percentiles.
    """
    intervals = _interval(values, np.mean), _interval(values, _middle_mean)
    return Spread(values.mean(axis=0), sample_sd(values), _middle_mean(values, axis=0), *intervals)


def sample_sd(values: Float[np.ndarray, "runs *more"]) -> Float[np.ndarray, "*more"]:
    """Sample standard deviation over runs (ddof=1), as everywhere in this package; 0 for a single run.

    >>> float(sample_sd(np.array([1.0, 2.0, 3.0])))
    1.0
    """
    return np.asarray(values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1:]))


def _middle_mean(values: np.ndarray, axis: int) -> np.ndarray:
    return np.asarray(trim_mean(values, 0.25, axis=axis))


def _interval(values: Float[np.ndarray, "runs episodes"], statistic: object) -> Float[np.ndarray, "2 episodes"]:
    runs, episodes = values.shape
    if runs < 2 or not np.isfinite(values).all():
        return np.full((2, episodes), np.nan)
    found: Any = bootstrap(  # type: ignore[call-overload]  # the stubs reject two-dimensional data
        (values,),
        statistic,
        n_resamples=RESAMPLES,
        batch=max(1, 4_000_000 // values.size),
        axis=0,
        vectorized=True,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return np.array(found.confidence_interval)
