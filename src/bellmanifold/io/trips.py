"""A table of trips as observations: which road was taken, and what it cost.

A row names its road as a table of roads does: by `from` and `to`, by its `name`, or by both if several roads lead from
one junction to the other; or it names a pair by `state` and `action`. It says what the road took in `cost`, positive
and in the problem's unit, or in `reward`, and may have an `sd` of its own; an empty cell means the problem's own cost,
if that is known. Where a road may lead to several places, `to` or `next` says where it led.

A row that names a road is a trip: where it led is recorded, so that a cost with an `sd` does not count as a belief.
Rows about roads that were left out of the problem (out of a goal, or where none can be reached) are skipped, which a
line on stderr says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from bellmanifold._util.stderr import remark
from bellmanifold.errors import BadInputError, count_of, listed, quote, require, require_kind
from bellmanifold.io.road_answers import left_out, lines_of
from bellmanifold.io.road_columns import OTHER_NAMES, TRIPS, Chosen, choose_columns, doubtful, plain, unit_in
from bellmanifold.io.tables import Table, read_table, table_of
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.names import find_landing, find_pair, suggestion
from bellmanifold.problem.ssp import SSP, require_problem

PAIR = ("state", "action")
OWN_NAMES = ("id", "label")
"""Names of columns that in a table of trips are those of the trip, not of the road."""
NAMES = {
    **OTHER_NAMES,
    "name": tuple(name for name in OTHER_NAMES["name"] if name not in OWN_NAMES),
    **dict.fromkeys(PAIR, ()),
}
SHOWN, FEW = 5, 3


def from_frame(model: SSP, frame: Any, columns: Mapping[str, str] | None = None) -> Dataset:
    """See `Dataset.from_frame`."""
    require_problem(model)
    require_kind(columns or {}, Mapping, "columns", 'give {"cost": "NAME OF ITS COLUMN"}')
    for part in columns or {}:
        require(part in TRIPS, f"columns: {quote(part)}: they are {', '.join(TRIPS)}")
    return _from_table(table_of(frame, "the table of trips"), model, columns or {})


def from_trips(content: bytes, model: SSP) -> Dataset:
    """The observations in the bytes of a CSV file."""
    return _from_table(read_table(content), model, {})


def are_trips(names: Sequence[str]) -> bool:
    """Whether columns with these names are read here: roads, or pairs with costs; others are observations of pairs."""
    said = [plain(name) for name in names]
    if set(PAIR) & set(said):
        return set(PAIR) <= set(said) and "cost" in said
    of = {part for part in ("from", "to", "name") if not {part, *NAMES[part]}.isdisjoint(said)}
    return {"from", "to"} <= of or "name" in of


def _from_table(table: Table, model: SSP, told: Mapping[str, str]) -> Dataset:
    names = list(table.columns)
    chosen = choose_columns(names, TRIPS, {**_in_unit(model, names), **told}, NAMES)
    column = chosen.column
    named = set(PAIR) <= set(column) or "name" in column or {"from", "to"} <= set(column)
    require(named, 'columns "from" and "to", or "name", say which road a row is about: add them')
    sd = table.numbers(column.get("sd"))
    reward = _rewards(table, model, chosen)
    roads = _Roads(model, table, column)
    rows, pairs, landings = [], [], []
    for k, said in enumerate(zip(*(table.texts(column.get(part)) for part in _Roads.PARTS), strict=True)):
        found = roads.find(k, said, has_sd=not np.isnan(sd[k]))
        if found is not None:
            rows.append(k)
            pairs.append(found[0])
            landings.append(found[1])
    skipped = sorted(set(range(len(table))) - set(rows))
    for line in (doubtful(chosen, TRIPS), _skipped(table, skipped) if skipped else ""):
        if line:
            remark(f"the table of trips: {line}")
    pair, landing = np.array(pairs, dtype=np.int64), np.array(landings, dtype=np.int64)
    return Dataset(model, pair, reward[rows], sd[rows], landing, tuple(table.where(k) for k in rows))


def _skipped(table: Table, rows: Sequence[int]) -> str:
    return (
        f"{count_of(len(rows), 'row')} skipped ({listed([table.where(k) for k in rows], FEW)}): about roads that are "
        "left out of the problem, out of a goal or without a way to it"
    )


def _in_unit(model: SSP, names: Iterable[str]) -> dict[str, str]:
    """The column of costs, if none is called so and only one is in the problem's unit."""
    own = _unit_of(model)
    found = [name for name in names if own and unit_in(name) == own]
    called = any(plain(name) in ("cost", "costs") for name in names)
    return {"cost": found[0]} if len(found) == 1 and not called else {}


def _unit_of(model: SSP) -> str:
    costs = model.metadata.get("costs")
    return str(costs.get("unit") or "") if isinstance(costs, Mapping) else ""


def _rewards(table: Table, model: SSP, chosen: Chosen) -> Float[np.ndarray, "rows"]:
    """The reward of each row, NaN where it was not recorded."""
    cost, reward = (chosen.column.get(part) for part in ("cost", "reward"))
    if cost is None or reward is not None:
        require(
            cost is None,
            f"columns {quote(cost)} and {quote(reward)} say the same, a cost of 5 is a reward of -5: keep one",
        )
        return table.numbers(reward)
    own, said = _unit_of(model), chosen.unit
    require(
        not (own and said and own != said), f"column {quote(cost)}: the problem's costs are in {own}: convert to {own}"
    )
    found, costs = table.numbers(cost), model.metadata.get("costs")
    if (found < 0).any() and not (isinstance(costs, Mapping) and costs.get("gains")):
        k = int(np.argmax(found < 0))
        raise BadInputError(
            f"{table.where(k, cost)}: {found[k]:g} is negative, but costs are positive: correct the sign, or write "
            'what roads pay in a column "reward"'
        )
    return np.where(found == 0, 0.0, -found)


