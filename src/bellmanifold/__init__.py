"""Bayesian learning in stochastic shortest path problems.

The public names below are loaded on first use, so that `import bellmanifold` is fast and imports no other package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bellmanifold.io.registration import register_environments

if TYPE_CHECKING:
    from bellmanifold import envs as envs
    from bellmanifold import errors as errors
    from bellmanifold import pictures as figures  # noqa: F401
    from bellmanifold.decisions.advice import Advice as Advice
    from bellmanifold.decisions.advice import advise as advise
    from bellmanifold.envs.building import Move as Move
    from bellmanifold.envs.building import from_moves as from_moves
    from bellmanifold.io.arrays import from_arrays as from_arrays
    from bellmanifold.io.gymnasium import from_gymnasium as from_gymnasium
    from bellmanifold.io.gymnasium import to_gymnasium as to_gymnasium
    from bellmanifold.io.models import load_model as load_model
    from bellmanifold.io.networks import from_networkx as from_networkx
    from bellmanifold.io.observations import load_data as load_data
    from bellmanifold.io.observations import write_data as write_data
    from bellmanifold.io.problem import write_problem as write_problem
    from bellmanifold.io.road_tables import from_edges as from_edges
    from bellmanifold.learning.runs import learn as learn
    from bellmanifold.mdp.checks import check as check
    from bellmanifold.mdp.pruning import pruned as pruned
    from bellmanifold.mdp.solver import solve as solve
    from bellmanifold.posteriors import kernels as kernels
    from bellmanifold.posteriors import noise as noise
    from bellmanifold.posteriors.inference import posterior as posterior
    from bellmanifold.posteriors.summary import Summary as Summary
    from bellmanifold.problem.dataset import Dataset as Dataset
    from bellmanifold.problem.observation import Observation as Observation
    from bellmanifold.problem.ssp import SSP as SSP

__version__ = "0.1.0"

_HOME = {
    "Advice": "bellmanifold.decisions.advice",
    "Dataset": "bellmanifold.problem.dataset",
    "Move": "bellmanifold.envs.building",
    "Observation": "bellmanifold.problem.observation",
    "SSP": "bellmanifold.problem.ssp",
    "Summary": "bellmanifold.posteriors.summary",
    "advise": "bellmanifold.decisions.advice",
    "check": "bellmanifold.mdp.checks",
    "explore": "bellmanifold_lab",
    "from_arrays": "bellmanifold.io.arrays",
    "from_edges": "bellmanifold.io.road_tables",
    "from_gymnasium": "bellmanifold.io.gymnasium",
    "from_moves": "bellmanifold.envs.building",
    "from_networkx": "bellmanifold.io.networks",
    "learn": "bellmanifold.learning.runs",
    "load_data": "bellmanifold.io.observations",
    "load_model": "bellmanifold.io.models",
    "posterior": "bellmanifold.posteriors.inference",
    "pruned": "bellmanifold.mdp.pruning",
    "solve": "bellmanifold.mdp.solver",
    "to_gymnasium": "bellmanifold.io.gymnasium",
    "write_data": "bellmanifold.io.observations",
    "write_problem": "bellmanifold.io.problem",
}
"""Public name -> the module that has it. `explore` is the laboratory's: the only name that is not the library's own."""
_MODULES = {
    "envs": "bellmanifold.envs",
    "errors": "bellmanifold.errors",
    "figures": "bellmanifold.pictures",
    "kernels": "bellmanifold.posteriors.kernels",
    "noise": "bellmanifold.posteriors.noise",
}

__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name not in _HOME:
        raise AttributeError(f"module 'bellmanifold' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


register_environments()
