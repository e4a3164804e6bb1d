"""Contradictions among rewards, or between the data and the prior; in words, empty if there are none."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from bellmanifold.errors import quote
from bellmanifold.posteriors.target import Target
from bellmanifold.problem.costs import Costs, signed
from bellmanifold.problem.dataset import Dataset

MANY_SDS = 4.0
"""Numbers further apart than this, in standard deviations, contradict each other."""
FAR_TOGETHER = 2.0
"""All rewards together contradict each other if they are this many sds apart on average."""


def among_rewards(data: Dataset, noiseless: bool) -> str:
    """Rewards with their own sds, beliefs included, that disagree by many sds, or all together by a few.

    The sum of their squared distances, in sds, is chi-squared with as many degrees of freedom n as there are rewards
    beyond the first of each pair; it exceeds (4 + sqrt(n))^2 with a probability below exp(-8) = 0.0003. All together
    also have to be 2 sds apart on average: sds that are slightly too small are no contradiction. An exact reward
    overrules beliefs, and is compared with them as well.
    """
    overruled = (data.exact | ((data.count > 0) & noiseless)) & (data.own_count > 0)
    paid = np.where(data.exact, data.exact_reward, data.mean_reward)
    beside = np.where(overruled, data.own_precision * (paid - data.own_mean) ** 2, 0.0)
    distance, freedom = data.own_scatter + beside, np.maximum(data.own_count + overruled - 1, 0)
    far = distance > (MANY_SDS + np.sqrt(freedom)) ** 2
    total, whole = float(distance.sum()), int(freedom.sum())
    together = total > max((MANY_SDS + np.sqrt(whole)) ** 2, FAR_TOGETHER**2 * whole)
    if together:
        far = far | (distance > FAR_TOGETHER**2 * np.maximum(freedom, 1))
    if not far.any():
        return ""
    named = ", ".join(quote(name) for name in data.model.pair_name(int(np.argmax(distance))))
    more = f" and of {int(far.sum()) - 1} more" if far.sum() > 1 else ""
    return (
        f"rewards of ({named}){more}, beliefs included, differ by many of their sds: "
        "check their signs (a cost is a negative reward) and their sds"
    )


def with_prior(target: Target, q_mean: Float[np.ndarray, "pairs"], costs: Costs | None = None) -> str:
    """The observed value furthest from its prior mean, if that is many prior standard deviations."""
    prior = target.prior
    if prior.flat or not target.observed.any():
        return ""
    away = np.where(target.observed, np.nan_to_num(np.abs(prior.standardise(q_mean))), 0.0)
    pair = int(np.argmax(away))
    if away[pair] <= MANY_SDS:
        return ""
    state, action = (quote(name) for name in target.model.pair_name(pair))
    values = q_mean[target.observed]
    middle, spread = float(np.median(values)), float(np.abs(values - np.median(values)).max())
    fits = f"--prior-mean {middle:.2g} --prior-scale {max(spread, abs(middle)):.2g} would fit"
    found, expected = signed(q_mean[pair], costs), signed(prior.mean[pair], costs)
    return (
        f"the data contradict the prior: the value of ({state}, {action}) is about {found:.3g}, "
        f"{away[pair]:.0f} prior standard deviations from its prior mean {expected:.3g}: "
        + (fits if costs is None else "say what a move costs (--cost-belief) rather than what a state is worth")
    )
