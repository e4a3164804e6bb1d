"""Moments of action values as engines hand them over: pooled, by replicate, without cancellation."""

from dataclasses import replace

import numpy as np
import pytest
from by_hand import result_of
from open_quadrature import TWO, landed

from bellmanifold.envs.building import Move, from_moves
from bellmanifold.posteriors.estimated import Estimate, PairEstimate, effective_size, ratio, resolution_of, systematic
from bellmanifold.posteriors.laws import close_laws
from bellmanifold.posteriors.result import Moments, pool, root
from bellmanifold.posteriors.target import ValuePrior, relaxed_target
from bellmanifold.problem.dataset import Dataset


def target(prior=3.0):
    """Of three states in a row the data touch the last one, which has two actions."""
    moves = {
        ("a", "on"): Move(-1.0, {"b": 1.0}),
        ("b", "on"): Move(-1.0, {"c": 1.0}),
        ("c", "x"): Move(-1.0, {"goal": 1.0}),
        ("c", "y"): Move(-2.0, {"goal": 1.0}),
    }
    model = from_moves("row", moves, start="a")
    return relaxed_target(Dataset.from_pairs(model, [("c", "x")]), 0.1, prior)


def weighed(rng, shape=(5, 40, 4), level=0.0, spread=1.0):
    """Weights by replicate and point, values by pair; and their moments, each replicate about its own mean."""
    weight, value = rng.random(shape[:2]), level + spread * rng.normal(size=shape)
    mean = (weight[..., None] * value).sum(axis=1) / weight.sum(axis=1)[:, None]
    square = (weight[..., None] * (value - mean[:, None]) ** 2).sum(axis=1)
    return weight, value, Moments(weight.sum(axis=1), mean, square)


def deviation(weight, value):
    """Weighted standard deviations over all replicates, from numbers without their level."""
    value = value - value.mean(axis=(0, 1))
    share = weight / weight.sum()
    mean = np.einsum("rp,rpk->k", share, value)
    return np.sqrt(np.einsum("rp,rpk->k", share, (value - mean) ** 2))


def test_values_that_no_data_touch_keep_their_prior(rng):
    own = np.array([False, False, True, True])
    for prior in (3.0, ValuePrior(np.array([0.5, -1.0, 2.0, 2.0]), np.array([1.0, 4.0, 0.3, 0.3]))):
        whole = target(prior)
        mean, sd = weighed(rng)[2].estimate(whole)
        np.testing.assert_array_equal(mean.value[~own], whole.prior.mean[~own])
        np.testing.assert_array_equal(mean.se[~own], 0.0)
        np.testing.assert_array_equal(sd[~own], whole.prior.sd[~own])
        np.testing.assert_array_equal(sd.se[~own], 0.0)
        assert (mean.se[own] > 0).all()
        assert (sd.se[own] > 0).all()


def test_means_and_deviations_of_weighted_values(rng):
    """Of all points: the mean with the error of a ratio, the standard deviation within and between replicates."""
    weight, value, moments = weighed(rng)
    mean, sd = moments.estimate(target())
    own = slice(2, 4)
    expected = ratio(np.einsum("rp,rpk->rk", weight, value), weight.sum(axis=1))
    np.testing.assert_allclose(mean.value[own], expected.value[own])
    np.testing.assert_allclose(mean.se[own], expected.se[own])
    np.testing.assert_allclose(sd[own], deviation(weight, value)[own])


def test_errors_of_standard_deviations_are_those_of_a_ratio(rng):
    """Squared deviations from the mean of all, over weights: half the variance's error, in units of the sd."""
    weight, value, moments = weighed(rng, level=3.0)
    _, sd = moments.estimate(target())
    mean = np.einsum("rp,rpk->k", weight, value) / weight.sum()
    square = np.einsum("rp,rpk->rk", weight, (value - mean) ** 2)
    variance = ratio(square, weight.sum(axis=1))
    np.testing.assert_allclose(sd.value[2:] ** 2, variance.value[2:])
    np.testing.assert_allclose(sd.se[2:], (0.5 * variance.se / sd.value)[2:])


def test_no_weight_at_all_says_nothing():
    zero = np.zeros((3, 4))
    mean, sd = Moments(np.zeros(3), zero, zero).estimate(target())
    assert np.isnan(mean.value[2:]).all()
    assert np.isnan(sd.value[2:]).all()
    assert sd.value[:2].tolist() == [3.0, 3.0]


