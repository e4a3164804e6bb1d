"""The stochastic shortest path problem: finitely many states, pairs and successors, and one goal.

A *pair* is a state together with one of its actions. Pair i pays an expected reward ``reward[i]`` and
moves to state j with probability p(j | i). The goal is absorbing and pays nothing; several goals are
lumped into one. An action-value function is a vector with one entry a pair, so everything the
library computes is indexed by pairs.

Storage is sparse and flat: pairs are sorted by state, and the successors of all pairs lie one after
the other ("compressed rows"). With S states, d pairs and k successors in all, memory is O(S + d + k),
whatever the number of actions or successors of a single state or pair. The goal is the explicit
successor number S: it is never inferred from probability missing in a row, because ten times 0.1
leaves 1e-16 and 1e-16 is not a way out.

``assemble`` is the only door: file readers, environments and adapters all hand it a `Description` (plain
arrays), and it checks, lumps, merges and orders them, so that two descriptions of one problem give
equal objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, SupportsIndex, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from bellmanifold.errors import BadInputError, quote
from bellmanifold.limits import SIZE

T = TypeVar("T")
Index: TypeAlias = SupportsIndex
"""A number that indexes an array: Python's or NumPy's."""

PROBABILITY_TOLERANCE = 1e-9
ROUNDING = 1e-12
ARRAYS = ("initial", "pair_state", "pair_action", "reward", "reward_sd", "next_start", "next_state", "next_prob")


@dataclass(frozen=True)
class Description:
    """A problem as plain, unchecked arrays; the layout of the `.npz` format. Goals are among the states.

    Attributes:
        state_names: every state, goals included.
        action_names: every action.
        goals: indices of the goal states.
        initial_state, initial_prob: the initial distribution, entry by entry.
        pair_state, pair_action, reward: one entry a pair, in any order.
        next_start, next_state, next_prob: successors of all pairs in compressed rows.
        reward_sd: noise of each pair's simulated reward; None for none.
    """

    state_names: Sequence[str]
    action_names: Sequence[str]
    goals: ArrayLike
    initial_state: ArrayLike
    initial_prob: ArrayLike
    pair_state: ArrayLike
    pair_action: ArrayLike
    reward: ArrayLike
    next_start: ArrayLike
    next_state: ArrayLike
    next_prob: ArrayLike
    reward_sd: ArrayLike | None = None
    name: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class SSP:
    """A stochastic shortest path problem. Build one with `assemble`, a reader or `bellmanifold.envs`.

    Attributes:
        name: a label for people.
        states: names of the non-goal states; S of them.
        goals: names of the lumped goal states, at least one.
        actions: the distinct action names.
        initial: probability that an episode starts in each state, shape (S,).
        pair_state: the state of each pair, non-decreasing, shape (pairs,).
        pair_action: index into `actions`, shape (pairs,).
        reward: expected reward of each pair, shape (pairs,).
        reward_sd: standard deviation of the reward's Gaussian noise when it is simulated, shape (pairs,).
        next_start: the successors of pair i are next_start[i]:next_start[i + 1], shape (pairs + 1,).
        next_state: successor states; S is the goal; ascending within a pair, shape (successors,).
        next_prob: their probabilities, all positive, shape (successors,).
        metadata: whatever the file said under "metadata".
    """

    name: str
    states: tuple[str, ...]
    goals: tuple[str, ...]
    actions: tuple[str, ...]
    initial: Float[np.ndarray, "states"]
    pair_state: Int[np.ndarray, "pairs"]
    pair_action: Int[np.ndarray, "pairs"]
    reward: Float[np.ndarray, "pairs"]
    reward_sd: Float[np.ndarray, "pairs"]
    next_start: Int[np.ndarray, "pairs_plus_1"]
    next_state: Int[np.ndarray, "successors"]
    next_prob: Float[np.ndarray, "successors"]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Arrays cannot be written to: charts are kept by identity, and would not hear of it."""
        for name in ARRAYS:
            view = getattr(self, name).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)

    def __repr__(self) -> str:
        return f"SSP({quote(self.name)}, {self.n_states} states, {self.n_pairs} pairs)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SSP):
            return NotImplemented
        labels = ("name", "states", "goals", "actions", "metadata")
        return all(getattr(self, f) == getattr(other, f) for f in labels) and all(
            np.array_equal(getattr(self, f), getattr(other, f)) for f in ARRAYS
        )

    __hash__ = object.__hash__

    @property
    def n_states(self) -> int:
        """Number of non-goal states; also the index of the goal among successors."""
        return len(self.states)

    @property
    def n_pairs(self) -> int:
        return len(self.pair_state)

    @cached_property
    def pair_start(self) -> Int[np.ndarray, "states_plus_1"]:
        """The pairs of state s are pair_start[s]:pair_start[s + 1]."""
        return np.searchsorted(self.pair_state, np.arange(self.n_states + 1))

    @cached_property
    def next_pair(self) -> Int[np.ndarray, "successors"]:
        """The pair each successor entry belongs to."""
        return np.repeat(np.arange(self.n_pairs), np.diff(self.next_start))

    @cached_property
    def state_index(self) -> dict[str, int]:
        return {name: s for s, name in enumerate(self.states)}

    @cached_property
    def pair_index(self) -> dict[tuple[str, str], int]:
        """(state name, action name) -> pair."""
        return {self.pair_name(i): i for i in range(self.n_pairs)}

    @property
    def is_deterministic(self) -> bool:
        """Does every pair have a single successor?"""
        return len(self.next_state) == self.n_pairs

    def pair_name(self, pair: Index) -> tuple[str, str]:
        return self.states[self.pair_state[pair]], self.actions[self.pair_action[pair]]

    def numbers_in(self, other: SSP) -> Int[np.ndarray, "pairs"]:
        """The number each pair has in a problem that has the same pairs in another order."""
        return np.array([other.pair_index[self.pair_name(i)] for i in range(self.n_pairs)], dtype=np.int64)

    def state_name(self, state: Index) -> str:
        """Name of a state, or of the first goal for the goal's index."""
        return self.states[int(state)] if int(state) < self.n_states else self.goals[0]

    def expected_next(self, value: Float[np.ndarray, "*batch states"]) -> Float[np.ndarray, "*batch pairs"]:
        """Expected value of the next state after each pair, sum of p(s') value(s'); the goal's is 0."""
        with_goal = np.concatenate([value, np.zeros((*value.shape[:-1], 1))], axis=-1)
        return np.add.reduceat(self.next_prob * with_goal.take(self.next_state, axis=-1), self.next_start[:-1], axis=-1)

    def backup(self, value: Float[np.ndarray, "states"]) -> Float[np.ndarray, "pairs"]:
        """Action values one step ahead of state values: reward + sum of p(s') value(s')."""
        return np.asarray(self.reward + self.expected_next(value), dtype=np.float64)

    def best(self, q: Float[np.ndarray, "*batch pairs"]) -> Float[np.ndarray, "*batch states"]:
        """The largest action value of each state."""
        return np.maximum.reduceat(q, self.pair_start[:-1], axis=-1)

    def greedy(self, q: Float[np.ndarray, "pairs"]) -> Int[np.ndarray, "states"]:
        """The first best pair of each state."""
        pairs = np.arange(self.n_pairs)
        best = np.where(q == self.best(q)[self.pair_state], pairs, self.n_pairs)
        return np.minimum.reduceat(best, self.pair_start[:-1])

    def by_name(self, values: Iterable[T]) -> dict[str, dict[str, T]]:
        """One value per pair as a table: state name -> action name -> value."""
        table: dict[str, dict[str, T]] = {state: {} for state in self.states}
        for i, value in enumerate(values):
            state, action = self.pair_name(i)
            table[state][action] = value
        return table

    def describe(self) -> Description:
        """The problem as plain arrays; `assemble` turns them back into an equal problem."""
        start = np.flatnonzero(self.initial)
        return Description(
            state_names=(*self.states, *self.goals),
            action_names=self.actions,
            goals=self.n_states + np.arange(len(self.goals)),
            initial_state=start,
            initial_prob=self.initial[start],
            pair_state=self.pair_state,
            pair_action=self.pair_action,
            reward=self.reward,
            next_start=self.next_start,
            next_state=self.next_state,
            next_prob=self.next_prob,
            reward_sd=self.reward_sd,
            name=self.name,
            metadata=self.metadata,
        )

    def discounted(self, discount: float) -> SSP:
        """The SSP equivalent to the discounted problem: each move ends at the goal with probability 1 - discount.

        Args:
            discount: in (0, 1]; 1 changes nothing.
        """
        if not 0.0 < discount <= 1.0:
            raise BadInputError(f"discount is {discount}: it must lie in (0, 1]")
        if discount == 1.0:
            return self
        ends = self.next_start[1:]
        plain = replace(
            self.describe(),
            next_start=self.next_start + np.arange(self.n_pairs + 1),
            next_state=np.insert(self.next_state, ends, self.n_states),
            next_prob=np.insert(self.next_prob * discount, ends, 1.0 - discount),
        )
        return assemble(plain)

    def subproblem(self, pairs: Bool[np.ndarray, "pairs"], start: int | None = None) -> SSP:
        """The problem with only some pairs, none of which may lead to a state that loses all of its own.

        Args:
            pairs: the pairs to keep; states keep their order.
            start: where episodes start; by default as before.
        """
        own = np.zeros(self.n_states + 1, dtype=bool)
        own[self.pair_state[pairs]] = own[-1] = True
        number = np.cumsum(own) - 1
        length = np.diff(self.next_start)
        entries = np.repeat(pairs, length)
        assert own[self.next_state[entries]].all(), "a pair that is kept leads to a state that is not"
        actions, pair_action = _by_first_use(self.pair_action[pairs])
        return SSP(
            name=self.name,
            states=tuple(self.states[s] for s in np.flatnonzero(own[:-1])),
            goals=self.goals,
            actions=tuple(self.actions[a] for a in actions),
            initial=(self.initial if start is None else np.arange(self.n_states) == start)[own[:-1]].astype(np.float64),
            pair_state=number[self.pair_state[pairs]],
            pair_action=pair_action,
            reward=self.reward[pairs],
            reward_sd=self.reward_sd[pairs],
            next_start=np.append(0, np.cumsum(length[pairs])),
            next_state=number[self.next_state[entries]],
            next_prob=self.next_prob[entries],
            metadata=self.metadata,
        )


