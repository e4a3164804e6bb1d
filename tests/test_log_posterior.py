"""The log posterior for chains: observations laid out by visits, and the density by SciPy's."""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import random_problem
from scipy import stats

from bellmanifold import envs
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError
from bellmanifold.posteriors.kernels import Gaussian, Laplace
from bellmanifold.posteriors.noise import InferredScale
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.problem.dataset import Dataset
from bellmanifold_paper.bellman import residuals, transitions
from bellmanifold_paper.log_posterior import (
    Density,
    Observations,
    check_density,
    for_chains,
    kernel_observations,
    log_posterior,
    noisy_observations,
    starting_point,
)
from bellmanifold_paper.parametrisation import Parametrisation, tabular
from bellmanifold_paper.priors import NormalPrior

MODEL = envs.deep_sea(2)
"""Three states of two pairs each."""


def test_tables_give_the_gradients_that_jax_gives(rng):
    """With tables and without, one point and several along the last axis, ties included: the same to rounding."""
    for model in (MODEL, envs.deep_sea(3, slip=0.2), envs.swirl(3), random_problem(rng, states=6)):
        law = transitions(model)
        assert law.tables is not None
        plain = replace(law, tables=None, actions=0)
        q = rng.normal(size=(model.n_pairs, 4)).round(1)
        q[:, 0] = q[0, 0]  # all tie
        weight = jnp.asarray(rng.normal(size=model.n_pairs))
        found = [
            jax.jit(jax.vmap(jax.value_and_grad(partial(weighted, kind, weight)), -1, -1))(q) for kind in (law, plain)
        ]
        np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-12, atol=1e-12)
        together = jax.jit(jax.grad(partial(weighted, law, weight)))(jnp.asarray(q))
        np.testing.assert_allclose(together, found[1][1], rtol=1e-12, atol=1e-12)


def weighted(law, weight, q):
    return jnp.sum(weight @ residuals(law, q))


def test_a_state_that_all_pairs_lead_to_has_no_tables():
    hub = {(str(k), a): Move(-1.0, {"0": 1.0}) for k in range(1, 60) for a in "lr"}
    model = from_moves("hub", {("0", "go"): Move(0.0, {"goal": 1.0})} | hub, start="1")
    law = transitions(model)
    assert law.tables is None
    assert law.actions == 0
    np.testing.assert_allclose(residuals(law, jnp.ones(model.n_pairs))[1:], 0.0)


def test_density_by_hand(rng):
    """Laplace noise of scale width_i e^psi, psi ~ N(-1, 1), every visit counted; q = 2 theta, theta ~ N(0, 3^2)."""

    @dataclass(frozen=True)
    class Noise:
        dimension: int = 1

        def log_prior(self, psi):
            return Gaussian().log_density(psi[0] + 1.0)

        def scale(self, psi):
            return jnp.exp(psi[0])

        def log_density(self, pair, w):
            return Laplace().log_density(w)

    model = random_problem(rng, states=3)
    pair, reward = rng.integers(0, model.n_pairs, 9), rng.normal(size=9)
    width = rng.uniform(0.5, 2.0, model.n_pairs)
    observations = noisy_observations(Dataset(model, pair, reward))
    observations = Observations(observations.reward, observations.seen, jnp.asarray(width))
    density = Density(Parametrisation(model.n_pairs, lambda theta: 2.0 * theta), NormalPrior(3.0), Noise())
    position = rng.normal(size=model.n_pairs + 1)
    theta, psi = position[:-1], position[-1]
    g = 2.0 * theta - (model.backup(model.best(2.0 * theta)) - model.reward)
    expected = stats.norm.logpdf(theta, scale=3.0).sum() + stats.norm.logpdf(psi, loc=-1.0)
    expected += stats.laplace.logpdf(reward, loc=g[pair], scale=width[pair] * np.exp(psi)).sum()
    found = jax.jit(lambda x: log_posterior(density, transitions(model), x, observations))(jnp.asarray(position))
    assert float(found) == pytest.approx(expected, rel=1e-12)
    assert density.dimension == model.n_pairs + 1


