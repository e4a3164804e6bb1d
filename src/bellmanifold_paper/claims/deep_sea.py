"""Claims about deep sea: the learning curves of section 5, and the single run at depth 3."""

from __future__ import annotations

import numpy as np

from bellmanifold.io.models import load_model
from bellmanifold.mdp.solver import solve
from bellmanifold_paper.claims.claim import (
    TD_AGENTS,
    belief,
    claim,
    exploration_time,
    final_belief,
    label,
    late_optimal,
    learning_time,
    lower_regret,
    regret,
)
from bellmanifold_paper.paper_runs import DEEP_SEA, SMALL_DEEP_SEA, TOLERANCES, Cell, PaperRuns
from bellmanifold_paper.route_chances import routes_of
from bellmanifold_paper.verdicts import Condition, Finding, equals, exactly, mean_of, mean_share, one_more

SMALL, LARGE = (0.01, 0.1), (0.5, 1.0, 5.0)
DONE_EARLY = 75


def cells(agents: tuple[str, ...], tolerances: tuple[float, ...]) -> tuple[Cell, ...]:
    """Cells of deep sea, depth 5."""
    return tuple(Cell(DEEP_SEA, agent, epsilon) for epsilon in tolerances for agent in agents)


BR = cells(("bayes-br",), TOLERANCES)
PAPERS = cells(("bayes-br", "bayes-br-hmc", *TD_AGENTS), TOLERANCES)
LEARN_SHORT = Cell(SMALL_DEEP_SEA, "bayes-br", 0.01)


@claim(
    "deep-sea-optimum",
    "section 5, deep sea",
    "At depth 5 the optimal policy is to move right all the way, which collects 0.85.",
    "The solved value at the start is 0.85, and one route alone attains it, which has no left move.",
)
def _optimum(runs: PaperRuns) -> Finding:
    model, routes = load_model(DEEP_SEA), routes_of(DEEP_SEA)
    best = routes.pairs[routes.is_optimal]
    lefts = sum(model.pair_name(pair)[1] == "left" for pair in best.ravel().tolist() if pair >= 0)
    return Finding(
        (
            equals(exactly("optimal value at the start", solve(model).value_at_start), 0.85),
            equals(exactly("optimal routes", len(best)), 1),
            equals(exactly("left moves on them", lefts), 0),
        ),
        beside=(exactly("routes", len(routes.reward)),),
    )


@claim(
    "deep-sea-small-tolerance-concentrates",
    "section 5, first observation, Figure 6",
    "With a small enough tolerance the posterior of Bayes-BR concentrates rapidly on the optimal policy.",
    "Tolerance 0.01: the mean posterior probability of the optimal route is above 0.9 at episode 100, and also on "
    "average over the second half of the episodes.",
    BR[:1],
)
def _concentrates(runs: PaperRuns) -> Finding:
    chance = belief(runs, BR[0], routes_of(DEEP_SEA).is_optimal)
    return Finding(
        (
            Condition(final_belief(runs, BR[0]), 0.9),
            Condition(mean_share("P(optimal), episodes 51-100", chance[:, 50:].mean(axis=1)), 0.9),
        ),
        beside=(mean_share("P(optimal), episode 26", chance[:, 25]),),
    )


@claim(
    "deep-sea-close-to-one",
    "section 5, second observation",
    "At tolerances 0.01 and 0.1 the optimal policy has a probability close to 1 once the data are complete.",
    "The mean posterior probability of the optimal route at episode 100 is above 0.9 at both.",
    BR[:2],
)
def _close_to_one(runs: PaperRuns) -> Finding:
    return Finding(tuple(Condition(final_belief(runs, cell), 0.9) for cell in BR[:2]))


@claim(
    "deep-sea-suboptimal-play-continues",
    "section 5, first observation",
    "At tolerances of 0.1 and more suboptimal policies are still selected after the data have become complete.",
    "At each of the five tolerances, more than 1% of the last 20 episodes play a suboptimal policy, counting runs "
    "whose data were complete by then.",
    BR[1:],
)
def _suboptimal_play_continues(runs: PaperRuns) -> Finding:
    conditions = []
    for cell in BR[1:]:
        complete = runs.cell(cell)["coverage"].values[:, -21] >= 1.0
        share = 1.0 - late_optimal(runs, cell)[complete]
        found = share if len(share) else np.array([np.nan])
        conditions.append(Condition(mean_share(f"suboptimal late episodes, {label(cell)}", found), 0.01))
    return Finding(tuple(conditions))


@claim(
    "deep-sea-large-tolerance-fails",
    "section 5, Figure 6",
    "At tolerances of 0.5 and more the posterior does not concentrate on the optimal policy.",
    "The mean posterior probability of the optimal route at episode 100 is below 0.5 at each of the three.",
    BR[3:],
)
def _large_tolerance_fails(runs: PaperRuns) -> Finding:
    return Finding(tuple(Condition(final_belief(runs, cell), below=0.5) for cell in BR[3:]))


