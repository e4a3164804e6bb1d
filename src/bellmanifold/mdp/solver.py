"""Optimal action values Q* of a stochastic shortest path problem, by three methods.

Under Assumptions 1 and 2 the Bellman equations

    V(s) = max_a [ r(s, a) + sum p(s'|s, a) V(s') ],  V(goal) = 0

have exactly one solution (Bertsekas and Tsitsiklis 1991; Theorem 1 of the paper). `solve` checks the assumptions
first and raises if they fail: then the equations may have many solutions and no method below can be trusted.

*Value iteration* (`vi`). If no state is revisited once left, one sweep in level order is exact; the reward of a move
that may stay is multiplied by its expected number of repetitions. Otherwise it is run on rewards
raised by a tiny slack e > 0, upwards from the value of a proper policy, until the last step changes nothing by more
than e. Then W >= r + P W for every pair, so W >= V* (monotonicity), while the greedy policy's own value is <= V*: V*
lies between two computed vectors, and their distance, plus a bound on rounding, is the error bound. A small last
step alone bounds nothing.

*Policy iteration* (`pi`) starts from a proper policy found by backward search and switches a state only if another
pair is strictly better, which keeps every iterate proper. Between two linear systems it looks ahead by cheap rounds of
modified policy iteration (Puterman and Shin 1978; `bellmanifold.mdp.lookahead`), and if those come close to the value,
sweeps replace the linear system.

*Linear programming* (`lp`): minimise sum V subject to V(s) >= r(s, a) + sum p V for all pairs, with HiGHS; the pairs
with positive dual variable form an optimal policy, which policy iteration confirms and evaluates to full precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import csr_array

from bellmanifold._util.display import Card, Columns, Shown, as_frame, picture
from bellmanifold._util.options import Method
from bellmanifold.errors import BadInputError, UnsupportedError, quote, quote_pair, require
from bellmanifold.mdp.backward import once_through
from bellmanifold.mdp.checks import assumption_2
from bellmanifold.mdp.graph import Policy, StateValues, components, direct_routes, is_proper, may_end, reaches_goal
from bellmanifold.mdp.linear import solve_chain, solve_chains
from bellmanifold.mdp.lookahead import MANY, Steps
from bellmanifold.problem.costs import Costs, cost_unit, in_terms, signed, worded, worth
from bellmanifold.problem.ssp import SSP, require_closed

if TYPE_CHECKING:
    import pandas

TIE = 1e-10
"""Actions whose values differ by less than this, relative to their size, count as equally good."""
ROUNDS, FEWEST = 80, 5
"""Maximum and minimum number of rounds of modified policy iteration between linear systems."""
MAX_POLICIES = 10_000
MAX_SWEEPS = 200_000
VI_ACCURACY = 1e-9
LARGEST = 1e200
"""Rewards of up to this size can be summed 1e100 times without leaving the range of floating point."""


@dataclass(frozen=True, repr=False)
class Solution(Shown):
    """Optimal values.

    Attributes:
        model: the problem solved.
        value: V*, shape (states,).
        q: Q*, shape (pairs,).
        optimal: mask of optimal pairs, ties included, shape (pairs,).
        method: the method used.
        iterations: number of sweeps, policies or simplex steps.
        max_residual: largest violation of the Bellman equations, max |V - max_a Q|.
        error_bound: proven bound on |value - V*| for value iteration, else None.
    """

    model: SSP
    value: Float[np.ndarray, "states"]
    q: Float[np.ndarray, "pairs"]
    optimal: Bool[np.ndarray, "pairs"]
    method: Method
    iterations: int
    max_residual: float
    error_bound: float | None = None

    @property
    def value_at_start(self) -> float:
        """Expected optimal value of an episode."""
        return float(self.model.initial @ self.value)

    @property
    def costs(self) -> Costs | None:
        """How the problem was given in costs; None if it was given in rewards."""
        return cost_unit(self.model)

    @property
    def from_start(self) -> str:
        """The expected optimal value of an episode in words."""
        if self.costs is None:
            return f"optimal value from the start {self.value_at_start:.10g}"
        return f"{worth(self.value_at_start, self.costs, 10)} from the start"

    @property
    def how(self) -> str:
        """The method in words. Residuals that are mere rounding differ between processors and are not shown."""
        residual = "below 1e-12" if self.max_residual < 1e-12 else f"{self.max_residual:.2g}"
        return f"method {self.method}, iterations {self.iterations}, largest residual {residual}"

    def card(self) -> Card:
        """The card for display: the value at the start, and a table with optimal actions."""
        title = f"Solution({self.model}: {self.from_start})"
        bound = "" if self.error_bound is None else f", error at most {self.error_bound:.1g}"
        how = self.how + bound
        share = self.optimal.astype(np.float64)
        columns = in_terms(self._columns(), self.costs)
        return Card(title, [how], (), lambda: columns, lambda: picture("problem", self.model, share))

    def _columns(self) -> Columns:
        return {
            **self.model.name_columns(range(self.model.n_pairs)),
            "q": self.q.tolist(),
            "optimal": self.optimal.tolist(),
            "value_of_state": self.value[self.model.pair_state].tolist(),
        }

    def to_frame(self) -> pandas.DataFrame:
        """A DataFrame with a row per pair: its optimal value, whether it is optimal, and its state's optimal value."""
        return as_frame(self._columns())

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of `solve`, as documented for the interface."""
        best = self.model.by_name(self.optimal.tolist())
        return {
            "value": dict(zip(self.model.states, self.value.tolist(), strict=True)),
            "q": self.model.by_name(self.q.tolist()),
            "optimal_actions": {state: [action for action in own if own[action]] for state, own in best.items()},
            "value_at_start": float(self.value_at_start),
            "method": self.method,
            "iterations": self.iterations,
            "max_residual": float(self.max_residual),
            "error_bound": self.error_bound,
        }


def solve(
    model: SSP, method: Method | None = None, discount: float | None = None, max_sweeps: int = MAX_SWEEPS
) -> Solution:
    """Optimal action values.

    Args:
        model: the problem.
        method: "vi", "pi" or "lp"; by default "vi" (one sweep) if no state is revisited once left, else "pi".
        discount: solve the discounted problem instead.
        max_sweeps: maximum number of sweeps of value iteration.

    Raises:
        BadInputError: if a pair is open, or rewards are so large that values may leave the range of floating point.
        UnsupportedError: if Assumption 2 fails, naming the loop or the stranded states, or if the method fails.

    >>> from bellmanifold import envs
    >>> round(solve(envs.deep_sea(depth=5)).value_at_start, 12)
    0.85
    """
    require_closed(model, "solve")
    given = model
    if discount is not None:
        model = model.discounted(discount)
    largest = int(np.argmax(np.abs(model.reward)))
    if abs(model.reward[largest]) > LARGEST:
        costs = cost_unit(model)
        found = signed(model.reward[largest], costs)
        reward = worded(f"the reward of {quote_pair(*model.pair_name(largest))} is {found:g}", costs)
        raise BadInputError(f"{reward}: it must be at most {LARGEST:g} in size, choose another unit")
    verdict = assumption_2(model)
    if not verdict.holds:
        raise UnsupportedError(
            f"{verdict.reasons[0]} (bellmanifold check says more; --discount 0.99 solves a nearby problem)"
        )
    require(method in (None, "vi", "pi", "lp"), f"method is {quote(method)}: give vi, pi or lp")
    component = components(model)
    found = once_through(model, component, may_stay=method is None) if method in (None, "vi") else None
    if found is not None:
        return _solution(Steps(model), *found, ("vi", 1, 0.0))
    if method == "lp":
        return _linear_program(Steps(model))
    if method == "vi":
        return _value_iteration(Steps(model), verdict.proper_policy, max_sweeps)
    if model.n_pairs == model.n_states:  # there is only one policy
        steps = Steps(model)
        return _solution(steps, *_value_and_gross(steps, verdict.proper_policy), ("pi", 1, None))
    start, distance, guess = direct_routes(given)  # with a discount every pair may lead to the goal
    steps = Steps(model, distance if model.n_states >= MANY else None)
    policy = np.where(start < 0, verdict.proper_policy, start)
    rounds = min(ROUNDS, max(FEWEST, math.isqrt(int(np.bincount(component).max()))))
    if not may_end(model).all():
        return _policy_iteration(steps, policy, rounds=rounds)
    return _policy_iteration(steps, *steps.improve(policy, guess, np.abs(guess), rounds), rounds=rounds)


def policy_value(model: SSP, policy: Policy) -> StateValues:
    """Expected total reward of a proper policy from every state."""
    return solve_chain(model, policy, np.arange(model.n_states), model.reward[policy])


def _value_and_gross(steps: Steps, policy: Policy, near: StateValues | None = None) -> tuple[StateValues, StateValues]:
    """The value of a proper policy, and its gross value, that of |reward|: rounding errors of the value are small
    relative to it, state by state, however large values are elsewhere. `near` is a value close to the policy's."""
    model, reward = steps.model, steps.model.reward[policy]
    if reward.max() <= 0 or reward.min() >= 0:
        value = None if near is None else steps.correct(policy, reward, near)
        value = policy_value(model, policy) if value is None else value
        return value, np.abs(value)
    value, gross = solve_chains(model, policy, np.arange(model.n_states), [reward, np.abs(reward)])
    return value, gross


