"""What the paper's comparisons are made of: which runs each needs, and what is read from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from bellmanifold.models import load_model
from bellmanifold.reproduction.runs import TOLERANCES, Cell, PaperRuns

METHODS = {
    "BR": "bayes-br",
    "exact": "manifold",
    "HMC": "bayes-br-hmc",
    "TD": "bayes-td",
    "TD-En": "bayes-td-en",
    "TD-Max": "bayes-td-max",
}
"""Label in the figures -> agent. All labels but `exact` are the paper's."""


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


def acceptances(
    runs: PaperRuns, setting: Setting, tolerances: Sequence[float] = TOLERANCES, tuning: str = "paper"
) -> dict[float, Float[np.ndarray, "runs episodes"]]:
    """HMC's acceptance in each run and episode, by tolerance."""
    cells = {epsilon: runs.cell(setting.cell("HMC", epsilon, tuning)) for epsilon in tolerances}
    return {epsilon: cell["diagnostic_acceptance"].values for epsilon, cell in cells.items()}


@dataclass(frozen=True, eq=False)
class Routes:
    """The routes of a problem, in the order of stacked runs.

    Attributes:
        value: what each pays until it ends, shape (routes,).
        loops: those that never reach the goal, shape (routes,).
    """

    value: Float[np.ndarray, "routes"]
    loops: Bool[np.ndarray, "routes"]

    @property
    def best(self) -> Bool[np.ndarray, "routes"]:
        """Those that reach the goal and pay most."""
        most = self.value[~self.loops].max()
        return np.asarray(~self.loops & (self.value >= most - 1e-9))


def routes_of(runs: PaperRuns, cell: Cell) -> Routes:
    """The routes that a cell's probabilities speak of."""
    model, route = load_model(cell.model), runs.cell(cell)["route"].values[0]
    value = np.where(route >= 0, model.reward[route], 0.0).sum(axis=1)
    last = route[np.arange(len(route)), (route >= 0).sum(axis=1) - 1]
    return Routes(value, np.asarray(model.next_state[model.next_start[last]] != model.n_states))


def route_probabilities(runs: PaperRuns, cell: Cell) -> Float[np.ndarray, "runs episodes routes"]:
    """How probable each route was thought to be optimal, in every episode of every run."""
    return np.asarray(runs.cell(cell)["route_probability"].values)
