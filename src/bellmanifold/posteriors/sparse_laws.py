"""Open laws of large problems: a law has few landings that matter, and only those are kept.

A law with distribution Dirichlet(n + a b) is a mixture: a share 1 - F of observed landings, split by Dirichlet(n), and
a share F ~ Beta(a, n.) of *fresh* ones, split by Dirichlet(a b). The latter is a Dirichlet process with a discrete base
law, so it has a stick-breaking representation (Sethuraman 1994): the k-th landing is drawn from b and takes a share
beta_k ~ Beta(1, a) of the remaining probability. Once less than 1e-9 remains, the remainder leads to the goal, so every
policy reaches it.

Given shares and sticks the concentration has density proportional to

    prior(a) p(landings | a) prod_i Beta(F_i; a, n_i.) prod_k Beta(beta_ik; 1, a),

where factors that depend on a involve the point only through log F, the number of sticks and the sum of log(1 - beta).

A chain moves laws in two ways. The law of a pair that is not greedy, and stays so, changes only the pair's own value:
all of these are proposed at once, and each is accepted with the ratio of its own prior density. Laws of any pairs, one
or more at a time, are proposed by themselves, and the equations are solved again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array
from scipy.special import gammaln

from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.laws import OpenLaws, log_gamma, log_landings
from bellmanifold.problem.compressed_rows import Rows, row_entries
from bellmanifold.problem.ssp import SSP

LEFT = 1e-9
"""Sticks are broken until the remaining probability of a law is at most this."""
MOST_STICKS = 1000
LARGEST = 40.0
"""The largest concentration; a law breaks about 21 times as many sticks."""


@dataclass(frozen=True, eq=False)
class SparseLaws:
    """The laws of one point.

    Attributes:
        law: probabilities of landings, the goal last, one row for each active row of the open laws.
        concentration: the concentration they were drawn with.
        log_fresh: log F, shape (rows,).
        sticks: number of sticks, shape (rows,).
        log_left: sum of log(1 - beta), shape (rows,).
    """

    law: csr_array
    concentration: float
    log_fresh: Float[np.ndarray, "rows"]
    sticks: Int[np.ndarray, "rows"]
    log_left: Float[np.ndarray, "rows"]

    def apply(self, laws: OpenLaws, model: SSP) -> SSP:
        """The problem with these laws."""
        rows = Rows(self.law.indptr, self.law.indices, self.law.data)
        rows = rows.discounted(np.ones(len(self.sticks), dtype=bool), laws.discount, model.n_states)
        return model.with_rows(laws.pairs[laws.active], *rows)

    def with_rows(self, other: SparseLaws, rows: Int[np.ndarray, "some"]) -> SparseLaws:
        """These laws with some rows replaced by those of another point."""
        chosen = np.zeros(len(self.sticks), dtype=bool)
        chosen[rows] = True
        mine, others = (Rows(law.indptr, law.indices, law.data) for law in (self.law, other.law))
        joined = mine.replaced(np.flatnonzero(chosen), others.kept(chosen))
        return replace(
            self,
            law=csr_array((joined.prob, joined.state, joined.start), shape=self.law.shape),
            log_fresh=np.where(chosen, other.log_fresh, self.log_fresh),
            sticks=np.where(chosen, other.sticks, self.sticks),
            log_left=np.where(chosen, other.log_left, self.log_left),
        )


class Drawer:
    """Draws laws of large problems given their landings.

    Args:
        laws: the open laws with their landings.

    Raises:
        UnsupportedError: if the concentration is so large that many landings of a law matter.
    """

    def __init__(self, laws: OpenLaws) -> None:
        if laws.concentration[-1] > LARGEST:
            raise UnsupportedError(
                f"concentration is {laws.concentration[-1]:g}, too large for a problem of this size, where laws have "
                f"few next states: give at most {LARGEST:g}, or leave it out"
            )
        self.laws, self.landed = laws, csr_array(laws.landed[laws.active])
        self.rows = np.repeat(np.arange(len(laws.active)), np.diff(self.landed.indptr))
        self.total = laws.total

    @cached_property
    def log_seen(self) -> Float[np.ndarray, "knots"]:
        """Log of prior times density of the landings, for each concentration."""
        return self.laws.log_prior + log_landings(self.landed, self.laws.concentration)

    def draw(
        self, rng: np.random.Generator, concentration: float | None = None, rows: Int[np.ndarray, "some"] | None = None
    ) -> SparseLaws:
        """Laws of all rows, or of some (the others are empty), given landings and, if known, the concentration."""
        n = len(self.total)
        concentration = float(self.laws.draw_concentration(rng, 1)[0]) if concentration is None else concentration
        wanted = np.ones(n, dtype=bool) if rows is None else np.isin(np.arange(n), rows)
        mine = wanted[self.rows]
        row, landing, seen = self.rows[mine], self.landed.indices[mine], rng.standard_gamma(self.landed.data)[mine]
        of_seen = np.bincount(row, seen, n)
        log_fresh = log_gamma(rng, np.full(n, concentration))
        with np.errstate(divide="ignore"):
            log_fresh = log_fresh - np.logaddexp(log_fresh, np.log(of_seen))
        fresh = np.exp(log_fresh)
        parts = [(row, landing, seen / of_seen[row] * (1.0 - fresh)[row])]
        left = np.where(wanted, fresh, 0.0)
        sticks, log_left = np.zeros(n, dtype=np.int64), np.zeros(n)
        for _ in range(MOST_STICKS):
            long = np.flatnonzero(left > LEFT)
            if not len(long):
                break
            kept = rng.random(len(long)) ** (1.0 / concentration)  # 1 - beta
            parts.append((long, rng.integers(self.laws.nexts, size=len(long)), left[long] * (1.0 - kept)))
            left[long] *= kept
            sticks[long] += 1
            with np.errstate(divide="ignore"):
                log_left[long] += np.log(kept)
        every = np.flatnonzero(wanted)
        parts.append((every, np.full(len(every), self.laws.nexts - 1), np.maximum(left[every], 1e-300)))
        row, landing, chance = (np.concatenate(column) for column in zip(*parts, strict=True))
        law = csr_array((chance, (row, landing)), shape=self.landed.shape)
        law.sum_duplicates()
        return SparseLaws(law, concentration, log_fresh, sticks, log_left)

    def carry(self, rng: np.random.Generator, before: Drawer | None, old: SparseLaws | None) -> SparseLaws:
        """Laws given these landings; rows without new landings keep the laws of an earlier point."""
        if before is None or old is None:
            return self.draw(rng)
        drawn = self.draw(rng, old.concentration)
        rows, there = self.laws.unchanged(before.laws)
        source = np.zeros(len(self.total), dtype=np.int64)
        source[rows] = there
        entries, begin = row_entries(old.law.indptr, source)
        law = csr_array((old.law.data[entries], old.law.indices[entries], begin), shape=drawn.law.shape)
        earlier = SparseLaws(law, old.concentration, old.log_fresh[source], old.sticks[source], old.log_left[source])
        return drawn.with_rows(earlier, rows)

    def concentration_given(self, rng: np.random.Generator, here: SparseLaws) -> float:
        """A draw of the concentration given the laws of a point."""
        knots = self.laws.concentration
        if len(knots) == 1:
            return float(knots[0])
        a = knots[:, None]
        of_shares = gammaln(a + self.total) - gammaln(a) + a * here.log_fresh  # F is 1 where nothing was seen
        log_density = self.log_seen + of_shares.sum(axis=1)
        log_density += np.log(knots) * here.sticks.sum() + knots * here.log_left.sum()
        return float(knots[np.argmax(log_density + rng.gumbel(size=len(knots)))])
