"""Units of work for processes, how a worker plays them, and its answers.

**A unit** is what one worker plays at a time: runs that differ only in their seeds. The seeds come from one *block*,
the seeds k W, ..., k W + W - 1 for the agent's fixed width W. Agents that move the chains of a whole block in one
program (`AgentKind.make_block`) always play all of the block's seeds, even if only some are wanted: the number of
rows of a batched program can change the last bits of every row. All others have width 1 and play one run at a time.
Either way a run's results depend only on its settings, not on the plan it is part of, on what was resumed, or on the
workers.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import xarray as xr

from bellmanifold.agents.registry import AgentKind, find_agent
from bellmanifold.errors import BadInputError, BellmanifoldError, quote
from bellmanifold.io.models import load_problem
from bellmanifold.learning.record import Problem, prepare, record
from bellmanifold.learning.run import play_runs
from bellmanifold.learning.run_file import encode
from bellmanifold.learning.run_settings import RunSettings
from bellmanifold.problem.ssp import SSP
from bellmanifold_lab.sweeps.plan import Plan

TRIES = 2
"""Number of attempts at a unit if its worker dies or fails in a way that may not happen again."""
MOST_KEPT = 8
"""Number of problems that a process caches between units."""


@dataclass(frozen=True, eq=False)
class Unit:
    """Runs for one worker that differ only in their seeds, which are from one block, in ascending order.

    Attributes:
        kind: the agent; it is sent with the unit, so that a worker need not have registered it.
        model_digest: digest that the problem must have on the worker.
        model: the problem itself if it came from a file, which another machine may not have.
    """

    runs: tuple[RunSettings, ...]
    kind: AgentKind
    model_digest: str
    model: SSP | None = None


def units_of(plan: Plan, wanted: Sequence[RunSettings]) -> list[Unit]:
    """Units for the wanted runs of a plan, in the order of the plan."""
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

    At most `most` problems are cached between units, by their digests; `kept` is by default the cache of this process.
    """
    problem, settings = _problem(unit, _KEPT if kept is None else kept, most), {run.seed: run for run in unit.runs}
    episodes, choices = unit.runs[0].episodes, unit.runs[0].choices()
    played = play_runs(problem.source, unit.kind, episodes, list(settings), choices, problem.optimum)
    return {run.seed: record(settings[run.seed], problem, run) for run in played}


_KEPT: dict[str, Problem] = {}


def _problem(unit: Unit, kept: dict[str, Problem], most: int) -> Problem:
    """The unit's problem, cached between units."""
    found = kept.get(unit.model_digest)
    if found is None:
        name = unit.runs[0].model
        found = prepare(unit.model if unit.model is not None else load_problem(name))
        if found.digest != unit.model_digest:
            raise BadInputError(
                f"{quote(name)} is a different problem on this worker: install the same versions everywhere"
            )
        if len(kept) >= most:
            kept.clear()
        if isinstance(found.source, SSP):  # environments are stateful: threads must not share them
            kept[unit.model_digest] = found
    return found


@dataclass(frozen=True)
class Failure:
    """Why a unit could not be played.

    Attributes:
        details: a traceback, for the log.
        final: whether another attempt is pointless, because the input is at fault.
    """

    message: str
    exit_code: int = 70
    details: str = ""
    final: bool = False


Answer: TypeAlias = dict[int, bytes] | Failure
"""Files of a unit's runs by seed, or why there are none."""
Played: TypeAlias = tuple[Unit, Answer]


def worth_another(answer: Answer, tries: int) -> bool:
    """Whether a unit with this answer should be attempted again."""
    return isinstance(answer, Failure) and not answer.final and tries < TRIES


def attempt(unit: Unit) -> Answer:
    """Play a unit and encode its records; exceptions are returned as a `Failure`."""
    try:
        return {seed: encode(record) for seed, record in play_unit(unit).items()}
    except BellmanifoldError as error:
        return Failure(str(error), error.exit_code, traceback.format_exc(), final=True)
    except Exception as error:
        return Failure(repr(error), details=traceback.format_exc())
