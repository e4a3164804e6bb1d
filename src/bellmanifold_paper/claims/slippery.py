"""Claims about the stochastic deep sea of depth 4."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from bellmanifold.io.models import load_model
from bellmanifold.mdp.solver import solve
from bellmanifold_paper.claims.claim import (
    LAST,
    TD_AGENTS,
    claim,
    label,
    late_optimal,
    lower_regret,
    regret,
)
from bellmanifold_paper.paper_runs import EPISODES, SLIPPERY, Cell, PaperRuns
from bellmanifold_paper.verdicts import Condition, Finding, equals, exactly, mean_of, mean_share, nonnegative

SMALL = (0.01, 0.1)
BR = tuple(Cell(SLIPPERY, "bayes-br", epsilon) for epsilon in SMALL)


@claim(
    "slippery-success",
    "appendix B.2, stochastic transitions",
    "Always choosing the optimal move right reaches the treasure with probability 0.729.",
    "Moving right is optimal wherever the treasure can still be reached, and the probability of the treasure, computed "
    "from the transition laws, is 0.729.",
)
def _success(runs: PaperRuns, problem: str = SLIPPERY) -> Finding:
    model = load_model(problem)
    q = solve(model).q
    right = np.array([model.pair_index[(name, "right")] for name in model.states])
    diagonal = [state for state, name in enumerate(model.states) if len(set(name.split(","))) == 1]
    loss = max(float(model.best(q)[state] - q[right[state]]) for state in diagonal)
    chance = np.zeros(model.n_states + 1)
    for state in sorted(range(model.n_states), key=lambda s: -int(model.states[s].split(",")[0])):
        pair = right[state]
        own = slice(model.next_start[pair], model.next_start[pair + 1])
        chance[state] = model.next_prob[own] @ chance[model.next_state[own]]
        if model.reward[pair] > 0.5:
            chance[state] = 1.0
    found = float(model.initial @ chance[:-1])
    return Finding(
        (
            equals(exactly("loss of moving right on the diagonal", loss), 0),
            equals(exactly("probability of the treasure", found), 0.729),
        )
    )


@claim(
    "slippery-br-is-robust",
    "appendix B.2, stochastic transitions, Figure 19",
    "Bayes-BR keeps performing well under stochastic transitions.",
    "At 0.01 and 0.1 the expected regret of the policies it plays in the last 20 episodes is below 10% of the optimal "
    "value on average. It holds with a remark where its mean cumulative regret is not below that of each TD method. "
    "(At first strictly optimal play was demanded; at 0.1 that fails, by choices worth less than the tolerance.)",
    tuple(Cell(SLIPPERY, agent, epsilon) for agent in ("bayes-br", *TD_AGENTS) for epsilon in SMALL),
)
def _robust(runs: PaperRuns) -> Finding:
    best = solve(load_model(SLIPPERY)).value_at_start
    loss = [
        nonnegative(mean_of(f"late expected regret / optimum, {label(cell)}", _late_loss(runs, cell) / best))
        for cell in BR
    ]
    late = [mean_share(f"optimal late episodes, {label(cell)}", late_optimal(runs, cell)) for cell in BR]
    lower = [lower_regret(runs, br, Cell(SLIPPERY, other, br.epsilon)) for br in BR for other in TD_AGENTS]
    shown = [Cell(SLIPPERY, agent, epsilon) for epsilon in SMALL for agent in ("bayes-br", *TD_AGENTS)]
    return Finding(
        tuple(Condition(share, below=0.1) for share in loss),
        qualified_by=tuple(lower),
        beside=(*late, *(regret(runs, cell) for cell in shown)),
    )


def _late_loss(runs: PaperRuns, cell: Cell) -> Float[np.ndarray, "runs"]:
    return np.asarray(runs.cell(cell)["expected_regret"].values[:, -LAST:].mean(axis=1), dtype=np.float64)


@claim(
    "slippery-regret-reference",
    "Figure 7's definition of regret, Figure 19; the published code",
    "Text and published code agree on what regret is measured against under stochastic transitions. (Text: the "
    "expected reward of an optimal policy. Code: 0.85.)",
    "The solved value at the start is 0.85.",
)
def _reference(runs: PaperRuns, problem: str = SLIPPERY) -> Finding:
    value = solve(load_model(problem)).value_at_start
    shift = (0.85 - value) * EPISODES
    return Finding(
        (equals(exactly("optimal value at the start", value), 0.85),),
        beside=(exactly("what 0.85 adds to every curve by episode 100", shift),),
        remark="Here regret is measured against the stochastic optimum. The shift is the same for all methods, so it "
        "leaves their order alone, but hides that a curve has become flat.",
    )


CLAIMS = (_success, _robust, _reference)
