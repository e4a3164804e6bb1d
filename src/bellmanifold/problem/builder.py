"""Building a problem from a description: plain arrays are checked, lumped, merged and ordered.

Two descriptions of one problem give equal objects, and every error names the pair and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from bellmanifold._util.limits import SIZE
from bellmanifold._util.options import remedy_when_read
from bellmanifold.errors import BadInputError, first_repeated, guess, quote, quote_pair, require
from bellmanifold.problem.compressed_rows import by_first_use
from bellmanifold.problem.ssp import SSP, Description, Index, StatedPrior

LOOP = "stay"
"""The action of the loop that a dead end is given for a while."""
PROBABILITY_TOLERANCE = 1e-9
ROUNDING = 1e-12
WithoutLoops: TypeAlias = Callable[[SSP, Bool[np.ndarray, "pairs"]], SSP]
"""Takes states that have nothing but these loops out of a problem."""


def assemble(plain: Description, without_loops: WithoutLoops | None = None) -> SSP:
    """Check a description and build the problem: goals lumped, pairs and successors in canonical order.

    States are numbered by their first pair, actions by their first use; pairs keep their order within a
    state; equal successors are merged, successors of probability 0 dropped, and rows whose sum differs from 1
    by more than rounding (but by no more than 1e-9) are divided by it. Names that no pair, goal or
    start mentions are dropped. Where a description may be open, NaN rewards and empty rows are kept. A next state
    that is no goal and has no pair is an error; given `bellmanifold.mdp.pruning.without_loops`, it is dropped with the
    moves that may lead there, and so on.

    Raises:
        BadInputError: naming the pair and the remedy.
    """
    SIZE.require(np.size(plain.pair_state) + np.size(plain.next_state), "the problem")
    given = _Given(plain)
    _check_lengths(given)
    if without_loops is not None and (dead := given.dead_ends()).size:
        return _without_dead_ends(plain, given, dead, without_loops)
    _check_pairs(given)
    total = _checked_sums(given)
    _check_initial(given)
    prior = _check_prior(plain.prior, given)
    require(0.0 < plain.open_discount <= 1.0, f"open_discount is {plain.open_discount}: it must lie in (0, 1]")
    states, number = given.by_first_pair()
    order = np.argsort(number[given.pair_state], kind="stable")
    actions, pair_action = by_first_use(given.pair_action[order])
    start, successors, prob = _canonical(given.next_prob, number[given.next_state], given.next_start, order, total)
    return SSP(
        name=plain.name,
        states=tuple(given.names[s] for s in states),
        goals=tuple(given.names[s] for s in dict.fromkeys(given.goals.tolist())),
        actions=tuple(given.actions[a] for a in actions),
        initial=np.bincount(number[given.initial_state], given.initial_prob, len(states) + 1)[: len(states)],
        pair_state=number[given.pair_state[order]].astype(np.int64),
        pair_action=pair_action,
        reward=given.reward[order],
        reward_sd=given.reward_sd[order],
        next_start=start,
        next_state=successors,
        next_prob=prob,
        metadata=dict(plain.metadata),
        prior=None if prior is None else prior.of_pairs(order),
        open_discount=float(plain.open_discount),
    )


def _without_dead_ends(
    plain: Description, given: _Given, dead: Int[np.ndarray, "dead"], without_loops: WithoutLoops
) -> SSP:
    """Give each state without a pair a loop, build the problem, and take them out again."""
    count, action = len(dead), LOOP
    while action in given.actions:
        action += "'"
    prior, blank = plain.prior, np.full(count, np.nan)
    if prior is not None:
        prior = StatedPrior(prior.mean, prior.sd, np.append(prior.pair_mean, blank), np.append(prior.pair_sd, blank))
    with_loops = replace(
        plain,
        action_names=(*given.actions, action),
        pair_state=np.append(given.pair_state, dead),
        pair_action=np.append(given.pair_action, np.full(count, len(given.actions))),
        reward=np.append(given.reward, np.zeros(count)),
        reward_sd=np.append(given.reward_sd, np.zeros(count)),
        next_start=np.append(given.next_start, given.next_start[-1] + 1 + np.arange(count)),
        next_state=np.append(given.next_state, dead),
        next_prob=np.append(given.next_prob, np.ones(count)),
        prior=prior,
    )
    model = assemble(with_loops)
    return without_loops(model, model.pair_action == model.actions.index(action))


class _Given:
    """The arrays of a description, checked for types and ranges of indices only.

    `is_goal` and `has_pair` are masks of the names that are goals, and of those that have a pair.
    """

    def __init__(self, plain: Description) -> None:
        self.names, self.actions = tuple(plain.state_names), tuple(plain.action_names)
        for kind, listed in (("state", self.names), ("action", self.actions)):
            if (twice := first_repeated(listed)) is not None:
                raise BadInputError(f"{kind} names: {quote(twice)} occurs twice: make them distinct")
        states = len(self.names)
        self.pair_state = _indices("pair_state", plain.pair_state, states)
        self.pair_action = _indices("pair_action", plain.pair_action, len(self.actions))
        self.reward = _numbers("reward", plain.reward)
        sd = np.zeros(len(self.reward)) if plain.reward_sd is None else plain.reward_sd
        self.reward_sd = _numbers("reward_sd", sd)
        self.next_state = _indices("next_state", plain.next_state, states)
        self.next_prob = _numbers("next_prob", plain.next_prob)
        self.next_start = _indices("next_start", plain.next_start, len(self.next_state) + 1)
        self.goals = _indices("goals", plain.goals, states)
        self.initial_state = _indices("initial_state", plain.initial_state, states)
        self.initial_prob = _numbers("initial_prob", plain.initial_prob)
        self.may_be_open = plain.may_be_open
        self.is_goal, self.has_pair = (np.isin(np.arange(states), those) for those in (self.goals, self.pair_state))

    def dead_ends(self) -> Int[np.ndarray, "dead"]:
        """The next states that are no goals and have no pair."""
        met = np.unique(self.next_state)
        return met[~(self.is_goal | self.has_pair)[met]]

    def label(self, pair: Index) -> str:
        """A pair by its names, for a message."""
        return "pair " + quote_pair(self.names[self.pair_state[pair]], self.actions[self.pair_action[pair]])

    def label_of_entry(self, entry: int) -> str:
        """The pair of a successor entry by its names, for a message."""
        return self.label(int(np.searchsorted(self.next_start, entry, side="right")) - 1)

    def remedy(self, state: Index, before: str, after: str = "") -> str:
        """The remedy for a name without a pair: a similar name, or to give it a pair."""
        near = guess(self.names[state], (self.names[s] for s in np.flatnonzero(self.has_pair | self.is_goal)))
        remedy = before + (", possibly an open one" + ("," if after else "") if self.may_be_open else "") + after
        return f"{near} Otherwise {remedy}" if near else remedy

    def by_first_pair(self) -> tuple[Int[np.ndarray, "states"], Int[np.ndarray, "names"]]:
        """The states in order of their first pairs, and the index of each name, that of the goal for all others."""
        pairs = len(self.pair_state)
        first = np.full(len(self.names), pairs)
        np.minimum.at(first, self.pair_state, np.arange(pairs))
        states = np.argsort(first, kind="stable")[: int(self.has_pair.sum())]
        number = np.full(len(self.names), len(states), dtype=np.int32)
        number[states] = np.arange(len(states))
        return states, number


def _check_lengths(given: _Given) -> None:
    pairs, start = len(given.pair_state), given.next_start
    if not len(given.pair_action) == len(given.reward) == len(given.reward_sd) == len(start) - 1 == pairs:
        raise BadInputError("pair_state, pair_action, reward and next_start disagree about the number of pairs")
    if len(given.next_prob) != len(given.next_state) or len(given.initial_prob) != len(given.initial_state):
        raise BadInputError("a list of states and the list of their probabilities differ in length")
    if np.any(np.diff(start) < 0) or start[0] != 0 or start[-1] != len(given.next_state):
        raise BadInputError("next_start must rise from 0 to the number of successors")
    require(len(given.goals) > 0, "goals: there are none: name at least one goal state")
    require(pairs > 0, "pairs: there are none: give at least one pair")


def _check_pairs(given: _Given) -> None:
    """Raise for pairs of goals, repeated pairs, and rewards that are not finite."""
    label, reward, reward_sd = given.label, given.reward, given.reward_sd
    _refuse(
        given.is_goal[given.pair_state],
        lambda i: f"{label(i)}: its state is a goal: a goal has no actions, remove the pair",
    )
    key = given.pair_state.astype(np.int64) * max(1, len(given.actions)) + given.pair_action
    repeated = np.ones(len(key), dtype=bool)
    repeated[np.unique(key, return_index=True)[1]] = False
    _refuse(repeated, lambda i: f"{label(i)}: occurs twice: keep one of them")
    is_open = np.isnan(reward) & given.may_be_open
    _refuse(~np.isfinite(reward) & ~is_open, lambda i: f"{label(i)}: reward is {reward[i]}: give a finite number")
    _refuse(
        ~np.isfinite(reward_sd) | (reward_sd < 0),
        lambda i: f"{label(i)}: reward_sd is {reward_sd[i]}: give a finite number that is not negative",
    )


def _checked_sums(given: _Given) -> Float[np.ndarray, "pairs"]:
    """The sum of each pair's probabilities, checked: 1 up to the tolerance, or 0 where its law is open."""
    state, prob, label, names = given.next_state, given.next_prob, given.label_of_entry, given.names
    _refuse(
        ~np.isfinite(prob) | (prob < 0),
        lambda k: f"{label(k)}: probability of {quote(names[state[k]])} is {prob[k]}: give a number from 0 to 1",
    )
    _refuse(
        ~(given.is_goal | given.has_pair)[state],
        lambda k: (
            f"{label(k)}: next state {quote(names[state[k]])} is not a goal and has no pair: "
            + given.remedy(state[k], "give it a pair", " or list it under goals")
            + f"; if it is a dead end, not a goal, {remedy_when_read()} drops it and the moves that may lead there"
        ),
    )
    law = csr_array((prob, state, given.next_start), shape=(len(given.pair_state), len(names)))
    total = law @ np.ones(len(names))
    is_open = (np.diff(given.next_start) == 0) & given.may_be_open
    _refuse(
        (np.abs(total - 1.0) > PROBABILITY_TOLERANCE) & ~is_open,
        lambda i: f"{given.label(i)}: probabilities sum to {total[i]:.12g}: make them sum to 1",
    )
    return total


