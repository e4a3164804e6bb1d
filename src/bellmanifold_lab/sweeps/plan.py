"""The settings of a run, and plans, which are grids of settings.

A plan is a TOML file. Its keys `model`, `agent`, `epsilon`, `prior_scale`, `episodes`, `seeds` and the agents' further
options are each a value or a list, and the plan is their product:

    model = ["env:deep-sea?depth=5", "env:swirl"]
    agent = ["bayes-br", "manifold", "q-learning"]
    epsilon = [0.01, 0.1]
    seeds = [0, 1, 2]

    [[override]]
    match = {agent = "bayes-br", epsilon = 0.1}
    explore = "directed"

Missing keys have the defaults of the command `learn`; for the prior, that is the one stated by the problem, if any. An
override changes the runs that agree with its `match` (a key of `match` may list several values); overrides are applied
in order, each to the result of the previous ones.

Settings that an agent does not have are then dropped, and duplicate runs are removed: above, `manifold` and
`q-learning` have no epsilon, so each of them runs three times on each problem, not six. Noise options replace epsilon:
one table may not set both, and of two tables the later one wins.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bellmanifold._util.limits import RUNS
from bellmanifold.agents.environments import open_world
from bellmanifold.agents.registry import every_agent, find_agent
from bellmanifold.agents.settings import NOISE
from bellmanifold.errors import BadInputError, UnsupportedError, guess, quote
from bellmanifold.io.files import decoded, label, locate_errors, read_bytes
from bellmanifold.io.models import load_whole
from bellmanifold.learning.run import check_memory
from bellmanifold.learning.run_settings import LARGEST, RunSettings, Value, digest, make_settings

DEFAULTS: dict[str, tuple[Value, ...]] = {"episodes": (100,), "seed": tuple(range(10))}
LARGEST_PLAN = 2**22
"""Most bytes in a plan: reading TOML takes a second per million bytes."""
MOST_DOTS = 50
"""Most dots in one name or value: TOML parsing time grows with the cube of the number of dots in a name."""
_PLACE = {"model": 0, "agent": 1, "episodes": 3, "seed": 4}
"""Runs are ordered by model, then by agent, its options and episodes, and finally by seed."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Distinct runs to play, and the problems they refer to.

    Attributes:
        problems: the problem of every model reference: an `SSP`, or a Gymnasium environment without a table.
        notes: remarks for the author of the plan.
    """

    runs: tuple[RunSettings, ...]
    problems: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def models(self) -> dict[str, str]:
        """A digest of every problem, by its reference: an edited problem file is a different problem."""
        return {name: digest(open_world(problem).model) for name, problem in self.problems.items()}


def plan_runs(runs: Sequence[RunSettings]) -> Plan:
    """A plan of the given runs without duplicates; loads their problems."""
    once = tuple(dict.fromkeys(runs))
    problems = _load(run.model for run in once)
    return Plan(once, problems)


def plan_entries(entries: Sequence[Mapping[str, Any]], notes: tuple[str, ...] = ()) -> Plan:
    """A plan of the runs given by entries; a prior that is not given is the one stated by the problem."""
    problems = _load(str(entry["model"]) for entry in entries)
    runs = dict.fromkeys(make_settings(entry, problems[str(entry["model"])]) for entry in entries)
    return Plan(tuple(runs), problems, notes)


def _load(references: Iterable[str]) -> dict[str, Any]:
    """The problems or environments by their references, each loaded once."""
    return {name: load_whole(name, "sweep", needs_table=False) for name in dict.fromkeys(references)}


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read and check a plan file, and load the problems it refers to."""
    with locate_errors(label(path)):
        table = _parse(read_bytes(path))
        tables = table.pop("override", [])
        if not isinstance(tables, list):
            raise BadInputError("override is not a list of tables: write [[override]]")
        overrides = [_override(item, f"override {k + 1}") for k, item in enumerate(tables)]
        axes = _axes(table)
        entries, used = _expand(axes, overrides)
        unused = [k for k in range(len(overrides)) if k not in used]
        notes = tuple(f"{label(path)}: override {k + 1} matches no run" for k in unused)
        with locate_errors(f"{label(path)}: model", UnsupportedError), locate_errors("model"):
            plan = plan_entries(entries, notes)
        for name, episodes in dict.fromkeys((run.model, run.episodes) for run in plan.runs):
            check_memory(plan.problems[name], episodes, 1)
        return plan


@dataclass(frozen=True)
class Override:
    """Options to set in the runs that agree with `match`."""

    match: dict[str, tuple[Value, ...]]
    options: dict[str, Value]


def _parse(content: bytes) -> dict[str, Any]:
    if len(content) > LARGEST_PLAN:
        raise BadInputError(f"its {len(content):,} bytes exceed {LARGEST_PLAN:,}: split the plan")
    if any(piece.count(b".") > MOST_DOTS for piece in re.split(rb"[,={}\[\]\n]", content)):
        raise BadInputError(f"a name or value has more than {MOST_DOTS} dots: shorten it")
    written = decoded(content, "save it as UTF-8 TOML")
    try:
        return tomllib.loads(written)
    except (RecursionError, ValueError) as error:
        raise BadInputError(f"not valid TOML: {error}: fix it there") from None


