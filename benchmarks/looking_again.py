"""Regret on small problems with unknown laws: what looking again gains, and which Dirichlet prior suits `psrl`.

    python benchmarks/looking_again.py [PROBLEM ...] [--runs 10] [--episodes 100] [--workers N] [--out FILE.json]

Problems: GridWorld of the literature on learning shortest paths (3 x 4 cells, a step succeeds with probability 0.85 and
otherwise goes one of the other three ways, every move costs 1; its optimal value is -6.03648), a grid whose steps slip
sideways, a chain whose steps slip back, and random problems. Regret is `gap_regret`. Means hide heavy tails, so medians
and the worst run are shown, too. Rules of looking again, with `replan`:

- *new*: after the first play of a pair;
- *new or doubled*: also when its count has doubled since the last look, as agents do
(`bellmanifold.learning.episodes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from playing import chosen, parser, play_all

STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
ROWS, COLUMNS, SUCCESS = 3, 4, 0.85
CHAIN, SLIP = 10, 0.2
RANDOM = ("random-1", "random-2", "random-3", "random-4")
PROBLEMS = ("gridworld", "slippery-grid", "chain", *RANDOM)
AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "psrl, weight 1": ("psrl", {"weight": 1.0}),
    "psrl, weight 0.1": ("psrl", {"weight": 0.1}),
    "psrl": ("psrl", {}),
    "rlsvi": ("rlsvi", {}),
    "manifold, dirichlet, directed": ("manifold", {"laws": "dirichlet", "explore": "directed"}),
}
RULES = ("none", "new", "new or doubled")


@dataclass(frozen=True)
class Played:
    """One run: its gap regret, and processor time."""

    problem: str
    agent: str
    rule: str
    seed: int
    regret: float
    cpu_seconds: float


def gridworld() -> Any:
    """GridWorld from one corner to the other."""
    from bellmanifold.envs.building import Move, from_moves

    goal, moves = (ROWS - 1, COLUMNS - 1), {}
    for cell in np.ndindex(ROWS, COLUMNS):
        for action in STEPS if cell != goal else ():
            law: dict[str, float] = {}
            for other, (down, right) in STEPS.items():
                landing = min(max(cell[0] + down, 0), ROWS - 1), min(max(cell[1] + right, 0), COLUMNS - 1)
                name = "goal" if landing == goal else "{},{}".format(*landing)
                law[name] = law.get(name, 0.0) + (SUCCESS if other == action else (1.0 - SUCCESS) / 3)
            moves["{},{}".format(*cell), action] = Move(-1.0, law)
    return from_moves("gridworld", moves, start="0,0")


def chain() -> Any:
    """States in a row: "on" may slip back, "back" never does."""
    from bellmanifold.envs.building import Move, from_moves

    moves = {}
    for k in range(CHAIN):
        ahead, behind = str(k + 1) if k + 1 < CHAIN else "goal", str(max(k - 1, 0))
        moves[str(k), "on"] = Move(-1.0, {ahead: 1.0 - SLIP, behind: SLIP})
        moves[str(k), "back"] = Move(-1.0, {behind: 1.0})
    return from_moves("chain", moves, start="0")


def scattered(seed: int) -> Any:
    """Six states with three actions, each of which costs something and leads to one to three states or the goal."""
    from bellmanifold.envs.building import Move, from_moves

    rng, moves = np.random.default_rng(seed), {}
    names = [*map(str, range(6)), "goal"]
    for state in names[:-1]:
        for action in "abc":
            after = rng.choice(names, int(rng.integers(1, 4)), replace=False)
            share = rng.dirichlet(np.ones(len(after)))
            moves[state, action] = Move(-float(rng.uniform(0.5, 2.0)), dict(zip(after.tolist(), share, strict=True)))
        moves[state, "c"] = Move(-4.0, {"goal": 0.2, state: 0.8})
    return from_moves(f"random-{seed}", moves, start="0")


def problem_of(name: str) -> Any:
    """A problem by its name in the table."""
    import bellmanifold as bm

    if name in RANDOM:
        return scattered(RANDOM.index(name))
    if name == "slippery-grid":
        return bm.envs.grid(ROWS, COLUMNS, slip=SLIP)
    return gridworld() if name == "gridworld" else chain()


def play(job: tuple[str, str, str, int, int]) -> Played:
    """Play one run under a rule."""
    from time import process_time

    from bellmanifold.learning import episodes as loop
    from bellmanifold.learning.environment import use_one_thread
    from bellmanifold.learning.runs import learn

    use_one_thread()
    problem, label, rule, episodes, seed = job
    model, (agent, options), began = problem_of(problem), AGENTS[label], process_time()
    own = dict(options)
    if "weight" in own:
        own["concentration"] = own.pop("weight") * (model.n_states + 1)
    kept = loop._Rollout._is_telling
    try:
        if rule == "new":
            loop._Rollout._is_telling = lambda rollout, pair: bool(rollout.memory.count[pair] == 1)  # type: ignore[method-assign]
        (run,) = learn(model, agent, episodes, 1, seed, replan=rule != "none", progress=False, **own).runs
    finally:
        loop._Rollout._is_telling = kept  # type: ignore[method-assign]
    return Played(problem, label, rule, seed, float(run.gap_regret.sum()), process_time() - began)


def cell(runs: list[Played]) -> str:
    """Mean regret with its standard error, the median and the largest."""
    regret = np.array([run.regret for run in runs])
    error = f" ± {regret.std(ddof=1) / np.sqrt(len(regret)):.1f}" if len(regret) > 1 else ""
    return f"{regret.mean():.1f}{error} ({np.median(regret):.0f}, {regret.max():.0f})"


def table(played: list[Played]) -> str:
    """A line per problem and agent, a column per rule."""
    lines = ["| problem | agent | " + " | ".join(RULES) + " |", "|---" * (len(RULES) + 2) + "|"]
    for problem in PROBLEMS:
        for agent in AGENTS:
            own = [run for run in played if (run.problem, run.agent) == (problem, agent)]
            cells = [cell(found) if (found := [run for run in own if run.rule == rule]) else "-" for rule in RULES]
            lines += [f"| {problem} | {agent} | " + " | ".join(cells) + " |"] if own else []
    return "\n".join(lines)


def main() -> None:
    """Play everything and print the table."""
    asking = parser(__doc__, PROBLEMS)
    asking.add_argument("--episodes", type=int, default=100)
    given = asking.parse_args()
    names = chosen(asking, given, PROBLEMS)
    jobs = [(p, a, r, given.episodes, s) for p in names for a in AGENTS for r in RULES for s in range(given.runs)]
    print(table(play_all(play, jobs, given)))


if __name__ == "__main__":
    main()
