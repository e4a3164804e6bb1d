"""Linear systems of transient Markov chains: (I - P) x = b for a policy's chain on some states.

The diagonal of I - P is formed from the mass that leaves a state (to other states, the goal, or out of the set),
never as 1 - P_ss: a state left with probability 1e-12 would lose four digits there. Small systems are eliminated
without any subtraction (Grassmann, Taksar and Heyman 1985), which keeps every digit however nearly the chain is
trapped. Large ones are factorised when their graph is narrow (grids, chains), and iterated on when it is an expander,
where a factorisation would fill in and iteration converges at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int, Shaped
from scipy.sparse import csc_array, csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import LinearOperator, SuperLU, bicgstab, spilu

from bellmanifold.errors import UnsupportedError
from bellmanifold.ssp import SSP, row_entries

TINY, DENSE = 40, 200
"""Systems up to the first size are always eliminated densely, without subtraction; systems up to the second if a
factorisation would lose digits."""
TRAPPED = 1e-6
"""A pivot below this has lost too many digits."""
EXPANDER = 0.1
"""A reordered bandwidth above this share of the size means that a factorisation would fill in."""
ITERATIONS = 1000
ACCURACY = 1e-10
ROUNDING = 1e-13
NEARLY_TRAPPED = "a policy leaves some states with a probability of about 1e-16: use --discount 0.999"
ROOM = 4
"""Factors begin with room for this many times the entries of the matrix, and grow where they fill in more."""
FILLS_IN = 5000
"""Above this size an expander cannot be factorised in reasonable time; rounding is then accepted."""


def solve_chain(
    model: SSP, policy: Int[np.ndarray, "states"], states: Int[np.ndarray, "n"], right: Float[np.ndarray, "n"]
) -> Float[np.ndarray, "n"]:
    """Solve x = right + P x for the policy's chain on the given (transient) states.

    Args:
        policy: the pair each state plays; only the given states are read.
        states: where the chain lives, ascending; from each of them it leaves sooner or later.
        right: what each visit pays.
    """
    return solve_chains(model, policy, states, [right])[0]


def solve_chains(
    model: SSP, policy: Int[np.ndarray, "states"], states: Int[np.ndarray, "n"], rights: list[Float[np.ndarray, "n"]]
) -> list[Float[np.ndarray, "n"]]:
    """The same for several right-hand sides, with one factorisation."""
    if not len(states):
        return rights
    moves, leaving, out = chain_on(model, policy, states)
    if len(states) <= DENSE:
        return [eliminate(moves.toarray(), out, right)[0] for right in rights]
    matrix = _system(moves, leaving)
    del moves, out  # room for the factors
    if _bandwidth(matrix) > EXPANDER * len(states):
        guesses = [_iterate(matrix, leaving, right) for right in rights]
        good = [guess for guess in guesses if guess is not None]
        if len(good) == len(rights):
            return good
    factors = _factors(matrix)
    if factors is None:
        raise UnsupportedError(NEARLY_TRAPPED)
    return [_refined(factors, matrix, right) for right in rights]


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
        return _system(self.moves, self.leaving)

    def evaluate(self, right: Float[np.ndarray, "n"]) -> tuple[Float[np.ndarray, "n"], float]:
        """Solve x = right + P x, and return log det(I - P) as well."""
        if not len(right):
            return right, 0.0
        if self.factors is None:
            x, pivots = eliminate(self.moves.toarray(), self.out, right)
            return x, float(np.log(pivots).sum())
        return _refined(self.factors, self._system, right), self._log_det

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
    factors = _factors(_system(moves, leaving))
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


def _system(moves: csr_array, leaving: Float[np.ndarray, "n"]) -> csc_array:
    """I - P without self-loops, assembled at once: sums of sparse matrices cost more than small factorisations."""
    own = np.arange(len(leaving))
    row = np.append(own, np.repeat(own, np.diff(moves.indptr)))
    column = np.concatenate([own, moves.indices.astype(np.int64)])
    entry = np.append(leaving, -moves.data)
    return csc_array((entry, (row, column)), shape=(len(leaving), len(leaving)))


def chain_on(
    model: SSP, policy: Int[np.ndarray, "states"], states: Int[np.ndarray, "n"]
) -> tuple[csr_array, Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """A policy's moves among some states (self-loops left out), the mass leaving each state, and the part of it
    that leaves the set."""
    n = len(states)
    number = np.full(model.n_states + 1, -1)
    number[states] = np.arange(n)
    entry, start = row_entries(model.next_start, policy[states])
    row = np.repeat(np.arange(n), np.diff(start))
    column, prob = number[model.next_state[entry]], model.next_prob[entry]
    other, outside = column != row, column < 0
    inner = other & ~outside
    moves = csr_array((prob[inner], (row[inner], column[inner])), shape=(n, n))
    leaving, out = (np.bincount(row[which], prob[which], n).astype(np.float64) for which in (other, outside))
    return moves, leaving, out


def eliminate(
    moves: Shaped[np.ndarray, "n n"], out: Shaped[np.ndarray, "n"], right: Shaped[np.ndarray, "n"]
) -> tuple[Shaped[np.ndarray, "n"], Shaped[np.ndarray, "n"]]:
    """Subtraction-free (GTH) elimination of a transient chain; works in floats and in rational numbers alike.

    Args:
        moves: probabilities among the states; the diagonal is ignored.
        out: mass that leaves the set from each state.
        right: right-hand side.

    Returns:
        The solution of (I - P) x = right, and the pivots, whose product is det(I - P).

    >>> eliminate(np.array([[0.0, 0.5], [1.0, 0.0]]), np.array([0.5, 0.0]), np.array([-1.0, -1.0]))
    (array([-3., -4.]), array([0.5, 1. ]))
    """
    moves, out, x = moves.copy(), out.copy(), right.copy()
    pivots = np.empty_like(out)
    for k in range(len(out) - 1, -1, -1):  # censor the chain on the states before k
        pivots[k] = moves[k, :k].sum() + out[k]
        share = moves[:k, k] / pivots[k]
        moves[:k, :k] += np.outer(share, moves[k, :k])
        out[:k] += share * out[k]
        x[:k] += share * x[k]
    for k in range(len(out)):
        x[k] = (x[k] + moves[k, :k] @ x[:k]) / pivots[k]
    return x, pivots


def _bandwidth(matrix: csc_array) -> int:
    order = reverse_cuthill_mckee(csr_array(abs(matrix) + abs(matrix).T), symmetric_mode=True)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    entries = matrix.tocoo()
    return int(np.abs(place[entries.row] - place[entries.col]).max(initial=0))


def _iterate(
    matrix: csc_array, diagonal: Float[np.ndarray, "n"], right: Float[np.ndarray, "n"]
) -> Float[np.ndarray, "n"] | None:
    """Stabilised bi-conjugate gradients, restarted once from its own answer; None if they do not get there.

    The residual is judged against the right-hand side alone: (I - P)^-1 has no negative entry, so the error is then at
    most 1e-10 of what the right-hand side can add up to before the chain leaves, however long that takes.
    """
    scale = np.abs(right).max(initial=0.0)
    if scale == 0.0:
        return np.zeros_like(right)
    jacobi = LinearOperator(matrix.shape, matvec=lambda v: v / diagonal, dtype=np.float64)

    x = np.zeros_like(right)
    for _ in range(2):
        step, _ = bicgstab(matrix, right - matrix @ x, rtol=1e-12, atol=0.0, maxiter=ITERATIONS, M=jacobi)
        x = x + step
    floor = ROUNDING * np.abs(x).max() if len(x) > FILLS_IN else 0.0
    good = np.abs(right - matrix @ x).max() <= max(ACCURACY * scale, floor)  # a NaN is not good
    return x if good else None


def _refined(factors: SuperLU, matrix: csc_array, right: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    x = factors.solve(right)
    return np.asarray(x + factors.solve(right - matrix @ x))


def _factors(matrix: csc_array) -> SuperLU | None:
    """An LU factorisation without pivoting; None if the matrix is singular to rounding.

    `spilu` that drops nothing is `splu` except for the room it starts with: `splu` reserves thirty times the matrix for
    each factor and keeps that, where three to six times both together are filled.
    """
    try:
        return spilu(
            matrix,
            drop_tol=0.0,
            drop_rule="basic",
            fill_factor=ROOM,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            panel_size=1,  # wider panels only cost time where there is little fill
            options={"SymmetricMode": True, "ILU_MILU": "SILU"},
        )
    except RuntimeError:
        return None
