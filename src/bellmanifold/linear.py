"""Linear systems of transient Markov chains: (I - P) x = b for a policy's chain on some states.

The diagonal of I - P is formed from the mass that leaves a state (to other states, the goal, or out of the set),
never as 1 - P_ss: a state left with probability 1e-12 would lose four digits there. Small systems are eliminated
without any subtraction, which keeps every digit however nearly the chain is trapped; large ones are solved strong
component by strong component (`bellmanifold.components`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csc_array, csr_array
from scipy.sparse.linalg import SuperLU

from bellmanifold.blocks import DENSE, NEARLY_TRAPPED, TRAPPED, factorise, refined, system
from bellmanifold.components import solve_by_components
from bellmanifold.errors import UnsupportedError
from bellmanifold.ssp import SSP, row_entries
from bellmanifold.subtraction_free import eliminate

TINY = 40
"""Chains up to this size are always eliminated densely, without subtraction."""


def solve_chain(
    model: SSP,
    policy: Int[np.ndarray, "states"],
    states: Int[np.ndarray, "n"],
    right: Float[np.ndarray, "n"],
) -> Float[np.ndarray, "n"]:
    """Solve x = right + P x for the policy's chain on the given (transient) states.

    Args:
        policy: the pair each state plays; only the given states are read.
        states: where the chain lives, ascending; from each of them it leaves sooner or later.
        right: what each visit pays.
    """
    return solve_chains(model, policy, states, [right])[0]


def solve_chains(
    model: SSP,
    policy: Int[np.ndarray, "states"],
    states: Int[np.ndarray, "n"],
    rights: list[Float[np.ndarray, "n"]],
) -> list[Float[np.ndarray, "n"]]:
    """The same for several right-hand sides, with one factorisation."""
    if not len(states):
        return rights
    moves, leaving, out = chain_on(model, policy, states)
    if len(states) <= DENSE:
        return [eliminate(moves.toarray(), out, right)[0] for right in rights]
    return list(solve_by_components(moves, leaving, out, np.stack(rights, axis=1)).T)


@dataclass(frozen=True, eq=False)
class Chain:
    """A policy's chain on some transient states, factorised once for any number of right-hand sides.

    Attributes:
        moves: probabilities among the states, without self-loops.
        leaving: mass that leaves each state.
        out: the part of it that leaves the set.
        factors: of I - P; None where the chain is small or nearly trapped, and is eliminated instead.
    """

    moves: csr_array
    leaving: Float[np.ndarray, "n"]
    out: Float[np.ndarray, "n"]
    factors: SuperLU | None

    @cached_property
    def _system(self) -> csc_array:
        return system(self.moves, self.leaving)

    def evaluate(self, right: Float[np.ndarray, "n"]) -> tuple[Float[np.ndarray, "n"], float]:
        """Solve x = right + P x, and return log det(I - P) as well."""
        if not len(right):
            return right, 0.0
        if self.factors is None:
            x, pivots = eliminate(self.moves.toarray(), self.out, right)
            return x, float(np.log(pivots).sum())
        return refined(self.factors, self._system, right), self._log_det

    @cached_property
    def _log_det(self) -> float:
        assert self.factors is not None
        return float(np.log(np.abs(self.factors.U.diagonal())).sum())


def factorised_chain(model: SSP, policy: Int[np.ndarray, "states"], states: Int[np.ndarray, "n"]) -> Chain:
    """A policy's chain on the given (transient) states, ready to be solved.

    Args:
        policy: the pair each state plays; only the given states are read.
        states: where the chain lives, ascending; from each of them it leaves sooner or later.

    Raises:
        UnsupportedError: if a large chain is trapped to rounding.
    """
    moves, leaving, out = chain_on(model, policy, states)
    if len(states) <= TINY:
        return Chain(moves, leaving, out, None)
    factors = factorise(system(moves, leaving))
    pivots = np.abs(factors.U.diagonal()) if factors else np.zeros(1)
    if factors and (len(states) > DENSE or pivots.min() > TRAPPED * leaving.max()):
        return Chain(moves, leaving, out, factors)
    if len(states) > DENSE:
        raise UnsupportedError(NEARLY_TRAPPED)
    return Chain(moves, leaving, out, None)


def evaluate_chain(
    model: SSP, policy: Int[np.ndarray, "states"], states: Int[np.ndarray, "n"], right: Float[np.ndarray, "n"]
) -> tuple[Float[np.ndarray, "n"], float]:
    """Solve x = right + P x as `solve_chain` does, and return log det(I - P) as well."""
    return factorised_chain(model, policy, states).evaluate(right)


def chain_on(
    model: SSP, policy: Int[np.ndarray, "states"], states: Int[np.ndarray, "n"]
) -> tuple[csr_array, Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """A policy's moves among some states (self-loops left out), the mass leaving each state, and the part of it
    that leaves the set."""
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
    return moves, leaving, out
