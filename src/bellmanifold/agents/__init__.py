"""Agents: whatever chooses what to play and learns from what happened."""

from bellmanifold.agents.episodes import Acts, Agent, Believes, Diagnosed, Episode, SeesMoves, run_episodes

__all__ = ["Acts", "Agent", "Believes", "Diagnosed", "Episode", "SeesMoves", "run_episodes"]
