"""One linear system (I - P) x = b of a transient chain as a whole: by elimination, cuts, factorisation or iteration.

The diagonal of I - P is the mass that leaves a state, never 1 - P_ss, which would have only four correct digits for a
state that is left with probability 1e-12.

*Elimination* without subtraction (`bellmanifold.mdp.subtraction_free`) keeps every digit however rarely the chain
leaves; it is dense. A chain in which every cycle passes through one of a few states is *cut* there: one sweep over the
others gives the chain watched only at these states, which is small and eliminated; nothing is subtracted here, either.
A *factorisation* suits large narrow graphs (grids, chains) and, with one state left out, those that are trapped.
*Iteration* suits the others, above all expanders, where a factorisation would fill in. (I - P)^-1 has no negative
entry, so a residual r changes the solution by at most (I - P)^-1 |r|: iteration continues until the residual is
rounding, state by state, or reports failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csc_array, csr_array
from scipy.sparse.csgraph import connected_components, depth_first_order, reverse_cuthill_mckee
from scipy.sparse.linalg import SuperLU, spilu, spsolve_triangular

from bellmanifold.errors import UnsupportedError
from bellmanifold.mdp.subtraction_free import eliminate, expected_visits
from bellmanifold.problem.compressed_rows import ranks, row_entries

DENSE, COMPACT = 200, 600
"""Systems up to the first size are eliminated densely, without subtraction, if a factorisation would lose digits; up to
the second, those that would not are factorised, whatever the fill-in."""
TRAPPED, STAYS = 1e-6, 1e4
"""A pivot below this has lost too many digits; if no state is revisited more often than this, none are lost."""
EXPANDER = 0.1
"""A reordered bandwidth above this fraction of the size means that a factorisation would fill in."""
BUSY, HUB = 24, 100
"""States with more incoming moves than the first number are tried as cuts; with more than the second, a graph is not
narrow, and a reordering would take long to find that out."""
CUTS = 64
"""A chain is cut if at most this many states suffice to break all of its cycles."""
FEW, ITERATIONS, RESTARTS = 150, 1000, 8
"""Iterations with the simple preconditioner and with the better one, and the number of times either is started."""
EPSILON = float(np.finfo(np.float64).eps)
ACCURACY = 1e-10
"""A residual of this fraction of the right-hand side is accepted if it cannot be reduced."""
FILLS_IN, LOOSE = 5000, 1e-13
"""Above this size an expander cannot be factorised in reasonable time; then a residual of that fraction of the solution
is accepted."""
ONE_THREAD = 10_000
"""Inner products of up to this many numbers are never split among threads."""
ROOM = 4
"""Factors are allocated this many times the entries of the matrix, and grow if they fill in more."""
NEARLY_TRAPPED = "a policy leaves some states with a probability of about 1e-16: use --discount 0.999"
Vector: TypeAlias = Float[np.ndarray, "n"]
Columns: TypeAlias = Float[np.ndarray, "n k"]
Indices: TypeAlias = Int[np.ndarray, "n"]
Operator: TypeAlias = Callable[[Vector], Vector]


class Chain(NamedTuple):
    """A transient chain on some states.

    Attributes:
        moves: probabilities among the states, without self-loops.
        leaving: mass that leaves each state.
        out: the part of that mass that leaves the set of states.
    """

    moves: csr_array
    leaving: Vector
    out: Vector


def solve_block(chain: Chain, rights: Columns) -> Columns:
    """Solve x = right + P x for every column, by the method that suits the chain.

    Raises:
        UnsupportedError: if a large chain is trapped up to rounding.
    """
    answer = next((found for found in _attempts(chain, rights) if found is not None), None)
    if answer is None:
        raise UnsupportedError(NEARLY_TRAPPED)
    return answer


def _attempts(chain: Chain, rights: Columns) -> Iterator[Columns | None]:
    """Solutions by the methods that suit the chain, in order of preference; None from a method that fails."""
    moves, _, out = chain
    size = len(out)
    if size <= COMPACT:
        yield solve_by_factors(chain, rights, STAYS)
        if size <= DENSE:
            visits = expected_visits(moves.toarray()[None], out[None])[0]
            yield _stack(visits @ right for right in rights.T)
        yield _solve_watched(chain, rights)
    entering = np.bincount(moves.indices, minlength=size)
    hubs = entering > HUB
    if hubs.any() or not is_narrow(moves, EXPANDER * size):
        busy = np.flatnonzero(entering > BUSY)
        if 0 < len(busy) <= CUTS:
            yield _cut(chain, rights, busy)
        order, closing = _unroll(moves)
        if len(closing) <= CUTS:
            yield _cut(chain, rights, closing)
        if not _is_narrow_apart(moves, hubs):
            good = [found for right in rights.T if (found := _iterate(chain, right, order)) is not None]
            yield _stack(good) if len(good) == rights.shape[1] else None
    yield solve_by_factors(chain, rights, STAYS)
    yield _solve_watched(chain, rights)
    yield solve_by_factors(chain, rights)


def solve_by_factors(chain: Chain, rights: Columns, longest: float = np.inf) -> Columns | None:
    """Solve by a factorisation; None if it breaks down, or some state is revisited more than `longest` times.

    A pivot is the probability of leaving a state without return, with the chain watched at some states only: at least
    1 / the expected number of moves. A pivot much smaller than the terms it is the difference of has lost its digits.
    Many moves may also form a long path that revisits no state often: if there are many, the pivots are checked.
    """
    matrix = system(chain)
    factors = factorise(matrix)
    if factors is None:
        return None
    if not factors.solve(chain.leaving).max() <= longest:
        pivot = factors.U.diagonal()[factors.perm_c]
        if not (pivot / chain.leaving).min() >= 1.0 / longest:
            return None
    precise = matrix.astype(np.longdouble)
    return _stack(refine(factors, precise, right) for right in rights.T)


def _solve_watched(chain: Chain, rights: Columns) -> Columns | None:
    """Solve a trapped chain that keeps returning to one state; None if it is trapped without that state, too.

    Watched at that state alone, the chain either returns or leaves; the probability of leaving is a sum, not 1 - p.
    """
    moves, leaving, out = chain
    state = int(np.argmax(np.bincount(moves.indices, moves.data, len(leaving))))
    others = np.delete(np.arange(len(leaving)), state)
    meets = moves[:, [state]].toarray()[others]
    each = np.hstack([meets, out[others, None], rights[others]])
    rest = Chain(csr_array(moves[others][:, others]), leaving[others], out[others] + meets[:, 0])
    first = solve_by_factors(rest, each, STAYS)
    if first is None:
        return None
    ahead = (moves[[state]][:, others] @ first)[0]
    answer = np.empty_like(rights)
    answer[state] = (rights[state] + ahead[2:]) / (out[state] + ahead[1])
    answer[others] = first[:, 2:] + first[:, :1] * answer[state]
    return answer


def _stack(columns: Iterable[Vector]) -> Columns:
    return np.stack(list(columns), axis=1)


def sweep(moves: csr_array, leaving: Vector, rights: Columns) -> Columns:
    """Solve x = right + P x where every state moves only to earlier ones, by one substitution."""
    length = np.diff(moves.indptr)
    if not length.any():
        return rights / leaving[:, None]
    last = moves.indptr[1:] + np.arange(len(leaving), dtype=moves.indptr.dtype)  # the diagonal ends each row
    other = np.ones(len(moves.data) + len(leaving), dtype=bool)
    other[last] = False
    entry, column = np.ones(len(other)), np.empty(len(other), dtype=np.intc)  # SuperLU takes no other integers
    entry[other] = -moves.data / np.repeat(leaving, length)
    column[other], column[last] = moves.indices, np.arange(len(leaving))
    lower = csr_array((entry, column, np.append(0, last + 1).astype(np.intc)), shape=moves.shape).tocsc()
    right = rights / leaving[:, None]
    own = {"overwrite_A": True, "overwrite_b": True}
    return np.asarray(spsolve_triangular(lower, right, lower=True, unit_diagonal=True, **own))


def reorder(moves: csr_array, order: Indices, place: Indices) -> csr_array:
    """The moves of a chain with its states in another order, of which `place` is the inverse permutation."""
    entries, start = row_entries(moves.indptr, order)
    return csr_array((moves.data[entries], place[moves.indices[entries]], start), shape=moves.shape)


def system(chain: Chain) -> csc_array:
    """I - P without self-loops, assembled directly: sums of sparse matrices cost more than small factorisations."""
    moves, own = chain.moves, np.arange(len(chain.leaving))
    row = np.append(own, np.repeat(own, np.diff(moves.indptr)))
    column = np.concatenate([own, moves.indices.astype(np.int64)])
    return csc_array((np.append(chain.leaving, -moves.data), (row, column)), shape=moves.shape)


def refine(factors: SuperLU, matrix: csc_array, right: Vector) -> Vector:
    """The solution from a factorisation, with one step of iterative refinement.

    With a matrix in long double precision each number is off by a rounding or two; with a residual in the precision of
    the solution, by as many as the chain has moves to go.
    """
    x = factors.solve(right)
    return np.asarray(x + factors.solve((right - matrix @ x).astype(np.float64)))


def factorise(matrix: csc_array) -> SuperLU | None:
    """An LU factorisation without pivoting; None if the matrix is singular to rounding.

    `spilu` that drops nothing is `splu` except for its initial allocation: `splu` reserves thirty times the matrix for
    each factor and keeps it, although both factors together fill only three to six times the matrix.
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


