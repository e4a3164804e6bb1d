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

from bellmanifold.blocks import DENSE, EPSILON, NEARLY_TRAPPED, TRAPPED, factorise, refined, system
from bellmanifold.blocks import eliminate as eliminate
from bellmanifold.components import solve_by_components
from bellmanifold.errors import UnsupportedError
from bellmanifold.ssp import SSP, row_entries

TINY = 40
"""Chains up to this size are always eliminated densely, without subtraction."""
NEAR, SWEEPS, MOST = 1e-6, 10, 400
"""What leaves a residual of at most this share of the largest reward is near the answer; sweeps between two looks at
what is left, and at most in all, which is how many moves a chain may have to go."""


def solve_chain(
    model: SSP,
    policy: Int[np.ndarray, "states"],
    states: Int[np.ndarray, "n"],
    right: Float[np.ndarray, "n"],
    near: Float[np.ndarray, "n"] | None = None,
) -> Float[np.ndarray, "n"]:
    """Solve x = right + P x for the policy's chain on the given (transient) states.

    Args:
        policy: the pair each state plays; only the given states are read.
        states: where the chain lives, ascending; from each of them it leaves sooner or later.
        right: what each visit pays.
        near: what may be nearly the answer, if anything is known.
    """
    return solve_chains(model, policy, states, [right], near)[0]


def solve_chains(
    model: SSP,
    policy: Int[np.ndarray, "states"],
    states: Int[np.ndarray, "n"],
    rights: list[Float[np.ndarray, "n"]],
    near: Float[np.ndarray, "n"] | None = None,
) -> list[Float[np.ndarray, "n"]]:
    """The same for several right-hand sides, with one factorisation; only one if something is near its answer."""
    if not len(states):
        return rights
    moves, leaving, out = chain_on(model, policy, states)
    if len(states) <= DENSE:
        return [eliminate(moves.toarray(), out, right)[0] for right in rights]
    answer = None if near is None else _corrected(moves, leaving, rights[0], near)
    if answer is not None:
        return [answer]
    return list(solve_by_components(moves, leaving, out, np.stack(rights, axis=1)).T)


def _corrected(
    moves: csr_array, leaving: Float[np.ndarray, "n"], right: Float[np.ndarray, "n"], near: Float[np.ndarray, "n"]
) -> Float[np.ndarray, "n"] | None:
    """The answer by sweeps from what is near it; None if it is not near, or the chain has far to go.

    Divided by the mass that leaves, the system is x = b + M x; with N = (I - M)^-1 >= 0 the answer is N b, and what
    leaves a residual e is off by N e = e + M e + M^2 e + ... Where a term is at most a share of |b|, state by
    state, the terms after it sum to at most that share of N |b|, which is the answer's size if b has one sign: every
    state's answer is exact to a rounding of its own. The residual is taken in long double precision, or its
    rounding would be summed up.
    """
    size = np.abs(right)
    if np.abs(near).max() > MOST * size.mean():
        return None
    precise = right + (moves.astype(np.longdouble) @ near - leaving.astype(np.longdouble) * near)
    term = (precise / leaving).astype(np.float64)
    if not np.abs(term).max() <= NEAR * size.max():
        return None
    data = moves.data / np.repeat(leaving, np.diff(moves.indptr))
    share = csr_array((data, moves.indices, moves.indptr), shape=moves.shape)
    error, enough = term.copy(), EPSILON * size / leaving
    for sweeps in range(1, MOST + 1):
        term = share @ term
        error += term
        if sweeps % SWEEPS == 0 and (np.abs(term) <= enough).all():
            return near + error
    return None


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
