"""Agents: objects that choose policies or moves and learn from the outcomes."""

from bellmanifold.agents.agent import Acts, Agent, Beliefs, Believes, Diagnosed, SeesMoves, ShowsBeliefs
from bellmanifold.learning.episodes import Episode, run_episodes

__all__ = ["Acts", "Agent", "Beliefs", "Believes", "Diagnosed", "Episode", "SeesMoves", "ShowsBeliefs", "run_episodes"]
