"""`wanderer`: plays a random policy, or repeats the last one, and counts how often each pair was played."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bellmanifold.agents.registry import AgentKind
from bellmanifold.agents.settings import share


@dataclass(frozen=True)
class WandererSettings:
    """Probability of repeating the last policy."""

    patience: float = share(0.0)


class Wanderer:
    """The agent: bellmanifold asks for a `policy` before each episode and shows what was played in `observe`."""

    def __init__(self, model, settings):
        self.settings, self.pair_start, self.last = settings, model.pair_start, None
        self.count = np.zeros(model.n_pairs, dtype=int)

    def policy(self, rng):
        if self.last is None or rng.random() >= self.settings.patience:
            self.last = rng.integers(self.pair_start[:-1], self.pair_start[1:])
        return self.last

    def observe(self, pairs, rewards):
        np.add.at(self.count, pairs, 1)


KIND = AgentKind("wanderer", "plays at random", WandererSettings, Wanderer, needs_laws=False)
