"""Options of the agents that only the paper needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bellmanifold.agents.settings import DrawSettings, choice, positive, whole

MEMBERS = 100
"""Ensemble size of `bayes-td-en`: the paper's for deterministic problems (it uses 10 for the stochastic one)."""


@dataclass(frozen=True)
class EnsembleSettings(DrawSettings):
    """`bayes-td-en`.

    Attributes:
        members: ensemble size: number of samples of the previous posterior, each with its own TD targets.
    """

    members: int = whole(MEMBERS)


@dataclass(frozen=True)
class HMCSettings(DrawSettings):
    """`bayes-br-hmc`, whose chains need a positive tolerance.

    Attributes:
        tuning: the paper's first rule, or its second attempt.
    """

    epsilon: float = positive(0.01)
    tuning: Literal["paper", "retuned"] = choice("paper", "retuned")
