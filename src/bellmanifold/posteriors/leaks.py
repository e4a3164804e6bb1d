"""Does a posterior with open laws exist, and do importance weights have a variance?

`bellmanifold.posteriors.laws` says when: every class of pairs with exact rewards that pays exactly nothing on average
must be left with a total weight w = sum (n_out + a b_out) above 1, and above 2 for weights with a variance. Classes
that nothing was seen to leave are the end components of the landings that were seen; those that were left once are end
components once that landing is taken away. Classes that were left twice have w > 2.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Bool

from bellmanifold.errors import UnsupportedError
from bellmanifold.gain import MeanReward, best_mean_reward
from bellmanifold.graph import end_components
from bellmanifold.health import state_names
from bellmanifold.posteriors.laws import OpenLaws
from bellmanifold.posteriors.target import Target
from bellmanifold.ssp import SSP

MOST_LOOKED_AT = 64
"""Landings that are taken away, one after the other."""


def check_leaks(target: Target) -> str:
    """Refuse a posterior that does not exist; otherwise why its weights may have no variance, or nothing.

    Raises:
        UnsupportedError: naming a class that pays nothing and may be left as rarely as one likes.
    """
    laws = target.laws
    exact = target.observed & (target.scale == 0)
    if laws is None or target.prior.flat or laws.discount < 1.0 or not (exact & (target.reward >= 0)).any():
        return ""
    idle = _idle_class(target, target.support, exact, 1.0)
    if idle is not None:
        raise UnsupportedError(
            f"the pairs that were seen to stay in {state_names(target.model, np.sort(idle.loop))} pay nothing on "
            "average, and their laws are unknown: the posterior does not exist, as the less a loop is left the more it "
            "weighs; use --epsilon above 0, --noise-sd or --discount 0.99"
        )
    rows, landings = laws.seen
    once = np.flatnonzero(laws.counts[rows, landings] == 1)
    if len(once) > MOST_LOOKED_AT:
        return "open laws in loops that pay nothing: too many to show that weights have a variance"
    for entry in once:
        counts = laws.counts.copy()
        counts[rows[entry], landings[entry]] = 0
        fewer = replace(target, laws=replace_counts(laws, counts))
        if counts[rows[entry]].any() and _idle_class(target, fewer.support, exact, 0.0) is not None:
            return "a loop that pays nothing was left only once, and its laws are unknown: weights have no variance"
    return ""


def replace_counts(laws: OpenLaws, counts: np.ndarray) -> OpenLaws:
    """The same open laws with other landings."""
    return replace(laws, landed=type(laws.landed)(counts))


def _idle_class(target: Target, support: SSP, exact: Bool[np.ndarray, "pairs"], most: float) -> MeanReward | None:
    """A class of pairs with exact rewards that pays exactly nothing and is left with a weight of `most` or less."""
    laws = target.laws
    assert laws is not None, "only asked where laws are open"
    model = replace(support, reward=target.reward)
    for allowed in (exact, exact & (target.reward == 0)):
        for component in end_components(model, allowed):
            best = best_mean_reward(model, component)
            open_pairs = int(target.open[best.policy].sum())
            out = 1.0 - len(best.loop) / laws.nexts
            if best.sign == 0 and open_pairs and (not most or laws.concentration[0] * out * open_pairs <= most):
                return best
    return None
