"""Refusing advice that rests on numbers which do not exist.

A decision compares means over draws: of the optimal value at the start, of the best policy's value there, and of their
difference. If one of them is infinite or undefined in some draw, or has a tail so long that its mean cannot be
estimated (`bellmanifold.posteriors.pareto`), "stop" and "go on" mean nothing, whatever the numbers look like.

The value of a *fixed* policy may have no mean where all action values have one: if laws are open, the policy may
stay in a loop in the few draws in which it is hardly ever left. So tails are judged wherever laws are open, too.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int

from bellmanifold.decisions.joint_draws import JointDraws, PerDraw
from bellmanifold.decisions.valuation import Valuation
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.pareto import is_ruled_by_few
from bellmanifold.posteriors.tails import may_be_long, remedy

UNDEFINED = "the value of the best policy, or what it loses, has no mean"


def check_means(draws: JointDraws, policy: Int[np.ndarray, "states"], without_mean: Bool[np.ndarray, "pairs"]) -> None:
    """Raise unless the values that a decision rests on have means.

    Args:
        draws: the draws.
        policy: the best policy.
        without_mean: pairs whose action value is known to have none.
    """
    target = draws.target
    with np.errstate(all="ignore"):
        value = Valuation(draws).at_start(policy[None])[0]
    if not (np.isfinite(value) & np.isfinite(draws.at_start))[draws.weight > 0].all():
        raise UnsupportedError(
            f"{UNDEFINED}: in some draws it never arrives, or its value is beyond all numbers; {_remedy(draws)}"
        )
    starts = policy[target.model.initial > 0]
    judged = may_be_long(target) or target.laws is not None
    if without_mean[starts].any() or (judged and any(_is_long(draws, one) for one in (value, draws.at_start))):
        raise UnsupportedError(
            f"{UNDEFINED}, as far as draws can tell: in a few of them a loop pays, or is hardly ever left; "
            f"{_remedy(draws)}"
        )


def _is_long(draws: JointDraws, value: PerDraw) -> bool:
    """Whether the tail of a value is too long for a mean."""
    return is_ruled_by_few(draws.weight * np.abs(value - np.median(value)))


def _remedy(draws: JointDraws) -> str:
    target = draws.target
    if target.prior.flat:
        return remedy(target)
    return "use --discount 0.99" if target.proper_only else "use --proper-only or --discount 0.99"