def _check_initial(given: _Given) -> None:
    names, state, prob = given.names, given.initial_state, given.initial_prob
    _refuse(
        ~np.isfinite(prob) | (prob < 0),
        lambda k: f"initial: probability of {quote(names[state[k]])} is {prob[k]}: give a number from 0 to 1",
    )
    _refuse(given.is_goal[state], lambda k: f"initial: {quote(names[state[k]])} is a goal: start where there is a pair")
    _refuse(
        ~given.has_pair[state],
        lambda k: (
            f"initial: unknown state {quote(names[state[k]])}: "
            + given.remedy(state[k], "name a state that has a pair")
        ),
    )
    if abs(prob.sum() - 1.0) > PROBABILITY_TOLERANCE:
        raise BadInputError(f"initial: probabilities sum to {prob.sum():.12g}: make them sum to 1")


def _check_prior(prior: StatedPrior | None, given: _Given) -> StatedPrior | None:
    """The checked prior; None if nothing is stated."""
    if prior is None or prior.is_empty:
        return None
    if not len(prior.pair_mean) == len(prior.pair_sd) == len(given.pair_state):
        raise BadInputError("prior: its lists of means and sds must have one entry per pair")
    mean, sd, label = prior.pair_mean, prior.pair_sd, given.label
    _refuse(np.isinf(mean), lambda i: f"{label(i)}: prior: mean is {mean[i]}: give a finite number")
    _refuse(np.isinf(sd) | (sd <= 0), lambda i: f"{label(i)}: prior: sd is {sd[i]}: give a positive number")
    return prior


