"""The maximum likelihood fit of a linear model Q_theta = features theta, to which its posterior collapses.

If some theta solves the observed Bellman equations, the posterior concentrates on the manifold of solutions as epsilon
decreases. If none does, the relaxed posterior, proportional to prior(theta) exp(-S(theta) / (2 epsilon^2)) with

    S(theta) = sum_{i observed} (g_i(features theta) - r_i)^2,

concentrates at the minimiser of S (the end of Section 4.1 of the paper), whatever the prior, as long as it is positive
there. S is not convex, but for a fixed choice of greedy actions at the successors of observed pairs it is a sum of
squares |X theta - r|^2, X = B features, on the cone C theta >= 0, C = D features. So its global minimum is the smallest
of the minima over all those cones.

On one cone, let X = Q R. In z = R theta the problem is to project b = Q'r onto the cone G z >= 0, G = C R^-1. The
projection is b + G'l with the l >= 0 that minimises its norm: non-negative least squares, solved exactly by an active
set method. Cones whose unconstrained minimum is no better than the best point found so far are skipped.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import prod

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import solve_triangular
from scipy.optimize import nnls

from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.problem.dataset import Dataset, require_plain
from bellmanifold.problem.ssp import SSP
from bellmanifold_paper.identifiability.flat import cell_matrix, cell_walls

MOST_CELLS = 2**16
RANK_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class LinearFit:
    """The global maximiser of the relaxed likelihood of a linear model.

    Attributes:
        parameters: theta, shape (features,).
        q: its action values, shape (pairs,).
        sum_of_squares: S(theta); 0 if the model can solve the observed equations.
        cells: number of combinations of greedy actions.
    """

    parameters: Float[np.ndarray, "features"]
    q: Float[np.ndarray, "pairs"]
    sum_of_squares: float
    cells: int


def best_linear_fit(data: Dataset, features: Float[np.ndarray, "pairs features"]) -> LinearFit:
    """Find the global minimum of the sum of squared Bellman residuals of the observed pairs.

    Args:
        data: observations with deterministic rewards; each pair counts once.
        features: one row per pair.

    Raises:
        BadInputError: if the features do not fit the problem, or no pair was observed.
        UnsupportedError: for more than 65,536 cells, or if the best cell leaves a direction undetermined.

    >>> from bellmanifold import envs
    >>> fit = best_linear_fit(Dataset.complete(envs.four_state()), np.ones((5, 1)))
    >>> fit.parameters.round(6), round(fit.sum_of_squares, 6)
    (array([-1.5]), 21.5)
    """
    require_plain(data, "identifiability.best_linear_fit")
    model, observed = data.model, data.observed
    if features.shape[0] != model.n_pairs or not np.isfinite(features).all():
        raise BadInputError(
            f"features has shape {features.shape}: give one row of finite numbers for each of the {model.n_pairs} pairs"
        )
    if not observed.any():
        raise BadInputError("no pair was observed: every parameter fits; add observations")
    reward = data.deterministic_reward()[observed]
    follows = np.zeros(model.n_states + 1, dtype=bool)
    follows[model.next_state[observed[model.next_pair]]] = True
    policies = _choices(model, follows[:-1])
    designs = np.stack([cell_matrix(model, policy)[observed] @ features for policy in policies])
    bounds = [_least_squares(design, reward) for design in designs]
    best: tuple[float, Float[np.ndarray, "features"]] = (np.inf, np.zeros(features.shape[1]))
    for k in np.argsort(bounds, kind="stable"):
        if bounds[k] >= best[0]:
            break
        theta = _constrained_least_squares(designs[k], reward, cell_walls(model, policies[k], follows[:-1]) @ features)
        best = min(best, (float(np.sum((designs[k] @ theta - reward) ** 2)), theta), key=lambda found: found[0])
    return LinearFit(best[1], features @ best[1], best[0], len(policies))


def _choices(model: SSP, follows: Bool[np.ndarray, "states"]) -> list[Int[np.ndarray, "states"]]:
    """All policies that differ at the successors of observed pairs."""
    own = [range(model.pair_start[s], model.pair_start[s + 1]) for s in range(model.n_states)]
    options = [list(pairs) if follows[s] else [pairs[0]] for s, pairs in enumerate(own)]
    if prod(len(pairs) for pairs in options) > MOST_CELLS:
        raise UnsupportedError(
            f"more than {MOST_CELLS} choices of greedy actions: too many to enumerate; use a smaller problem"
        )
    return [np.array(choice) for choice in itertools.product(*options)]


def _least_squares(design: Float[np.ndarray, "observed features"], reward: Float[np.ndarray, "observed"]) -> float:
    """The unconstrained minimum of the sum of squares."""
    theta = np.linalg.lstsq(design, reward, rcond=RANK_TOLERANCE)[0]
    return float(np.sum((design @ theta - reward) ** 2))


def _constrained_least_squares(
    design: Float[np.ndarray, "observed features"],
    reward: Float[np.ndarray, "observed"],
    walls: Float[np.ndarray, "walls features"],
) -> Float[np.ndarray, "features"]:
    """The minimiser of |design theta - reward|^2 subject to walls theta >= 0."""
    if np.linalg.matrix_rank(design, rtol=RANK_TOLERANCE) < design.shape[1]:
        raise UnsupportedError(
            "the observed pairs leave a combination of features undetermined where the fit may be best: "
            "use fewer features or more observations"
        )
    basis, upper = np.linalg.qr(design)
    z = basis.T @ reward
    if len(walls):
        normals = solve_triangular(upper, walls.T, trans="T")
        z = z + normals @ nnls(normals, -z)[0]
    return np.asarray(solve_triangular(upper, z), dtype=np.float64)
