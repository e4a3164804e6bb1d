"""From a description to a problem: plain arrays are checked, lumped, merged and ordered.

Two descriptions of one problem give equal objects, and every error names the pair and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from bellmanifold.errors import BadInputError, guess, quote
from bellmanifold.limits import SIZE
from bellmanifold.ssp import SSP, Description, Index, StatedPrior, by_first_use

PROBABILITY_TOLERANCE = 1e-9
ROUNDING = 1e-12


def assemble(plain: Description) -> SSP:
    """Check a description and build the problem: goals lumped, pairs and successors in canonical order.

    States are numbered by their first pair, actions by their first use, pairs keep their order within a
    state, equal successors are merged, successors of probability 0 dropped, and rows that miss 1 by
    more than rounding (but by no more than 1e-9) are divided by their sum. Names that no pair, goal or
    start mentions are left out. Where a description may be open, NaN rewards and empty rows are left as they are.

    Raises:
        BadInputError: naming the pair and the remedy.
    """
    SIZE.require(np.size(plain.pair_state) + np.size(plain.next_state), "the problem")
    names, action_names = tuple(plain.state_names), tuple(plain.action_names)
    for kind, listed in (("state", names), ("action", action_names)):
        if len(set(listed)) != len(listed):
            raise BadInputError(f"{kind} names: {quote(_first_repeated(listed))} occurs twice: make them distinct")
    pair_state = _indices("pair_state", plain.pair_state, len(names))
    pair_action = _indices("pair_action", plain.pair_action, len(action_names))
    reward = _numbers("reward", plain.reward)
    sd = plain.reward_sd if plain.reward_sd is not None else np.zeros(len(reward))
    reward_sd = _numbers("reward_sd", sd)
    next_state = _indices("next_state", plain.next_state, len(names))
    next_prob = _numbers("next_prob", plain.next_prob)
    next_start = _indices("next_start", plain.next_start, len(next_state) + 1)
    goals = _indices("goals", plain.goals, len(names))
    initial_state = _indices("initial_state", plain.initial_state, len(names))
    initial_prob = _numbers("initial_prob", plain.initial_prob)

    n = len(pair_state)
    if not len(pair_action) == len(reward) == len(reward_sd) == len(next_start) - 1 == n:
        raise BadInputError("pair_state, pair_action, reward and next_start disagree about the number of pairs")
    if len(next_prob) != len(next_state) or len(initial_prob) != len(initial_state):
        raise BadInputError("a list of states and the list of their probabilities differ in length")
    if np.any(np.diff(next_start) < 0) or next_start[0] != 0 or next_start[-1] != len(next_state):
        raise BadInputError("next_start must rise from 0 to the number of successors")
    if len(goals) == 0:
        raise BadInputError("goals: there is none: name at least one goal state")
    if n == 0:
        raise BadInputError("pairs: there is none: give at least one pair")

    def label(pair: Index) -> str:
        return f"pair ({quote(names[pair_state[pair]])}, {quote(action_names[pair_action[pair]])})"

    a_pair = ", possibly an open one," if plain.may_be_open else ""
    is_goal = np.zeros(len(names), dtype=bool)
    is_goal[goals] = True
    has_pair = np.zeros(len(names), dtype=bool)
    has_pair[pair_state] = True

    def guessed(state: Index, remedy: str) -> str:
        near = guess(names[state], (names[s] for s in np.flatnonzero(has_pair | is_goal)))
        return f"{near} Else {remedy}" if near else remedy

    def row(entry: int) -> int:
        return int(np.searchsorted(next_start, entry, side="right")) - 1

    _refuse(is_goal[pair_state], lambda i: f"{label(i)}: its state is a goal: a goal has no actions, remove the pair")
    repeated = _repeats(pair_state.astype(np.int64) * max(1, len(action_names)) + pair_action)
    _refuse(repeated, lambda i: f"{label(i)}: occurs twice: keep one of them")
    open_reward, open_law = (wrong & plain.may_be_open for wrong in (np.isnan(reward), np.diff(next_start) == 0))
    _refuse(~np.isfinite(reward) & ~open_reward, lambda i: f"{label(i)}: reward is {reward[i]}: give a finite number")
    _refuse(
        ~np.isfinite(reward_sd) | (reward_sd < 0),
        lambda i: f"{label(i)}: reward_sd is {reward_sd[i]}: give a finite number that is not negative",
    )
    _refuse(
        ~np.isfinite(next_prob) | (next_prob < 0),
        lambda k: (
            f"{label(row(k))}: probability of {quote(names[next_state[k]])} is {next_prob[k]}: "
            "give a number from 0 to 1"
        ),
    )
    _refuse(
        ~(is_goal | has_pair)[next_state],
        lambda k: (
            f"{label(row(k))}: next state {quote(names[next_state[k]])} is neither a goal nor has a pair: "
            + guessed(next_state[k], f"give it a pair{a_pair} or list it under goals")
        ),
    )
    total = csr_array((next_prob, next_state, next_start), shape=(n, len(names))) @ np.ones(len(names))
    _refuse(
        (np.abs(total - 1.0) > PROBABILITY_TOLERANCE) & ~open_law,
        lambda i: f"{label(i)}: probabilities sum to {total[i]:.12g}: make them sum to 1",
    )
    _check_initial(names, initial_state, initial_prob, has_pair, is_goal, a_pair, guessed)
    prior = _stated(plain.prior, n, label)
    if not 0.0 < plain.open_discount <= 1.0:
        raise BadInputError(f"open_discount is {plain.open_discount}: it must lie in (0, 1]")

    first_pair = np.full(len(names), n)
    np.minimum.at(first_pair, pair_state, np.arange(n))
    order_of_states = np.argsort(first_pair, kind="stable")[: int(has_pair.sum())]
    n_states = len(order_of_states)
    new_state = np.full(len(names), n_states, dtype=np.int32)
    new_state[order_of_states] = np.arange(n_states)

    order = np.argsort(new_state[pair_state], kind="stable")
    actions, new_action = by_first_use(pair_action[order])
    start, successors, prob = _canonical(next_prob, new_state[next_state], next_start, order, total)

    initial = np.bincount(new_state[initial_state], initial_prob, n_states + 1)[:n_states]
    listed_goals = list(dict.fromkeys(goals.tolist()))
    return SSP(
        name=plain.name,
        states=tuple(names[s] for s in order_of_states),
        goals=tuple(names[s] for s in listed_goals),
        actions=tuple(action_names[a] for a in actions),
        initial=initial,
        pair_state=new_state[pair_state[order]].astype(np.int64),
        pair_action=new_action,
        reward=reward[order],
        reward_sd=reward_sd[order],
        next_start=start,
        next_state=successors,
        next_prob=prob,
        metadata=dict(plain.metadata),
        prior=None if prior is None else prior.of_pairs(order),
        open_discount=float(plain.open_discount),
    )


def _stated(prior: StatedPrior | None, pairs: int, label: Callable[[int], str]) -> StatedPrior | None:
    """The prior if it states anything, checked."""
    if prior is None or prior.is_empty:
        return None
    if not len(prior.pair_mean) == len(prior.pair_sd) == pairs:
        raise BadInputError("prior: its lists of means and sds must have one entry per pair")
    mean, sd = prior.pair_mean, prior.pair_sd
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
    """Successors of pairs in another order: ascending, equal ones merged, none of probability 0, summing to 1.

    Rows are sorted and merged in place: large problems are built with few arrays at a time.
    """
    law = csr_array((prob, state, start), shape=(len(order), int(state.max(initial=0)) + 1))[order]
    scale = np.where(np.abs(total - 1.0) > ROUNDING, total, 1.0)
    if (scale != 1.0).any():
        law.data /= np.repeat(scale[order], np.diff(law.indptr))
    law.eliminate_zeros()
    law.sum_duplicates()
    return law.indptr.astype(np.int64), law.indices.astype(np.int64), law.data


def _check_initial(
    names: tuple[str, ...],
    state: Int[np.ndarray, "starts"],
    prob: Float[np.ndarray, "starts"],
    has_pair: Bool[np.ndarray, "names"],
    is_goal: Bool[np.ndarray, "names"],
    a_pair: str,
    guessed: Callable[[Index, str], str],
) -> None:
    _refuse(
        ~np.isfinite(prob) | (prob < 0),
        lambda k: f"initial: probability of {quote(names[state[k]])} is {prob[k]}: give a number from 0 to 1",
    )
    _refuse(is_goal[state], lambda k: f"initial: {quote(names[state[k]])} is a goal: start where there is a pair")
    _refuse(
        ~has_pair[state],
        lambda k: (
            f"initial: unknown state {quote(names[state[k]])}: "
            + guessed(state[k], f"name a state that has a pair{a_pair.rstrip(',')}")
        ),
    )
    if abs(prob.sum() - 1.0) > PROBABILITY_TOLERANCE:
        raise BadInputError(f"initial: probabilities sum to {prob.sum():.12g}: make them sum to 1")


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
    """Raise the message for the first entry that is wrong."""
    if wrong.any():
        raise BadInputError(message(int(np.argmax(wrong))))


def _repeats(key: Int[np.ndarray, "n"]) -> Bool[np.ndarray, "n"]:
    """Which entries occurred before?"""
    repeated = np.ones(len(key), dtype=bool)
    repeated[np.unique(key, return_index=True)[1]] = False
    return repeated


def _first_repeated(names: Sequence[str]) -> str:
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
