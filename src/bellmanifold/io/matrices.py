"""Problems as matrices, one row per pair, and back: `SSP.to_arrays`.

Goals are states there, which stay where they are and pay nothing. A discount g can be taken out of a discounted problem
(all moves end with probability 1 - g at least): with the other moves P, the matrices hold P / g, and what is left
of the way to the goal. This undoes what `SSP.discounted` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array, csr_matrix, vstack

from bellmanifold.errors import BadInputError, quote_pair, require, require_numbers
from bellmanifold.problem.builder import assemble
from bellmanifold.problem.ssp import SSP, Description, StatedPrior, require_closed

ROUNDING = 1e-12
"""Probabilities of reaching the goal below this, once a discount is taken out, are rounding errors."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """A problem as matrices, one row per pair: QuantEcon's form. Goals are states, and stay where they are.

    `DiscreteDP(arrays.R, arrays.P, arrays.discount, arrays.s_indices, arrays.a_indices)` is QuantEcon's object,
    `mdptoolbox.mdp.PolicyIteration(*arrays.by_action(), arrays.discount)` a solver of pymdptoolbox, and
    `bm.from_arrays(arrays)` the problem again.

    Attributes:
        states: names of all states, the goals last; S of them.
        actions: names of the actions.
        goals: indices of the goals, shape (goals,).
        P: transition probabilities, a sparse matrix in compressed rows, shape (L, S).
        R: reward of each pair, shape (L,).
        s_indices: state of each pair, ascending, shape (L,).
        a_indices: action of each pair, shape (L,).
        initial: probability that an episode starts in each state, shape (S,).
        discount: the discount that was taken out of `P`; 1 if none was.
        name: the problem's name.
        reward_sd: standard deviation of the noise of each pair's simulated reward, shape (L,).
        metadata, prior: as in `SSP`; the prior is one of pairs of states that are no goals.
    """

    states: tuple[str, ...]
    actions: tuple[str, ...]
    goals: Int[np.ndarray, "goals"]
    P: csr_matrix
    R: Float[np.ndarray, "pairs"]
    s_indices: Int[np.ndarray, "pairs"]
    a_indices: Int[np.ndarray, "pairs"]
    initial: Float[np.ndarray, "states"]
    discount: float = 1.0
    name: str = ""
    reward_sd: Float[np.ndarray, "pairs"] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    prior: StatedPrior | None = None

    def by_action(self) -> tuple[list[csr_matrix], Float[np.ndarray, "states actions"]]:
        """One matrix (S, S) per action, and rewards (S, A), as pymdptoolbox takes them.

        There every state has every action: one that a state lacks does what the first action of the state does.
        """
        shape = (len(self.states), len(self.actions))
        first = np.searchsorted(self.s_indices, np.arange(shape[0]))
        row = np.repeat(first[:, None], shape[1], axis=1)
        row[self.s_indices, self.a_indices] = np.arange(len(self.R))
        return [self.P[row[:, action]] for action in range(shape[1])], self.R[row]


def from_record(given: Arrays) -> SSP:
    """The problem that such matrices hold."""
    own = ~np.isin(given.s_indices, given.goals)
    law, start = csr_array(given.P)[own], np.flatnonzero(given.initial)
    model = assemble(
        Description(
            state_names=given.states,
            action_names=given.actions,
            goals=given.goals,
            initial_state=start,
            initial_prob=given.initial[start],
            pair_state=given.s_indices[own],
            pair_action=given.a_indices[own],
            reward=given.R[own],
            next_start=law.indptr,
            next_state=law.indices,
            next_prob=law.data,
            reward_sd=None if given.reward_sd is None else given.reward_sd[own],
            name=given.name,
            metadata=given.metadata,
            prior=given.prior,
        )
    )
    return model.discounted(given.discount)


def to_arrays(model: SSP, discount: float = 1.0) -> Arrays:
    """See `SSP.to_arrays`."""
    require_closed(model, "to_arrays")
    require_numbers(discount=discount)
    require(0.0 < discount <= 1.0, f"discount is {discount}: it must lie in (0, 1]")
    n, goals = model.n_states, len(model.goals)
    prob, ends = model.next_prob, model.next_state == n
    if discount < 1.0:
        left = np.bincount(model.next_pair[ends], prob[ends], model.n_pairs) - (1.0 - discount)
        if (left < -ROUNDING).any():
            pair = int(np.argmin(left))
            raise BadInputError(
                f"pair {quote_pair(*model.pair_name(pair))} ends with probability {left[pair] + 1.0 - discount:.6g}, "
                f"less than 1 - discount: give a discount of at least {discount - left[pair]:.6g}"
            )
        prob = np.where(ends, np.where(left > ROUNDING, left, 0.0)[model.next_pair], prob) / discount
    law = csr_array((prob, model.next_state, model.next_start), shape=(model.n_pairs, n + goals))
    stay = csr_array((np.ones(goals), n + np.arange(goals), np.arange(goals + 1)), shape=(goals, n + goals))
    matrix = csr_matrix(vstack([law, stay], format="csr"))
    matrix.eliminate_zeros()
    zero, there = np.zeros(goals), n + np.arange(goals)
    return Arrays(
        states=(*model.states, *model.goals),
        actions=model.actions,
        goals=there,
        P=matrix,
        R=np.append(model.reward, zero),
        s_indices=np.append(model.pair_state, there),
        a_indices=np.append(model.pair_action, np.zeros(goals, dtype=np.int64)),
        initial=np.append(model.initial, zero),
        discount=float(discount),
        name=model.name,
        reward_sd=np.append(model.reward_sd, zero),
        metadata=dict(model.metadata),
        prior=model.prior,
    )
