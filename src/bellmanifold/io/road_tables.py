"""A table of roads as a problem: `bm.from_edges`, and `roads.csv?goal=depot&start=J1` where a MODEL is asked for.

Each row is a one-way road, or a two-way one if the column `oneway` says no or the option `twoway` says that all are.
Its columns are `from` and `to`, and any of `name`, `cost`, `sd`, `probability`, `oneway` and the coordinates `from_x`,
`from_y`, `to_x`, `to_y`, which may also come from a second table with a row per junction: `node`, `x`, `y`. Other names
of columns are understood (`bellmanifold.io.road_columns`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool

from bellmanifold._util.stderr import remark
from bellmanifold.errors import (
    BadInputError,
    first_repeated,
    kind_of_value,
    quote,
    require,
    require_flags,
    require_kind,
)
from bellmanifold.io.csv_data import looks_like_table
from bellmanifold.io.explicit import read_query
from bellmanifold.io.files import label, locate_errors, read_bytes
from bellmanifold.io.road_columns import NODES, ROADS, Chosen, choose_columns, doubtful, require_columns
from bellmanifold.io.road_lines import Lines
from bellmanifold.io.road_problem import Names, problem_of_roads
from bellmanifold.io.tables import Table, read_table, table_of
from bellmanifold.problem.ssp import SSP

YES = ("yes", "true", "1", "y", "t", "oneway")
NO = ("no", "false", "0", "n", "f")
BACKWARDS = ("-1", "reverse")
"""How OpenStreetMap marks a one-way road that was drawn against its direction."""
FURTHEST = 1e12
"""Coordinates are smaller than this."""
FLAGS, OTHERS = ("twoway", "allow_gains"), ("goal", "start", "nodes", "unit")
LONGEST_UNIT = 40


def from_edges(
    table: Any,
    goal: Names,
    start: Names = None,
    *,
    nodes: Any = None,
    columns: Mapping[str, str] | None = None,
    twoway: bool = False,
    allow_gains: bool = False,
    unit: str | None = None,
) -> SSP:
    """The problem of reaching a goal by the roads of a table.

    A road's cost is a negative reward, and a road without a cost has an open reward. An action is named after the road,
    or after the junction it leads to. Roads out of the goal, and junctions without a way to it, are left out, which a
    line on stderr says. With a column `probability`, rows of one `name` that share their `from` are one road, which may
    lead to several places.

    Args:
        table: a DataFrame, a dictionary of columns, a list of dictionaries or of tuples (from, to, cost), or the path
            of a CSV file. Columns: `from` and `to`, and any of `name`, `cost`, `sd` (of the cost's noise),
            `probability`, `oneway`, `from_x`, `from_y`, `to_x`, `to_y`; common other names are understood.
        goal: the junction where trips end, or a list of several.
        start: the junction where they begin, a list of several, {name: weight}, or "all" for every junction alike.
        nodes: a second table, with the columns `node`, `x` and `y`, for the positions of junctions.
        columns: which column is what, where names are not understood: {"cost": "t_peak"}; "" means none.
        twoway: every road leads both ways, except where `oneway` says yes.
        allow_gains: costs may be negative.
        unit: the unit of costs; by default as the name of their column says, such as `minutes`.

    >>> table = [{"from": "A", "to": "B", "cost": 2.0}, {"from": "B", "to": "C", "cost": 1.5}]
    >>> model = from_edges(table, goal="C", start="A")
    >>> model, model.reward
    (SSP("roads", 2 states, 2 pairs), array([-2. , -1.5]))
    """
    require_flags(twoway=twoway, allow_gains=allow_gains)
    require_kind(columns or {}, Mapping, "columns", 'give {"cost": "NAME OF ITS COLUMN"}')
    _require_parts(columns or {}, ROADS)
    title, place = "roads", "the table of roads"
    if isinstance(table, (str, os.PathLike)):
        place = label(table)
        title = os.path.splitext(os.path.basename(place))[0]
    with locate_errors(place):
        own = _table(table)
        model, said = _problem(own, goal, start, nodes, columns or {}, twoway, allow_gains, unit, title)
    for line in said:
        remark(f"{place}: {line}")
    return model


def read_roads(path: str, query: str | None) -> SSP:
    """The problem in the table at a path, with the options after the `?` of a reference; None if there are none."""
    with locate_errors(label(path)):
        given = read_query(query or "")
        takes = (*OTHERS, *FLAGS, *ROADS)
        for key in given:
            require(key in takes, f"unknown parameter {quote(key)}: a table of roads takes {', '.join(takes)}")
        if "goal" not in given:
            if looks_like_table(read_bytes(path)):
                raise BadInputError(
                    "a table of observations is not a problem file: give the problem first, then the data"
                )
            file = label(os.path.basename(path))
            raise BadInputError(f'a table of roads needs a goal: write "{file}?goal=NAME&start=NAME"')
        flags = {key: _flag(key, given[key]) for key in FLAGS if key in given}
    nodes, columns = given.get("nodes"), {key: value for key, value in given.items() if key in ROADS}
    if nodes is not None:
        nodes = os.path.join(os.path.dirname(path), nodes)
    return from_edges(
        path, given["goal"], given.get("start"), nodes=nodes, columns=columns, unit=given.get("unit"), **flags
    )


def _problem(
    table: Table,
    goal: Names,
    start: Names,
    nodes: Any,
    columns: Mapping[str, str],
    twoway: bool,
    gains: bool,
    unit: str | None,
    title: str,
) -> tuple[SSP, list[str]]:
    """The problem, and lines about what is not used."""
    names = list(table.columns)
    require(names, "the table has no columns: give at least one row with from and to")
    chosen = choose_columns(names, ROADS, columns)
    require_columns(chosen, names, ("from", "to"))
    require(len(table) > 0, "the table has no roads: give at least one line below the header")
    if unit is not None:
        require_kind(unit, str, "unit", "give a word, such as minutes")
        require(len(unit) <= LONGEST_UNIT and unit.isprintable(), "unit: give a short word, such as minutes")
    lines = _lines(table, chosen, twoway, {} if nodes is None else _positions_of(nodes))
    model, said = problem_of_roads(lines, goal, start, title, chosen.unit if unit is None else unit, gains)
    return model, [line for line in (doubtful(chosen, ROADS), said) if line]


def _lines(table: Table, chosen: Chosen, twoway: bool, places: Mapping[str, list[float]]) -> Lines:
    """The rows of a table, read and checked one by one."""
    column = chosen.column
    ends = {part: table.texts(column[part]) for part in ("from", "to")}
    for part, names in ends.items():
        if "" in names:
            k = names.index("")
            raise BadInputError(f"{table.where(k, column[part])}: is empty: name a junction, or remove the row")
    numbers = {part: table.numbers(column.get(part)) for part in ("cost", "sd", "probability")}
    positions = dict(places)
    for part, names in ends.items():
        positions |= _coordinates(table, [column.get(f"{part}_{axis}") for axis in "xy"], names, part)
    return Lines(
        tail=ends["from"],
        head=ends["to"],
        name=table.texts(column.get("name")),
        cost=numbers["cost"],
        sd=np.nan_to_num(numbers["sd"]),
        probability=np.where(np.isnan(numbers["probability"]), 1.0, numbers["probability"]),
        both_ways=~_one_way(table, column.get("oneway"), not twoway),
        shares="probability" in column,
        repeats=False,
        where=table.where,
        positions=positions,
    )


def _one_way(table: Table, column: str | None, default: bool) -> Bool[np.ndarray, "rows"]:
    """Which roads are one-way."""
    found = np.full(len(table), default)
    for k, said in enumerate(table.texts(column)):
        if word := said.casefold():
            if word not in YES + NO:
                remedy = "write yes, and swap its ends" if word in BACKWARDS else "write yes or no"
                raise BadInputError(f"{table.where(k, column or '')}: {quote(said)}: {remedy}")
            found[k] = word in YES
    return found


def _coordinates(table: Table, columns: list[str | None], names: list[str], part: str) -> dict[str, list[float]]:
    """The positions that two columns state for the junctions named in a third."""
    if all(column is None for column in columns):
        return {}
    require(None not in columns, f"positions need two columns, {part}_x and {part}_y: add the other one")
    values = [table.numbers(column) for column in columns]
    for value, column in zip(values, columns, strict=True):
        far = np.abs(np.nan_to_num(value)) >= FURTHEST
        require(not far.any(), f"{table.where(int(np.argmax(far)), column or '')}: coordinates are below {FURTHEST:g}")
    given = ~np.isnan(values[0]) & ~np.isnan(values[1])
    return {names[k]: [float(values[0][k]), float(values[1][k])] for k in np.flatnonzero(given).tolist()}


def _positions_of(nodes: Any) -> dict[str, list[float]]:
    """The positions in a second table, with a row per junction."""
    place = label(nodes) if isinstance(nodes, (str, os.PathLike)) else "nodes"
    with locate_errors(place):
        table = _table(nodes)
        chosen = choose_columns(list(table.columns), NODES)
        require_columns(chosen, list(table.columns), NODES)
        names = table.texts(chosen.column["node"])
        if (twice := first_repeated([name for name in names if name])) is not None:
            again = [k for k, name in enumerate(names) if name == twice][1]
            raise BadInputError(
                f"{table.where(again, chosen.column['node'])}: {quote(twice)} occurs twice: keep one of them"
            )
        return _coordinates(table, [chosen.column[axis] for axis in "xy"], names, "node")


def _table(given: Any) -> Table:
    return read_table(read_bytes(given)) if isinstance(given, (str, os.PathLike)) else table_of(given)


def _require_parts(columns: Mapping[str, str], parts: tuple[str, ...]) -> None:
    for part, name in columns.items():
        require(part in parts, f"columns: {quote(part)}: they are {', '.join(parts)}")
        require(isinstance(name, str), f"columns: {part} is {kind_of_value(name)}: give the name of a column")


def _flag(key: str, value: str) -> bool:
    require(value in ("true", "false"), f"{key} is {quote(value)}: write true or false")
    return value == "true"
