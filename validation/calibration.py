"""Simulation-based calibration of every posterior engine: `PYTHONPATH=src python validation/calibration.py --out DIR`.

Writes one file DIR/ENGINE-FIRST-LAST.json for each engine: the ranks of four quantities among 99 posterior draws, for
every problem and replication. A replication's ranks depend on its index alone, so work can be split with --engine and
--first; only between unlike processors do the chains of hmc and nuts part, since last bits differ there.
`histograms.py` makes the picture and the table. Needs jax, numpy, scipy, jaxtyping and arviz-stats[xarray], and
BlackJAX for hmc and nuts.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path

CHUNK = 10
"""Replications a worker does at a time."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")
ENVIRONMENT = {**dict.fromkeys(THREADS, "1"), "JAX_PLATFORMS": "cpu"}
"""Sums are split among threads and differ between devices, and chains depend on last bits. Workers share no GPU."""
Task = tuple[str, str, int, int]
"""Engine, problem, first and number of replications."""


def replicate(task: Task) -> list[dict[str, object]]:
    """The ranks of some replications; one that fails says why and has none."""
    import numpy as np
    from engines import ENGINES, target_of
    from ranks import ranks
    from simulated import replication

    from bellmanifold.errors import BellmanifoldError

    engine, problem, first, number = task
    likelihood, draw = ENGINES[engine]
    rows: list[dict[str, object]] = []
    for index in range(first, first + number):
        case = replication(problem, likelihood, index)
        row: dict[str, object] = {"problem": problem, "index": index}
        try:
            drawn = draw(target_of(case), index)
            rng = np.random.default_rng([index, 5])
            row["ranks"] = ranks(case.looked_at(case.truth), case.looked_at(drawn), rng)
        except BellmanifoldError as error:
            row["failed"] = str(error)
        rows.append(row)
    return rows


def tasks(engine: str, first: int, replications: int) -> list[Task]:
    """The work of an engine in chunks of `CHUNK` replications."""
    from engines import ENGINES, WITHOUT_END_COMPONENTS
    from simulated import PROBLEMS

    assert engine in ENGINES
    problems = [name for name in PROBLEMS if engine not in WITHOUT_END_COMPONENTS or name != "swirl"]
    last = first + replications
    starts = range(first, last, CHUNK)
    return [(engine, problem, start, min(CHUNK, last - start)) for problem in problems for start in starts]


def main() -> None:
    """Read the arguments, replicate, write."""
    from engines import ENGINES
    from ranks import DRAWS
    from simulated import QUANTITIES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", action="append", choices=ENGINES, help="one or several; by default all")
    parser.add_argument("--replications", type=int, default=500, help="of each problem")
    parser.add_argument("--first", type=int, default=0, help="index of the first replication")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, required=True, help="directory for the ranks")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ.update(ENVIRONMENT)
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for engine in options.engine or list(ENGINES):
            begin = time.perf_counter()
            work = tasks(engine, options.first, options.replications)
            rows = [row for found in pool.imap(replicate, work) for row in found]
            failed = sum("failed" in row for row in rows)
            name = f"{engine}-{options.first}-{options.first + options.replications - 1}.json"
            answer = {"engine": engine, "draws": DRAWS, "quantities": QUANTITIES, "replications": rows}
            (options.out / name).write_text(json.dumps(answer) + "\n")
            seconds = time.perf_counter() - begin
            print(f"{engine}: {len(rows)} replications, {failed} failed, {seconds:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
