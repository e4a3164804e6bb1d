"""Draws of the action values: their moments, the equations they satisfy, and when there are none."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from problems import seen
from scipy import stats

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold._util.jax_setup import random_key
from bellmanifold.chart.batch import batch_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.batch_walk import BatchWalker
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.cuts import covering
from bellmanifold.posteriors.draws import (
    _pool,
    as_dataset,
    by_chain,
    chain_draws,
    complete,
    distinct,
    equal_draws,
    in_one_row,
    posterior_draws,
    result_draws,
    weighted_draws,
)
from bellmanifold.posteriors.estimated import Estimate, effective_size
from bellmanifold.posteriors.inference import posterior_of
from bellmanifold.posteriors.noise import HalfNormal
from bellmanifold.posteriors.policies import PolicyTable
from bellmanifold.posteriors.result import Result
from bellmanifold.posteriors.system import system_of
from bellmanifold.posteriors.target import ValuePrior, noisy_target, relaxed_target
from bellmanifold.posteriors.walk import CHAINS, ROUND
from bellmanifold.posteriors.weight import propose
from bellmanifold.problem.dataset import Dataset
from bellmanifold_paper.bellman import residuals, transitions


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
    values = complete(coordinates, q, rng)
    assert values.shape == (count, 12)
    assert np.all(values[:, :2] == [-1.0, -2.0])
    for first, m in ((2, 1.0), (4, -1.0)):
        own = values[:, first : first + 2]
        assert np.all(own.max(axis=1) == m)
        assert stats.binomtest(int((own[:, 0] == m).sum()), count).pvalue > 1e-6
        below = stats.norm.cdf(own.min(axis=1) / 2.0) / stats.norm.cdf(m / 2.0)
        assert stats.kstest(below, "uniform").pvalue > 1e-6
    assert stats.kstest(values[:, 6:].ravel() / 2.0, "norm").pvalue > 1e-6


def test_values_are_filled_in_number_by_number():
    """With priors of their own for every state, and three alternatives of which the largest is known."""
    model = from_moves(
        "filled",
        {("s", "go"): Move(-1.0, {"t": 1.0})}
        | {("t", a): Move(-0.5, {"goal": 1.0}) for a in "abc"}
        | {("far", a): Move(-1.0, {"goal": 1.0}) for a in "xy"},
        start="s",
    )
    prior = ValuePrior(model.reward + 0.3, np.array([0.7, 1.3])[model.pair_state % 2])
    target = relaxed_target(Dataset.from_pairs(model, [("s", "go")]), 0.3, prior)
    first = model.pair_index["t", "a"]
    group, idle = model.pair_state == model.pair_state[first], ~target.coupled[model.pair_state]
    assert (int(group.sum()), int(idle.sum())) == (3, 2)
    q, rng = np.random.default_rng(1).normal(size=(model.n_pairs, 5)), np.random.default_rng(4)
    found = complete(Coordinates(target), q, np.random.default_rng(4))
    expected, mean, sd = q.T.copy(), prior.mean[first], prior.sd[first]
    below = rng.random((5, 3)) * stats.norm.cdf((q[first] - mean) / sd)[:, None]
    expected[:, group] = mean + sd * stats.norm.ppf(below)
    expected[np.arange(5), rng.choice(np.flatnonzero(group), 5)] = q[first]
    expected[:, idle] = prior.mean[idle] + prior.sd[idle] * rng.standard_normal((5, 2))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def batch(values, weight, log_total):
    """Weighted draws of two pairs."""
    values, weight = np.asarray(values, dtype=float), np.asarray(weight)
    drawn = as_dataset(envs.two_state(), np.stack([values, -values], axis=1), weight, values[None])
    return drawn.assign_attrs(log_total=log_total)


def test_batches_count_as_much_as_they_weigh():
    """Of two with 1 : 3 of all weight each point has its share of both; one without any weight is left out."""
    batches = [
        batch([1.0, 2.0], [0.25, 0.75], -1000.0),
        batch([3.0, 4.0], [0.0, 0.0], -np.inf),
        batch([5.0, 6.0, 7.0], [0.5, 0.5, 0.0], -1000.0 + np.log(3.0)),
    ]
    found = _pool(iter(batches), seed=3)
    assert found.weight.values.sum() == pytest.approx(1.0)
    share = dict(zip(found.q.values[:, 0], found.weight.values, strict=True))
    assert share == pytest.approx({1.0: 1 / 16, 2.0: 3 / 16, 5.0: 3 / 8, 6.0: 3 / 8}, abs=2e-4)
    np.testing.assert_array_equal(found.noise_scale.values, found.q.values[:, 0])
    assert found.attrs == {}


@pytest.mark.parametrize(
    ("weight", "expected"),
    [([0.3, 0.3, 0.3, 0.1], 3), ([0.1] * 10, 10), ([0.2, 0.3, 0.1], 2), ([7.0], 1), ([0.0, 0.0], 0), ([], 0)],
)
def test_how_many_draws_come_without_repeats(weight, expected):
    draws = as_dataset(envs.two_state(), np.zeros((len(weight), 2)), np.array(weight), np.zeros((0, len(weight))))
    assert distinct(draws) == expected


def test_an_engines_own_points_become_draws():
    """Chain by chain, as effective as the engine says, or as if they were independent."""
    target = relaxed_target(Dataset.complete(envs.two_state()), 0.3, 2.0)
    points = np.arange(12.0).reshape(2, 6)
    whole = Estimate.of(np.zeros(2), np.zeros(2))
    table = PolicyTable(target.coupled, np.array([[0]]), np.ones((1, 1)))
    result = Result(table=table, q_mean=whole, q_sd=whole, engine="own", reason="", dimension=2, points=points)
    for more, chains, effective in (
        ({}, 1, 6.0),
        ({"effective_sample_size": 4.5, "diagnostics": {"chains": 3}}, 3, 4.5),
    ):
        found = result_draws(target, replace(result, **more), seed=0)
        np.testing.assert_array_equal(found.q.values.reshape(6, 2), points.T)
        assert found.q.shape == (chains, 6 // chains, 2)
        assert found.attrs["effective_sample_size"] == effective
        assert "noise_scale" not in found


@pytest.mark.parametrize(
    ("weight", "expected"),
    [([0.25] * 4, 4.0), ([0.5, 0.5, 0.0, 0.0], 2.0), ([0.0] * 4, 0.0), ([0.5, 0.25, 0.25], 8 / 3)],
)
def test_effective_number_of_draws(weight, expected):
    drawn = as_dataset(envs.two_state(), np.zeros((len(weight), 2)), np.array(weight), np.zeros((0, len(weight))))
    assert effective_size(drawn.weight.values) == pytest.approx(expected)
    assert "noise_scale" not in drawn


def test_draws_of_equal_weight_are_chosen_as_often_as_they_weigh_and_never_twice():
    """Weights 1/2, 0, 3/8 and 1/8 are worth two draws: the first always, the third and fourth share the other."""
    weight = np.array([0.5, 0.0, 0.375, 0.125])
    q = np.array([[1.0, 1.0], [np.inf, np.nan], [3.0, 3.0], [4.0, 4.0]])
    drawn = as_dataset(envs.two_state(), q, weight, q[:, :1].T)
    assert distinct(drawn) == 2
    chosen = [equal_draws(drawn, seed) for seed in range(400)]
    values = np.array([np.sort(one.q.values[0, :, 0]) for one in chosen])
    assert {tuple(row) for row in values.tolist()} == {(1.0, 3.0), (1.0, 4.0)}
    assert abs((values[:, 1] == 3.0).mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 400), "5 sds; the seeds are fixed"
    for one in chosen:
        assert one.q.dims == ("chain", "draw", "pair")
        np.testing.assert_array_equal(one.noise_scale.values, one.q.values[:, :, 0])
        assert one.attrs == {"effective_sample_size": 2.0, "weights": "equal"}
    half = equal_draws(drawn.assign(weight=("draw", weight / 2)), 3)
    assert half.identical(chosen[3]), "weights need not sum to 1"
    assert equal_draws(drawn, 3).identical(chosen[3]), "the seed fixes them"


@pytest.mark.parametrize(("count", "chains"), [(3, 1), (15, 1), (16, 4), (18, 4)])
def test_draws_of_the_same_weight_are_all_taken_in_groups(count, chains):
    """In four chains of the same length, where each has at least four."""
    q = np.arange(2.0 * count).reshape(count, 2)
    found = equal_draws(as_dataset(envs.two_state(), q, np.full(count, 0.1), np.zeros((0, count))), seed=1)
    assert found.q.shape == (chains, count // chains, 2)
    assert len(np.unique(found.q.values.reshape(-1, 2), axis=0)) == count - count % chains
    assert set(map(tuple, found.q.values.reshape(-1, 2))) <= set(map(tuple, q))


def test_chains_one_after_the_other_and_back():
    draws = by_chain(as_dataset(envs.two_state(), np.arange(12.0).reshape(6, 2), None, np.zeros((0, 6))), 3, 5.0)
    assert draws.q.values[2].tolist() == [[8.0, 9.0], [10.0, 11.0]]
    row = in_one_row(draws)
    assert row.weight.values.tolist() == [1 / 6] * 6
    assert by_chain(row.drop_vars("weight"), 3, 5.0).identical(draws)


def drawn_once(model):
    return as_dataset(model, np.zeros((1, model.n_pairs)), None, np.zeros((0, 1)))


def test_labels_that_would_be_the_same_are_quoted():
    moves = {("a: b", "c"): Move(-1.0, {"a": 1.0}), ("a", "b: c"): Move(-1.0, {"goal": 1.0})}
    assert sorted(drawn_once(from_moves("odd", moves, start="a: b")).pair.values) == ['"a", "b: c"', '"a: b", "c"']


def trap():
    """A state whose only move stays there: in one of the coordinates nothing solves its equation."""
    moves = {("s", "in"): Move(-1.0, {"t": 1.0}), ("s", "out"): Move(-2.0, {"goal": 1.0})}
    moves |= {("t", "stay"): Move(-1.0, {"t": 1.0})}
    return from_moves("trap", moves, start="s")


def test_points_of_weight_zero_hold_infinities_and_are_left_out():
    model = trap()
    summary = bm.posterior(model, seen(model, [True, False, True]), epsilon=0.3)
    target = summary.target
    every = weighted_draws(covering(target).ways[0], batch_chart(model), 8192, seed=0)
    assert not np.isfinite(every.q.values).all()
    assert not every.weight.values[~np.isfinite(every.q.values).all(axis=1)].any()
    for q in (summary.weighted_draws.q, summary.draws.q):
        assert np.isfinite(q.values).all()
    assert (summary.weighted_draws.weight.values > 0).all()
    assert_moments(summary.weighted_draws, summary.q_mean.value, summary.q_sd.value)


@pytest.mark.slow
def test_uneven_weights_leave_fewer_draws_and_no_repeats():
    """Deep sea 8, a third unseen: 8,192 points have 165 effective ones, 131,072 have 2,550; 634 come without repeats.

    Resampled to 8,192 a fourth was distinct. Means agree with the summary's at 5 standard errors of both, computed as
    if the draws were independent; 128 of them: false alarms below 1e-4.
    """
    model = envs.deep_sea(8)
    summary = bm.posterior(model, seen(model, np.arange(1, model.n_pairs + 1) % 3 != 0))
    weighted, draws = summary.weighted_draws, summary.draws
    count = int(draws.attrs["effective_sample_size"])
    assert weighted.sizes["draw"] == 2**17
    assert 400 <= count < effective_size(weighted.weight.values) < 8192
    q = draws.q.values.reshape(count, model.n_pairs)
    assert len(np.unique(q, axis=0)) == count
    error = np.hypot(q.std(axis=0) / np.sqrt(count), summary.result.q_mean.se)
    assert (np.abs(q.mean(axis=0) - summary.q_mean.value) <= 5 * error).all()


def test_draws_are_labelled_by_state_and_action():
    model = envs.four_state()
    drawn = drawn_once(model)
    assert list(drawn.coords) == ["pair"]
    assert drawn.pair.values.tolist() == [": ".join(model.pair_name(i)) for i in range(5)]


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
        spread = np.sqrt(np.maximum(weight @ q ** (2 * power) - moment**2, 0.0) / effective_size(draws.weight.values))
        assert np.all(np.abs(moment - expected) <= 6 * spread + 1e-6 * (1 + np.abs(expected)))


@pytest.mark.parametrize(
    ("part", "epsilon"), [(3, 0.0), pytest.param(3, 0.5, marks=pytest.mark.slow), (100, 0.0), (100, 0.5)]
)
def test_draws_have_the_summarys_moments(epsilon, part):
    """Some pairs unobserved; and all observed, where a loop has to be cut open for epsilon above 0."""
    model = envs.swirl(3)
    summary = bm.posterior(model, seen(model, np.arange(1, 13) % part != 0), epsilon=epsilon)
    assert_moments(summary.weighted_draws, summary.q_mean.value, summary.q_sd.value)
    assert_moments(in_one_row(summary.draws), summary.q_mean.value, summary.q_sd.value)


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_draws_of_many_unobserved_actions(epsilon):
    """Three and four unobserved actions of a state: moments and probabilities against enumeration."""
    model = wide()
    data = Dataset.from_pairs(model, [("s", "a0"), ("t", "a1"), ("t", "a3")])
    exact = posterior_of(relaxed_target(data, epsilon or 1e-6, 2.0), asked="mixture")
    summary = bm.posterior(model, data, epsilon=epsilon, prior_scale=2.0)
    np.testing.assert_allclose(summary.q_mean.value, exact.q_mean.value, atol=0.01)
    np.testing.assert_allclose(summary.q_sd.value, exact.q_sd.value, atol=0.01)
    draws = summary.weighted_draws
    assert_moments(draws, exact.q_mean.value, exact.q_sd.value)
    q = draws.q.values
    best = np.maximum.reduceat(q, model.pair_start[:-1], axis=1)[:, model.pair_state]
    frequency = draws.weight.values @ (q == best)
    expected = exact.action_probability.value
    error = np.sqrt(expected * (1 - expected) / effective_size(draws.weight.values))
    assert np.all(np.abs(frequency - expected) <= 6 * error + 1e-6)


@pytest.mark.slow
def test_chains_draw_from_the_posterior():
    """Ends of chains at epsilon 0: moments of the enumeration near the limit, and the observed equations hold."""
    model = wide()
    data = Dataset.from_pairs(model, [("s", "a0"), ("t", "a1"), ("t", "a3")])
    exact = posterior_of(relaxed_target(data, 1e-6, 2.0), asked="mixture")
    draws = chain_draws(relaxed_target(data, 0.0, 2.0), batch_chart(model), Budget(seed=3))
    assert draws.sizes["draw"] == CHAINS
    assert_moments(draws, exact.q_mean.value, exact.q_sd.value)
    law = transitions(model)
    for q in draws.q.values[:5]:
        found = np.asarray(residuals(law, jnp.asarray(q)))
        np.testing.assert_allclose(found[data.observed], model.reward[data.observed], atol=1e-6)


@pytest.mark.slow
def test_means_of_equal_draws_vary_as_those_of_independent_ones():
    """What the docstring derives: the variance of the mean is that of k independent draws.

    Over 300 seeds of 512 uneven points the squared errors, in units of that variance, have a mean of 1 with a standard
    error of about sqrt(2 / 300) = 0.082, for each of two action values; 5 of these: false alarms 2e-6.
    """
    target = relaxed_target(Dataset.complete(envs.two_state()), 2.0, 10.0)
    coordinates, chart = [Coordinates(target, centred=True)], batch_chart(target.model)
    many = weighted_draws(coordinates, chart, 2**17, seed=10_000)
    weight = many.weight.values
    mean = weight @ many.q.values
    variance = weight @ (many.q.values - mean) ** 2
    errors, uneven = [], []
    for seed in range(300):
        points = weighted_draws(coordinates, chart, 512, seed)
        uneven.append(effective_size(points.weight.values) / 512)
        q = np.concatenate(equal_draws(points, seed).q.values)
        errors.append(len(q) * (q.mean(axis=0) - mean) ** 2 / variance)
    assert np.mean(uneven) < 0.5
    assert (np.abs(np.mean(errors, axis=0) - 1.0) < 5 * np.sqrt(2 / 300)).all()


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
        posterior_draws(summary.target, Budget())
    assert summary.draws.q.shape == (4, 1, large.n_pairs), "but chains on sparse systems keep points"


@pytest.mark.parametrize("seed", [*(pytest.param(2**k, marks=pytest.mark.slow) for k in (40, 63)), 2**100])
def test_huge_seeds(seed):
    model = envs.two_state()
    options = {"epsilon": 2.0, "seed": seed}
    for more in ({}, {"engine": "mixture"}, {"kernel": "uniform"}, {"kernel": "uniform", "engine": "rejection"}):
        summary = bm.posterior(model, Dataset.complete(model), **options, **more)
        assert summary.trustworthy
    assert summary.draws.sizes["draw"] > 0
    BatchWalker(Coordinates(summary.target, centred=True), batch_chart(model), np.random.default_rng(seed), CHAINS)
