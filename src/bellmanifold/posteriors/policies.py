"""The common currency of all engines: greedy policies with weights, and the answers that follow from them.

Whatever an engine does (enumerate cells, draw weighted points, run chains), in the end it knows which policies are
greedy and the posterior weight of each. Action, route and policy probabilities and both improper masses are sums of
these weights, so they are computed here for all engines. An engine returns R independent replicates of the weights; the
spread between them gives every answer its standard error. An enumeration without Monte Carlo has R = 1 and no error.

Two symmetries keep the tables small and the answers sharp. In a state that is not *coupled* to the data the action
values keep their prior, so each of its k actions is best with probability exactly 1/k. And the unobserved actions of
one state are exchangeable: a table may let one of them stand for all, and the others share its probability.

In problems with many states nearly every point has a policy of its own, which belongs to one replicate only. Then the
weights are kept as a sparse matrix (`weights_of`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import coo_array, csc_array

from bellmanifold.posteriors.estimated import Estimate, ratio
from bellmanifold.problem.ssp import SSP

PSEUDO_REPLICATES = 64
DRAWN_POLICIES = 4096
"""Policies drawn in each replicate to estimate the improper mass under the true transitions."""
FOLLOWED = 2**20
"""Number of policies times states that are followed at a time."""
ADDED = 2**23
"""Number of greedy pairs whose weights are added at a time: all pairs of a large table would double its memory."""
SPARSE, SMALL = 0.25, 2**18
"""Weights are kept as a sparse matrix if less than the share SPARSE is positive, and there are more than SMALL."""

Weights: TypeAlias = Float[np.ndarray, "replicates rows"] | csc_array
"""Weight of each row in each replicate."""


def weights_of(
    replicate: Int[np.ndarray, "n"], row: Int[np.ndarray, "n"], weight: Float[np.ndarray, "n"], shape: tuple[int, int]
) -> Weights:
    """Weights summed by replicate and row: an array, or a sparse matrix where most of a large array would be 0."""
    replicates, rows = shape
    size = replicates * rows
    if size <= SMALL or len(weight) > SPARSE * size:
        summed = np.bincount(row + rows * replicate, weight, size)
        return summed.reshape(shape).astype(np.float64)  # NumPy returns integers if there are no weights
    return csc_array(coo_array((weight, (replicate, row)), shape=shape))


def entries(weights: Weights) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Replicate, row and weight of all weights that are not 0."""
    if isinstance(weights, np.ndarray):
        replicate, row = np.nonzero(weights)
        return replicate, row, weights[replicate, row]
    row = np.repeat(np.arange(weights.shape[1]), np.diff(weights.indptr))
    return weights.indices.astype(np.int64), row, weights.data


