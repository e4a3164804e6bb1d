"""Posteriors that claims ask about directly, without any run.

Where a diagnostic says not to trust a posterior, whatever is read off it has no interval: it cannot establish or
refute a condition.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from jaxtyping import Bool

from bellmanifold.io.models import load_model
from bellmanifold.learning.routes import Routes
from bellmanifold.posteriors.inference import posterior
from bellmanifold.posteriors.summary import Summary
from bellmanifold.problem.dataset import Dataset
from bellmanifold_paper.route_chances import route_chances
from bellmanifold_paper.verdicts import Measurement, estimated, exactly

POINTS = 2**15
"""Asked of each posterior: engines raise it to the least they work with, and memory stays within bounds. Standard
errors are whatever that gives, and are part of every interval."""


@lru_cache(maxsize=32)
def complete(reference: str, epsilon: float, prior_scale: float = 10.0, proper_only: bool = False) -> Summary:
    """The posterior when every pair has been seen once."""
    model = load_model(reference)
    data = Dataset.complete(model)
    return posterior(
        model, data, epsilon=epsilon, prior_scale=prior_scale, proper_only=proper_only, samples=POINTS, top=10**6
    )


def chance(what: str, summary: Summary, routes: Routes, which: Bool[np.ndarray, "routes"]) -> Measurement:
    """Posterior probability of some routes together; their errors are added, since routes share their points."""
    own = route_chances(summary, routes)[which]
    return estimated(_doubted(what, summary), float(own.value.sum()), float(own.se.sum()), probability=True)


def mass_and_error(summary: Summary, in_model: bool = False) -> tuple[float, float]:
    """Posterior probability that the greedy policy is improper, with its standard error.

    Args:
        summary: the posterior.
        in_model: improper under the problem's transitions, instead of known to be improper.
    """
    mass = summary.improper_mass_model if in_model else summary.improper_mass
    assert mass is not None, "the paper's problems leave nothing open"
    return float(mass.value), float(mass.se) if summary.trustworthy else math.inf


def loop_mass(what: str, summary: Summary, in_model: bool = False) -> Measurement:
    """That probability as a measurement."""
    return estimated(_doubted(what, summary), *mass_and_error(summary, in_model), probability=True)


def counted(what: str, number: int, summary: Summary) -> Measurement:
    """A number of things that were counted in a posterior."""
    found = exactly(_doubted(what, summary), number)
    return found if summary.trustworthy else Measurement(found.what, found.value, -math.inf, math.inf)


def _doubted(what: str, summary: Summary) -> str:
    return what if summary.trustworthy else f"{what} (a diagnostic says not to trust this posterior)"