def test_priors_of_each_parameter(rng):
    """Their log density, and 400 standardised draws: means and sds at 5 standard errors (false alarms 1e-5)."""
    prior = NormalPrior((0.5, 2.0, 3.0), (1.0, -1.0, 0.0))
    theta = rng.normal(size=3)
    expected = stats.norm.logpdf(theta, [1.0, -1.0, 0.0], [0.5, 2.0, 3.0]).sum()
    assert float(prior.log_density(jnp.asarray(theta))) == pytest.approx(expected)
    drawn = jax.vmap(lambda key: prior.draw(key, 3))(jax.random.split(jax.random.key(1), 400))
    standard = (np.asarray(drawn) - prior.mean) / np.asarray(prior.scale)
    assert np.all(np.abs(standard.mean(axis=0)) < 5 / np.sqrt(400))
    assert np.all(np.abs(standard.std(axis=0) - 1) < 5 / np.sqrt(800))


def test_every_visit_has_a_column_and_columns_are_a_power_of_two():
    for visits, columns in ((0, 1), (1, 1), (2, 2), (3, 4), (4, 4), (5, 8)):
        pair = np.array([1, 4] + [2] * visits)[: 2 + visits] if visits else np.zeros(0, dtype=np.int64)
        reward = np.arange(len(pair), dtype=np.float64)
        observations = noisy_observations(Dataset(MODEL, pair, reward))
        told, seen = np.asarray(observations.reward), np.asarray(observations.seen)
        assert told.shape == (6, columns)
        for i in range(6):
            assert told[i][seen[i]].tolist() == reward[pair == i].tolist()
            assert (told[i][~seen[i]] == 0).all()
    copies = for_chains(observations, 3)
    assert copies.reward.shape == (3, 6, 8)
    assert (np.asarray(copies.seen) == seen).all()
    relaxed = kernel_observations(relaxed_target(Dataset.from_pairs(MODEL, [("0,0", "right")]), 0.5, 2.0))
    assert relaxed.width.tolist() == [1.0, 0.5, 1.0, 1.0, 1.0, 1.0]
    assert np.asarray(relaxed.seen)[:, 0].tolist() == [False, True, False, False, False, False]


@dataclass(frozen=True)
class Shaped:
    """Noise with a scale of some shape."""

    shape: tuple
    dimension: int = 0

    def log_prior(self, psi):
        return jnp.zeros(())

    def scale(self, psi):
        return jnp.ones(self.shape)

    def log_density(self, pair, w):
        return Gaussian().log_density(w)


def test_densities_are_looked_at_before_they_are_walked():
    observations, law = noisy_observations(Dataset.complete(MODEL)), transitions(MODEL)

    def one_steep(theta):
        return theta.at[0].add(jnp.sqrt(theta[0] - jax.lax.stop_gradient(theta[0])))

    def looked_at(values, noise):
        density = Density(Parametrisation(6, values), NormalPrior(2.0), noise)
        check_density(density, law, observations)

    for shape in ((), (6,)):
        looked_at(lambda theta: theta, Shaped(shape))
    with pytest.raises(BadInputError, match=r"the noise scale has shape \(5,\)"):
        looked_at(lambda theta: theta, Shaped((5,)))
    with pytest.raises(BadInputError, match="not finite at a draw"):
        looked_at(lambda theta: theta * jnp.nan, Shaped(()))
    with pytest.raises(BadInputError, match="not finite at a draw"):
        looked_at(one_steep, Shaped(()))
    start = starting_point(Density(tabular(MODEL), NormalPrior(1e6), InferredScale()), jax.random.key(0))
    assert start.shape == (7,)
    assert (np.abs(start[:6]) > 1e3).all()
    assert abs(float(start[6])) < 10