def is_narrow(moves: csr_array, width: float) -> bool:
    """Whether some order of the states has no move longer than `width`. (A graph with a hub counts as not narrow.)"""
    size = moves.shape[0]
    if _longest(moves, np.arange(size)) <= width:
        return True
    if np.bincount(moves.indices, minlength=size).max() > HUB:
        return False
    order = reverse_cuthill_mckee(csr_array(moves + moves.T), symmetric_mode=True)
    return bool(_longest(moves, ranks(order)) <= width)


def _longest(moves: csr_array, place: Indices) -> int:
    """The length of the longest move between numbered places."""
    return int(np.abs(np.repeat(place, np.diff(moves.indptr)) - place[moves.indices]).max(initial=0))


def _is_narrow_apart(moves: csr_array, hubs: Bool[np.ndarray, "n"]) -> bool:
    """Whether a graph is narrow without a few hubs. A factorisation eliminates those last, with little fill-in."""
    others = np.flatnonzero(~hubs)
    return 0 < int(hubs.sum()) <= CUTS and is_narrow(csr_array(moves[others][:, others]), EXPANDER * len(others))


def _unroll(moves: csr_array) -> tuple[Indices, Int[np.ndarray, "closing"]]:
    """An order of an irreducible chain's states in which most moves go to earlier ones, and the targets of the others.

    It is the post-order of a depth-first search: only moves to an ancestor in the search tree go to a later state, and
    without their targets there are no cycles.
    """
    size = moves.shape[0]
    root = int(np.argmax(np.bincount(moves.indices, minlength=size)))  # likely to be where attempts restart
    met, parent = depth_first_order(moves, root, directed=True, return_predecessors=True)
    depth, below = [0] * size, [1] * size
    parents = [-1, *ranks(met)[parent[met[1:]]].tolist()]  # in order of discovery
    for k in range(1, size):
        depth[k] = depth[parents[k]] + 1
    for k in range(size - 1, 0, -1):
        below[parents[k]] += below[k]
    rank = np.empty(size, dtype=np.int64)
    rank[met] = np.arange(size) - np.array(depth) + np.array(below) - 1
    behind = rank[moves.indices] > np.repeat(rank, np.diff(moves.indptr))
    return ranks(rank), np.unique(moves.indices[behind])


