"""What is believed about routes, computed from the pairs that were seen.

Runs record the route probabilities of each episode as their agents knew them. Those of BR and of the exact posterior
come from the few thousand points that the agent draws from: good enough to play, but where eight routes have nearly
the same probability, sorting them sorts the noise of those points. So where routes are compared with each other, their
probabilities are computed again from what was seen, with many more points. Most runs see everything in the end, so
there are few different posteriors, and each is computed once.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float

from bellmanifold.io.models import load_model
from bellmanifold.learning.routes import Routes, all_routes, filled_up, read_routes
from bellmanifold.posteriors.estimated import Estimate
from bellmanifold.posteriors.inference import posterior
from bellmanifold.posteriors.summary import Summary
from bellmanifold.problem.dataset import Dataset
from bellmanifold_paper.paper_runs import Cell, PaperRuns

POINTS = 2**18
"""Behind each posterior; standard errors of the pyramid's eight routes are then 4e-4, and 2e-3 at tolerance 5."""
COMPUTED = ("bayes-br", "manifold")
"""Agents whose posterior is a function of the pairs they have seen."""


@lru_cache(maxsize=8)
def routes_of(reference: str) -> Routes:
    """All routes of a problem, in the order in which cells have them."""
    model = load_model(reference)
    return read_routes(model, filled_up(all_routes(model)))


def route_chances(summary: Summary, routes: Routes) -> Estimate:
    """Posterior probability of every route with its standard error, infinite if a diagnostic says not to trust it."""
    found = {route.pairs: (route.probability, route.se) for route in summary.routes or ()}
    rows = [found.get(tuple(pair for pair in row if pair >= 0), (0.0, 0.0)) for row in routes.pairs.tolist()]
    se = np.array([row[1] for row in rows]) if summary.trustworthy else np.full(len(rows), np.inf)
    return Estimate.of(np.array([row[0] for row in rows]), se)


@lru_cache(maxsize=256)
def chances_given(
    reference: str, seen: tuple[int, ...], epsilon: float, prior_scale: float = 10.0, points: int = POINTS
) -> Estimate:
    """Posterior probability of every route given some pairs; a tolerance of 0 is the exact posterior."""
    model = load_model(reference)
    pairs = np.array(seen, dtype=np.int64)
    data = Dataset(model, pairs, model.reward[pairs])
    found = posterior(model, data, epsilon=epsilon, prior_scale=prior_scale, samples=points, top=10**6)
    return route_chances(found, routes_of(reference))


def chances_of_complete_data(reference: str, epsilon: float, points: int = POINTS) -> Estimate:
    """Posterior probability of every route when every pair has been seen."""
    return chances_given(reference, tuple(range(load_model(reference).n_pairs)), epsilon, points=points)


def final_chances(runs: PaperRuns, cell: Cell, points: int = POINTS) -> Float[np.ndarray, "runs routes"]:
    """Probability of every route before the last episode of each run.

    It is computed from what was seen where that determines the posterior, else it is what the run has recorded.
    """
    if cell.agent not in COMPUTED:
        return np.asarray(runs.cell(cell)["route_probability"].values[:, -1], dtype=np.float64)
    seen = [_seen_before_the_last(run["pair"].values, run["moves"].values) for run in runs.separately(cell)]
    found = [chances_given(cell.model, pairs, cell.epsilon or 0.0, cell.prior_scale, points) for pairs in seen]
    return np.stack([chance.value for chance in found])


def _seen_before_the_last(pair: np.ndarray, moves: np.ndarray) -> tuple[int, ...]:
    return tuple(np.unique(pair[: int(moves[:-1].sum())]).tolist())
