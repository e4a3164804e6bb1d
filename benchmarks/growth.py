"""How time and memory grow with depth, pairs, observations and cells.

    python benchmarks/growth.py --out out/growth.json --image docs/images/growth.png

Every point is measured in a process of its own: processor time on one thread (the least of three repeats, after
compilation) and the largest resident set above that of the imports. Exponents are slopes of straight lines through the
logarithms; for memory only points above 4 MiB count, since smaller ones are the allocator's.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bellmanifold import envs
from bellmanifold._util.jax_setup import random_key
from bellmanifold.chart.batch import known_chart
from bellmanifold.learning.environment import ONE_THREAD
from bellmanifold.mdp.solver import solve
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.sparse_system import SparseSystem
from bellmanifold.posteriors.system import system_of
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.posteriors.weight import propose
from bellmanifold.problem.dataset import Dataset
from bellmanifold_paper.engines.mixture import mixture

SMALLEST_MIB = 4.0
Job = tuple[float, Callable[[], object]]
"""The size that is really reached, and what is timed."""


def by_depth(depth: int) -> Job:
    """1,024 weighed draws in the chart of a deep sea, half of the pairs seen."""
    model = envs.deep_sea(depth=depth)
    pairs = np.flatnonzero(np.random.default_rng(0).random(model.n_pairs) < 0.5)
    target = relaxed_target(Dataset(model, pairs, model.reward[pairs]), 0.0, 10.0)
    system = system_of(Coordinates(target), known_chart(model, target.observed))
    return float(depth), lambda: jax.block_until_ready(propose(system, random_key(0), 1024).log_weight)


def by_pairs(side: int) -> Job:
    """The solution of a slippery grid."""
    model = envs.grid(side, side, slip=0.1)
    return float(model.n_pairs), lambda: solve(model)


def by_observations(side: int) -> Job:
    """Ten evaluations on a slippery grid of 100,000 pairs, a square of which has been seen: points 0.1 radian apart.

    Slice steps would not do: how many evaluations they take is random.
    """
    model = envs.grid(rows=160, columns=157, slip=0.1)
    cells = np.array([[int(part) for part in name.split(",")] for name in model.states])
    pairs = np.flatnonzero((cells < side).all(axis=1)[model.pair_state])
    system = SparseSystem(Coordinates(relaxed_target(Dataset(model, pairs, model.reward[pairs]), 0.0, 10.0)))

    def walk() -> None:
        rng = np.random.default_rng(0)
        here = system.evaluate(np.zeros(system.size), None)
        for _ in range(10):
            other = rng.standard_normal(system.size)
            here = system.evaluate(here.x * np.cos(0.1) + other * np.sin(0.1), here.policy)

    return float(len(pairs)), walk


def by_cells(depth: int) -> Job:
    """The mixture of a deep sea, all pairs seen."""
    model = envs.deep_sea(depth=depth)
    target = relaxed_target(Dataset.complete(model), 0.5, 10.0)
    return 2.0 ** (depth * (depth + 1) // 2), lambda: mixture(target)


CURVES: dict[str, tuple[Callable[[int], Job], tuple[int, ...]]] = {
    "depth": (by_depth, (5, 10, 20, 40)),
    "pairs": (by_pairs, (40, 80, 160, 226)),
    "observations": (by_observations, (15, 25, 50, 100)),
    "cells": (by_cells, (2, 3, 4, 5)),
}


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def here(curve: str, size: int) -> dict[str, float]:
    jax.block_until_ready(jax.numpy.ones(3).sum())
    before = peak()
    reached, job = CURVES[curve][0](size)
    job()
    times = []
    for _ in range(3):
        begin = time.process_time()
        job()
        times.append(time.process_time() - begin)
        if times[-1] > 10.0:
            break
    return {"size": reached, "seconds": min(times), "MiB": peak() - before}


def exponent(points: list[dict[str, float]], what: str, least: float = 0.0) -> float | None:
    """The slope of a straight line through the logarithms; None for fewer than two points."""
    used = [(point["size"], point[what]) for point in points if point[what] > least]
    if len(used) < 2:
        return None
    size, value = np.log(np.array(used)).T
    return float(np.polyfit(size, value, 1)[0])


def draw(found: dict[str, Any], image: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(found), figsize=(11, 5), layout="constrained")
    for column, (curve, row) in enumerate(found.items()):
        for line, (what, slope) in enumerate((("seconds", "time exponent"), ("MiB", "memory exponent"))):
            axis = axes[line, column]
            axis.loglog([p["size"] for p in row["points"]], [p[what] for p in row["points"]], "o-", color="#24557a")
            known = "too small to fit" if row[slope] is None else f"exponent {row[slope]:.2f}"
            axis.set(xlabel=curve, ylabel=what, title=known)
            axis.minorticks_off()
            axis.grid(alpha=0.3)
    image.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(image, dpi=70)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--point", nargs=2, metavar=("CURVE", "SIZE"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--image", type=Path)
    chosen = parser.parse_args()
    if chosen.point:
        print(json.dumps(here(chosen.point[0], int(chosen.point[1]))))
        return
    found: dict[str, Any] = {}
    for curve, (_, sizes) in CURVES.items():
        points = []
        for size in sizes:
            command = [sys.executable, __file__, "--point", curve, str(size)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=os.environ | ONE_THREAD)
            points.append(json.loads(done.stdout))
        found[curve] = {
            "points": points,
            "time exponent": exponent(points, "seconds"),
            "memory exponent": exponent(points, "MiB", SMALLEST_MIB),
        }
        print(curve, json.dumps(found[curve]), flush=True)
    if chosen.out:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    if chosen.image:
        draw(found, chosen.image)


if __name__ == "__main__":
    main()
