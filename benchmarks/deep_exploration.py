"""bsuite's deep sea of growing size learnt by `manifold`: seconds, episodes to solve, and how they grow.

Seconds are those until the episode at which bsuite's rule calls a run solved. A run notes the clock alone, so that
share of its processor time is given. Each size is learnt once before, to compile. N = 50 takes part unless `--quick`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from measuring import Goal, Row, Times, report

import bellmanifold as bm
from bellmanifold.runs.run import Run

EPISODES = {10: 150, 20: 300, 30: 500, 50: 1000}
"""Twice what solving is known to take, at least."""
GOALS = {50: Goal(seconds=30.0)}


def learnt(size: int, seed: int) -> tuple[Run, float, float]:
    """One run, with processor seconds and seconds by the clock until it was solved (or to its end)."""
    model = bm.envs.deep_sea(depth=size, convention="bsuite")
    begin = time.process_time(), time.perf_counter()
    run = bm.learn(model, "manifold", episodes=EPISODES[size], runs=1, seed=seed).runs[0]
    processor, clock = time.process_time() - begin[0], time.perf_counter() - begin[1]
    until = float(run.seconds[: run.solved_episode].sum())
    return run, until * processor / clock, until


def exponent(sizes: list[int], values: list[float]) -> float:
    """Slope of a straight line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def rows(quick: bool) -> Iterator[Row]:
    """One row for each size."""
    sizes = [10, 20, 30] if quick else [10, 20, 30, 50]
    solved: list[float] = []
    taken: list[float] = []
    for size in sizes:
        first = learnt(size, 0)
        runs = [learnt(size, seed) for seed in ((1, 2) if size < 50 else (1,))]
        times = Times("manifold", [run[1] for run in runs], [run[2] for run in runs])
        episodes = [run.solved_episode for run, _, _ in (first, *runs)]
        solved.append(float(np.mean([EPISODES[size] if episode is None else episode for episode in episodes])))
        taken.append(times.seconds)
        note = f"solved at episodes {', '.join(str(episode) for episode in episodes)}"
        if len(solved) > 1:
            known = sizes[: len(solved)]
            note += (
                f"; so far episodes grow as N^{exponent(known, solved):.2f}, seconds as N^{exponent(known, taken):.2f}"
            )
        yield Row(
            f"deep sea {size} by manifold",
            times,
            goal=GOALS.get(size),
            compile_seconds=max(0.0, first[1] - times.seconds),
            notes=note,
            extra={"solved_episodes": episodes},
        )


if __name__ == "__main__":
    report(rows)
