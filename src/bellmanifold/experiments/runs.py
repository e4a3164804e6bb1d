"""Playing one run and keeping what happened; the unit of work that processes are given.

**A unit** is what one worker plays at a time: runs that agree in everything but the seed. Its seeds come from one
*block*, the seeds k W, ..., k W + W - 1 for the agent's fixed width W. An agent that plays a whole block as one
batched program is listed in `BLOCK_PLAYERS` (its width is `WIDTH`), and that program always plays all of the block's
seeds, also when only some are wanted: the number of rows of a batched program can change the last bits of every row.
All others have width 1 and play one run at a time. Either way a run's numbers are a function of its settings alone:
not of the plan it is part of, of what was resumed, or of workers.

**Randomness.** Run with seed k plays the problem with its actions in the order that `action_seed=k` gives, and draws
all else from the generator seeded with the pair (k, 1), so that the two do not share a stream.

**Indices.** Whatever order a run drew, its record numbers pairs as `load_model(settings.model)` does, so that runs can
be compared and replayed without knowing their orders. Values of policies are computed on that model, too.
"""

from __future__ import annotations

import json
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

import bellmanifold
from bellmanifold.agents.episodes import Agent, Episode, run_episodes
from bellmanifold.agents.registry import AGENTS, AgentKind
from bellmanifold.envs.building import with_action_order
from bellmanifold.errors import BadInputError, UnsupportedError, quote
from bellmanifold.experiments.plan import Plan, RunSettings, digest
from bellmanifold.experiments.values import PolicyValues
from bellmanifold.models import load_model
from bellmanifold.solver import solve
from bellmanifold.ssp import SSP

FORMAT = "bellmanifold.run/1"
WIDTH = 10
"""Seeds in a block of an agent that plays blocks. Changing it changes the last bits of such runs."""
MOST_KEPT = 8
_LIBRARIES = ("numpy", "scipy", "jax", "jaxlib", "xarray", "gymnasium")


@dataclass(frozen=True, eq=False)
class Problem:
    """A problem and its optimal value from the start (NaN where `solve` does not apply)."""

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
        width = width_of(self.settings.agent)
        first = self.seeds[0] - self.seeds[0] % width
        return range(first, first + width)


BlockPlayer: TypeAlias = Callable[[Unit, Problem], Mapping[int, xr.Dataset]]
BLOCK_PLAYERS: dict[str, BlockPlayer] = {}
"""Agents that play all runs of a block as one program: name -> function that returns the record of every seed."""


def width_of(agent: str) -> int:
    """How many seeds a block of this agent has."""
    return WIDTH if agent in BLOCK_PLAYERS else 1


def units_of(plan: Plan, wanted: Sequence[RunSettings]) -> list[Unit]:
    """Units that play the wanted runs of a plan, in the order of the plan."""
    blocks: dict[RunSettings, list[int]] = {}
    for run in wanted:
        width = width_of(run.agent)
        blocks.setdefault(replace(run, seed=run.seed - run.seed % width), []).append(run.seed)
    digests = plan.models
    units = []
    for key, seeds in blocks.items():
        from_file = not key.model.startswith(("env:", "gym:"))
        settings = replace(key, seed=min(seeds))
        model = plan.problems[key.model] if from_file else None
        units.append(Unit(settings, tuple(sorted(seeds)), AGENTS[key.agent], digests[key.model], model))
    return units


def play_unit(unit: Unit) -> dict[int, xr.Dataset]:
    """Play the runs of a unit; the record of every wanted seed."""
    problem = _problem(unit)
    if unit.settings.agent in BLOCK_PLAYERS:
        records = BLOCK_PLAYERS[unit.settings.agent](unit, problem)
        return {seed: records[seed] for seed in unit.seeds}
    return {run.seed: play_run(run, unit.kind, problem) for run in unit.runs}


_kept: dict[str, Problem] = {}


def _problem(unit: Unit) -> Problem:
    """The unit's problem, kept between units of one process."""
    found = _kept.get(unit.model_digest)
    if found is None:
        found = prepare(unit.model if unit.model is not None else load_model(unit.settings.model))
        if found.digest != unit.model_digest:
            name = quote(unit.settings.model)
            raise BadInputError(f"{name} is another problem on this worker: install the same versions everywhere")
        if len(_kept) >= MOST_KEPT:
            _kept.clear()
        _kept[unit.model_digest] = found
    return found


def prepare(model: SSP) -> Problem:
    """Solve a problem, so that runs on it can be judged."""
    try:
        optimum = solve(model).value_at_start
    except UnsupportedError:
        optimum = float("nan")
    return Problem(model, digest(model), optimum)


