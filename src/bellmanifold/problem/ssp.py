"""The stochastic shortest path problem: finitely many states, pairs and successors, and one goal.

A *pair* is a state together with one of its actions. Pair i pays an expected reward ``reward[i]`` and
moves to state j with probability p(j | i). The goal is absorbing and pays nothing; several goals are
lumped into one. An action-value function is a vector with one entry per pair, so most arrays in the
library are indexed by pairs.

Storage is sparse and flat: pairs are sorted by state, and the successors of all pairs are stored in
compressed rows. With S states, d pairs and k successors in total, memory is O(S + d + k),
whatever the number of actions or successors of a single state or pair. The goal is the explicit
successor number S: it is never inferred from missing probability, because ten times 0.1 falls short
of 1 by 1e-16, and that is not a way to the goal.

A pair may be *open*: its reward is unknown (NaN), its transition law is unknown (an empty row), or both.
Prior beliefs about action values may be stated with the problem (`StatedPrior`). Code that needs a whole problem calls
`require_closed`; code that never uses the open pairs takes `SSP.closed_at_goal`.

Every problem is built by `bellmanifold.problem.builder`: file readers, environments and adapters pass it a
`Description` (plain arrays), which it checks, lumps, merges and orders, so that two descriptions of one problem give
equal objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from bellmanifold._util.display import Card, Columns, Shown, as_frame, picture
from bellmanifold.errors import BadInputError, count_of, quote, quote_pair, require, require_kind, require_numbers
from bellmanifold.problem.compressed_rows import Rows, Some, by_first_use
from bellmanifold.problem.compressed_rows import row_entries as row_entries
from bellmanifold.problem.costs import cost_unit, in_terms
from bellmanifold.problem.description import Description as Description
from bellmanifold.problem.description import Dropped as Dropped
from bellmanifold.problem.description import StatedPrior as StatedPrior

if TYPE_CHECKING:
    import networkx
    import pandas

    from bellmanifold.io.matrices import Arrays

T = TypeVar("T")
Index: TypeAlias = SupportsIndex
"""An integer that can index an array: Python's or NumPy's."""

ARRAYS = ("initial", "pair_state", "pair_action", "reward", "reward_sd", "next_start", "next_state", "next_prob")


@dataclass(frozen=True, eq=False)
class SSP(Shown):
    """A stochastic shortest path problem. Build one with `assemble`, a reader or `bellmanifold.envs`.

    Attributes:
        name: a label for display.
        states: names of the non-goal states; S of them.
        goals: names of the lumped goal states, at least one.
        actions: the distinct action names.
        initial: probability that an episode starts in each state, shape (S,).
        pair_state: the state of each pair, non-decreasing, shape (pairs,).
        pair_action: index into `actions`, shape (pairs,).
        reward: expected reward of each pair, NaN where it is unknown, shape (pairs,).
        reward_sd: standard deviation of the Gaussian noise of simulated rewards, shape (pairs,).
        next_start: the successors of pair i are next_start[i]:next_start[i + 1], an empty range if they are unknown,
            shape (pairs + 1,).
        next_state: successor states; S is the goal; ascending within a pair, shape (successors,).
        next_prob: their probabilities, all positive, shape (successors,).
        metadata: the content of "metadata" in the file.
        prior: stated priors over action values; None if there are none.
        open_discount: the problem's discount, for open laws: a law p that is learnt counts as open_discount * p, and
            the rest leads to the goal. Rows that are given already include the discount.
        dropped: the dead ends that were left out, with their pairs; no part of the problem (`==` ignores it).
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
    prior: StatedPrior | None = None
    open_discount: float = 1.0
    dropped: Dropped = field(default_factory=Dropped)

    def __post_init__(self) -> None:
        """Make arrays read-only: charts are cached by identity and would not notice a change."""
        for name in ARRAYS:
            view = getattr(self, name).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)
        if not self.open_law.any():
            object.__setattr__(self, "open_discount", 1.0)

    def __repr__(self) -> str:
        unknown = int((self.open_reward | self.open_law).sum())
        size = f"{count_of(self.n_states, 'state')}, {count_of(self.n_pairs, 'pair')}" + (
            f", {unknown} of them open" if unknown else ""
        )
        without = f", without {self.dropped.size}" if self.dropped else ""
        return f"SSP({quote(self.name)}, {size}{without})"

    def card(self) -> Card:
        """The card for display in a notebook: starts and goals, the table and, for small problems, a picture."""
        starts = [f"{quote(self.states[s])} with {self.initial[s]:.3g}" for s in np.flatnonzero(self.initial)[:3]]
        more = ", ..." if int((self.initial > 0).sum()) > 3 else ""
        start = f"starts in {', '.join(starts)}{more}; goals: {', '.join(map(quote, self.goals[:3]))}"
        left_out = [f"left out: {self.dropped}"] if self.dropped else []
        return Card(repr(self), [start, *left_out], (), self.shown_columns, lambda: picture("problem", self))

    def shown_columns(self) -> Columns:
        """The columns for people: with costs where the problem was given in costs."""
        return in_terms(self.columns(), cost_unit(self))

    def columns(self) -> Columns:
        """Columns of a table with a row per pair; `next` is {state: probability}, or None where it is unknown."""
        rows = [slice(a, b) for a, b in pairwise(self.next_start)]
        laws = [zip(map(self.state_name, self.next_state[r]), self.next_prob[r].tolist(), strict=True) for r in rows]
        return {
            **self.name_columns(range(self.n_pairs)),
            "reward": self.reward.tolist(),
            "reward_sd": self.reward_sd.tolist(),
            "next": [dict(law) or None for law in laws],
        }

    def name_columns(self, pairs: Iterable[Index]) -> dict[str, list[Any]]:
        """The states and actions of pairs, by name, as the first columns of a table."""
        names = [self.pair_name(pair) for pair in pairs]
        return {"state": [state for state, _ in names], "action": [action for _, action in names]}

    def to_frame(self) -> pandas.DataFrame:
        """A DataFrame with a row per pair: state, action, reward and successors."""
        return as_frame(self.columns())

    def to_networkx(self) -> networkx.MultiDiGraph:
        """A MultiDiGraph with an edge for each pair and each of its successors, whose key is the action.

        Edges have the attributes `name` and `cost` (unless unknown), `sd` if it is noisy and `probability` if the pair
        may lead to several states, nodes `x` and `y` if they have positions; the graph knows its `goal` and `start`.
        `bm.from_networkx(graph, cost="cost")` makes it a problem again.

        Raises:
            UnsupportedError: if NetworkX is not installed.
        """
        return import_module("bellmanifold.io.networks").to_networkx(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SSP):
            return NotImplemented
        labels = ("name", "states", "goals", "actions", "metadata", "prior", "open_discount")
        return all(getattr(self, f) == getattr(other, f) for f in labels) and all(
            np.array_equal(getattr(self, f), getattr(other, f), equal_nan=True) for f in ARRAYS
        )

    __hash__ = object.__hash__

    @property
    def n_states(self) -> int:
        """Number of non-goal states; also the index of the goal among successors."""
        return len(self.states)

    @property
    def n_pairs(self) -> int:
        """Number of pairs."""
        return len(self.pair_state)

    @cached_property
    def pair_start(self) -> Int[np.ndarray, "states_plus_1"]:
        """The pairs of state s are pair_start[s]:pair_start[s + 1]."""
        return np.searchsorted(self.pair_state, np.arange(self.n_states + 1))

    @cached_property
    def next_pair(self) -> Int[np.ndarray, "successors"]:
        """The pair that each successor entry belongs to."""
        return np.repeat(np.arange(self.n_pairs), np.diff(self.next_start))

    @cached_property
    def state_index(self) -> dict[str, int]:
        """Name of a non-goal state -> its index."""
        return {name: s for s, name in enumerate(self.states)}

    @cached_property
    def pair_index(self) -> dict[tuple[str, str], int]:
        """(state name, action name) -> index of the pair."""
        return {self.pair_name(i): i for i in range(self.n_pairs)}

    @cached_property
    def open_reward(self) -> Bool[np.ndarray, "pairs"]:
        """Mask of pairs with an unknown reward."""
        return np.isnan(self.reward)

    @cached_property
    def open_law(self) -> Bool[np.ndarray, "pairs"]:
        """Mask of pairs with an unknown transition law."""
        return np.asarray(np.diff(self.next_start) == 0)

    @cached_property
    def is_open(self) -> bool:
        """Whether the reward or the law of any pair is unknown."""
        return bool((self.open_reward | self.open_law).any())

    @cached_property
    def is_deterministic(self) -> bool:
        """Whether every pair is known to have a single successor; False if any law is open."""
        return bool((np.diff(self.next_start) == 1).all())

    def pair_name(self, pair: Index) -> tuple[str, str]:
        """The names of a pair's state and action."""
        return self.states[self.pair_state[pair]], self.actions[self.pair_action[pair]]

    def numbers_in(self, other: SSP) -> Int[np.ndarray, "pairs"]:
        """The index of each pair in a problem that has the same pairs in another order."""
        return np.array([other.pair_index[self.pair_name(i)] for i in range(self.n_pairs)], dtype=np.int64)

    def state_name(self, state: Index) -> str:
        """Name of a state; that of the first goal for the goal's index."""
        return self.states[int(state)] if int(state) < self.n_states else self.goals[0]

    def expected_next(self, value: Float[np.ndarray, "*batch states"]) -> Float[np.ndarray, "*batch pairs"]:
        """Expected value of the next state of each pair, sum of p(s') value(s'), with value 0 for the goal.

        NaN where the pair's law is open.
        """
        with_goal = np.concatenate([value, np.zeros((*value.shape[:-1], 1))], axis=-1)
        return self.over_successors(np.add, self.next_prob * with_goal.take(self.next_state, axis=-1), np.nan)

    def over_successors(
        self, combine: np.ufunc, entries: Shaped[np.ndarray, "*batch successors"], unknown: Any
    ) -> Shaped[np.ndarray, "*batch pairs"]:
        """Reduce successor entries to one per pair (by addition, maximum, ...); `unknown` for open laws.

        `reduceat` alone would return the next pair's first entry for an empty row.
        """
        if not self.is_open:
            return combine.reduceat(entries, self.next_start[:-1], axis=-1)
        result, given = np.full((*entries.shape[:-1], self.n_pairs), unknown), ~self.open_law
        if given.any():
            result[..., given] = combine.reduceat(entries, self.next_start[:-1][given], axis=-1)
        return result

    def backup(self, value: Float[np.ndarray, "states"]) -> Float[np.ndarray, "pairs"]:
        """Action values one step ahead of state values: reward + sum of p(s') value(s')."""
        return np.asarray(self.reward + self.expected_next(value), dtype=np.float64)

    def best(self, q: Shaped[np.ndarray, "*batch pairs"]) -> Shaped[np.ndarray, "*batch states"]:
        """The largest action value of each state."""
        return np.maximum.reduceat(q, self.pair_start[:-1], axis=-1)

    def is_best(self, q: Shaped[np.ndarray, "*batch pairs"]) -> Bool[np.ndarray, "*batch pairs"]:
        """Mask of pairs that attain the largest action value of their state."""
        return np.asarray(q == self.best(q)[..., self.pair_state])

    def greedy(self, q: Shaped[np.ndarray, "*batch pairs"]) -> Int[np.ndarray, "*batch states"]:
        """The first best pair of each state."""
        pairs = np.where(self.is_best(q), np.arange(self.n_pairs), self.n_pairs)
        return np.minimum.reduceat(pairs, self.pair_start[:-1], axis=-1)

    def by_name(self, values: Iterable[T]) -> dict[str, dict[str, T]]:
        """One value per pair as nested dictionaries: state name -> action name -> value."""
        table: dict[str, dict[str, T]] = {state: {} for state in self.states}
        for i, value in enumerate(values):
            state, action = self.pair_name(i)
            table[state][action] = value
        return table

    def describe(self) -> Description:
        """The problem as plain arrays; `assemble` turns them back into an equal problem."""
        start = np.flatnonzero(self.initial)
        shared = (*ARRAYS[1:], "name", "metadata", "prior", "open_discount")
        return Description(
            state_names=(*self.states, *self.goals),
            action_names=self.actions,
            goals=self.n_states + np.arange(len(self.goals)),
            initial_state=start,
            initial_prob=self.initial[start],
            may_be_open=self.is_open,
            **{name: getattr(self, name) for name in shared},
        )

    def to_arrays(self, discount: float = 1.0) -> Arrays:
        """The problem as matrices, one row per pair, as QuantEcon takes them; `bm.from_arrays` turns them back.

        Args:
            discount: take this discount out of the matrices: the problem has to be a discounted one, whose moves all
                end with probability 1 - discount at least. Solvers that know no goals need it.
        """
        found: Arrays = import_module("bellmanifold.io.matrices").to_arrays(self, discount)
        return found

    def with_rows(
        self,
        pairs: Int[np.ndarray, "some"],
        start: Int[np.ndarray, "some_plus_1"],
        state: Int[np.ndarray, "entries"],
        prob: Float[np.ndarray, "entries"],
    ) -> SSP:
        """The problem with the laws of some pairs, in ascending order, replaced.

        The new laws are compressed rows like `next_start`, `next_state` and `next_prob`; an empty row is open. Laws of
        pairs that were open are discounted by `open_discount`; others are used as they are.
        """
        rows = self._rows.replaced(pairs, Rows(start, state, prob))
        if self.open_discount < 1.0:
            given = np.isin(np.arange(self.n_pairs), pairs[np.diff(start) > 0])
            rows = rows.discounted(self.open_law & given, self.open_discount, self.n_states)
        return self._with(rows)

    def opened(self) -> SSP:
        """The same states and actions with every reward and every law open."""
        return self._with(Rows.empty(self.n_pairs), reward=np.full(self.n_pairs, np.nan))

    def closed_at_goal(self) -> SSP:
        """The problem with open laws leading to the goal and open rewards 0, for code that never uses open pairs."""
        if not self.is_open:
            return self
        unknown = np.flatnonzero(self.open_law)
        once = np.ones(len(unknown))
        closed = self.with_rows(unknown, np.arange(len(unknown) + 1), np.full(len(unknown), self.n_states), once)
        return replace(closed, reward=np.where(self.open_reward, 0.0, self.reward))

    def discounted(self, discount: float) -> SSP:
        """The SSP equivalent to the discounted problem: each move ends at the goal with probability 1 - discount."""
        require_numbers(discount=discount)
        require(0.0 < discount <= 1.0, f"discount is {discount}: it must lie in (0, 1]")
        if discount == 1.0:
            return self
        rows = self._rows.discounted(~self.open_law, discount, self.n_states)
        return self._with(rows, open_discount=self.open_discount * discount)

    @property
    def _rows(self) -> Rows:
        return Rows(self.next_start, self.next_state, self.next_prob)

    def _with(self, rows: Rows, **changes: Any) -> SSP:
        return replace(self, next_start=rows.start, next_state=rows.state, next_prob=rows.prob, **changes)

    def subproblem(self, pairs: Some, start: int | None = None) -> SSP:
        """The problem restricted to some pairs, none of which may lead to a state that has no pair left.

        Args:
            pairs: the pairs to keep, as a mask or as indices ordered by state.
            start: the state where episodes start; by default the initial distribution is kept.
        """
        own = np.zeros(self.n_states + 1, dtype=bool)
        own[self.pair_state[pairs]] = own[-1] = True
        number, rows = np.cumsum(own) - 1, self._rows.kept(pairs)
        assert own[rows.state].all(), "a pair that is kept leads to a state that is not"
        actions, pair_action = by_first_use(self.pair_action[pairs])
        return replace(
            self,
            states=tuple(self.states[s] for s in np.flatnonzero(own[:-1])),
            actions=tuple(self.actions[a] for a in actions),
            initial=(self.initial if start is None else np.arange(self.n_states) == start)[own[:-1]].astype(np.float64),
            pair_state=number[self.pair_state[pairs]],
            pair_action=pair_action,
            reward=self.reward[pairs],
            reward_sd=self.reward_sd[pairs],
            next_start=rows.start,
            next_state=number[rows.state],
            next_prob=rows.prob,
            prior=None if self.prior is None else self.prior.of_pairs(pairs),
            metadata=_of_pairs(self.metadata, np.arange(self.n_pairs)[pairs]),
        )


