"""What counts as the frontier if rewards are noisy or laws unknown: three rules for `--explore directed`, same seeds.

    python benchmarks/frontier_rules.py [PROBLEM ...] [--runs 10] [--workers N] [--out FILE.json]

- "unseen", what the library does: pairs that were never played.
- "seen less than three times": a pair is on it until its third time.
- "unsure": unseen pairs, and pairs seen less than three times of which the posterior says with a probability between 5%
  and 95% that they are optimal. (While the agent walks there is one draw and no probability: then as "unseen".)

A pair that is known and on the frontier counts for the coin, too: a draw that plays it explores. Regret is completed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import process_time
from typing import Any

import numpy as np
from playing import chosen, parser, play_all
from unknown_laws import LAKE, problem_of

LEAST = 3
SURE = 0.05
RULES = ("unseen", "seen less than three times", "unsure")
OPEN = ("manifold", {"explore": "directed", "laws": "dirichlet"})
PROBLEMS: dict[str, tuple[str, int, tuple[str, dict[str, Any]]]] = {
    "dirichlet-deep-sea-10": ("env:deep-sea?depth=10", 100, OPEN),
    "dirichlet-frozen-lake": (LAKE, 100, OPEN),
    "dirichlet-grid-4": ("env:grid?rows=4&columns=4&slip=0.1", 100, OPEN),
    "dirichlet-grid-6": ("env:grid?rows=6&columns=6&slip=0.1", 100, OPEN),
}


def curious(rule: str, model: Any, settings: Any) -> Any:
    """An agent with another frontier."""
    from bellmanifold.agents.frontier import Knowledge
    from bellmanifold.agents.posterior_sampling import PosteriorSampling

    class Curious(PosteriorSampling):
        """It may want to see again what it has seen."""

        def _towards_frontier(self, drawn, rng):
            memory, again = self.memory, self.memory.count < LEAST
            if rule == "unsure":
                share = self._source.beliefs().action_probability
                again = again & (share > SURE) & (share < 1.0 - SURE)
            frontier = ~memory.observed if rule == "unseen" else ~memory.observed | again
            knowledge = Knowledge(memory.known_model, memory.observed, frontier)
            self._explores, self._drawn = knowledge.meets_frontier(drawn), drawn
            self.diagnostics["explores"] = float(self._explores)
            return knowledge.towards_frontier(drawn, rng) if self._explores else drawn

    return Curious(model, settings)


def play(job: tuple[str, str, int]) -> dict[str, Any]:
    """One run: its completed regret, the share of episodes that explored, and processor time."""
    from bellmanifold.agents.registry import find_agent
    from bellmanifold.learning.environment import use_one_thread
    from bellmanifold.learning.run import play_run

    use_one_thread()
    name, rule, seed = job
    source, episodes, (agent, options) = PROBLEMS[name]
    began, kind = process_time(), replace(find_agent(agent), make=partial(curious, rule))
    run = play_run(problem_of(source), kind, episodes, seed, options)
    return {
        "problem": name,
        "rule": rule,
        "seed": seed,
        "regret": float(np.sum(run.completed_regret)),
        "explored": float(np.nanmean(run.diagnostics["explores"])),
        "cpu_seconds": process_time() - began,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Mean completed regret with its standard deviation over runs, and what share of the episodes explored."""
    lines = ["| problem | runs | " + " | ".join(RULES) + " |", "|---" * (len(RULES) + 2) + "|"]
    for name in PROBLEMS:
        cells, runs = [], 0
        for rule in RULES:
            own = [row for row in rows if (row["problem"], row["rule"]) == (name, rule)]
            regret, runs = np.array([row["regret"] for row in own]), len(own)
            spread = f" ({regret.std(ddof=1):.3g})" if runs > 1 else ""
            explored = np.mean([row["explored"] for row in own]) if own else 0.0
            cells.append(f"{regret.mean():.4g}{spread}, {explored:.0%} explore" if own else "-")
        if runs:
            lines.append(f"| {name} | {runs} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Play everything and print the table."""
    asking = parser(__doc__, PROBLEMS)
    given = asking.parse_args()
    names = chosen(asking, given, PROBLEMS)
    rows = play_all(play, [(p, r, s) for s in range(given.runs) for p in names for r in RULES], given)
    print(table(rows))


if __name__ == "__main__":
    main()
