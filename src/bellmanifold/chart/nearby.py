"""Values of policies that differ in a few states from one whose chain has been factorised.

Let N = (I - P)^-1 for a policy with chain P, whose value is V = N b for payments b. A policy that differs in the k
states S has the chain P' = P + E D, where D (k x n) holds the changes of the rows, and E the columns of the identity
for S. Its Bellman residual at V is 0 outside S, and inside it is the *advantage* a of the new actions, so (Woodbury)

    V' = V + N E K^-1 a,    K = I - D N E,    log det(I - P') = log det(I - P) + log det K,

a system of k equations instead of n. Along a walk k is small, and the columns N E are reused. Nothing else is carried
from point to point, so rounding errors do not accumulate.

Cases that are not clearly regular (a nearly trapped chain, or an improper policy, whose K is singular) return None and
are left to policy iteration with factorised chains, which decides by the graph.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array

from bellmanifold.mdp.linear import FactorisedChain
from bellmanifold.problem.compressed_rows import Rows

MOST_SWITCHED = 48
"""Largest number of states in which a policy may differ."""
LARGEST = 1e4
"""Largest expected number of visits to a state, and largest entry of K^-1; beyond this digits are lost."""
MOST_NUMBERS = 2**21
"""Columns are kept if all of them together have at most this many entries."""

Own = Int[np.ndarray, "states"]
"""A policy: the pair each state plays."""


class Laws(NamedTuple):
    """Transition laws without the goal, also as tables of successors, padded by the goal with probability 0."""

    moves: csr_array
    nexts: Int[np.ndarray, "pairs nexts"]
    prob: Float[np.ndarray, "pairs nexts"]

    @classmethod
    def of(cls, moves: csr_array) -> Laws:
        """Laws from a matrix of probabilities without the goal."""
        return cls(moves, *Rows(moves.indptr, moves.indices, moves.data).padded(moves.shape[1]))


class Played(NamedTuple):
    """A proper policy with its chain on the states where it plays solved pairs; the other states end at once."""

    policy: Own
    inside: Int[np.ndarray, "inside"]
    chain: FactorisedChain


class Base:
    """A policy with a factorised chain, and the columns of N computed so far."""

    def __init__(self, laws: Laws, played: Played) -> None:
        self.laws, self.played, self.policy = laws, played, played.policy
        self._moves, states = laws.moves[self.policy[played.inside]], len(self.policy)
        self._visits = np.zeros((states + 1, states))
        self._known = np.zeros(states, dtype=bool)

    def visits(self, states: Int[np.ndarray, "some"]) -> Float[np.ndarray, "states_and_goal some"] | None:
        """Columns of N, with a row of zeros for the goal; None if entries are too large."""
        new = states[~self._known[states]]
        if len(new):
            columns = np.zeros((len(self.policy), len(new)))
            columns[new, np.arange(len(new))] = 1.0
            inside, factors = self.played.inside, self.played.chain.factors
            assert factors is not None, "the chain has factors"
            own = columns[inside]
            columns[inside] = 0.0
            columns[inside] = factors.solve(np.asarray(own + self._moves @ columns))
            self._visits[:-1, new] = columns
            self._known[new] = True
        found = self._visits[:, states]
        return found if np.abs(found).max() < LARGEST else None

    def differs(self, policy: Own) -> int:
        """Number of states in which a policy differs."""
        return int(np.count_nonzero(policy != self.policy))

    def change(
        self, there: Float[np.ndarray, "states"], pay: Float[np.ndarray, "pairs"], policy: Own
    ) -> tuple[Float[np.ndarray, "states"], float] | None:
        """Differences of a nearby policy's value and log determinant from the base's, whose value is `there`.

        None if the policy is not clearly proper.
        """
        (switched,) = np.nonzero(policy != self.policy)
        if not len(switched):
            return np.zeros(len(there)), 0.0
        visits = self.visits(switched)
        if visits is None:
            return None
        now, before = policy[switched], self.policy[switched]
        matrix = np.eye(len(switched))
        for pairs, sign in ((now, -1.0), (before, 1.0)):
            matrix += sign * np.einsum("ij,ijk->ik", self.laws.prob[pairs], visits[self.laws.nexts[pairs]])
        try:
            inverse = np.linalg.inv(matrix)
        except np.linalg.LinAlgError:
            return None
        sign, log_det = np.linalg.slogdet(matrix)
        if sign <= 0 or not np.abs(inverse).max() < LARGEST:
            return None
        best = np.append(there, 0.0)
        ahead = np.einsum("ij,ij->i", self.laws.prob[now], best[self.laws.nexts[now]])
        gain = np.einsum("ij,j->i", inverse, pay[now] + ahead - there[switched])
        return np.einsum("ij,j->i", visits[:-1], gain), float(log_det)
