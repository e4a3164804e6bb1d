"""Runs read back from their files, so that `learn --out` goes on where it was interrupted.

A record (`bellmanifold.learning.record`) numbers pairs as the problem does; a `Run` numbers them in the order of
actions that its seed drew. That order is drawn again here, so a run that was read equals the one that was written,
except for the order of its routes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import xarray as xr
from jaxtyping import Int

from bellmanifold.agents.registry import find_agent
from bellmanifold.agents.settings import Value
from bellmanifold.errors import BadInputError
from bellmanifold.io.models import load_whole
from bellmanifold.learning.episodes import End, Episode
from bellmanifold.learning.record import LATER, Problem, prepare, record, require_fit
from bellmanifold.learning.run import Run, world_of_run
from bellmanifold.learning.run_file import (
    encode,
    fault_of,
    file_name,
    load_run,
    make_directory,
    other_version,
    write_run,
)
from bellmanifold.learning.run_settings import RunSettings, make_settings

MEASURES = ("regret", "completed_regret", "expected_regret", "optimal", "coverage", "capped", "moves")
ALWAYS = (*MEASURES, "goal_reached", "optimal_value", "policy", "pair", "reward")
DIAGNOSTIC = "diagnostic_"


@contextmanager
def keep_runs(
    out: Path, entry: Mapping[str, Value], seeds: range, say: Callable[[str], object] = print
) -> Iterator[tuple[Mapping[int, Run], Callable[[Run], None]]]:
    """A directory for the runs of `learn`; yields those of its runs that it holds, and how to write another.

    `entry` holds the settings shared by the runs: model, agent, episodes and options (None means not given). Files that
    are damaged, or of a version that recorded less, are `say`ed and left out: their runs are to be played again. Runs
    of another version of the problem are refused.
    """
    shared = {name: value for name, value in entry.items() if value is not None}
    source = load_whole(str(entry["model"]), "learn", needs_table=False)
    settings = {seed: make_settings({**shared, "seed": seed}, source) for seed in seeds}
    problem = prepare(source)
    make_directory(out)
    kept: dict[int, Run] = {}
    for seed, own in settings.items():
        path = out / file_name(own)
        fault = fault_of(path, own, problem.digest)
        if fault == other_version(path, own):
            raise BadInputError(f"{fault}: choose another --out, or remove what is there")
        try:
            if fault is None:
                kept[seed] = read_run(own, problem, load_run(path))
        except BadInputError as error:
            fault = f"{path}: {error}"
        if fault not in (None, "missing"):
            say(f"{fault}; playing it again")

    def keep(run: Run) -> None:
        own = settings[run.seed]
        write_run(out / file_name(own), encode(record(own, problem, run)))

    yield kept, keep


def read_run(settings: RunSettings, problem: Problem, stored: xr.Dataset) -> Run:
    """The run in a record; raises `BadInputError` if the record is inconsistent or lacks something."""
    found = {str(name): array.values for name, array in stored.variables.items()}
    missing = [name for name in LATER if name not in found]
    if missing:
        raise BadInputError(f"made by a version that did not record {missing[0]}")
    require_fit(found, ALWAYS, settings.episodes, problem.model.n_pairs)
    kind = find_agent(settings.agent)
    model = world_of_run(problem.source, settings.seed, kind.own_order).model
    original = model.numbers_in(problem.model)
    number = np.argsort(original)
    shown, mean = (found[name][:, original] if name in found else None for name in ("action_probability", "q_mean"))
    solved = float(found["solved_episode"])
    return Run(
        agent=settings.agent,
        options=kind.resolve_options(kind.with_stated(model, settings.choices())),
        seed=settings.seed,
        optimal_value=float(found["optimal_value"]),
        **{name: found[name] for name in (*MEASURES, "gap_regret")},
        reached_goal=found["goal_reached"],
        seconds=found["seconds_episode"],
        solved_episode=None if np.isnan(solved) else int(solved),
        routes=_routes(found, number),
        route_probability=found.get("route_probability", np.zeros((settings.episodes, 0))),
        action_probability=shown,
        q_mean=mean,
        diagnostics=_diagnostics(found),
        played=tuple(_episodes(found, number)),
        model=model,
    )


def _diagnostics(found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.removeprefix(DIAGNOSTIC): values for name, values in found.items() if name.startswith(DIAGNOSTIC)}


def _routes(found: Mapping[str, np.ndarray], number: Int[np.ndarray, "pairs"]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(number[row[row >= 0]].tolist()) for row in found.get("route", ()))


def _episodes(found: Mapping[str, np.ndarray], number: Int[np.ndarray, "pairs"]) -> Iterator[Episode]:
    begin = np.concatenate([[0], np.cumsum(found["moves"])])
    diagnostics = _diagnostics(found)
    for k in range(len(found["moves"])):
        own = slice(begin[k], begin[k + 1])
        end: End = "loop"
        if found["goal_reached"][k]:
            end = "goal"
        elif found["capped"][k]:
            end = "cap"
        elif found["cut_off"][k]:
            end = "cut off"
        said = {name: float(values[k]) for name, values in diagnostics.items() if not np.isnan(values[k])}
        yield Episode(
            pairs=number[found["pair"][own]],
            rewards=found["reward"][own],
            end=end,
            policy=number[found["policy"][k]],
            last=int(found["last"][k]),
            diagnostics=said,
            changed=bool(found["changed"][k]),
        )
