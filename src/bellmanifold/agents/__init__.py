"""Agents: whatever chooses a policy before an episode and learns from what happened in it."""

from bellmanifold.agents.episodes import Agent, Episode, run_episodes

__all__ = ["Agent", "Episode", "run_episodes"]
