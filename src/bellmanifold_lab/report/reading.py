"""Reading the runs of a directory, cell by cell.

A *cell* is what a curve averages over: runs that differ only in their seeds. Runs are read one at a time, and only
their curves are kept: nine numbers per episode. A run that occurs twice, even under different names, is counted once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from bellmanifold.errors import BadInputError, BellmanifoldError
from bellmanifold.io.files import label, locate_errors, parse_json
from bellmanifold.io.models import load_problem
from bellmanifold.learning.metrics import first_episode
from bellmanifold.learning.record import LOSSES, read_settings, require_fit
from bellmanifold.learning.routes import read_routes
from bellmanifold.learning.run_file import read_arrays
from bellmanifold.learning.run_settings import RunSettings, digest
from bellmanifold.problem.ssp import SSP

REQUIRED = ("regret", "completed_regret", "goal_reached", "optimal", "coverage", "seconds_total", "optimal_value")
ROUNDING = 12
"""Decimal digits of a loss: an optimal policy's value equals the optimum up to rounding."""
CURVES = (*REQUIRED, *LOSSES, "gap_regret", "route", "route_probability")


class RunFile(NamedTuple):
    """A run's file and its settings."""

    path: Path
    settings: RunSettings


@dataclass(frozen=True)
class Stop:
    """Summary of a cell's runs that stopped exploring.

    Attributes:
        runs: number of these runs.
        episode: median over these runs of the first episode, counted from 1, without exploration.
        expected: expected loss in that episode, mean over these runs.
        true: true loss in that episode, mean over these runs; NaN if unknown.
    """

    runs: int
    episode: float
    expected: float
    true: float


@dataclass(eq=False)
class Cell:
    """Runs that differ only in their seeds.

    Attributes:
        settings: settings of the first run.
        regret: cumulative regret of each run as the paper defines it, shape (runs, episodes) when stacked; likewise
        completed: cumulative completed regret;
        gap: cumulative gap regret, NaN if unknown;
        arrived: 1 if the episode ended at the goal, otherwise 0;
        believed: probability that the agent assigned to the optimal routes, NaN if unknown;
        optimal: 1 if the policy played was optimal, otherwise 0, NaN if the optimum is unknown;
        coverage: share of pairs seen;
        expected_loss: expected loss of the agent's best policy, NaN without `until_loss`;
        true_loss: optimal value minus that of the policy played, NaN if unknown.
        stopped: first episode of each run, counted from 1, without exploration; None if the run never stopped.
    """

    settings: RunSettings
    runs: list[RunFile] = field(default_factory=list)
    regret: list[Float[np.ndarray, "episodes"]] = field(default_factory=list)
    completed: list[Float[np.ndarray, "episodes"]] = field(default_factory=list)
    gap: list[Float[np.ndarray, "episodes"]] = field(default_factory=list)
    arrived: list[Float[np.ndarray, "episodes"]] = field(default_factory=list)
    believed: list[Float[np.ndarray, "episodes"]] = field(default_factory=list)
    optimal: list[Float[np.ndarray, "episodes"]] = field(default_factory=list)
    coverage: list[Float[np.ndarray, "episodes"]] = field(default_factory=list)
    expected_loss: list[Float[np.ndarray, "episodes"]] = field(default_factory=list)
    true_loss: list[Float[np.ndarray, "episodes"]] = field(default_factory=list)
    stopped: list[int | None] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def first_optimal(self) -> list[int | None]:
        """First episode, counted from 1, in which each run played an optimal policy."""
        return [first_episode(flags == 1) for flags in self.optimal]

    @property
    def stop(self) -> Stop | None:
        """When its runs stopped exploring; None if none did."""
        found = [(run, episode) for run, episode in enumerate(self.stopped) if episode is not None]
        if not found:
            return None
        expected = float(np.mean([self.expected_loss[run][episode - 1] for run, episode in found]))
        true = float(np.mean([self.true_loss[run][episode - 1] for run, episode in found]))
        return Stop(len(found), float(np.median([episode for _, episode in found])), expected, true)

    @property
    def has_optimum(self) -> bool:
        """Whether the optimum is known for all runs."""
        return not np.isnan(self.optimal).any()


@dataclass(frozen=True, eq=False)
class Contents:
    """The contents of a directory.

    Attributes:
        cells: sorted by problem and agent.
        problems: the problem of each reference that could be loaded.
        missing: reference -> why its problem could not be loaded.
        made_by: (version, commit, library versions) -> number of runs made with them.
    """

    cells: list[Cell]
    problems: Mapping[str, SSP]
    missing: Mapping[str, str]
    made_by: Mapping[tuple[str, str, str], int]


