"""Route and action probabilities of depth-5 deep sea: the engines against the paper's method (`published_method.py`).

Both sides answer everything an episode asks for: 30 action probabilities and 32 routes. The paper's method needs ten
minutes with all pairs seen, so a random share of its cells is timed, with all their integrals, and scaled. Its standard
errors are the spread of its answers over several scramblings, on the cells that matter, and compared with ours by their
root mean square over all 62 answers. Where too many cells matter they are not measured: benchmarks/README.md has them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from measuring import Goal, Row, Times, compiled, report, timed
from published_method import Choice, PublishedMethod, agreeing
from scipy.special import log_ndtr

import bellmanifold as bm

SCRAMBLINGS = 4
MOST_CELLS = 1024
LOG2_POINTS = (15, 21)
"""The numbers of points that are tried to match the peer's error."""


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


def time_published(method: PublishedMethod, timed_cells: int, repeats: int) -> tuple[Times, str]:
    """Seconds of the paper's method for all queries, and what was timed of it."""
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
    return taken.scaled(1.0 / share), note


def published_errors(method: PublishedMethod) -> np.ndarray | None:
    """The standard errors of the paper's method; None if too many cells matter to repeat it."""
    cells = cells_that_matter(method)
    if len(cells) > MOST_CELLS:
        return None
    answers = []
    for seed in range(SCRAMBLINGS):
        again = PublishedMethod(method.data, method.epsilon, method.prior_scale, method.points, seed=1 + seed)
        answers.append(again.probabilities(again.groups(), cells))
    return np.std(answers, axis=0, ddof=1)


def cells_that_matter(method: PublishedMethod) -> list[Choice]:
    """Cells in the order of evidence times their least probable wall, which bounds their weights, until few are left.

    Left out are those whose bounds add up to a thousandth of all bounds.
    """
    cells, bounds = list(method.cells()), []
    for cell in cells:
        gaussian = method.posterior_of(cell)
        best = np.array([pair for state, pair in cell.items() for other in method.pairs_of(state) if other != pair])
        rest = np.array([other for state, pair in cell.items() for other in method.pairs_of(state) if other != pair])
        spread = gaussian.covariance[best] - gaussian.covariance[rest]
        variance = np.diagonal(spread[:, best] - spread[:, rest])
        edge = (gaussian.mean[best] - gaussian.mean[rest]) / np.sqrt(np.maximum(variance, 1e-300))
        bounds.append(gaussian.log_evidence + log_ndtr(edge).min())
    order = np.argsort(-np.array(bounds))
    bound = np.exp(np.array(bounds)[order] - max(bounds))
    return [cells[k] for k in order[: 1 + int(np.searchsorted(np.cumsum(bound), 0.999 * bound.sum()))]]


def our_errors(routes: list[frozenset[int]], summary: bm.Summary) -> np.ndarray:
    """The standard errors of all answers, in the order of the peer's; a route that never occurs has 0."""
    errors = {frozenset(route.pairs): route.se for route in summary.routes or ()}
    return np.concatenate([summary.action_probability.se, [errors.get(route, 0.0) for route in routes]])


def root_mean_square(errors: np.ndarray) -> float:
    """One number for all answers."""
    return float(np.sqrt((errors**2).mean()))


class Peer:
    """The paper's method on some data: its seconds and its standard error."""

    def __init__(self, name: str, data: bm.Dataset, epsilon: float, quick: bool) -> None:
        self.name, self.data, self.epsilon = name, data, epsilon
        self.method = PublishedMethod(data, epsilon)
        self.routes = [frozenset(query.values()) for query in self.method.routes()]
        self.seconds, self.note = time_published(self.method, 20 if quick else 80, 2 if quick else 3)
        errors = published_errors(self.method)
        self.error = None if errors is None else root_mean_square(errors)

    def points_to_match(self) -> int | None:
        """The smallest power of two of points with which the chart is at least as precise; None if that is unknown."""
        if self.error is None:
            return None
        for log2_points in range(*LOG2_POINTS):
            errors = our_errors(self.routes, self.answers("chart", 2**log2_points))
            if root_mean_square(errors) <= self.error:
                break
        return int(2**log2_points)

    def answers(self, engine: str, samples: int | None) -> bm.Summary:
        """What an engine of ours finds."""
        return bm.posterior(self.data.model, self.data, epsilon=self.epsilon, engine=engine, samples=samples)

    def compare(self, engine: str, goal: Goal, samples: int | None = None) -> Row:
        """An engine against it."""

        def job() -> tuple[bm.Summary, np.ndarray]:
            summary = self.answers(engine, samples)
            return summary, our_errors(self.routes, summary)  # asks for every answer: they are computed when asked for

        ours, compiling = compiled(f"engine {engine}", job, 7)
        summary, errors = job()
        error = root_mean_square(errors)
        unmeasured = "not measured here" if self.error is None else f"{self.error:.2g}"
        note = f"{self.note}; root mean square standard error {error:.2g}, peer's {unmeasured}"
        matched = self.error is None or error <= self.error
        return Row(
            f"{engine}{'' if samples is None else f', {samples:,} points'}: {self.name}, epsilon {self.epsilon:g}",
            ours,
            self.seconds,
            goal,
            comparable=matched,
            compile_seconds=compiling,
            notes=note + ("" if matched else ": not matched"),
            extra={
                "our_error": error,
                "our_largest_error": float(errors.max()),
                "peer_error": self.error,
                "trustworthy": summary.trustworthy,
            },
        )


def rows(quick: bool) -> Iterator[Row]:
    """Engines against the paper's method."""
    sea = bm.envs.deep_sea(depth=5)
    complete, half = bm.Dataset.complete(sea), half_seen(sea)
    peer = Peer("depth 5, all 30 pairs seen", complete, 0.01, quick)
    yield peer.compare("chart", Goal(ratio=10_000.0, seconds=0.05), samples=peer.points_to_match())
    yield peer.compare("mixture", Goal(ratio=300.0))
    peer = Peer("depth 5, 15 pairs seen on trajectories", half, 0.01, quick)
    yield peer.compare("chart", Goal(ratio=5_000.0, seconds=0.3), samples=peer.points_to_match())
    yield peer.compare("mixture", Goal(ratio=300.0))
    peer = Peer("depth 5, all 30 pairs seen", complete, 0.5, quick)
    yield peer.compare("mixture", Goal(ratio=300.0, seconds=3.0))


if __name__ == "__main__":
    report(rows)
