"""What is kept of a run, as a data set that goes into its file.

Whatever order of actions a run drew, its record numbers pairs as `load_model(settings.model)` does, so that runs can be
compared and replayed without knowing their orders.
"""

from __future__ import annotations

import json
import platform
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import bellmanifold
from bellmanifold.agents.registry import AgentKind, find_agent
from bellmanifold.agents.worlds import open_world
from bellmanifold.models import load_problem
from bellmanifold.runs.metrics import Optimum, find_optimum, no_optimum
from bellmanifold.runs.routes import filled_up
from bellmanifold.runs.run import Run, play_run, play_seed
from bellmanifold.ssp import SSP
from bellmanifold.sweeps.plan import RunSettings, digest

FORMAT = "bellmanifold.run/1"
_LIBRARIES = ("numpy", "scipy", "jax", "jaxlib", "xarray", "gymnasium")


@dataclass(frozen=True, eq=False)
class Problem:
    """A problem that runs are played on.

    Attributes:
        source: an `SSP`, or a Gymnasium environment without a table.
        model: its states and pairs in their own order.
        digest: of the model.
        optimum: its optimal values, as far as there are any.
    """

    source: Any
    model: SSP
    digest: str
    optimum: Optimum


def prepare(source: Any) -> Problem:
    """Solve a problem, so that runs on it can be judged."""
    world = open_world(source)
    optimum = find_optimum(world.model) if world.has_laws else no_optimum(world.model, "no table P")
    return Problem(source, world.model, digest(world.model), optimum)


def record_run(settings: RunSettings, kind: AgentKind | None = None, problem: Problem | None = None) -> xr.Dataset:
    """Play one run and record it.

    Args:
        settings: what to play.
        kind: the agent, if it is not a registered one.
        problem: the problem, if it is at hand.
    """
    kind = kind or find_agent(settings.agent)
    problem = problem or prepare(load_problem(settings.model))
    known = problem.optimum
    run = play_run(problem.source, kind, settings.episodes, settings.seed, settings.choices(), known)
    return record(settings, problem, run)


def record(settings: RunSettings, problem: Problem, run: Run) -> xr.Dataset:
    """What happened in a run, with one entry per episode; see `bellmanifold.runs.metrics` for the measures.

    Entry k of `moves` counts the entries of `pair` and `reward`, what was played and paid, that belong to entry k of
    the rest. `action_probability` and `q_mean`, if they are there, are what the agent believed about each pair when it
    chose the policy, NaN where it did not know. Where `solved_episode` is NaN, the problem was not solved, or bsuite's
    rule does not apply.
    """
    number = run.model.numbers_in(problem.model).astype(np.int32)
    each: dict[str, Any] = {
        "regret": run.regret,
        "completed_regret": run.completed_regret,
        "expected_regret": run.expected_regret,
        "total_reward": run.reward,
        "goal_reached": run.reached_goal,
        "optimal": run.optimal,
        "coverage": run.coverage,
        "capped": run.capped,
        "moves": run.moves.astype(np.int32),
        "seconds_episode": run.seconds,
    } | {f"diagnostic_{name}": values for name, values in run.diagnostics.items()}
    data: dict[str, Any] = {name: (("episode",), values) for name, values in each.items()}
    data["policy"] = (("episode", "state"), number[np.array([episode.policy for episode in run.played])])
    data["pair"] = (("move",), number[np.concatenate([episode.pairs for episode in run.played])])
    data["reward"] = (("move",), np.concatenate([episode.rewards for episode in run.played]))
    if run.routes:
        pairs = filled_up(run.routes)
        data["route"] = (("route_number", "step"), np.where(pairs < 0, -1, number[pairs]).astype(np.int32))
        data["route_probability"] = (("episode", "route_number"), run.route_probability)
    for name, values in (("action_probability", run.action_probability), ("q_mean", run.q_mean)):
        if values is not None:
            data[name] = (("episode", "pair_number"), values[:, np.argsort(number)])
    data["seconds_total"] = ((), float(run.seconds.sum()))
    data["optimal_value"] = ((), run.optimal_value)
    data["solved_episode"] = ((), np.nan if run.solved_episode is None else float(run.solved_episode))
    counted = {"episode": np.arange(1, len(run.played) + 1, dtype=np.int32)}
    return xr.Dataset(data, counted, labels(settings, problem.digest))


def labels(settings: RunSettings, model_digest: str) -> dict[str, str]:
    """A record's attributes: what was run, on what, and by which versions."""
    return {
        "format": FORMAT,
        "settings": json.dumps(settings.to_dict()),
        "identity": settings.identity,
        "play_seed": str(play_seed(settings.seed)),
        "model_digest": model_digest,
        **versions(),
    }


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions of this package and of what its numbers depend on."""
    found = {"python": platform.python_version(), "machine": platform.platform()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"version": bellmanifold.__version__, "commit": _commit(), "versions": json.dumps(found)}


def _commit() -> str:
    """The commit of this package's source, "-dirty" if it was changed since; empty if it is no checkout."""
    home = Path(bellmanifold.__file__).parent
    ours = ("git", "-C", str(home), "ls-files", "--error-unmatch", "__init__.py")
    name = ("git", "-C", str(home), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")
    try:
        subprocess.run(ours, capture_output=True, check=True, timeout=10)
        return subprocess.run(name, capture_output=True, check=True, timeout=10, text=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
