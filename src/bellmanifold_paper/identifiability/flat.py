"""Directions along which the likelihood does not change.

Let mu be a policy (a pair for each state) and let its *cell* be the cone of action values for which it is greedy:
q(s, mu(s)) >= q(s, a), in short D q >= 0. There the residuals are linear, g(q) = B q with

    B_ij = 1(i = j) - sum_s' p(s'|i) 1(j = mu(s')).

**Improper policies** (Lemma loopthm). Take an end component and let u_i be the largest probability of ever reaching
it after pair i. If in every state with u > 0 some greedy action of q also maximises u, then the maxima add up,
V(q + c u) = V(q) + c max_a u for c >= 0, and u equals its own expectation one move ahead. So all residuals are constant
on the half-line q + c u, and so is any likelihood that depends on residuals only: for every kernel and tolerance, every
set of observed pairs, and every number of noisy repeats.

**Proper policies** (Lemma propernou). det B = det(I - P_mu), with P_mu the transition matrix of the policy, is 0 if and
only if mu is improper. With every pair observed and mu proper, B w = 0 only if w = 0.

**In between.** A half-line q + c w, c >= 0, stays in the cell and keeps the likelihood of the observed pairs O if and
only if B_O w = 0 and D w >= 0. A linear program decides whether such a w other than 0 exists. An improper policy may
have none: suppose it loops at s and goes to the goal from t, where another action leads to s. Raising the values of the
loop raises that action, too, until it is greedy at t and the cell is left.

**Size of the change** (Lemma lipschitz). If every Q_theta(s, a) is L-Lipschitz in theta, each residual is 2 L-Lipschitz
and a vector of n residuals 2 sqrt(n) L. For tables, rows of B have norm at most sqrt(2), so sqrt(2 n) holds as well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import null_space
from scipy.optimize import linprog

from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.mdp.checks import direction
from bellmanifold.mdp.graph import Policy, States, end_components, is_proper
from bellmanifold.problem.dataset import Dataset, require_data
from bellmanifold.problem.ssp import SSP, require_closed

MOST_PAIRS = 500
"""Most pairs for which matrices, which are dense, are built."""
CLEARLY = 1e-6
"""Threshold of the linear program, which works in the unit box: an optimum of at most this counts as 0."""


class FlatCone(NamedTuple):
    """A cone of action values on which the likelihood is constant in one direction.

    Attributes:
        direction: u, shape (pairs,).
        policy: the first action that maximises u in each state (phi in the paper), shape (states,).
        states: the end component, shape (members,).
    """

    direction: Float[np.ndarray, "pairs"]
    policy: Policy
    states: Int[np.ndarray, "members"]


def flat_cones(model: SSP) -> list[FlatCone]:
    """The cones of Lemma loopthm, one for each goal-free maximal end component.

    >>> from bellmanifold import envs
    >>> flat_cones(envs.two_state())[0].direction
    array([1., 0.])
    """
    require_closed(model, "identifiability.flat_cones")
    found = []
    for component in end_components(model):
        u = direction(model, component)
        found.append(FlatCone(u, model.greedy(u), component.states))
    return found


def lies_in_cone(model: SSP, cone: FlatCone, q: Float[np.ndarray, "pairs"]) -> bool:
    """Whether q has a greedy action that maximises u in every state from which the component can be reached."""
    u = cone.direction
    agree = np.logical_or.reduceat(model.is_best(q) & model.is_best(u), model.pair_start[:-1])
    return bool((agree | (model.best(u) == 0)).all())


def log_likelihood_along(
    data: Dataset,
    q: Float[np.ndarray, "pairs"],
    along: Float[np.ndarray, "pairs"],
    steps: Float[np.ndarray, "steps"],
    scale: float,
) -> Float[np.ndarray, "steps"]:
    """Log-likelihood at q + c along for each c in `steps`; every observation counts, including repeats.

    Args:
        data: observations, each of them N(g_i(q), scale^2). If each pair was seen once, `scale` is the tolerance
            epsilon of the relaxed likelihood; with repeats it is the standard deviation of the noise.
        q: action values.
        along: a direction.
        steps: multiples c of the direction.
        scale: a positive number.
    """
    require_positive(scale)
    points = q + steps[:, None] * along
    residual = points - data.model.expected_next(data.model.best(points))
    z = (data.reward - residual[:, data.pair]) / scale
    return np.asarray(-0.5 * (z**2).sum(axis=1) - len(data) * np.log(scale * np.sqrt(2 * np.pi)), dtype=np.float64)


def cell_matrix(model: SSP, policy: Policy) -> Float[np.ndarray, "pairs pairs"]:
    """B: the Jacobian of the residuals where the policy is greedy."""
    if model.n_pairs > MOST_PAIRS:
        raise UnsupportedError(
            f"{model.n_pairs} pairs are too many for a dense matrix: at most {MOST_PAIRS}; use bm.check for larger ones"
        )
    matrix = np.eye(model.n_pairs)
    inside = model.next_state < model.n_states
    entry = (model.next_pair[inside], policy[model.next_state[inside]])
    np.subtract.at(matrix, entry, model.next_prob[inside])
    return matrix


def cell_walls(model: SSP, policy: Policy, states: States | None = None) -> Float[np.ndarray, "walls pairs"]:
    """D: a row e_mu(s) - e_(s, a) for every state s (of the given ones) and action a that the policy does not play.

    Args:
        model: the problem.
        policy: the pair played in each state.
        states: states in which it must be greedy; all by default.
    """
    chosen = policy[model.pair_state]
    counts = chosen >= 0 if states is None else states[model.pair_state]
    other = np.flatnonzero((chosen != np.arange(model.n_pairs)) & counts)
    walls = np.zeros((len(other), model.n_pairs))
    walls[np.arange(len(other)), chosen[other]] = 1.0
    walls[np.arange(len(other)), other] = -1.0
    return walls


def flat_direction(data: Dataset, policy: Policy) -> Float[np.ndarray, "pairs"] | None:
    """A direction in which the policy's cell is unbounded and the likelihood constant; None if there is none.

    Proper policies with complete data have none, which is decided on the graph. Otherwise a linear program decides, up
    to its tolerance: it cannot resolve transition probabilities below about 1e-7.

    Args:
        data: observations; it only matters which pairs were seen.
        policy: the pair played in each state.

    >>> from bellmanifold import envs
    >>> data = Dataset.complete(envs.two_state())
    >>> flat_direction(data, np.array([0])), flat_direction(data, np.array([1]))
    (array([1., 0.]), None)
    """
    require_data(data)
    model, observed = data.model, data.observed
    require_closed(model, "identifiability.flat_direction")
    if observed.all() and is_proper(model, policy):
        return None
    kept = cell_matrix(model, policy)[observed]
    walls = cell_walls(model, policy)
    if len(walls):
        found = linprog(
            -walls.sum(axis=0),
            A_ub=-walls,
            b_ub=np.zeros(len(walls)),
            A_eq=kept if len(kept) else None,
            b_eq=np.zeros(len(kept)) if len(kept) else None,
            bounds=(-1.0, 1.0),
        )
        along = np.array(found.x, dtype=np.float64)
        if (walls @ along).sum() > CLEARLY:
            return along + 0.0
    along_walls = null_space(np.vstack([kept, walls]), rcond=CLEARLY)
    return np.asarray(along_walls[:, 0], dtype=np.float64) if along_walls.shape[1] else None


def lipschitz_bound(observed_pairs: int, lipschitz: float = 1.0) -> float:
    """2 sqrt(n) L, a Lipschitz constant of the vector of n residuals (Lemma lipschitz).

    Args:
        observed_pairs: n.
        lipschitz: L, a Lipschitz constant of every theta -> Q_theta(s, a); 1 for tables.

    >>> lipschitz_bound(4)
    4.0
    """
    if observed_pairs < 0 or not (np.isfinite(lipschitz) and lipschitz >= 0):
        raise BadInputError(f"observed_pairs is {observed_pairs}, lipschitz {lipschitz}: neither may be negative")
    return float(2.0 * np.sqrt(observed_pairs) * lipschitz)


def require_positive(scale: float) -> None:
    """Raise unless a tolerance or standard deviation is positive and finite."""
    if not (np.isfinite(scale) and scale > 0):
        raise BadInputError(f"scale is {scale}: give a positive number")
