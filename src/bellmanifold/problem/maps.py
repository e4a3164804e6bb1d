"""Positions of states in the metadata of a problem: `"positions": {"home": [0, 0], "office": [2.5, 1]}`.

Metadata may hold anything, so entries that are not a map are ignored. A map with a mistake, an unknown name or a state
without a position, is ignored in whole or in part, too, but `map_fault` reports it.
"""

from __future__ import annotations

from typing import TypeGuard

from bellmanifold.errors import guess, quote
from bellmanifold.problem.names import suggestion
from bellmanifold.problem.ssp import SSP

LARGEST = 1e12


def places(model: SSP) -> dict[str, list[float | int]] | None:
    """The positions of all states, and of those goals that have one; None unless every state has one."""
    given = model.metadata.get("positions")
    if not isinstance(given, dict) or not all(_is_place(given.get(name)) for name in model.states):
        return None
    return {name: given[name] for name in (*model.states, *model.goals) if _is_place(given.get(name))}


def map_fault(model: SSP) -> str:
    """One line that says why an apparent map, or a part of it, is not used; empty if there is no fault."""
    given = model.metadata.get("positions")
    if not _is_map(given, model):
        other = next((key for key, value in model.metadata.items() if _is_map(value, model)), None)
        near = "" if other is None else guess(str(other), ["positions"])
        return f"metadata.{other}: {near} A map under this name is not used" if near else ""
    known = {*model.states, *model.goals}
    unknown = [str(name) for name in given if name not in known]
    missing = [name for name in model.states if not _is_place(given.get(name))]
    said = []
    if unknown:
        said.append(f"no state is called {_first(unknown)} ({suggestion(unknown[0], missing or model.states)})")
    if missing:
        said.append(f"{_first(missing)} has no position (two numbers)")
    unused = ", so the map is not used" if missing else ""
    return f"metadata.positions: {' and '.join(said)}{unused}" if said else ""


def _is_map(given: object, model: SSP) -> TypeGuard[dict[str, object]]:
    """Whether this gives the position of at least one state."""
    return isinstance(given, dict) and any(_is_place(given.get(name)) for name in model.states)


def _first(names: list[str]) -> str:
    return quote(names[0]) + (f" (and {len(names) - 1} more)" if len(names) > 1 else "")


def _is_place(given: object) -> bool:
    """Whether this is a list of two finite numbers."""
    return (
        isinstance(given, list)
        and len(given) == 2
        and all(isinstance(x, (int, float)) and not isinstance(x, bool) and abs(x) < LARGEST for x in given)
    )
