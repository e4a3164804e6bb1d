"""Bayesian temporal differences as agents: `bayes-td`, `bayes-td-max` and `bayes-td-en`, the paper's comparisons.

Each plays the greedy policy of a draw from its posterior (`bellmanifold.posteriors.td`). The first episode plays a draw
from the prior; then there is one update an episode, also when the episode showed nothing new, because the guess about
what comes next has changed. The update is made when the next policy is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.agents.beliefs import believed
from bellmanifold.agents.episodes import Beliefs
from bellmanifold.agents.memory import Memory
from bellmanifold.agents.planning import most_promising
from bellmanifold.posteriors import td
from bellmanifold.posteriors.target import Target
from bellmanifold.ssp import SSP

MOST_INTEGRALS = 500
"""Comparisons of more than two Gaussians that showing a belief may cost: there is no closed form for them."""
Update = Callable[[td.TDPosterior, Target, np.random.Generator], td.TDPosterior]


@dataclass(frozen=True)
class Settings:
    """How a TD agent believes.

    Attributes:
        prior_scale: sd of the prior of every action value.
        epsilon: sd of a target around its pair's value.
        noise_sd: sd of the rewards' noise; if given, it replaces epsilon by noise_sd / sqrt(visits of the pair).
        optimism: play the most promising of this many draws; 1 is the paper.
    """

    prior_scale: float = 10.0
    epsilon: float = 0.01
    noise_sd: float | None = None
    optimism: int = 1


class BayesTD:
    """A Bayesian TD agent; the three kinds differ in `update`."""

    def __init__(self, model: SSP, update: Update, settings: Settings) -> None:
        self.model, self.settings, self._update = model, settings, update
        self.memory = Memory(model)
        self.posterior = td.initial(model, settings.prior_scale)
        self._waiting = False

    def policy(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The greedy policy of a posterior draw."""
        if self._waiting:
            self.posterior = self._update(self.posterior, believed(self.memory, self.settings), rng)
            self._waiting = False
        return self.model.greedy(most_promising(self.model, td.draw(self.posterior, rng, self.settings.optimism)))

    def observe(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        """Remember the visits."""
        self.memory.add(pairs, rewards)
        self._waiting = True

    def route_probabilities(self, routes: Sequence[tuple[int, ...]]) -> Float[np.ndarray, "routes"]:
        """The probability that each route is optimal, in closed form."""
        return td.route_probabilities(self.model, self.posterior, routes)

    def beliefs(self) -> Beliefs | None:
        """What is believed about every pair; None if that would take longer than learning does."""
        integrals = len(self.posterior.weights) * int((np.diff(self.model.pair_start) > 2).sum())
        if integrals > MOST_INTEGRALS:
            return None
        return Beliefs(td.action_probabilities(self.model, self.posterior), self.posterior.q_mean)


def plain(previous: td.TDPosterior, target: Target, rng: np.random.Generator) -> td.TDPosterior:
    """The update of `bayes-td`."""
    return td.update_td(previous, target)


def maximal(previous: td.TDPosterior, target: Target, rng: np.random.Generator) -> td.TDPosterior:
    """The update of `bayes-td-max`."""
    return td.update_td_max(previous, target)


def ensemble(members: int) -> Update:
    """The update of `bayes-td-en` with this many samples."""
    return lambda previous, target, rng: td.update_td_en(previous, target, rng, members)
