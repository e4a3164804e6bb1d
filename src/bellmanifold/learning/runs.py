"""`learn`: several runs of one agent on one problem, and their summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from bellmanifold._util.display import Card, Columns, Shown, as_frame, for_json, or_null, picture, with_error
from bellmanifold._util.options import spoken
from bellmanifold._util.progress import show_count
from bellmanifold.agents.environments import open_world
from bellmanifold.agents.registry import check_supported, kind_of
from bellmanifold.agents.settings import NOISE
from bellmanifold.errors import BadInputError, require_count
from bellmanifold.io.models import load_problem
from bellmanifold.learning.metrics import Spread, find_optimum, sample_sd, spread
from bellmanifold.learning.run import Run, check_memory, play_runs
from bellmanifold.problem.costs import Costs, cost_unit, in_terms, in_unit, signed, worded
from bellmanifold.problem.dataset import SAME_REWARD
from bellmanifold.problem.ssp import SSP, require_closed

if TYPE_CHECKING:
    import pandas

BY_EPISODE = (
    "reward",
    "regret",
    "completed_regret",
    "gap_regret",
    "reached_goal",
    "optimal",
    "coverage",
    "moves",
    "capped",
)
"""Columns for each episode in the table of runs."""


@dataclass(frozen=True, eq=False, repr=False)
class Learning(Shown):
    """Runs of one agent on one problem.

    Attributes:
        agent: name of the agent.
        runs: the measured runs.
        seconds: total running time.
        messages: warnings for the reader.
        out: the directory the runs were written to, if any.
    """

    agent: str
    runs: tuple[Run, ...]
    seconds: float
    messages: tuple[str, ...] = ()
    out: str | None = None

    @cached_property
    def cumulative_regret(self) -> Spread:
        """Cumulative regret over episodes."""
        return spread(np.cumsum([run.regret for run in self.runs], axis=1))

    @cached_property
    def cumulative_completed_regret(self) -> Spread:
        """Cumulative completed regret over episodes."""
        return spread(np.cumsum([run.completed_regret for run in self.runs], axis=1))

    @cached_property
    def expected_regret(self) -> Float[np.ndarray, "episodes"]:
        """Mean over runs of the played policies' expected regret; NaN where one of them is improper."""
        return np.mean([run.expected_regret for run in self.runs], axis=0)

    @property
    def costs(self) -> Costs | None:
        """How the problem was given in costs; None if it was given in rewards."""
        return cost_unit(self.runs[0].model)

    def card(self) -> Card:
        """Text and table for display: arrivals at the goal, and the regret (the reward if no optimum is known)."""
        runs, title = self.runs, f"Learning({self.agent} on {self.runs[0].model})"
        arrived = float(np.mean([run.reached_goal for run in runs]))
        size = f"{len(runs)} runs of {len(runs[0].regret)} episodes, {arrived:.0%} of them arrived at the goal"
        lost = np.array([run.completed_regret.sum() for run in runs])
        what, found = "cumulative completed regret", lost
        if not np.isfinite(lost).all():
            what, found = "cumulative reward", signed(np.array([run.reward.sum() for run in runs]), self.costs)
        error = float(found.std(ddof=1) / np.sqrt(len(runs))) if len(runs) > 1 else 0.0
        average = in_unit(with_error(float(found.mean()), error), self.costs)
        facts = [size, f"{worded(what, self.costs)}: {average} on average over runs"]
        return Card(title, facts, self.messages, self._of_runs, lambda: picture("regret", self))

    def _of_runs(self) -> Columns:
        runs = self.runs
        columns: Columns = {
            "seed": [run.seed for run in runs],
            "reward": [float(run.reward.sum()) for run in runs],
            "completed_regret": [float(run.completed_regret.sum()) for run in runs],
            "arrived": [float(run.reached_goal.mean()) for run in runs],
            "first_optimal_episode": [run.first_optimal_episode for run in runs],
            **({"stopped_episode": [run.stopped_episode for run in runs]} if self._may_stop else {}),
        }
        return in_terms(columns, self.costs)

    @property
    def _gaps(self) -> list[float | None] | None:
        """Mean gap regret of each episode; None if no optimum is known."""
        found = np.mean([run.gap_regret for run in self.runs], axis=0)
        return None if np.isnan(self.runs[0].optimal_value) else for_json(found)

    @property
    def _may_stop(self) -> bool:
        """Whether the runs could stop exploring (`until_loss`)."""
        return self.runs[0].options.get("until_loss") is not None

    def curve(self, measure: str) -> tuple[Float[np.ndarray, "episodes"], Float[np.ndarray, "episodes"]]:
        """Mean and standard deviation over runs of the cumulative sum of a measure such as `completed_regret`."""
        curves = np.cumsum([getattr(run, measure) for run in self.runs], axis=1)
        return curves.mean(axis=0), sample_sd(curves)

    def to_frame(self) -> pandas.DataFrame:
        """A row per episode of each run, counted from 1: reward, regret and other measures.

        `optimal` says whether the agent's policy at the start of the episode was optimal and was not replaced. Agents
        that also try moves at random, as `q-learning` does, may still lose something in such an episode.
        With `until_loss` there are also the agent's expected loss and the true loss of the policy that it played.
        """
        runs, episodes = self.runs, len(self.runs[0].reward)
        found: dict[str, Any] = {
            "agent": [[self.agent] * episodes for _ in runs],
            "run": [[number] * episodes for number in range(len(runs))],
            "seed": [[run.seed] * episodes for run in runs],
            "episode": [range(1, episodes + 1) for _ in runs],
            **{name: [getattr(run, name).tolist() for run in runs] for name in BY_EPISODE},
        }
        if self._may_stop:
            found["expected_loss"] = [run.diagnostics["expected_loss"].tolist() for run in runs]
            found["true_loss"] = [run.expected_regret.tolist() for run in runs]
            found["stopped"] = [(run.diagnostics["stopped"] > 0).tolist() for run in runs]
        return as_frame({name: list(chain.from_iterable(each)) for name, each in found.items()})

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of `learn`."""
        runs, regret, completed = self.runs, self.cumulative_regret, self.cumulative_completed_regret
        optimal = np.mean([run.optimal for run in runs], axis=0) + 0.0 * runs[0].optimal_value  # NaN without an optimum
        first: dict[str, Any] = {"warnings": list(self.messages)} if self.messages else {}
        if self._may_stop:
            first["stopped_episode"] = [run.stopped_episode for run in runs]
        return first | {
            "agent": self.agent,
            "options": dict(runs[0].options),
            "episodes": len(runs[0].regret),
            "runs": len(runs),
            "seeds": [run.seed for run in runs],
            "optimal_value": or_null(runs[0].optimal_value),
            "reward_mean": for_json(np.mean([run.reward for run in runs], axis=0)),
            "cumulative_regret_mean": for_json(regret.mean),
            "cumulative_regret_sd": for_json(regret.sd),
            "cumulative_regret_interval": _listed_pairs(regret.interval),
            "cumulative_regret_iqm": for_json(regret.interquartile_mean),
            "cumulative_regret_iqm_interval": _listed_pairs(regret.interquartile_interval),
            "cumulative_completed_regret_mean": for_json(completed.mean),
            "cumulative_completed_regret_sd": for_json(completed.sd),
            "cumulative_completed_regret_interval": _listed_pairs(completed.interval),
            "expected_regret_mean": for_json(self.expected_regret),
            "gap_regret_mean": self._gaps,
            "coverage_mean": for_json(np.mean([run.coverage for run in runs], axis=0)),
            "goal_reached_mean": for_json(np.mean([run.reached_goal for run in runs], axis=0)),
            "optimal_mean": for_json(optimal),
            "capped_episodes": [int(run.capped.sum()) for run in runs],
            "first_optimal_episode": [run.first_optimal_episode for run in runs],
            "all_pairs_episode": [run.all_pairs_episode for run in runs],
            "solved_episode": [run.solved_episode for run in runs],
            "seconds": self.seconds,
            "messages": list(self.messages),
            "out": self.out,
        }


def learn(
    problem: Any,
    agent: Any,
    episodes: int = 100,
    runs: int = 10,
    seed: int = 0,
    *,
    after_run: Callable[[Run], object] | None = None,
    kept: Mapping[int, Run] | None = None,
    progress: bool | None = None,
    discount: float | int | None = None,
    **options: Any,
) -> Learning:
    """Run an agent on a problem several times, each time from scratch.

    Args:
        problem: an `SSP`, a name as on the command line, or a Gymnasium environment, which is stepped.
        agent: its name, one of `bellmanifold.agents.registry.AGENTS`; an object of your own with `policy(rng)` and
            `observe(pairs, rewards)`, of which every run uses a copy; or a class or function that makes one.
        episodes: number of episodes per run.
        runs: number of runs; run i has the seed `seed + i`, which also determines the order of every state's actions.
        seed: fixes every result except running times.
        after_run: called with each run as soon as it is done, for example to store it.
        kept: runs that were played before with the same arguments, by seed; they are not played again.
        progress: show progress after two seconds; by default on terminals and in notebooks.
        discount: learn the discounted problem instead: every move ends the episode with probability 1 - discount.
        options: the agent's options, such as `epsilon`, `prior_scale`, `explore`; None means not given.

    Raises:
        BadInputError: for an unknown agent, an option it does not have, or an invalid value.
        UnsupportedError: if this agent cannot learn this problem.

    >>> from bellmanifold import envs
    >>> learn(envs.two_state(), "bayes-td", episodes=5, runs=2).to_dict()["optimal_value"]
    -1.0
    """
    if isinstance(problem, str):
        problem = load_problem(problem)
    require_count(episodes=episodes, runs=runs, seed=seed)
    if runs < 1:
        raise BadInputError(f"runs is {runs}: give a whole number, at least 1")
    if isinstance(problem, SSP):
        require_closed(problem, "learn")
    if discount is not None:
        problem = discounted(problem, discount)
    kind = kind_of(agent)
    began = perf_counter()
    world = open_world(problem)
    check_memory(world, episodes, runs)
    check_supported(kind, world, options)
    best = find_optimum(world.model, world.has_laws)
    messages: tuple[str, ...] = () if best.reason is None else (f"there is no optimum to compare with: {best.reason}",)
    seeds, found = range(seed, seed + runs), dict(kept or {})
    left = [own for own in seeds if own not in found]
    with show_count(f"learning with {kind.name}", "episodes", len(left) * episodes, progress) as one_more:
        for run in play_runs(problem, kind, episodes, left, options, best, one_more) if left else ():
            found[run.seed] = run
            if after_run is not None:
                after_run(run)
    done = [found[own] for own in seeds]
    noisy = any(options.get(name) not in (None, False) for name in NOISE)
    if "epsilon" in kind.options or kind.needs_exact_rewards:
        messages += () if noisy else _varying(done)
    return Learning(kind.name, tuple(done), perf_counter() - began, messages)


def discounted(problem: Any, discount: float | int) -> SSP:
    """The discounted version of a problem, or of an environment with a transition table; others are refused."""
    world = open_world(problem)
    if not world.has_laws:
        raise BadInputError("discount: the environment has no table P to discount: leave it out")
    return world.model.discounted(discount)


def _varying(runs: list[Run]) -> tuple[str, ...]:
    """The message for runs in which a pair's reward varied: its mean is taken to be exact."""
    for run in runs:
        pairs = np.concatenate([episode.pairs for episode in run.played])
        rewards = np.concatenate([episode.rewards for episode in run.played])
        order = np.argsort(pairs, kind="stable")
        same = np.diff(pairs[order]) == 0
        if (same & (np.abs(np.diff(rewards[order])) > SAME_REWARD)).any():
            return (
                spoken(
                    "the rewards of a pair vary, and their mean is taken to be exact: "
                    "use bayes-br with --noise-sd or --infer-noise to treat them as noisy"
                ),
            )
    return ()


def _listed_pairs(ends: Float[np.ndarray, "2 n"]) -> list[list[float | None]]:
    return [for_json(pair) for pair in ends.T]
