"""What is known about every move, in words: how often it was played, what it paid, and beliefs about it.

A belief is a reward with a standard deviation and no next state (`bellmanifold.problem.dataset`); all other
observations were played.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from bellmanifold.problem.costs import Costs, in_unit, signed
from bellmanifold.problem.dataset import Dataset

Amounts = Float[np.ndarray, "observations"]
TIMES = {1: "once", 2: "twice"}


def accounts(data: Dataset, costs: Costs | None = None) -> list[str]:
    """A sentence for each pair, of costs if the problem was given in costs.

    >>> from bellmanifold import Observation, envs
    >>> seen = [("s1", "go"), ("s1", "go")]
    >>> accounts(Dataset.from_pairs(envs.two_state(), [*seen, Observation("s1", "stay", -5.0, sd=2.0)]))
    ['not played; believed to pay −5 ± 2', 'played twice, paid −1 each time']
    """
    reward = signed(data.reward, costs)
    is_belief, pairs = (data.sd > 0) & (data.next < 0), data.model.n_pairs
    rows = np.split(np.argsort(data.pair, kind="stable"), np.cumsum(np.bincount(data.pair, minlength=pairs)))
    return [_account(reward, data.sd, own[~is_belief[own]], own[is_belief[own]], costs) for own in rows[:pairs]]


def _account(reward: Amounts, sd: Amounts, played: np.ndarray, believed: np.ndarray, costs: Costs | None) -> str:
    """A sentence about one pair, given its observations: those played, and beliefs."""
    if not len(played) and not len(believed):
        return "nothing known"
    pay = "pay" if costs is None else "cost"
    beliefs = [f"believed to {pay} {in_unit(f'{amount(reward[t])} ± {amount(sd[t])}', costs)}" for t in believed[-1:]]
    beliefs += [f"{len(believed)} beliefs, this is the latest"] if len(believed) > 1 else []
    return "; ".join([_trials(reward[played], sd[played], costs), *beliefs])


def _trials(reward: Amounts, sd: Amounts, costs: Costs | None) -> str:
    """A summary of what trials of one pair paid."""
    if not len(reward):
        return "not played"
    often = f"played {TIMES.get(len(reward), f'{len(reward)} times')}"
    paid = reward[~np.isnan(reward)]
    if not len(paid):
        return often
    often += ", paid" if costs is None else ", cost"
    if len(reward) == 1:
        return f"{often} {in_unit(amount(paid[0]) + (f' ± {amount(sd[0])}' if sd[0] > 0 else ''), costs)}"
    each = np.ptp(paid) == 0 and len(paid) == len(reward)
    return f"{often} {in_unit(amount(paid.mean()), costs)} {'each time' if each else 'on average'}"


def amount(value: float) -> str:
    """A number rounded to three digits, with a typographic minus sign."""
    return f"{value + 0.0:.3g}".replace("-", "−")
