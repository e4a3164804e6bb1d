"""Claims about the pyramid, where eight routes are optimal: are all of them found?"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from bellmanifold.io.models import load_model
from bellmanifold.mdp.solver import solve
from bellmanifold_paper.claims.claim import (
    TD_AGENTS,
    claim,
    cumulative_regret,
    exploration_time,
    final_coverage,
    label,
    lower_regret,
    regret,
)
from bellmanifold_paper.paper_runs import PYRAMID, TOLERANCES, Cell, PaperRuns
from bellmanifold_paper.route_chances import POINTS, chances_of_complete_data, routes_of
from bellmanifold_paper.verdicts import (
    Condition,
    Finding,
    Measurement,
    difference,
    equals,
    estimated,
    exactly,
    largest,
    mean_of,
    mean_share,
    one_more,
    share_of,
)

BR = tuple(Cell(PYRAMID, "bayes-br", epsilon) for epsilon in TOLERANCES)
TD = Cell(PYRAMID, "bayes-td", 0.01)
EVEN = 0.25
"""How far from their mean "almost equal" probabilities may be, relative to it."""
MORE_POINTS = 4 * POINTS
"""At tolerance 5, where weights are uneven."""


@claim(
    "pyramid-optimum",
    "section 5, pyramid; appendix B.2",
    "Optimal policies of the pyramid collect 1, and at depth 5 they form eight classes (routes).",
    "The solved value at the start is 1, and exactly eight routes attain it.",
)
def _optimum(runs: PaperRuns) -> Finding:
    routes = routes_of(PYRAMID)
    value = solve(load_model(PYRAMID)).value_at_start
    return Finding(
        (
            equals(exactly("optimal value at the start", value), 1),
            equals(exactly("optimal routes", int(routes.is_optimal.sum())), 8),
        ),
        beside=(exactly("routes", len(routes.reward)),),
    )


def _eight(epsilon: float) -> tuple[Measurement, Measurement]:
    """Given complete data: how uneven the posterior is over the eight optimal routes, and what they have together."""
    routes = routes_of(PYRAMID)
    found = chances_of_complete_data(PYRAMID, epsilon, POINTS if epsilon <= 1.0 else MORE_POINTS)[routes.is_optimal]
    ratio = found.value / found.value.mean()
    se = (found.se + ratio * found.se.mean()) / found.value.mean()
    together = float(found.value.sum()), float(found.se.sum())
    return (
        largest(f"largest distance from the mean of the eight, at {epsilon:g}", ratio - 1.0, se),
        estimated(f"P(any of the eight) at {epsilon:g}", *together, probability=True),
    )


@claim(
    "pyramid-recovers-all",
    "section 5, Figure 9",
    "At tolerance 0.01 all optimal policies of the pyramid are recovered with almost equal probability.",
    "Given complete data, the eight optimal routes together have more than 0.95 of the posterior, and each is within "
    f"{EVEN:.0%} of their mean.",
)
def _recovers_all(runs: PaperRuns) -> Finding:
    uneven, total = _eight(0.01)
    return Finding((Condition(total, 0.95), Condition(uneven, below=EVEN)))


@claim(
    "pyramid-equal-at-all-tolerances",
    "appendix B.2, multi-modality, Figure 15",
    "Under Bayes-BR the eight optimal routes keep nearly equal probabilities at every tolerance tested.",
    "Given complete data, each of the eight is within 25% of their mean at each of the six tolerances.",
    BR,
)
def _equal_at_all(runs: PaperRuns) -> Finding:
    found = [_eight(epsilon) for epsilon in TOLERANCES]
    finished = tuple(
        Condition(share_of(f"runs with complete data, {label(cell)}", final_coverage(runs, cell) >= 1.0), 0.5)
        for cell in BR
    )
    return Finding(
        tuple(Condition(uneven, below=EVEN) for uneven, _ in found),
        qualified_by=finished,
        beside=tuple(total for _, total in found),
    )


@claim(
    "pyramid-td-settles-on-a-subset",
    "appendix B.2, multi-modality, Figure 18",
    "Bayes-TD at 0.01 quickly puts its mass on a part of the optimal routes and stops exploring: it does not find the "
    "others within 100 episodes.",
    "Means over runs: fewer than 7 of the eight routes have more than 1% of its posterior at episode 100, fewer than 7 "
    "were ever played, and less than 95% of all pairs were visited.",
    (TD,),
)
def _settles_on_a_subset(runs: PaperRuns) -> Finding:
    optimal = routes_of(PYRAMID).is_optimal
    final = np.asarray(runs.cell(TD)["route_probability"].values[:, -1][:, optimal], dtype=np.float64)
    return Finding(
        (
            Condition(mean_of("optimal routes above 1%", (final > 0.01).sum(axis=1).astype(np.float64)), below=7.0),
            Condition(mean_of("optimal routes played", _optimal_routes_played(runs, TD)), below=7.0),
            Condition(mean_share("share of pairs visited", final_coverage(runs, TD)), below=0.95),
        ),
        beside=(mean_share("P(any of the eight), TD", final.sum(axis=1)),),
    )


def _optimal_routes_played(runs: PaperRuns, cell: Cell) -> Float[np.ndarray, "runs"]:
    """How many different optimal routes each run played."""
    counts = []
    for run in runs.separately(cell):
        ends = np.cumsum(run["moves"].values)
        played = np.split(run["pair"].values, ends[:-1])
        counts.append(len({tuple(p.tolist()) for p, good in zip(played, run["optimal"].values, strict=True) if good}))
    return np.array(counts, dtype=np.float64)


@claim(
    "pyramid-br-beats-td-en-and-td-max",
    "appendix B.2, multi-modality, Figure 16",
    "Bayes-BR has less regret than Bayes-TD-En and Bayes-TD-Max at small tolerances.",
    "Its mean cumulative regret after 100 episodes is below both of theirs at 0.01 and at 0.1.",
    tuple(Cell(PYRAMID, agent, epsilon) for agent in ("bayes-br", *TD_AGENTS) for epsilon in (0.01, 0.1)),
)
def _beats_two(runs: PaperRuns) -> Finding:
    compared = [(br, Cell(PYRAMID, other, br.epsilon)) for br in BR[:2] for other in TD_AGENTS[1:]]
    shown = [Cell(PYRAMID, agent, epsilon) for epsilon in (0.01, 0.1) for agent in ("bayes-br", *TD_AGENTS)]
    return Finding(
        tuple(lower_regret(runs, br, other) for br, other in compared), beside=tuple(regret(runs, c) for c in shown)
    )


@claim(
    "pyramid-td-flattens-earlier",
    "appendix B.2, multi-modality, Figure 16",
    "At 0.01 the regret of Bayes-TD flattens earlier than that of Bayes-BR.",
    "The mean number of episodes until 95% of a run's final cumulative regret has accumulated is smaller for Bayes-TD.",
    (TD, BR[0]),
)
def _flattens_earlier(runs: PaperRuns) -> Finding:
    own, other = _flat_after(runs, TD), _flat_after(runs, BR[0])
    shown = (mean_of("episodes until flat, TD", own), mean_of("episodes until flat, BR", other))
    stuck = share_of("runs of TD that end suboptimal", runs.cell(TD)["regret"].values[:, -20:].mean(axis=1) > 0.05)
    return Finding(
        (Condition(difference("episodes until flat, TD minus BR", own, other), below=0.0),),
        beside=(*shown, stuck, mean_of("regret of TD at 0.01", cumulative_regret(runs, TD)), regret(runs, BR[0])),
    )


def _flat_after(runs: PaperRuns, cell: Cell) -> Float[np.ndarray, "runs"]:
    total = np.cumsum(runs.cell(cell)["regret"].values, axis=1)
    return np.asarray((total < 0.95 * total[:, -1:]).sum(axis=1), dtype=np.float64)


@claim(
    "pyramid-21-episodes",
    "section 5, Figure 9",
    "One run of Bayes-BR on the pyramid at tolerance 0.01 had seen everything after 21 episodes.",
    "21 lies within the 95% prediction interval of our runs for the number of episodes until every pair was visited.",
    BR[:1],
)
def _twenty_one(runs: PaperRuns) -> Finding:
    times = exploration_time(runs, BR[0])
    return Finding((one_more("place of 21 among our times", times, 21.0),), beside=(mean_of("episodes", times),))


CLAIMS = (
    _optimum,
    _recovers_all,
    _equal_at_all,
    _settles_on_a_subset,
    _beats_two,
    _flattens_earlier,
    _twenty_one,
)
