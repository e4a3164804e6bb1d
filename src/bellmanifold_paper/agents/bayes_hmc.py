"""`bayes-br-hmc`: Thompson sampling from the relaxed posterior by Hamiltonian Monte Carlo, as the paper ran it.

Before every episode a chain starts from a prior draw, is tuned and then sampled (`bellmanifold_paper.engines.hmc`); its
last point is played. Step size and preconditioner carry over to the next episode. The first episode plays a prior draw.

A single chain does not keep a processor busy, so the runs of a block are played in lockstep and one program moves all
of their chains. Each chain has its own key, data and tuning, and runs share no information. The first run that asks for
its next policy moves all chains; the others find theirs ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from bellmanifold._util.jax_setup import bound_programs, random_key
from bellmanifold.agents.agent import Beliefs
from bellmanifold.agents.beliefs import target_of
from bellmanifold.agents.memory import Memory
from bellmanifold.posteriors.kernels import Gaussian
from bellmanifold.posteriors.noise import KnownScale
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.problem.ssp import SSP
from bellmanifold_paper.agents.settings import HMCSettings
from bellmanifold_paper.bellman import transitions
from bellmanifold_paper.engines import hmc
from bellmanifold_paper.engines.chains import hmc_episode, starting_points
from bellmanifold_paper.log_posterior import Density, kernel_observations_by_chain
from bellmanifold_paper.parametrisation import tabular
from bellmanifold_paper.priors import NormalPrior

DRAWS = 1000
"""Iterations after warm-up, in every episode."""


class BlockOfChains:
    """The chains of several runs of one problem; `models` holds the problem with each run's order of actions.

    Pairs are numbered as in the first run.
    """

    def __init__(self, models: Sequence[SSP], settings: HMCSettings, seeds: Sequence[int]) -> None:
        self.model, self.settings = models[0], settings
        self.law = transitions(self.model)
        prior = ValuePrior.stated(self.model, settings.prior_scale, settings.prior_mean)
        normal = NormalPrior.of(prior.mean, prior.sd)
        self.density = Density(tabular(self.model), normal, KnownScale(1.0, Gaussian()))
        self.memories = [Memory(self.model) for _ in models]
        bound_programs(self.law, (self.density, len(models)))
        self.keys: Key[Array, "runs"] = jnp.stack([random_key(seed) for seed in seeds])
        self.rounds = 0
        width = settings.noise_sd if settings.noise_sd is not None else settings.epsilon
        self.state = hmc.init(self._prior_draws(), hmc.first_step_size(width, prior.scale))
        self.step_size = np.asarray(self.state.step_size)
        self.points: Float[np.ndarray, "runs draws pairs"] = np.asarray(self.state.position)[:, None]
        self.acceptance = np.full(len(models), np.nan)
        self.window_acceptance: Float[np.ndarray, "runs windows"] = np.full((len(models), 0), np.nan)

    def move(self) -> None:
        """Tune and sample all chains for the next episode; the first episode needs only the prior draws."""
        self.rounds += 1
        if self.rounds == 1:
            return
        tuning = hmc.PAPER if self.settings.tuning == "paper" else hmc.RETUNED
        observations = kernel_observations_by_chain([target_of(memory, self.settings) for memory in self.memories])
        start = self.state._replace(position=self._prior_draws())
        keys = self._keys(2 * self.rounds)
        self.state, points, info = hmc_episode(self.density, tuning, DRAWS, self.law, keys, start, observations)
        self.points, self.step_size = np.asarray(points), np.asarray(self.state.step_size)
        self.acceptance = np.asarray(info.acceptance).mean(axis=1)
        self.window_acceptance = np.asarray(info.window_acceptance)

    def _prior_draws(self) -> Float[Array, "runs pairs"]:
        return starting_points(self.density, self._keys(2 * self.rounds + 1))

    def _keys(self, purpose: int) -> Key[Array, "runs"]:
        return _folded_each(self.keys, jnp.asarray(purpose))


@jax.jit
def _folded_each(keys: Key[Array, "runs"], purpose: Int[Array, ""]) -> Key[Array, "runs"]:
    return jax.vmap(jax.random.fold_in, (0, None))(keys, purpose)


class BayesHMC:
    """The agent of one run: a view of its chain in the block, with its own numbering of pairs.

    Args:
        block: the block its chain belongs to; by default a block of its own, whose seed is drawn when it first plays.
        run: index of its chain in the block.
    """

    def __init__(self, model: SSP, settings: HMCSettings, block: BlockOfChains | None = None, run: int = 0) -> None:
        self.model, self.settings, self.run, self._block = model, settings, run, block
        self.asked = 0
        self._seen: np.ndarray | None = None

    @property
    def block(self) -> BlockOfChains:
        assert self._block is not None, "an agent plays before it learns"
        return self._block

    @cached_property
    def number(self) -> Int[np.ndarray, "pairs"]:
        """Number of each of its pairs in the block."""
        return self.model.numbers_in(self.block.model)

    @property
    def diagnostics(self) -> dict[str, float]:
        """Mean acceptance probability and step size in the last episode."""
        if self._block is None:
            return {}
        found = {"acceptance": self.block.acceptance[self.run], "step_size": self.block.step_size[self.run]}
        return {name: float(value) for name, value in found.items()}

    def policy(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The greedy policy of the chain's last point."""
        if self._block is None:
            self._block = BlockOfChains([self.model], self.settings, [int(rng.integers(2**63))])
        if self.asked == self.block.rounds:
            self.block.move()
        self.asked += 1
        return self.model.greedy(self._view()[0][-1])

    def observe(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        self.block.memories[self.run].add(self.number[pairs], rewards)

    def route_probabilities(self, routes: Sequence[tuple[int, ...]]) -> Float[np.ndarray, "routes"]:
        """The fraction of the chain's points whose greedy policy plays each route."""
        is_best = np.ascontiguousarray(self._view()[1].T)
        played = [np.count_nonzero(np.logical_and.reduce(is_best[list(route)])) for route in routes]
        return np.array(played) / is_best.shape[1]

    def beliefs(self) -> Beliefs:
        """The fraction of the chain's points in which each pair is the best of its state, and its mean value."""
        points, is_best = self._view()
        return Beliefs(is_best.mean(axis=0), points.mean(axis=0))

    def _view(self) -> tuple[Float[np.ndarray, "draws pairs"], Bool[np.ndarray, "draws pairs"]]:
        """The chain's points, and which pairs are best at each; cached until the chains move again."""
        if self._seen is not self.block.points:
            points = self.block.points[self.run][:, self.number]
            self._seen, self._kept = self.block.points, (points, self.model.is_best(points))
        return self._kept


def block_of_agents(models: Sequence[SSP], settings: HMCSettings, seeds: Sequence[int]) -> list[BayesHMC]:
    """The agents of several runs, which must be played in lockstep; see `BlockOfChains`."""
    block = BlockOfChains(models, settings, seeds)
    return [BayesHMC(model, settings, block, run) for run, model in enumerate(models)]
