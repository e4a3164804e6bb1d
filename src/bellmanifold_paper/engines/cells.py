"""The cells of Proposition 1: their numbering, and the Gaussian posterior within each.

A cell is a choice of the greedy action ell(s) of every coupled state. Within it the Bellman residuals are g = B theta,
so the posterior is a Gaussian, cut off at the cell's walls (see `bellmanifold_paper.engines.mixture`).

**Linear algebra without cancellation.** The prior is N(m, D^2), D = diag(sd). Whiten: X = E^-1 B D, y = E^-1 (r - B m),
theta = m + D x, x ~ N(0, I), y = X x + noise. With M = I + X'X,

    Sigma = D M^-1 D,   mu = m + D M^-1 X'y,
    log evidence = -(log det M + |y - X x|^2 + |x|^2) / 2 - sum log(e_i sqrt(2 pi))

at x = M^-1 X'y; a sum of squares, so nothing cancels. The condition number of M is about (sd / e)^2. If that is
moderate, a Cholesky factor M = L L' gives Sigma = G G' with G = D L'^-1. Otherwise the singular value decomposition
X = P S Q' gives the same without forming squares: G = D Q (1 + S^2)^-1/2, x = Q S (1 + S^2)^-1 P'y. Either way the
covariance is returned as a *factor*, which `orthant` needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg.lapack import dtrtri

from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.target import Target

WELL_CONDITIONED = 1e9
"""Cholesky factors are used if the squared norm of the whitened matrix is below this."""


@dataclass(frozen=True, eq=False)
class Gaussians:
    """The Gaussian posterior N(mu, G G') for each choice at the successor states, before truncation."""

    log_evidence: Float[np.ndarray, "choices"]
    mean: Float[np.ndarray, "choices own"]
    factor: Float[np.ndarray, "choices own own"]

    @classmethod
    def room(cls, choices: int, own: int) -> Gaussians:
        """Uninitialised arrays of the right shapes."""
        return cls(np.empty(choices), np.empty((choices, own)), np.empty((choices, own, own)))

    def put(self, rows: slice, part: Gaussians) -> None:
        """Fill in the rows of some choices."""
        self.log_evidence[rows], self.mean[rows], self.factor[rows] = part.log_evidence, part.mean, part.factor


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a target, numbered: choices at successors vary slowest, those at other coupled states fastest.

    Pairs are those of coupled states, renumbered; `own` holds their numbers in the model.

    Attributes:
        own: pairs of the coupled states, shape (own pairs,).
        start: first own pair of each coupled state, shape (coupled states,).
        size: number of actions of each coupled state, shape (coupled states,).
        branching: coupled states with a choice, successors first, shape (branching states,).
        n_choices: number of choices at the successors.
        n_cells: number of cells.
        design: B without its successor terms, divided by the kernels' widths, shape (observed, own pairs).
        entry: observed pair and coupled state of every successor term, shape (entries, 2).
        entry_value: probability of that successor, divided by the width, shape (entries,).
        whitened: rewards divided by the widths, shape (observed,).
        log_constant: the part of the log evidence that all cells share.
        prior_mean, prior_sd: prior of the own pairs, shape (own pairs,).
        stored: the Gaussians of all choices, if they are known and small enough to keep.
    """

    own: Int[np.ndarray, "own"]
    start: Int[np.ndarray, "coupled"]
    size: Int[np.ndarray, "coupled"]
    branching: Int[np.ndarray, "branching"]
    n_choices: int
    n_cells: int
    design: Float[np.ndarray, "observed own"]
    entry: Int[np.ndarray, "entries 2"]
    entry_value: Float[np.ndarray, "entries"]
    whitened: Float[np.ndarray, "observed"]
    log_constant: float
    prior_mean: Float[np.ndarray, "own"]
    prior_sd: Float[np.ndarray, "own"]
    stored: Gaussians | None = None

    @property
    def fastest(self) -> int:
        """Number of cells that share the choices at successors, and hence a Gaussian."""
        return self.n_cells // self.n_choices

    def policies(self, cell: Int[np.ndarray, "cells"]) -> Int[np.ndarray, "cells coupled"]:
        """The own pair that each coupled state plays in each cell."""
        policy = np.repeat(self.start[None, :], len(cell), axis=0)
        shape = tuple(int(k) for k in self.size[self.branching])
        for state, action in zip(self.branching, np.unravel_index(cell, shape) if shape else (), strict=True):
            policy[:, state] += action
        return policy

    def walls(
        self, cell: Int[np.ndarray, "cells"]
    ) -> tuple[Int[np.ndarray, "cells dim"], Int[np.ndarray, "cells dim"]]:
        """The greedy and the other own pair of every difference that is positive in a cell."""
        policy = self.policies(cell)
        state = np.repeat(self.branching, self.size[self.branching] - 1)
        rank = np.concatenate([np.arange(k - 1) for k in self.size[self.branching]] or [np.zeros(0, dtype=np.int64)])
        greedy = policy[:, state]
        other = self.start[state] + rank
        return greedy, other + (other >= greedy)

    def gaussians(self, cell: Int[np.ndarray, "cells"]) -> tuple[Gaussians, Int[np.ndarray, "cells"]]:
        """Gaussians that include those of some cells, looked up or computed, and the index of each cell's."""
        choice = cell // self.fastest
        if self.stored is not None:
            return self.stored, choice
        choice, at = np.unique(choice, return_inverse=True)
        return self.compute(choice), at

    def compute(self, choice: Int[np.ndarray, "choices"]) -> Gaussians:
        """The Gaussians of some choices, computed."""
        policy = self.policies(choice * self.fastest)
        whitened = np.repeat(self.design[None], len(choice), axis=0)
        every = np.arange(len(choice))
        for (row, state), value in zip(self.entry, self.entry_value, strict=True):
            whitened[every, row, policy[:, state]] -= value
        data = self.whitened - whitened @ self.prior_mean
        whitened *= self.prior_sd
        log_determinant, mean, factor = _posterior(whitened, data)
        misfit = data - np.einsum("cij,cj->ci", whitened, mean)
        square = (misfit**2).sum(axis=1) + (mean**2).sum(axis=1)
        log_evidence = self.log_constant - 0.5 * (log_determinant + square)
        factor = np.multiply(self.prior_sd[:, None], factor, order="C")
        return Gaussians(log_evidence, self.prior_mean + self.prior_sd * mean, factor)


def check_cells(target: Target, max_cells: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Coupled states, their numbers of actions, those with a choice (successors first), and the number of cells.

    Refuses exact posteriors, kernels that are not Gaussian, and too many cells.
    """
    if not target.is_gaussian:
        raise UnsupportedError(
            f"mixture: Proposition 1 needs a Gaussian kernel of known width, not {target.described_kernel}: "
            "use the chart engine"
        )
    if np.any(target.scale[target.observed] <= 0):
        raise UnsupportedError(
            "mixture: the exact posterior (epsilon 0) has no density to sum: use the chart engine or a positive epsilon"
        )
    coupled = np.flatnonzero(target.coupled)
    size = np.diff(target.model.pair_start)[coupled]
    is_successor = target.successors[coupled]
    branching = np.concatenate([np.flatnonzero((size > 1) & is_successor), np.flatnonzero((size > 1) & ~is_successor)])
    n_cells = prod(int(k) for k in size[branching])
    if n_cells > max_cells:
        raise UnsupportedError(
            f"mixture: the data divide the action values into {_count(n_cells)} cells, more than the {max_cells} this "
            "engine enumerates: use --engine chart, with --proper-only where it refuses, or --engine nuts"
        )
    return coupled, size, branching, n_cells


def cells_of(target: Target, max_cells: int) -> Cells:
    """Number the cells of a target that `check_cells` does not refuse."""
    model = target.model
    coupled, size, branching, n_cells = check_cells(target, max_cells)
    is_successor = target.successors[coupled]
    own = target.own
    observed = np.flatnonzero(target.observed)
    width = target.scale[observed]
    design = (observed[:, None] == own[None, :]) / width[:, None]
    row = np.searchsorted(observed, model.next_pair)
    used = target.observed[model.next_pair] & (model.next_state < model.n_states)
    state = np.searchsorted(coupled, model.next_state[used])
    return Cells(
        own=own,
        start=np.searchsorted(own, model.pair_start[coupled]),
        size=size,
        branching=branching,
        n_choices=prod(int(k) for k in size[(size > 1) & is_successor]),
        n_cells=n_cells,
        design=design,
        entry=np.stack([row[used], state], axis=1),
        entry_value=model.next_prob[used] / width[row[used]],
        whitened=target.reward[observed] / width,
        log_constant=target.log_constant - float(np.log(width).sum()) - 0.5 * len(width) * np.log(2.0 * np.pi),
        prior_mean=target.prior.mean[own],
        prior_sd=target.prior.sd[own],
    )


def _count(number: int) -> str:
    return str(number) if number < 10**7 else f"about 10^{len(str(number)) - 1}"


Square = Float[np.ndarray, "choices own own"]


def _posterior(
    matrix: Float[np.ndarray, "choices observed own"],
    data: Float[np.ndarray, "choices observed"],
    well_conditioned: float = WELL_CONDITIONED,
) -> tuple[Float[np.ndarray, "choices"], Float[np.ndarray, "choices own"], Square]:
    """Posterior of x ~ N(0, I) given data = matrix x + N(0, I); by Cholesky factors if it is well conditioned.

    Returns log det(I + matrix' matrix), the mean, and a factor of the covariance.
    """
    transposed = matrix.transpose(0, 2, 1)
    _, n, own = matrix.shape
    if np.einsum("cij,cij->c", matrix, matrix).max() < well_conditioned:
        lower = np.linalg.cholesky(np.eye(own) + transposed @ matrix)
        factor = _inverse(lower).transpose(0, 2, 1)
        mean = factor @ (factor.transpose(0, 2, 1) @ (transposed @ data[:, :, None]))
        log_determinant = 2.0 * np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
        return log_determinant, mean[:, :, 0], factor
    left, some, right = np.linalg.svd(matrix, full_matrices=True)
    rank = some.shape[1]
    some = np.where(some > 4.0 * np.finfo(np.float64).eps * max(n, own) * some[:, :1], some, 0.0)
    singular = np.zeros((len(matrix), own))
    singular[:, :rank] = some
    length = np.hypot(1.0, singular)
    coordinate = np.zeros((len(matrix), own))
    coordinate[:, :rank] = np.einsum("cij,ci->cj", left[:, :, :rank], data)
    mean = np.einsum("cji,cj->ci", right, coordinate * (singular / length) / length)
    factor = right.transpose(0, 2, 1) / length[:, None, :]
    return 2.0 * np.log(length).sum(axis=1), mean, factor


def _inverse(lower: Square) -> Square:
    """Inverses of lower triangular matrices, one by one: three times faster than stacked general inverses."""
    inverse = lower.copy()
    for one in inverse:
        dtrtri(one.T, overwrite_c=True)  # in place: the transpose is in LAPACK's order, and upper triangular
    return inverse
