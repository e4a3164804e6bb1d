"""Exploration: how many episodes and seconds it takes to solve bsuite's deep sea, and how both grow with its size.

Each row is one run of `manifold --explore directed` with compilation, as in a fresh process: seconds are those of all
episodes up to the one at which bsuite's rule calls the run solved. A run notes the clock alone, so that share of its
processor time is given. N = 50 and 100 take part unless `--quick`.

`python benchmarks/deep_exploration.py --table [NAME ...]` plays what `docs/agents.md` shows instead: regret, the
episode at which a run is solved and the one from which it plays an optimal policy for good, ten runs each (where ten
take more than ten minutes: fewer), beside Thompson sampling and an agent without a posterior. `--workers` plays runs
beside each other, each in a process of its own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import numpy as np
from measuring import Goal, Row, Times, report

import bellmanifold as bm
from bellmanifold.learning.run import Run

EPISODES = {10: 60, 20: 100, 50: 180, 100: 320, 200: 600}
"""More than solving is known to take."""
GOALS = {50: Goal(seconds=10.0), 100: Goal(seconds=60.0), 200: Goal(seconds=600.0)}


def learnt(size: int, seed: int) -> tuple[Run, float, float]:
    """One run, with processor seconds and seconds by the clock until it was solved (or to its end)."""
    model = bm.envs.deep_sea(depth=size, convention="bsuite")
    begin = time.process_time(), time.perf_counter()
    learning = bm.learn(model, "manifold", episodes=EPISODES[size], runs=1, seed=seed, explore="directed")
    processor, clock = time.process_time() - begin[0], time.perf_counter() - begin[1]
    run = learning.runs[0]
    until = float(run.seconds[: run.solved_episode].sum())
    return run, until * processor / clock, until


def exponent(sizes: list[int], values: list[float]) -> float:
    """Slope of a straight line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def rows(quick: bool) -> Iterator[Row]:
    """One row for each size."""
    sizes = [10, 20] if quick else [10, 20, 50, 100]
    solved: list[float] = []
    for size in sizes:
        runs = [learnt(size, seed) for seed in range(3 if size < 50 else 1)]
        times = Times("manifold, directed", [runs[0][1]], [runs[0][2]])
        episodes = [run.solved_episode for run, _, _ in runs]
        solved.append(float(np.mean([EPISODES[size] if episode is None else episode for episode in episodes])))
        note = f"solved at episodes {', '.join(str(episode) for episode in episodes)}"
        if len(solved) > 1:
            note += f"; so far episodes grow as N^{exponent(sizes[: len(solved)], solved):.2f}"
        yield Row(
            f"deep sea {size} by manifold, directed",
            times,
            goal=GOALS.get(size),
            notes=note,
            extra={"solved_episodes": episodes},
        )


@dataclass(frozen=True)
class Case:
    """A line of the table.

    Attributes:
        problem: what is learnt.
        episodes, runs: how many.
        agents: label -> agent and its options.
    """

    problem: str
    episodes: int
    runs: int = 10
    agents: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)


THOMPSON = {"Thompson": ("manifold", {})}
DIRECTED = {"directed": ("manifold", {"explore": "directed"})}
NEAREST = {"nearest": ("nearest", {})}
REPLAN = {"directed, replan": ("manifold", {"explore": "directed", "replan": True})}
NEAREST_ON = {"nearest, replan": ("nearest", {"replan": True})}
OPEN = {"directed, dirichlet": ("manifold", {"explore": "directed", "laws": "dirichlet"})}
SMALL = THOMPSON | DIRECTED | NEAREST
SEA = "env:deep-sea?depth={}&convention=bsuite"
CASES = {
    "deep-sea-5": Case("env:deep-sea?depth=5", 200, agents=SMALL),
    "deep-sea-10": Case("env:deep-sea?depth=10", 200, agents=SMALL),
    "pyramid-5": Case("env:pyramid?depth=5", 200, agents=SMALL),
    "swirl-5": Case("env:swirl?depth=5", 200, agents=SMALL),
    "bsuite-20": Case(SEA.format(20), EPISODES[20], agents=DIRECTED | NEAREST),
    "bsuite-50": Case(SEA.format(50), EPISODES[50], agents=DIRECTED | NEAREST),
    "bsuite-100": Case(SEA.format(100), EPISODES[100], agents=DIRECTED | NEAREST),
    "bsuite-200": Case(SEA.format(200), EPISODES[200], agents=DIRECTED | NEAREST),
    "laws-10": Case(SEA.format(10), 60, agents=OPEN),
    "laws-20": Case(SEA.format(20), 160, agents=OPEN),
    "laws-40": Case(SEA.format(40), 300, 1, agents=OPEN),
    "cliff": Case("gym:CliffWalking-v1", 150, agents=THOMPSON | DIRECTED | REPLAN | NEAREST_ON),
    "taxi": Case("gym:Taxi-v4", 100, 3, agents=REPLAN | NEAREST_ON),
}


def for_good(run: Run) -> int | None:
    """The episode from which on all policies were optimal."""
    bad = np.flatnonzero(~run.optimal)
    first = 1 if not len(bad) else int(bad[-1]) + 2
    return first if first <= len(run.optimal) else None


def played(task: tuple[str, str, int]) -> tuple[Run, float]:
    """A run of the table, with its processor seconds."""
    name, label, seed = task
    case = CASES[name]
    agent, options = case.agents[label]
    begin = time.process_time()
    return bm.learn(case.problem, agent, case.episodes, 1, seed, **options).runs[0], time.process_time() - begin


def table(names: list[str], workers: int) -> None:
    """Print lines of the table, each as soon as it is played."""
    print("| problem | agent | runs | completed regret (sd) | solved | optimal for good | arrived | seconds per run |")
    print("|---|---|---|---|---|---|---|---|")
    lines = [(name, label) for name in names or CASES for label in CASES[name].agents]
    with get_context("spawn").Pool(workers) as pool:
        tasks = [(name, label, seed) for name, label in lines for seed in range(CASES[name].runs)]
        results = pool.imap(played, tasks)
        for name, label in lines:
            found = [next(results) for _ in range(CASES[name].runs)]
            runs, seconds = [run for run, _ in found], np.mean([used for _, used in found])
            regret = np.array([run.completed_regret.sum() for run in runs])
            sd = f" ({regret.std(ddof=1):.2g})" if len(runs) > 1 else ""
            solved = _episodes([run.solved_episode for run in runs])
            good = _episodes([for_good(run) for run in runs])
            arrived = np.mean([run.reached_goal for run in runs])
            told = f"| {name} | {label} | {len(runs)} | {regret.mean():.4g}{sd} | {solved} | {good} "
            print(f"{told}| {arrived:.0%} | {seconds:.1f} |", flush=True)


def _episodes(found: list[int | None]) -> str:
    """Mean, least and most of the runs that got there, and how many did not."""
    reached = [episode for episode in found if episode is not None]
    if not reached:
        return "-"
    never = f", {len(found) - len(reached)} never" if len(reached) < len(found) else ""
    return f"{np.mean(reached):.4g} ({min(reached)} to {max(reached)}{never})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", nargs="*", choices=list(CASES), default=None)
    parser.add_argument("--workers", type=int, default=1)
    asked, _ = parser.parse_known_args()
    if asked.table is None:
        report(rows)
    else:
        table(asked.table, asked.workers)
