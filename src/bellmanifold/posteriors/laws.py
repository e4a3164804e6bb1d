"""Unknown transition laws and what landings tell about them.

For a pair whose law is *open* only its landings are known: it led n_s times to s. Its law has the prior Dirichlet(a b),
independent of the action values, with base law b (uniform over all states and the goal) and concentration a; given the
landings it is Dirichlet(n + a b). A point of the posterior has its own law for every solved pair of this kind: laws are
drawn from their Dirichlet, the chart solves the equations with them, and the weight is the same as for given laws. So
rewards inform laws through the weight.

**The concentration** says how random the world is. Unless it is given, its prior is log-uniform on [1e-3, 10], and the
likelihood of the landings is (Dirichlet-multinomial; G is the gamma function)

    p(landings | a) = prod_i G(a) / G(a + n_i) prod_s G(a b_s + n_is) / G(a b_s),

in the order in which they came. It has one dimension, so it is tabulated, and every point draws a and then its laws. A
chain that holds laws p knows more: given these, a has density proportional to prior(a) prod_i Dirichlet(p_i; a b). For
laws that it forgets, the likelihood of their landings takes the place of the Dirichlet density.

**Small shapes.** A gamma number with shape 0.001 underflows more often than not. Its logarithm does not: log G(c) =
log G(c + 1) + log(U) / c. Laws are kept as logarithms, and a probability below 1e-300 is replaced by 1e-300, so every
policy reaches the goal, as it does with probability 1.

**Whether the posterior exists.** The weight 1 / |det A| grows as the probability of leaving a class of pairs falls.
Where the class pays exactly nothing on average, no other factor falls in return: the integral over its leak L is that
of L^(w - 2), with w the sum of n + a b over all exits. It is finite if w > 1, and the weight has finite variance if
w > 2 (`bellmanifold.posteriors.leaks`). A tolerance, noise, a discount or a cost per move also makes it finite.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar, get_args

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.special import betaln, gammaln, logsumexp

from bellmanifold._util.options import LawsName
from bellmanifold.errors import BadInputError, quote
from bellmanifold.problem.dataset import Dataset, Visits
from bellmanifold.problem.ssp import SSP, Index

Knots = Float[np.ndarray, "knots"]
Batch = Float[np.ndarray, "batch"]
LogLaws = Float[np.ndarray, "rows nexts batch"]
Weights = TypeVar("Weights", float, np.ndarray)

LEAST, MOST = 1e-3, 10.0
LEAST_GIVEN, MOST_GIVEN = 1e-12, 1e12
"""A concentration is inferred between the first two, and may be given between the last two; the same for agents."""
KNOTS = 129
DENSE = 64
"""Problems with more states are not solved in batches, and only a few landings of their laws are kept."""
LEAST_LOG = -690.0
"""Logarithm of the smallest probability; smaller ones are replaced by it."""
CANCELS = 1e6
"""Above this, subtracting log gammas loses more digits than a log beta function does."""


@dataclass(frozen=True, eq=False)
class OpenLaws:
    """Open laws given their landings.

    Attributes:
        pairs: solved pairs whose law is open, ascending, shape (rows,).
        landed: how often each of them led to each state and to the goal, shape (rows, states + 1).
        concentration: possible values, shape (knots,).
        log_prior: log of prior times likelihood of the landings of unsolved pairs, shape (knots,).
        log_posterior: log probability of each value given all landings, normalised, shape (knots,).
        log_evidence: log density of all landings, in order.
        discount: laws are multiplied by this, and the remaining probability leads to the goal.
        follows: whether moments of the laws are asked for.
    """

    pairs: Int[np.ndarray, "rows"]
    landed: csr_array
    concentration: Knots
    log_prior: Knots
    log_posterior: Knots
    log_evidence: float
    discount: float
    follows: bool

    @property
    def fits_batch(self) -> bool:
        """Whether laws are kept as dense tables."""
        return self.nexts <= DENSE

    @property
    def nexts(self) -> int:
        """Number of possible next states, including the goal."""
        return int(self.landed.shape[1])

    def base_weight(self, concentration: Weights, nexts: int = 1) -> Weights:
        """Weight that the prior Dirichlet(a b) adds to the landings in this many next states; b is uniform."""
        return concentration * nexts / self.nexts

    @cached_property
    def counts(self) -> Float[np.ndarray, "rows nexts"]:
        """Landings as a dense table."""
        return self.landed.toarray()

    @cached_property
    def active(self) -> Int[np.ndarray, "active"]:
        """Rows that matter: all, or, where unsolved pairs have rows too, those with a landing."""
        return np.arange(len(self.pairs)) if self.follows else np.flatnonzero(np.diff(self.landed.indptr))

    @cached_property
    def total(self) -> Float[np.ndarray, "active"]:
        """Number of landings of each active row."""
        return np.asarray(self.landed[self.active].sum(axis=1)).ravel()

    def unchanged(self, before: OpenLaws) -> tuple[Int[np.ndarray, "same"], Int[np.ndarray, "same"]]:
        """Rows without new landings: their places among the active rows, now and before."""
        now, then = self.pairs[self.active], before.pairs[before.active]
        _, here, there = np.intersect1d(now, then, return_indices=True)
        same = self.total[here] == before.total[there]
        return here[same], there[same]

    @cached_property
    def seen(self) -> tuple[Int[np.ndarray, "seen"], Int[np.ndarray, "seen"]]:
        """Rows and landings that were observed, row by row; empty unless laws are followed."""
        if not self.follows:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        landed = self.landed.tocoo()
        order = np.lexsort((landed.col, landed.row))
        return landed.row[order].astype(np.int64), landed.col[order].astype(np.int64)

    def mean_rows(self) -> csr_array:
        """The mean law of every row; in large problems, a law that leads to observed landings and the goal only.

        In the latter, the probability of the goal does not matter.
        """
        concentration = self.moments[0]
        if self.fits_batch:
            dense = self.counts + self.base_weight(concentration)
            return csr_array(dense / dense.sum(axis=1, keepdims=True))
        goal = (
            np.full(len(self.pairs), concentration),
            (np.arange(len(self.pairs)), np.full(len(self.pairs), self.nexts - 1)),
        )
        weight = csr_array(self.landed + csr_array(goal, shape=self.landed.shape))
        weight.sort_indices()
        weight.data /= np.repeat(weight.sum(axis=1), np.diff(weight.indptr))
        return weight

    @property
    def moments(self) -> tuple[float, float]:
        """Mean and standard deviation of the concentration, given the landings alone."""
        probability = np.exp(self.log_posterior)
        mean = float(probability @ self.concentration)
        return mean, float(np.sqrt(probability @ (self.concentration - mean) ** 2))

    def draw_concentration(self, rng: np.random.Generator, batch: int) -> Batch:
        """Draws of the concentration given the landings alone."""
        return rng.choice(self.concentration, batch, p=np.exp(self.log_posterior))

    def draw(self, rng: np.random.Generator, concentration: Batch) -> LogLaws:
        """Draws of laws, as logarithms, given landings and concentrations; inactive rows have the base law."""
        laws = np.full((len(self.pairs), self.nexts, len(concentration)), -np.log(self.nexts))
        laws[self.active] = log_dirichlet(rng, self.counts[self.active][:, :, None] + self.base_weight(concentration))
        return laws

    @cached_property
    def _of_rows(self) -> Float[np.ndarray, "knots active"]:
        """Log density of the landings of each active row, for each concentration."""
        return np.stack([log_landings(self.landed[[row]], self.concentration) for row in self.active], axis=1)

    def concentration_given(
        self, rng: np.random.Generator, log_law: LogLaws, forgotten: Bool[np.ndarray, "active batch"]
    ) -> Batch:
        """Draws of the concentration given laws; for forgotten rows, given the landings only."""
        if len(self.concentration) == 1:
            return np.full(log_law.shape[-1], self.concentration[0])
        shape = self.base_weight(self.concentration)
        normaliser = gammaln(self.concentration) - self.nexts * gammaln(shape)
        total, known = log_law[self.active].sum(axis=1), 1.0 - forgotten
        log_density = self.log_prior[:, None] + normaliser[:, None] * known.sum(axis=0)
        log_density += shape[:, None] * (known * total).sum(axis=0)
        log_density += self._of_rows @ forgotten.astype(np.float64)
        gumbel = rng.gumbel(size=log_density.shape)
        return self.concentration[np.argmax(log_density + gumbel, axis=0)]


def close_laws(
    data: Visits, laws: LawsName, concentration: float | int | None = None, all_rows: bool = False
) -> tuple[SSP, OpenLaws | None, Bool[np.ndarray, "pairs"] | None]:
    """The problem with a law for every pair, the open laws that have to be learnt, and a mask of pairs without any law.

    Pairs without any law lead to the goal; no result depends on where they lead. If all landings belong to pairs
    without a reward, the open laws have no rows: no value depends on them, and their likelihood of the concentration is
    known in closed form.

    Args:
        data: observations of a problem that may leave laws open.
        laws: what is known of open laws: "known" refuses rewards of such pairs, "deterministic" takes the one observed
            landing, "dirichlet" learns them from all landings.
        concentration: concentration of the Dirichlet prior, if it is known.
        all_rows: also hold laws for unsolved pairs, so that arrays keep their shapes as data come in; then no landing
            is followed.
    """
    model = data.model
    if laws not in get_args(LawsName):
        raise BadInputError(f"laws is {quote(laws)}: choose from {', '.join(get_args(LawsName))}")
    if concentration is not None and laws != "dirichlet":
        raise BadInputError("concentration is that of a Dirichlet prior: give --laws dirichlet too, or leave it out")
    if concentration is not None and not LEAST_GIVEN <= concentration <= MOST_GIVEN:  # so NaN is refused
        raise BadInputError(f"concentration is {concentration}: give a number from {LEAST_GIVEN:g} to {MOST_GIVEN:g}")
    if not model.open_law.any():
        return model, None, None
    wanted, landed = np.flatnonzero(data.observed & model.open_law), _landing_counts(data)
    check_laws(data, laws)
    if laws == "dirichlet":
        rows_of = np.flatnonzero(model.open_law) if all_rows else wanted
        learnt = open_laws(landed, rows_of, concentration, model.open_discount, follows=not all_rows)
        rows = learnt.mean_rows()
        whole = model.with_rows(rows_of, rows.indptr, rows.indices, rows.data)
        says = len(wanted) or (landed.nnz and not all_rows)
        return _close(whole), learnt if says else None, whole.open_law
    if laws == "deterministic":
        known = np.flatnonzero(np.diff(landed.indptr) == 1)
        model = model.with_rows(known, np.arange(len(known) + 1), landed.indices, np.ones(len(known)))
    return _close(model), None, model.open_law


def _landing_counts(data: Visits) -> csr_array:
    """How often pairs whose law is open led to each state and the goal."""
    model = data.model
    landed = data.landing_counts.astype(np.float64)
    landed.data[~model.open_law[np.repeat(np.arange(model.n_pairs), np.diff(landed.indptr))]] = 0.0
    landed.eliminate_zeros()
    return landed


def check_laws(data: Visits, laws: LawsName) -> None:
    """Refuse data that do not suit the open laws; the message names the first such pair and its first observation."""
    model, landed = data.model, _landing_counts(data)
    wanted, several = np.flatnonzero(data.observed & model.open_law), np.diff(landed.indptr)
    if laws == "known" and len(wanted):
        raise BadInputError(
            f"{_label(data, wanted[0])} was observed, but its transition law is unknown: give its next in the "
            "problem file, or use --laws deterministic or --laws dirichlet"
        )
    if laws != "deterministic":
        return
    wrong, lost = np.flatnonzero(several > 1), wanted[several[wanted] == 0]
    if len(wrong):
        first, second = (model.state_name(s) for s in landed.indices[landed.indptr[wrong[0]] :][:2])
        raise BadInputError(
            f"{_label(data, wrong[0])} led to {quote(first)} and to {quote(second)}, so the problem is not "
            "deterministic: use --laws dirichlet"
        )
    if len(lost):
        raise BadInputError(
            f"{_label(data, lost[0])} was observed, but not where it led: give next in one of its "
            "observations, or use --laws dirichlet"
        )


def _close(model: SSP) -> SSP:
    """The problem with every open law leading to the goal; unknown rewards stay unknown."""
    return replace(model.closed_at_goal(), reward=model.reward)


def _label(data: Visits, pair: Index) -> str:
    """A pair in words, with its first observation if observations are listed."""
    first = np.flatnonzero(data.pair == pair).tolist() if isinstance(data, Dataset) else []
    where = f"observations[{first[0]}]: " if len(first) else ""
    return f"{where}pair ({', '.join(quote(name) for name in data.model.pair_name(pair))})"


def open_laws(
    landed: csr_array,
    pairs: Int[np.ndarray, "rows"],
    concentration: float | int | None = None,
    discount: float = 1.0,
    follows: bool = True,
) -> OpenLaws:
    """Open laws given how often each pair led to each state and the goal.

    `pairs` are the solved ones, in ascending order; the other arguments are as in `OpenLaws`.
    """
    if concentration is None:
        knots = np.geomspace(LEAST, MOST, KNOTS)
        share = np.ones(KNOTS)
        share[[0, -1]] = 0.5
        log_prior = np.log(share / share.sum())
    else:
        knots, log_prior = np.array([float(concentration)]), np.zeros(1)
    own = np.zeros(landed.shape[0], dtype=bool)
    own[pairs] = True
    landed = csr_array(landed)
    rest = log_prior + log_landings(landed[np.flatnonzero(~own)], knots)
    joint = rest + log_landings(landed[pairs], knots)
    evidence = float(logsumexp(joint))
    return OpenLaws(pairs, csr_array(landed[pairs]), knots, rest, joint - evidence, evidence, discount, follows)


def log_landings(landed: csr_array, concentration: Knots) -> Knots:
    """Log density of landings, in order, for each concentration."""
    total = np.asarray(landed.sum(axis=1)).ravel()
    total, counts = total[total > 0], landed.data[landed.data > 0]
    shape = concentration[:, None] / landed.shape[1]
    return _log_rising(shape, counts).sum(axis=1) - _log_rising(concentration[:, None], total).sum(axis=1)


def _log_rising(base: Float[np.ndarray, "knots _"], count: Float[np.ndarray, "n"]) -> Float[np.ndarray, "knots n"]:
    """Log of base (base + 1) ... (base + count - 1), without the cancellation of log gammas of large numbers."""
    plain = gammaln(base + count) - gammaln(base)
    return np.where(base > CANCELS, gammaln(count) - betaln(base, count), plain)


def log_dirichlet(rng: np.random.Generator, shape: LogLaws) -> LogLaws:
    """Logarithms of draws from Dirichlet distributions along the second axis; shapes may be as small as 1e-13."""
    numbers = log_gamma(rng, shape)
    return numbers - logsumexp(numbers, axis=1, keepdims=True)


def log_gamma(rng: np.random.Generator, shape: Float[np.ndarray, "*size"]) -> Float[np.ndarray, "*size"]:
    """Logarithms of gamma numbers; shapes may be as small as 1e-13."""
    return np.log(rng.standard_gamma(shape + 1.0)) + np.log1p(-rng.random(shape.shape)) / shape
