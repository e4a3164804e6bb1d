"""Agents: objects that choose policies or moves and learn from the outcomes."""

from bellmanifold.agents.agent import Acts, Agent, Beliefs, Believes, Diagnosed, SeesMoves, ShowsBeliefs

__all__ = ["Acts", "Agent", "Beliefs", "Believes", "Diagnosed", "SeesMoves", "ShowsBeliefs"]
