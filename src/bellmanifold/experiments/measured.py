"""One run: an agent that knows nothing learns a problem for a number of episodes, and is measured all the while.

Everything in a run follows from its seed K: the order of each state's actions is drawn from K itself, as
`action_seed=K` does, and all that happens afterwards from a generator seeded with the pair (K, 1), so that the two do
not share a stream. A Gymnasium environment is stepped from outside; without a table P it has no known optimum. Nor has
a problem that breaks Assumption 2. What is measured against the optimum is NaN then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.agents.episodes import Episode, play_episodes
from bellmanifold.agents.registry import AgentKind, Options, find_agent, make_agent
from bellmanifold.agents.worlds import SimulatedWorld, World, open_world
from bellmanifold.envs.building import with_action_order
from bellmanifold.errors import BadInputError
from bellmanifold.experiments.measures import Yardstick, first_episode, solved_episode
from bellmanifold.graph import all_pairs
from bellmanifold.ssp import SSP


@dataclass(frozen=True, eq=False)
class Run:
    """What was measured in a run; arrays have one entry an episode.

    Attributes:
        agent: name of the agent.
        options: value of each of its options.
        seed: the run's seed.
        optimal_value: expected optimal value of an episode; NaN if it is not known.
        regret: optimal value minus the reward collected, shape (episodes,).
        expected_regret: optimal value minus the played policy's own; NaN where the policy is improper.
        reached_goal: did the episode end at the goal?
        optimal: was the played policy optimal from the start?
        coverage: share of the reachable pairs that were played up to then.
        moves: how many were made.
        capped: was the episode given up after too many moves?
        seconds: how long it took, learning included.
        solved_episode: by bsuite's rule; None if it was not, or if the rule does not apply.
        diagnostics: numbers the agent had to say about its work, by name; NaN where it had none.
        played: the episodes themselves.
        model: the problem with its actions in the order this run drew: what the episodes' numbers refer to.
    """

    agent: str
    options: Options
    seed: int
    optimal_value: float
    regret: Float[np.ndarray, "episodes"]
    expected_regret: Float[np.ndarray, "episodes"]
    reached_goal: Bool[np.ndarray, "episodes"]
    optimal: Bool[np.ndarray, "episodes"]
    coverage: Float[np.ndarray, "episodes"]
    moves: Int[np.ndarray, "episodes"]
    capped: Bool[np.ndarray, "episodes"]
    seconds: Float[np.ndarray, "episodes"]
    solved_episode: int | None
    diagnostics: Mapping[str, Float[np.ndarray, "episodes"]]
    played: tuple[Episode, ...]
    model: SSP

    @property
    def first_optimal_episode(self) -> int | None:
        """First episode, counted from 1, whose policy was optimal."""
        return first_episode(self.optimal)

    @property
    def all_pairs_episode(self) -> int | None:
        """First episode, counted from 1, after which every reachable pair had been played."""
        return first_episode(np.asarray(self.coverage >= 1.0, dtype=np.bool_))


def play_run(
    problem: Any,
    agent: str | AgentKind,
    episodes: int,
    seed: int,
    options: Options | None = None,
    optimal_value: float | None = None,
) -> Run:
    """Play and measure one run.

    Args:
        problem: an `SSP` or a Gymnasium environment.
        agent: name of the agent.
        episodes: how many to play.
        seed: fixes everything but the seconds.
        options: the agent's options; its defaults where they are missing or None.
        optimal_value: if it is known already (`bellmanifold.experiments.measures.find_optimum`).
    """
    if episodes < 1:
        raise BadInputError(f"episodes is {episodes}: give a whole number, at least 1")
    if seed < 0:
        raise BadInputError(f"seed is {seed}: give a whole number that is not negative")
    kind = find_agent(agent) if isinstance(agent, str) else agent
    world = world_of_run(problem, seed)
    player = make_agent(kind, world, options)
    yardstick = Yardstick(world.model, optimal_value) if world.has_laws else None
    played: list[Episode] = []
    seconds: list[float] = []
    began = perf_counter()
    for episode in play_episodes(world, player, episodes, play_seed(seed)):
        played.append(episode)
        seconds.append(perf_counter() - began)
        began = perf_counter()
    return Run(
        agent=kind.name,
        options=kind.settle(options or {}),
        seed=seed,
        moves=np.array([len(episode.pairs) for episode in played]),
        capped=np.array([episode.end == "cap" for episode in played]),
        reached_goal=np.array([episode.reached_goal for episode in played]),
        coverage=_coverage(played, yardstick.reachable if yardstick else all_pairs(world.model)),
        seconds=np.array(seconds),
        diagnostics=_diagnostics(played),
        played=tuple(played),
        model=world.model,
        **_against_the_optimum(played, yardstick),
    )


def play_seed(seed: int) -> int:
    """The seed of everything in a run but the order of actions."""
    return int(np.random.SeedSequence((seed, 1)).generate_state(1, np.uint64)[0])


def world_of_run(problem: Any, seed: int) -> World:
    """The problem with the actions of every state in the order that a run's seed draws."""
    if isinstance(problem, SSP):
        return SimulatedWorld(with_action_order(problem, seed))
    world = open_world(problem)
    if not world.has_laws:
        return world
    from bellmanifold.agents.stepping import SteppedWorld

    return SteppedWorld(problem, with_action_order(world.model, seed))


def _diagnostics(played: list[Episode]) -> dict[str, Float[np.ndarray, "episodes"]]:
    names = sorted({name for episode in played for name in episode.diagnostics})
    return {name: np.array([float(e.diagnostics.get(name, np.nan)) for e in played]) for name in names}


def _coverage(played: list[Episode], reachable: Bool[np.ndarray, "pairs"]) -> Float[np.ndarray, "episodes"]:
    """Share of the reachable pairs that were played up to each episode."""
    seen: set[int] = set()
    shares = []
    for episode in played:
        seen.update(episode.pairs.tolist())
        shares.append(len(seen) / int(reachable.sum()))
    return np.array(shares)


def _against_the_optimum(played: list[Episode], yardstick: Yardstick | None) -> dict[str, Any]:
    """What can be measured only where the optimum is known."""
    if yardstick is None:
        unknown = np.full(len(played), np.nan)
        never = np.zeros(len(played), dtype=bool)
        known = {"optimal_value": np.nan, "solved_episode": None}
        return known | {"regret": unknown, "expected_regret": unknown, "optimal": never}
    best = yardstick.optimal_value
    value = np.array([yardstick.value(episode.policy) for episode in played])
    bad = yardstick.bad_pairs
    return {
        "optimal_value": best,
        "regret": np.array([best - episode.rewards.sum() for episode in played]),
        "expected_regret": np.where(np.isfinite(value), best - value, np.nan),
        "optimal": np.array([yardstick.is_optimal(v) for v in value.tolist()]),
        "solved_episode": None if bad is None else solved_episode(np.array([bad[e.pairs].any() for e in played])),
    }