@pytest.mark.parametrize(("level", "spread"), [(0.0, 1.0), (1e8, 1e-3), (-1e6, 1e-4)])
def test_pooled_parts_are_one_sample(rng, level, spread):
    """Parts of different sizes, one of them without weight; a spread of 1e-11 of the level keeps six digits."""
    parts = [weighed(rng, (5, points, 4), level, spread) for points in (30, 1, 7)]
    zero = np.zeros((5, 4))
    pooled = Moments.pooled([moments for _, _, moments in parts] + [Moments(np.zeros(5), zero, zero)])
    weight, value = (np.concatenate([part[k] for part in parts], axis=1) for k in (0, 1))
    np.testing.assert_allclose(pooled.weight, weight.sum(axis=1))
    for replicate in range(5):
        own = slice(replicate, replicate + 1)
        found = np.sqrt(pooled.square[replicate] / pooled.weight[replicate])
        np.testing.assert_allclose(found, deviation(weight[own], value[own]), rtol=1e-4)
    np.testing.assert_allclose(pooled.estimate(target())[1][2:], deviation(weight, value)[2:], rtol=1e-4)


def test_parts_in_other_units_of_weight(rng):
    """Weights of parts may be multiplied: that changes the sum of weights, and how the parts are mixed."""
    one, two = (weighed(rng, (5, points, 4)) for points in (30, 7))
    pooled = Moments.pooled([one[2], two[2]], [0.25, 3.0])
    weight = np.concatenate([0.25 * one[0], 3.0 * two[0]], axis=1)
    value = np.concatenate([one[1], two[1]], axis=1)
    np.testing.assert_allclose(pooled.weight, weight.sum(axis=1))
    np.testing.assert_allclose(pooled.mean, np.einsum("rp,rpk->rk", weight, value) / weight.sum(axis=1)[:, None])
    np.testing.assert_allclose(pooled.estimate(target())[1][2:], deviation(weight, value)[2:])


def test_pairs_that_others_stand_for(rng):
    """Columns of pairs are those of the pair that stands for each; what is followed besides stays."""
    _, _, moments = weighed(rng, (5, 40, 6))
    found = moments.standing(np.array([0, 1, 2, 2]))
    np.testing.assert_array_equal(found.weight, moments.weight)
    np.testing.assert_array_equal(found.mean, moments.mean[:, [0, 1, 2, 2, 4, 5]])
    np.testing.assert_array_equal(found.square, moments.square[:, [0, 1, 2, 2, 4, 5]])


def test_draws_of_chains_weigh_the_same(rng):
    """Errors from the spread between chains; a spread of 1e-3 about 1e8 survives."""
    q = 1e8 + 1e-3 * rng.normal(size=(8, 50, 4))
    mean, sd = Moments.of_draws(q).estimate(target())
    np.testing.assert_allclose(mean.value[2:] - 1e8, (q - 1e8).mean(axis=(0, 1))[2:], atol=3e-8)
    np.testing.assert_allclose(mean.se[2:], (q - 1e8).mean(axis=1).std(axis=0, ddof=1)[2:] / np.sqrt(8), rtol=1e-4)
    np.testing.assert_allclose(sd[2:], (q - 1e8).std(axis=(0, 1))[2:], rtol=1e-4)


def test_doubts_add_up_and_empty_ones_are_none():
    plain = result_of(target(), [[1, 3]], diagnostics={"points": 3})
    assert plain.trustworthy
    still = plain.doubted("", second_cut=[])
    assert still.trustworthy
    assert still.diagnostics == {"points": 3, "second_cut": []}
    twice = still.doubted("uneven").doubted("two cuts disagree")
    assert twice.doubts == ("uneven", "two cuts disagree")
    assert not twice.trustworthy


def test_values_too_large_to_be_squared():
    """Chains that are not yet where the posterior is may hold such: no spread, no warning."""
    found = Moments(np.ones(2), np.array([[1e200, 1.0], [-1e200, 3.0]]), np.zeros((2, 2)))._estimate(slice(None))
    assert found[0].value.tolist() == [0.0, 2.0]
    assert found[1].value.tolist() == [np.inf, 1.0]


