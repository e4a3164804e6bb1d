"""One run: an agent learns a problem from scratch for a number of episodes, and every episode is measured.

Everything in a run is determined by its seed K: the order of each state's actions is drawn from K itself, as with
`action_seed=K`, and everything afterwards from a generator seeded with the pair (K, 1), so that the two do not share a
stream. A Gymnasium environment without a table P has no known optimum, and a problem that violates Assumption 2 has
none; measures relative to the optimum are then NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold._util.limits import NUMBERS, RUNS
from bellmanifold.agents.agent import Agent, Beliefs, believes, shows_beliefs
from bellmanifold.agents.environments import SimulatedWorld, SteppedWorld, World, open_world, world_as_shown
from bellmanifold.agents.registry import AgentKind, check_supported, kind_of, make_agent
from bellmanifold.agents.settings import Options
from bellmanifold.envs.building import with_action_order
from bellmanifold.errors import BadInputError
from bellmanifold.learning.episodes import Episode, play_episodes
from bellmanifold.learning.metrics import Evaluator, Optimum, first_episode, solved_episode
from bellmanifold.learning.routes import all_routes
from bellmanifold.mdp.graph import all_pairs
from bellmanifold.problem.ssp import SSP

MOST_BELIEFS = 300_000
"""Largest number of episodes times pairs for which beliefs about pairs are kept."""

NUMBERS_OF_EPISODE = 64
"""Lower bound on the numbers stored per episode in addition to its policy."""

LARGEST_SEED = 2**63 - 1
"""Largest seed that a plan can contain."""


@dataclass(frozen=True, eq=False)
class Run:
    """The measurements of a run; arrays have one entry per episode.

    Attributes:
        options: value of each of the agent's options.
        optimal_value: expected optimal value of an episode; NaN if it is not known.
        regret: optimal value minus the reward collected, shape (episodes,).
        completed_regret: the same if an optimal policy had continued every episode that did not reach the goal.
        expected_regret: optimal value minus the value of the played policy; NaN where that is improper or was replaced.
        gap_regret: sum of V*(s) - Q*(s, a) over the moves played; NaN if the optimum is not known.
        reached_goal: whether the episode ended at the goal.
        optimal: whether the played policy was optimal from the start and was played to the end.
        coverage: fraction of the reachable pairs that had been played by then.
        moves: number of moves.
        capped: whether the episode was stopped after too many moves.
        seconds: running time, including learning; for runs played in lockstep, an equal share of the total.
        solved_episode: the episode solved by bsuite's rule; None if there is none, or if the rule does not apply.
        routes: all routes of the problem, if it is deterministic and has few; otherwise none.
        route_probability: the agent's probability, when it chose the policy, that each route is optimal; NaN where
            unknown, shape (episodes, routes).
        action_probability, q_mean: the same for each action, and the mean of its value, shape (episodes, pairs); None
            if the agent never knew them, or if they would be too many to keep.
        diagnostics: the agent's diagnostics by name; NaN where there are none.
        model: the problem with its actions in this run's order, to which the episodes' numbers refer.
    """

    agent: str
    options: Options
    seed: int
    optimal_value: float
    regret: Float[np.ndarray, "episodes"]
    completed_regret: Float[np.ndarray, "episodes"]
    expected_regret: Float[np.ndarray, "episodes"]
    gap_regret: Float[np.ndarray, "episodes"]
    reached_goal: Bool[np.ndarray, "episodes"]
    optimal: Bool[np.ndarray, "episodes"]
    coverage: Float[np.ndarray, "episodes"]
    moves: Int[np.ndarray, "episodes"]
    capped: Bool[np.ndarray, "episodes"]
    seconds: Float[np.ndarray, "episodes"]
    solved_episode: int | None
    routes: tuple[tuple[int, ...], ...]
    route_probability: Float[np.ndarray, "episodes routes"]
    action_probability: Float[np.ndarray, "episodes pairs"] | None
    q_mean: Float[np.ndarray, "episodes pairs"] | None
    diagnostics: Mapping[str, Float[np.ndarray, "episodes"]]
    played: tuple[Episode, ...]
    model: SSP

    @property
    def reward(self) -> Float[np.ndarray, "episodes"]:
        """Total reward of each episode: known for any environment, with or without a table."""
        return np.array([episode.rewards.sum() for episode in self.played])

    @property
    def first_optimal_episode(self) -> int | None:
        """First episode, counted from 1, whose policy was optimal."""
        return first_episode(self.optimal)

    @property
    def stopped_episode(self) -> int | None:
        """First episode, counted from 1, before which the agent had stopped exploring; see `until_loss`."""
        stopped = self.diagnostics.get("stopped")
        return None if stopped is None else first_episode(np.asarray(stopped > 0, dtype=np.bool_))

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
    optimum: Optimum | None = None,
) -> Run:
    """Play and measure one run; see `play_runs`."""
    return next(play_runs(problem, agent, episodes, [seed], options, optimum))


def play_runs(
    problem: Any,
    agent: str | AgentKind,
    episodes: int,
    seeds: Sequence[int],
    options: Options | None = None,
    optimum: Optimum | None = None,
    after_episode: Callable[[int], object] | None = None,
) -> Iterator[Run]:
    """Play and measure runs block by block; the runs of a block are played in lockstep, episode by episode.

    A block is always played as a whole, whichever of its runs are wanted. A seed fixes everything except the seconds.

    Args:
        problem: an `SSP` or a Gymnasium environment.
        options: the agent's options; missing ones and None stand for its defaults.
        optimum: the optimum, if it is known already (`bellmanifold.learning.metrics.find_optimum`).
        after_episode: called after every episode with the number of wanted runs that played it.
    """
    if episodes < 1 or episodes != int(episodes):
        raise BadInputError(f"episodes is {episodes}: give a whole number, at least 1")
    for seed in (min(seeds), max(seeds)):
        if not 0 <= seed <= LARGEST_SEED:
            raise BadInputError(f"seed is {seed}: give a whole number between 0 and {LARGEST_SEED}")
    kind = kind_of(agent)
    check_memory(problem, episodes, kind.width)
    options = options or {}
    replan = bool(kind.resolve_options(options).get("replan", False))
    for first in dict.fromkeys(seed - seed % kind.width for seed in seeds):
        block = range(first, first + kind.width)
        worlds = [world_of_run(problem, seed, kind.own_order) for seed in block]
        pairs = zip(worlds, _make_agents(kind, worlds, options, block), block, strict=True)
        shown = kind.is_shown_laws(options)
        recorders = [_Recorder(world, agent, episodes, seed, optimum, replan, shown) for world, agent, seed in pairs]
        wanted = [recorder for recorder in recorders if recorder.seed in seeds]
        for _ in range(episodes):
            took = sum(recorder.next_episode() for recorder in recorders)
            for recorder in recorders:
                recorder.seconds.append(took / len(recorders))  # the first agent may do the work of all
            if after_episode is not None:
                after_episode(len(wanted))
        yield from (recorder.run(kind, options) for recorder in wanted)


def check_memory(problem: Any, episodes: int, runs: int) -> None:
    """Raise if the episodes of the runs would not fit into memory."""
    RUNS.require(runs, "runs")
    NUMBERS.require(runs * episodes * (open_world(problem).model.n_states + NUMBERS_OF_EPISODE), f"{episodes} episodes")


def _make_agents(kind: AgentKind, worlds: Sequence[World], options: Options, seeds: Sequence[int]) -> Sequence[Agent]:
    """The agents of runs that are played in lockstep."""
    if kind.make_block is None:
        return [make_agent(kind, world, options) for world in worlds]
    check_supported(kind, worlds[0], options)
    models = [kind.as_shown(world.model, options) for world in worlds]
    return kind.make_block(models, kind.settings_for(worlds[0].model, options), seeds)


class _Recorder:
    """A run in progress, played one episode at a time, and its records; only they may look at a table not `shown`."""

    def __init__(
        self, world: World, agent: Agent, episodes: int, seed: int, optimum: Optimum | None, replan: bool, shown: bool
    ) -> None:
        self.world, self.agent, self.seed = world, agent, seed
        self.evaluator = Evaluator(world.model, optimum) if world.has_laws else None
        self.episodes = play_episodes(world_as_shown(world, shown), agent, episodes, play_seed(seed), replan=replan)
        self.played: list[Episode] = []
        self.seconds: list[float] = []
        self.routes = all_routes(world.model) if world.has_laws and believes(agent) else ()
        self.of_routes: list[Float[np.ndarray, "routes"]] = []
        self.of_pairs: list[Beliefs | None] = []
        self.keeps_beliefs = episodes * world.model.n_pairs <= MOST_BELIEFS

    def next_episode(self) -> float:
        """Play an episode and record everything except its running time in seconds, which is returned."""
        began = perf_counter()
        self.played.append(next(self.episodes))
        took = perf_counter() - began
        if self.routes and believes(self.agent):
            self.of_routes.append(self.agent.route_probabilities(self.routes))
        if self.keeps_beliefs and shows_beliefs(self.agent):
            self.of_pairs.append(self.agent.beliefs())
        return took

    def run(self, kind: AgentKind, options: Options) -> Run:
        played, model = self.played, self.world.model
        reachable = self.evaluator.reachable if self.evaluator else all_pairs(model)
        names = sorted({name for episode in played for name in episode.diagnostics})
        return Run(
            agent=kind.name,
            options=kind.resolve_options(kind.with_stated(model, options)),
            seed=self.seed,
            moves=np.array([len(episode.pairs) for episode in played]),
            capped=np.array([episode.end == "cap" for episode in played]),
            reached_goal=np.array([episode.reached_goal for episode in played]),
            coverage=_coverage(played, reachable),
            seconds=np.array(self.seconds),
            diagnostics={n: np.array([float(e.diagnostics.get(n, np.nan)) for e in played]) for n in names},
            routes=self.routes,
            route_probability=np.array(self.of_routes).reshape(len(played), len(self.routes)),
            action_probability=_stack([b.action_probability if b else None for b in self.of_pairs], model.n_pairs),
            q_mean=_stack([b.q_mean if b else None for b in self.of_pairs], model.n_pairs),
            played=tuple(played),
            model=model,
            **_against_the_optimum(played, self.evaluator),
        )


def play_seed(seed: int) -> int:
    """The seed of everything in a run except the order of actions."""
    return int(np.random.SeedSequence((seed, 1)).generate_state(1, np.uint64)[0])


def world_of_run(problem: Any, seed: int, own_order: bool = False) -> World:
    """The problem with the actions of every state in the order drawn from a run's seed, or in the original order."""
    if own_order:
        return open_world(problem)
    if isinstance(problem, SSP):
        return SimulatedWorld(with_action_order(problem, seed))
    world = open_world(problem)
    return SteppedWorld(problem, with_action_order(world.model, seed)) if world.has_laws else world


