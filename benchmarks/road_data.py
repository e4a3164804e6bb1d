"""Reading what people bring: a table of 100,000 roads, as many trips, and a graph of 10,000 nodes (40,000 edges).

Not part of `run.py`: `python benchmarks/road_data.py` prints a line of JSON per row. Memory, under `extra`, is the peak
resident set of a fresh process that only reads the table, everything imported.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from measuring import Goal, Row, report, timed

import bellmanifold as bm

READ = """
import json, resource, sys
import bellmanifold as bm
model = bm.load_model(sys.argv[1])
print(json.dumps({"pairs": model.n_pairs, "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def write_table(path: Path, header: list[str], columns: list[list[object]]) -> None:
    """A CSV file."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(header)
        table.writerows(zip(*columns, strict=True))


def quietly(job: object) -> object:
    """The job, with what it says on stderr thrown away."""

    def run() -> None:
        with contextlib.redirect_stderr(io.StringIO()):
            job()  # type: ignore[operator]

    return run


def rows(quick: bool) -> Iterator[Row]:
    """Tables, then a graph."""
    import networkx

    repeats, roads, nodes = (2, 10_000, 1_000) if quick else (5, 100_000, 10_000)
    rng = np.random.default_rng(1)
    junctions = roads // 4
    ends = [[f"J{k}" for k in rng.integers(0, junctions, roads)] for _ in range(2)]
    minutes = rng.gamma(4.0, size=roads).round(2).tolist()
    with tempfile.TemporaryDirectory() as folder:
        table, trips = Path(folder) / "roads.csv", Path(folder) / "trips.csv"
        names = [f"r{k}" for k in range(roads)]
        write_table(table, ["from", "to", "name", "minutes"], [*ends, names, minutes])
        write_table(trips, ["from", "to", "name", "minutes"], [*ends, names, minutes])
        reference = f"{table}?goal=J0&start=all"
        done = subprocess.run([sys.executable, "-c", READ, reference], capture_output=True, check=True, env=os.environ)
        yield Row(
            f"read a table of {roads:,} roads",
            timed("load_model", quietly(lambda: bm.load_model(reference)), repeats),
            goal=Goal(seconds=3.0),
            notes="goal for its memory: 500 MB",
            extra=json.loads(done.stdout),
        )
        with contextlib.redirect_stderr(io.StringIO()):
            model = bm.load_model(reference)
        yield Row(
            f"read a table of {roads:,} trips",
            timed("load_data", quietly(lambda: bm.load_data(trips, model)), repeats),
            goal=Goal(seconds=3.0),
        )
    graph = networkx.random_regular_graph(4, nodes, seed=1)
    for _, _, own in graph.edges(data=True):
        own["length"] = float(rng.gamma(4.0))
    yield Row(
        f"a problem from a graph of {nodes:,} nodes",
        timed("from_networkx", quietly(lambda: bm.from_networkx(graph, 0, start=5)), repeats),
        goal=Goal(seconds=2.0),
    )
    model = bm.from_networkx(graph, 0, start=5)
    yield Row(f"a graph from a problem of {nodes:,} states", timed("to_networkx", model.to_networkx, repeats))


if __name__ == "__main__":
    report(rows)
