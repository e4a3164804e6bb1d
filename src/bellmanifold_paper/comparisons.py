"""What the paper's comparisons are made of: which runs each needs, and what is read from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from bellmanifold_paper.paper_runs import TOLERANCES, Cell, PaperRuns

METHODS = {
    "BR": "bayes-br",
    "exact": "manifold",
    "HMC": "bayes-br-hmc",
    "TD": "bayes-td",
    "TD-En": "bayes-td-en",
    "TD-Max": "bayes-td-max",
}
"""Label in the figures -> agent. All labels but `exact` are the paper's."""
LABELS = {agent: label for label, agent in METHODS.items()}
"""Agent -> label."""


@dataclass(frozen=True)
class Setting:
    """A problem and a prior, on which the methods are compared.

    Attributes:
        model: reference of the problem.
        prior_scale: standard deviation of the prior.
    """

    model: str
    prior_scale: float = 10.0

    def cell(self, label: str, epsilon: float, tuning: str = "paper") -> Cell:
        """The runs of a method; the exact posterior has no tolerance and is the same for all."""
        agent = METHODS[label]
        return Cell(self.model, agent, None if agent == "manifold" else epsilon, self.prior_scale, tuning)

    def cells(self, *labels: str) -> list[Cell]:
        """The runs of some methods for all tolerances."""
        return list(dict.fromkeys(self.cell(label, epsilon) for label in labels for epsilon in TOLERANCES))


def regrets(runs: PaperRuns, setting: Setting, epsilon: float) -> dict[str, Float[np.ndarray, "runs episodes"]]:
    """Cumulative regret of every method."""
    return {label: runs.cell(setting.cell(label, epsilon))["regret"].values.cumsum(axis=1) for label in METHODS}


def coverages(runs: PaperRuns, setting: Setting, epsilon: float) -> dict[str, Float[np.ndarray, "runs episodes"]]:
    """Share of the pairs that every method has seen."""
    return {label: runs.cell(setting.cell(label, epsilon))["coverage"].values for label in METHODS}


def acceptance(runs: PaperRuns, cell: Cell) -> Float[np.ndarray, "runs episodes"]:
    """HMC's mean acceptance after warm-up; NaN in the first episode, which plays a prior draw."""
    return np.asarray(runs.cell(cell)["diagnostic_acceptance"].values, dtype=np.float64)


def route_probabilities(runs: PaperRuns, cell: Cell) -> Float[np.ndarray, "runs episodes routes"]:
    """How probable each route was thought to be optimal, in every episode of every run."""
    return np.asarray(runs.cell(cell)["route_probability"].values)
