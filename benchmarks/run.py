"""Benchmarks: every row is a ratio measured in one run, with the spread of its repeats. `make bench` prints them."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bellmanifold import envs
from bellmanifold.solver import solve
from bellmanifold.ssp import SSP, Description, assemble


def random_problem(states: int, actions: int = 4, successors: int = 4, seed: int = 0) -> SSP:
    """A problem with random successors, all moves costing: an expander, the opposite of a grid."""
    rng = np.random.default_rng(seed)
    pairs = states * actions
    return assemble(
        Description(
            state_names=[str(s) for s in range(states + 1)],
            action_names=[str(a) for a in range(actions)],
            goals=[states],
            initial_state=[0],
            initial_prob=[1.0],
            pair_state=np.repeat(np.arange(states), actions),
            pair_action=np.tile(np.arange(actions), states),
            reward=-rng.random(pairs) - 0.01,
            next_start=np.arange(pairs + 1) * successors,
            next_state=rng.integers(0, states + 1, pairs * successors),
            next_prob=rng.dirichlet(np.ones(successors), pairs).ravel(),
            name=f"random-{states}",
        )
    )


def seconds(call: Callable[[], object], repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return times


def ratio_row(name: str, ours: Callable[[], object], peer: Callable[[], object], repeats: int = 3) -> dict[str, object]:
    """Time ours and a peer alternately and report peer / ours."""
    fast, slow = [], []
    for _ in range(repeats):
        fast += seconds(ours, 1)
        slow += seconds(peer, 1)
    ratios = sorted(b / a for a, b in zip(fast, slow, strict=True))
    return {
        "row": name,
        "ours_seconds": float(np.median(fast)),
        "peer_seconds": float(np.median(slow)),
        "ratio": float(np.median(ratios)),
        "ratio_range": [ratios[0], ratios[-1]],
    }


SIZE_CODE = """
import json, resource, sys, time
sys.path.insert(0, {here!r})
from run import random_problem, envs, solve
from bellmanifold.health import check
model = {build}
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begin = time.perf_counter(); answer = {job}(model); took = time.perf_counter() - begin
print(json.dumps([model.n_pairs, took, base / 1e6, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6]))
"""


def size_row(name: str, build: str, job: str) -> dict[str, object]:
    """Seconds and peak memory of one large job, in a process of its own."""
    code = SIZE_CODE.format(here=str(Path(__file__).parent), build=build, job=job)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pairs, took, before, peak = json.loads(done.stdout)
    return {"row": name, "pairs": pairs, "seconds": took, "gigabytes_before": before, "gigabytes_peak": peak}


def rows(full: bool) -> Iterator[dict[str, object]]:
    grid = envs.grid(20, 20, slip=0.1)
    sea = envs.deep_sea(60)
    yield ratio_row(
        "solve, grid 20 x 20: policy iteration over HiGHS", lambda: solve(grid, "pi"), lambda: solve(grid, "lp")
    )
    yield ratio_row("solve, deep sea 60: level sweep over HiGHS", lambda: solve(sea, "vi"), lambda: solve(sea, "lp"))
    sizes = [
        ("slippery grid, 100,000 pairs", "envs.grid(158, 158, slip=0.2)"),
        ("random, 100,000 pairs", "random_problem(25000)"),
    ]
    if full:
        sizes += [
            ("slippery grid, 1,000,000 pairs", "envs.grid(500, 500, slip=0.2)"),
            ("random, 1,000,000 pairs", "random_problem(250000)"),
        ]
    for name, build in sizes:
        for job in ("check", "solve"):
            yield size_row(f"{job}, {name}", build, job)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="leave out the million-pair problems")
    options = parser.parse_args()
    found = []
    for row in rows(full=not options.quick):
        found.append(row)
        shown = "  ".join(f"{key} {value:.4g}" for key, value in row.items() if isinstance(value, (int, float)))
        print(f"{row['row']}\n    {shown}", flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1))
    print(
        f"peak of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB; wrote {options.out}"
    )


if __name__ == "__main__":
    main()