def play_seed(seed: int) -> int:
    """The seed of everything but the order of actions."""
    return int(np.random.SeedSequence((seed, 1)).generate_state(1, np.uint64)[0])


def play_run(settings: RunSettings, kind: AgentKind | None = None, problem: Problem | None = None) -> xr.Dataset:
    """Play one run and record it.

    Args:
        settings: what to play.
        kind: the agent, if it is not a registered one.
        problem: the problem, if it is at hand.
    """
    kind = kind or AGENTS[settings.agent]
    problem = problem or prepare(load_model(settings.model))
    started = time.perf_counter()
    model = with_action_order(problem.model, settings.seed)
    witness = Witness(kind.make(model, settings.choices()))
    played = run_episodes(model, witness, settings.episodes, play_seed(settings.seed))
    judged = record(settings, problem, same_pairs(model, problem.model), played, witness)
    judged["seconds_total"] = ((), time.perf_counter() - started)
    return judged


def same_pairs(ordered: SSP, model: SSP) -> Int[np.ndarray, "pairs"]:
    """For every pair of a problem with its actions reordered, the number of the same pair in the problem itself."""
    return np.array([model.pair_index[ordered.pair_name(i)] for i in range(ordered.n_pairs)], dtype=np.int32)


@dataclass(eq=False)
class Witness:
    """Stands between the episode loop and an agent, and notes policies, diagnostics and times."""

    agent: Agent
    policies: list[Int[np.ndarray, "states"]] = field(default_factory=list)
    diagnostics: list[dict[str, float]] = field(default_factory=list)
    choosing: list[float] = field(default_factory=list)
    learning: list[float] = field(default_factory=list)

    def policy(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        started = time.perf_counter()
        chosen = self.agent.policy(rng)
        self.choosing.append(time.perf_counter() - started)
        self.policies.append(np.array(chosen, dtype=np.int32))
        return chosen

    def observe(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        started = time.perf_counter()
        self.agent.observe(pairs, rewards)
        self.learning.append(time.perf_counter() - started)
        self.diagnostics.append({k: float(v) for k, v in getattr(self.agent, "diagnostics", {}).items()})


def record(
    settings: RunSettings,
    problem: Problem,
    number: Int[np.ndarray, "pairs"],
    played: Sequence[Episode],
    witness: Witness,
) -> xr.Dataset:
    """What happened in a run, with one entry an episode.

    Args:
        settings: what was played.
        problem: on which problem.
        number: pairs as the agent numbers them -> pairs of the problem.
        played: the episodes.
        witness: what was noted besides.

    `regret` compares what was collected with the optimum, `expected_regret` the exact value of the policy (NaN where it
    is infinite because the policy can miss the goal; both NaN where the optimum is unknown). `coverage` is the share of
    pairs tried so far. Entry k of `moves` counts the entries of `pair` and `reward`, what was played and paid, that
    belong to entry k of the rest.
    """
    best = problem.optimal_value
    total = np.array([episode.rewards.sum() for episode in played])
    pairs = [number[episode.pairs] for episode in played]
    policy = number[np.array(witness.policies)]
    values = PolicyValues(problem.model)
    each = {
        "regret": best - total,
        "expected_regret": best - np.array([values.at_start(p) for p in policy]),
        "total_reward": total,
        "goal_reached": np.array([episode.reached_goal for episode in played]),
        "coverage": _coverage(pairs, problem.model.n_pairs),
        "moves": np.array([len(p) for p in pairs], dtype=np.int32),
        "seconds_choosing": np.array(witness.choosing),
        "seconds_learning": np.array(witness.learning),
    }
    names = sorted({name for noted in witness.diagnostics for name in noted})
    each |= {f"diagnostic_{n}": np.array([noted.get(n, np.nan) for noted in witness.diagnostics]) for n in names}
    data: dict[str, Any] = {name: (("episode",), values) for name, values in each.items()}
    data["policy"] = (("episode", "state"), policy)
    data["pair"] = (("move",), np.concatenate(pairs))
    data["reward"] = (("move",), np.concatenate([episode.rewards for episode in played]))
    data["optimal_value"] = ((), best)
    return xr.Dataset(
        data, {"episode": np.arange(1, len(played) + 1, dtype=np.int32)}, labels(settings, problem.digest)
    )


def _coverage(pairs: Sequence[Int[np.ndarray, "_"]], n_pairs: int) -> Float[np.ndarray, "episodes"]:
    tried = np.zeros(n_pairs, dtype=bool)
    share = np.empty(len(pairs))
    for k, own in enumerate(pairs):
        tried[own] = True
        share[k] = tried.mean()
    return share


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
