"""Linear systems of transient Markov chains: (I - P) x = b for a policy's chain on some states.

Small systems are eliminated without subtraction, which keeps every digit however rarely the chain leaves; large ones
are solved one strongly connected component at a time (`bellmanifold.mdp.components`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int
from scipy.sparse import csc_array, csr_array
from scipy.sparse.linalg import SuperLU

from bellmanifold.errors import UnsupportedError
from bellmanifold.mdp.blocks import DENSE, NEARLY_TRAPPED, TRAPPED, Chain, Indices, Vector, factorise, refine, system
from bellmanifold.mdp.components import solve_by_components
from bellmanifold.mdp.subtraction_free import eliminate
from bellmanifold.problem.ssp import SSP, row_entries

TINY = 40
"""Factorised chains up to this size are always eliminated densely, without subtraction."""


def solve_chain(model: SSP, policy: Int[np.ndarray, "states"], states: Indices, right: Vector) -> Vector:
    """Solve x = right + P x for the policy's chain on the given (transient) states.

    Args:
        policy: the pair each state plays; only those of the given states are used.
        states: the states of the chain, ascending; from each of them it leaves eventually.
        right: the reward of each visit.
    """
    return solve_chains(model, policy, states, [right])[0]


def solve_chains(model: SSP, policy: Int[np.ndarray, "states"], states: Indices, rights: list[Vector]) -> list[Vector]:
    """Solve x = right + P x for several right-hand sides."""
    if not len(states):
        return rights
    chain = chain_on(model, policy, states)
    if len(states) <= DENSE:
        return [eliminate(chain.moves.toarray(), chain.out, right)[0] for right in rights]
    return list(solve_by_components(chain, np.stack(rights, axis=1)).T)


@dataclass(frozen=True, eq=False)
class FactorisedChain:
    """A policy's chain on some transient states, factorised once for any number of right-hand sides.

    Attributes:
        chain: the chain.
        factors: LU factors of I - P; None if the chain is small or nearly trapped, and is eliminated instead.
    """

    chain: Chain
    factors: SuperLU | None

    @cached_property
    def _system(self) -> csc_array:
        return system(self.chain)

    def evaluate(self, right: Vector) -> tuple[Vector, float]:
        """Solve x = right + P x, and return log det(I - P) as well."""
        if not len(right):
            return right, 0.0
        if self.factors is None:
            x, pivots = eliminate(self.chain.moves.toarray(), self.chain.out, right)
            return x, float(np.log(pivots).sum())
        return refine(self.factors, self._system, right), self._log_det

    @cached_property
    def _log_det(self) -> float:
        assert self.factors is not None
        return float(np.log(np.abs(self.factors.U.diagonal())).sum())


def factorised_chain(model: SSP, policy: Int[np.ndarray, "states"], states: Indices) -> FactorisedChain:
    """Factorise a policy's chain on the given (transient) states.

    Raises:
        UnsupportedError: if a large chain is trapped up to rounding.
    """
    chain = chain_on(model, policy, states)
    if len(states) <= TINY:
        return FactorisedChain(chain, None)
    factors = factorise(system(chain))
    if len(states) > DENSE:
        if factors is None:
            raise UnsupportedError(NEARLY_TRAPPED)
        return FactorisedChain(chain, factors)
    trapped = factors is None or not np.abs(factors.U.diagonal()).min() > TRAPPED * chain.leaving.max()
    return FactorisedChain(chain, None if trapped else factors)


def evaluate_chain(
    model: SSP, policy: Int[np.ndarray, "states"], states: Indices, right: Vector
) -> tuple[Vector, float]:
    """Solve x = right + P x as `solve_chain` does, and return log det(I - P) as well."""
    return factorised_chain(model, policy, states).evaluate(right)


def chain_on(model: SSP, policy: Int[np.ndarray, "states"], states: Indices) -> Chain:
    """The policy's chain restricted to some states."""
    n = len(states)
    number = np.full(model.n_states + 1, -1, dtype=np.int32)
    number[states] = np.arange(n)
    entry, start = row_entries(model.next_start, policy[states])
    row = np.repeat(np.arange(n), np.diff(start))
    column, prob = number[model.next_state[entry]], model.next_prob[entry]
    other, outside = column != row, column < 0
    inner = other & ~outside
    begin = np.append(0, np.cumsum(inner, dtype=np.int32))[start]
    moves = csr_array((prob[inner], column[inner], begin), shape=(n, n))
    leaving, out = (np.bincount(row[which], prob[which], n).astype(np.float64) for which in (other, outside))
    return Chain(moves, leaving, out)