class _Roads:
    """The roads of a problem, found by the cells of a row."""

    PARTS = ("from", "to", "name", "next", *PAIR)

    def __init__(self, model: SSP, table: Table, column: Mapping[str, str]) -> None:
        self._model, self._table, self._column = model, table, column
        self._goals, self._gone = set(model.goals), left_out(model)
        self._known = {*model.states, *model.goals}

    def find(self, row: int, cells: Sequence[str], has_sd: bool) -> tuple[int, int] | None:
        """The pair of a row and where it led, -1 if that was not recorded; None if it is left out of the problem."""
        tail, head, name, led, state, action = cells
        where = self._table.where(row)
        if "state" in self._column:
            pair = find_pair(self._model, state, action, where)
            return pair, find_landing(self._model, led, where) if led else -1
        if {tail, head} & self._gone or tail in self._goals:
            return None
        for part, node in (("from", tail), ("to", head), ("next", led)):
            if node and node not in self._known:
                near = suggestion(node, (*self._model.states, *self._model.goals), "there are")
                raise BadInputError(f"{self._where(row, part)}: no junction is called {quote(node)}: {near}")
        pair = self._pair(row, tail, head, name)
        return pair, self._landing(row, pair, led or head, has_sd)

    def _pair(self, row: int, tail: str, head: str, name: str) -> int:
        """The only road that the cells can mean."""
        if tail and head:
            own = self._ways.get((tail, head), [])
            if not own:
                ends = [end for begin, end in self._ways if begin == tail]
                raise BadInputError(
                    f"{self._where(row, 'to')}: no road leads from {quote(tail)} to {quote(head)}: "
                    + suggestion(head, ends, f"from {quote(tail)} roads lead to")
                )
        else:
            require(name, f"{self._table.where(row)}: does not say which road: give from and to, or its name")
            own = [pair for pair in self._leaving(tail, name) if self._fits(pair, tail, head)]
        if name:
            own = self._called(row, own, tail, head, name)
        if len(own) > 1:
            which = [quote(self._action(pair)) + ("" if tail else f" from {quote(self._tail(pair))}") for pair in own]
            remedy = 'give its name in a column "name"' if tail else "give from and to"
            raise BadInputError(f"{self._table.where(row)}: several roads are meant, {listed(which, SHOWN)}: {remedy}")
        return own[0]

    def _called(self, row: int, pairs: list[int], tail: str, head: str, name: str) -> list[int]:
        """Those of some roads that have a name, as it is or completed; a single one without its own may have any."""
        found = [pair for pair in pairs if self._action(pair) == name and tail]  # elsewhere it may be completed
        found = found or [pair for pair in pairs if pair in self._bearers.get(name, {})]
        if not found and [self._action(pair) for pair in pairs] == [head]:
            return pairs
        if not found:
            place = f"from {quote(tail)} " if tail else ""
            actions = [self._action(pair) for pair in range(self._model.n_pairs) if self._fits(pair, tail, head)]
            near = suggestion(name, dict.fromkeys(actions), "roads are called")
            raise BadInputError(f"{self._where(row, 'name')}: {place}no road is called {quote(name)}: {near}")
        return found

    def _leaving(self, tail: str, name: str) -> Iterable[int]:
        """The roads out of a junction; those of a name if the junction is not told."""
        if not tail:
            return self._bearers.get(name, {})
        state = self._model.state_index[tail]
        return range(self._model.pair_start[state], self._model.pair_start[state + 1])

    def _fits(self, pair: int, tail: str, head: str) -> bool:
        """Whether a road may lead from one junction to another; an empty name may be any."""
        begin = self._tail(pair)
        return tail in ("", begin) and (not head or pair in self._ways.get((begin, head), []))

    def _tail(self, pair: int) -> str:
        return self._model.states[self._model.pair_state[pair]]

    def _action(self, pair: int) -> str:
        return self._model.actions[self._model.pair_action[pair]]

    def _landing(self, row: int, pair: int, led: str, has_sd: bool) -> int:
        model = self._model
        begin, end = model.next_start[pair : pair + 2]
        if led:
            return find_landing(model, led, self._table.where(row))
        if end == begin + 1:
            return int(model.next_state[begin])
        require(
            not has_sd,
            f"{self._table.where(row)}: the road may lead to several places: say where it led in a column "
            '"next", since a cost with an sd would count as a belief otherwise',
        )
        return -1

    @cached_property
    def _ways(self) -> dict[tuple[str, str], list[int]]:
        """The pairs that may lead from one junction to another."""
        found: dict[tuple[str, str], list[int]] = {}
        for line in lines_of(self._model, in_order=False):
            found.setdefault((self._tail(line.pair), line.to), []).append(line.pair)
        return found

    @cached_property
    def _bearers(self) -> dict[str, dict[int, None]]:
        """The pairs that a name may mean: it may have been completed by the head, and then by a number."""
        found: dict[str, dict[int, None]] = {}
        for (_, head), pairs in self._ways.items():
            for pair in pairs:
                action = self._action(pair)
                short = re.sub(r" \(\d+\)$", "", action)
                for name in {action, short, short.removesuffix(f" to {head}")}:
                    found.setdefault(name, {})[pair] = None
        return found

    def _where(self, row: int, part: str) -> str:
        return self._table.where(row, self._column.get(part, ""))