@pytest.mark.parametrize("concentration", [None, 1.5])
def test_open_laws_follow_the_pairs(rng, concentration):
    """Their columns come behind those of three pairs, the concentration's last; one that is given is known exactly."""
    data = landed(TWO, -1.0, (1, 2, 1))
    whole, learnt, _ = close_laws(data, "dirichlet", concentration)
    given = relaxed_target(replace(data, model=whole), 0.0, 2.0)
    assert weighed(rng)[2].laws(given) is None
    target = replace(given, laws=learnt)
    landings = len(learnt.seen[0])
    weight, value, moments = weighed(rng, (5, 40, 3 + landings + 1), level=3.0)
    found = moments.laws(target)
    expected = ratio(np.einsum("rp,rpk->rk", weight, value), weight.sum(axis=1))[3:-1]
    np.testing.assert_allclose(found.probability.value, expected.value)
    np.testing.assert_allclose(found.probability.se, expected.se)
    share = weight / weight.sum()
    mean = (share * value[..., -1]).sum()
    spread = np.sqrt((share * (value[..., -1] - mean) ** 2).sum())
    assert found.concentration == (pytest.approx((mean, spread)) if concentration is None else (1.5, 0.0))


def test_pools_of_little_and_of_no_weight():
    """Weights that sum to less than 1, and a column without any: its mean is 0, and adds nothing."""
    weight = np.array([[0.1, 0.0], [0.3, 0.0]])
    mean, square = np.array([[[4.0], [7.0]], [[8.0], [9.0]]]), np.array([[[0.5], [0.0]], [[0.25], [0.0]]])
    total, centre, whole = pool(weight, mean, square)
    np.testing.assert_allclose(total, [0.4, 0.0])
    np.testing.assert_allclose(centre, [[7.0], [0.0]])
    np.testing.assert_allclose(whole, [[0.75 + 0.1 * 9.0 + 0.3], [0.0]])


def test_roots_of_variances():
    """Half the relative error; none where there is no spread."""
    found = root(Estimate.of(np.array([0.0, 0.25, 4.0]), np.array([0.0, 0.1, 0.2])))
    assert found.value.tolist() == [0.0, 0.5, 2.0]
    np.testing.assert_allclose(found.se, [0.0, 0.1, 0.05])


def test_draws_chosen_in_proportion_to_their_weights():
    """One from each stretch of the total weight, all at the same place in theirs: walked along one by one."""
    weight = np.array([0.5, 0.0, 2.0, 1.0, 0.25, 3.0])
    for count in (1, 2, 5, 40):
        place = np.random.default_rng(count).random()
        expected = []
        for k in range(count):
            level, passed, draw = (k + place) / count * 6.75, weight[0], 0
            while passed < level:
                draw += 1
                passed += weight[draw]
            expected.append(draw)
        assert systematic(weight, count, np.random.default_rng(count)).tolist() == expected
    assert len(systematic(weight, 0, np.random.default_rng(0))) == 0


def test_draws_that_weighted_ones_are_worth():
    assert effective_size(np.array([0.1, 0.2, 0.3])) == pytest.approx(36 / 14)
    assert effective_size(np.zeros(3)) == 0.0
    assert resolution_of(6.0) == 0.125


def test_estimates_show_six_numbers_and_say_how_many_there_are():
    six = Estimate.of(np.arange(6.0), np.zeros(6))
    assert str(six) == "0, 1, 2, 3, 4, 5"
    assert str(Estimate.of(np.arange(7.0), np.zeros(7))) == "0, 1, 2, 3, 4, 5, ... 7 in all"
    assert bool(Estimate.of(0.0, 0.0)), "0 is an answer"


def test_estimates_of_pairs_by_name():
    """The second state's only pair, both of the third; numbers and arrays of them as in any array."""
    model = target().model
    found = PairEstimate.by_pair(model, Estimate.of(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.1, 0.2, 0.3, 0.4])))
    assert (found["b"].value.tolist(), found["b"].se.tolist()) == ([2.0], [0.2])
    assert found["c"].value.tolist() == [3.0, 4.0]
    assert (float(found["c", "y"]), float(found["c", "x"].se)) == (4.0, 0.3)
    assert found[[0, 3]].value.tolist() == [1.0, 4.0]
    assert float(found[(2,)]) == 3.0
