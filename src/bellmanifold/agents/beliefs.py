"""What visits make an agent believe, under the likelihood it was told to use."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from bellmanifold.agents.memory import Memory
from bellmanifold.laws import Gaussian
from bellmanifold.posteriors.target import Target, noisy_target, relaxed_to


@runtime_checkable
class Likelihood(Protocol):
    """The settings that agents with a posterior over action values share."""

    @property
    def prior_scale(self) -> float:
        """Standard deviation of the prior of every action value."""

    @property
    def epsilon(self) -> float:
        """Tolerance; 0 is the exact posterior."""

    @property
    def noise_sd(self) -> float | None:
        """Known standard deviation of the rewards' noise; if given, it replaces the tolerance."""


def believed(memory: Memory, likelihood: Likelihood) -> Target:
    """The posterior of what was visited: every repeat counts with noise, mean rewards are taken as exact without."""
    if likelihood.noise_sd is not None:
        return noisy_target(memory, likelihood.noise_sd, likelihood.prior_scale, Gaussian())
    return relaxed_to(memory, memory.mean_reward.copy(), likelihood.epsilon, likelihood.prior_scale)
