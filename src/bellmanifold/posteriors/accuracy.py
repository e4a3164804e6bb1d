"""Accuracy: how large standard errors are, which is another matter than whether they can be trusted.

`trustworthy` says that the stated standard errors can be believed. How accurate an answer is, they say themselves: the
*largest error* is the largest standard error of a reported probability (actions, routes and improper mass). Where it is
above the accuracy that was asked for, an answer says so before anything else; this module is the only place that
decides so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bellmanifold.errors import quote_pair
from bellmanifold.posteriors.estimated import Estimate, PairEstimate
from bellmanifold.posteriors.route import Route

SAMPLED = ("chart", "hmc", "nuts")
"""Engines whose errors shrink with the number of samples."""


class LargestError(NamedTuple):
    """The largest of some standard errors.

    Attributes:
        se: the standard error; infinite if it is not known.
        what: the probability that has it, in words that continue "the probability".
    """

    se: float
    what: str

    @classmethod
    def of(cls, what: str, se: float) -> LargestError:
        """The error of a single probability."""
        return cls(math.inf if math.isnan(se) else float(se), what)


def largest_of(actions: PairEstimate, routes: Sequence[Route], improper: Estimate) -> LargestError:
    """The largest standard error of the probabilities that a posterior reports."""
    worst = int(np.argmax(actions.se))
    pair = quote_pair(*actions.model.pair_name(worst))
    found = [LargestError.of(f"that {pair} is optimal", float(actions.se[worst]))]
    found += [LargestError.of(f"of route {k}", route.se) for k, route in enumerate(routes, 1)]
    found.append(LargestError.of("of improper policies", float(improper.se)))
    return max(found, key=lambda error: error.se)


def shortfall(largest: LargestError, accuracy: float, engine: str = "") -> str:
    """A warning if the largest error is above the accuracy that was asked for, otherwise empty.

    It names the remedy if more samples of the engine help.

    >>> shortfall(LargestError(0.0123, "of route 1"), 0.001, "chart")
    'standard errors are up to 0.012 (of the probability of route 1), above 0.001: more --samples reduce them'
    >>> shortfall(LargestError(0.0123, "of route 1"), 0.02, "chart")
    ''
    """
    if largest.se <= accuracy:
        return ""
    size = f"are up to {largest.se:.2g}" if math.isfinite(largest.se) else "are not known"
    remedy = ": more --samples reduce them" if engine in SAMPLED else ""
    return f"standard errors {size} (of the probability {largest.what}), above {accuracy:g}{remedy}"
