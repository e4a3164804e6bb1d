"""Where the metadata of a problem say that its states lie: `"positions": {"home": [0, 0], "office": [2.5, 1]}`.

Metadata belong to whoever wrote them: what is no map is none of our business and ignored. What is one except for a slip
of the pen, a name that no state has or a state that has no place, is ignored too, but not in silence: `map_fault`.
"""

from __future__ import annotations

from typing import TypeGuard

from bellmanifold.errors import guess, quote
from bellmanifold.naming import meant
from bellmanifold.ssp import SSP

LARGEST = 1e12


def places(model: SSP) -> dict[str, list[float | int]] | None:
    """The places of all states, and of goals if they have some; None unless every state has one."""
    given = model.metadata.get("positions")
    if not isinstance(given, dict) or not all(_is_place(given.get(name)) for name in model.states):
        return None
    return {name: given[name] for name in (*model.states, *model.goals) if _is_place(given.get(name))}


def map_fault(model: SSP) -> str:
    """Why what looks like a map is not used, or not all of it, in a line; empty where there is no fault."""
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
        said.append(f"no state is called {_first(unknown)} ({meant(unknown[0], missing or model.states)})")
    if missing:
        said.append(f"{_first(missing)} has no place, two numbers")
    unused = ", so that the map is not used" if missing else ""
    return f"metadata.positions: {' and '.join(said)}{unused}" if said else ""


def _is_map(given: object, model: SSP) -> TypeGuard[dict[str, object]]:
    """Does this say where some state lies?"""
    return isinstance(given, dict) and any(_is_place(given.get(name)) for name in model.states)


def _first(names: list[str]) -> str:
    return quote(names[0]) + (f" (and {len(names) - 1} more)" if len(names) > 1 else "")


def _is_place(given: object) -> bool:
    """Are these two finite numbers?"""
    return (
        isinstance(given, list)
        and len(given) == 2
        and all(isinstance(x, (int, float)) and not isinstance(x, bool) and abs(x) < LARGEST for x in given)
    )
