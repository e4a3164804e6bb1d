"""Route and action probabilities of depth-5 deep sea: the engines against the paper's method (`published_method.py`).

Both sides answer everything an episode asks for: 30 action probabilities and 32 routes. The paper's method needs ten
minutes with all pairs seen, so a random share of its cells is timed, with all their integrals, and scaled. Its standard
error is the spread of its answers over several scramblings, for the queries that are hardest, on the cells that matter.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from measuring import Goal, Row, Times, compiled, report, timed
from published_method import Choice, PublishedMethod, agreeing
from scipy.special import log_ndtr

import bellmanifold as bm

SCRAMBLINGS = 6
HARDEST = 4
"""Queries whose probabilities are nearest to a half."""
CELLS_THAT_MATTER = 300


def half_seen(model: bm.SSP, seed: int = 3) -> bm.Dataset:
    """Half of the pairs, seen along trajectories of random policies."""
    rng = np.random.default_rng(seed)
    seen: list[int] = []
    while len(seen) < model.n_pairs // 2:
        policy, state = rng.integers(model.pair_start[:-1], model.pair_start[1:]), int(np.argmax(model.initial))
        while state < model.n_states:
            seen += [int(policy[state])] if policy[state] not in seen else []
            state = int(model.next_state[model.next_start[policy[state]]])
    pairs = np.sort(seen[: model.n_pairs // 2])
    return bm.Dataset(model, pairs, model.reward[pairs])


def time_published(method: PublishedMethod, timed_cells: int, repeats: int) -> tuple[Times, str, int]:
    """Seconds of the paper's method for all queries, what was timed of it, and how many queries there are."""
    cells, queries = list(method.cells()), method.actions() + method.routes()
    rng = np.random.default_rng(0)

    def some_cells(count: int) -> None:
        for k in rng.choice(len(cells), count, replace=False):
            gaussian = method.posterior_of(cells[k])
            for j in agreeing(cells[k], queries):
                method.integral(gaussian, cells[k] | queries[j])

    some_cells(min(4, timed_cells))  # makes the Sobol points of every dimension
    taken = timed("published method", lambda: some_cells(timed_cells), repeats)
    share = timed_cells / len(cells)
    note = f"peer timed on {share:.1%} of its {len(cells):,} cells and scaled"
    return taken.scaled(1.0 / share), note, len(queries)


def published_error(method: PublishedMethod, summary: bm.Summary) -> float:
    """The largest standard error of the paper's method among the hardest queries."""
    queries = method.actions() + method.routes()
    by_route = {frozenset(route.pairs): route.probability for route in summary.routes}
    routes = [by_route.get(frozenset(query.values()), 0.0) for query in method.routes()]
    known = np.concatenate([summary.action_probability.value, routes])
    hardest = [queries[j] for j in np.argsort(np.abs(known - 0.5), kind="stable")[:HARDEST]]
    cells = cells_that_matter(method)
    answers = []
    for seed in range(SCRAMBLINGS):
        again = PublishedMethod(method.data, method.epsilon, method.prior_scale, method.points, seed=1 + seed)
        answers.append(again.probabilities(hardest, cells))
    return float(np.std(answers, axis=0, ddof=1).max())


def cells_that_matter(method: PublishedMethod) -> list[Choice]:
    """The cells with the largest bounds: evidence times the probability of the least probable wall."""
    cells, bounds = list(method.cells()), []
    for cell in cells:
        gaussian = method.posterior_of(cell)
        best = np.array([pair for state, pair in cell.items() for other in method.pairs_of(state) if other != pair])
        rest = np.array([other for state, pair in cell.items() for other in method.pairs_of(state) if other != pair])
        spread = gaussian.covariance[best] - gaussian.covariance[rest]
        variance = np.diagonal(spread[:, best] - spread[:, rest])
        edge = (gaussian.mean[best] - gaussian.mean[rest]) / np.sqrt(np.maximum(variance, 1e-300))
        bounds.append(gaussian.log_evidence + log_ndtr(edge).min())
    return [cells[k] for k in np.argsort(-np.array(bounds))[:CELLS_THAT_MATTER]]


def largest_error(summary: bm.Summary) -> float:
    """The largest standard error of all answers."""
    return max([float(summary.action_probability.se.max())] + [route.se for route in summary.routes])


def compare(
    name: str, data: bm.Dataset, epsilon: float, engines: dict[str, Goal], timed_cells: int, repeats: int
) -> Iterator[Row]:
    """One row for each engine, all against the same measurement of the peer."""
    method = PublishedMethod(data, epsilon)
    peer, note, queries = time_published(method, timed_cells, repeats)
    peer_error = None
    for engine, goal in engines.items():

        def job(engine: str = engine) -> bm.Summary:
            return bm.posterior(data.model, data, epsilon=epsilon, engine=engine)

        ours, compiling = compiled(f"engine {engine}", job, repeats=5)
        summary = job()
        error = largest_error(summary)
        peer_error = published_error(method, summary) if peer_error is None else peer_error
        errors = f"largest standard error {error:.1g}, peer's {peer_error:.1g}"
        better = " (ours is larger)" if error > peer_error else ""
        yield Row(
            f"{engine}: depth 5, {name}, epsilon {epsilon:g}",
            ours,
            peer,
            goal,
            compiling,
            f"{note}; {errors}{better}",
            {"our_error": error, "peer_error": peer_error, "queries": queries, "trustworthy": summary.trustworthy},
        )


def rows(quick: bool) -> Iterator[Row]:
    """Engines against the paper's method."""
    sea = bm.envs.deep_sea(depth=5)
    repeats, cells = (2, 20) if quick else (3, 80)
    chart, mixture = Goal(ratio=10_000.0, seconds=0.05), Goal(ratio=300.0)
    yield from compare(
        "all 30 pairs seen", bm.Dataset.complete(sea), 0.01, {"chart": chart, "mixture": mixture}, cells, repeats
    )
    late = Goal(ratio=10_000.0, seconds=0.3)
    yield from compare(
        "15 pairs seen on trajectories", half_seen(sea), 0.01, {"chart": late, "mixture": mixture}, cells, repeats
    )
    everything = {"mixture": Goal(ratio=300.0, seconds=3.0)}
    yield from compare("all 30 pairs seen", bm.Dataset.complete(sea), 0.5, everything, cells, repeats)


if __name__ == "__main__":
    report(rows)
