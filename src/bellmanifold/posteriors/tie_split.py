"""How an exact posterior splits exactly tied actions when everything is known.

The limit epsilon -> 0 of relaxed posteriors does not split ties evenly. Residuals eps xi_i move the values of tied
actions by eps x_i, and to first order

    x_i = xi_i + sum p(s'|i) max_{a tied at s'} x(s', a),    xi_i independent standard normals,

so an action with more good continuations wins more often. A greedy policy of this small problem has weight 1 / |det A|.
States whose best action is unique are eliminated: their x is linear in xi and in the x of tied states, so a point
consists of one Gaussian number per tied pair,

    x_i = eta_i + sum_s M_is x_s,    cov eta = I + B B',    B = P_TU (I - P_UU)^-1,    M = P_TS + B P_US

(T tied pairs, S their states, U the other states). The strongly connected components of the graph of M are solved one
after the other: a single state by a maximum, a loop by policy iteration. Every policy of tied actions is proper, as no
loop of an exact posterior pays, so policy iteration may start from any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int, UInt64
from scipy.sparse import csc_array, csr_array, eye_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from bellmanifold.gaussian.chunks import chunks
from bellmanifold.mdp.components import by_depth
from bellmanifold.problem.ssp import SSP

MOST_NUMBERS = 2**22
"""Total size of the matrices that are solved at a time."""
STRICTLY = 1e-12
"""An action must be better by this share of the largest value; otherwise rounding could cause endless switching."""


@dataclass(frozen=True, eq=False)
class Ties:
    """The small problem of tied actions.

    Attributes:
        states: states with ties, ascending, shape (tied states,).
        start: the first tied pair of each state, and the number of tied pairs, shape (tied states + 1,).
        moves: M, shape (tied pairs, tied states).
        cov: covariance of eta, shape (tied pairs, tied pairs).
    """

    states: Int[np.ndarray, "tied_states"]
    start: Int[np.ndarray, "tied_states_and_1"]
    moves: Float[np.ndarray, "tied_pairs tied_states"]
    cov: Float[np.ndarray, "tied_pairs tied_pairs"]

    @cached_property
    def components(self) -> list[Int[np.ndarray, "component"]]:
        """Strongly connected components, each after the components that it leads to."""
        leads = csr_array(np.add.reduceat(self.moves, self.start[:-1], axis=0))
        label = by_depth(connected_components(leads, connection="strong")[1], leads)
        return [np.flatnonzero(label == one) for one in range(label.max() + 1)]

    @cached_property
    def factor(self) -> Float[np.ndarray, "tied_pairs tied_pairs"]:
        """L with L L' = cov eta; states that others depend on use the first coordinates, which are a net's best."""
        order = np.concatenate([self._pairs(component) for component in self.components])
        factor = np.empty_like(self.cov)
        factor[order] = np.linalg.cholesky(self.cov[np.ix_(order, order)])
        return factor

    def _pairs(self, component: Int[np.ndarray, "component"]) -> Int[np.ndarray, "pairs"]:
        return np.concatenate([np.arange(self.start[s], self.start[s + 1]) for s in component])

    def greedy(
        self, normals: Float[np.ndarray, "tied_pairs points"]
    ) -> tuple[Int[np.ndarray, "tied_states points"], Float[np.ndarray, "points"]]:
        """The tied pair that is best in each state at each point, and log |det (I - M)| of that policy."""
        eta = self.factor @ normals
        best = np.zeros((len(self.states), normals.shape[1]))
        choice = np.zeros(best.shape, dtype=np.int64)
        log_det = np.zeros(normals.shape[1])
        for component in self.components:
            pairs = self._pairs(component)
            later = np.flatnonzero(self.moves[pairs].any(axis=0))
            pay = eta[pairs] + self.moves[np.ix_(pairs, later)] @ best[later]  # nothing of this component yet
            inside = self.moves[np.ix_(pairs, component)]
            first = np.searchsorted(pairs, self.start[component])
            if inside.any():
                found, best[component], log_det_here = _iterate_policies(pay, inside, first)
                log_det += log_det_here
            else:
                found, best[component] = _largest(pay, first)
            choice[component] = pairs[found]
        return choice, log_det

    def code(self, policy: Int[np.ndarray, "n tied_states"]) -> UInt64[np.ndarray, "n *words"]:
        """Policies encoded as integers in mixed radix, in as few 64-bit words as possible."""
        words, room = [np.zeros(len(policy), dtype=np.uint64)], 2**63
        for column, first, base in zip(policy.T, self.start, np.diff(self.start).tolist(), strict=False):
            if room < base:
                words.append(np.zeros(len(policy), dtype=np.uint64))
                room = 2**63
            words[-1] = words[-1] * np.uint64(base) + (column - first).astype(np.uint64)
            room //= base
        return words[0] if len(words) == 1 else np.stack(words, axis=1)

    def log_det(self, policy: Int[np.ndarray, "tied_states"]) -> float:
        """log |det (I - M)| of one policy."""
        return float(np.linalg.slogdet(np.eye(len(policy)) - self.moves[policy])[1]) if len(policy) else 0.0


def tie_problem(model: SSP, tied: Int[np.ndarray, "tied_pairs"], unique: Int[np.ndarray, "other_states"]) -> Ties:
    """The small problem of tied pairs, given the pairs that are uniquely best in their state; both ascending."""
    states, start = np.unique(model.pair_state[tied], return_index=True)
    others = model.pair_state[unique]
    shape = (model.n_pairs, model.n_states + 1)
    law = csr_array((model.next_prob, model.next_state, model.next_start), shape=shape)
    to_tied, to_others = csr_array(law[tied][:, states]), csr_array(law[tied][:, others])
    moves, cov = to_tied.toarray(), np.eye(len(tied))
    if len(unique) and len(tied):
        system = csc_array((eye_array(len(unique)) - law[unique][:, others]).T)
        through = splu(system).solve(to_others.toarray().T).T  # B
        moves = moves + through @ law[unique][:, states]
        cov = cov + through @ through.T
    return Ties(states, np.append(start, len(tied)), moves, cov)


def _largest(
    value: Float[np.ndarray, "pairs points"], first: Int[np.ndarray, "states"]
) -> tuple[Int[np.ndarray, "states points"], Float[np.ndarray, "states points"]]:
    """The row of each state's largest value at each point, and that value."""
    parts = np.split(value, first[1:])
    best = np.stack([part.argmax(axis=0) for part in parts]) + first[:, None]
    return best, np.stack([part.max(axis=0) for part in parts])


def _iterate_policies(
    pay: Float[np.ndarray, "pairs points"],
    moves: Float[np.ndarray, "pairs states"],
    first: Int[np.ndarray, "states"],
) -> tuple[Int[np.ndarray, "states points"], Float[np.ndarray, "states points"], Float[np.ndarray, "points"]]:
    """Policy iteration at every point: the best pairs, values, and log |det (I - M)|."""
    count, points = len(first), pay.shape[1]
    choice, _ = _largest(pay, first)
    best, log_det = np.zeros((count, points)), np.zeros(points)
    for part in chunks(points, count * count, MOST_NUMBERS):
        own, settled = pay[:, part], False
        while not settled:
            system = np.eye(count) - moves[choice[:, part].T]
            value = np.linalg.solve(system, np.take_along_axis(own, choice[:, part], axis=0).T[..., None])[..., 0].T
            better, most = _largest(own + moves @ value, first)
            switch = most > value + STRICTLY * np.abs(value).max()
            settled = not switch.any()
            choice[:, part] = np.where(switch, better, choice[:, part])
        best[:, part], log_det[part] = value, np.linalg.slogdet(system)[1]
    return choice, best, log_det