def row_entries(
    start: Int[np.ndarray, "rows_plus_1"], rows: Int[np.ndarray, "n"]
) -> tuple[Int[np.ndarray, "entries"], Int[np.ndarray, "n_plus_1"]]:
    """Positions of the entries of some compressed rows, row after row, and where those of each begin and the last end.

    >>> row_entries(np.array([0, 2, 3, 5]), np.array([2, 0]))
    (array([3, 4, 0, 1]), array([0, 2, 4]))
    """
    length = np.diff(start)[rows]
    begin = np.append(0, np.cumsum(length))
    return np.arange(begin[-1]) - np.repeat(begin[:-1] - start[:-1][rows], length), begin


def assemble(plain: Description) -> SSP:
    """Check a description and build the problem: goals lumped, pairs and successors in canonical order.

    States are numbered by their first pair, actions by their first use, pairs keep their order within a
    state, equal successors are merged, successors of probability 0 dropped, and rows that miss 1 by
    more than rounding (but by no more than 1e-9) are divided by their sum. Names that no pair, goal or
    start mentions are left out.

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

    is_goal = np.zeros(len(names), dtype=bool)
    is_goal[goals] = True
    has_pair = np.zeros(len(names), dtype=bool)
    has_pair[pair_state] = True

    def row(entry: int) -> int:
        return int(np.searchsorted(next_start, entry, side="right")) - 1

    _refuse(is_goal[pair_state], lambda i: f"{label(i)}: its state is a goal: a goal has no actions, remove the pair")
    repeated = _repeats(pair_state.astype(np.int64) * max(1, len(action_names)) + pair_action)
    _refuse(repeated, lambda i: f"{label(i)}: occurs twice: keep one of them")
    _refuse(~np.isfinite(reward), lambda i: f"{label(i)}: reward is {reward[i]}: give a finite number")
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
            "give it a pair or list it under goals"
        ),
    )
    total = csr_array((next_prob, next_state, next_start), shape=(n, len(names))) @ np.ones(len(names))
    _refuse(
        np.abs(total - 1.0) > PROBABILITY_TOLERANCE,
        lambda i: f"{label(i)}: probabilities sum to {total[i]:.12g}: make them sum to 1",
    )
    _check_initial(names, initial_state, initial_prob, has_pair, is_goal)

    first_pair = np.full(len(names), n)
    np.minimum.at(first_pair, pair_state, np.arange(n))
    order_of_states = np.argsort(first_pair, kind="stable")[: int(has_pair.sum())]
    n_states = len(order_of_states)
    new_state = np.full(len(names), n_states, dtype=np.int32)
    new_state[order_of_states] = np.arange(n_states)

    order = np.argsort(new_state[pair_state], kind="stable")
    actions, new_action = _by_first_use(pair_action[order])
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
    )


def _by_first_use(pair_action: Int[np.ndarray, "pairs"]) -> tuple[Int[np.ndarray, "used"], Int[np.ndarray, "pairs"]]:
    """The actions in use in the order of their first use, and each pair's among them."""
    used, first_use, code = np.unique(pair_action, return_index=True, return_inverse=True)
    by_use = np.argsort(first_use)
    return used[by_use], np.argsort(by_use)[code]


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
    law = csr_array((prob, state, start))[order]
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
) -> None:
    _refuse(
        ~np.isfinite(prob) | (prob < 0),
        lambda k: f"initial: probability of {quote(names[state[k]])} is {prob[k]}: give a number from 0 to 1",
    )
    _refuse(is_goal[state], lambda k: f"initial: {quote(names[state[k]])} is a goal: start where there is a pair")
    _refuse(
        ~has_pair[state], lambda k: f"initial: unknown state {quote(names[state[k]])}: name a state that has a pair"
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
