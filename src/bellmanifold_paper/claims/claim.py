"""A claim before it is measured, and what the claims about runs read off cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from bellmanifold_paper.comparisons import LABELS, route_probabilities
from bellmanifold_paper.paper_runs import EPISODES, Cell, PaperRuns
from bellmanifold_paper.route_chances import routes_of
from bellmanifold_paper.verdicts import Condition, Finding, Measurement, difference, mean_of, mean_share

TD_AGENTS = ("bayes-td", "bayes-td-en", "bayes-td-max")
LAST = 20
"""Episodes at the end of a run that say what was learnt."""
Measure = Callable[[PaperRuns], Finding]


@dataclass(frozen=True)
class Claim:
    """A statement of the paper and how to judge it.

    Attributes:
        id: its name, which does not change.
        source: where in the paper it is.
        statement: what the paper says, in our words.
        criterion: when it counts as true; written before the runs were looked at unless it says otherwise.
        cells: the runs it needs.
        measure: judges it.
    """

    id: str
    source: str
    statement: str
    criterion: str
    cells: tuple[Cell, ...]
    measure: Measure


def claim(
    name: str, source: str, statement: str, criterion: str, cells: tuple[Cell, ...] = ()
) -> Callable[[Measure], Claim]:
    """Make a claim of the function that measures it; for the arguments see `Claim`."""
    return lambda measure: Claim(name, source, statement, criterion, cells, measure)


def cumulative_regret(runs: PaperRuns, cell: Cell, episodes: int = EPISODES) -> Float[np.ndarray, "runs"]:
    """Regret added up over the first episodes."""
    return np.asarray(runs.cell(cell)["regret"].values[:, :episodes].sum(axis=1), dtype=np.float64)


def late_optimal(runs: PaperRuns, cell: Cell) -> Float[np.ndarray, "runs"]:
    """Share of the last episodes in which an optimal policy was played."""
    return np.asarray(runs.cell(cell)["optimal"].values[:, -LAST:].mean(axis=1), dtype=np.float64)


def final_coverage(runs: PaperRuns, cell: Cell) -> Float[np.ndarray, "runs"]:
    """Share of the pairs that were ever played."""
    return np.asarray(runs.cell(cell)["coverage"].values[:, -1], dtype=np.float64)


def exploration_time(runs: PaperRuns, cell: Cell) -> Float[np.ndarray, "runs"]:
    """Episodes until every pair had been played; one more than there are where it never happened."""
    return 1.0 + np.asarray((runs.cell(cell)["coverage"].values < 1.0).sum(axis=1), dtype=np.float64)


def learning_time(runs: PaperRuns, cell: Cell) -> Float[np.ndarray, "runs"]:
    """Episodes until the last one that was not optimal."""
    wrong = ~np.asarray(runs.cell(cell)["optimal"].values, dtype=np.bool_)
    last = wrong.shape[1] - np.argmax(wrong[:, ::-1], axis=1)
    return np.where(wrong.any(axis=1), last, 0).astype(np.float64)


def belief(runs: PaperRuns, cell: Cell, routes: Bool[np.ndarray, "routes"]) -> Float[np.ndarray, "runs episodes"]:
    """Probability, under the agent's posterior at each episode, that one of some routes is optimal."""
    return np.asarray(route_probabilities(runs, cell)[:, :, routes].sum(axis=2), dtype=np.float64)


def label(cell: Cell) -> str:
    """A cell in a few words."""
    prior = f", prior sd {cell.prior_scale:g}" if cell.prior_scale != 10.0 else ""
    tolerance = "" if cell.epsilon is None else f" at {cell.epsilon:g}"
    return f"{LABELS[cell.agent]}{' retuned' if cell.tuning == 'retuned' else ''}{tolerance}{prior}"


def regret(runs: PaperRuns, cell: Cell) -> Measurement:
    """Mean cumulative regret of a cell."""
    return mean_of(f"regret of {label(cell)}", cumulative_regret(runs, cell))


def lower_regret(runs: PaperRuns, cell: Cell, than: Cell) -> Condition:
    """The condition that one cell's mean cumulative regret is below another's."""
    gap = difference(
        f"regret of {label(cell)} minus {label(than)}", cumulative_regret(runs, cell), cumulative_regret(runs, than)
    )
    return Condition(gap, below=0.0)


def final_belief(runs: PaperRuns, cell: Cell) -> Measurement:
    """Mean posterior probability, at the last episode, that an optimal route is optimal."""
    chance = belief(runs, cell, routes_of(cell.model).is_optimal)[:, -1]
    return mean_share(f"P(optimal) at episode {EPISODES}, {label(cell)}", chance)
