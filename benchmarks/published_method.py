"""The paper's way to route and action probabilities, written plainly: the peer that our engines are compared with.

Proposition 1 writes the relaxed posterior as a sum over cells ell, one greedy action for every state that an observed
pair leads to. Within a cell the Bellman residuals are linear, g = B theta, so the posterior is a Gaussian N(mu, Sigma),
cut off at the walls theta(s, ell(s)) >= theta(s, a), and the cell weighs N(r; 0, Gamma^-1):

    Gamma = (sigma^2 B B' + epsilon^2 I)^-1,  mu = sigma^2 B' Gamma r,  Sigma = sigma^2 I - sigma^4 B' Gamma B.

A query names the greedy action of some states: one state for an action's probability, the states of a route for the
route's. For every cell that agrees with it the paper computes one Gaussian integral: the differences theta(s, chosen) -
theta(s, other) of all states named by the cell or the query must be positive. At depth 5 the integral is the share of
2^15 Sobol points, turned into draws of these differences, that fall into the orthant (Appendix B.1).

Two things are done in this peer's favour. The normal numbers are made once for each dimension and used again; lest the
errors of all cells be alike, every cell permutes their axes and flips their signs at random, which costs nothing (it is
done to the square root of the covariance). And evidences are kept as logarithms. Probabilities are normalised by their
sum over a state's actions, or over all routes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from bellmanifold.problem.dataset import Dataset

POINTS = 2**15
Choice = dict[int, int]
"""State -> its greedy pair."""


@dataclass(frozen=True)
class CellPosterior:
    """The Gaussian of a cell before it is cut off, the logarithm of its weight, and how it turns the points.

    Attributes:
        order, sign: the axes are put in the order of the first of these numbers, and their signs are these.
    """

    log_evidence: float
    mean: np.ndarray
    covariance: np.ndarray
    order: np.ndarray
    sign: np.ndarray


@dataclass
class PublishedMethod:
    """The relaxed posterior of some data.

    Attributes:
        data: what was seen, each pair once.
        epsilon, prior_scale: tolerance and prior.
        points: Sobol points of an integral, a power of two.
        seed: of their scrambling.
    """

    data: Dataset
    epsilon: float
    prior_scale: float = 10.0
    points: int = POINTS
    seed: int = 0
    _normals: dict[int, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model, self.rng = self.data.model, np.random.default_rng(self.seed)
        self.seen = np.flatnonzero(self.data.observed)
        self.reward = self.data.mean_reward[self.seen]
        entries = [np.arange(*self.model.next_start[[i, i + 1]]) for i in self.seen]
        kept = [entry[self.model.next_state[entry] < self.model.n_states] for entry in entries]
        self.moves = [(self.model.next_state[entry], self.model.next_prob[entry]) for entry in kept]
        self.successors = np.unique(np.concatenate([states for states, _ in self.moves]))

    def pairs_of(self, state: int) -> range:
        """The pairs of a state."""
        return range(int(self.model.pair_start[state]), int(self.model.pair_start[state + 1]))

    def cells(self) -> Iterator[Choice]:
        """All cells."""
        states = [int(state) for state in self.successors]
        for pairs in product(*(self.pairs_of(state) for state in states)):
            yield dict(zip(states, pairs, strict=True))

    def actions(self) -> list[Choice]:
        """One query for each pair: is it the best of its state?"""
        return [{int(state): pair} for pair, state in enumerate(self.model.pair_state)]

    def routes(self) -> list[Choice]:
        """One query for each route of a deterministic problem without loops that starts in one state."""
        found: list[Choice] = []
        open_routes: list[tuple[int, Choice]] = [(int(np.argmax(self.model.initial)), {})]
        while open_routes:
            state, route = open_routes.pop()
            if state == self.model.n_states:
                found.append(route)
                continue
            for pair in self.pairs_of(state):
                after = int(self.model.next_state[self.model.next_start[pair]])
                open_routes.append((after, route | {state: pair}))
        return found

    def posterior_of(self, cell: Choice) -> CellPosterior:
        """The Gaussian of a cell, by the formulas of Proposition 1."""
        matrix = np.zeros((len(self.seen), self.model.n_pairs))
        matrix[np.arange(len(self.seen)), self.seen] = 1.0
        for row, (states, probabilities) in enumerate(self.moves):
            for state, probability in zip(states, probabilities, strict=True):
                matrix[row, cell[int(state)]] -= probability
        variance = self.prior_scale**2
        precision = np.linalg.inv(variance * matrix @ matrix.T + self.epsilon**2 * np.eye(len(self.seen)))
        weighted = variance * matrix.T @ precision
        _, log_determinant = np.linalg.slogdet(precision / (2.0 * np.pi))
        log_evidence = 0.5 * (log_determinant - self.reward @ precision @ self.reward)
        covariance = variance * np.eye(self.model.n_pairs) - variance * weighted @ matrix
        order, sign = self.rng.random((2, self.model.n_pairs))
        turn = order, np.where(sign < 0.5, -1.0, 1.0)
        return CellPosterior(float(log_evidence), weighted @ self.reward, covariance, *turn)

    def integral(self, posterior: CellPosterior, chosen: Choice) -> float:
        """The share of points at which every chosen pair is the best of its state."""
        best = [pair for state, pair in chosen.items() for other in self.pairs_of(state) if other != pair]
        others = [other for state, pair in chosen.items() for other in self.pairs_of(state) if other != pair]
        if not best:
            return 1.0
        mean = posterior.mean[best] - posterior.mean[others]
        rows = posterior.covariance[best] - posterior.covariance[others]
        axes = np.argsort(posterior.order[: len(best)])
        root = _root(rows[:, best] - rows[:, others])[:, axes] * posterior.sign[: len(best)]
        draws = self.normals(len(best)) @ root.T
        return float((draws >= -mean).all(axis=1).mean())

    def normals(self, dimension: int) -> np.ndarray:
        """Scrambled Sobol points as standard normal numbers, made once a dimension."""
        if dimension not in self._normals:
            net = qmc.Sobol(dimension, scramble=True, rng=np.random.default_rng([self.seed, dimension]))
            uniform = np.clip(net.random(self.points), 2.0**-54, 1.0 - 2.0**-53)
            self._normals[dimension] = ndtri(uniform)
        return self._normals[dimension]

    def probabilities(self, groups: Sequence[Sequence[Choice]], cells: Sequence[Choice] | None = None) -> np.ndarray:
        """The probability of every query, normalised by the sum of its group's.

        Args:
            groups: queries of which exactly one comes true, such as the actions of a state or all routes.
            cells: leave out all but these.
        """
        kept = list(self.cells() if cells is None else cells)
        queries = [query for group in groups for query in group]
        found, log_evidence = np.zeros((len(kept), len(queries))), np.zeros(len(kept))
        for k, cell in enumerate(kept):
            posterior = self.posterior_of(cell)
            log_evidence[k] = posterior.log_evidence
            same: dict[tuple[tuple[int, int], ...], float] = {}  # queries that name the same walls have one integral
            for j in agreeing(cell, queries):
                chosen = cell | queries[j]
                walls = tuple(sorted(chosen.items()))
                found[k, j] = same[walls] if walls in same else same.setdefault(walls, self.integral(posterior, chosen))
        weight = np.exp(log_evidence - log_evidence.max()) @ found
        ends = np.cumsum([len(group) for group in groups])[:-1]
        return np.concatenate([part / part.sum() for part in np.split(weight, ends)])

    def groups(self) -> list[list[Choice]]:
        """The actions of every state, then all routes."""
        return [[{state: pair} for pair in self.pairs_of(state)] for state in range(self.model.n_states)] + [
            self.routes()
        ]


def agreeing(cell: Choice, queries: Sequence[Choice]) -> list[int]:
    """The queries that do not contradict a cell; all other integrals are 0."""
    return [j for j, query in enumerate(queries) if all(cell.get(state, pair) == pair for state, pair in query.items())]


def _root(covariance: np.ndarray) -> np.ndarray:
    """A matrix square root; by eigenvalues where rounding has made the covariance indefinite."""
    try:
        return np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        return vectors * np.sqrt(np.maximum(values, 0.0))