@claim(
    "deep-sea-br-beats-td",
    "section 5, third observation, Figure 7",
    "Bayes-BR has less regret than the three methods based on temporal differences at tolerances 0.01 and 0.1.",
    "Its mean cumulative regret after 100 episodes is below each of theirs at both tolerances.",
    cells(("bayes-br", *TD_AGENTS), SMALL),
)
def _beats_td(runs: PaperRuns) -> Finding:
    compared = [(br, other) for br in BR[:2] for other in cells(TD_AGENTS, (br.epsilon or 0.0,))]
    conditions = tuple(lower_regret(runs, br, other) for br, other in compared)
    shown = cells(("bayes-br", *TD_AGENTS), SMALL)
    return Finding(conditions, beside=tuple(regret(runs, cell) for cell in shown))


@claim(
    "deep-sea-all-fail-at-large-tolerance",
    "section 5, third observation",
    "All methods fail at tolerances of 0.5 and more.",
    "Bayes-BR and the three TD methods play the optimal policy in less than half of the last 20 episodes, at each of "
    "the three tolerances.",
    cells(("bayes-br", *TD_AGENTS), LARGE),
)
def _all_fail(runs: PaperRuns) -> Finding:
    found = cells(("bayes-br", *TD_AGENTS), LARGE)
    shares = [mean_share(f"optimal late episodes, {label(cell)}", late_optimal(runs, cell)) for cell in found]
    shown = tuple(regret(runs, cell) for cell in found[:4])
    return Finding(tuple(Condition(share, below=0.5) for share in shares), beside=shown)


@claim(
    "deep-sea-td-is-the-worst-td",
    "appendix B.2, improper policies",
    "Of the three TD methods plain Bayes-TD does worst on deep sea.",
    "Its mean cumulative regret is above that of the two others at tolerances 0.01 and 0.1.",
    cells(TD_AGENTS, SMALL),
)
def _td_is_the_worst(runs: PaperRuns) -> Finding:
    compared = [
        lower_regret(runs, Cell(DEEP_SEA, other, epsilon), Cell(DEEP_SEA, "bayes-td", epsilon))
        for epsilon in SMALL
        for other in TD_AGENTS[1:]
    ]
    return Finding(tuple(compared), beside=tuple(regret(runs, cell) for cell in cells(TD_AGENTS, SMALL)))


@claim(
    "deep-sea-td-max-at-0.02",
    "section 5, third observation",
    "Bayes-TD-Max has less regret than Bayes-BR at tolerance 0.02, read as 0.2: 0.02 is not among the paper's six.",
    "At 0.2 its mean cumulative regret is below that of Bayes-BR.",
    cells(("bayes-br", "bayes-td-max"), (0.2, 0.02)),
)
def _td_max_at_two(runs: PaperRuns) -> Finding:
    printed, meant = (cells(("bayes-br", "bayes-td-max"), (epsilon,)) for epsilon in (0.02, 0.2))
    shown = tuple(regret(runs, cell) for cell in (*meant, *printed))
    as_printed = lower_regret(runs, printed[1], printed[0])
    words = {"established": "is", "likely": "is, though not beyond doubt,"}.get(as_printed.outcome, "is not")
    remark = f"At 0.02 itself, as printed, Bayes-TD-Max {words} below Bayes-BR."
    return Finding((lower_regret(runs, meant[1], meant[0]),), beside=(*shown, as_printed.measurement), remark=remark)


@claim(
    "deep-sea-explored-early",
    "section 5, third observation, Figure 8a",
    "The methods that do well have visited every state-action pair much before episode 100.",
    f"Wherever the optimal policy is played in more than 80% of the last 20 episodes, the mean number of episodes "
    f"until every pair has been visited is below {DONE_EARLY}.",
    PAPERS,
)
def _explored_early(runs: PaperRuns) -> Finding:
    good = [cell for cell in PAPERS if late_optimal(runs, cell).mean() > 0.8]
    times = [mean_of(f"episodes to see everything, {label(cell)}", exploration_time(runs, cell)) for cell in good]
    none = (Condition(exactly("methods that do well", len(good)), above=0),)
    remark = "The published code shows HMC's exploration one episode late, which changes nothing here."
    return Finding((*none, *(Condition(time, below=DONE_EARLY) for time in times)), remark=remark)


@claim(
    "deep-sea-3-eight-episodes",
    "section 5, Figure 5",
    "At depth 3 one run of Bayes-BR at tolerance 0.01 took 8 episodes before it kept to the optimal policy.",
    "8 lies within the 95% prediction interval of our runs for the number of episodes until everything has been "
    "visited, and of those until the last suboptimal one.",
    (LEARN_SHORT,),
)
def _eight_episodes(runs: PaperRuns) -> Finding:
    explored, learnt = exploration_time(runs, LEARN_SHORT), learning_time(runs, LEARN_SHORT)
    return Finding(
        (
            one_more("place of 8 among our times of exploration", explored, 8.0),
            one_more("place of 8 among our times of learning", learnt, 8.0),
        ),
        beside=(
            mean_of("episodes to see everything", explored),
            mean_of("episodes until the last suboptimal one", learnt),
        ),
    )


CLAIMS = (
    _optimum,
    _concentrates,
    _close_to_one,
    _suboptimal_play_continues,
    _large_tolerance_fails,
    _beats_td,
    _all_fail,
    _td_is_the_worst,
    _td_max_at_two,
    _explored_early,
    _eight_episodes,
)
