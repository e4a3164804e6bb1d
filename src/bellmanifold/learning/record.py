"""The record of a run, as the data set stored in its file, and the validation of records read from files.

Whatever order of actions a run drew, its record numbers pairs as `load_model(settings.model)` does, so that runs can be
compared and replayed without knowing their orders.

A seal shows that a file was not damaged, not who wrote it. Files from any source are validated here: settings must be
valid, and every array must have the shape and every index the range that the program relies on.
"""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import bellmanifold
from bellmanifold.agents.environments import open_world
from bellmanifold.errors import BadInputError, quote
from bellmanifold.io.files import number, parse_json, text
from bellmanifold.learning.metrics import Optimum, find_optimum
from bellmanifold.learning.routes import filled_up
from bellmanifold.learning.run import Run, play_seed
from bellmanifold.learning.run_settings import LARGEST, RunSettings, digest
from bellmanifold.problem.ssp import SSP

FORMAT = "bellmanifold.run/1"
_LIBRARIES = ("numpy", "scipy", "jax", "jaxlib", "xarray", "gymnasium")
LOSSES = ("diagnostic_expected_loss", "expected_regret", "diagnostic_stopped")
"""Expected loss of a run with `until_loss`, its true loss, and whether it had stopped exploring."""
LATER = ("gap_regret", "last", "changed", "cut_off")
"""What files of earlier versions lack: to readers it is unknown there."""
EACH_EPISODE = (
    *("regret", "completed_regret", "optimal", "coverage", "total_reward", "goal_reached", "capped", "moves"),
    *(*LOSSES, *LATER),
)
SINGLE = ("seconds_total", "optimal_value")
WHOLE = ("moves", "last", "pair", "policy", "route")


@dataclass(frozen=True, eq=False)
class Problem:
    """A problem to play runs on.

    Attributes:
        source: an `SSP`, or a Gymnasium environment without a table.
        model: its states and pairs in their original order.
    """

    source: Any
    model: SSP
    digest: str
    optimum: Optimum


def prepare(source: Any) -> Problem:
    """Solve a problem, so that runs on it can be measured."""
    world = open_world(source)
    return Problem(source, world.model, digest(world.model), find_optimum(world.model, world.has_laws))