@dataclass(frozen=True, eq=False)
class PolicyTable:
    """Greedy policies and their weights.

    Attributes:
        coupled: the states that the policies cover, shape (states,).
        policy: the greedy pair of each coupled state, ascending by state, shape (rows, coupled states).
        weight: unnormalised weight of each row in each replicate, on one common scale, as an array or a sparse matrix,
            shape (replicates, rows).
        stand_in: the pair that stands for each pair in `policy`; None if each stands for itself, shape (pairs,).
        resolution: the least standard error of a probability: a policy as probable as this may be missing, or counted
            once too often in all replicates alike; 0 for exact answers.
        heaviest: share of the heaviest point; a missed point may weigh as much, so it is the least standard error of a
            probability that is this close to 0 or 1.
        certain: states whose greedy pair is known exactly, whatever the resolution; None if none, shape (states,).
        beaten: pairs that are known not to be greedy, whatever the resolution; None if none, shape (pairs,).
    """

    coupled: Bool[np.ndarray, "states"]
    policy: Int[np.ndarray, "rows coupled_states"]
    weight: Weights
    stand_in: Int[np.ndarray, "pairs"] | None = None
    resolution: float = 0.0
    heaviest: float = 0.0
    certain: Bool[np.ndarray, "states"] | None = None
    beaten: Bool[np.ndarray, "pairs"] | None = None

    @classmethod
    def of_chains(
        cls,
        coupled: Bool[np.ndarray, "states"],
        policy: Int[np.ndarray, "rows coupled_states"],
        row: Int[np.ndarray, "chains draws"],
        stand_in: Int[np.ndarray, "pairs"] | None = None,
        resolution: float = 0.0,
    ) -> PolicyTable:
        """Count the policies of chains: `row` is the policy of each draw, and replicates are chains."""
        chain, one = np.repeat(np.arange(len(row)), row.shape[1]), np.ones(row.size)
        return cls(coupled, policy, weights_of(chain, row.ravel(), one, (len(row), len(policy))), stand_in, resolution)

    @cached_property
    def whole(self) -> Float[np.ndarray, "replicates"]:
        """Total weight of each replicate."""
        return np.asarray(self.weight.sum(axis=1))

    @cached_property
    def share(self) -> Float[np.ndarray, "rows"]:
        """Each row's share of the weight of all replicates."""
        return np.asarray(self.weight.sum(axis=0)) / (float(self.whole.sum()) or np.nan)

    def of_rows(self, rows: Int[np.ndarray, "n"] | Bool[np.ndarray, "rows"]) -> Float[np.ndarray, "replicates"]:
        """The weight of some rows together, in each replicate."""
        return np.asarray(self.weight[:, rows].sum(axis=1))

    @cached_property
    def column(self) -> Int[np.ndarray, "states"]:
        """The column of `policy` that belongs to each state; -1 if there is none."""
        return np.where(self.coupled, np.cumsum(self.coupled) - 1, -1)

    def standing(self, model: SSP) -> tuple[Int[np.ndarray, "pairs"], Float[np.ndarray, "pairs"]]:
        """The pair that stands for each pair, and the share of its probability that each pair gets."""
        pairs = np.arange(model.n_pairs)
        first = model.pair_start[model.pair_state]
        own = pairs if self.stand_in is None else self.stand_in
        stand = np.where(self.coupled[model.pair_state], own, first)
        return stand, 1.0 / np.bincount(stand, minlength=model.n_pairs)[stand]

    @cached_property
    def least_error(self) -> Float[np.ndarray, "states"]:
        """The resolution in each state: 0 where its greedy pair is certain."""
        certain = np.zeros_like(self.coupled) if self.certain is None else self.certain
        return np.where(certain, 0.0, self.resolution)

    def share_of(
        self,
        part: Float[np.ndarray, "replicates *k"],
        resolution: Float[np.ndarray, "*k"] | None = None,
        whole: Float[np.ndarray, "replicates"] | None = None,
    ) -> Estimate:
        """Weights as shares of the whole, with errors.

        Errors are at least the resolution (by default the largest of all states) and, close to 0 and 1, at least the
        heaviest point's share. `whole` is the table's by default; give it if replicates are not those of the table.
        """
        found = ratio(part, self.whole if whole is None else whole)
        least = self.least_error.max(initial=0.0) if resolution is None else resolution
        heaviest = np.where(least > 0, self.heaviest, 0.0)
        at_edge = (found.value < heaviest) | (found.value > 1.0 - heaviest)
        return Estimate.of(found.value, np.maximum(found.se, np.where(at_edge, np.maximum(least, heaviest), least)))


