"""The shortest way to what was not seen, and no posterior: what counting alone can do.

While a pair that was never played can be reached, the agent goes the shortest way to one (`bellmanifold.agents.news`),
whatever that costs; afterwards it plays the best way home by the mean rewards it saw. It never weighs what it might
find against what looking costs: the comparison shows what a posterior adds.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.agents.memory import Memory
from bellmanifold.agents.news import news_or_home, unseen
from bellmanifold.agents.planning import way_home
from bellmanifold.agents.settings import PlanSettings
from bellmanifold.ssp import SSP


class Nearest:
    """Explores until nothing new can be reached, then plays the best it knows."""

    def __init__(self, model: SSP, settings: PlanSettings) -> None:
        self.model, self.settings = model, settings
        self.memory = Memory(model)
        self.diagnostics: dict[str, float] = {}
        self._home = model.pair_start[:-1]

    def policy(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """Towards news from wherever an episode may start, else home; home, too, from where a look finds no news."""
        knowledge = unseen(self.memory)
        home = way_home(self.model, knowledge.known, self.memory.mean_reward)
        self._home = np.where(home < 0, self.model.pair_start[:-1], home)
        explores = bool(np.isfinite(knowledge.way.moves[self.model.initial > 0]).any())
        self.diagnostics = {"explores": float(explores)}
        return knowledge.towards_news(self._home, rng) if explores else self._home

    def look(self, state: int, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """Towards news from here, while there is any; the way home is found anew only when there is none."""
        return news_or_home(self.memory, state, self._home, rng)

    def observe(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        self.memory.add(pairs, rewards)
