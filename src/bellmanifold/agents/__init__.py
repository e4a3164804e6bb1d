"""Agents: whatever chooses what to play and learns from what happened."""

from bellmanifold.agents.agent import Acts, Agent, Beliefs, Believes, Diagnosed, SeesMoves, ShowsBeliefs
from bellmanifold.agents.episodes import Episode, run_episodes

__all__ = ["Acts", "Agent", "Beliefs", "Believes", "Diagnosed", "Episode", "SeesMoves", "ShowsBeliefs", "run_episodes"]
