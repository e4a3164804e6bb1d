"""Draws of the action values: their moments, the equations they satisfy, and when there are none."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.chart.batch import batch_chart
from bellmanifold.chart.bellman import residuals, transitions
from bellmanifold.data import Dataset
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.jax_setup import random_key
from bellmanifold.noise import HalfNormal
from bellmanifold.posteriors.batch_walk import BatchWalker
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.cuts import covering
from bellmanifold.posteriors.draws import (
    as_dataset,
    chain_draws,
    completed,
    effective,
    labels,
    posterior_draws,
    resampled,
    weighted_draws,
)
from bellmanifold.posteriors.inference import posterior_of
from bellmanifold.posteriors.system import system_of
from bellmanifold.posteriors.target import noisy_target, relaxed_target
from bellmanifold.posteriors.walk import CHAINS, ROUND
from bellmanifold.posteriors.weight import propose


def seen(model, mask):
    pairs = np.flatnonzero(mask)
    return Dataset(model, pairs, model.reward[pairs])


def wide():
    """Two states with five actions each; the first leads to the second, all else ends."""
    moves = {("s", f"a{k}"): Move(-0.1 * k, {"t": 1.0} if k == 0 else {"goal": 1.0}) for k in range(5)}
    moves |= {("t", f"a{k}"): Move(-1.0 + 0.5 * k, {"goal": 1.0}) for k in range(5)}
    return from_moves("wide", moves, start="s")


def coordinates_of(model, pairs, epsilon=0.3):
    pairs = np.asarray(pairs)
    return Coordinates(relaxed_target(Dataset(model, pairs, model.reward[pairs]), epsilon, 2.0))


def test_unobserved_values_are_filled_in_below_the_largest(rng):
    """Deep sea 2 with its start seen: below are two states whose two values share a largest one; 20,000 draws each.

    Any of the two is the largest with probability a half, the other is uniform below it in Phi; pairs that data do not
    touch keep their prior. Kolmogorov-Smirnov tests at 1e-6: false alarms are below 1e-5.
    """
    coordinates = coordinates_of(envs.deep_sea(3), [0, 1])
    count = 20_000
    q = np.full((12, count), -np.inf)
    q[0], q[1], q[2], q[4] = -1.0, -2.0, 1.0, -1.0
    values = completed(coordinates, q, rng)
    assert values.shape == (count, 12)
    assert np.all(values[:, :2] == [-1.0, -2.0])
    for first, m in ((2, 1.0), (4, -1.0)):
        own = values[:, first : first + 2]
        assert np.all(own.max(axis=1) == m)
        assert stats.binomtest(int((own[:, 0] == m).sum()), count).pvalue > 1e-6
        below = stats.norm.cdf(own.min(axis=1) / 2.0) / stats.norm.cdf(m / 2.0)
        assert stats.kstest(below, "uniform").pvalue > 1e-6
    assert stats.kstest(values[:, 6:].ravel() / 2.0, "norm").pvalue > 1e-6


@pytest.mark.parametrize(
    ("weight", "expected"),
    [([0.25] * 4, 4.0), ([0.5, 0.5, 0.0, 0.0], 2.0), ([0.0] * 4, 0.0), ([0.5, 0.25, 0.25], 8 / 3)],
)
def test_effective_number_of_draws(weight, expected):
    drawn = as_dataset(envs.two_state(), np.zeros((len(weight), 2)), np.array(weight), np.zeros((0, len(weight))))
    assert effective(drawn) == pytest.approx(expected)
    assert "noise_scale" not in drawn


def test_systematic_resampling_takes_each_draw_as_often_as_it_weighs():
    """Eight from weights 1/2, 0, 3/8 and 1/8: exactly 4, 0, 3 and 1 of them."""
    weight = np.array([0.5, 0.0, 0.375, 0.125])
    drawn = as_dataset(envs.two_state(), np.arange(8.0).reshape(4, 2), weight, np.array([[1.0, 2.0, 3.0, 4.0]]))
    again = resampled(drawn, 8, seed=3)
    assert again.q.values[:, 0].tolist() == [0.0] * 4 + [4.0] * 3 + [6.0]
    assert again.noise_scale.values.tolist() == [1.0] * 4 + [3.0] * 3 + [4.0]
    assert again.weight.values.tolist() == [0.125] * 8
    half = resampled(drawn.assign(weight=("draw", weight / 2)), 8, seed=3)
    assert half.q.values.tolist() == again.q.values.tolist(), "weights need not sum to 1"


def test_draws_are_labelled_by_state_and_action():
    model = envs.four_state()
    assert labels(model) == {
        "state": ("pair", [model.pair_name(i)[0] for i in range(5)]),
        "action": ("pair", [model.pair_name(i)[1] for i in range(5)]),
    }


def test_draws_of_all_components_are_weighed_together():
    """Two ways to treat a loop: seven draws asked for are eight; weights are relative to the largest of all."""
    model = envs.two_state()
    target = noisy_target(Dataset(model, np.array([0, 0, 1]), np.array([-0.1, 0.2, -1.0])), HalfNormal(), 2.0)
    components, chart = covering(target).ways[0], batch_chart(model)
    assert len(components) == 2
    found = [propose(system_of(part, chart), random_key(2, k), 4) for k, part in enumerate(components)]
    drawn = weighted_draws(components, chart, 7, seed=2)
    weight = np.exp(np.concatenate([part.log_weight for part in found]))
    np.testing.assert_allclose(drawn.weight.values, weight / weight.sum(), rtol=1e-12)
    np.testing.assert_array_equal(drawn.noise_scale.values, np.concatenate([part.noise_scale[0] for part in found]))
    np.testing.assert_array_equal(drawn.q.values, np.concatenate([np.asarray(part.q).T for part in found]))
    assert len(np.unique(drawn.noise_scale.values)) == 8, "random numbers are not used twice"


@pytest.mark.parametrize("reward", [-1e9, 5.0])
def test_weights_are_relative_to_the_largest(reward):
    """A density of exp(-1e18) still has weights that sum to 1; a loop that pays has none at all."""
    target = relaxed_target(Dataset.from_pairs(envs.two_state(), [("s1", "stay", reward)]), 0.1, 2.0, proper_only=True)
    weight = weighted_draws([Coordinates(target)], batch_chart(target.model), 4, seed=0).weight.values
    assert weight.sum() == pytest.approx(1.0 if reward < 0 else 0.0)


@pytest.mark.slow
def test_ends_of_chains_weigh_the_same_if_the_chains_mixed():
    """Where they have not (`test_walk.py`) there are none."""
    coordinates = coordinates_of(envs.deep_sea(2), [0, 1])
    drawn = chain_draws(coordinates.target, batch_chart(envs.deep_sea(2)), Budget())
    assert drawn.weight.values.tolist() == [1 / CHAINS] * CHAINS


@pytest.mark.slow
def test_ends_are_taken_after_two_rounds_and_one_to_warm_up():
    chart, target = batch_chart(envs.deep_sea(2)), coordinates_of(envs.deep_sea(2), [0, 1]).target
    drawn = chain_draws(target, chart, Budget(seed=3))
    rng = np.random.default_rng(3)
    walker = BatchWalker(Coordinates(target), chart, rng, CHAINS)
    walker.advance(rng, ROUND)
    for _ in range(2):
        walker.record(rng, ROUND)
    np.testing.assert_array_equal(drawn.q.values[:, :2], np.asarray(walker.ends().q).T[:, :2])


def assert_moments(draws, q_mean, q_sd):
    """First and second moments within 6 standard errors, taken from the draws (2e-9 each for normals)."""
    q, weight = draws.q.values, draws.weight.values
    assert weight.sum() == pytest.approx(1.0)
    for power, expected in ((1, q_mean), (2, q_mean**2 + q_sd**2)):
        moment = weight @ q**power
        spread = np.sqrt(np.maximum(weight @ q ** (2 * power) - moment**2, 0.0) / effective(draws))
        assert np.all(np.abs(moment - expected) <= 6 * spread + 1e-6 * (1 + np.abs(expected)))


@pytest.mark.parametrize("epsilon", [0.0, 0.5])
@pytest.mark.parametrize("part", [3, 100])
def test_draws_have_the_summarys_moments(epsilon, part):
    """Some pairs unobserved; and all observed, where a loop has to be cut open for epsilon above 0."""
    model = envs.swirl(3)
    summary = bm.posterior(model, seen(model, np.arange(1, 13) % part != 0), epsilon=epsilon)
    assert summary.draws.q.shape == (8192, 12)
    assert_moments(summary.draws, summary.q_mean, summary.q_sd)


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_draws_of_many_unobserved_actions(epsilon):
    """Three and four unobserved actions of a state: moments and probabilities against enumeration."""
    model = wide()
    data = Dataset.from_pairs(model, [("s", "a0"), ("t", "a1"), ("t", "a3")])
    exact = posterior_of(relaxed_target(data, epsilon or 1e-6, 2.0), asked="mixture")
    summary = bm.posterior(model, data, epsilon=epsilon, prior_scale=2.0)
    np.testing.assert_allclose(summary.q_mean, exact.q_mean, atol=0.01)
    np.testing.assert_allclose(summary.q_sd, exact.q_sd, atol=0.01)
    draws = summary.draws
    assert_moments(draws, exact.q_mean, exact.q_sd)
    q = draws.q.values
    best = np.maximum.reduceat(q, model.pair_start[:-1], axis=1)[:, model.pair_state]
    frequency = draws.weight.values @ (q == best)
    expected = exact.action_probability.value
    assert np.all(np.abs(frequency - expected) <= 6 * np.sqrt(expected * (1 - expected) / effective(draws)) + 1e-6)


@pytest.mark.slow
def test_chains_draw_from_the_posterior():
    """Ends of chains at epsilon 0: moments of the enumeration near the limit, and the observed equations hold."""
    model = wide()
    data = Dataset.from_pairs(model, [("s", "a0"), ("t", "a1"), ("t", "a3")])
    exact = posterior_of(relaxed_target(data, 1e-6, 2.0), asked="mixture")
    draws = chain_draws(relaxed_target(data, 0.0, 2.0), batch_chart(model), Budget(seed=3))
    assert draws.sizes["draw"] == CHAINS
    assert_moments(draws, exact.q_mean, exact.q_sd)
    law = transitions(model)
    for q in draws.q.values[:5]:
        found = np.asarray(residuals(law, jnp.asarray(q)))
        np.testing.assert_allclose(found[data.observed], model.reward[data.observed], atol=1e-6)


def test_resampled_draws_keep_their_moments():
    """Systematic resampling of uneven draws: 6 standard errors of a plain one, which is less even; false alarm 1e-7."""
    target = relaxed_target(Dataset.complete(envs.two_state()), 2.0, 10.0)
    draws = weighted_draws([Coordinates(target, centred=True)], batch_chart(target.model), 50_000, seed=0)
    assert effective(draws) < 25_000
    again = resampled(draws, 8192, seed=1)
    assert effective(again) == pytest.approx(8192)
    weight, q = draws.weight.values, draws.q.values
    mean = weight @ q
    sd = np.sqrt(weight @ (q - mean) ** 2)
    assert np.all(np.abs(again.q.values.mean(axis=0) - mean) <= 6 * sd / np.sqrt(8192))


@pytest.mark.slow
def test_no_draws_rather_than_wrong_ones():
    model = wide()
    target = relaxed_target(Dataset.from_pairs(model, [("s", "a0"), ("t", "a1"), ("t", "a3")]), 0.0, 10.0)
    demanding = Budget(enough=1e9)
    assert posterior_draws(target, demanding).sizes["draw"] == CHAINS, "uneven weights: the chains take over"
    narrow = relaxed_target(Dataset.complete(envs.two_state()), 0.3, 10.0, "uniform")
    with pytest.raises(UnsupportedError, match="no draws: importance weights are too uneven and chains do not mix"):
        posterior_draws(narrow, demanding)
    large = envs.grid(8, 8, slip=0.1)
    summary = bm.posterior(large, seen(large, np.arange(large.n_pairs) % 2 == 0), samples=8)
    with pytest.raises(UnsupportedError, match="no draws of a problem this large"):
        _ = summary.draws


@pytest.mark.parametrize("seed", [2**40, 2**63, 2**100])
def test_huge_seeds(seed):
    model = envs.two_state()
    options = {"epsilon": 2.0, "seed": seed}
    for more in ({}, {"engine": "mixture"}, {"kernel": "uniform"}, {"kernel": "uniform", "engine": "rejection"}):
        summary = bm.posterior(model, Dataset.complete(model), **options, **more)
        assert summary.trustworthy
    assert summary.draws.sizes["draw"] > 0
    BatchWalker(Coordinates(summary.target, centred=True), batch_chart(model), np.random.default_rng(seed), CHAINS)
