"""Chains on the parameters themselves: HMC tuned as in the paper, and NUTS.

They take any differentiable posterior of `bellmanifold_paper.log_posterior`: any Q_theta, prior, kernel and noise.
Unlike the chart they struggle with small tolerances: at epsilon = 0.01 the posterior is a thin crooked sheet along
which chains creep, as R-hat and effective sample size (ArviZ) show.

Chains are independent, so the spread between them gives the standard errors of a `Summary`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from bellmanifold._util.extras import require_extra
from bellmanifold._util.jax_setup import bound_programs, random_key
from bellmanifold._util.progress import advance
from bellmanifold_paper.bellman import Transitions
from bellmanifold_paper.engines import hmc
from bellmanifold_paper.log_posterior import Density, Observations, for_chains, log_posterior, starting_point

Keys = Key[Array, "chains"]
Positions = Float[Array, "chains dimension"]
Points = Float[Array, "chains draws dimension"]
Sampler = Literal["hmc", "nuts"]
WARM_UP = 1000
"""Number of adaptation steps of NUTS, and of points in HMC's first episode."""


@partial(jax.jit, static_argnames=("density", "tuning", "draws"))
def hmc_episode(
    density: Density,
    tuning: hmc.Tuning,
    draws: int,
    law: Transitions,
    key: Keys,
    state: hmc.State,
    observations: Observations,
) -> tuple[hmc.State, Points, hmc.Info]:
    """One episode of `bellmanifold_paper.engines.hmc.episode` for many chains, each with its own key and observations.

    The observations has chains along its leading axis (see `for_chains`). Growing data need no recompilation.
    """
    return hmc.episode(key, state, lambda x, own: log_posterior(density, law, x, own), observations, draws, tuning)


@partial(jax.jit, static_argnames=("density",))
def starting_points(density: Density, key: Keys) -> Positions:
    """Starting points of chains, one for each key."""
    return jax.vmap(lambda one: starting_point(density, one))(key)


@partial(jax.jit, static_argnames=("density", "steps"))
def nuts_adapt(
    density: Density, steps: int, law: Transitions, key: Keys, position: Positions, observations: Observations
) -> hmc.State:
    """Tune NUTS chains, each with its own key and observations."""
    from bellmanifold_paper.engines import nuts

    return nuts.adapt(key, position, lambda x, own: log_posterior(density, law, x, own), observations, steps)


@partial(jax.jit, static_argnames=("density", "draws"))
def nuts_walk(
    density: Density, draws: int, law: Transitions, key: Keys, state: hmc.State, observations: Observations
) -> tuple[hmc.State, Array, Array, Array]:
    """Run tuned NUTS chains, each with its own key and observations."""
    from bellmanifold_paper.engines import nuts

    return nuts.walk(key, state, lambda x, own: log_posterior(density, law, x, own), observations, draws)


class _Round(NamedTuple):
    """Points of one walk, with the acceptance probability and divergence of each."""

    points: Float[np.ndarray, "chains draws dimension"]
    acceptance: Float[np.ndarray, "chains draws"]
    is_divergent: Bool[np.ndarray, "chains draws"]


@dataclass(eq=False)
class Chains:
    """Chains that can be continued as long as needed; they are tuned before the first recorded point.

    HMC is tuned by two of the paper's episodes on the same data: the first, whose points are dropped, has no
    preconditioner, the second has one. Later walks keep step size and preconditioner. NUTS adapts for `WARM_UP` steps.

    Attributes:
        sampler: "hmc" or "nuts".
        density, law, observations: the posterior.
        chains: number of chains.
        seed: random seed; determines every point.
        step_size: initial step size of HMC.
        rounds: results of the walks so far.
    """

    sampler: Sampler
    density: Density
    law: Transitions
    observations: Observations
    chains: int
    seed: int
    step_size: float
    rounds: list[_Round] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.sampler == "nuts":
            require_extra("gradient", "nuts")
        bound_programs((self.law, self.observations), (self.density, self.chains, self.sampler))
        self.observations = for_chains(self.observations, self.chains)
        keys, start = self._keys(1), starting_points(self.density, self._keys(0))
        self.state: hmc.State
        if self.sampler == "hmc":
            fresh = hmc.init(start, self.step_size)
            self.state, _, _ = hmc_episode(self.density, hmc.PAPER, WARM_UP, self.law, keys, fresh, self.observations)
        else:
            self.state = nuts_adapt(self.density, WARM_UP, self.law, keys, start, self.observations)
        advance("steps", WARM_UP)

    def walk(self, draws: int) -> None:
        """Record this many more points of each chain."""
        key = self._keys(2 + len(self.rounds))
        if self.sampler == "hmc":
            tuning = hmc.Tuning(windows=0) if self.rounds else hmc.PAPER
            metric = self.state.variance
            after, points, info = hmc_episode(self.density, tuning, draws, self.law, key, self.state, self.observations)
            self.state = after._replace(variance=metric)
            found = (points, info.acceptance, info.is_divergent)
        else:
            self.state, *found = nuts_walk(self.density, draws, self.law, key, self.state, self.observations)
        self.rounds.append(_Round(*map(np.asarray, found)))
        advance("steps", draws)

    @property
    def points(self) -> Float[np.ndarray, "chains draws dimension"]:
        """All points recorded so far."""
        return np.concatenate([done.points for done in self.rounds], axis=1)

    @property
    def acceptance(self) -> Float[np.ndarray, "chains draws"]:
        """Acceptance probabilities of the recorded moves."""
        return np.concatenate([done.acceptance for done in self.rounds], axis=1)

    @property
    def is_divergent(self) -> Bool[np.ndarray, "chains draws"]:
        """Which recorded moves diverged."""
        return np.concatenate([done.is_divergent for done in self.rounds], axis=1)

    def _keys(self, purpose: int) -> Keys:
        return jax.random.split(jax.random.fold_in(random_key(self.seed), purpose), self.chains)
