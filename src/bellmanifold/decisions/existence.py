"""Refusing advice that rests on numbers which do not exist.

A decision compares means over draws: of the optimal value at the start, of the best policy's value there, and of their
difference. If one of them is infinite or undefined in some draw, or has a tail so long that its mean cannot be
estimated (`bellmanifold.posteriors.pareto`), "stop" and "go on" mean nothing, whatever the numbers look like.

The value of a *fixed* policy may have no mean where all action values have one: if laws are open, the policy may
stay in a loop in the few draws in which it is hardly ever left. So tails are judged wherever laws are open, too.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from bellmanifold.decisions.joint_draws import JointDraws, PerDraw
from bellmanifold.decisions.valuation import Valuation
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.pareto import is_ruled_by_few
from bellmanifold.posteriors.tails import ROUNDING, Tails, may_be_long, remedy

UNDEFINED = "the value of the best policy, or what it loses, has no mean"


def check_means(draws: JointDraws, policy: Int[np.ndarray, "states"], tails: Tails) -> None:
    """Raise unless the values that a decision rests on have means.

    Args:
        draws: the draws.
        policy: the best policy.
        tails: the action values without a mean. If a loop that may pay can be reached from a start, the optimal value
            has none there, whatever the best policy plays.
    """
    target = draws.target
    with np.errstate(all="ignore"):
        value = Valuation(draws).at_start(policy[None])[0]
    if not (np.isfinite(value) & np.isfinite(draws.at_start))[draws.weight > 0].all():
        raise UnsupportedError(
            f"{UNDEFINED}: in some draws it never arrives, or its value is beyond all numbers; {_remedy(draws)}"
        )
    begins = target.model.initial > 0
    certain = tails.exact is not None and tails.exact.what == "mean"
    starts = np.flatnonzero(begins[target.model.pair_state]) if certain else policy[begins]
    judged = may_be_long(target) or target.laws is not None
    if tails.mean[starts].any() or (judged and any(_is_long(draws, one) for one in (value, draws.at_start))):
        raise UnsupportedError(
            f"{UNDEFINED}, as far as draws can tell: in a few of them a loop pays, or is hardly ever left; "
            f"{_remedy(draws)}"
        )


def _is_long(draws: JointDraws, value: PerDraw) -> bool:
    """Whether the tail of a value is too long for a mean."""
    middle = np.median(value)
    away = np.abs(value - middle)
    return is_ruled_by_few(np.where(away > ROUNDING * abs(middle), draws.weight * away, 0.0))


def _remedy(draws: JointDraws) -> str:
    target = draws.target
    if target.prior.flat:
        return remedy(target)
    return "use --discount 0.99" if target.proper_only else "use --proper-only or --discount 0.99"
