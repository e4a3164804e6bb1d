"""Draws a second through the chart, the bytes they move, and the share of this machine's memory bandwidth that makes.

Coordinates are made before. A draw must at least read a payment and a value for every pair and write an action value:
24 bytes a pair. What a program moves beyond that is not counted, so a true share is at least what is shown.
Bandwidth is measured in the same run by a triad a = b + 3 c in NumPy, on arrays too large for the caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from measuring import Goal, Row, compiled, report, timed

import bellmanifold as bm
from bellmanifold.chart.batch import batch_chart
from bellmanifold.chart.layout import solve_layout
from bellmanifold.chart.sparse import sparse_chart

BYTES_A_PAIR = 24
BATCH_NUMBERS = 2**18
"""Payments in a batch: few enough to stay near the caches."""


def bandwidth(numbers: int = 2**25, repeats: int = 5) -> float:
    """Bytes a second of a NumPy triad on one core: two passes, five arrays read or written."""
    a, b, c = np.zeros(numbers), np.ones(numbers), np.ones(numbers)

    def triad() -> None:
        np.multiply(c, 3.0, out=a)
        np.add(a, b, out=a)

    triad()
    return 5 * 8 * numbers / min(timed("triad", triad, repeats).clock)


def batched(model: bm.SSP, draws: int) -> tuple[Callable[[], object], int]:
    """A job that sends at least `draws` coordinate vectors through the batch chart; half of the pairs are solved."""
    chart, rng = batch_chart(model), np.random.default_rng(0)
    solved = rng.random(model.n_pairs) < 0.5
    batch = max(64, BATCH_NUMBERS // model.n_pairs // 64 * 64)
    count = max(4, -(-draws // batch))
    shape = (model.n_pairs, batch)
    reward = model.reward[:, None]
    known, first = jnp.asarray(solved), chart.first_policy(solved)
    pieces = [
        (jnp.asarray(reward + 0.01 * rng.normal(size=shape)), jnp.asarray(10.0 * rng.normal(size=shape)))
        for _ in range(4)
    ]

    def job() -> None:
        for k in range(count):
            found = solve_layout(chart.layout, chart.law, known, first, *pieces[k % 4])
        jax.block_until_ready(found)

    return job, count * batch


def one_by_one(model: bm.SSP, draws: int) -> Callable[[], object]:
    """A job that solves `draws` coordinate vectors on sparse systems, each from the policy of the one before."""
    rng = np.random.default_rng(0)
    solved = rng.random(model.n_pairs) < 0.5
    chart = sparse_chart(model, solved)
    centre = bm.solve(model).q

    def job() -> None:
        policy = None
        for _ in range(draws):
            noise = rng.normal(size=(2, model.n_pairs))
            policy = chart.solve(model.reward + 0.01 * noise[0], centre + noise[1], policy).policy

    return job


def drawn(name: str, model: bm.SSP, draws: int, row: Row, speed: float) -> Row:
    """A row with its draws a second and its share of the bandwidth."""
    rate, size = draws / row.ours.seconds, BYTES_A_PAIR * model.n_pairs
    note = f"{draws:,} draws: {rate:,.0f}/s, {size:,} bytes each, {rate * size / speed:.0%} of {speed / 1e9:.1f} GB/s"
    extra = {"draws_per_second": rate, "bytes_per_draw": size, "bandwidth": speed, "share": rate * size / speed}
    return replace(row, name=name, notes=note, extra=extra)


def rows(quick: bool) -> Iterator[Row]:
    """Deep seas in bsuite's convention, then a slippery grid."""
    speed = bandwidth()
    for depth in (5, 10, 30) if quick else (5, 10, 30, 50):
        model = bm.envs.deep_sea(depth=depth, convention="bsuite")
        job, draws = batched(model, 1_000_000 if depth == 5 else 20_000_000 // model.n_pairs)
        ours, compiling = compiled("batch chart", job, 5)
        goal = Goal(seconds=round(0.1 * draws / 1_000_000, 4)) if depth == 5 else None
        row = Row("", ours, goal=goal, compile_seconds=compiling)
        yield drawn(f"draws: bsuite deep sea {depth}, half solved", model, draws, row, speed)
    model = bm.envs.grid(100, 100, slip=0.1)
    draws = 2 if quick else 5
    row = Row("", timed("sparse chart", one_by_one(model, draws), 2 if quick else 3))
    yield drawn("draws: slippery 100 x 100 grid, half solved, one by one", model, draws, row, speed)


if __name__ == "__main__":
    report(rows)
