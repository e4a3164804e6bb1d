"""`psrl` and `rlsvi` made fair: published defaults beside the best of a small grid of settings, problem by problem.

    python benchmarks/peers.py [PROBLEM ...] [--runs 10] [--workers N] [--out FILE.json]

Every setting of the grid is played with the same seeds, and the best is chosen by those very runs: that favours the
peers. On bsuite's deep sea the best is the one solved first, elsewhere the one with the least completed regret (an
episode that does not arrive goes on optimally, so that giving up does not pay). Searched are

- `noise_sd` of both: 1 (published), 0.3, 0.1, 0.03, 0.01;
- `prior_scale` of `rlsvi`: 1 (published), 0.1, 10;
- the Dirichlet prior of `psrl`: weight 1 on every next state (published), or a concentration that is inferred (the
  default).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import process_time
from typing import NamedTuple

import numpy as np
from playing import chosen, parser, play_all

WEIGHTS = (1.0, 0.0)
"""Dirichlet weight of `psrl` on every next state; 0 stands for one that is inferred."""
NOISE_SD = (1.0, 0.3, 0.1, 0.03, 0.01)
PRIOR_SCALE = (1.0, 0.1, 10.0)
SETTINGS: dict[str, list[dict[str, float]]] = {
    "psrl": [{"noise_sd": noise, "weight": weight} for weight in WEIGHTS for noise in NOISE_SD],
    "rlsvi": [{"noise_sd": noise, "prior_scale": prior} for prior in PRIOR_SCALE for noise in NOISE_SD],
}
"""The published ones come first."""


class Problem(NamedTuple):
    """What is learnt, for how many episodes, whether bsuite's rule says when it is solved, and if episodes go on."""

    model: str
    episodes: int
    is_bsuite: bool = False
    replan: bool = False


PROBLEMS = {
    "deep-sea-5": Problem("env:deep-sea?depth=5", 200),
    "deep-sea-10": Problem("env:deep-sea?depth=10", 200),
    "pyramid-5": Problem("env:pyramid?depth=5", 200),
    "swirl-5": Problem("env:swirl?depth=5", 200),
    "cliff": Problem("gym:CliffWalking-v1", 150),
    "cliff-replan": Problem("gym:CliffWalking-v1", 150, replan=True),
    "bsuite-10": Problem("env:deep-sea?depth=10&convention=bsuite", 400, is_bsuite=True),
    "bsuite-20": Problem("env:deep-sea?depth=20&convention=bsuite", 800, is_bsuite=True),
}


@dataclass(frozen=True)
class Played:
    """One run.

    Attributes:
        problem, agent, setting, seed: which; a setting is counted in `SETTINGS`.
        regret: completed, of all episodes.
        arrived: share of the episodes.
        solved: the episode at which it was solved; None if it was not, or where there is no such rule.
        cpu_seconds: it took.
    """

    problem: str
    agent: str
    setting: int
    seed: int
    regret: float
    arrived: float
    solved: int | None
    cpu_seconds: float


def play(job: tuple[str, str, int, int]) -> Played:
    """Play one run."""
    import bellmanifold as bm
    from bellmanifold.learning.environment import use_one_thread

    use_one_thread()
    name, agent, setting, seed = job
    problem, began = PROBLEMS[name], process_time()
    options: dict[str, float | None] = {**SETTINGS[agent][setting], "replan": problem.replan}
    model = bm.load_model(problem.model)
    if agent == "psrl":
        weight = SETTINGS[agent][setting]["weight"]
        del options["weight"]
        options["concentration"] = weight * (model.n_states + 1) if weight else None
    (run,) = bm.learn(model, agent, problem.episodes, 1, seed, **options).runs
    regret, arrived = float(np.sum(run.completed_regret)), float(np.mean(run.reached_goal))
    solved = run.solved_episode if problem.is_bsuite else None
    return Played(name, agent, setting, seed, regret, arrived, solved, process_time() - began)


def height(problem: Problem, runs: list[Played]) -> float:
    """What the best setting has least of: a run that is not solved counts as if it were one episode after the last."""
    if problem.is_bsuite:
        return float(np.mean([run.solved or problem.episodes + 1 for run in runs]))
    return float(np.mean([run.regret for run in runs]))


def best_setting(problem: Problem, by_setting: Mapping[int, list[Played]]) -> int:
    """The setting with the least of it, the first of several."""
    return min(by_setting, key=lambda setting: height(problem, by_setting[setting]))


def cell(problem: Problem, runs: list[Played]) -> str:
    """Mean completed regret with its standard deviation over runs, or the episodes at which runs were solved."""
    if problem.is_bsuite:
        solved = [run.solved for run in runs if run.solved is not None]
        if not solved:
            return "never solved"
        never = f", {len(runs) - len(solved)} of {len(runs)} never" if len(solved) < len(runs) else ""
        return f"{np.mean(solved):.0f} ({min(solved)} to {max(solved)}{never})"
    regret = np.array([run.regret for run in runs])
    spread = f" ({regret.std(ddof=1):.1f})" if len(runs) > 1 else ""
    arrived = np.mean([run.arrived for run in runs])
    return f"{regret.mean():.1f}{spread}" + ("" if arrived > 0.9995 else f", {arrived:.0%} arrive")


def table(played: list[Played]) -> str:
    """One line per problem: each agent as published, and with the best of its settings."""
    names = [name for name in PROBLEMS if any(run.problem == name for run in played)]
    heads = [f"`{agent}`{rest}" for agent in SETTINGS for rest in (", published", ", best of the grid", ": settings")]
    lines = ["| problem | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for name in names:
        cells = []
        for agent, settings in SETTINGS.items():
            own = [run for run in played if (run.problem, run.agent) == (name, agent)]
            by_setting = {k: [run for run in own if run.setting == k] for k in range(len(settings))}
            by_setting = {k: runs for k, runs in by_setting.items() if runs}
            best = best_setting(PROBLEMS[name], by_setting)
            said = ", ".join(f"{option} {value:g}" for option, value in settings[best].items())
            cells += [cell(PROBLEMS[name], by_setting[0]), cell(PROBLEMS[name], by_setting[best]), said]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Play everything and print the table."""
    asking = parser(__doc__, PROBLEMS)
    given = asking.parse_args()
    jobs = [
        (name, agent, setting, seed)
        for name in chosen(asking, given, PROBLEMS)
        for agent, settings in SETTINGS.items()
        for setting in range(len(settings))
        for seed in range(given.runs)
    ]
    played = play_all(play, jobs, given)
    print(table(played))
    print(f"{sum(run.cpu_seconds for run in played):.0f} s of processor time")


if __name__ == "__main__":
    main()
