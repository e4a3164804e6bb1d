"""The exact posterior as a density on the manifold itself, for any differentiable model of the action values.

Let theta have the prior density p on R^k, let Q_theta be differentiable, and let n <= k pairs be observed. With

    G_i(theta) = Q_theta(s_i, a_i) - sum p(s'|i) max_a Q_theta(s', a),    M = {theta: G(theta) = r},

Theorem hausdorff_maintext says that the posterior given G = r has, with respect to (k - n)-dimensional Hausdorff
measure on M (length, area, ...), the density

    p(theta) / (m(r) J(theta)),    J = sqrt(det(DG DG')),    m(r) = the integral of p / J over M.

J is the factor by which G stretches space across M, so p / J is the density of the prior on M by the co-area formula;
m(r) is the density of the random vector G(theta) at r, the evidence. DG is computed by automatic differentiation, and J
as the product of the diagonal of a QR factor of DG', which does not square its condition number.

For tables (theta = q), M is the graph of h over the unobserved values theta_U, and its surface factor is sqrt(det(I +
Dh'Dh)): its product with the density above is the chart's density p / |det A|, and m(r) is the chart's evidence.

G has kinks where two actions tie. The formula holds where DG exists; values at a kink are meaningless, and kinks have
no mass unless observed actions tie on a part of M that has mass, where the chart takes the limit of small tolerances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.cuts import check_exact, covering
from bellmanifold.posteriors.estimated import Estimate
from bellmanifold.posteriors.importance import by_importance
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.problem.dataset import Dataset, require_plain
from bellmanifold_paper.bellman import residuals, transitions
from bellmanifold_paper.parametrisation import tabular
from bellmanifold_paper.priors import NormalPrior

Point = Float[Array, "parameters"]


@dataclass(frozen=True, eq=False)
class Manifold:
    """The set of parameters that solve the observed Bellman equations exactly, with the posterior density on it.

    Attributes:
        data: observations with deterministic rewards.
        q_of: parameters -> action values by pair, a JAX function.
        log_prior: log density of the parameters, a JAX function.
        log_evidence: log m(r); if None, the density is not normalised.
    """

    data: Dataset
    q_of: Callable[[Point], Float[Array, "pairs"]]
    log_prior: Callable[[Point], Float[Array, ""]]
    log_evidence: Estimate | None = None

    def constraint(self, theta: Point) -> Float[Array, "observed"]:
        """G(theta) - r, which is 0 exactly on the manifold."""
        seen = np.flatnonzero(self.data.observed)
        residual = residuals(transitions(self.data.model), self.q_of(theta))
        return residual[seen] - jnp.asarray(self.data.deterministic_reward()[seen])

    def log_stretch(self, theta: Point) -> Float[Array, ""]:
        """log J(theta); -inf where the derivative of the constraint is rank-deficient."""
        derivative = jax.jacrev(self.constraint)(theta)
        upper = jnp.linalg.qr(derivative.T, mode="r")
        return jnp.sum(jnp.log(jnp.abs(jnp.diagonal(upper))))

    def log_density(self, theta: Point) -> Float[Array, ""]:
        """Log density of the posterior at a point of the manifold, with respect to Hausdorff measure.

        The formula has a value elsewhere, too: the caller must ensure that `constraint` is 0.
        """
        normaliser = 0.0 if self.log_evidence is None else float(self.log_evidence.value)
        return self.log_prior(theta) - self.log_stretch(theta) - normaliser


def manifold(
    data: Dataset,
    q_of: Callable[[Point], Float[Array, "pairs"]],
    log_prior: Callable[[Point], Float[Array, ""]],
    parameters: int,
) -> Manifold:
    """The manifold of a model Q_theta; its density lacks the normalising constant 1 / m(r).

    Args:
        data: observations with deterministic rewards.
        q_of: parameters -> action values by pair, a JAX function.
        log_prior: log density of the parameters, a JAX function.
        parameters: number of parameters.

    Raises:
        BadInputError: if q_of does not return one finite number per pair.
        UnsupportedError: if there are more observed pairs than parameters.

    >>> from bellmanifold import envs
    >>> go = Dataset.from_pairs(envs.two_state(), [("s1", "go")])
    >>> found = manifold(go, lambda theta: 2.0 * theta, lambda theta: -0.5 * theta @ theta, parameters=2)
    >>> round(float(found.log_density(jnp.array([0.0, -0.5]))) + 0.125, 6)
    -0.693147
    """
    require_plain(data, "hausdorff.manifold")
    observed = int(data.observed.sum())
    if observed > parameters:
        raise UnsupportedError(
            f"{observed} observed pairs leave no manifold among {parameters} parameters: use a relaxed posterior, "
            "or paper.identifiability.best_linear_fit for a linear model"
        )
    found = q_of(jnp.zeros(parameters))
    if found.shape != (data.model.n_pairs,) or not bool(jnp.isfinite(found).all()):
        raise BadInputError(
            f"q_of returned shape {found.shape} at 0: give one finite number for each of the {data.model.n_pairs} pairs"
        )
    data.deterministic_reward()
    return Manifold(data, q_of, log_prior)


def tabular_manifold(data: Dataset, prior_scale: float = 10.0, seed: int = 0) -> Manifold:
    """The manifold of a table with prior N(0, prior_scale^2 I), its density normalised by the chart's evidence.

    Args:
        data: observations with deterministic rewards.
        prior_scale: standard deviation of the prior.
        seed: seed of the evidence estimate.

    Raises:
        UnsupportedError: if the exact posterior does not exist, or importance sampling cannot estimate the evidence.
    """
    require_plain(data, "hausdorff.manifold")
    target = relaxed_target(data, 0.0, prior_scale)
    check_exact(target)
    result = by_importance(target, covering(target), Budget(seed=seed))
    evidence = result.log_evidence
    if evidence is None or not result.trustworthy:
        raise UnsupportedError(
            f"no evidence was found ({result.doubts[0]}): use a larger prior_scale, or the unnormalised manifold()"
        )
    return Manifold(data, tabular(data.model).values, NormalPrior(prior_scale).log_density, evidence)
