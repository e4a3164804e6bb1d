"""Peak memory against the arrays a method needs, each in a process of its own.

    python benchmarks/memory.py --out out/memory.json

Peak: the largest resident set during the case minus the resident set just before it, in the same process. Before, a
tiny problem has loaded what is loaded on demand, freed memory is given back (malloc_trim) and the system's high-water
mark is reset (/proc/self/clear_refs; Linux only). So it counts Python's objects, NumPy's arrays, SuperLU's factors and
XLA's buffers alike. Every case runs twice: once as it is ("resident", the allocator's slack included), and once with an
allocator that maps every array on its own and gives it back when it is freed ("live": the arrays alone). The goal, 1.5
times the needed arrays, is about the second.

Needed: what is held at once by design, every array counted once: the problem with its names and index arrays, and what
the method keeps. For the mixture its cells. For `solve` the largest factorised system with its factors, and the
solution. For `check` the same, and the end component as a problem of its own, on which policy iteration looks for the
best loop; without it the ratio is called "strict". For the walk its coordinates, chart and kept factors. Not needed:
descriptions, temporaries and copies (such as those of L and U that SciPy keeps once it was asked for the diagonal).
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.sparse.linalg import SuperLU

import bellmanifold as bm
import bellmanifold_paper.engines.mixture as mixture_engine
from bellmanifold import envs
from bellmanifold.agents.posterior_sampling import PosteriorSampling
from bellmanifold.agents.settings import SamplingSettings
from bellmanifold.mdp import blocks, linear
from bellmanifold.mdp.checks import check
from bellmanifold.mdp.solver import solve
from bellmanifold.posteriors.inference import posterior_of
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.ssp import SSP

MIB = 2**20


def held(thing: Any, seen: set[int]) -> int:
    """Bytes of all arrays, sparse factors and texts that can be reached from something, each counted once."""
    if id(thing) in seen:
        return 0
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return held(thing.base, seen) if isinstance(thing.base, np.ndarray) else thing.nbytes
    if isinstance(thing, SuperLU):
        return 12 * thing.nnz + 8 * thing.shape[0]
    if isinstance(thing, str | bytes):
        return sys.getsizeof(thing)
    if isinstance(thing, dict):
        return sum(held(part, seen) for part in thing.values())
    if isinstance(thing, list | tuple | set):
        return sys.getsizeof(thing) + sum(held(part, seen) for part in thing)
    if isinstance(thing, type) or callable(thing):
        return 0
    return sum(held(part, seen) for part in getattr(thing, "__dict__", {}).values())


def resident(what: str = "VmRSS") -> float:
    """Bytes of this process in memory now, or the most of them so far (VmHWM)."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024.0 * int(lines[what].split()[0])


def fresh() -> float:
    """Give back what is free, forget the high-water mark, and say what is left."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return resident()


def large_grid() -> SSP:
    """25,119 states with four moves each: 100,476 pairs."""
    return envs.grid(rows=160, columns=157, slip=0.1)


def explored(model: SSP) -> np.ndarray:
    """Nine tenths of the pairs of a square at the start: a tenth of all pairs."""
    cells = np.fromiter((int(part) for name in model.states for part in name.split(",")), int).reshape(-1, 2)
    side = int(np.ceil(np.sqrt(model.n_states / 9)))
    near = (cells < side).all(axis=1)[model.pair_state]
    return np.flatnonzero(near & (np.random.default_rng(0).random(model.n_pairs) < 0.9))


def depth_5_mixture() -> int:
    kept: list[int] = []
    result = mixture_engine._result

    def spy(*parts: Any) -> Any:
        kept.append(held(list(parts), set()))
        return result(*parts)

    mixture_engine._result = spy
    model = envs.deep_sea(depth=5)
    bm.posterior(model, Dataset.complete(model), epsilon=0.5, engine="mixture")
    return kept[0]


def with_factors(job: Callable[[], Any]) -> int:
    """What a job's answer holds, and the largest system that was factorised on the way."""
    kept: list[int] = [0]
    factorise = blocks.factorise

    def spy(matrix: Any) -> Any:
        factors = factorise(matrix)
        kept.append(held([matrix, factors], set()))
        return factors

    blocks.factorise = linear.factorise = spy
    return held(job(), set()) + max(kept)


def large_solve() -> int:
    model = large_grid()
    return with_factors(lambda: [model, solve(model)])


def strict_check() -> int:
    """The mean reward of the best loop is decided by a linear system, too."""
    model = large_grid()
    return with_factors(lambda: [model, check(model)])


def large_check() -> int:
    """The same, with the largest component as a problem of its own."""
    kept: list[int] = [0]
    cut_out = SSP.subproblem

    def spy(model: SSP, *parts: Any, **named: Any) -> SSP:
        part = cut_out(model, *parts, **named)
        kept.append(held([part.__dict__], {id(name) for name in model.states}))
        return part

    with patch.object(SSP, "subproblem", spy):
        return strict_check() + max(kept)


def large_walk() -> int:
    """An exact-posterior draw with a tenth of the pairs seen; the walk's first steps included."""
    model = large_grid()
    agent = PosteriorSampling(model, SamplingSettings(epsilon=0.0))
    seen = explored(model)
    agent.observe(seen, model.reward[seen])
    agent.policy(np.random.default_rng(0))
    return held(agent, set())


CASES = {
    "depth-5 mixture": depth_5_mixture,
    "100,000 pairs: check": large_check,
    "100,000 pairs: check, strict": strict_check,
    "100,000 pairs: solve": large_solve,
    "100,000 pairs: walk": large_walk,
}


def in_own_process(case: str) -> dict[str, Any]:
    """A case as it is, and with every array on pages of its own."""
    command = [sys.executable, __file__, "--case", case]
    row: dict[str, Any] = {"case": case}
    for kind, malloc in (
        ("resident", {}),
        ("live", {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}),
    ):
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=os.environ | malloc)
        found = json.loads(done.stdout)
        row |= {"needed MiB": found["needed MiB"], f"{kind} MiB": found["peak MiB"], f"{kind} ratio": found["ratio"]}
    return row


def here(case: str) -> dict[str, Any]:
    """One case in this process; a tiny problem first loads what is loaded when it is needed."""
    small = envs.deep_sea(depth=2)
    solve(small)
    check(envs.grid(3, 3, slip=0.1))
    posterior_of(mixture_engine_target(small))
    before = fresh()
    needed = CASES[case]()
    used = resident("VmHWM") - before
    return {"case": case, "peak MiB": used / MIB, "needed MiB": needed / MIB, "ratio": used / needed}


def mixture_engine_target(model: SSP) -> Any:
    from bellmanifold.posteriors.target import relaxed_target

    return relaxed_target(Dataset.complete(model), 0.5, 10.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=list(CASES))
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    if chosen.case:
        print(json.dumps(here(chosen.case)))
        return
    rows = [in_own_process(case) for case in CASES]
    for row in rows:
        peaks = [f"{kind} {row[f'{kind} MiB']:6.1f} ({row[f'{kind} ratio']:.2f})" for kind in ("live", "resident")]
        print(f"{row['case']:29} needed {row['needed MiB']:6.1f} MiB, {', '.join(peaks)}")
    if chosen.out:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
