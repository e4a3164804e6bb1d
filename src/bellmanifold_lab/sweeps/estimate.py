"""A rough estimate of how long a plan will take, from finished runs and from short trials.

Runs of one *cell* differ only in their seeds, so a finished run of a cell shows how long the others will take. For a
cell without one, a trial of a few episodes is played. The extra time of its first episode (which compiles programs) is
counted once, and the mean time of the others is multiplied by the number of episodes. When trials have taken `BUDGET`
seconds, the remaining cells are assumed to take the mean time per episode of known cells of the same agent.
Posterior work grows while an agent explores and stops when it has seen everything, so the estimate can be off by some
factor in either direction.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bellmanifold.errors import BellmanifoldError
from bellmanifold.learning.record import prepare
from bellmanifold.learning.run import play_run
from bellmanifold.learning.run_file import read_arrays
from bellmanifold.learning.run_settings import RunSettings
from bellmanifold_lab.sweeps.plan import Plan
from bellmanifold_lab.sweeps.store import Store

TRIAL_EPISODES = 5
BUDGET = 20.0


@dataclass
class TimeEstimate:
    """Estimated seconds for a run of each cell, and how they were found.

    Attributes:
        seconds: seconds per run, by cell (a run's settings with seed 0); None where nothing is known.
        starting: extra seconds of the first run of a cell.
        refused: cells that cannot be run, and why.
        tried, found, guessed: numbers of cells estimated from a trial, from a finished run, and from other cells.
    """

    seconds: dict[RunSettings, float | None] = field(default_factory=dict)
    starting: dict[RunSettings, float] = field(default_factory=dict)
    refused: dict[RunSettings, str] = field(default_factory=dict)
    tried: int = 0
    found: int = 0
    guessed: int = 0

    def total(self, runs: Sequence[RunSettings]) -> float:
        """Seconds that the given runs take in one process; runs that are refused take none."""
        return sum(self.starting.values()) + sum(self.seconds.get(run.cell) or 0.0 for run in runs)


def estimate(plan: Plan, missing: Sequence[RunSettings], store: Store, budget: float = BUDGET) -> TimeEstimate:
    """Estimate how long the missing runs of a plan take, with trials of about `budget` seconds in total."""
    result = TimeEstimate()
    wanted = dict.fromkeys(run.cell for run in missing)
    there = set(plan.runs) - set(missing)
    for run in there:
        if run.cell in wanted and run.cell not in result.seconds:
            found, _ = read_arrays(store.path(run), ["seconds_total"])
            result.seconds[run.cell] = float(found["seconds_total"])
            result.found += 1
    deadline = time.monotonic() + budget
    for run in missing:
        cell = run.cell
        if cell not in result.seconds and cell not in result.refused and time.monotonic() < deadline:
            _try(result, run, plan)
    for cell in wanted:
        if cell not in result.seconds and cell not in result.refused:
            result.seconds[cell] = _guess(result, cell)
            result.guessed += 1
    return result


def _try(result: TimeEstimate, run: RunSettings, plan: Plan) -> None:
    episodes = min(run.episodes, TRIAL_EPISODES)
    try:
        problem = prepare(plan.problems[run.model])
        each = play_run(problem.source, run.agent, episodes, run.seed, run.choices(), problem.optimum).seconds
    except BellmanifoldError as error:
        result.refused[run.cell] = str(error)
    else:
        usual = float(each[1:].mean()) if len(each) > 1 else float(each[0])
        result.seconds[run.cell] = usual * run.episodes
        result.starting[run.cell] = max(float(each[0]) - usual, 0.0)
        result.tried += 1


def _guess(result: TimeEstimate, cell: RunSettings) -> float | None:
    known = {other: s for other, s in result.seconds.items() if s is not None}
    like = [s / other.episodes for other, s in known.items() if other.agent == cell.agent]
    like = like or [s / other.episodes for other, s in known.items()]
    return cell.episodes * sum(like) / len(like) if like else None
