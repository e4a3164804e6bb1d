"""Bayesian learning in stochastic shortest path problems.

The public names below are loaded on first use, so that `import bellmanifold` is fast and imports no other package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bellmanifold.envs.registration import register_environments

if TYPE_CHECKING:
    from bellmanifold import envs as envs
    from bellmanifold import errors as errors
    from bellmanifold import figures as figures
    from bellmanifold import kernels as kernels
    from bellmanifold import noise as noise
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
    from bellmanifold.learning.learning import learn as learn
    from bellmanifold.mdp.checks import check as check
    from bellmanifold.mdp.solver import solve as solve
    from bellmanifold.posteriors.inference import posterior as posterior
    from bellmanifold.posteriors.summary import Summary as Summary
    from bellmanifold.problem.dataset import Dataset as Dataset
    from bellmanifold.problem.observation import Observation as Observation
    from bellmanifold.problem.pruning import pruned as pruned
    from bellmanifold.problem.ssp import SSP as SSP
    from bellmanifold_lab.explorer.notebook import explore as explore
    from bellmanifold_paper import hausdorff, identifiability, parametrisation, priors
    from bellmanifold_paper.engines.gradient import sample_chains as sample_chains
    from bellmanifold_paper.evidence import evidence_curve as evidence_curve

__version__ = "0.1.0"

_HOME = {
    "Advice": "decisions.advice",
    "Dataset": "data",
    "Move": "envs.building",
    "Observation": "observation",
    "SSP": "ssp",
    "Summary": "posteriors.summary",
    "advise": "decisions.advice",
    "check": "health",
    "evidence_curve": "posteriors.evidence",
    "explore": "explorer.notebook",
    "from_arrays": "formats.arrays",
    "from_edges": "formats.road_tables",
    "from_gymnasium": "formats.gymnasium",
    "from_moves": "envs.building",
    "from_networkx": "formats.networks",
    "learn": "runs.learning",
    "load_data": "formats.observations",
    "load_model": "models",
    "posterior": "posteriors.inference",
    "pruned": "pruning",
    "sample_chains": "posteriors.gradient",
    "solve": "solver",
    "to_gymnasium": "formats.gymnasium",
    "write_data": "formats.observations",
    "write_problem": "formats.problem",
}
_MODULES = (
    "envs",
    "errors",
    "figures",
    "hausdorff",
    "identifiability",
    "kernels",
    "noise",
    "parametrisation",
    "priors",
)

__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"bellmanifold.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'bellmanifold' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"bellmanifold.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


register_environments()
