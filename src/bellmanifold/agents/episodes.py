"""Playing episodes: the loop of Algorithm 1 around any agent.

Before each episode the agent names a policy. It is played from a random start until the goal is reached, until it can
be seen that it never will be (a deterministic problem that repeats a state), or until a cap on the number of moves.
Then the agent is shown the pairs it played and what they paid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.ssp import SSP

LEAST_CAP = 1000


@runtime_checkable
class Agent(Protocol):
    """What the loop asks of an agent."""

    def policy(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The pair each state plays in the next episode."""

    def observe(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        """Learn from an episode: the pairs played, in order, and what they paid."""


@dataclass(frozen=True, eq=False)
class Episode:
    """What happened.

    Attributes:
        pairs: pairs played, in order, shape (moves,).
        rewards: what they paid, shape (moves,).
        reached_goal: False if the episode was cut short.
    """

    pairs: Int[np.ndarray, "moves"]
    rewards: Float[np.ndarray, "moves"]
    reached_goal: bool


def run_episodes(model: SSP, agent: Agent, episodes: int, seed: int = 0) -> list[Episode]:
    """Let an agent play and learn for a number of episodes.

    Args:
        model: the problem; the agent is shown no more of it than what it plays.
        agent: see `Agent`.
        episodes: how many.
        seed: fixes the agent's draws, the starts, the transitions and the noise of rewards.
    """
    rng = np.random.default_rng(seed)
    played = []
    for _ in range(episodes):
        episode = play(model, agent.policy(rng), rng)
        agent.observe(episode.pairs, episode.rewards)
        played.append(episode)
    return played


def play(model: SSP, policy: Int[np.ndarray, "states"], rng: np.random.Generator) -> Episode:
    """Play one policy once."""
    state = int(rng.choice(model.n_states, p=model.initial / model.initial.sum()))
    cap = max(LEAST_CAP, 10 * model.n_states)
    visited: set[int] = set()
    pairs: list[int] = []
    rewards: list[float] = []
    while state < model.n_states and len(pairs) < cap and not (model.is_deterministic and state in visited):
        visited.add(state)
        pair = int(policy[state])
        own = slice(model.next_start[pair], model.next_start[pair + 1])
        law = model.next_prob[own]
        pairs.append(pair)
        rewards.append(float(model.reward[pair] + model.reward_sd[pair] * rng.standard_normal()))
        state = int(rng.choice(model.next_state[own], p=law / law.sum()))
    return Episode(np.array(pairs, dtype=np.int64), np.array(rewards, dtype=np.float64), state == model.n_states)
