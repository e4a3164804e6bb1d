"""The best mean reward per step of a policy that stays in an end component forever, and its sign.

Assumption 2 of the paper requires that every improper policy has value minus infinity at some state. If a proper policy
exists, that holds if and only if the best mean reward g of every maximal end component is negative: zero is not enough,
because a loop that costs nothing can be followed forever. So the sign of g must be *exact*.

Howard's policy iteration finds g. A policy's recurrent classes have mean payoffs

    g_c = (expected reward between two visits to a state of c) / (expected steps between them);

with the best class made reachable from everywhere, relative values h solve h = r - g + P h, and every pair with
r + P h - h > g improves the policy. Any h bounds the best mean payoff from above by max(r + P h - h).

In a large component a policy may have many regions that it hardly ever leaves, each with a mean payoff of its own: h is
then as large as the times spent there, and the rest is lost in its rounding. So the iteration starts close to the
solution. With T the Bellman operator, max(T^k v - v) / k is another upper bound b of the best mean payoff (the one
above, with k moves as one); after some sweeps it is nearly attained where the best policy stays. Take a state z that is
visited often there. If every move pays r - b, no loop has a positive mean payoff, so the best way to z is a stochastic
shortest path problem whose solution stays in no region with a smaller mean payoff. If b is the best mean payoff, that
solution is the best policy.

If the two bounds are not both clearly on one side of 0, the sign is decided in rational arithmetic, on the numbers as
they were given: a float stands for the shortest decimal that reads back as it (0.1 is one tenth), and a row of
probabilities for the same row divided by its sum. In components of up to 64 states the iteration itself is exact;
in larger ones the same bounds are evaluated exactly at the floating-point solution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from bellmanifold.mdp.graph import EndComponent, Policy, StateValues, direct_routes, recurrent_classes, steps_towards
from bellmanifold.mdp.linear import solve_chain, solve_chains
from bellmanifold.mdp.lookahead import Steps
from bellmanifold.mdp.subtraction_free import eliminate
from bellmanifold.problem.ssp import SSP, Index

EXACT_STATES = 64
CLEARLY = 1e-9
"""The sign of a bound this far from 0, relative to the rewards, is certain in spite of rounding."""
MAX_ITERATIONS = 100
LARGE, SWEEPS, BETWEEN = 200, 128, 32
"""A component with more states than the first number starts with twice the second number of sweeps; the third is the
number of sweeps between two linear systems."""


@dataclass(frozen=True)
class MeanReward:
    """The best mean reward of an end component.

    Attributes:
        value: the mean reward per step.
        sign: -1, 0 or 1; decided exactly.
        loop: states of a recurrent class that attains it, in the order of visits if it is a cycle.
        policy: the pair each of them plays.
        decided: False if rounding hides the sign for a large component; `sign` is then 0, to be safe.
    """

    value: float
    sign: int
    loop: Int[np.ndarray, "loop"]
    policy: Int[np.ndarray, "loop"]
    decided: bool = True


@dataclass(frozen=True)
class _Iterate:
    """The final iterate of Howard's policy iteration, in floats or rationals."""

    policy: Policy
    loop: Int[np.ndarray, "loop"]
    payoff: float | Fraction
    relative: Shaped[np.ndarray, "states"]
    excess: float | Fraction


def best_mean_reward(model: SSP, component: EndComponent) -> MeanReward:
    """The best mean reward per step within an end component."""
    inside = model.subproblem(component.pairs, start=int(component.states[0]))
    reward, policy = inside.reward, inside.greedy(inside.reward)
    least, most = float(reward.min()), float(reward.max())
    if least == most:  # every policy has this mean
        loop = _in_order(inside, policy, recurrent_classes(inside, policy)[0])
        return MeanReward(most, int(np.sign(most)), component.states[loop], component.pairs[policy[loop]])
    often = None
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # values that overflow decide nothing
        if inside.n_states > LARGE:
            policy, often = _approach(inside)
        found = _howard(inside, policy, _Chains(inside), often)
    clearly = CLEARLY * (np.abs(reward).max() + 1e-4 * np.abs(found.relative).max())  # rounding grows with these
    payoff, upper = float(found.payoff), float(found.payoff + found.excess)
    sign, decided = int(np.sign(payoff)), True
    if most < 0 or least > 0:  # so every mean of rewards has that sign
        sign = int(np.sign(most))
    elif not (upper < -clearly or payoff > clearly):
        if inside.n_states <= EXACT_STATES:
            found = _howard(inside, found.policy, _RationalChains(inside))
            payoff, sign = float(found.payoff), (found.payoff > 0) - (found.payoff < 0)
        else:
            sign, decided = _sign_at(inside, found)
    loop = _in_order(inside, found.policy, np.sort(found.loop))
    return MeanReward(payoff, sign, component.states[loop], component.pairs[found.policy[loop]], decided)


