"""Draws of the action values: their moments, the equations they satisfy, and when there are none."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bellmanifold.posteriors.from_walks import walkable
from scipy import stats

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.chart.batch import batch_chart
from bellmanifold.chart.bellman import residuals, transitions
from bellmanifold.data import Dataset
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.graph import end_components
from bellmanifold.posteriors import draws as module
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.draws import (
    CHAIN_ROUNDS,
    as_dataset,
    chain_draws,
    completed,
    effective,
    labels,
    resampled,
    weighted_draws,
)
from bellmanifold.posteriors.inference import by_mixture
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


def coordinates_of(model, pairs, epsilon=0.3):
    pairs = np.asarray(pairs)
    return Coordinates(relaxed_target(Dataset(model, pairs, model.reward[pairs]), epsilon, 2.0), batch_chart(model))


def test_unobserved_values_are_filled_in_below_the_largest(rng):
    """Deep sea 2 with its start seen: below are two states whose two values share a largest one; 20,000 draws each.

    Any of the two is the largest with probability a half, the other is uniform below it in Phi; pairs that data do not
    touch keep their prior. Kolmogorov-Smirnov tests at 1e-6: false alarms are below 1e-5.
    """
    coordinates = coordinates_of(envs.deep_sea(3), [0, 1])
    chart, count = coordinates.chart, 20_000
    q = np.full((*chart.slot.shape, count), -np.inf)
    action, state = chart.place
    q[action[0], state[0]], q[action[1], state[1]] = -1.0, -2.0
    for pair, m in ((2, 1.0), (4, -1.0)):
        q[action[pair], state[pair]] = m
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


def test_draws_of_all_components_are_weighed_together(monkeypatch):
    """Two components of three draws each: seven asked for are eight; weights are relative to the largest of all."""
    coordinates = coordinates_of(envs.deep_sea(2), [0, 1])
    asked = []

    def propose(self, key, batch):
        asked.append((batch, int(jax.random.bits(key))))
        log_weight = np.log(np.arange(1.0, batch + 1)) + 1000.0 + (len(asked) - 1) * np.log(10.0)
        shape = (*self.chart.slot.shape, batch)
        return SimpleNamespace(
            q=np.zeros(shape), log_weight=log_weight, noise_scale=np.full((1, batch), float(len(asked)))
        )

    monkeypatch.setattr(Coordinates, "propose", propose)
    drawn = weighted_draws([coordinates, coordinates], 7, seed=2)
    expected = np.array([1, 2, 3, 4, 10, 20, 30, 40.0])
    np.testing.assert_allclose(drawn.weight.values, expected / expected.sum())
    assert drawn.noise_scale.values.tolist() == [1.0] * 4 + [2.0] * 4
    assert [batch for batch, _ in asked] == [4, 4]
    assert asked[0][1] != asked[1][1]
    nothing = SimpleNamespace(q=np.zeros((2, 3, 4)), log_weight=np.full(4, -np.inf), noise_scale=np.zeros((0, 4)))
    monkeypatch.setattr(Coordinates, "propose", lambda self, key, batch: nothing)
    assert weighted_draws([coordinates], 4, seed=0).weight.values.tolist() == [0.0] * 4


def test_ends_of_chains_weigh_the_same_if_the_chains_mixed(monkeypatch):
    coordinates = coordinates_of(envs.deep_sea(2), [0, 1])
    told = SimpleNamespace(trustworthy=True)

    class ToldChains:
        def __init__(self, coordinates, seed):
            pass

        def walk(self, rounds):
            assert rounds == CHAIN_ROUNDS
            return told

    ends = SimpleNamespace(q=np.zeros((2, 3, 5)), noise_scale=np.zeros((0, 5)))
    monkeypatch.setattr(module, "Chains", ToldChains)
    monkeypatch.setattr(module, "end_points", lambda chains: ends)
    assert chain_draws(coordinates, 0).weight.values.tolist() == [0.2] * 5
    told.trustworthy = False
    assert chain_draws(coordinates, 0) is None


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


@pytest.mark.slow
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
