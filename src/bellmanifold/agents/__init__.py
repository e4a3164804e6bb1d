"""Agents: whatever chooses what to play and learns from what happened."""

from bellmanifold.agents.episodes import Acts, Agent, Diagnosed, Episode, SeesMoves, run_episodes

__all__ = ["Acts", "Agent", "Diagnosed", "Episode", "SeesMoves", "run_episodes"]