def _approach(inside: SSP) -> tuple[Policy, int]:
    """A policy close to the best one of a large component, and a state z that it visits often.

    z is the most likely state of the greedy policy after some moves from the state where the sweeps gained most. The
    way to z is the solution of a problem in which moves to z lead to the goal.
    """
    steps = Steps(inside)
    early = _swept(steps, np.zeros(inside.n_states), SWEEPS)
    late = _swept(steps, early, SWEEPS)
    bound = float((late - early).max()) / SWEEPS
    greedy = inside.greedy(steps.backup(late))
    law: np.ndarray = np.zeros(inside.n_states)
    law[np.argmax(late - early)] = 1.0
    backwards = steps.law[greedy].T.tocsr()
    for _ in range(SWEEPS):
        law = np.asarray(backwards @ law)
    often = int(np.argmax(law))
    ends = np.where(inside.next_state == often, inside.n_states, inside.next_state)
    return _best_way(replace(inside, reward=inside.reward - bound, next_state=ends)), often


def _best_way(path: SSP) -> Policy:
    """The best policy of a stochastic shortest path problem, by policy iteration with sweeps between linear systems."""
    steps, policy, everywhere = Steps(path), direct_routes(path)[0], np.arange(path.n_states)
    for _ in range(MAX_ITERATIONS):
        value = solve_chain(path, policy, everywhere, path.reward[policy])
        ahead = steps.backup(_swept(steps, value, BETWEEN))
        better = steps.best(ahead) > ahead[policy] + _rounding(path, value)
        if not better.any():
            break
        policy = np.where(better, path.greedy(ahead), policy)
    return policy


def _swept(steps: Steps, value: StateValues, times: int) -> StateValues:
    """Apply the Bellman operator a number of times."""
    for _ in range(times):
        value = steps.best(steps.backup(value))
    return value


def _rounding(inside: SSP, value: StateValues) -> float:
    """The largest difference of action values that may be due to rounding."""
    return float(1e-13 * (np.abs(inside.reward).max() + np.abs(value).max()))


def _howard(inside: SSP, policy: Policy, chains: _Chains, often: int | None = None) -> _Iterate:
    """Howard's policy iteration; a mean payoff is per return to the first state of its class, or `often` if in it."""
    for _ in range(MAX_ITERATIONS):
        classes = recurrent_classes(inside, policy)
        if often is not None:
            classes = [np.concatenate([own[own == often], own[own != often]]) for own in classes]
        payoffs = chains.payoffs(policy, classes)
        best = max(range(len(classes)), key=lambda c: payoffs[c])
        loop, payoff = classes[best], payoffs[best]
        if len(classes) > 1:
            target = np.zeros(inside.n_states, dtype=bool)
            target[loop] = True
            policy = np.where(target, policy, steps_towards(inside, target))
        relative = chains.relative_values(policy, loop[0], payoff)
        advantage = chains.ahead(relative) - relative[inside.pair_state] - payoff
        top = inside.best(advantage)
        noise = np.abs(advantage[policy]).max()  # 0 except for rounding: the policy's own equations
        tolerance = max(chains.tolerance(relative), 4 * noise)
        if not (top > tolerance).any():
            break
        policy = np.where(top > tolerance, inside.greedy(advantage), policy)
    return _Iterate(policy, loop, payoff, relative, top.max())


