"""What is known about every move, in words: how often it was played, what it paid, and beliefs about it.

A belief is a reward with a standard deviation and no next state (`bellmanifold.problem.dataset`); all other
observations were played.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from bellmanifold.problem.dataset import Dataset

TIMES = {1: "once", 2: "twice"}


def accounts(data: Dataset) -> list[str]:
    """A sentence for each pair.

    >>> from bellmanifold import Observation, envs
    >>> seen = [("s1", "go"), ("s1", "go")]
    >>> accounts(Dataset.from_pairs(envs.two_state(), [*seen, Observation("s1", "stay", -5.0, sd=2.0)]))
    ['not played; believed to pay −5 ± 2', 'played twice, paid −1 each time']
    """
    is_belief, pairs = (data.sd > 0) & (data.next < 0), data.model.n_pairs
    rows = np.split(np.argsort(data.pair, kind="stable"), np.cumsum(np.bincount(data.pair, minlength=pairs)))
    return [_account(data, own[~is_belief[own]], own[is_belief[own]]) for own in rows[:pairs]]


def _account(data: Dataset, played: np.ndarray, believed: np.ndarray) -> str:
    """A sentence about one pair, given its observations: those played, and beliefs."""
    if not len(played) and not len(believed):
        return "nothing known"
    beliefs = [f"believed to pay {amount(data.reward[t])} ± {amount(data.sd[t])}" for t in believed[-1:]]
    beliefs += [f"{len(believed)} beliefs, this is the latest"] if len(believed) > 1 else []
    return "; ".join([_trials(data.reward[played], data.sd[played]), *beliefs])


def _trials(reward: Float[np.ndarray, "trials"], sd: Float[np.ndarray, "trials"]) -> str:
    """A summary of what trials of one pair paid."""
    if not len(reward):
        return "not played"
    often = f"played {TIMES.get(len(reward), f'{len(reward)} times')}"
    paid = reward[~np.isnan(reward)]
    if not len(paid):
        return often
    if len(reward) == 1:
        return f"{often}, paid {amount(paid[0])}" + (f" ± {amount(sd[0])}" if sd[0] > 0 else "")
    each = np.ptp(paid) == 0 and len(paid) == len(reward)
    return f"{often}, paid {amount(paid.mean())} {'each time' if each else 'on average'}"


def amount(value: float) -> str:
    """A number rounded to three digits, with a typographic minus sign."""
    return f"{value + 0.0:.3g}".replace("-", "−")
