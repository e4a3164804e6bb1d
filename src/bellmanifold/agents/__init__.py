"""Agents: whatever chooses what to play and learns from what happened."""

from bellmanifold.agents.episodes import (
    Acts,
    Agent,
    Beliefs,
    Believes,
    Diagnosed,
    Episode,
    SeesMoves,
    ShowsBeliefs,
    run_episodes,
)

__all__ = ["Acts", "Agent", "Beliefs", "Believes", "Diagnosed", "Episode", "SeesMoves", "ShowsBeliefs", "run_episodes"]
