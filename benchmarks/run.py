"""All benchmarks: one table and one JSON file (`make bench`; under 10 minutes on two cores).

Each subject runs in a process of its own on one core. `--only` chooses subjects, `--quick` does less of everything.
What the rows are, and what was measured: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SUBJECTS = ("posteriors", "chains", "temporal_differences", "solving", "draws", "start_up", "deep_exploration")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
COLUMNS = ("row", "ours", "peer", "ratio (range)", "goal", "met")


def measured(subject: str, quick: bool, core: int) -> Iterator[dict[str, Any]]:
    """The rows of a subject, as they come."""
    command = ["taskset", "-c", str(core), sys.executable, str(HERE / f"{subject}.py"), *["--quick"][: int(quick)]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | ONE_THREAD) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line) | {"subject": subject}
    if process.returncode:
        raise SystemExit(f"benchmarks/{subject}.py ended with {process.returncode}")


def duration(times: dict[str, Any] | None) -> str:
    """A median with its range, in a unit that suits it."""
    if times is None:
        return "-"
    unit, factor = ("s", 1.0) if times["seconds"] >= 0.1 else ("ms", 1e3)
    low, middle, high = (times[key] * factor for key in ("low", "seconds", "high"))
    return f"{middle:.3g} {unit} ({low:.3g}-{high:.3g})"


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """The columns of a row."""
    ratio = "-"
    if row["ratio"] is not None:
        low, high = row["ratio_range"]
        ratio = f"{_short(row['ratio'])} ({_short(low)}-{_short(high)})"
    met = {None: "-", True: "yes", False: "NO"}[row["met"]]
    return row["row"], duration(row["ours"]), duration(row["peer"]), ratio, row["goal"] or "-", met


def _short(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table, then their notes."""
    lines = [COLUMNS, tuple("---" for _ in COLUMNS), *(cells(row) for row in rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(COLUMNS))]
    shown = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in lines]
    return "\n".join([*shown, "", *(f"- {row['row']}: {note}" for row in rows if (note := notes(row)))])


def notes(row: dict[str, Any]) -> str:
    """What is said beside a row."""
    parts = [f"peer: {row['peer']['what']}"] if row["peer"] and not row["notes"].startswith("peer:") else []
    parts += [row["notes"]] if row["notes"] else []
    if row["compile_seconds"] is not None and row["compile_seconds"] > 0.01:
        parts.append(f"first call {row['compile_seconds']:.2g} s more")
    if row["ours"]["clock_seconds"] > 1.3 * row["ours"]["seconds"]:
        parts.append(f"by the clock {row['ours']['clock_seconds']:.3g} s")
    return "; ".join(parts)


def machine() -> dict[str, Any]:
    """Where and when."""
    model = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "processor": model[0] if model else platform.processor(),
        "cores": os.cpu_count(),
        "load_at_start": os.getloadavg()[0],
        "python": platform.python_version(),
    }


def main() -> None:
    """Run the subjects."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="fewer repeats and smaller problems")
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=SUBJECTS, metavar="SUBJECT")
    options = parser.parse_args()
    where, begin, found = machine(), time.perf_counter(), []
    core = max(os.sched_getaffinity(0))
    for subject in options.only:
        for row in measured(subject, options.quick, core):
            found.append(row)
            print(f"{time.perf_counter() - begin:5.0f} s  {row['row']}", file=sys.stderr, flush=True)
    where |= {"seconds": time.perf_counter() - begin, "load_at_end": os.getloadavg()[0]}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": where, "rows": found}, indent=1))
    print(table(found))
    print(
        f"\n{where['processor']}, {where['cores']} cores, load {where['load_at_start']:.1f} at the start and "
        f"{where['load_at_end']:.1f} at the end; {where['seconds']:.0f} s; wrote {options.out}"
    )


if __name__ == "__main__":
    main()