def _cut(chain: Chain, rights: Columns, closing: Int[np.ndarray, "closing"]) -> Columns | None:
    """Solve by watching the chain only at some states; None if the others still have a cycle.

    One sweep gives, for every state, the probability that each watched state is the next one visited, that of leaving
    before, and the reward until then. At the watched states these numbers define their chain; its probability of
    leaving is a sum, not 1 minus the rest.
    """
    moves, leaving, out = chain
    size, cuts = len(leaving), len(closing)
    number = np.full(size, -1)
    number[closing] = np.arange(cuts)
    row, watched = np.repeat(np.arange(size), np.diff(moves.indptr)), number[moves.indices]
    inner = watched < 0
    start = np.append(0, np.cumsum(inner))[moves.indptr]
    others = csr_array((moves.data[inner], moves.indices[inner], start), shape=moves.shape)
    count, label = connected_components(others, connection="strong")
    if count < size:
        return None
    order = np.argsort(label)
    others = reorder(others, order, label)
    if (others.indices > np.repeat(np.arange(size), np.diff(others.indptr))).any():
        return None
    first = np.zeros((size, cuts + 1 + rights.shape[1]))
    first[row[~inner], watched[~inner]] = moves.data[~inner]
    first[:, cuts], first[:, cuts + 1 :] = out, rights
    first = sweep(others, leaving[order], first[order])[label]
    among, ends, collected = np.split(first[closing], [cuts, cuts + 1], axis=1)
    found = _stack(eliminate(among, ends[:, 0], b)[0] for b in collected.T)
    return np.asarray(first[:, cuts + 1 :] + first[:, :cuts] @ found)


