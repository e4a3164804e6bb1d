"""Draws of the action values: their moments, the equations they satisfy, and when there are none."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.bellman import residuals, transitions
from bellmanifold.chart import batch_chart
from bellmanifold.data import Dataset
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.graph import end_components
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.draws import chain_draws, effective, resampled, weighted_draws
from bellmanifold.posteriors.inference import by_mixture, walkable
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.posteriors.walk import CHAINS, Chains, end_points


def seen(model, mask):
    pairs = np.flatnonzero(mask)
    return Dataset(model, pairs, model.reward[pairs])


def wide():
    """Two states with five actions each; the first leads to the second, all else ends."""
    moves = {("s", f"a{k}"): Move(-0.1 * k, {"t": 1.0} if k == 0 else {"goal": 1.0}) for k in range(5)}
    moves |= {("t", f"a{k}"): Move(-1.0 + 0.5 * k, {"goal": 1.0}) for k in range(5)}
    return from_moves("wide", moves, start="s")


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
    exact = by_mixture(relaxed_target(data, epsilon or 1e-6, 2.0), "test", 0)
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


def test_chains_draw_from_the_posterior():
    """Ends of chains at epsilon 0: moments of the enumeration near the limit, and the observed equations hold."""
    model = wide()
    data = Dataset.from_pairs(model, [("s", "a0"), ("t", "a1"), ("t", "a3")])
    exact = by_mixture(relaxed_target(data, 1e-6, 2.0), "test", 0)
    draws = chain_draws(walkable(relaxed_target(data, 0.0, 2.0), batch_chart(model), False), seed=3)
    assert draws.sizes["draw"] == CHAINS
    assert_moments(draws, exact.q_mean, exact.q_sd)
    law = transitions(model)
    for q in draws.q.values[:5]:
        found = np.asarray(residuals(law, jnp.asarray(q)))
        np.testing.assert_allclose(found[data.observed], model.reward[data.observed], atol=1e-6)


def test_chains_of_a_cut_posterior_walk_in_the_action_values():
    """The chart alone would leave the improper parameters out; without a loop the chart is walked."""
    for model, centred in ((envs.swirl(3), True), (envs.deep_sea(3), False)):
        target = relaxed_target(Dataset.complete(model), 0.5, 10.0)
        assert bool(end_components(model, target.observed)) == centred
        assert walkable(target, batch_chart(model), False).centred == centred
        assert not walkable(target, batch_chart(model), True).centred


def test_resampled_draws_keep_their_moments():
    """Systematic resampling of uneven draws: 6 standard errors of a plain one, which is less even; false alarm 1e-7."""
    target = relaxed_target(Dataset.complete(envs.two_state()), 2.0, 10.0)
    draws = weighted_draws([Coordinates(target, batch_chart(target.model), centred=True)], 50_000, seed=0)
    assert effective(draws) < 25_000
    again = resampled(draws, 8192, seed=1)
    assert effective(again) == pytest.approx(8192)
    weight, q = draws.weight.values, draws.q.values
    mean = weight @ q
    sd = np.sqrt(weight @ (q - mean) ** 2)
    assert np.all(np.abs(again.q.values.mean(axis=0) - mean) <= 6 * sd / np.sqrt(8192))


@pytest.mark.slow
def test_no_draws_rather_than_wrong_ones(monkeypatch):
    model = wide()
    summary = bm.posterior(model, Dataset.from_pairs(model, [("s", "a0"), ("t", "a1"), ("t", "a3")]), samples=1)
    monkeypatch.setattr("bellmanifold.posteriors.inference.ENOUGH", 1e9)
    assert summary.draws.sizes["draw"] == CHAINS, "uneven weights: the chains take over"
    monkeypatch.setattr("bellmanifold.posteriors.walk.R_HAT_LIMIT", 0.0)
    with pytest.raises(UnsupportedError, match="no draws"):
        _ = replace(summary, seed=1).draws
    large = envs.grid(8, 8, slip=0.1)
    summary = bm.posterior(large, seen(large, np.arange(large.n_pairs) % 2 == 0), samples=8)
    with pytest.raises(UnsupportedError, match="no draws of a problem this large"):
        _ = summary.draws


def test_chains_that_find_nothing_are_not_counted():
    """In the action values a narrow uniform kernel is hard to find: chains that do not find it must not count."""
    target = relaxed_target(Dataset.complete(envs.two_state()), 0.3, 10.0, "uniform")
    chains = Chains(Coordinates(target, batch_chart(target.model), centred=True), 0)
    walked = chains.walk(1)
    assert 0 < walked.lost < CHAINS
    assert len(walked.table.weight) == CHAINS - walked.lost
    assert not walked.trustworthy
    assert CHAINS - walked.lost <= end_points(chains).q.shape[-1] < CHAINS
    narrow = relaxed_target(Dataset.complete(envs.two_state()), 1e-9, 10.0, "uniform")
    with pytest.raises(UnsupportedError, match="no chain found"):
        Chains(Coordinates(narrow, batch_chart(narrow.model), centred=True), 0).walk(1)


@pytest.mark.parametrize("seed", [2**40, 2**63, 2**100])
def test_huge_seeds(seed):
    model = envs.two_state()
    options = {"epsilon": 2.0, "seed": seed}
    for more in ({}, {"engine": "mixture"}, {"kernel": "uniform"}, {"kernel": "uniform", "engine": "rejection"}):
        summary = bm.posterior(model, Dataset.complete(model), **options, **more)
        assert summary.trustworthy
    assert summary.draws.sizes["draw"] > 0
    Chains(walkable(summary.target, batch_chart(model), False), seed)
