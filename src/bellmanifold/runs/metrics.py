"""What is measured of an episode, of a run, and over runs.

*Regret* of an episode, as in the paper: the optimal expected value at the start minus the reward that was collected
until the episode ended. It is random, and an episode that was cut short may even have a negative one: giving up pays.
*Completed regret* takes an episode that did not arrive as if an optimal policy had gone on from its last state,

    completed regret = V*(start) - (reward collected + V*(last state)),

so that it is not negative in expectation, whatever an agent does; V*(goal) = 0, and the two agree where episodes
arrive. *Expected regret* belongs to the played policy instead: the optimal value minus the policy's own, exactly; NaN
where that is infinite because the policy may miss the goal for ever when it is played from the start. A policy is
*optimal* if its exact value at the start equals the optimum within 1e-9, relative to the optimum (and within rounding
where that is 0).

*Coverage* is the share of pairs that have been played, out of those that can be reached from the start: others can
never be seen, and an agent that has seen all it can has seen everything.

*Solved* is the rule of bsuite's deep sea (Osband et al. 2020): an episode is bad if it went left on the diagonal, which
loses the treasure, and the problem is solved in the first episode up to which fewer than 90% of the episodes were bad.
(The axis of bsuite's picture says 90%; copies of its `find_solution` with the default 0.8 are about. bsuite looks only
at the episodes it logs, which grow sparse; here every episode counts, so the number may be a little smaller.) Being bad
is a matter of the moves, so noise in transitions and rewards needs no further treatment. The rule applies to
`convention=bsuite` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import bootstrap, trim_mean

from bellmanifold.agents.news import visited
from bellmanifold.graph import reachable, reaches_goal
from bellmanifold.health import assumption_2
from bellmanifold.linear import solve_chain
from bellmanifold.solver import solve
from bellmanifold.ssp import SSP

SAME_VALUE = 1e-9
ROUNDING = 1e-12
BAD_SHARE = 0.9
CONFIDENCE = 0.95
RESAMPLES = 1000
MAX_CACHED = 100_000


class Optimum(NamedTuple):
    """The best that can be had of a problem.

    Attributes:
        at_start: expected optimal value of an episode; NaN where there is none.
        value: optimal value of each state and, last, of the goal; NaN where there is none or the start cannot come.
        reason: why there is none; None if there is one.
    """

    at_start: float
    value: Float[np.ndarray, "states_and_goal"]
    reason: str | None = None


class Yardstick:
    """What episodes of one problem are measured against; the values of `most_cached` policies are kept.

    Attributes:
        reachable: pairs that can be played from the start, shape (pairs,).
        optimum: the best there is, state by state.
    """

    def __init__(self, model: SSP, optimum: Optimum | None = None, most_cached: int = MAX_CACHED) -> None:
        self.model, self._most_cached = model, most_cached
        self.reachable: Bool[np.ndarray, "pairs"] = reachable(model, model.initial > 0)[model.pair_state]
        self.optimum = find_optimum(model) if optimum is None else optimum
        self._known: dict[bytes, float] = {}

    @cached_property
    def bad_pairs(self) -> Bool[np.ndarray, "pairs"] | None:
        """Pairs that make an episode of bsuite's deep sea a bad one; None for every other problem."""
        if self.model.metadata.get("bsuite") != "deep_sea":
            return None
        names = [self.model.pair_name(i) for i in range(self.model.n_pairs)]
        return np.array([action == "left" and len(set(state.split(","))) == 1 for state, action in names])

    def value(self, policy: Int[np.ndarray, "states"]) -> float:
        """Expected reward of an episode of a policy; -inf if it may miss the goal for ever."""
        states = np.array(sorted(visited(self.model, policy)))
        key = states.tobytes() + policy[states].tobytes()
        if key not in self._known:
            if len(self._known) >= self._most_cached:
                self._known.clear()
            self._known[key] = self._evaluate(policy, states)
        return self._known[key]

    def is_optimal(self, value: float) -> bool:
        """Is an exact value the optimum?"""
        best = self.optimum.at_start
        return value >= best - max(SAME_VALUE * abs(best), ROUNDING * float(np.abs(self.model.reward).max()))

    def _evaluate(self, policy: Int[np.ndarray, "states"], states: Int[np.ndarray, "visited"]) -> float:
        model = self.model
        if not reaches_goal(model, policy)[states].all():
            return -np.inf
        value = solve_chain(model, policy, states, model.reward[policy[states]])
        return float(model.initial[states] @ value)


def find_optimum(model: SSP, has_laws: bool = True) -> Optimum:
    """The optimal values, or the reason why there are none; an environment may have no laws that could be known.

    Only the part of the problem that can be reached from the start is solved, and only there Assumption 2 is needed.
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
    """What is known of a problem that has no optimum, or none that anybody knows."""
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
    """What several runs say together, episode by episode: of shape (episodes,) unless it says otherwise.

    Attributes:
        mean: mean over runs.
        sd: standard deviation over runs, of a sample (divided by their number less 1); 0 for a single run.
        interquartile_mean: mean of the middle half of the runs.
        interval: 95% bootstrap interval of the mean, (2, episodes); NaN for a single run or an unknown optimum.
        interquartile_interval: the same of the interquartile mean.
    """

    mean: Float[np.ndarray, "episodes"]
    sd: Float[np.ndarray, "episodes"]
    interquartile_mean: Float[np.ndarray, "episodes"]
    interval: Float[np.ndarray, "2 episodes"]
    interquartile_interval: Float[np.ndarray, "2 episodes"]


def spread(values: Float[np.ndarray, "runs episodes"]) -> Spread:
    """Mean, standard deviation, interquartile mean and bootstrap intervals over runs.

    Runs are resampled whole, 1,000 times with a fixed seed, and intervals are percentiles.
    """
    intervals = _interval(values, np.mean), _interval(values, _middle_mean)
    return Spread(values.mean(axis=0), sample_sd(values), _middle_mean(values, axis=0), *intervals)


def sample_sd(values: Float[np.ndarray, "runs *more"]) -> Float[np.ndarray, "*more"]:
    """Standard deviation over runs as everywhere in this package: of a sample; 0 for a single run.

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
    found: Any = bootstrap(  # type: ignore[call-overload]  # the stubs know no data of two dimensions
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
