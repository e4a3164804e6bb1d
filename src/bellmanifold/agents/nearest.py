"""`nearest`: always take the shortest way to an unseen pair; a baseline that needs counts but no posterior.

While a pair that was never played can be reached, the agent takes the shortest way to one, whatever it costs
(`bellmanifold.agents.frontier`); afterwards it plays the best way to the goal under the observed mean rewards. It never
weighs the value of information against its cost, so comparing with it shows what a posterior adds.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.agents.frontier import frontier_or_home, unseen
from bellmanifold.agents.memory import Memory
from bellmanifold.agents.planning import way_home
from bellmanifold.agents.settings import PlanSettings
from bellmanifold.problem.ssp import SSP


class Nearest:
    """Explores until nothing new can be reached, then plays the best it knows."""

    def __init__(self, model: SSP, settings: PlanSettings) -> None:
        self.model, self.settings = model, settings
        self.memory = Memory(model)
        self.diagnostics: dict[str, float] = {}
        self._home = model.pair_start[:-1]

    def policy(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The shortest way to the frontier if some start can reach it, with the way home elsewhere; or the way home."""
        knowledge = unseen(self.memory)
        home = way_home(self.model, knowledge.known, self.memory.mean_reward)
        self._home = np.where(home < 0, self.model.pair_start[:-1], home)
        explores = bool(np.isfinite(knowledge.way.moves[self.model.initial > 0]).any())
        self.diagnostics = {"explores": float(explores)}
        return knowledge.towards_frontier(self._home, rng) if explores else self._home

    def look(self, state: int, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The way to the frontier if this state can reach any; the way home is recomputed only if it cannot."""
        return frontier_or_home(self.memory, state, self._home, rng)

    def observe(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        self.memory.add(pairs, rewards)
