r"""What one trial of a move is worth: the expected value of sample information, exact over all policies.

A policy's value at the start is linear in the rewards where laws are known: V^pi = n_pi . r, with n_pi the expected
number of times that each pair is played. Let r be Gaussian with means m and covariance K. Then the best policy on
average is an optimum at the means, and E[V^pi] is its value there, max_pi E[V^pi] = V*(m). A trial of pair i that pays
y = r_i + noise of sd s moves the means along one line, by an amount that is standard normal before the trial:

    m + c z,    c = K e_i / sqrt(K_ii + s^2),    z ~ N(0, 1),

    gain_i = E[V*(m + c z)] - V*(m).

Decision analysts call this number EVSI. It is at most the expected loss of stopping, which would be saved if everything
became known (EVPI). What knowing all of Q(s, a) would save (EVPPI, `bellmanifold.decisions.trials`) is another number:
a trial tells the reward, not what follows. The gain falls to 0 as s grows; n trials of a pair are one with noise
s / sqrt(n).

*The line.* f(z) = V*(m + c z) is a maximum of linear functions, convex and piecewise linear. With kinks at b_k, where
the slope rises by d_k > 0, and psi(b) = phi(b) - b Phi(-b) = E[(z - b)^+] for b >= 0,

    gain_i = sum_k d_k psi(|b_k|),

since E z = 0. All terms are positive: nothing cancels, and a pair that changes no decision has gain 0 exactly.

*The kinks* are found by parametric policy iteration, from z = 0 in both directions. A policy that is optimal at z has
values u + w z, where u and w are its values for the rewards m and c. The advantage of pair a at state s is

    alpha_a + beta_a z,    alpha_a = m_a + p_a u - u(s),    beta_a = c_a + p_a w - w(s),

at most 0 at z; so the policy stays optimal until the least -alpha_a / beta_a with beta_a > 0. There it switches to that
pair. Let h(j) be the probability that the old policy ever comes to s from j (h(s) = 1), and e = sum_j p_a(j) (1 - h(j))
the probability that after a it never returns to s. Then the slopes rise by h beta_a / e, and the matrix of expected
visits N = (I - P)^-1, whose column s is h N_ss, becomes N + h (p_a N - N_s + e_s)' / e (Sherman and Morrison). The
values at the kink stay and the slopes grow, so no policy returns. Where e is tiny, N is computed afresh by elimination
without subtraction (`bellmanifold.mdp.subtraction_free`).

*Improper means.* If e = 0, the new policy never arrives: a loop has mean reward 0 at this kink and would pay beyond.
The posterior leaves out rewards under which a loop pays, so the line is cut there, on the right at R and on the left at
L, and z is a normal variable truncated to [L, R], with mean mu = (phi(L) - phi(R)) / M and M = Phi(R) - Phi(L). Then
gain_i = E f(z) - f(mu), the sum of d_k E[(z - b_k)^+] over b_k >= mu and of d_k E[(b_k - z)^+] over the others, where
E[(z - b)^+] = (phi(b) - phi(R) - b (Phi(R) - Phi(b))) / M. This is exact if r_i is all that is uncertain and the trial
is exact. Otherwise the rest of the rewards is truncated, too, which moves the means; that is neglected, an error of the
order of the probability that some loop pays. `bellmanifold.decisions.one_trial` asks how large that is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array
from scipy.special import ndtr

from bellmanifold.errors import UnsupportedError
from bellmanifold.mdp.graph import is_proper, reachable
from bellmanifold.mdp.linear import chain_on
from bellmanifold.mdp.solver import solve
from bellmanifold.mdp.subtraction_free import expected_visits
from bellmanifold.problem.ssp import SSP

FAR = 5.0
"""Kinks further away than this many standard deviations are left out: means move as far with probability 6e-7."""
FLAT = 1e-12
"""Slopes below this, relative to the largest, are rounding."""
RARE = 1e-6
"""With a smaller probability of never returning, visits are computed afresh."""
MOST_SWITCHES = 100
"""Bound on the number of switches along a line, per state; a line that needs more has gain NaN."""
MOST_STATES = 3000
"""Largest number of states: their matrix of visits is dense."""

PerPair = Float[np.ndarray, "pairs"]


@dataclass(frozen=True, eq=False)
class Factored:
    """A covariance of rewards with common causes, factor factor' + diag(own).

    Attributes:
        own: variance of what each reward shares with no other, shape (pairs,).
        factor: effect of each common cause of unit variance, shape (pairs, causes).
    """

    own: PerPair
    factor: Float[np.ndarray, "pairs causes"]


Covariance = PerPair | Float[np.ndarray, "pairs pairs"] | Factored
"""Of rewards: variances if they are independent, a full matrix, or its factors."""


def trial_gains(model: SSP, mean: PerPair, covariance: Covariance, sd: PerPair) -> PerPair:
    """What one trial of each pair would save per episode.

    Args:
        model: the problem; its rewards are not used.
        mean: mean of every reward.
        covariance: of the rewards.
        sd: noise of a trial of each pair, 0 for an exact one.

    Raises:
        UnsupportedError: if a loop pays at the means, some state has no way to the goal, or there are too many states.
    """
    gain, pairs = np.zeros(model.n_pairs), _reached(model)
    variance = _variance(covariance)
    problem = _Problem(replace(model, reward=mean).subproblem(pairs))
    for pair in pairs:
        if variance[pair] > 0.0:
            column = _column(covariance, int(pair), pairs) / np.hypot(np.sqrt(variance[pair]), sd[pair])
            gain[pair] = problem.line(column).gain
    return gain


def _reached(model: SSP) -> Int[np.ndarray, "some"]:
    """Pairs of the states that some policy reaches from the start."""
    states = reachable(model, model.initial > 0)
    if states.sum() > MOST_STATES:
        raise UnsupportedError(f"{states.sum()} states are more than the {MOST_STATES} of which one trial is evaluated")
    return np.flatnonzero(states[model.pair_state])


def _variance(covariance: Covariance) -> PerPair:
    if isinstance(covariance, Factored):
        return np.asarray(covariance.own + (covariance.factor**2).sum(axis=1))
    return covariance if covariance.ndim == 1 else np.diagonal(covariance)


def _column(covariance: Covariance, pair: int, rows: Int[np.ndarray, "some"]) -> Float[np.ndarray, "some"]:
    """A column of the covariance, in some rows."""
    if isinstance(covariance, Factored):
        common = covariance.factor[rows] @ covariance.factor[pair]
        return common + np.where(rows == pair, covariance.own[pair], 0.0)
    if covariance.ndim == 1:
        return np.where(rows == pair, covariance[pair], 0.0)
    return covariance[rows, pair]


class Ray(NamedTuple):
    """One half of a line, away from the means.

    Attributes:
        at: distance of each kink.
        rise: by how much the slope at the start rises there.
        end: distance at which a loop pays; infinite if none does within reach.
    """

    at: list[float]
    rise: list[float]
    end: float


class Line(NamedTuple):
    """V* along a line of means: both halves."""

    right: Ray
    left: Ray

    @property
    def gain(self) -> float:
        """E f(z) - f(E z) for a standard normal z, truncated where the line ends."""
        at = np.array([*self.right.at, *(-one for one in self.left.at)])
        rise = np.array([*self.right.rise, *self.left.rise])
        low, high = -self.left.end, self.right.end
        mass = float(ndtr(high) - ndtr(low))
        if np.isnan(high - low) or mass <= 0.0:
            return np.nan
        middle = -float(np.diff(_density(np.array([low, high])))[0]) / mass
        up = at >= middle
        part = _beyond(np.where(up, at, -at), np.where(up, high, -low))
        return float(rise @ np.maximum(part, 0.0)) / mass


def _density(z: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
    """phi, 0 at infinity."""
    return np.asarray(np.exp(-0.5 * np.square(z)) / np.sqrt(2.0 * np.pi))


def _beyond(b: Float[np.ndarray, "kinks"], end: Float[np.ndarray, "kinks"]) -> Float[np.ndarray, "kinks"]:
    """The integral of (z - b) phi(z) from b to the end of the line."""
    return _density(b) - _density(end) - b * (ndtr(-b) - ndtr(-end))


class _Problem:
    """A problem at the means of its rewards: an optimal policy, its values and its expected visits."""

    def __init__(self, model: SSP) -> None:
        self.model = model
        inner = model.next_state < model.n_states
        start = np.append(0, np.cumsum(inner))[model.next_start]
        shape = (model.n_pairs, model.n_states)
        self.law = csr_array((model.next_prob[inner], model.next_state[inner], start), shape=shape)
        self.policy = model.greedy(solve(model).q)
        if not is_proper(model, self.policy):
            raise UnsupportedError("a loop costs next to nothing at the means of the rewards")
        self.visits = self.fresh_visits(self.policy)
        self.value = self.visits @ model.reward[self.policy]

    def fresh_visits(self, policy: Int[np.ndarray, "states"]) -> Float[np.ndarray, "states states"]:
        """Expected visits of a proper policy to each state from each."""
        chain = chain_on(self.model, policy, np.arange(self.model.n_states))
        return expected_visits(chain.moves.toarray()[None], chain.out[None])[0]

    def line(self, direction: PerPair) -> Line:
        """V* along the means, in both directions."""
        return Line(self.ray(direction), self.ray(-direction))

    def ray(self, direction: PerPair) -> Ray:
        """V* along the means, in one direction.

        Where rewards only fall, nothing is left to find once the slope is 0: the policy plays no pair that falls.
        """
        position, falls = _Position(self, direction), bool((direction <= 0.0).all())
        at: list[float] = []
        rise: list[float] = []
        for _ in range(MOST_SWITCHES * self.model.n_states):
            settled = falls and position.slope >= -position.flat
            new = None if settled else position.next_switch()
            if new is None:
                return Ray(at, rise, np.inf)
            risen = position.switch(new)
            if risen is None:
                return Ray(at, rise, position.z)
            if risen > 0.0:
                at.append(position.z)
                rise.append(risen)
        return Ray(at, rise, np.nan)


class _Position:
    """A point of a line and the policy that is optimal there, with values u + w z.

    Its matrix of visits is that of an earlier policy plus a term of rank one for each switch since, left' right.
    """

    def __init__(self, problem: _Problem, direction: PerPair) -> None:
        self.problem, self.direction, self.z = problem, direction, 0.0
        self.policy, self._visits = problem.policy.copy(), problem.visits
        self._left = self._right = np.zeros((0, problem.model.n_states))
        self.u, self.w = problem.value, problem.visits @ direction[problem.policy]

    @property
    def slope(self) -> float:
        """Of V* at the start."""
        return float(self.problem.model.initial @ self.w)

    @property
    def flat(self) -> float:
        """Slopes up to this size are rounding."""
        return FLAT * float(np.abs(self.direction).max() + np.abs(self.w).max())

    def next_switch(self) -> int | None:
        """Move to where a pair first becomes better than the policy, and return it; None if none does within reach."""
        model, ahead = self.problem.model, self.problem.law @ np.stack([self.u, self.w], axis=1)
        beta = self.direction + ahead[:, 1] - self.w[model.pair_state]
        beta[self.policy] = 0.0
        rising = np.flatnonzero(beta > self.flat)
        if not len(rising):
            return None
        alpha = model.reward[rising] + ahead[rising, 0] - self.u[model.pair_state[rising]]
        reach = -alpha / beta[rising]
        first = int(np.argmin(reach))
        self.z = max(self.z, float(reach[first]))
        return int(rising[first]) if self.z < FAR else None

    def switch(self, new: int) -> float | None:
        """Play another pair in its state, and return by how much the slope at the start rises; None if improper."""
        problem, law = self.problem, self.problem.law
        state, row = int(problem.model.pair_state[new]), slice(law.indptr[new], law.indptr[new + 1])
        after, prob = law.indices[row], law.data[row]
        comes = self._visits[:, state] + self._right[:, state] @ self._left
        comes = comes / comes[state]
        away = 1.0 - float(prob @ comes[after])
        self.policy[state] = new
        if away < RARE:
            return self._afresh()
        alpha = problem.model.reward[new] + float(prob @ self.u[after]) - self.u[state]
        beta = self.direction[new] + float(prob @ self.w[after]) - self.w[state]
        shares = self._left[:, after] @ prob - self._left[:, state]
        change = prob @ self._visits[after] - self._visits[state] + shares @ self._right
        change[state] += 1.0
        self._left, self._right = np.vstack([self._left, comes / away]), np.vstack([self._right, change])
        self.u, self.w = self.u + comes * (alpha / away), self.w + comes * (beta / away)
        return float(problem.model.initial @ comes) * beta / away

    def _afresh(self) -> float | None:
        """Values and visits of the policy from its linear system, and the rise of the slope; None if improper."""
        problem, before = self.problem, self.slope
        if not is_proper(problem.model, self.policy):
            return None
        self._visits = problem.fresh_visits(self.policy)
        self._left = self._right = self._left[:0]
        self.u, self.w = (self._visits @ pay[self.policy] for pay in (problem.model.reward, self.direction))
        return self.slope - before