def _solution(steps: Steps, value: StateValues, gross: StateValues, how: tuple[Method, int, float | None]) -> Solution:
    """The solution with a given value and gross value; `how` is its method, iterations and error bound."""
    model, q = steps.model, steps.backup(value)
    top, first = steps.best(q), model.greedy(q)
    size, rounding = np.maximum(np.abs(q), np.abs(model.reward)), steps.rounding(gross)
    slack = TIE * np.maximum(size, size[first][model.pair_state])
    slack += np.maximum(rounding, rounding[first][model.pair_state])
    optimal = q >= top[model.pair_state] - slack
    return Solution(model, value, q, optimal, how[0], how[1], float(np.abs(top - value).max()), how[2])


def _policy_iteration(steps: Steps, policy: Policy, near: StateValues | None = None, rounds: int = ROUNDS) -> Solution:
    """Policy iteration that looks ahead before each switch.

    It looks ahead from a proper policy's value, so V <= T V throughout, and a policy that is greedy for such a V
    cannot be improper: its loops would need a non-negative mean reward. Each linear system then propagates values over
    many states, where plain policy iteration propagates them by one. It ends when no pair is better by more than
    rounding, or the value has not increased.
    """
    model = steps.model
    value, gross = _value_and_gross(steps, policy, near)
    iterations = 1
    while iterations < MAX_POLICIES:
        improved, near = steps.improve(policy, value, gross, rounds)
        if (improved == policy).all():
            break
        lost = ~reaches_goal(model, improved)
        improved = np.where(lost, policy, improved)  # improper despite Assumption 2: switched by rounding only
        if lost.any() and ((improved == policy).all() or not is_proper(model, improved)):
            break
        risen, its_gross = _value_and_gross(steps, improved, near)
        iterations += 1
        if not (risen > value).any():
            break
        policy, value, gross = improved, risen, its_gross
    return _solution(steps, value, gross, ("pi", iterations, None))