def _keys() -> list[str]:
    """All keys of a plan except overrides."""
    options = {name for kind in every_agent() for name in kind.options} | {"epsilon", "prior_scale"}
    return ["model", "agent", "episodes", "seeds", *sorted(options)]


def _axes(table: dict[str, Any]) -> dict[str, tuple[Value, ...]]:
    """The grid: the values of every key, including defaults."""
    known = _keys()
    axes: dict[str, tuple[Value, ...]] = {}
    for key, given in table.items():
        if key not in known:
            takes = f"a plan takes {', '.join([*known, '[[override]]'])}"
            raise BadInputError(f"unknown key {quote(key)}: {guess(key, known) or takes}")
        axes[_axis(key)] = _values(given, key)
    for key in ("model", "agent"):
        if key not in axes:
            raise BadInputError(f"{key} is missing: add {key} = ...")
    for agent in axes["agent"]:
        has = find_agent(str(agent)).options
        _without_contradiction({name: axes[name] for name in axes if name in has}, f"for {agent} the plan")
    axes = DEFAULTS | axes
    return {key: axes[key] for key in sorted(axes, key=lambda key: _PLACE.get(key, 2))}


def _axis(key: str) -> str:
    """The setting that corresponds to a key of a plan."""
    return "seed" if key == "seeds" else key


def _override(table: Any, where: str) -> Override:
    if not isinstance(table, dict) or "match" not in table:
        raise BadInputError(f"{where}: match is missing: add match = {{agent = ...}}")
    given = dict(table)
    match = given.pop("match")
    if not isinstance(match, dict):
        raise BadInputError(f"{where}: match is not a table: write match = {{agent = ...}}")
    matchable = _keys()
    settable = [key for key in matchable if key not in ("model", "agent", "seeds")]
    for key in match:
        if key not in matchable:
            raise BadInputError(f"{where}: unknown key {quote(key)} in match: it takes {', '.join(matchable)}")
    for key, value in given.items():
        if key not in settable:
            raise BadInputError(f"{where}: unknown key {quote(key)}: it may set {', '.join(settable)}")
        if isinstance(value, list):
            raise BadInputError(f"{where}: {key} is a list: give one value, lists belong to the plan itself")
    _without_contradiction(given, where)
    wanted = {_axis(key): _values(value, f"{where}: match: {key}", key) for key, value in match.items()}
    return Override(wanted, {key: _values(value, f"{where}: {key}", key)[0] for key, value in given.items()})


def _without_contradiction(table: Mapping[str, Any], where: str) -> None:
    """Raise if a table sets both epsilon and a noise option, which replaces it, or several noise options."""
    noise = [name for name in NOISE if name in table and table[name] not in (False, (False,))]
    if noise and "epsilon" in table:
        raise BadInputError(f"{where} gives epsilon and {noise[0]}, but noise replaces epsilon: leave one out")
    if len(noise) > 1:
        raise BadInputError(f"{where} gives {' and '.join(noise)}: give one of them")


def _values(given: Any, what: str, key: str | None = None) -> tuple[Value, ...]:
    """A value or a list of values, checked and without duplicates."""
    items = given if isinstance(given, list) else [given]
    if not items:
        raise BadInputError(f"{what} is an empty list: give at least one value")
    return tuple(dict.fromkeys(_value(item, what, key or what) for item in items))


def _value(item: Any, what: str, key: str) -> Value:
    if key in ("model", "agent"):
        if not isinstance(item, str):
            raise BadInputError(f"{what} is {item!r:.60}: give a string")
        if key == "agent":
            with locate_errors(what):
                find_agent(item)
        return item
    if key in ("episodes", "seeds"):
        least = 1 if key == "episodes" else 0
        if isinstance(item, bool) or not isinstance(item, int) or not least <= item <= LARGEST:
            raise BadInputError(f"{what} is {item!r:.60}: give a whole number from {least} to {LARGEST}")
        return item
    if not isinstance(item, str) and not (isinstance(item, (int, float)) and abs(item) <= LARGEST):
        raise BadInputError(f"{what} is {item!r:.60}: give a finite number, a string, true or false")
    return item


def _expand(
    axes: Mapping[str, tuple[Value, ...]], overrides: Sequence[Override]
) -> tuple[list[dict[str, Value]], set[int]]:
    """The entries of all runs of the grid, and which overrides were used."""
    total = math.prod(len(values) for values in axes.values())
    RUNS.require(total, "the plan")
    used: set[int] = set()
    entries: list[dict[str, Value]] = []
    for values in itertools.product(*axes.values()):
        entry = dict(zip(axes, values, strict=True))
        for k, override in enumerate(overrides):
            if all(name in entry and entry[name] in wanted for name, wanted in override.match.items()):
                used.add(k)
                likelihood = {"epsilon", *NOISE} & set(override.options)
                gone = NOISE if likelihood else ()  # the later of two tables that set the likelihood wins
                entry = {name: value for name, value in entry.items() if name not in gone} | override.options
        entries.append(entry)
    for entry in {tuple(item for item in entry.items() if item[0] != "seed"): entry for entry in entries}.values():
        make_settings(entry)  # invalid options are refused before any problem is loaded
    return entries, used
