"""Loading a problem by its reference: a problem file, `env:NAME?key=value`, `gym:ENV_ID`, a model checker's file, or a
table of roads, `roads.csv?goal=depot&start=J1`.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from bellmanifold.envs import BUILT_IN
from bellmanifold.errors import BadInputError, quote, require, require_flags, require_kind
from bellmanifold.io.explicit import read_query
from bellmanifold.io.files import label, locate_errors
from bellmanifold.io.problem import read_problem
from bellmanifold.mdp.pruning import pruned
from bellmanifold.problem.ssp import SSP, require_closed

DRN = ".drn"
BY_STORM = (".prism", ".pm", ".nm", ".jani")
_CHECKED = re.compile(r"(.*?\.(?:drn|prism|pm|nm|jani))(?:\?(.*))?$", re.DOTALL)
_TABLE = re.compile(r"(.*?\.(?:csv|tsv))(?:\?(.*))?$", re.DOTALL | re.IGNORECASE)
_VERSIONED = re.compile(r"[A-Za-z]-v\d+$")


def load_model(reference: str | os.PathLike[str], prune: bool = False) -> SSP:
    """Load a problem by its reference.

    Args:
        reference: a path to a problem file, `env:deep-sea?depth=5`, `gym:CliffWalking-v1`, a table of roads
            (`bm.from_edges`), `roads.csv?goal=depot&start=J1`, or a PRISM, JANI or DRN file with its property and
            constants, `coin.prism?N=2&property=steps_min`.
        prune: drop dead ends, as `bellmanifold.pruned` does; in files and tables also next states without any move.

    >>> load_model("env:deep-sea?depth=3")
    SSP("deep-sea-3", 6 states, 12 pairs)
    """
    problem: SSP = load_problem(reference, needs_table=True, prune=prune)
    return problem


def load_problem(reference: str | os.PathLike[str], needs_table: bool = False, prune: bool = False) -> Any:
    """Load a problem; a Gymnasium environment without a transition table is returned itself if none is needed."""
    require_flags(prune=prune)
    problem = _load(reference, needs_table, prune)
    if not prune:
        return problem
    with locate_errors(label(reference)):
        require(isinstance(problem, SSP), "without a transition table P dead ends are not known: leave --prune out")
        return pruned(problem)


def _load(reference: str | os.PathLike[str], needs_table: bool, prune: bool) -> Any:
    """Load a problem, with `prune` without next states that have no move."""
    remedy = "give a path, env:NAME or gym:ENV_ID; bm.from_gymnasium takes an environment"
    require_kind(reference, (str, os.PathLike), "the reference", remedy)
    text = os.fspath(reference)
    if text.startswith("env:"):
        with locate_errors(label(text)):
            return _built_in(text.removeprefix("env:"))
    if text.startswith("gym:"):
        from bellmanifold.io.gymnasium import load_gymnasium

        return load_gymnasium(text.removeprefix("gym:"), needs_table, prune)
    found = _CHECKED.match(text)
    path, query = (found[1], found[2] or "") if found else (text, "")
    if path.endswith(DRN):
        from bellmanifold.io.drn import read_drn

        return read_drn(path, query)
    if path.endswith(BY_STORM):
        from bellmanifold.io.storm import read_storm

        return read_storm(path, query)
    if found := _TABLE.match(text):
        from bellmanifold.io.road_tables import read_roads

        return read_roads(found[1], found[2])
    if not os.path.exists(text):  # perhaps only its prefix is missing
        prefix = "env:" if text.partition("?")[0] in BUILT_IN else "gym:" if _VERSIONED.search(text) else ""
        require(not prefix, f"{label(text)}: no such file: write {prefix}{label(text)}")
    return read_problem(text, prune)


def load_whole(reference: str, what: str, needs_table: bool = True, prune: bool = False) -> Any:
    """Load a problem without open pairs, as `what`, a command, requires.

    A Gymnasium environment without a transition table is returned itself if none is needed.
    """
    problem = load_problem(reference, needs_table, prune)
    if isinstance(problem, SSP):
        with locate_errors(label(reference)):
            require_closed(problem, what)
    return problem


def _built_in(text: str) -> SSP:
    name, _, query = text.partition("?")
    require(name in BUILT_IN, f"unknown environment {quote(name)}: choose from {', '.join(BUILT_IN)}")
    build = BUILT_IN[name]
    kinds = {**parameters(build), "discount": float}
    given: dict[str, Any] = {}
    for key, value in read_query(query).items():
        require(key in kinds, f"unknown parameter {quote(key)}: {name} takes {', '.join(kinds)}")
        given[key] = _convert(key, value, kinds[key])
    discount = given.pop("discount", 1.0)
    return build(**given).discounted(discount)


def parameters(build: Callable[..., SSP]) -> dict[str, Any]:
    """The parameters of a built-in problem and their types; every problem also takes a discount."""
    hints = get_type_hints(build)
    return {name: hints[name] for name in inspect.signature(build).parameters}


def _convert(key: str, value: str, kind: Any) -> Any:
    """Convert the text of a parameter to the type of its annotation."""
    if get_origin(kind) is UnionType:
        kind = next(option for option in get_args(kind) if option is not NoneType)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise BadInputError(f"{key} is {quote(value)}: choose from {', '.join(get_args(kind))}")
        return value
    if kind is str:
        return value
    if kind is bool:
        require(value in ("true", "false"), f"{key} is {quote(value)}: write true or false")
        return value == "true"
    try:
        return kind(value)
    except (ValueError, OverflowError):
        what = "a whole number" if kind is int else "a number"
        raise BadInputError(f"{key} is {quote(value)}: give {what}") from None
