"""Playing one run and keeping what happened; the unit of work that processes are given.

**A unit** is what one worker plays at a time: runs that agree in everything but the seed. Its seeds come from one
*block*, the seeds k W, ..., k W + W - 1 for the agent's fixed width W. Agents that move the chains of a whole block in
one program (`AgentKind.make_block`) always play all of the block's seeds, also when only some are wanted: the number of
rows of a batched program can change the last bits of every row. All others have width 1 and play one run at a time.
Either way a run's numbers are a function of its settings alone: not of the plan it is part of, of what was resumed, or
of workers.

**Indices.** Whatever order a run drew, its record numbers pairs as `load_model(settings.model)` does, so that runs can
be compared and replayed without knowing their orders.
"""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import bellmanifold
from bellmanifold.agents.registry import AgentKind, find_agent
from bellmanifold.agents.worlds import open_world
from bellmanifold.errors import BadInputError, quote
from bellmanifold.experiments import measured
from bellmanifold.experiments.measured import play_seed
from bellmanifold.experiments.measures import find_optimum
from bellmanifold.experiments.plan import Plan, RunSettings, digest
from bellmanifold.models import load_problem
from bellmanifold.ssp import SSP

FORMAT = "bellmanifold.run/1"
MOST_KEPT = 8
_LIBRARIES = ("numpy", "scipy", "jax", "jaxlib", "xarray", "gymnasium")


@dataclass(frozen=True, eq=False)
class Problem:
    """A problem that runs are played on.

    Attributes:
        source: an `SSP`, or a Gymnasium environment without a table.
        model: its states and pairs in their own order.
        digest: of the model.
        optimal_value: expected optimal value of an episode; NaN where there is none.
    """

    source: Any
    model: SSP
    digest: str
    optimal_value: float


@dataclass(frozen=True, eq=False)
class Unit:
    """Runs for one worker: they differ only in their seeds, which lie in one block.

    Attributes:
        settings: of the run with the first wanted seed.
        seeds: the wanted seeds, ascending.
        kind: the agent; it travels with the unit, so that a worker need not have registered it.
        model_digest: what the problem must be on the worker.
        model: the problem itself if it came from a file, which another machine may not have.
    """

    settings: RunSettings
    seeds: tuple[int, ...]
    kind: AgentKind
    model_digest: str
    model: SSP | None = None

    @property
    def runs(self) -> list[RunSettings]:
        return [replace(self.settings, seed=seed) for seed in self.seeds]

    @property
    def block(self) -> range:
        """All seeds of the block, wanted or not."""
        first = self.seeds[0] - self.seeds[0] % self.kind.width
        return range(first, first + self.kind.width)


def units_of(plan: Plan, wanted: Sequence[RunSettings]) -> list[Unit]:
    """Units that play the wanted runs of a plan, in the order of the plan."""
    blocks: dict[RunSettings, list[int]] = {}
    for run in wanted:
        width = find_agent(run.agent).width
        blocks.setdefault(replace(run, seed=run.seed - run.seed % width), []).append(run.seed)
    digests = plan.models
    units = []
    for key, seeds in blocks.items():
        from_file = not key.model.startswith(("env:", "gym:"))
        settings = replace(key, seed=min(seeds))
        model = plan.problems[key.model] if from_file else None
        units.append(Unit(settings, tuple(sorted(seeds)), find_agent(key.agent), digests[key.model], model))
    return units


def play_unit(unit: Unit) -> dict[int, xr.Dataset]:
    """Play the runs of a unit; the record of every wanted seed."""
    problem, settings = _problem(unit), {run.seed: run for run in unit.runs}
    episodes, choices = unit.settings.episodes, unit.settings.choices()
    played = measured.play_runs(problem.source, unit.kind, episodes, unit.seeds, choices, problem.optimal_value)
    return {run.seed: record(settings[run.seed], problem, run) for run in played}


_kept: dict[str, Problem] = {}


def _problem(unit: Unit) -> Problem:
    """The unit's problem, kept between units of one process."""
    found = _kept.get(unit.model_digest)
    if found is None:
        found = prepare(unit.model if unit.model is not None else load_problem(unit.settings.model))
        if found.digest != unit.model_digest:
            name = quote(unit.settings.model)
            raise BadInputError(f"{name} is another problem on this worker: install the same versions everywhere")
        if len(_kept) >= MOST_KEPT:
            _kept.clear()
        if isinstance(found.source, SSP):  # an environment has a state of its own: threads must not share it
            _kept[unit.model_digest] = found
    return found


def prepare(source: Any) -> Problem:
    """Solve a problem, so that runs on it can be judged."""
    world = open_world(source)
    optimum = find_optimum(world.model)[0] if world.has_laws else float("nan")
    return Problem(source, world.model, digest(world.model), optimum)


def play_run(settings: RunSettings, kind: AgentKind | None = None, problem: Problem | None = None) -> xr.Dataset:
    """Play one run and record it.

    Args:
        settings: what to play.
        kind: the agent, if it is not a registered one.
        problem: the problem, if it is at hand.
    """
    kind = kind or find_agent(settings.agent)
    problem = problem or prepare(load_problem(settings.model))
    known = problem.optimal_value
    run = measured.play_run(problem.source, kind, settings.episodes, settings.seed, settings.choices(), known)
    return record(settings, problem, run)


def record(settings: RunSettings, problem: Problem, run: measured.Run) -> xr.Dataset:
    """What happened in a run, with one entry an episode; see `bellmanifold.experiments.measures` for the measures.

    Entry k of `moves` counts the entries of `pair` and `reward`, what was played and paid, that belong to entry k of
    the rest. `action_probability` and `q_mean`, if they are there, are what the agent believed about each pair when it
    chose the policy, NaN where it did not know. Where `solved_episode` is NaN, the problem was not solved, or bsuite's
    rule does not apply.
    """
    number = run.model.numbers_in(problem.model).astype(np.int32)
    each: dict[str, Any] = {
        "regret": run.regret,
        "expected_regret": run.expected_regret,
        "total_reward": np.array([episode.rewards.sum() for episode in run.played]),
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
        longest = max(len(route) for route in run.routes)
        padded = [[*number[list(route)].tolist(), *[-1] * (longest - len(route))] for route in run.routes]
        data["route"] = (("route_number", "step"), np.array(padded, dtype=np.int32))
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
