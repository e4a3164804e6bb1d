"""Cheap steps between linear systems: repeated Bellman backups, and sweeps of one policy's chain.

A sweep x <- b + M x propagates values by one move. States are swept class by class, by their distance from the goal
modulo `CLASSES`, closer ones first, each using the new values of the classes before: values propagate away from the
goal by as many moves per sweep as there are classes. Whatever the classes, sweeps that start with x <= b + M x only
increase x, and never beyond the solution.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array

from bellmanifold.mdp.graph import PairValues, Policy, StateValues
from bellmanifold.mdp.linear import chain_on
from bellmanifold.problem.compressed_rows import ranks
from bellmanifold.problem.ssp import SSP, row_entries

CLASSES, MANY = 4, 8000
"""Number of classes, used with at least this many states: otherwise calls would take longer than the arithmetic."""
FEW = 0.02
"""Rounds end when the number of states that switch falls to this fraction of its maximum."""
TINY = 1 / 16
"""Gains up to this fraction of the rounding bound are taken to be rounding."""
SPARE, FILLED = 4, 1.5
"""Padded columns may have this many times as many entries as there are pairs, padded rows as the law has."""
EPSILON = float(np.finfo(np.float64).eps)
NEAR, MOVES = 1e-6, 400
"""A value with a residual of at most this fraction of the largest reward is close to the solution; the most moves that
a chain may need, and the most sweeps that correct it."""


class Steps:
    """The Bellman operator of one problem, for repeated use: its law as a matrix, and its pairs in columns.

    Column k holds the k-th pair of every state, or the last if there are fewer: a maximum over columns is five times as
    fast as over rows of different lengths. If some state has many more actions than others, columns would waste memory,
    and rows are used. Likewise the rows of the law are padded with zeros to the same length if that wastes little: then
    a policy's chain is updated in place when the policy changes.
    Sweeps go class by class if the distance of each state from the goal is given.
    """

    def __init__(self, model: SSP, distance: Int[np.ndarray, "states"] | None = None) -> None:
        self.model = model
        kind = np.zeros(model.n_states, dtype=np.int64) if distance is None else distance % CLASSES
        self.order = np.argsort(kind, kind="stable")  # of the law's columns, and of the rows of a policy's chain
        self.place = ranks(self.order).astype(np.int32)
        self.bounds = np.append(0, np.cumsum(np.bincount(kind)))
        self.sweeps = 10 if distance is None else 4  # per round of modified policy iteration, or check of the error
        inner = model.next_state < model.n_states
        start = np.append(0, np.cumsum(inner, dtype=np.int32))[model.next_start]
        prob, state = model.next_prob[inner], self.place[model.next_state[inner]]
        length = np.diff(start)
        self.width = int(length.max())
        if model.n_pairs > model.n_states and self.width * model.n_pairs <= FILLED * len(prob):
            used = (np.arange(self.width) < length[:, None]).ravel()
            given, start = (prob, state), np.arange(model.n_pairs + 1, dtype=np.int32) * self.width
            prob, state = np.zeros(len(used)), np.zeros(len(used), dtype=np.int32)
            prob[used], state[used] = given
        else:
            self.width = 0
        self.law = csr_array((prob, state, start), shape=(model.n_pairs, model.n_states))
        actions = np.diff(model.pair_start)
        most = int(actions.max())
        self.columns: list[slice | Int[np.ndarray, "states"]] = []
        if actions.min() == most:
            self.columns = [slice(k, None, most) for k in range(most)]
        elif most * model.n_states <= SPARE * model.n_pairs:
            self.columns = [model.pair_start[:-1] + np.minimum(k, actions - 1) for k in range(most)]

    def backup(self, value: StateValues) -> PairValues:
        """Action values one step ahead of state values."""
        return np.asarray(self.model.reward + self.law @ value[self.order])

    def rounding(self, gross: StateValues) -> PairValues:
        """A bound on the rounding error of each action value."""
        return np.asarray(64 * EPSILON * (self.law @ gross[self.order] + np.abs(self.model.reward)))

    def best(self, q: PairValues) -> StateValues:
        """The largest action value of each state."""
        if len(self.columns) < 2:
            return self.model.best(q)
        top = np.maximum(q[self.columns[0]], q[self.columns[1]])
        for column in self.columns[2:]:
            np.maximum(top, q[column], out=top)
        return top

    def improve(
        self, policy: Policy, value: StateValues, gross: StateValues, rounds: int
    ) -> tuple[Policy, StateValues]:
        """A better policy by modified policy iteration from a value, and a value close to its own.

        It iterates on the gain beyond the given value V: a small gain is not lost in the rounding of a large value,
        and a state keeps its pair if no other gains anything. It does not start if V solves the equations up to
        rounding; once started, it uses smaller gains, too. If V <= T V, that holds for all iterates, and they are at
        most V*. If values have far to propagate, a linear system is faster than more rounds.
        """
        gain, noise = self.backup(value) - value[self.model.pair_state], self.rounding(gross)
        noise += noise[policy][self.model.pair_state]
        if (gain <= noise).all() and (gain[policy] >= -noise[policy]).all():
            return policy, value
        gain[np.abs(gain) <= TINY * noise] = 0.0
        policy, more, most = policy.copy(), np.zeros_like(value), 0
        chain = self._chain(policy)
        for _ in range(rounds):
            own = gain[policy[self.order]]
            for _ in range(self.sweeps):
                chain.sweep(own, more)
            q = self.law @ more
            q += gain
            top = self.best(q)
            better = np.flatnonzero(top > q[policy])
            policy[better] = self._first_best(q, top, better)
            more = top[self.order]
            most = max(most, len(better))
            if len(better) <= FEW * most:
                break
            chain = self._switch(chain, policy, better)
        return policy, value + top

    def _chain(self, policy: Policy) -> _Chain:
        return _Chain(self.law[policy[self.order]], self.bounds)

    def _first_best(self, q: PairValues, top: StateValues, states: Int[np.ndarray, "some"]) -> Int[np.ndarray, "some"]:
        """The first pair with the largest action value, for each of the given states."""
        if isinstance(self.columns[0] if self.columns else None, slice):
            each = len(self.columns)
            return states * each + np.argmax(q.reshape(-1, each)[states], axis=1)
        pairs, start = row_entries(self.model.pair_start, states)
        found = q[pairs] == np.repeat(top[states], np.diff(start))
        return np.minimum.reduceat(np.where(found, pairs, self.model.n_pairs), start[:-1])

    def _switch(self, chain: _Chain, policy: Policy, states: Int[np.ndarray, "some"]) -> _Chain:
        """The chain of a policy, from that of a policy that differs in the given states, which may be overwritten."""
        if not self.width:
            return self._chain(policy)
        where, pairs, whole = self.place[states], policy[states], chain.whole
        for entries, given in ((whole.data, self.law.data), (whole.indices, self.law.indices)):
            entries.reshape(-1, self.width)[where] = given.reshape(-1, self.width)[pairs]
        return chain

    def correct(self, policy: Policy, right: StateValues, near: StateValues) -> StateValues | None:
        """Solve x = right + P x by sweeps from a value near the solution; None if it is too far, or moves are too many.

        Divided by the mass that leaves, the system is x = b + M x; with N = (I - M)^-1 >= 0 the solution is N b, and a
        value with residual e is off by the solution of d = e + M d. Once a sweep changes d by at most a fraction of
        |b|, state by state, its error is at most that fraction of N |b|, which is the solution's size if b has one
        sign: every state's value is accurate to its own rounding. The residual is computed in long double precision,
        since its rounding errors would be summed, too.
        """
        size = np.abs(right)
        if np.abs(near).max() > MOVES * size.mean():
            return None
        moves, leaving, _ = chain_on(self.model, policy, np.arange(self.model.n_states))
        precise = right + (moves.astype(np.longdouble) @ near - leaving.astype(np.longdouble) * near)
        residual = (precise / leaving).astype(np.float64)[self.order]
        if not np.abs(residual).max() <= NEAR * size.max():
            return None
        data = moves.data / np.repeat(leaving, np.diff(moves.indptr))
        share = csr_array((data, self.place[moves.indices], moves.indptr), shape=moves.shape)
        chain = _Chain(share[self.order], self.bounds)
        error, enough = residual.copy(), (EPSILON / 4 * size / leaving)[self.order]
        for _ in range(MOVES // self.sweeps):
            for _ in range(self.sweeps):
                before = error.copy()
                chain.sweep(residual, error)
            if (np.abs(error - before) <= enough).all():
                return near + error[self.place]
        return None


class _Chain:
    """A policy's moves, and views of them by class of states."""

    def __init__(self, whole: csr_array, bounds: Int[np.ndarray, "classes_plus_1"]) -> None:
        self.whole = whole
        self.classes: list[tuple[slice, csr_array]] = []
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            rows, start = csr_array((high - low, whole.shape[1])), whole.indptr[low : high + 1]
            entries = slice(start[0], start[-1])
            rows.data, rows.indices, rows.indptr = whole.data[entries], whole.indices[entries], start - start[0]
            self.classes.append((slice(low, high), rows))

    def sweep(self, right: Float[np.ndarray, "n"], x: Float[np.ndarray, "n"]) -> None:
        """x <- right + P x in place, class by class."""
        for own, rows in self.classes:
            np.add(rows @ x, right[own], out=x[own])
