"""Playing episodes: the loop of Algorithm 1 around any agent.

Before each episode the agent names a policy, one pair a state. It is played from a random start, and then the agent is
shown the pairs that were played and what they paid. An episode ends

- at the goal;
- for a deterministic problem, when a state repeats, as in the paper: the same loop would follow for ever;
- for any other problem whose laws are known, as soon as the policy can reach neither the goal nor a pair that was never
  played before. That is a question about the graph of the pairs played so far, and it is asked after every move;
- when an environment outside cuts it off;
- after `cap` moves, by default ten times the number of states and at least 1,000.

Agents need no base class. Besides `policy` and `observe` an agent may have

- `moved` (`SeesMoves`): it is shown every single move, with the state it led to;
- `act` (`Acts`): it chooses each move on its own. Then `policy` is only what it would play if it stopped learning (the
  measures judge that), and loops do not end an episode: the agent may leave them by itself;
- `diagnostics` (`Diagnosed`): numbers about its work on the episode, to be kept with the results;
- `route_probabilities` (`Believes`): how probable it thinks it is that each route is optimal;
- `beliefs` (`ShowsBeliefs`): the same of each action, with the mean of its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.agents.worlds import World, open_world
from bellmanifold.errors import BadInputError, UnsupportedError, quote
from bellmanifold.graph import reaches_goal
from bellmanifold.ssp import SSP

LEAST_CAP = 1000
MOVES_PER_STATE = 10
End = Literal["goal", "loop", "cut off", "cap"]


@runtime_checkable
class Agent(Protocol):
    """What the loop asks of every agent."""

    def policy(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The pair each state plays in the next episode."""

    def observe(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        """Learn from an episode: the pairs played, in order, and what they paid."""


@runtime_checkable
class SeesMoves(Protocol):
    """An agent that is shown every move."""

    def moved(self, pair: int, reward: float, landing: int, playable: Int[np.ndarray, "actions"]) -> None:
        """A pair was played, paid, and led to a state in which these pairs can be played (none at the goal)."""


@runtime_checkable
class Acts(Protocol):
    """An agent that chooses every move on its own."""

    def act(self, playable: Int[np.ndarray, "actions"], rng: np.random.Generator) -> int:
        """Which of these pairs of the current state to play."""


@runtime_checkable
class Diagnosed(Protocol):
    """An agent that has something to say about its work."""

    @property
    def diagnostics(self) -> Mapping[str, float]:
        """Numbers about the last episode; read after `observe`."""


@runtime_checkable
class Believes(Protocol):
    """An agent that knows how probable it thinks routes are."""

    def route_probabilities(self, routes: Sequence[tuple[int, ...]]) -> Float[np.ndarray, "routes"]:
        """The probability that each route is optimal, in the belief the last policy was drawn from; NaN if unknown."""


class Beliefs(NamedTuple):
    """What an agent believes about every pair.

    Attributes:
        action_probability: probability that the pair is optimal in its state, shape (pairs,).
        q_mean: mean of its value, shape (pairs,).
    """

    action_probability: Float[np.ndarray, "pairs"]
    q_mean: Float[np.ndarray, "pairs"]


@runtime_checkable
class ShowsBeliefs(Protocol):
    """An agent that can show what it believes."""

    def beliefs(self) -> Beliefs | None:
        """The belief the last policy was drawn from; None if it is not known. Drawing nothing, changing nothing."""


@dataclass(frozen=True, eq=False)
class Episode:
    """What happened.

    Attributes:
        pairs: pairs played, in order, shape (moves,).
        rewards: what they paid, shape (moves,).
        end: why it ended.
        policy: the policy it was played with, shape (states,).
        last: the state it ended in; the number of states is the goal.
        diagnostics: what the agent had to say.
    """

    pairs: Int[np.ndarray, "moves"]
    rewards: Float[np.ndarray, "moves"]
    end: End
    policy: Int[np.ndarray, "states"]
    last: int
    diagnostics: Mapping[str, float] = field(default_factory=dict)

    @property
    def reached_goal(self) -> bool:
        """False if the episode was cut short."""
        return self.end == "goal"


def default_cap(model: SSP) -> int:
    """The number of moves after which an episode is given up."""
    return max(LEAST_CAP, MOVES_PER_STATE * model.n_states)


def run_episodes(
    problem: Any, agent: Agent, episodes: int, seed: int | np.random.Generator = 0, cap: int | None = None
) -> list[Episode]:
    """Let an agent play and learn for a number of episodes.

    Args:
        problem: an `SSP`, a Gymnasium environment with numbers for observations and actions, or a `World`; the agent
            is shown no more of it than what it plays.
        agent: see `Agent`; made for the same problem (`bellmanifold.agents.registry.make_agent`).
        episodes: how many.
        seed: fixes the agent's draws, the starts, the transitions and the noise of rewards.
        cap: most moves of an episode; by default ten times the number of states and at least 1,000.
    """
    return list(play_episodes(problem, agent, episodes, seed, cap))


def play_episodes(
    problem: Any, agent: Agent, episodes: int, seed: int | np.random.Generator = 0, cap: int | None = None
) -> Iterator[Episode]:
    """The same, one episode at a time: each is handed over once the agent has learnt from it."""
    world = open_world(problem)
    cap = default_cap(world.model) if cap is None else cap
    if cap < 1:
        raise BadInputError(f"cap is {cap}: an episode needs at least one move")
    rng = np.random.default_rng(seed)
    visited = np.zeros(world.model.n_pairs, dtype=bool)
    for _ in range(episodes):
        episode = _play(world, agent, visited, rng, cap)
        agent.observe(episode.pairs, episode.rewards)
        yield replace(episode, diagnostics=dict(agent.diagnostics)) if isinstance(agent, Diagnosed) else episode


def _play(
    world: World, agent: Agent, visited: Bool[np.ndarray, "pairs"], rng: np.random.Generator, cap: int
) -> Episode:
    """Play one episode; `visited` is kept up to date."""
    policy = agent.policy(rng)
    choose = _chooser(world, agent, policy, rng)
    hopeless = _never if isinstance(agent, Acts) else _loop_detector(world, policy, visited)
    goal = world.model.n_states
    state, end = world.start(rng), None
    pairs: list[int] = []
    rewards: list[float] = []
    while end is None:
        pair = choose(state)
        reward, landing, cut_off = world.step(pair, rng)
        is_new = not visited[pair]
        visited[pair] = True
        pairs.append(pair)
        rewards.append(reward)
        if isinstance(agent, SeesMoves):
            agent.moved(pair, reward, landing, world.playable(landing))
        end = _end(landing == goal, cut_off, len(pairs) >= cap)
        if end is None and hopeless(state, landing, is_new):
            end = "loop"
        state = landing
    return Episode(np.array(pairs, dtype=np.int64), np.array(rewards, dtype=np.float64), end, policy, state)


def _end(at_goal: bool, cut_off: bool, at_cap: bool) -> End | None:
    if at_goal:
        return "goal"
    if cut_off:
        return "cut off"
    return "cap" if at_cap else None


def _chooser(
    world: World, agent: Agent, policy: Int[np.ndarray, "states"], rng: np.random.Generator
) -> Callable[[int], int]:
    """How the next pair is chosen: by the agent move by move, or by its policy."""
    if isinstance(agent, Acts):
        return lambda state: int(agent.act(world.playable(state), rng))
    if world.has_laws:
        return lambda state: int(policy[state])

    def allowed(state: int) -> int:
        pair = int(policy[state])
        if pair not in world.playable(state):
            where, what = world.model.pair_name(pair)
            raise UnsupportedError(
                f"state {quote(where)} does not allow action {quote(what)}, and this agent chooses its policy before "
                "it can know that: use q-learning"
            )
        return pair

    return allowed


def _never(state: int, landing: int, is_new: bool) -> bool:
    return False


def _loop_detector(
    world: World, policy: Int[np.ndarray, "states"], visited: Bool[np.ndarray, "pairs"]
) -> Callable[[int, int, bool], bool]:
    """After a move from a state to another (with a pair that was new or not): can nothing new or good follow?"""
    model = world.model
    if not (world.has_laws and world.may_loop):
        return _never
    if model.is_deterministic:
        seen: set[int] = set()

        def repeats(state: int, landing: int, is_new: bool) -> bool:
            seen.add(state)
            return landing in seen

        return repeats
    hopeful: Bool[np.ndarray, "states"] | None = None

    def trapped(state: int, landing: int, is_new: bool) -> bool:
        nonlocal hopeful
        if hopeful is None or is_new:
            hopeful = reaches_goal(model, policy, ends=~visited[policy])
        return not hopeful[landing]

    return trapped
