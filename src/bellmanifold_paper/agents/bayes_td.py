"""Bayesian temporal-difference agents: `bayes-td`, `bayes-td-max` and `bayes-td-en`, the paper's baselines.

Each plays the greedy policy of a draw from its posterior (`bellmanifold_paper.td`). The first episode plays a draw
from the prior. After that there is one update per episode, even if the episode showed nothing new, because the
bootstrapped values of the next states have changed. The update happens when the next policy is requested.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.agents.agent import Beliefs
from bellmanifold.agents.beliefs import target_of
from bellmanifold.agents.memory import Memory
from bellmanifold.agents.settings import DrawSettings
from bellmanifold.posteriors.target import Target
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.problem.ssp import SSP
from bellmanifold_paper import td
from bellmanifold_paper.agents.settings import EnsembleSettings

MOST_INTEGRALS = 500
"""Most comparisons of three or more Gaussians, which have no closed form, that showing beliefs may take."""


class BayesTD:
    """`bayes-td`; the other two differ only in `update`."""

    def __init__(self, model: SSP, settings: DrawSettings) -> None:
        self.model, self.settings = model, settings
        self.memory = Memory(model)
        self.posterior = td.initial(model, ValuePrior.stated(model, settings.prior_scale, settings.prior_mean))
        self._waiting = False

    def update(self, target: Target, rng: np.random.Generator) -> td.TDPosterior:
        """The posterior after an episode."""
        return td.update_td(self.posterior, target)

    def policy(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The greedy policy of a posterior draw."""
        if self._waiting:
            self.posterior = self.update(target_of(self.memory, self.settings), rng)
            self._waiting = False
        return self.model.greedy(td.draw(self.posterior, rng, 1)[0])

    def observe(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        self.memory.add(pairs, rewards)
        self._waiting = True

    def route_probabilities(self, routes: Sequence[tuple[int, ...]]) -> Float[np.ndarray, "routes"]:
        """The probability that each route is optimal, in closed form."""
        return td.route_probabilities(self.model, self.posterior, routes)

    def beliefs(self) -> Beliefs | None:
        """Beliefs about every pair; None if they would take longer to compute than learning does."""
        integrals = len(self.posterior.weights) * int((np.diff(self.model.pair_start) > 2).sum())
        if integrals > MOST_INTEGRALS:
            return None
        return Beliefs(td.action_probabilities(self.model, self.posterior), self.posterior.q_mean)


class BayesTDMax(BayesTD):
    """`bayes-td-max`."""

    def update(self, target: Target, rng: np.random.Generator) -> td.TDPosterior:
        return td.update_td_max(self.posterior, target)


class BayesTDEnsemble(BayesTD):
    """`bayes-td-en`."""

    settings: EnsembleSettings

    def update(self, target: Target, rng: np.random.Generator) -> td.TDPosterior:
        return td.update_td_en(self.posterior, target, rng, self.settings.members)