def record(settings: RunSettings, problem: Problem, run: Run) -> xr.Dataset:
    """The record of a run, with one entry per episode; see `bellmanifold.learning.metrics` for the measures.

    `last` is the state in which an episode ended, with the number of states for the goal; `changed` says whether the
    policy was replaced on the way. `pair` and `reward` list the pairs played and their rewards, move by move; entry k
    of `moves` is the number of moves in episode k. `action_probability` and `q_mean`, if present, are the agent's
    beliefs about each pair when it chose the policy, NaN where unknown. `solved_episode` is NaN if the problem was not
    solved or bsuite's rule does not apply.
    """
    numbers = run.model.numbers_in(problem.model).astype(np.int32)
    each: dict[str, Any] = {
        "regret": run.regret,
        "completed_regret": run.completed_regret,
        "expected_regret": run.expected_regret,
        "gap_regret": run.gap_regret,
        "total_reward": run.reward,
        "goal_reached": run.reached_goal,
        "optimal": run.optimal,
        "coverage": run.coverage,
        "capped": run.capped,
        "moves": run.moves.astype(np.int32),
        "last": np.array([episode.last for episode in run.played], dtype=np.int32),
        "changed": np.array([episode.changed for episode in run.played]),
        "cut_off": np.array([episode.end == "cut off" for episode in run.played]),
        "seconds_episode": run.seconds,
    } | {f"diagnostic_{name}": values for name, values in run.diagnostics.items()}
    data: dict[str, Any] = {name: (("episode",), values) for name, values in each.items()}
    data["policy"] = (("episode", "state"), numbers[np.array([episode.policy for episode in run.played])])
    data["pair"] = (("move",), numbers[np.concatenate([episode.pairs for episode in run.played])])
    data["reward"] = (("move",), np.concatenate([episode.rewards for episode in run.played]))
    if run.routes:
        pairs = filled_up(run.routes)
        data["route"] = (("route_number", "step"), np.where(pairs < 0, -1, numbers[pairs]).astype(np.int32))
        data["route_probability"] = (("episode", "route_number"), run.route_probability)
    for name, values in (("action_probability", run.action_probability), ("q_mean", run.q_mean)):
        if values is not None:
            data[name] = (("episode", "pair_number"), values[:, np.argsort(numbers)])
    data["seconds_total"] = ((), float(run.seconds.sum()))
    data["optimal_value"] = ((), run.optimal_value)
    data["solved_episode"] = ((), np.nan if run.solved_episode is None else float(run.solved_episode))
    counted = {"episode": np.arange(1, len(run.played) + 1, dtype=np.int32)}
    attributes = {
        "format": FORMAT,
        "settings": json.dumps(settings.to_dict()),
        "identity": settings.identity,
        "play_seed": str(play_seed(settings.seed)),
        "model_digest": problem.digest,
        **versions(),
    }
    return xr.Dataset(data, counted, attributes)


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions of this package and of the libraries its results depend on."""
    found = {"python": platform.python_version(), "machine": platform.platform()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"version": bellmanifold.__version__, "commit": _commit(), "versions": json.dumps(found)}


def _commit() -> str:
    """The commit of this package's source, with "-dirty" if it was modified; empty if it is not a checkout."""
    home = Path(bellmanifold.__file__).parent
    ours = ("git", "-C", str(home), "ls-files", "--error-unmatch", "__init__.py")
    name = ("git", "-C", str(home), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")
    try:
        subprocess.run(ours, capture_output=True, check=True, timeout=10)
        return subprocess.run(name, capture_output=True, check=True, timeout=10, text=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def read_settings(attributes: Mapping[str, str]) -> RunSettings:
    """The settings of a run from the attributes of its file."""
    entry = parse_json(attributes.get("settings", "").encode("utf-8", "replace"))
    for name in ("model", "agent"):
        text(entry.get(name), name)
    for name in ("episodes", "seed"):
        value = entry.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
            raise BadInputError(f"{name} is {quote(value)}: not the settings of a run; remove the file")
    for name, value in entry.items():
        if not isinstance(value, (str, bool)):
            number(value, quote(name))
    return RunSettings.from_dict(entry)


def require_fit(found: Mapping[str, Any], required: Iterable[str], episodes: int, pairs: int | None) -> None:
    """Raise if arrays of a run are missing or inconsistent; `pairs` is None if the problem is not known."""
    for name in required:
        _require(name in found, f"{name} is missing")
    for name, array in found.items():
        _require(array.dtype.kind in ("iu" if name in WHOLE else "biuf"), f"{name} has the wrong type of numbers")
        if name in SINGLE:
            _require(array.shape == (), f"{name} is not one number")
        if name in EACH_EPISODE:
            _require(array.shape == (episodes,), f"{name} does not have one entry per episode")
        if name in ("action_probability", "q_mean") and pairs is not None:
            _require(array.shape == (episodes, pairs), f"{name} does not have one entry per episode and pair")
    if "pair" in found and "moves" in found:
        pair, moves = found["pair"], found["moves"]
        fits = pair.ndim == 1 and np.all((moves >= 0) & (moves <= len(pair))) and moves.sum() == len(pair)
        _require(fits, "moves and pair disagree")
        _require(pairs is None or np.all((pair >= 0) & (pair < pairs)), "pair is not one of the problem's")
    if "route" in found or "route_probability" in found:
        _require_routes(found, episodes, pairs)


def _require_routes(found: Mapping[str, Any], episodes: int, pairs: int | None) -> None:
    _require("route" in found and "route_probability" in found, "routes are incomplete")
    route = found["route"]
    _require(
        route.ndim == 2 and route.shape[1] > 0 and found["route_probability"].shape == (episodes, len(route)),
        "routes and their probabilities disagree",
    )
    filled = route >= 0
    tidy = np.all(route >= -1) and filled[:, 0].all() and np.all(filled[:, :-1] >= filled[:, 1:])
    _require(tidy and (pairs is None or np.all(route < pairs)), "a route is not one of the problem's")


def _require(condition: Any, fault: str) -> None:
    if not condition:
        raise BadInputError(f"{fault}: not a result of this program, or of another version; remove it")
