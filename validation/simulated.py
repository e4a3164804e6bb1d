"""Replications of simulation-based calibration: parameters from the prior, rewards from the parameters.

If theta ~ N(0, sigma^2 I) and r_i = g_i(theta) + width_i * noise, then theta itself is one draw from the posterior
given r. So among L independent posterior draws the rank of any function of theta is uniform on 0 ... L, whatever the
problem, and whatever the function (Talts et al., 2018). Nothing has to be known about the posterior, which is why this
checks engines that have no oracle. g is defined for every theta, improper ones included, so problems with observed
loops count.

A replication is fixed by its problem, its likelihood and its index alone. Everything here is NumPy on dense matrices:
it shares no code with the engines.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

import bellmanifold as bm
from bellmanifold.envs.building import Move, from_moves

PRIOR_SCALE = 2.0
WIDTH = 0.5
"""Tolerance of the relaxed likelihood, and sd of the noise."""
QUANTITIES = ("Q of a seen pair", "Q of an unseen pair", "V of the start", "log likelihood")


def leaky_loop() -> bm.SSP:
    """Two states that lead to each other, every move of which may end: loops, but no end component."""
    moves = {
        ("a", "x"): Move(0.0, {"b": 0.9, "goal": 0.1}),
        ("a", "y"): Move(0.0, {"a": 0.5, "b": 0.2, "goal": 0.3}),
        ("a", "z"): Move(0.0, {"goal": 1.0}),
        ("b", "x"): Move(0.0, {"a": 0.8, "goal": 0.2}),
        ("b", "y"): Move(0.0, {"goal": 1.0}),
    }
    return from_moves("leaky loop", moves, start="a")


@dataclass(frozen=True, eq=False)
class Problem:
    """A problem and the pairs that are seen in it, in order.

    Attributes:
        model: the problem; its rewards are never used.
        seen: pairs seen, some of them again and again; deterministic rewards count once.
        unseen: the unseen pair whose value is looked at; it belongs to a state that the data touch.
    """

    model: bm.SSP
    seen: tuple[int, ...]
    unseen: int

    @cached_property
    def law(self) -> np.ndarray:
        """Transition probabilities, shape (pairs, states and goal)."""
        law = np.zeros((self.model.n_pairs, self.model.n_states + 1))
        np.add.at(law, (self.model.next_pair, self.model.next_state), self.model.next_prob)
        return law

    def values(self, q: np.ndarray) -> np.ndarray:
        """V(s) = max_a q(s, a) of each draw."""
        return np.maximum.reduceat(q, self.model.pair_start[:-1], axis=-1)

    def residuals(self, q: np.ndarray) -> np.ndarray:
        """g(q) of each draw."""
        return q - self.values(q) @ self.law[:, :-1].T


PROBLEMS = {
    "slippery sea": Problem(bm.envs.deep_sea(3, slip=0.2), (0, 1, 2, 2, 4, 5, 5, 5, 6, 9), 3),
    "leaky loop": Problem(leaky_loop(), (0, 0, 1, 3, 3, 3), 2),
    "swirl": Problem(bm.envs.swirl(2), (0, 0, 1, 3, 4, 4), 5),
}
"""Without a loop, with a loop that leaks (no end component), with a loop that need not be left (an end component)."""


@dataclass(frozen=True, eq=False)
class Replication:
    """One draw of parameters and data.

    Attributes:
        problem: the problem.
        likelihood: "exact" (no noise), "relaxed" (one reward a pair, tolerance `WIDTH`) or "noisy" (all repeats).
        index: number of the replication, which fixes everything random in it.
        truth: action values, shape (pairs,).
        data: observations.
    """

    problem: Problem
    likelihood: str
    index: int
    truth: np.ndarray
    data: bm.Dataset

    @cached_property
    def width(self) -> np.ndarray:
        """Width of each observed pair's likelihood, 0 elsewhere."""
        count = self.data.count
        return np.where(count > 0, WIDTH / np.sqrt(np.maximum(count, 1)), 0.0)

    def looked_at(self, q: np.ndarray) -> np.ndarray:
        """The `QUANTITIES` of each draw."""
        start = int(np.argmax(self.problem.model.initial))
        picked = (q[..., self.problem.seen[0]], q[..., self.problem.unseen], self.problem.values(q)[..., start])
        return np.stack([*picked, self.log_likelihood(q)], axis=-1)

    def log_likelihood(self, q: np.ndarray) -> np.ndarray:
        """Log density of the data, up to a constant: given all action values, or without noise given the unseen ones.

        Without noise the seen values are a function of the unseen ones and the rewards, so the density of the rewards
        is the prior's at the seen values, divided by the determinant of that change of variables.
        """
        seen = self.data.observed
        if self.likelihood != "exact":
            misfit = (self.problem.residuals(q) - self.data.mean_reward)[..., seen] / self.width[seen]
            return -0.5 * (misfit**2).sum(axis=-1)
        state = self.problem.model.pair_state
        greedy = q == self.problem.values(q)[..., state]
        derivative = np.eye(len(state)) - self.problem.law[:, state] * greedy[..., None, :]
        log_det = np.linalg.slogdet(derivative[..., seen, :][..., seen])[1]
        return -0.5 * (q[..., seen] ** 2).sum(axis=-1) / PRIOR_SCALE**2 - log_det


def replication(problem: str, likelihood: str, index: int) -> Replication:
    """Draw parameters and data; the parameters of an index are the same for every likelihood."""
    case = PROBLEMS[problem]
    rng = np.random.default_rng([zlib.crc32(problem.encode()), index])
    truth = PRIOR_SCALE * rng.standard_normal(case.model.n_pairs)
    pairs = np.array(case.seen if likelihood == "noisy" else sorted(set(case.seen)))
    noise = 0.0 if likelihood == "exact" else WIDTH * rng.standard_normal(len(pairs))
    data = bm.Dataset(case.model, pairs, case.residuals(truth)[pairs] + noise)
    return Replication(case, likelihood, index, truth, data)
