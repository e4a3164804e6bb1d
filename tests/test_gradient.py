"""Answers from chains on the action values: what is asked of them and what is made of their points."""

import json
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bellmanifold import envs
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.convergence import convergence_of, have_mixed
from bellmanifold.posteriors.kernels import Gaussian, Laplace, StudentT, Uniform
from bellmanifold.posteriors.noise import HalfNormal, InferredScale, KnownScale
from bellmanifold.posteriors.noise_scale import ScaleTable
from bellmanifold.posteriors.question import every_visit_target
from bellmanifold.posteriors.target import ValuePrior, noisy_target, relaxed_target
from bellmanifold.problem.dataset import Dataset
from bellmanifold_paper.bellman import transitions
from bellmanifold_paper.engines import chains as module
from bellmanifold_paper.engines import gradient, hmc
from bellmanifold_paper.engines.chains import Chains
from bellmanifold_paper.engines.gradient import (
    Relaxed,
    TabulatedScale,
    by_gradient,
    policy_table,
    sample_chains,
)
from bellmanifold_paper.log_posterior import Density, kernel_observations, noisy_observations
from bellmanifold_paper.parametrisation import Parametrisation, tabular
from bellmanifold_paper.priors import NormalPrior

MODEL = envs.deep_sea(2)
"""Three states of two pairs each."""
TABLE = ScaleTable(np.array([-2.0, 0.0, 2.0]), np.log([0.1, 0.5, 4.0]), 0.0)


FEW = Budget(samples=4)
DENSITY = Density(tabular(MODEL), NormalPrior(), KnownScale(1.0))


class ToldChains(Chains):
    """Chains whose points are normal numbers, three times as wide for the first pair."""

    made: ClassVar[list] = []

    def __post_init__(self):
        self.made.append(self)

    def walk(self, draws):
        rng = np.random.default_rng(len(self.rounds))
        shape = (self.chains, draws, self.density.dimension)
        points = rng.normal(size=shape) * np.where(np.arange(shape[2]) == 0, 3.0, 1.0)
        divergent = rng.random(shape[:2]) < 0.1
        self.rounds.append(module._Round(points, rng.random(shape[:2]), divergent))


@pytest.fixture
def told(monkeypatch):
    ToldChains.made.clear()
    monkeypatch.setattr(gradient, "Chains", ToldChains)
    return ToldChains.made


def complete(epsilon=0.5, kernel="gaussian"):
    return relaxed_target(Dataset.complete(MODEL), epsilon, 2.0, kernel)


# How many chains and points


def test_each_chain_gets_its_share_of_the_points_and_no_fewer_than_four():
    assert [gradient._each(samples, 64) for samples in (1, 256, 257, 640, 641)] == [4, 4, 5, 10, 11]