def _stack(rows: Sequence[Float[np.ndarray, "pairs"] | None], pairs: int) -> Float[np.ndarray, "episodes pairs"] | None:
    """One row per episode, NaN where it is unknown; None if all are."""
    if all(row is None for row in rows):
        return None
    unknown = np.full(pairs, np.nan)
    return np.array([unknown if row is None else row for row in rows], dtype=np.float32)


def _coverage(played: list[Episode], reachable: Bool[np.ndarray, "pairs"]) -> Float[np.ndarray, "episodes"]:
    """Fraction of the reachable pairs that had been played by the end of each episode."""
    _, first = np.unique(np.concatenate([episode.pairs for episode in played]), return_index=True)
    moves = np.cumsum([len(episode.pairs) for episode in played])
    return np.searchsorted(np.sort(first), moves) / int(reachable.sum())


def _against_the_optimum(played: list[Episode], evaluator: Evaluator | None) -> dict[str, Any]:
    """Measures relative to the optimum; NaN, False or None where it is unknown."""
    reward = np.array([episode.rewards.sum() for episode in played])
    best, bad, value = np.nan, None, np.full(len(played), np.nan)
    afterwards, gap, optimal = value, value, np.zeros(len(played), dtype=bool)
    if evaluator is not None:
        best, bad = evaluator.optimum.at_start, evaluator.bad_pairs
        value = np.array([-np.inf if episode.changed else evaluator.value(episode.policy) for episode in played])
        afterwards = evaluator.optimum.value[[episode.last for episode in played]]
        gap = np.array([evaluator.gaps[episode.pairs].sum() for episode in played])
        optimal = np.array([evaluator.is_optimal(v) for v in value.tolist()])
    return {
        "optimal_value": best,
        "regret": best - reward,
        "completed_regret": best - (reward + afterwards),
        "expected_regret": np.where(np.isfinite(value), best - value, np.nan),
        "gap_regret": gap,
        "optimal": optimal,
        "solved_episode": None if bad is None else solved_episode(np.array([bad[e.pairs].any() for e in played])),
    }
