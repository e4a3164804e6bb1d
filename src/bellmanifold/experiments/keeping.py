"""Keeping the runs of `learn` in a directory, as a sweep of the same runs would."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bellmanifold.agents.registry import find_agent
from bellmanifold.agents.settings import Value
from bellmanifold.experiments.measured import Run
from bellmanifold.experiments.plan import make_settings, plan_runs
from bellmanifold.experiments.runs import prepare, record
from bellmanifold.experiments.store import Store, encode


@contextmanager
def keep_runs(out: Path, entry: Mapping[str, Value], seeds: range) -> Iterator[Callable[[Run], None]]:
    """Claim a directory for some runs; what is handed over writes one of them.

    Args:
        out: the directory; refused if it belongs to other runs.
        entry: what the runs share: model, agent, episodes and the agent's options (None means not given).
        seeds: their seeds.
    """
    shared = {name: value for name, value in entry.items() if value is not None}
    find_agent(str(entry["agent"])).resolve_options(
        {k: v for k, v in shared.items() if k not in ("model", "agent", "episodes")}
    )
    plan = plan_runs([make_settings({**shared, "seed": seed}) for seed in seeds])
    settings = {run.seed: run for run in plan.runs}
    problem = prepare(plan.problems[str(entry["model"])])
    store = Store(out)
    with store.claim(plan):
        yield lambda run: store.write(settings[run.seed], encode(record(settings[run.seed], problem, run)))
