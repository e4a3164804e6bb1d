"""A slippery grid of 100,000 pairs: the commands `check` and `solve`, and exact-posterior draws with a tenth seen.

    python benchmarks/large_grid.py --out out/large-grid.json

Commands are timed as processes, start-up included. A draw is what the agent `manifold` does before an episode: it is
shown 20 new pairs, takes stock of them, and walks 50 slice steps from its last point. The first draw walks 200 more.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bellmanifold import envs
from bellmanifold.agents.posterior_sampling import PosteriorSampling
from bellmanifold.agents.settings import SamplingSettings
from bellmanifold.learning.environment import ONE_THREAD
from bellmanifold.problem.ssp import SSP

MODEL = "env:grid?rows=160&columns=157&slip=0.1"
EPISODES = 3


def command(name: str) -> dict[str, float]:
    begin, before = time.perf_counter(), os.times()
    subprocess.run([sys.executable, "-m", "bellmanifold", name, MODEL], stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": time.perf_counter() - begin, "processor seconds": used}


def seen(model: SSP, kind: str) -> np.ndarray:
    """A tenth of the pairs: anywhere, or nine tenths or all of those of a square at the start."""
    rng = np.random.default_rng(0)
    if kind == "anywhere":
        return rng.choice(model.n_pairs, model.n_pairs // 10, replace=False)
    share = 1.0 if kind == "square" else 0.9
    cells = np.array([[int(part) for part in name.split(",")] for name in model.states])
    near = (cells < int(np.ceil(np.sqrt(model.n_states / 10 / share)))).all(axis=1)[model.pair_state]
    return np.flatnonzero(near & (rng.random(model.n_pairs) < share))


def draws(kind: str) -> dict[str, Any]:
    model, rng = envs.grid(rows=160, columns=157, slip=0.1), np.random.default_rng(1)
    agent, pairs, times = PosteriorSampling(model, SamplingSettings(epsilon=0.0)), seen(model, kind), []
    for _ in range(EPISODES + 1):
        agent.observe(pairs, model.reward[pairs])
        begin, used = time.perf_counter(), time.process_time()
        agent.policy(rng)
        times.append((time.perf_counter() - begin, time.process_time() - used))
        known = agent.memory.observed
        touched = np.zeros(model.n_states + 1, dtype=bool)
        touched[model.next_state[known[model.next_pair]]] = True
        pairs = rng.choice(np.flatnonzero(~known & touched[model.pair_state]), 20, replace=False)
    (first, first_used), *later = times
    return {
        "seen": int(known.sum()) - 20 * EPISODES,
        "frontier": int(agent.diagnostics["frontier"]),
        "first draw, seconds": first,
        "first draw, processor seconds": first_used,
        "later draws, seconds": [took for took, _ in later],
        "later draws, processor seconds": [took for _, took in later],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)  # read when NumPy is imported
    found: dict[str, Any] = {name: [command(name) for _ in range(3)] for name in ("check", "solve")}
    for kind in ("square", "square with holes", "anywhere"):
        found[kind] = draws(kind)
        print(kind, json.dumps(found[kind]), flush=True)
    found["load average"] = os.getloadavg()
    print({name: found[name] for name in ("check", "solve", "load average")})
    if chosen.out:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
