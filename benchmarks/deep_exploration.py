"""bsuite's deep sea of growing size learnt by `manifold`: seconds, episodes to solve, and how they grow.

The run is made once for each size; seconds are those until the episode at which bsuite's rule calls it solved,
compilation included. N = 50 takes part unless `--quick`. A first run of size 10 is not counted: it imports everything.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from measuring import Goal, Row, Times, report

import bellmanifold as bm
from bellmanifold.experiments.measured import Run

EPISODES = {10: 150, 20: 300, 30: 500, 50: 1000}
"""Twice what solving is known to take, at least."""
GOALS = {50: Goal(seconds=30.0)}


def learnt(size: int, seed: int) -> Run:
    """One run."""
    model = bm.envs.deep_sea(depth=size, convention="bsuite")
    return bm.learn(model, "manifold", episodes=EPISODES[size], runs=1, seed=seed).runs[0]


def exponent(sizes: list[int], values: list[float]) -> float:
    """Slope of a straight line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def rows(quick: bool) -> Iterator[Row]:
    """One row for each size."""
    sizes = [10, 20, 30] if quick else [10, 20, 30, 50]
    seeds = range(2)
    learnt(10, 99)
    solved: list[float] = []
    taken: list[float] = []
    for size in sizes:
        runs = [learnt(size, seed) for seed in (seeds if size < 50 else range(1))]
        done = [run.solved_episode for run in runs]
        until = [float(run.seconds[: run.solved_episode].sum()) for run in runs]
        times = Times("manifold", until, until)
        solved.append(float(np.mean([EPISODES[size] if episode is None else episode for episode in done])))
        taken.append(times.seconds)
        note = f"solved at episode {', '.join(str(e) for e in done)} of {EPISODES[size]}; by the clock"
        if len(solved) > 1:
            episodes, seconds = exponent(sizes[: len(solved)], solved), exponent(sizes[: len(solved)], taken)
            note += f"; so far episodes grow as N^{episodes:.2f}, seconds as N^{seconds:.2f}"
        yield Row(f"deep sea {size} by manifold", times, goal=GOALS.get(size), notes=note, extra={"episodes": done})


if __name__ == "__main__":
    report(rows)
