"""Posteriors that claims ask about directly, without any run."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Bool

from bellmanifold.data import Dataset
from bellmanifold.models import load_model
from bellmanifold.posteriors.inference import posterior
from bellmanifold.posteriors.policies import Estimate
from bellmanifold.posteriors.summary import Summary
from bellmanifold.reproduction.claims.questions import Routes
from bellmanifold.reproduction.verdicts import Measurement, estimated

POINTS = 2**15
"""What posteriors are computed from: standard errors stay near 1e-3, and memory within bounds."""


@lru_cache(maxsize=32)
def complete(
    reference: str, epsilon: float, prior_scale: float = 10.0, proper_only: bool = False, points: int = POINTS
) -> Summary:
    """The posterior when every pair has been seen once."""
    model = load_model(reference)
    data = Dataset.complete(model)
    return posterior(
        model, data, epsilon=epsilon, prior_scale=prior_scale, proper_only=proper_only, samples=points, top=10**6
    )


def route_chances(summary: Summary, routes: Routes) -> Estimate:
    """Posterior probability of every route with its standard error."""
    found = {route.pairs: (route.probability, route.se) for route in summary.routes or ()}
    rows = [found.get(tuple(pair for pair in row if pair >= 0), (0.0, 0.0)) for row in routes.pairs.tolist()]
    return Estimate.of(np.array([row[0] for row in rows]), np.array([row[1] for row in rows]))


def chance(what: str, summary: Summary, routes: Routes, which: Bool[np.ndarray, "routes"]) -> Measurement:
    """Posterior probability of some routes together."""
    own = route_chances(summary, routes)
    return estimated(what, float(own.value[which].sum()), float(np.sqrt((own.se[which] ** 2).sum())))


def loop_mass(what: str, summary: Summary) -> Measurement:
    """Posterior probability that the greedy policy is known to be improper."""
    return estimated(what, float(summary.improper_mass.value), float(summary.improper_mass.se))
