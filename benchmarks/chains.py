"""HMC as the paper ran it: 60 runs moved by one program against one chain in NumPy, scaled to 60.

Both make 2,000 iterations of 10 leapfrog steps on the same posterior (depth-5 deep sea, half of the pairs seen, epsilon
0.5). Ours also tunes its steps on the way and keeps what the paper keeps; the peer walks with a fixed step.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from measuring import Row, compiled, report, timed
from numpy_hmc import Posterior, walk
from posteriors import half_seen

import bellmanifold as bm
from bellmanifold.agents.settings import HMCSettings
from bellmanifold_paper.agents.bayes_hmc import DRAWS, BlockOfChains
from bellmanifold_paper.engines.hmc import PAPER

EPSILON = 0.5
ITERATIONS = PAPER.windows * PAPER.window + DRAWS


def block(model: bm.SSP, data: bm.Dataset, runs: int) -> BlockOfChains:
    """The chains of some runs that have all seen the same."""
    chains = BlockOfChains([model] * runs, HMCSettings(epsilon=EPSILON), list(range(runs)))
    for memory in chains.memories:
        memory.add(data.pair, data.reward)
    chains.move()  # before the first episode nothing moves
    return chains


def rows(quick: bool) -> Iterator[Row]:
    """Iterations a second, batched and not."""
    sea = bm.envs.deep_sea(depth=5)
    data, rng = half_seen(sea), np.random.default_rng(0)
    posterior, start, few = Posterior(data, EPSILON), 10.0 * rng.standard_normal(sea.n_pairs), 500
    one_step = float(block(sea, data, 1).state.step_size[0])
    alone = timed("NumPy, one chain", lambda: walk(posterior, start, one_step, few, PAPER.leapfrogs, rng), 5)
    for runs in (60,) if quick else (60, 1):
        chains = block(sea, data, runs)
        ours, compiling = compiled(f"{runs} chains", chains.move, 3)
        total = runs * ITERATIONS
        peer = alone.scaled(total / few)
        yield Row(
            f"HMC: {runs} chain{'s' if runs > 1 else ''}, {ITERATIONS:,} iterations of {PAPER.leapfrogs} leapfrogs",
            ours,
            peer,
            notes=f"{total / ours.seconds:,.0f} iterations/s, peer {total / peer.seconds:,.0f}, timed on {few} of them",
            compile_seconds=compiling,
            extra={"iterations_per_second": total / ours.seconds, "peer_iterations_per_second": total / peer.seconds},
        )


if __name__ == "__main__":
    report(rows)
