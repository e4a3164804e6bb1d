"""The unit of work that processes are given, what a worker does with it, and what it answers.

**A unit** is what one worker plays at a time: runs that agree in everything but the seed. Its seeds come from one
*block*, the seeds k W, ..., k W + W - 1 for the agent's fixed width W. Agents that move the chains of a whole block in
one program (`AgentKind.make_block`) always play all of the block's seeds, also when only some are wanted: the number of
rows of a batched program can change the last bits of every row. All others have width 1 and play one run at a time.
Either way a run's numbers are a function of its settings alone: not of the plan it is part of, of what was resumed, or
of workers.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import xarray as xr

from bellmanifold.agents.registry import AgentKind, find_agent
from bellmanifold.errors import BadInputError, BellmanifoldError, quote
from bellmanifold.models import load_problem
from bellmanifold.runs.run import play_runs
from bellmanifold.ssp import SSP
from bellmanifold.sweeps.plan import Plan, RunSettings
from bellmanifold.sweeps.record import Problem, prepare, record
from bellmanifold.sweeps.store import encode

TRIES = 2
"""How often a unit is given out if its worker dies or fails in a way that may not happen again."""
MOST_KEPT = 8
"""Problems that a process keeps between units."""


@dataclass(frozen=True, eq=False)
class Unit:
    """Runs for one worker, which differ only in their seeds: these lie in one block, and ascend.

    Attributes:
        kind: the agent; it travels with the unit, so that a worker need not have registered it.
        model_digest: what the problem must be on the worker.
        model: the problem itself if it came from a file, which another machine may not have.
    """

    runs: tuple[RunSettings, ...]
    kind: AgentKind
    model_digest: str
    model: SSP | None = None


def units_of(plan: Plan, wanted: Sequence[RunSettings]) -> list[Unit]:
    """Units that play the wanted runs of a plan, in the order of the plan."""
    blocks: dict[RunSettings, list[RunSettings]] = {}
    for run in wanted:
        width = find_agent(run.agent).width
        blocks.setdefault(replace(run, seed=run.seed - run.seed % width), []).append(run)
    digests = plan.models
    units = []
    for key, runs in blocks.items():
        from_file = not key.model.startswith(("env:", "gym:"))
        model = plan.problems[key.model] if from_file else None
        ordered = tuple(sorted(runs, key=lambda run: run.seed))
        units.append(Unit(ordered, find_agent(key.agent), digests[key.model], model))
    return units


def play_unit(unit: Unit, kept: dict[str, Problem] | None = None, most: int = MOST_KEPT) -> dict[int, xr.Dataset]:
    """Play the runs of a unit; the record of every wanted seed.

    Problems are kept between units, by their digests and `most` of them: by default those of this process.
    """
    problem, settings = _problem(unit, _KEPT if kept is None else kept, most), {run.seed: run for run in unit.runs}
    episodes, choices = unit.runs[0].episodes, unit.runs[0].choices()
    played = play_runs(problem.source, unit.kind, episodes, list(settings), choices, problem.optimum)
    return {run.seed: record(settings[run.seed], problem, run) for run in played}


_KEPT: dict[str, Problem] = {}


def _problem(unit: Unit, kept: dict[str, Problem], most: int) -> Problem:
    """The unit's problem, kept between units."""
    found = kept.get(unit.model_digest)
    if found is None:
        name = unit.runs[0].model
        found = prepare(unit.model if unit.model is not None else load_problem(name))
        if found.digest != unit.model_digest:
            raise BadInputError(
                f"{quote(name)} is another problem on this worker: install the same versions everywhere"
            )
        if len(kept) >= most:
            kept.clear()
        if isinstance(found.source, SSP):  # an environment has a state of its own: threads must not share it
            kept[unit.model_digest] = found
    return found


@dataclass(frozen=True)
class Failure:
    """Why a unit could not be played.

    Attributes:
        details: a traceback, for the log.
        final: whether trying again is pointless: the input is at fault.
    """

    message: str
    exit_code: int = 70
    details: str = ""
    final: bool = False


Answer: TypeAlias = dict[int, bytes] | Failure
"""Files of a unit's runs by seed, or why there are none."""
Played: TypeAlias = tuple[Unit, Answer]


def worth_another(answer: Answer, tries: int) -> bool:
    """Should a unit with this answer be given out again?"""
    return isinstance(answer, Failure) and not answer.final and tries < TRIES


def attempt(unit: Unit) -> Answer:
    """Play a unit and encode its records; whatever goes wrong is part of the answer."""
    try:
        return {seed: encode(record) for seed, record in play_unit(unit).items()}
    except BellmanifoldError as error:
        return Failure(str(error), error.exit_code, traceback.format_exc(), final=True)
    except Exception as error:
        return Failure(repr(error), details=traceback.format_exc())
