"""Benchmarks: ratios measured in one run, or seconds against a goal, with the spread of repeats (`make bench`).

Rows with a goal run on one core, in a process of their own, after compilation and with point sets cached. On a busy
machine their processor time says more than the clock, so both are given.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from bellmanifold import envs
from bellmanifold.data import Dataset
from bellmanifold.formats.observations import write_data
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


GOAL_CODE = """
import json, resource, sys, time
import numpy as np
import bellmanifold as bm
{setup}
times = []
for _ in range({repeats} + 1):
    begin = time.perf_counter(), time.process_time()
    error = job()
    times.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
print(json.dumps([times[1:] or times, error, peak]))
"""

SEA_CODE = """
sea = bm.envs.deep_sea(depth=5)
def observe(pairs):
    return bm.Dataset(sea, pairs, sea.reward[pairs])
def largest_se(data, **options):
    summary = bm.posterior(sea, data, **options)
    assert summary.trustworthy
    return max([float(summary.action_probability.se.max())] + [route.se for route in summary.routes])
"""

ALL_SEEN = (
    SEA_CODE
    + """
everything = observe(np.arange(sea.n_pairs))
def job():
    return largest_se(everything, epsilon=0.01)
"""
)
HALF_SEEN = (
    SEA_CODE
    + """
half = observe(np.sort(np.random.default_rng({seed}).permutation(sea.n_pairs)[: sea.n_pairs // 2]))
def job():
    return largest_se(half, epsilon=0.01)
"""
)
CHART = (
    SEA_CODE
    + """
import jax, jax.numpy as jnp
from bellmanifold.chart import batch_chart, solve_blocks
chart, solved, batch = batch_chart(sea), np.ones(sea.n_pairs, dtype=bool), 8192
arrays = (chart.successor, chart.law, chart.spread(solved, False), chart.first_policy(solved), chart.stretches)
structure = [jnp.asarray(array) for array in arrays]
value = jnp.zeros((*chart.slot.shape, batch))
given = np.random.default_rng(0).normal(size=(*chart.slot.shape, 1_000_000))
pieces = [jnp.asarray(given[:, :, k : k + batch]) for k in range(0, 1_000_000 - batch, batch)]
pieces.append(jnp.asarray(given[:, :, -batch:]))
def job():
    for piece in pieces:
        answer = solve_blocks(chart.blocks, *structure, piece, value)
    jax.block_until_ready(answer)
    return 0.0
"""
)
MIXTURE = (
    SEA_CODE
    + """
everything = observe(np.arange(sea.n_pairs))
def job():
    return largest_se(everything, epsilon=0.5, engine="mixture")
"""
)
GRID_WALK = """
grid = bm.envs.grid(20, 20, slip=0.1)
half = np.sort(np.random.default_rng(0).permutation(grid.n_pairs)[: grid.n_pairs // 2])
data = bm.Dataset(grid, half, grid.reward[half])
def job():
    bm.posterior(grid, data, samples=1000)
    return 0.0
"""
ONE_CORE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
HALVES = range(8)


def on_one_core(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command on one core, this process's last."""
    core = max(os.sched_getaffinity(0))
    environment = os.environ | ONE_CORE
    pinned = ["taskset", "-c", str(core), *command]
    return subprocess.run(pinned, capture_output=True, text=True, check=True, env=environment)


def goal_row(name: str, goal: float, setup: str, repeats: int = 5) -> dict[str, object]:
    """Median seconds of a job on one core after a first run, its largest standard error and its peak memory."""
    code = GOAL_CODE.format(setup=setup, repeats=repeats)
    times, largest_se, peak = json.loads(on_one_core([sys.executable, "-c", code]).stdout)
    wall, processor = np.array(times).T
    return {
        "row": name,
        "goal_seconds": goal,
        "seconds": float(np.median(wall)),
        "seconds_range": [float(wall.min()), float(wall.max())],
        "processor_seconds": float(np.median(processor)),
        "largest_se": largest_se,
        "gigabytes_peak": peak,
    }


def command_row(name: str, goal: float, command: list[str], repeats: int = 5) -> dict[str, object]:
    """Median seconds of a whole process on one core, after a first one that fills the caches."""
    on_one_core(command)
    wall, processor = [], []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall += seconds(lambda: on_one_core(command), 1)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {
        "row": name,
        "goal_seconds": goal,
        "seconds": float(np.median(wall)),
        "seconds_range": [min(wall), max(wall)],
        "processor_seconds": float(np.median(processor)),
    }


def posterior_rows() -> Iterator[dict[str, object]]:
    """The speed goals of posteriors."""
    yield goal_row("chart, depth 5, epsilon 0.01, all pairs seen", 0.05, ALL_SEEN)
    halves = [goal_row("", 0.3, HALF_SEEN.format(seed=seed)) for seed in HALVES]
    by_seconds = sorted(halves, key=lambda row: float(str(row["processor_seconds"])))
    yield by_seconds[len(halves) // 2] | {"row": f"chart, the same with half of them: median of {len(halves)} halves"}
    yield by_seconds[-1] | {"row": f"chart, the same: slowest of {len(halves)} halves"}
    yield goal_row("chart, a million coordinate vectors at depth 5", 0.1, CHART)
    yield goal_row("mixture, depth 5, complete data, epsilon 0.5", 3.0, MIXTURE, repeats=3)
    yield goal_row("walk, 1,000 steps on a slippery 20 x 20 grid, half seen", 60.0, GRID_WALK, repeats=0)
    yield command_row("import bellmanifold", 1.0, [sys.executable, "-c", "import bellmanifold"])
    program = [sys.executable, "-c", "from bellmanifold.cli import main; main()"]
    yield command_row("bellmanifold --help", 0.7, [*program, "--help"])
    with tempfile.TemporaryDirectory() as folder:
        sea, file = envs.deep_sea(5), Path(folder) / "data.json"
        half = np.sort(np.random.default_rng(0).permutation(sea.n_pairs)[: sea.n_pairs // 2])
        write_data(Dataset(sea, half, sea.reward[half]), file)
        ask = ["posterior", "env:deep-sea?depth=5", str(file), "--epsilon", "0.01", "--json"]
        yield command_row("a second bellmanifold posterior at depth 5", 3.0, [*program, *ask])


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
    yield from posterior_rows()


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
