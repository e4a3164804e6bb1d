"""Have an agent's walks mixed? R-hat and effective sample size of the frontier's coordinates.

    python benchmarks/mixing.py --out out/mixing.json

Four chains start from independent draws of the prior. Each walks as long as an agent's walk does before it is first
played (dropped), and then visits every unobserved pair --sweeps times on average (kept, looked at twice each). Every
coordinate of the frontier (the largest unknown value of a state that the data touch) gets an R-hat and an effective
sample size; of more than 64 coordinates 64 are looked at.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from bellmanifold import envs
from bellmanifold.agents.walking import CHAINS, FIRST_SWEEPS, FIRST_TURNS
from bellmanifold.chart.batch import known_chart
from bellmanifold.posteriors.batch_walk import BatchWalker
from bellmanifold.posteriors.convergence import evenly_spread, r_hat_and_effective
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.sparse_walk import SparseWalker
from bellmanifold.posteriors.target import Target, relaxed_target
from bellmanifold.posteriors.weight import weigh_normals
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.ssp import SSP

LOOKED_AT = 64


def exact(model: SSP, pairs: np.ndarray) -> Target:
    return relaxed_target(Dataset(model, pairs, model.reward[pairs]), 0.0, 10.0)


def square_of_a_grid(size: int, side: int) -> Target:
    """Nine tenths of the pairs of a square at the start of a slippery grid."""
    model = envs.grid(size, size, slip=0.1)
    cells = np.array([[int(part) for part in name.split(",")] for name in model.states])
    near = (cells < side).all(axis=1)[model.pair_state]
    return exact(model, np.flatnonzero(near & (np.random.default_rng(0).random(model.n_pairs) < 0.9)))


def half_of_a_grid(size: int) -> Target:
    model = envs.grid(size, size, slip=0.1)
    return exact(model, np.flatnonzero(np.random.default_rng(0).random(model.n_pairs) < 0.5))


def deep_sea_after(depth: int, episodes: int) -> Target:
    """What some episodes of random policies show of a deep sea."""
    model, rng = envs.deep_sea(depth=depth, convention="bsuite"), np.random.default_rng(0)
    seen = set()
    for _ in range(episodes):
        state = int(np.argmax(model.initial))
        while state < model.n_states:
            pair = int(rng.integers(model.pair_start[state], model.pair_start[state + 1]))
            seen.add(pair)
            state = int(model.next_state[model.next_start[pair]])
    return exact(model, np.array(sorted(seen)))


def sparse_chains(target: Target, sweeps: int) -> np.ndarray:
    """Values of the frontier along the walks of large cyclic problems, where one visit counts for a whole state."""
    rng = np.random.default_rng(0)
    walker = SparseWalker(Coordinates(target), rng, CHAINS)
    walker.advance(rng, min(FIRST_SWEEPS * walker.sweep, FIRST_TURNS))
    values = []
    for _ in range(2 * sweeps):
        walker.advance(rng, -(-walker.sweep // 2))
        values.append([state.q[walker.system.free] for state in walker.states])
    return np.swapaxes(values, 0, 1)


def swept_chains(target: Target, sweeps: int) -> np.ndarray:
    """The same along the walks of problems that one sweep solves."""
    rng = np.random.default_rng(0)
    walker = BatchWalker(Coordinates(target), known_chart(target.model, target.observed), rng, CHAINS)
    walker.advance(rng, FIRST_SWEEPS * walker.sweep)
    values = []
    for _ in range(2 * sweeps):
        walker.advance(rng, -(-walker.sweep // 2))
        values.append(np.asarray(weigh_normals(walker.system, walker.point).q)[walker.coordinates.free])
    return np.moveaxis(np.array(values), 2, 0)


CASES = {
    "20 x 20 grid, a 10 x 10 square seen": (lambda: square_of_a_grid(20, 10), sparse_chains),
    "20 x 20 grid, half of the pairs seen": (lambda: half_of_a_grid(20), sparse_chains),
    "deep sea 50 after 40 random episodes": (lambda: deep_sea_after(50, 40), swept_chains),
    "deep sea 100 after 100 random episodes": (lambda: deep_sea_after(100, 100), swept_chains),
}


def measure(case: str, sweeps: int) -> dict[str, Any]:
    target, walk = CASES[case][0](), CASES[case][1]
    begin = time.process_time()
    values = walk(target, sweeps)
    spent = time.process_time() - begin
    r_hat, effective = r_hat_and_effective(evenly_spread(values, LOOKED_AT))
    return {
        "case": case,
        "observed": int(target.observed.sum()),
        "frontier": values.shape[2],
        "r_hat, median": float(np.median(r_hat)),
        "r_hat, largest": float(r_hat.max()),
        "effective draws, median": float(np.median(effective)),
        "effective draws, smallest": float(effective.min()),
        "looked at": values.shape[0] * values.shape[1],
        "processor ms per sweep": 1e3 * spent / (CHAINS * (sweeps + FIRST_SWEEPS)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=list(CASES))
    parser.add_argument("--sweeps", type=int, default=100)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    rows = []
    for case in [chosen.case] if chosen.case else CASES:
        rows.append(measure(case, chosen.sweeps))
        print(json.dumps(rows[-1]), flush=True)
    if chosen.out:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
