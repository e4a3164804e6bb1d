"""The posterior of one problem without cycles, all pairs seen, as a program with the problem written into it.

The library's compiled programs take a problem as an argument, so that one program serves many problems. Here successors
and rewards are constants and every action value is an array of its own: a compiler can keep a draw in registers from
its normal numbers to its weight. That is what a GPU is asked for in `gpu.py`; `tests/test_benchmarks.py` compares it
with the chart.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from bellmanifold.mdp.graph import levels
from bellmanifold.problem.ssp import SSP


def weighed(model: SSP, epsilon: float, prior_scale: float, normals: jax.Array) -> list[jax.Array]:
    """Weights of draws, then the weights of those in which each action is the best."""
    depth = levels(model, np.ones(model.n_pairs, dtype=bool))
    if depth is None:
        raise ValueError("the problem has a cycle")
    q: dict[int, jax.Array] = {}
    best: dict[int, jax.Array] = {model.n_states: jnp.zeros(normals.shape[-1])}
    for state in np.argsort(depth, kind="stable").tolist():
        pairs = range(model.pair_start[state], model.pair_start[state + 1])
        for pair in pairs:
            moves = slice(model.next_start[pair], model.next_start[pair + 1])
            q[pair] = float(model.reward[pair]) + epsilon * normals[pair].astype(jnp.float64)
            for following, chance in zip(
                model.next_state[moves].tolist(), model.next_prob[moves].tolist(), strict=True
            ):
                q[pair] = q[pair] + chance * best[following]
        best[state] = q[pairs[0]]
        for pair in pairs[1:]:
            best[state] = jnp.maximum(best[state], q[pair])
    weight = jnp.exp(-0.5 / prior_scale**2 * sum(value * value for value in q.values()))
    played = [jnp.where(q[k] == best[state], weight, 0.0) for k, state in enumerate(model.pair_state.tolist())]
    return [weight, *played]


def probabilities(
    model: SSP, epsilon: float, prior_scale: float, normals: Callable[[jax.Array], jax.Array], width: int, tiles: int
) -> jax.Array:
    """Action probabilities from some tiles of draws; `normals` gives those of a tile, shape (pairs, width)."""

    def add(tile: jax.Array, sums: list[jax.Array]) -> list[jax.Array]:
        drawn = jax.lax.optimization_barrier(normals(tile))  # drawing and sweeping as one program is slower
        found = weighed(model, epsilon, prior_scale, drawn)
        return [total + more for total, more in zip(sums, found, strict=True)]

    sums = jax.lax.fori_loop(0, tiles, add, [jnp.zeros(width)] * (model.n_pairs + 1))
    total, *played = [jnp.sum(one) for one in sums]
    return jnp.stack(played) / total
