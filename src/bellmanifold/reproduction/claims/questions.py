"""A claim before it is measured, and what the claims about runs read off cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.experiments.measures import all_routes
from bellmanifold.models import load_model
from bellmanifold.reproduction.runs import EPISODES, Cell, PaperRuns
from bellmanifold.reproduction.verdicts import Condition, Finding, Measurement, difference, mean_of

LABELS = {
    "bayes-br": "BR",
    "bayes-br-hmc": "HMC",
    "bayes-td": "TD",
    "bayes-td-en": "TD-En",
    "bayes-td-max": "TD-Max",
    "manifold": "exact",
}
"""The names the paper's figures give the agents."""
TD_AGENTS = ("bayes-td", "bayes-td-en", "bayes-td-max")
LAST = 20
"""Episodes at the end of a run that say what was learnt."""
Measure = Callable[[PaperRuns], Finding]


@dataclass(frozen=True)
class Question:
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


def question(
    name: str, source: str, statement: str, criterion: str, cells: tuple[Cell, ...] = ()
) -> Callable[[Measure], Question]:
    """Make a question of the function that measures it; for the arguments see `Question`."""
    return lambda measure: Question(name, source, statement, criterion, cells, measure)


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
    return np.asarray(runs.cell(cell)["route_probability"].values[:, :, routes].sum(axis=2), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Routes:
    """All routes of a deterministic problem, in the order in which cells have them.

    Attributes:
        pairs: shape (routes, steps), filled up with -1.
        reward: what each collects.
        is_loop: does it end in a loop?
        is_optimal: does it reach the goal with the optimal reward?
        in_second_row: is the loop one within the second row?
    """

    pairs: Int[np.ndarray, "routes steps"]
    reward: Float[np.ndarray, "routes"]
    is_loop: Bool[np.ndarray, "routes"]
    is_optimal: Bool[np.ndarray, "routes"]
    in_second_row: Bool[np.ndarray, "routes"]


@lru_cache(maxsize=8)
def routes_of(reference: str) -> Routes:
    """The routes of a problem."""
    model = load_model(reference)
    routes = all_routes(model)
    pairs = np.array([[*route, *[-1] * (max(map(len, routes)) - len(route))] for route in routes])
    pairs = pairs[np.lexsort(pairs.T[::-1])]
    played = [row[row >= 0] for row in pairs]
    reward = np.array([float(model.reward[route].sum()) for route in played])
    after = np.array([int(model.next_state[model.next_start[route[-1]]]) for route in played])
    is_loop = after < model.n_states
    row = np.array([int(name.split(",")[0]) for name in model.states] + [-1])
    best = reward[~is_loop].max()
    return Routes(pairs, reward, is_loop, ~is_loop & (reward > best - 1e-9), is_loop & (row[after] == 1))


def label(cell: Cell) -> str:
    """A cell in a few words."""
    prior = f", prior sd {cell.prior_scale:g}" if cell.prior_scale != 10.0 else ""
    tolerance = "" if cell.epsilon is None else f" at {cell.epsilon:g}"
    return f"{LABELS[cell.agent]}{' retuned' if cell.tuning == 'retuned' else ''}{tolerance}{prior}"


def regret(runs: PaperRuns, cell: Cell, episodes: int = EPISODES) -> Measurement:
    """Mean cumulative regret of a cell."""
    return mean_of(f"regret of {label(cell)}", cumulative_regret(runs, cell, episodes))


def lower_regret(runs: PaperRuns, cell: Cell, than: Cell) -> Condition:
    """The condition that one cell's mean cumulative regret is below another's."""
    gap = difference(
        f"regret of {label(cell)} minus {label(than)}", cumulative_regret(runs, cell), cumulative_regret(runs, than)
    )
    return Condition(gap, below=0.0)


def final_belief(runs: PaperRuns, cell: Cell) -> Measurement:
    """Mean posterior probability, at the last episode, that an optimal route is optimal."""
    chance = belief(runs, cell, routes_of(cell.model).is_optimal)[:, -1]
    return mean_of(f"P(optimal) at episode {EPISODES}, {label(cell)}", chance)