def _value_iteration(steps: Steps, policy: Policy, max_sweeps: int) -> Solution:
    model = steps.model
    value = policy_value(model, policy)
    scale = float(max(np.abs(model.reward).max(), np.abs(value).max()))
    slack = VI_ACCURACY * float(np.abs(model.reward).max())
    sweeps = 0
    while sweeps < max_sweeps and slack > 4 * np.finfo(float).eps * scale:
        upper, taken = _rise(steps, value, slack, max_sweeps - sweeps)
        sweeps += taken
        policy = model.greedy(steps.backup(upper))
        slack /= 32
        if not is_proper(model, policy):  # the slack outweighs the cost of some loop
            continue
        value, gross = _value_and_gross(steps, policy)
        bound = float(np.abs(upper - value).max() + steps.rounding(gross).max())
        if bound <= VI_ACCURACY * max(scale, 1.0):
            return _solution(steps, value, gross, ("vi", sweeps, bound))
    if scale == 0.0:
        return _solution(steps, value, np.zeros_like(value), ("vi", 1, 0.0))
    raise UnsupportedError(
        f"value iteration cannot bound its error after {sweeps} sweeps: some policy takes very long to arrive, or some "
        "loop costs almost nothing; use --method pi"
    )


def _rise(steps: Steps, value: StateValues, slack: float, most: int) -> tuple[StateValues, int]:
    """Value iteration with rewards raised by `slack`, upwards until no value increases by more than that."""
    sweeps, still = 0, False
    while not still and sweeps < most:
        raised = np.maximum(value, steps.best(steps.backup(value)) + slack)
        still = bool((raised - value).max() <= slack)
        value, sweeps = raised, sweeps + 1
    return value, sweeps


def _linear_program(steps: Steps) -> Solution:
    from scipy.optimize import linprog

    model = steps.model
    inner = model.next_state < model.n_states
    entries = np.concatenate([np.ones(model.n_pairs), -model.next_prob[inner]])
    row = np.concatenate([np.arange(model.n_pairs), model.next_pair[inner]])
    column = np.concatenate([model.pair_state, model.next_state[inner]])
    shape = (model.n_pairs, model.n_states)
    constraint = csr_array((entries, (row, column)), shape=shape)
    unit = float(np.abs(model.reward).max()) or 1.0  # HiGHS's tolerances are absolute
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    result: Any = linprog(
        np.ones(model.n_states),
        A_ub=-constraint,  # type: ignore[call-overload]  # the stubs do not know sparse constraints
        b_ub=-model.reward / unit,
        bounds=(None, None),
        method="highs-ds",
        options=options,
    )
    if not result.success:
        raise UnsupportedError(f"HiGHS could not solve the linear program ({quote(result.message)}): use --method pi")
    flow = model.greedy(-np.asarray(result.ineqlin.marginals))
    if not is_proper(model, flow):
        raise UnsupportedError("the linear program's solution is too degenerate to read a policy from: use --method pi")
    return replace(_policy_iteration(steps, flow), method="lp", iterations=int(result.nit))
