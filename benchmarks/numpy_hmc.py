"""Hamiltonian Monte Carlo for one chain of the relaxed posterior in plain NumPy: the peer of our batched chains.

    log p(q) = -|q|^2 / (2 sigma^2) - sum over observed i of (r_i - g_i(q))^2 / (2 epsilon^2) + constant,

g_i = q_i - (P V)_i, V(s) = max_a q(s, a). With e = (g - r) / epsilon^2 on observed pairs, the gradient is
-q / sigma^2 - e + (P' e) at the greedy pairs. Value and gradient share everything, and nothing is a loop over pairs.
"""

from __future__ import annotations

import numpy as np

from bellmanifold.problem.dataset import Dataset


class Posterior:
    """The density of one data set; every state must have as many actions as the others."""

    def __init__(self, data: Dataset, epsilon: float, prior_scale: float = 10.0) -> None:
        model = data.model
        actions = np.diff(model.pair_start)
        assert (actions == actions[0]).all(), "states with different numbers of actions"
        self.shape, self.first = (model.n_states, int(actions[0])), np.asarray(model.pair_start[:-1])
        law = np.zeros((model.n_pairs, model.n_states + 1))
        np.add.at(law, (model.next_pair, model.next_state), model.next_prob)
        self.law, self.back = law[:, :-1].copy(), law[:, :-1].T.copy()
        self.reward, self.prior = data.mean_reward, prior_scale**-2
        self.precision = data.observed * epsilon**-2

    def value_and_gradient(self, q: np.ndarray) -> tuple[float, np.ndarray]:
        """Log density, but for a constant, and its gradient."""
        greedy = self.first + q.reshape(self.shape).argmax(axis=1)
        residual = q - self.law @ q[greedy] - self.reward
        weighted = self.precision * residual
        gradient = -self.prior * q - weighted
        gradient[greedy] += self.back @ weighted
        return -0.5 * (self.prior * (q @ q) + weighted @ residual), gradient


def walk(
    posterior: Posterior, q: np.ndarray, step: float, iterations: int, leapfrogs: int, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Move a chain; returns all points and the mean acceptance probability."""
    value, gradient = posterior.value_and_gradient(q)
    points, accepted = np.empty((iterations, len(q))), 0.0
    for k in range(iterations):
        momentum = rng.standard_normal(len(q))
        energy = value - 0.5 * (momentum @ momentum)
        new, slope = q, gradient
        momentum = momentum + 0.5 * step * slope
        for j in range(leapfrogs):
            new = new + step * momentum
            new_value, slope = posterior.value_and_gradient(new)
            momentum = momentum + (step if j + 1 < leapfrogs else 0.5 * step) * slope
        chance = np.exp(min(0.0, new_value - 0.5 * (momentum @ momentum) - energy))
        accepted += float(chance)
        if rng.random() < chance:
            q, value, gradient = new, new_value, slope
        points[k] = q
    return points, accepted / iterations
