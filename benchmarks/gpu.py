"""The library's own code on whatever device JAX has: `PYTHONPATH=src python benchmarks/gpu.py --out gpu.json`.

Needs jax, numpy, scipy and jaxtyping. Nothing is written for a GPU but the rows of one problem. `--scale 0.01` does a
hundredth of the work, for a machine without one.

- *bandwidth*: a triad a = b + 3 c, what the device's memory gives a plain program.
- *chart, in memory*: 2^24 depth-5 coordinate vectors (all 30 pairs seen, epsilon 0.01) that lie in memory, action
  values written back: 24 bytes a pair must move (a payment and a value read, an action value written).
- *chart, weighed*: the same coordinates, but only the action probabilities leave: 8 bytes a pair must move.
- *chart, drawn*: the same, the normal numbers made on the way: nothing has to move, so no bandwidth is given.
- *one problem, drawn* and *one problem, weighed*: the same two with the problem written into the program
  (`one_problem.py`), tile by tile; normal numbers are made in single precision, all else is double.
- *mixture*: Proposition 1 with all pairs seen and epsilon 0.5, all 16,384 cells of the paper (32,768 as the engine
  counts them: it also splits by the root's action). This engine is NumPy: it runs on the host's cores always.
- *HMC*: 300 chains of 2,000 iterations, 10 leapfrogs each, with the paper's tuning.

Seconds are the least of some repeats after a first call, whose extra seconds (compilation) are given beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from one_problem import probabilities

import bellmanifold._util.jax_setup  # noqa: F401 (before any array is made)
from bellmanifold.chart.batch import BatchChart, batch_chart
from bellmanifold.chart.layout import solve_layout
from bellmanifold.envs import deep_sea
from bellmanifold.problem.dataset import Dataset

EPSILON, PRIOR_SCALE = 0.01, 10.0
PIECES = 16
"""Pieces that the draws come in."""
TILE = 2**18
"""Draws of a tile: their normal numbers in single precision, 31 MB, stay in the second-level cache of an H200."""


def best_of(job: Callable[[], Any], repeats: int = 5) -> dict[str, float]:
    """The least seconds of some runs after a first one, and what that one took more."""
    taken = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        jax.block_until_ready(job())
        taken.append(time.perf_counter() - begin)
    first, later = taken[0], taken[1:]
    return {
        "seconds": min(later),
        "slowest_seconds": max(later),
        "first_call_extra_seconds": max(0.0, first - min(later)),
    }


def moved(found: dict[str, Any], size: float, speed: float) -> dict[str, Any]:
    """A measurement with the bytes that had to move and the bandwidth this makes."""
    rate = size / found["seconds"]
    return found | {"bytes": size, "bytes_per_second": rate, "share_of_triad": rate / speed}


def triad(numbers: int) -> dict[str, Any]:
    """Bytes a second of a = b + 3 c in double precision."""
    b, c = jnp.ones(numbers), jnp.ones(numbers)
    add = jax.jit(lambda b, c: b + 3.0 * c)
    found = best_of(lambda: add(b, c), 10)
    return found | {"bytes": 24 * numbers, "bytes_per_second": 24 * numbers / found["seconds"]}


class Draws:
    """Draws of the depth-5 posterior with all pairs seen, through the chart."""

    def __init__(self, draws: int) -> None:
        model = deep_sea(depth=5)
        self.chart: BatchChart = batch_chart(model)
        everything = np.ones(model.n_pairs, dtype=bool)
        self.solved_pairs, self.first = jnp.asarray(everything), self.chart.first_policy(everything)
        self.reward = jnp.asarray(model.reward)[:, None]
        self.batch = max(1, draws // PIECES)
        self.shape = (model.n_pairs, self.batch)
        self.pairs, self.draws = model.n_pairs, PIECES * self.batch

    def solved(self, payment: jax.Array, value: jax.Array) -> jax.Array:
        """Action values."""
        return solve_layout(self.chart.layout, self.chart.law, self.solved_pairs, self.first, payment, value).q

    def weighed(self, normals: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Sums of the weights of draws, and of those in which each action is the best."""
        q = self.solved(self.reward + EPSILON * normals, jnp.zeros_like(normals))
        weight = jnp.exp(-0.5 * jnp.sum((q / PRIOR_SCALE) ** 2, axis=0))
        best = q == self.chart.layout.of_state(self.chart.layout.greedy(q)[1])
        return jnp.sum(weight), jnp.sum(jnp.where(best, weight, 0.0), axis=-1)

    def in_memory(self) -> Callable[[], jax.Array]:
        """Coordinates in memory, action values written back."""
        payments, value = self._normals(), jnp.zeros(self.shape)
        solve = jax.jit(lambda xi, value: self.solved(self.reward + EPSILON * xi, value))

        def job() -> jax.Array:
            for piece in payments:
                q = solve(piece, value)
            return q

        return job

    def reduced(self) -> Callable[[], jax.Array]:
        """Coordinates in memory, action probabilities out."""
        pieces = self._normals()
        weigh = jax.jit(self.weighed)
        return lambda: _share([weigh(piece) for piece in pieces])

    def drawn(self) -> Callable[[], jax.Array]:
        """Normal numbers made on the way, action probabilities out."""
        weigh = jax.jit(lambda key: self.weighed(jax.random.normal(key, self.shape)))
        keys = jax.random.split(jax.random.key(1), PIECES)
        return lambda: _share([weigh(key) for key in keys])

    def one_problem_drawn(self) -> Callable[[], jax.Array]:
        """Normal numbers made on the way, tile by tile, by a program for this problem alone."""
        width = min(TILE, self.draws)
        key = jax.random.key(1)

        def normals(tile: jax.Array) -> jax.Array:
            return jax.random.normal(jax.random.fold_in(key, tile), (self.pairs, width), dtype=jnp.float32)

        return jax.jit(
            lambda: probabilities(self.chart.model, EPSILON, PRIOR_SCALE, normals, width, self.draws // width)
        )

    def one_problem_weighed(self) -> Callable[[], jax.Array]:
        """Coordinates in memory, action probabilities out, by a program for this problem alone."""
        width = min(TILE, self.draws)
        tiles = jax.random.normal(jax.random.key(0), (self.draws // width, self.pairs, width))
        job = jax.jit(
            lambda tiles: probabilities(
                self.chart.model, EPSILON, PRIOR_SCALE, lambda tile: tiles[tile], width, len(tiles)
            )
        )
        return lambda: job(tiles)

    def _normals(self) -> list[jax.Array]:
        make = jax.jit(lambda key: jax.random.normal(key, self.shape))
        return [make(key) for key in jax.random.split(jax.random.key(0), PIECES)]


def _share(parts: list[tuple[jax.Array, jax.Array]]) -> jax.Array:
    return sum(part[1] for part in parts) / sum(part[0] for part in parts)


def mixture_row(scale: float) -> dict[str, Any]:
    """Proposition 1 at depth 5, or 3 for a small scale, on the host."""
    from bellmanifold.posteriors.target import relaxed_target
    from bellmanifold_paper.engines.mixture import mixture

    depth = 5 if scale >= 0.01 else 3
    target = relaxed_target(Dataset.complete(deep_sea(depth=depth)), 0.5, PRIOR_SCALE)
    sizes: list[int] = []
    found = best_of(lambda: sizes.append(mixture(target).diagnostics["cells"]), 3)
    return found | {"cells": sizes[0], "runs_on": "the host's cores (NumPy)"}


def chains_row(chains: int, draws: int) -> dict[str, Any]:
    """HMC with the paper's tuning: `chains` runs that have each seen their own half of the pairs."""
    from bellmanifold.posteriors.kernels import Gaussian
    from bellmanifold.posteriors.noise import KnownScale
    from bellmanifold_paper.bellman import transitions
    from bellmanifold_paper.engines import hmc
    from bellmanifold_paper.engines.chains import hmc_episode, starting_points
    from bellmanifold_paper.log_posterior import Density, Observations
    from bellmanifold_paper.parametrisation import tabular
    from bellmanifold_paper.priors import NormalPrior

    model, tolerance = deep_sea(depth=5), 0.5
    density = Density(tabular(model), NormalPrior(PRIOR_SCALE), KnownScale(1.0, Gaussian()))
    rng = np.random.default_rng(0)
    seen = rng.permuted(np.tile(np.arange(model.n_pairs) < model.n_pairs // 2, (chains, 1)), axis=1)
    reward = np.where(seen, model.reward, 0.0)
    width = np.where(seen, tolerance, 1.0)
    evidence = Observations(jnp.asarray(reward)[..., None], jnp.asarray(seen)[..., None], jnp.asarray(width))
    keys = jax.random.split(jax.random.key(0), chains)
    start = hmc.init(starting_points(density, keys), hmc.first_step_size(tolerance, PRIOR_SCALE))
    law = transitions(model)
    found = best_of(lambda: hmc_episode(density, hmc.PAPER, draws, law, keys, start, evidence)[1], 3)
    _, _, info = hmc_episode(density, hmc.PAPER, draws, law, keys, start, evidence)
    iterations = hmc.PAPER.windows * hmc.PAPER.window + draws
    rate = chains * iterations / found["seconds"]
    acceptance = float(info.acceptance.mean())
    return found | {"chains": chains, "iterations": iterations, "iterations_per_second": rate, "acceptance": acceptance}


def measurements(scale: float) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
    """Name -> what to measure, given what was measured before."""
    draws = Draws(max(PIECES, int(scale * 2**24)))

    def speed(done: dict[str, Any]) -> float:
        return float(done["bandwidth"]["bytes_per_second"])

    def sized(job: Callable[[], Callable[[], Any]], size: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
        def measure(done: dict[str, Any]) -> dict[str, Any]:
            found: dict[str, Any] = best_of(job()) | {"draws": draws.draws}
            found["draws_per_second"] = draws.draws / found["seconds"]
            return moved(found, size * draws.pairs * draws.draws, speed(done)) if size else found

        return measure

    return {
        "bandwidth": lambda done: triad(max(2**22, int(scale * 2**28))),
        "chart, drawn": sized(draws.drawn, 0),
        "chart, weighed": sized(draws.reduced, 8),
        "chart, in memory": sized(draws.in_memory, 24),
        "one problem, drawn": sized(draws.one_problem_drawn, 0),
        "one problem, weighed": sized(draws.one_problem_weighed, 8),
        "HMC": lambda done: chains_row(max(2, int(300 * min(1.0, 10 * scale))), 1000),
        "mixture": lambda done: mixture_row(scale),
    }


def main() -> None:
    """Measure everything; one row that fails does not stop the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the work")
    parser.add_argument("--only", nargs="+", metavar="ROW", help="names of rows; bandwidth has to be the first")
    options = parser.parse_args()
    device = jax.devices()[0]
    result: dict[str, Any] = {
        "device": device.device_kind,
        "platform": device.platform,
        "host_cores": len(os.sched_getaffinity(0)),
        "versions": {"python": platform.python_version(), "jax": jax.__version__, "numpy": np.__version__},
        "scale": options.scale,
        "rows": {},
    }
    for name, measure in measurements(options.scale).items():
        if options.only and name not in options.only:
            continue
        try:
            result["rows"][name] = measure(result["rows"])
        except Exception as error:  # a missing package or a full memory must not cost the other rows
            traceback.print_exc()
            result["rows"][name] = {"failed": f"{type(error).__name__}: {error}"}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1))
        print(name, json.dumps(result["rows"][name]), flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