def read_directory(directory: Path, one_more: Callable[[], None] = lambda: None) -> Contents:
    """Read all runs of a directory, the --out of `learn`, `sweep`, `demo` or `reproduce`; `one_more` marks progress."""
    cells: dict[RunSettings, Cell] = {}
    problems = _Problems(directory)
    made_by: dict[tuple[str, str, str], int] = {}
    counted: set[tuple[str, str]] = set()
    for path in find_runs(directory):
        found, attributes = read_arrays(path, CURVES)
        model_digest = attributes.get("model_digest", "")
        with locate_errors(label(path)):
            settings = read_settings(attributes)
            model = problems.get(settings.model, model_digest)
            require_fit(found, REQUIRED, settings.episodes, None if model is None else model.n_pairs)
        one_more()
        if (settings.identity, model_digest) in counted:
            continue
        counted.add((settings.identity, model_digest))
        cell = cells.setdefault(settings.cell, Cell(settings))
        cell.runs.append(RunFile(path, settings))
        cell.regret.append(np.cumsum(found["regret"]))
        cell.completed.append(np.cumsum(found["completed_regret"]))
        cell.gap.append(np.cumsum(gaps(found)))
        cell.arrived.append(found["goal_reached"].astype(np.float64))
        cell.optimal.append(np.where(np.isnan(found["optimal_value"]), np.nan, found["optimal"]))
        cell.coverage.append(found["coverage"])
        cell.believed.append(_belief_in_optimum(found, model))
        expected, true, stopped = losses(found)
        cell.expected_loss.append(expected)
        cell.true_loss.append(true)
        cell.stopped.append(first_episode(stopped))
        cell.seconds.append(float(found["seconds_total"]))
        maker = (attributes.get("version", ""), attributes.get("commit", ""), attributes.get("versions", "{}"))
        made_by[maker] = made_by.get(maker, 0) + 1
    ordered = sorted(cells.values(), key=lambda cell: (cell.settings.model, cell.settings.agent, str(cell.settings)))
    return Contents(ordered, problems.found, problems.missing, made_by)


def find_runs(directory: Path) -> list[Path]:
    """The result files of a directory and of its folder `runs`, sorted by name."""
    if not os.path.isdir(directory):
        fault = "not a directory" if os.path.exists(directory) else "no such directory"
        raise BadInputError(f"{label(directory)}: {fault}: give the --out of learn, sweep, demo or reproduce")
    found = sorted(directory.glob("*.nc")) + sorted((directory / "runs").glob("*.nc"))
    if not found:
        raise BadInputError(f"{label(directory)}: contains no runs: give the --out of learn, sweep, demo or reproduce")
    return found


class _Problems:
    """Problems by reference, provided that they have not changed since the runs were played."""

    def __init__(self, directory: Path, load: Callable[[str], Any] = load_problem) -> None:
        self.found: dict[str, SSP] = {}
        self.missing: dict[str, str] = {}
        self._directory, self._load = directory, load
        self._digest: dict[str, str] = {}

    def get(self, reference: str, model_digest: str) -> SSP | None:
        if reference not in self.found and reference not in self.missing:
            self._look_for(reference, model_digest)
        if reference in self.found and self._digest[reference] != model_digest:
            del self.found[reference]
            self.missing[reference] = "the problem has changed since these runs were made"
        return self.found.get(reference)

    def _look_for(self, reference: str, model_digest: str) -> None:
        """Load the problem from the first place with the right digest, or else from the first place that has one."""
        for place in _places(reference, self._directory):
            try:
                if _is_file(reference) and os.path.exists(place) and not os.path.isfile(place):
                    raise BadInputError(f"{label(place)}: is not a file")  # reading a pipe could block forever
                problem = self._load(place)
            except BellmanifoldError as error:
                self.missing.setdefault(reference, str(error))
                continue
            if not isinstance(problem, SSP):
                self.missing[reference] = "it has no transition table, so there is nothing to draw"
                return
            found = digest(problem)
            if reference not in self.found or found == model_digest:
                self.found[reference], self._digest[reference] = problem, found
            if found == model_digest:
                break
        if reference in self.found:
            self.missing.pop(reference, None)
        elif _is_file(reference) and not os.path.isabs(reference):
            self.missing[reference] += " (or run `report` where the runs were played)"


def _places(reference: str, directory: Path) -> list[str]:
    """Places of a reference's problem: a relative path is tried here, in the directory of runs and in its parents."""
    if not _is_file(reference) or os.path.isabs(reference):
        return [reference]
    home = directory.resolve()
    others = [str(place / reference) for place in (home, *home.parents)]
    return [reference, *(place for place in others if os.path.isfile(place))]


def _is_file(reference: str) -> bool:
    return not reference.startswith(("env:", "gym:"))


def losses(
    found: Mapping[str, np.ndarray],
) -> tuple[Float[np.ndarray, "episodes"], Float[np.ndarray, "episodes"], Bool[np.ndarray, "episodes"]]:
    """Expected and true loss of each episode, and whether exploration had stopped; NaN and False if not recorded."""
    unknown = np.full(len(found["completed_regret"]), np.nan)
    expected, true, stopped = (found.get(name, unknown) for name in LOSSES)
    return expected, np.round(true, ROUNDING), np.asarray(stopped > 0, dtype=np.bool_)


def gaps(found: Mapping[str, np.ndarray]) -> Float[np.ndarray, "episodes"]:
    """Gap regret of each episode; NaN if not recorded."""
    return np.asarray(found.get("gap_regret", np.full(len(found["completed_regret"]), np.nan)), dtype=np.float64)


def _belief_in_optimum(found: Mapping[str, np.ndarray], model: SSP | None) -> Float[np.ndarray, "episodes"]:
    """The probability that an agent assigned to the optimal routes in each episode; NaN if unknown."""
    if model is None or "route_probability" not in found or np.isnan(found["optimal_value"]):
        return np.full(len(found["regret"]), np.nan)
    best = read_routes(model, found["route"]).collecting(float(found["optimal_value"]))
    return found["route_probability"][:, best].sum(axis=1)


@lru_cache(maxsize=64)
def libraries(versions: str) -> str:
    """The recorded library versions as text."""
    try:
        found = parse_json(versions.encode("utf-8", "replace"))
    except BadInputError:
        return "unknown versions"
    return ", ".join(f"{name} {value}" for name, value in found.items())