@pytest.mark.parametrize(("numbers", "chains"), [(2**25, 64), (1000 * 6 * 5 + 5999, 5), (1000 * 6 * 4, 4)])
def test_as_many_chains_as_may_be_kept(told, numbers, chains):
    result = by_gradient(complete(), "nuts", Budget(samples=20, seed=7, kept=numbers))
    assert told[0].chains == chains
    assert told[0].seed == 7
    assert result.diagnostics["steps"] == max(4, -(-20 // chains))


def test_too_many_values_or_points_are_refused(told):
    room = 1000 * 6 * 4
    assert by_gradient(complete(), "hmc", Budget(samples=4000, kept=room)).diagnostics["steps"] == 1000
    with pytest.raises(BadInputError, match="samples is 4001: too many points of 6 numbers to fit in memory"):
        by_gradient(complete(), "hmc", Budget(samples=4001, kept=room))
    with pytest.raises(UnsupportedError, match="6 action values are too many for hmc"):
        by_gradient(complete(), "hmc", Budget(samples=4, kept=room - 1))


class UnevenChains(ToldChains):
    """64 chains that disagree on the first state by so much after each round."""

    def __init__(self, gaps):
        super().__init__("hmc", DENSITY, transitions(MODEL), kernel_observations(complete()), 64, 0, 0.1)
        self.gaps = gaps

    @property
    def points(self):
        """Half of the chains prefer its first pair at more of their steps, half at fewer."""
        points = super().points.copy()
        share = 0.5 + self.gaps[len(self.rounds) - 1] * np.where(np.arange(64) < 32, 1, -1)
        first = np.arange(points.shape[1]) < share[:, None] * points.shape[1]
        points[:, :, :2] = np.abs(points[:, :, :2]) * np.where(first[..., None], [1, -1], [-1, 1])
        points[:, :, 2:] = np.tile([0.0, 1.0], 2)
        return points


@pytest.mark.parametrize(
    ("gaps", "numbers", "rounds", "stopped"),
    [
        ([0.008], 2**25, 1, False),
        ([0.4, 0.4, 0.008], 2**25, 3, False),
        ([0.4] * 4, 2**25, 4, True),
        ([0.4] * 2, 2 * 1000 * 64 * 6, 2, True),
        ([0.4], 2 * 1000 * 64 * 6 - 1, 1, True),
    ],
)
def test_chains_walk_until_errors_are_small_or_there_is_no_more_room(gaps, numbers, rounds, stopped):
    """At most four rounds of HMC, and no more than may be kept; an error of exactly the accuracy is small enough."""
    good = UnevenChains([0.008])
    good.walk(1000)
    accuracy = gradient._largest_error(complete(), good.points)
    assert accuracy == pytest.approx(1e-3, rel=0.02)
    chains = UnevenChains(gaps)
    found = gradient._walk(complete(), chains, Budget(accuracy=accuracy, kept=numbers), "asked for")
    assert len(chains.rounds) == rounds
    expected = f"stopped after {rounds * 64000} points, largest standard error 0.05"
    assert found.stopped == (expected if stopped else "")


def test_the_largest_error_is_that_of_an_action_of_a_coupled_state(rng):
    target = relaxed_target(Dataset.from_pairs(MODEL, [("1,0", "left")]), 0.5, 2.0)
    assert target.coupled.tolist() == [False, True, False]
    points = rng.normal(size=(5, 40, 7))
    share = (points[:, :, 2] > points[:, :, 3]).mean(axis=1)
    assert gradient._largest_error(target, points) == pytest.approx(share.std(ddof=1) / np.sqrt(5))


# Likelihoods


def test_what_chains_cannot_follow_is_refused():
    with pytest.raises(UnsupportedError, match="epsilon is 0"):
        by_gradient(complete(0.0), "nuts", FEW)
    with pytest.raises(UnsupportedError, match="a uniform kernel has no gradient"):
        by_gradient(complete(kernel="uniform"), "nuts", FEW)


def test_the_noise_of_a_target(told):
    by_gradient(complete(), "nuts", FEW)
    assert told[0].density.noise == KnownScale(1.0, Gaussian())
    inferred = noisy_target(Dataset.complete(MODEL), HalfNormal(), 2.0, Laplace())
    by_gradient(inferred, "nuts", FEW)
    assert told[1].density.noise == TabulatedScale(inferred.noise_scale, Laplace())
    assert told[1].density.dimension == 7
    known = every_visit_target(Dataset.complete(MODEL), 0.3, 2.0, StudentT(4.0))
    by_gradient(known, "nuts", FEW)
    assert told[2].density.noise == KnownScale(0.3, StudentT(4.0))
    assert told[2].density.prior == NormalPrior(2.0)
    assert told[2].observations.width.tolist() == [1.0] * 6


def test_a_tabulated_scale_maps_normals_to_scales():
    """Linear in logs between the knots; psi is standard normal."""
    noise = TabulatedScale(TABLE, Laplace())
    assert noise.dimension == 1
    for psi, eta in ((-2.0, 0.1), (0.0, 0.5), (-1.0, np.sqrt(0.05)), (1.0, np.sqrt(2.0))):
        assert float(noise.scale(jnp.array([psi]))) == pytest.approx(eta)
        assert float(noise.log_prior(jnp.array([psi]))) == pytest.approx(stats.norm.logpdf(psi))
    w = jnp.array([0.3, -2.0])
    np.testing.assert_allclose(noise.log_density(jnp.array([0, 1]), w), stats.laplace.logpdf(w))


def test_noise_whose_repeats_have_no_mean(told):
    data = Dataset.complete(MODEL)
    by_gradient(every_visit_target(data, HalfNormal(0.3), 2.0, Gaussian()), "nuts", FEW)
    assert told[0].density.noise == InferredScale(HalfNormal(0.3), Gaussian())
    by_gradient(every_visit_target(data, 2, 2.0, Gaussian()), "nuts", FEW)
    assert told[1].density.noise == KnownScale(2.0, Gaussian())
    with pytest.raises(UnsupportedError, match="a prior of your own"):
        every_visit_target(data, lambda eta: -eta, 2.0, Gaussian())


def test_the_first_step_is_the_papers_for_the_typical_width():
    """The median width of pairs that were seen, times the scale at psi = 0; the prior's where nothing was."""
    data = Dataset(MODEL, np.array([0, 1, 1, 1, 1, 2]), np.zeros(6))
    target = noisy_target(data, 0.4, 2.0, Gaussian())
    evidence = kernel_observations(target)
    for noise, width in ((KnownScale(1.0), 0.4), (TabulatedScale(TABLE, Gaussian()), 0.2)):
        assert gradient._first_step(evidence, noise, 10.0) == pytest.approx(hmc.first_step_size(width, 10.0))
    thrice = noisy_observations(Dataset(MODEL, np.array([1, 1, 1]), np.zeros(3)))
    assert gradient._first_step(thrice, KnownScale(0.4), 10.0) == hmc.first_step_size(0.4, 10.0)
    nothing = kernel_observations(relaxed_target(Dataset.from_pairs(MODEL, []), 0.5, 2.0))
    assert gradient._first_step(nothing, KnownScale(1.0), 10.0) == hmc.first_step_size(10.0, 10.0)


# Answers


def test_which_pairs_are_best_and_which_policy_is_greedy():
    """Ties count for both; a policy plays the first of them."""
    q = np.array([[[1.0, 2.0, 3.0, 3.0, 0.0, -1.0], [5.0, 2.0, 0.0, 1.0, -2.0, -1.0]]])
    assert MODEL.is_best(q).astype(int).tolist() == [[[0, 1, 1, 1, 1, 0], [1, 0, 0, 1, 0, 1]]]
    table = policy_table(complete(), q)
    assert table.policy.tolist() == [[0, 3, 5], [1, 2, 4]]
    assert table.weight.tolist() == [[1.0, 1.0]]


def test_a_result_of_points(told):
    """Moments by chain, convergence of coupled values and the noise only, all points as draws."""
    data = Dataset.from_pairs(MODEL, [("1,0", "left", -1.0), ("1,0", "left", -0.5)])
    target = noisy_target(data, HalfNormal(), 2.0, Gaussian())
    result = by_gradient(target, "nuts", Budget(samples=64 * 50))
    points = told[0].points
    assert points.shape == (64, 50, 7)
    own = np.flatnonzero(target.coupled[MODEL.pair_state])
    assert own.tolist() == [2, 3]
    by_chain = points[:, :, own].mean(axis=1)
    np.testing.assert_allclose(result.q_mean.value[own], by_chain.mean(axis=0))
    np.testing.assert_allclose(result.q_mean.se[own], by_chain.std(axis=0, ddof=1) / 8)
    np.testing.assert_allclose(result.q_sd.value[own], points[:, :, own].std(axis=(0, 1)))
    assert result.q_sd.value[0] == 2.0
    convergence = convergence_of(points[:, :, [2, 3, 6]])
    assert result.effective_sample_size == convergence.effective.min()
    assert result.trustworthy == have_mixed(*convergence.worst)
    assert result.diagnostics == {
        "chains": 64,
        "steps": 50,
        "r_hat": convergence.r_hat.max(),
        "acceptance": told[0].acceptance.mean(),
        "divergent_share": told[0].is_divergent.mean(),
    }
    eta = np.exp(np.interp(points[:, :, 6], target.noise_scale.normal, target.noise_scale.log_scale))
    assert result.noise_scale == pytest.approx((eta.mean(), eta.std()))
    assert result.table.resolution == 1 / (convergence.effective.min() + 2)
    assert (result.engine, result.reason) == ("nuts", "asked for: 64 chains on the action values")
    assert result.dimension == 7
    drawn = result.draws()
    np.testing.assert_array_equal(drawn.q.values, points[:, :, :6])
    np.testing.assert_allclose(drawn.noise_scale.values, eta)
    assert drawn.attrs == {"effective_sample_size": convergence.effective.min(), "weights": "equal"}


class FarChains(ToldChains):
    """The same a million away and ten thousand times closer together."""

    @property
    def points(self):
        return -1e6 + 1e-4 * super().points


def test_small_spreads_of_huge_values_survive():
    """A standard deviation of 1e-4, and three times that, about -1e6."""
    chains = FarChains("hmc", DENSITY, transitions(MODEL), kernel_observations(complete()), 64, 0, 0.1)
    chains.walk(100)
    found = gradient._result(complete(), chains, "asked for")
    expected = 1e-4 * ToldChains.points.fget(chains).std(axis=(0, 1))
    np.testing.assert_allclose(found.q_sd.value, expected, rtol=1e-5)
    np.testing.assert_allclose(expected, 1e-4 * np.array([3.0, 1, 1, 1, 1, 1]), rtol=0.05)


def test_every_pair_has_its_own_prior(told):
    """As tuples; the first step is that of the widest."""
    prior = ValuePrior(np.linspace(-1.0, 1.5, 6), np.linspace(0.5, 3.0, 6))
    by_gradient(replace(complete(), prior=prior), "hmc", FEW)
    setting = told[0]
    assert setting.density.prior == NormalPrior((0.5, 1.0, 1.5, 2.0, 2.5, 3.0), (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5))
    assert setting.step_size == hmc.first_step_size(0.5, 3.0)
    assert NormalPrior.of(np.zeros(6), np.full(6, 2.0)) == NormalPrior(2.0)


@pytest.mark.slow
def test_chains_with_own_priors_by_the_textbook():
    """One state, three actions that end: normal numbers that do not depend on each other, each with its own prior.

    Three means at 5 standard errors of 64 chains, false alarms 1.5e-5; three standard deviations at 5 of theirs, which
    follow from the number of effective draws, false alarms 2e-6. (HMC with ten steps comes back to where it was here.)
    """
    moves = {("s", a): Move(r, {"goal": 1.0}) for a, r in (("x", -1.0), ("y", 0.5), ("z", 2.0))}
    prior = ValuePrior(np.array([0.5, -1.0, 0.0]), np.array([0.7, 1.5, 3.0]))
    target = relaxed_target(Dataset.complete(from_moves("bandit", moves, start="s")), 0.8, prior)
    found = by_gradient(target, "nuts", Budget(samples=64 * 500))
    assert found.effective_sample_size > 1000
    variance = 1.0 / (1.0 / prior.sd**2 + 1.0 / 0.8**2)
    mean = variance * (prior.mean / prior.sd**2 + target.reward / 0.8**2)
    assert np.all(np.abs(found.q_mean.value - mean) <= 5 * found.q_mean.se)
    np.testing.assert_allclose(found.q_sd.value, np.sqrt(variance), rtol=5 / np.sqrt(2 * found.effective_sample_size))
    assert found.table.resolution == 1 / (found.effective_sample_size + 2)


def test_a_known_scale_is_not_told_as_inferred(told):
    result = by_gradient(complete(), "hmc", FEW)
    assert result.noise_scale is None
    assert "noise_scale" not in result.draws()


# Chains for any family


def test_the_smallest_numbers_of_chains_and_draws(told):
    data = Dataset.complete(MODEL)
    found = sample_chains(MODEL, data, Relaxed(0.5), chains=4, draws=4, seed=0)
    assert found.draws.q.shape == (4, 4, 6)
    assert list(found.draws.data_vars) == ["q"]
    for wrong in ({"chains": 3}, {"draws": 3}, {"seed": -1}):
        with pytest.raises(BadInputError, match=f"{next(iter(wrong))} is"):
            sample_chains(MODEL, data, Relaxed(0.5), **wrong)


def test_the_prior_sets_the_first_step(told):
    """A prior that is not normal counts as one of scale 10."""

    @dataclass(frozen=True)
    class Own:
        def log_density(self, theta):
            return -jnp.sum(theta**2)

        def draw(self, key, dimension):
            return jax.random.normal(key, (dimension,))

    data = Dataset.complete(MODEL)
    for prior, scale in ((NormalPrior(1.0), 1.0), (Own(), 10.0)):
        sample_chains(MODEL, data, Relaxed(0.5), prior=prior, chains=4, draws=4)
        assert told[-1].step_size == pytest.approx(hmc.first_step_size(0.5, scale))


def test_a_data_set_of_chains(told):
    """Action values of the family at every point, noise parameters apart."""
    family = Parametrisation(3, lambda theta: jnp.append(theta, theta * 2.0))
    found = sample_chains(MODEL, Dataset.complete(MODEL), InferredScale(), family, chains=4, draws=50, sampler="hmc")
    points = told[0].points
    draws, q = found.draws, np.concatenate([points[:, :, :3], 2 * points[:, :, :3]], axis=2)
    np.testing.assert_array_equal(draws.theta.values, points[:, :, :3])
    np.testing.assert_array_equal(draws.psi.values, points[:, :, 3:])
    np.testing.assert_allclose(draws.noise_scale.values, np.exp(points[:, :, 3]))
    np.testing.assert_allclose(draws.q.values, q)
    assert draws.chain.values.tolist() == [0, 1, 2, 3]
    assert draws.draw.values.tolist() == list(range(50))
    convergence = convergence_of(points)
    assert (found.engine, found.trustworthy) == ("hmc", have_mixed(*convergence.worst))
    assert found.diagnostics["r_hat"] == convergence.r_hat.max()
    assert found.effective_sample_size == convergence.effective.min()
    assert found.reason.startswith("4 chains of 50 points on 4 parameters")
    np.testing.assert_allclose(found.q_mean.value, q.mean(axis=(0, 1)))
    np.testing.assert_allclose(found.action_probability.value, MODEL.is_best(q).mean(axis=(0, 1)))


def test_chains_of_any_family_answer_as_a_posterior_does(told):
    """Probabilities, routes, pictures, tables, JSON; and why they are not trustworthy."""
    family = Parametrisation(1, lambda theta: jnp.full(6, theta[0]))
    found = sample_chains(MODEL, Dataset.complete(MODEL), InferredScale(), family, chains=4, draws=4)
    assert not found.trustworthy
    assert found.warnings[0].startswith("not trustworthy: the chains have not mixed (R-hat")
    assert "the chains have not mixed" in found.reason
    assert sum(route.probability for route in found.routes) == pytest.approx(1.0)
    answer = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (answer["engine"], answer["noise"]["law"], answer["epsilon"]) == ("nuts", "gaussian", None)
    assert answer["prior_scale"] == pytest.approx(10.0, rel=0.2), "that of Q_theta under the prior of theta"
    assert found.weighted_draws.theta.shape == (16, 1)
    assert "data:image/png" in found._repr_html_()
    assert len(found.to_frame()) == 6
    known = sample_chains(MODEL, Dataset.complete(MODEL), KnownScale(0.7), chains=4, draws=4, prior=NormalPrior(3.0))
    assert known.to_dict()["noise"] == {"law": "gaussian", "mean": 0.7, "sd": 0.0}
    assert (known.to_dict()["prior_scale"], known.target.prior.sd.tolist()) == (3.0, [3.0] * 6)
    relaxed = sample_chains(MODEL, Dataset.complete(MODEL), Relaxed(0.5), chains=4, draws=4)
    assert relaxed.epsilon == 0.5


def test_likelihoods_of_chains():
    data = Dataset.from_pairs(MODEL, [("0,0", "left", -1.0), ("0,0", "left", -1.0)])
    evidence, noise = gradient._observations(data, Relaxed(0.5, Laplace()), "nuts")
    assert noise == KnownScale(1.0, Laplace())
    assert evidence.seen.sum() == 1
    assert evidence.width[0] == 0.5
    evidence, noise = gradient._observations(data, KnownScale(0.3), "nuts")
    assert noise == KnownScale(0.3)
    assert evidence.seen.sum() == 2
    for wrong in (Relaxed(0.5, Uniform()), KnownScale(0.5, Uniform())):
        with pytest.raises(UnsupportedError, match="a uniform kernel has no gradient"):
            gradient._observations(data, wrong, "nuts")


# Walking on


@pytest.mark.parametrize("sampler", ["hmc", "nuts"])
def test_chains_are_tuned_before_the_first_point_and_walk_on(monkeypatch, sampler):
    """HMC: two episodes of the paper's tuning, then none; its metric stays. Keys are never used twice."""
    done = []

    def episode(density, tuning, draws, law, key, state, evidence):
        done.append(("hmc", tuning, draws, key, state))
        variance = state.variance + 1.0
        return state._replace(variance=variance), jnp.zeros((5, draws, 6)) + len(done), info(draws)

    def adapt(density, steps, law, key, position, evidence):
        done.append(("adapt", None, steps, key, position))
        return hmc.State(position, jnp.ones(5), jnp.ones((5, 6)))

    def walked(density, draws, law, key, state, evidence):
        done.append(("walk", None, draws, key, state))
        return state, jnp.zeros((5, draws, 6)) + len(done), jnp.ones((5, draws)), jnp.zeros((5, draws), bool)

    def info(draws):
        nothing = jnp.zeros((5, 0))
        return hmc.Info(nothing, nothing, jnp.ones((5, draws)), jnp.zeros((5, draws), dtype=bool))

    monkeypatch.setattr(module, "hmc_episode", episode)
    monkeypatch.setattr(module, "nuts_adapt", adapt)
    monkeypatch.setattr(module, "nuts_walk", walked)
    density = Density(tabular(MODEL), NormalPrior(), KnownScale(1.0))
    evidence = kernel_observations(complete())
    chains = Chains(sampler, density, transitions(MODEL), evidence, 5, 0, 0.25)
    for draws in (7, 3, 2):
        chains.walk(draws)
    assert chains.observations.reward.shape == (5, 6, 1)
    assert [draws for _, _, draws, *_ in done] == [module.WARM_UP, 7, 3, 2]
    if sampler == "hmc":
        assert [tuning for _, tuning, *_ in done] == [
            hmc.PAPER,
            hmc.PAPER,
            hmc.Tuning(windows=0),
            hmc.Tuning(windows=0),
        ]
        assert [float(state.variance[0, 0]) for *_, state in done] == [1.0, 2.0, 2.0, 2.0]
        assert float(done[0][-1].step_size[0]) == 0.25
    else:
        assert [name for name, *_ in done] == ["adapt", "walk", "walk", "walk"]
    assert chains.points.shape == (5, 12, 6)
    assert chains.points[0, :, 0].tolist() == [2] * 7 + [3] * 3 + [4] * 2
    assert chains.acceptance.shape == chains.is_divergent.shape == (5, 12)
    used = np.concatenate([jax.random.key_data(key) for *_, key, _ in done])
    assert len(np.unique(used, axis=0)) == 20
