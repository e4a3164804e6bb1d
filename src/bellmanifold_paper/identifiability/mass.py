"""The mass of the likelihood in the cell of a policy: the integral of Theorem unboundedlh.

In the cell O^mu = {D q >= 0} of a policy mu (notation of `flat`) the residuals are B q. Let pair i be seen m_i >= 1
times, with rewards distributed as N(g_i, scale^2) and mean r_i; m_i = 1 is the relaxed likelihood with tolerance
`scale`. The joint density of these rewards is c_i N(r_i; (B q)_i, scale^2 / m_i), where c_i comes from the scatter
within the pair. If mu is proper, B is invertible, and with residuals y = B q as coordinates the integral is

    mass = C P(D B^-1 Y >= 0) / det(I - P_mu),   Y_i ~ N(r_i, scale^2 / m_i) independent,   C = prod c_i.

It is at most C / det(I - P_mu), the bound of the proof. (The paper writes it with the matrix A = B'B as beta
sqrt((2 pi)^d / det A) and omits a factor scale^d; with it, the scale cancels against beta, and with one observation per
pair the bound does not depend on the tolerance.) If no policy is improper, q -> g(q) is a bijection of R^d, so the
images B O^mu of the cells fill the space: the probabilities above, summed over all policies, are 1.

If mu is improper, A is singular. Then the mass is infinite if and only if the cell has a flat direction
(`flat.flat_direction`): a ball in the cell can be moved along it forever with the same likelihood. If there is none,
|B q| grows at least like |q| on the cell and the mass is finite. Every policy that maximises u has one. The same
criterion holds for incomplete data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from bellmanifold.mdp.graph import Policy, is_proper
from bellmanifold.mdp.linear import evaluate_chain, solve_chain
from bellmanifold.problem.dataset import Dataset, require_plain
from bellmanifold.problem.ssp import SSP
from bellmanifold_paper.engines.orthant import orthants
from bellmanifold_paper.engines.sequential import arrange
from bellmanifold_paper.identifiability.flat import cell_matrix, cell_walls, flat_direction, require_positive

POINTS, REPLICATES = 2**10, 16


@dataclass(frozen=True)
class LikelihoodMass:
    """The integral of the likelihood over a policy's cell.

    Attributes:
        finite: whether it is finite.
        log_bound: log of the proof's upper bound; infinite if the policy is improper or pairs are missing.
        log_mass: log of the mass; infinite if the mass is, None if it is finite but the formula does not apply
            (improper policies without a flat direction, incomplete data).
        log_mass_se: its standard error; 0 if it is exact.
    """

    finite: bool
    log_bound: float
    log_mass: float | None
    log_mass_se: float


def likelihood_mass(data: Dataset, policy: Policy, scale: float, seed: int = 0) -> LikelihoodMass:
    """Integrate the likelihood of all observations over the action values for which a policy is greedy.

    Args:
        data: observations; every one counts.
        policy: the pair played in each state.
        scale: tolerance, or standard deviation of the noise.
        seed: seed of the quasi-random points, which are used if there are more than two walls.

    >>> from bellmanifold import envs
    >>> data = Dataset.complete(envs.two_state())
    >>> likelihood_mass(data, np.array([0]), 2.0).finite
    False
    >>> likelihood_mass(data, np.array([1]), 2.0).log_bound
    0.0
    """
    require_plain(data, "identifiability.likelihood_mass")
    require_positive(scale)
    model = data.model
    if not (data.observed.all() and is_proper(model, policy)):
        finite = flat_direction(data, policy) is None
        return LikelihoodMass(finite, np.inf, None if finite else np.inf, 0.0)
    _, log_det = evaluate_chain(model, policy, np.arange(model.n_states), np.zeros(model.n_states))
    log_bound = _log_scatter(data, scale) - log_det + 0.0
    width = scale / np.sqrt(data.count)
    walls = cell_walls(model, policy)
    inverse = _inverse(model, policy)
    mean, factor = walls @ inverse @ data.mean_reward, walls @ inverse * width
    found = orthants(arrange(mean[None], factor[None]), POINTS, REPLICATES, np.random.default_rng(seed))
    (log_probability,), (se,) = found.summary()
    return LikelihoodMass(True, log_bound, float(log_bound + log_probability), float(se))


def _inverse(model: SSP, policy: Policy) -> Float[np.ndarray, "pairs pairs"]:
    """B^-1 of a proper policy: column i holds the action values if only pair i pays, and pays 1."""
    moves = (np.eye(model.n_pairs) - cell_matrix(model, policy))[:, policy]
    states = np.arange(model.n_states)
    columns = [unit + moves @ solve_chain(model, policy, states, unit[policy]) for unit in np.eye(model.n_pairs)]
    return np.stack(columns, axis=1)


def _log_scatter(data: Dataset, scale: float) -> float:
    """log C: the joint density of all rewards relative to that of the pairs' means."""
    spare = len(data) - data.model.n_pairs
    return float(
        -0.5 * spare * np.log(2 * np.pi * scale**2)
        - 0.5 * np.log(data.count).sum()
        - 0.5 * data.scatter.sum() / scale**2
    )
