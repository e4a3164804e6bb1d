"""Learning: an agent plays episodes in an environment; runs are measured, kept in files and summarised."""

from bellmanifold.learning.episodes import Episode, run_episodes

__all__ = ["Episode", "run_episodes"]
