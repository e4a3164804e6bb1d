"""The paper again: the methods that only it needs, its runs, its figures, its claims and the verdicts on them.

Its engines, agents and its command plug into the library by entry points. The public names below are loaded on first
use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bellmanifold_paper import hausdorff as hausdorff
    from bellmanifold_paper import identifiability as identifiability
    from bellmanifold_paper import parametrisation as parametrisation
    from bellmanifold_paper import priors as priors
    from bellmanifold_paper import td as td
    from bellmanifold_paper.engines.gradient import sample_chains as sample_chains
    from bellmanifold_paper.evidence import evidence_curve as evidence_curve

_HOME = {"evidence_curve": "evidence", "sample_chains": "engines.gradient"}
_MODULES = ("hausdorff", "identifiability", "parametrisation", "priors", "td")

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"bellmanifold_paper.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'bellmanifold_paper' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"bellmanifold_paper.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
