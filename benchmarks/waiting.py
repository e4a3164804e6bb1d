"""Answers a user waits for: a road network with and without slips, Taxi half seen, an agent with noise on the network.

    PYTHONPATH=src python benchmarks/waiting.py [NAME ...]

Each case has a process of its own. Prints seconds by the clock and of the processor: of the first call, compilation
included, and of the same call again where that is asked for; the engine, its largest standard error, and the goal.

The networks: `env:roads` (132 roads) and random planar ones of 40 junctions (about 122 roads: the shortest edges of a
Delaunay triangulation beside its spanning tree). Every road has a belief of 5 give or take 2, and 37 were driven once
with an error of 1. Only proper policies count, and the prior is flat over rewards.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter, process_time

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial import Delaunay

import bellmanifold as bm
from bellmanifold.envs.building import Move, from_moves

JUNCTIONS, ROADS, DRIVES = 40, 63, 37
GOALS = {
    "roads": "10 s, again 5 s",
    "network": "10 s, again 5 s",
    "slippery roads": "20 s",
    "slippery network": "20 s",
    "taxi": "120 s",
    "agent": "60 s",
}


def network(seed: int, slip: float = 0.0) -> bm.SSP:
    """A random planar road network; a driver who misses the turn takes any other road of the junction."""
    rng = np.random.default_rng(seed)
    at = rng.uniform(size=(JUNCTIONS, 2))
    corners = Delaunay(at).simplices
    edges = np.unique(
        np.sort(np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [0, 2]]]), axis=1), axis=0
    )
    length = np.linalg.norm(at[edges[:, 0]] - at[edges[:, 1]], axis=1)
    tree = minimum_spanning_tree(coo_array((length, edges.T), shape=(JUNCTIONS, JUNCTIONS))).tocoo()
    spanning = {tuple(sorted(edge)) for edge in zip(tree.row.tolist(), tree.col.tolist(), strict=True)}
    others = [edge for edge in map(tuple, edges[np.argsort(length)].tolist()) if edge not in spanning]
    leaving: dict[int, list[int]] = {k: [] for k in range(JUNCTIONS)}
    for a, b in [*spanning, *others[: ROADS - len(spanning)]]:
        leaving[a].append(b)
        leaving[b].append(a)
    start, goal = int(np.argmin(at.sum(axis=1))), int(np.argmax(at.sum(axis=1)))
    moves = {}
    for here, ends in leaving.items():
        for there in sorted(ends) if here != goal else ():
            missed = [end for end in ends if end != there]
            law = {f"J{there}": 1.0 - (slip if missed else 0.0)} | {
                f"J{end}": slip / len(missed) for end in missed if slip
            }
            moves[f"J{here}", f"J{there}"] = Move(-float(max(1.0, rng.normal(5.0, 2.0))), law)
    return from_moves(f"network {seed}", moves, start=f"J{start}", goal=f"J{goal}")


def asked(model: bm.SSP) -> bm.posteriors.summary.Summary:
    """The posterior with beliefs about every road and some drives."""
    rng = np.random.default_rng(1)
    driven = rng.choice(model.n_pairs, DRIVES, replace=False)
    paid = model.reward[driven] + rng.standard_normal(DRIVES)
    names = [model.pair_name(int(pair)) for pair in driven]
    seen = [bm.Observation(*name, reward=float(cost), sd=1.0) for name, cost in zip(names, paid, strict=True)]
    return bm.posterior(model, bm.Dataset.from_pairs(model, seen), reward_belief=(-5.0, 2.0))


def half_seen() -> bm.posteriors.summary.Summary:
    """Taxi with half of its pairs seen."""
    model = bm.load_model("gym:Taxi-v4")
    seen = np.sort(np.random.default_rng(0).choice(model.n_pairs, model.n_pairs // 2, replace=False))
    summary = bm.posterior(model, bm.Dataset(model, seen, model.reward[seen]))
    summary.to_dict()
    return summary


CASES: dict[str, Callable[[], object]] = {
    "roads": lambda: asked(bm.envs.roads()),
    "network": lambda: asked(network(1)),
    "slippery roads": lambda: asked(bm.envs.roads(slip=0.2)),
    "slippery network": lambda: asked(network(1, slip=0.2)),
    "taxi": half_seen,
    "agent": lambda: bm.learn(bm.envs.roads(), agent="bayes-br", noise_sd=1.0, episodes=30, runs=1, seed=0),
}


def measure(name: str) -> None:
    """Run a case and print its line; networks are asked twice."""
    seconds = []
    found: object = None
    for _ in range(1 if name in ("taxi", "agent") else 2):
        clock, processor = perf_counter(), process_time()
        found = CASES[name]()
        seconds.append(f"{perf_counter() - clock:.1f} s ({process_time() - processor:.1f} s of the processor)")
    said = ""
    if isinstance(found, bm.posteriors.summary.Summary):
        error = float(found.action_probability.se.max())
        said = f"; engine {found.result.engine}, largest standard error {error:.1g}, trusted: {found.trustworthy}"
    print(
        f"{name}: {', again '.join(seconds)}{said}; goal: at most {GOALS[name]}; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def main() -> None:
    """Every case in a process of its own, or the one that is named by this process."""
    if sys.argv[1:2] == ["--here"]:
        measure(sys.argv[2])
        return
    for name in sys.argv[1:] or CASES:
        subprocess.run([sys.executable, __file__, "--here", name], check=True)


if __name__ == "__main__":
    main()