def _iterate(chain: Chain, right: Vector, order: Indices) -> Vector | None:
    """Solve by BiCGSTAB, restarted from its own solution until the residual is rounding; None if it stays large.

    The preconditioner is the diagonal, which is good enough for expanders, and if that fails, one sweep in the given
    order.
    """
    if not right.any():
        return np.zeros_like(right)
    x = _from_guess(chain, right, lambda v: v / chain.leaving, FEW)
    if x is None:
        x = _from_guess(chain, right, _one_sweep(chain, order), ITERATIONS)
    return x


def _from_guess(chain: Chain, right: Vector, inverse: Operator, most: int) -> Vector | None:
    """Solve by restarted iteration with a preconditioner, `most` steps per restart; None if that is inaccurate."""
    moves, leaving, _ = chain

    def forward(v: Vector) -> Vector:
        return leaving * v - moves @ v

    x, residual, last = np.zeros_like(right), right, np.inf
    for _ in range(RESTARTS):
        size = float(np.abs(residual).max())
        floor = 2 * EPSILON * (np.abs(right) + leaving * np.abs(x) + moves @ np.abs(x))
        if not size < 0.5 * last or (np.abs(residual) <= floor).all():
            break
        last = size
        x = x + _conjugate_gradients(forward, residual, inverse, most)
        residual = right - forward(x)
    for _ in range(2):
        x = (right + moves @ x) / leaving  # no subtraction if all rewards have the same sign
    found = float(np.abs(right - forward(x)).max())
    loose = LOOSE * np.abs(x).max() if len(x) > FILLS_IN else 0.0
    return x if found <= max(ACCURACY * np.abs(right).max(), loose) else None  # also for NaN


def _one_sweep(chain: Chain, order: Indices) -> Operator:
    """The preconditioner that solves the chain restricted to moves to earlier states of an order."""
    moves, rank = chain.moves, ranks(order)
    row = np.repeat(rank, np.diff(moves.indptr))
    back = rank[moves.indices] < row
    entry = np.append(-moves.data[back], chain.leaving)
    where = np.append(row[back], rank), np.append(rank[moves.indices[back]], rank)
    lower = csc_array((entry, where), shape=moves.shape)
    factors = spilu(lower, drop_tol=0.0, drop_rule="basic", fill_factor=1, permc_spec="NATURAL", diag_pivot_thresh=0.0)
    return lambda v: np.asarray(factors.solve(v[order])[rank])


def _conjugate_gradients(forward: Operator, right: Vector, inverse: Operator, most: int) -> Vector:
    """BiCGSTAB (van der Vorst 1992), until the norm of the residual is 1e-12 of its initial value.

    SciPy's version computes inner products by a BLAS whose threads wait for each other: six milliseconds for 25,000
    numbers on a busy machine.
    """

    def dot(a: Vector, b: Vector) -> float:
        return float(a @ b if len(a) <= ONE_THREAD else np.einsum("i,i", a, b))

    x, residual, shadow = np.zeros_like(right), right.copy(), right
    enough = 1e-24 * dot(right, right)
    rho = alpha = omega = 1.0
    direction = along = np.zeros_like(right)
    for _ in range(most):
        before, rho = rho, dot(shadow, residual)
        direction = residual + (rho / before) * (alpha / omega) * (direction - omega * along)
        smooth = inverse(direction)
        along = forward(smooth)
        overlap = dot(shadow, along)
        if rho == 0.0 or overlap == 0.0:
            break
        alpha = rho / overlap
        x = x + alpha * smooth
        half = residual - alpha * along
        if not dot(half, half) > enough:
            break
        smoother = inverse(half)
        turned = forward(smoother)
        omega = dot(turned, half) / dot(turned, turned)
        x = x + omega * smoother
        residual = half - omega * turned
        if omega == 0.0 or not dot(residual, residual) > enough:
            break
    return x
