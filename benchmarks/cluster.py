"""What a Dask cluster adds to a run, and what that makes of a sweep on 1,000 workers.

    python benchmarks/cluster.py --out out/cluster.json

A real scheduler and real worker processes on this machine play the same cheap runs as one process alone. Each player
plays a plan of other seeds first, so that imports, compilation and the solution of the problem are not counted here;
the time of that first sweep is given as `first`. Overhead per run is (seconds with one worker - seconds alone) / runs,
by the clock and in processor time: that of client, scheduler and workers together, which a busy machine disturbs less.
Every process computes on one thread, the lone one too: otherwise its idle threads would count as work it has to do.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from distributed import Client

from bellmanifold.learning.environment import ONE_THREAD
from bellmanifold.learning.run_settings import RunSettings
from bellmanifold_lab.sweeps.cluster import play_on_cluster
from bellmanifold_lab.sweeps.plan import Plan, plan_runs
from bellmanifold_lab.sweeps.progress import Progress
from bellmanifold_lab.sweeps.runner import Player, sweep
from bellmanifold_lab.sweeps.store import Store
from bellmanifold_lab.sweeps.units import attempt, units_of

AGENTS = ("q-learning", "bayes-td")
MODEL = "env:deep-sea?depth=5"


def cheap_plan(runs: int, first_seed: int, episodes: int) -> Plan:
    """Runs of two agents that compute next to nothing."""
    each = runs // len(AGENTS)
    choices: dict[str, dict[str, Any]] = {"q-learning": {}, "bayes-td": {"epsilon": 0.01, "prior_scale": 10.0}}
    return plan_runs(
        [
            RunSettings(MODEL, agent, choices[agent].get("epsilon"), choices[agent].get("prior_scale"), episodes, seed)
            for agent in AGENTS
            for seed in range(first_seed, first_seed + each)
        ]
    )


class Silent(Progress):
    """No display."""

    def say(self, text: str) -> None:
        pass


@contextmanager
def started(program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program of Dask."""
    command = [sys.executable, "-m", f"distributed.cli.dask_{program}", "--no-dashboard", *arguments]
    environment = os.environ | ONE_THREAD
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def processor_seconds(processes: Sequence[int]) -> float:
    """Processor time that this process and others have used (Linux)."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def cluster(workers: int, home: Path) -> Iterator[tuple[str, list[int]]]:
    """The address of a scheduler with some workers, and their processes."""
    described = home / f"scheduler-{workers}.json"
    place = ("--scheduler-file", str(described))
    with ExitStack() as crew:
        own = [crew.enter_context(started("scheduler", "--host", "127.0.0.1", "--port", "0", *place))]
        while not described.exists():
            time.sleep(0.05)
        alone = ("--nthreads", "1", "--no-nanny", "--local-directory", str(home))
        own += [crew.enter_context(started("worker", *place, *alone)) for _ in range(workers)]
        address = ""
        while not address:
            with suppress(OSError, ValueError):
                address = json.loads(described.read_text())["address"]
        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=120)
        yield address, [process.pid for process in own]


def timed_sweeps(player: Player, plans: Sequence[Plan], home: Path, others: Sequence[int] = ()) -> dict[str, Any]:
    """What each plan takes, results written: the first is a warm-up."""
    clock, processor = [], []
    for plan in plans:
        with tempfile.TemporaryDirectory(dir=home) as out:
            begin, used = time.perf_counter(), processor_seconds(others)
            tally = sweep(plan, out, player, show=Silent)
            clock.append(time.perf_counter() - begin)
            processor.append(processor_seconds(others) - used)
            assert tally.played == tally.total
    return {"first": clock[0], "seconds": clock[1:], "processor seconds": processor[1:]}


def per_second(count: int, call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return count / (time.perf_counter() - begin)


def _same(unit: Any, answer: bytes) -> bytes:
    return answer


def measure(runs: int, episodes: int, repeats: int) -> dict[str, Any]:
    """Everything the estimate needs."""
    warm, *plans = [cheap_plan(runs if k else 4, 1000 * k, episodes) for k in range(repeats + 1)]
    units = units_of(plans[0], plans[0].runs)
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        rows: dict[str, Any] = {}
        rows["one process"] = timed_sweeps(
            lambda units: ((unit, attempt(unit)) for unit in units), [warm, *plans], home
        )
        answer = attempt(units[0])
        sent, back = len(pickle.dumps(units[0])), len(pickle.dumps(answer))
        for workers in (1, 2):
            with cluster(workers, home) as (address, processes):
                player = partial(play_on_cluster, address=address)
                name = f"{workers} Dask worker{'s' * (workers > 1)}"
                rows[name] = timed_sweeps(player, [warm, *plans], home, processes)
                if workers == 2:
                    rate = empty_tasks_per_second(address, units[0], pickle.dumps(answer))
        content, store = next(iter(answer.values())), Store(home)
        writes = per_second(200, lambda: [store.write(plans[0].runs[k % runs], content) for k in range(200)])
    clock, processor = (
        {name: min(row[unit]) for name, row in rows.items()} for unit in ("seconds", "processor seconds")
    )
    added = [1e3 * (took["1 Dask worker"] - took["one process"]) / runs for took in (clock, processor)]
    return {
        "runs": runs,
        "units": len(units),
        "bytes of a task": sent,
        "bytes of an answer": back,
        "rows": rows,
        "overhead per run, ms": added[0],
        "overhead per run, ms of processor time": added[1],
        "speed-up of 2 workers over 1": clock["1 Dask worker"] / clock["2 Dask workers"],
        "empty tasks per second": rate,
        "files written per second": writes,
        "load average": os.getloadavg(),
    }


def empty_tasks_per_second(address: str, unit: Any, answer: bytes, many: int = 2000) -> float:
    """Tasks of the usual size, with answers of the usual size, that compute nothing."""
    with Client(address, set_as_default=False) as client:
        begin = time.perf_counter()
        jobs = [client.submit(_same, unit, answer + bytes(k % 7), pure=False) for k in range(many)]
        client.gather(jobs)
        return many / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)  # read when NumPy is imported
    found = measure(chosen.runs, chosen.episodes, chosen.repeats)
    text = json.dumps(found, indent=1)
    print(text)
    if chosen.out:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
