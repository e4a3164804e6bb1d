"""What a weighed draw costs where laws are open, against the same problem with given laws, in one run.

    PYTHONPATH=src python benchmarks/law_draws.py

The problem is a slippery grid of 4 x 4, cyclic, with half of its pairs seen once: 15 states in one block. A batch has
1,024 points; drawing laws counts. Prints processor time in milliseconds, the least of some repeats, and the ratio.
"""

from __future__ import annotations

from dataclasses import replace
from time import process_time

import jax
import numpy as np

import bellmanifold as bm
from bellmanifold._util.jax_setup import random_key
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.laws import close_laws
from bellmanifold.posteriors.system import chart_of, drawn_laws, system_of
from bellmanifold.posteriors.target import Target, relaxed_target
from bellmanifold.posteriors.weight import propose

POINTS, REPEATS = 1024, 8


def targets() -> tuple[Target, Target]:
    """The exact posterior with given laws, and with laws of which one landing each was seen."""
    grid = bm.envs.grid(rows=4, columns=4, slip=0.1)
    seen = np.arange(0, grid.n_pairs, 2)
    given = relaxed_target(bm.Dataset(grid, seen, grid.reward[seen]), 0.0, 10.0)
    landing = grid.next_state[grid.next_start[seen]]
    data = bm.Dataset(grid.opened(), seen, grid.reward[seen], np.full(len(seen), np.nan), landing)
    whole, laws, no_law = close_laws(data, "dirichlet")
    unknown = relaxed_target(replace(data, model=whole), 0.0, 10.0)
    return given, replace(unknown, laws=laws, no_law=no_law)


def milliseconds(target: Target) -> float:
    """Processor time of a batch, compiled before."""
    system, rng, took = system_of(Coordinates(target), chart_of(target)), np.random.default_rng(0), []
    for repeat in range(REPEATS + 1):
        began = process_time()
        drawn = drawn_laws(target.laws, rng, POINTS)
        jax.block_until_ready(propose(system, random_key(repeat), POINTS, drawn).log_weight)
        took.append(process_time() - began)
    return 1000.0 * min(took[1:])


def main() -> None:
    """Print both times and their ratio."""
    given, unknown = (milliseconds(target) for target in targets())
    print(f"given laws {given:.0f} ms, open laws {unknown:.0f} ms, ratio {unknown / given:.2f} (at most 3)")


if __name__ == "__main__":
    main()
