"""Start-up: the command's help, a first posterior that compiles everything, and a second one that finds it compiled."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from measuring import Goal, Row, Times, report
from posteriors import half_seen

import bellmanifold as bm

PROGRAM = [sys.executable, "-c", "from bellmanifold.cli.main import main; main()"]


def command(what: str, arguments: list[str], cache: str, repeats: int) -> Times:
    """Whole processes, one after the other."""
    environment = os.environ | {"XDG_CACHE_HOME": cache}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    processor, clock = [], []
    for _ in range(repeats):
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(arguments, check=True, capture_output=True, env=environment)
        clock.append(time.perf_counter() - begin)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return Times(what, processor, clock)


def rows(quick: bool) -> Iterator[Row]:
    """Commands from nothing to an answer."""
    repeats = 3 if quick else 5
    with tempfile.TemporaryDirectory() as folder:
        command("warm the disk", [*PROGRAM, "--help"], folder, 1)
        yield Row(
            "start-up: import bellmanifold",
            command("import", [sys.executable, "-c", "import bellmanifold"], folder, repeats),
            goal=Goal(seconds=1.0),
        )
        yield Row("start-up: --help", command("--help", [*PROGRAM, "--help"], folder, repeats), goal=Goal(seconds=0.7))
        data = Path(folder) / "data.json"
        bm.write_data(half_seen(bm.envs.deep_sea(depth=5)), data)
        ask = [*PROGRAM, "posterior", "env:deep-sea?depth=5", str(data), "--epsilon", "0.01", "--json"]
        firsts = [command("first", ask, str(Path(folder) / f"cache{k}"), 1) for k in range(2 if quick else 3)]
        first = Times("first", [t.processor[0] for t in firsts], [t.clock[0] for t in firsts])
        second = command("second", ask, str(Path(folder) / "cache0"), repeats)
        yield Row("start-up: first posterior at depth 5, empty cache", first, notes="compilation included")
        note = "peer: the first posterior, which compiles"
        yield Row("start-up: second posterior", second, first, Goal(seconds=3.0), notes=note)


if __name__ == "__main__":
    report(rows)