def _of_pairs(metadata: Mapping[str, Any], pairs: Int[np.ndarray, "some"]) -> Mapping[str, Any]:
    """The metadata of a part of a problem: of the lines of a table of roads, those of its pairs."""
    roads = metadata.get("roads")
    if not isinstance(roads, Mapping):
        return metadata
    lines = roads.get("lines")
    if not isinstance(lines, list) or len(lines) <= int(pairs.max(initial=-1)):
        return metadata
    return {**metadata, "roads": {**roads, "lines": [lines[pair] for pair in pairs]}}


def require_problem(model: object) -> None:
    """Raise unless `model` is an SSP."""
    remedy = "give a problem (SSP), from bm.load_model, bm.envs or bm.from_gymnasium"
    require_kind(model, SSP, "the model", remedy)


def require_closed(model: SSP, what: str) -> None:
    """Raise if the problem has open pairs, naming some; `what`, for instance "solve", names the caller."""
    require_problem(model)
    if not model.is_open:
        return
    unknown, shown = np.flatnonzero(model.open_reward | model.open_law), []
    for i in unknown[:3]:
        lacks = [name for name, missing in (("reward", model.open_reward), ("next", model.open_law)) if missing[i]]
        shown.append(f"{quote_pair(*model.pair_name(i))} lacks {' and '.join(lacks)}")
    more = f" and {count_of(len(unknown) - len(shown), 'more pair')}" if len(unknown) > len(shown) else ""
    raise BadInputError(
        f"{what} needs the whole problem, but pair {', '.join(shown)}{more}: give what they lack in the problem file, "
        "or use `posterior` or `advise`, which take open problems"
    )