def _canonical(
    prob: Float[np.ndarray, "entries"],
    state: Int[np.ndarray, "entries"],
    start: Int[np.ndarray, "pairs_plus_1"],
    order: Int[np.ndarray, "pairs"],
    total: Float[np.ndarray, "pairs"],
) -> tuple[Int[np.ndarray, "pairs_plus_1"], Int[np.ndarray, "merged"], Float[np.ndarray, "merged"]]:
    """Reorder the pairs; successors are sorted, equal ones merged, zeros dropped, and rows made to sum to 1.

    Rows are sorted and merged in place: large problems are built with few arrays at a time.
    """
    law = csr_array((prob, state, start), shape=(len(order), int(state.max(initial=0)) + 1))[order]
    scale = np.where(np.abs(total - 1.0) > ROUNDING, total, 1.0)
    if (scale != 1.0).any():
        law.data /= np.repeat(scale[order], np.diff(law.indptr))
    law.eliminate_zeros()
    law.sum_duplicates()
    return law.indptr.astype(np.int64), law.indices.astype(np.int64), law.data


def _indices(what: str, values: ArrayLike, below: int) -> Int[np.ndarray, "n"]:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise BadInputError(f"{what}: must be a list of whole numbers")
    array = array.astype(np.int32 if array.dtype == np.int32 else np.int64, copy=False)
    if array.size and not (array.min() >= 0 and array.max() < below):
        raise BadInputError(f"{what}: an entry is outside 0 to {below - 1}")
    return array


def _numbers(what: str, values: ArrayLike) -> Float[np.ndarray, "n"]:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise BadInputError(f"{what}: must be a list of numbers")
    return array.astype(np.float64, copy=False)


def _refuse(wrong: Bool[np.ndarray, "n"], message: Callable[[int], str]) -> None:
    """Raise, with its message, for the first entry that is wrong."""
    if wrong.any():
        raise BadInputError(message(int(np.argmax(wrong))))