def action_probabilities(model: SSP, table: PolicyTable, added: int = ADDED) -> Estimate:
    """For each pair, the probability that its action is optimal in its state."""
    rows, states = table.policy.shape
    part = np.zeros((len(table.whole), model.n_pairs))
    width = max(1, added // max(1, rows))
    for first in range(0, states, width):
        pair = table.policy[:, first : first + width]
        ends = pair.shape[1] * np.arange(rows + 1)
        played = csc_array((np.ones(pair.size), pair.ravel(), ends), (model.n_pairs, rows)) @ table.weight.T
        part += (played if isinstance(played, np.ndarray) else played.toarray()).T
    part[:, model.pair_start[:-1][~table.coupled]] = table.whole[:, None]
    stand, share = table.standing(model)
    kinds = np.add.reduceat(stand == np.arange(model.n_pairs), model.pair_start[:-1])
    undecided = (table.coupled & (kinds > 1))[model.pair_state]
    undecided &= True if table.beaten is None else ~table.beaten
    return table.share_of(part[:, stand] * share, np.where(undecided, table.least_error[model.pair_state], 0.0))


def policy_probability(model: SSP, table: PolicyTable, policy: Int[np.ndarray, "states"]) -> Estimate:
    """The probability that a given deterministic policy is greedy in every state, that is, optimal."""
    stand, share = table.standing(model)
    agree = (table.policy == stand[policy][table.coupled]).all(axis=1)
    return table.share_of(table.of_rows(agree) * share[policy].prod())


def improper_mass(model: SSP, table: PolicyTable, solved: Bool[np.ndarray, "pairs"]) -> Estimate:
    """The probability that the greedy policy is improper if pairs that are not solved lead to the goal."""
    if not len(table.policy):
        return Estimate.of(0.0, 0.0)
    policy = np.tile(model.pair_start[:-1], (len(table.policy), 1))
    policy[:, table.coupled] = table.policy
    improper = ~_all_reach_goal(model, policy, solved)
    return table.share_of(table.of_rows(improper))


def improper_mass_model(model: SSP, table: PolicyTable, rng: np.random.Generator) -> Estimate:
    """The probability that the greedy policy is improper under the problem's true transitions.

    A pair that stands for others is replaced by a random one of them, independently in every replicate, so the standard
    error includes this randomness. A table with a single replicate gets 64 of them if there is anything to draw.
    """
    everything, (stand, share) = np.ones(model.n_pairs, dtype=bool), table.standing(model)
    if (share == 1.0).all():
        return improper_mass(model, table, everything)
    policy = np.tile(model.pair_start[:-1], (len(table.policy), 1))
    policy[:, table.coupled] = table.policy
    members = np.argsort(stand, kind="stable")
    first = np.searchsorted(stand[members], np.arange(model.n_pairs))
    size = np.bincount(stand, minlength=model.n_pairs)
    by_replicate = table.weight if isinstance(table.weight, np.ndarray) else table.weight.tocsr()
    drawn = np.arange(len(table.whole)) if len(table.whole) > 1 else np.zeros(PSEUDO_REPLICATES, dtype=np.int64)
    part = np.zeros(len(drawn))
    for k, replicate in enumerate(drawn):
        weight = np.asarray(by_replicate[[replicate]].sum(axis=0))
        total = weight.sum()
        if total > 0:
            chosen = policy[rng.choice(len(policy), DRAWN_POLICIES, p=weight / total)]
            played = members[first[chosen] + (rng.random(chosen.shape) * size[chosen]).astype(np.int64)]
            part[k] = total * (~_all_reach_goal(model, played, everything)).mean()
    return table.share_of(part, whole=table.whole[drawn])


def _all_reach_goal(
    model: SSP, policy: Int[np.ndarray, "rows states"], solved: Bool[np.ndarray, "pairs"]
) -> Bool[np.ndarray, "rows"]:
    """Whether, under each policy, every state reaches the goal with positive probability, hence surely."""
    if model.is_deterministic:
        many = max(1, FOLLOWED // (model.n_states + 1))
        parts = (_all_arrive(model, policy[k : k + many], solved) for k in range(0, len(policy), many))
        return np.concatenate([np.zeros(0, dtype=bool), *parts])
    arrives = np.zeros((len(policy), model.n_states + 1), dtype=bool)
    arrives[:, -1] = True
    longest = int(np.diff(model.next_start).max())
    last = model.next_start[1:] - 1
    rows = np.arange(len(policy))[:, None]
    while True:
        before = arrives.copy()
        arrives[:, :-1] |= ~solved[policy]
        for k in range(longest):
            entry = np.minimum(model.next_start[policy] + k, last[policy])
            arrives[:, :-1] |= before[rows, model.next_state[entry]]
        if (arrives == before).all():
            return np.asarray(arrives.all(axis=1))


def _all_arrive(
    model: SSP, policy: Int[np.ndarray, "rows states"], solved: Bool[np.ndarray, "pairs"]
) -> Bool[np.ndarray, "rows"]:
    """The same for moves that are not random: all are followed, for twice as many moves in each step."""
    after = np.full((len(policy), model.n_states + 1), model.n_states)
    after[:, :-1] = np.where(solved[policy], model.next_state[model.next_start[policy]], model.n_states)
    for _ in range(model.n_states.bit_length()):
        after = np.take_along_axis(after, after, axis=1)
    return np.asarray((after == model.n_states).all(axis=1))