class _Chains:
    """Evaluation of policies in floating point."""

    zero: Any = 0.0

    def __init__(self, inside: SSP) -> None:
        self.inside, self.reward = inside, inside.reward

    def tolerance(self, relative: StateValues) -> float:
        return _rounding(self.inside, relative)

    def expected_next(self, value: Shaped[np.ndarray, "states"]) -> Shaped[np.ndarray, "pairs"]:
        return self.inside.expected_next(value)

    def solve(self, policy: Policy, states: Int[np.ndarray, "n"], rights: list[np.ndarray]) -> list[np.ndarray]:
        return solve_chains(self.inside, policy, states, rights)

    def ahead(self, relative: Shaped[np.ndarray, "states"]) -> Shaped[np.ndarray, "pairs"]:
        """Reward plus expected relative value of the next state, for each pair."""
        return np.asarray(self.reward + self.expected_next(relative))

    def payoffs(self, policy: Policy, classes: list[Int[np.ndarray, "_"]]) -> list[Any]:
        """The mean payoff of each class, from one solve for all of them."""
        first = policy[[own[0] for own in classes]]
        rest = np.sort(np.concatenate([own[1:] for own in classes]))
        collected, steps = np.full((2, self.inside.n_states), self.zero)
        each = [self.reward[policy[rest]], np.full(len(rest), self.zero + 1)]
        collected[rest], steps[rest] = self.solve(policy, rest, each)
        return (self.ahead(collected)[first] / (1 + self.expected_next(steps)[first])).tolist()

    def relative_values(self, policy: Policy, zero: Index, payoff: Any) -> np.ndarray:
        """h with h(zero) = 0, for a policy whose only recurrent class contains `zero`."""
        rest = np.delete(np.arange(self.inside.n_states), int(zero))
        relative = np.full(self.inside.n_states, self.zero)
        relative[rest] = self.solve(policy, rest, [self.reward[policy[rest]] - payoff])[0]
        return relative


class _RationalChains(_Chains):
    """Evaluation of policies in rational arithmetic."""

    zero = Fraction(0)

    def __init__(self, inside: SSP) -> None:
        super().__init__(inside)
        self.reward = np.array([as_given(r) for r in inside.reward], dtype=object)
        self.prob = rational_rows(inside)

    def tolerance(self, relative: Shaped[np.ndarray, "states"]) -> float:
        return 0.0

    def expected_next(self, value: Shaped[np.ndarray, "states"]) -> Shaped[np.ndarray, "pairs"]:
        return np.add.reduceat(self.prob * value[self.inside.next_state], self.inside.next_start[:-1])

    def solve(self, policy: Policy, states: Int[np.ndarray, "n"], rights: list[np.ndarray]) -> list[np.ndarray]:
        n, number = len(states), {int(s): k for k, s in enumerate(states)}
        moves, out = np.full((n, n), self.zero), np.full(n, self.zero)
        for k, pair in enumerate(policy[states]):
            for e in range(self.inside.next_start[pair], self.inside.next_start[pair + 1]):
                column = number.get(int(self.inside.next_state[e]))
                if column is None:
                    out[k] += self.prob[e]
                elif column != k:
                    moves[k, column] += self.prob[e]
        return [eliminate(moves, out, right)[0] for right in rights]


def as_given(number: float) -> Fraction:
    """The rational number that a float was written as: its shortest decimal.

    >>> as_given(0.1)
    Fraction(1, 10)
    """
    return Fraction(repr(float(number)))


def rational_rows(model: SSP) -> Shaped[np.ndarray, "successors"]:
    """Transition probabilities as rationals whose rows sum to exactly 1."""
    prob = np.array([as_given(p) for p in model.next_prob], dtype=object)
    total = np.add.reduceat(prob, model.next_start[:-1])
    return np.asarray(prob / total[model.next_pair])


def _sign_at(inside: SSP, found: _Iterate) -> tuple[int, bool]:
    """The sign of a large component's best mean payoff, by exact bounds at the floating-point solution."""
    chains = _RationalChains(inside)
    if np.isfinite(found.relative).all():
        relative = np.array([Fraction(float(h)) for h in found.relative], dtype=object)
        if (chains.ahead(relative) - relative[inside.pair_state]).max() < 0:
            return -1, True
    if len(found.loop) <= EXACT_STATES:
        payoff = chains.payoffs(found.policy, [found.loop])[0]
        if payoff >= 0:
            return int(payoff > 0), True
    return 0, False


def _in_order(inside: SSP, policy: Policy, loop: Int[np.ndarray, "loop"]) -> np.ndarray:
    """The states of a recurrent class, in the order of visits if it is a cycle, else unchanged."""
    if (np.diff(inside.next_start)[policy[loop]] > 1).any():
        return loop
    order = [int(loop[0])]
    while len(order) < len(loop):
        order.append(int(inside.next_state[inside.next_start[policy[order[-1]]]]))
    return np.array(order)
