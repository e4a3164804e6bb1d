"""Agents that are told where they land, and nothing else: regret tables for docs/agents.md.

    python benchmarks/unknown_laws.py [--runs 10] [--episodes 100] [--workers N] [--out FILE.json]

Regret is completed (an episode that did not arrive goes on optimally), so that giving up does not pay. Runs are those
of `plans/laws.toml`, and of FrozenLake with a move cost of 0.02 besides.
"""

from __future__ import annotations

from time import process_time

import numpy as np
from playing import parser, play_all

LAKE = "FrozenLake, a move costs 0.02"
PROBLEMS = (
    "env:deep-sea?depth=5",
    "env:deep-sea?depth=10",
    "env:deep-sea?depth=4&slip=0.1",
    "env:deep-sea?depth=6&slip=0.1",
    "env:grid?rows=5&columns=5&slip=0.1",
    LAKE,
)
AGENTS = {
    "manifold, known laws": ("manifold", {}),
    "manifold, dirichlet": ("manifold", {"laws": "dirichlet"}),
    "manifold, known laws, directed": ("manifold", {"explore": "directed"}),
    "manifold, dirichlet, directed": ("manifold", {"laws": "dirichlet", "explore": "directed"}),
    "psrl": ("psrl", {}),
    "rlsvi": ("rlsvi", {}),
}


def problem_of(name: str) -> object:
    """A problem by its name in the table."""
    import bellmanifold as bm

    if name != LAKE:
        return bm.load_model(name)
    import gymnasium

    return bm.from_gymnasium(gymnasium.make("FrozenLake-v1", reward_schedule=(1, 0, -0.02)))


def play(job: tuple[str, str, int, int]) -> dict[str, object]:
    """One run: its completed regret, the share of episodes that arrived, and processor time."""
    from bellmanifold.learning.environment import use_one_thread
    from bellmanifold.learning.runs import learn

    use_one_thread()
    problem, label, episodes, seed = job
    agent, options = AGENTS[label]
    began = process_time()
    found = learn(problem_of(problem), agent, episodes, 1, seed, **options)
    (run,) = found.runs
    return {
        "problem": problem,
        "agent": label,
        "seed": seed,
        "regret": float(np.sum(run.completed_regret)),
        "arrived": float(np.mean(run.reached_goal)),
        "cpu_seconds": process_time() - began,
    }


def table(rows: list[dict[str, object]]) -> str:
    """Mean completed regret with its standard deviation over runs; the share of arrivals where it is below 1."""
    lines = ["| problem | " + " | ".join(AGENTS) + " |", "|---" * (len(AGENTS) + 1) + "|"]
    for problem in PROBLEMS:
        cells = []
        for label in AGENTS:
            own = [row for row in rows if (row["problem"], row["agent"]) == (problem, label)]
            regret, arrived = (np.array([row[name] for row in own], dtype=float) for name in ("regret", "arrived"))
            spread = regret.std(ddof=1) if len(own) > 1 else np.nan
            share = "" if not len(own) or arrived.mean() > 0.9995 else f", {arrived.mean():.0%} arrive"
            cells.append(f"{regret.mean():.1f} ({spread:.1f}){share}" if len(own) else "-")
        lines.append(f"| `{problem}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Play everything and print the table."""
    asking = parser(__doc__)
    asking.add_argument("--episodes", type=int, default=100)
    given = asking.parse_args()
    jobs = [(p, a, given.episodes, s) for p in PROBLEMS for a in AGENTS for s in range(given.runs)]
    jobs.sort(key=lambda job: (job[0] != PROBLEMS[1], "dirichlet" not in job[1]))  # the longest first
    print(table(play_all(play, jobs, given)))


if __name__ == "__main__":
    main()
