"""What chains leave behind: running moments, stretches joined, and which values their convergence is judged by."""

import numpy as np
import pytest

from bellmanifold import envs
from bellmanifold.posteriors.convergence import r_hat_and_effective
from bellmanifold.posteriors.result import Moments
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.posteriors.trace import Trace, Welford
from bellmanifold.problem.dataset import Dataset


def made_up(rng, policy, chain, steps=6, evaluations=None, recorded=3):
    """A stretch of some chains of a problem with two coupled states and five pairs."""
    chains = len(chain)
    return Trace(
        policy=np.array(policy),
        row=rng.integers(len(policy), size=(chains, steps)),
        value=rng.normal(size=(chains, steps, recorded)),
        scales=1,
        moments=Moments(np.full(chains, float(steps)), rng.normal(size=(chains, 5)), rng.random((chains, 5))),
        chain=np.array(chain),
        lost=1,
        evaluations=evaluations,
    )


def test_running_moments_are_those_of_all_values(rng):
    """Of values that have a mean and a variance of their own: the spread of means, and the variances."""
    means, variances = rng.normal(3.0, 2.0, size=(7, 4)), rng.random((7, 4))
    found = Welford(0.0, np.zeros(4), np.zeros(4))
    for mean, variance in zip(means, variances, strict=True):
        found = found.with_one_more(mean, variance)
    assert found.count == 7.0
    np.testing.assert_allclose(found.mean, means.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(found.square, 7 * means.var(axis=0) + variances.sum(axis=0), rtol=1e-12)


def test_stretches_of_the_same_chains_are_one_after_the_other(rng):
    """Chain 2 was lost in the first stretch: it is left out of the others. Policies are named anew, each once."""
    first = made_up(rng, [[0, 2], [1, 3], [0, 3]], [0, 1, 3], evaluations=4.0)
    second = made_up(rng, [[1, 3], [1, 2]], [0, 1, 2, 3], steps=5, evaluations=7.0)
    third = made_up(rng, [[0, 2]], [0, 1, 2, 3], steps=4)
    found = Trace.joined([first, second, third])
    own = np.array([0, 1, 3])
    policies = [first.policy[first.row], second.policy[second.row[own]], third.policy[third.row[own]]]
    np.testing.assert_array_equal(found.policy[found.row], np.concatenate(policies, axis=1))
    assert sorted(map(tuple, found.policy)) == [(0, 2), (0, 3), (1, 2), (1, 3)]
    np.testing.assert_array_equal(
        found.value, np.concatenate([first.value, second.value[own], third.value[own]], axis=1)
    )
    np.testing.assert_array_equal(found.moments.weight, [15.0] * 3)
    mean = (6 * first.moments.mean + 5 * second.moments.mean[own] + 4 * third.moments.mean[own]) / 15
    np.testing.assert_allclose(found.moments.mean, mean)
    square = sum(
        part.moments.square[rows] + steps * (part.moments.mean[rows] - mean) ** 2
        for part, rows, steps in ((first, [0, 1, 2], 6), (second, own, 5), (third, own, 4))
    )
    np.testing.assert_allclose(found.moments.square, square)
    assert found.evaluations == 5.5, "of those that counted"
    assert (found.chain.tolist(), found.lost, found.scales) == ([0, 1, 3], 1, 1)
    assert Trace.joined([third, third]).evaluations is None
    assert Trace.joined([first]) is first


def test_values_that_vary_decide_about_convergence(rng):
    """By more than a millionth of one plus their size, over all chains together."""
    size = 250.0
    limit = 1e-6 * (1.0 + size)
    trace = made_up(rng, [[0, 2]], [0, 1], steps=40, recorded=4)
    moving = trace.value[:, :, :1]
    for factor, varies in ((1.01, True), (0.99, False)):
        still = np.full((2, 40, 1), -size)
        still[1] += factor * limit * np.linspace(0.0, 1.0, 40)[:, None]
        both = np.concatenate([moving, still, np.full((2, 40, 1), 7.0)], axis=2)
        looked_at = both[:, :, : 2 if varies else 1]
        assert trace._replace(value=both).diagnose() == r_hat_and_effective(looked_at).worst
        found = trace._replace(value=still).diagnose()
        assert found == (r_hat_and_effective(still).worst if varies else (1.0, 80.0))


def test_of_many_values_32_are_looked_at(rng):
    trace = made_up(rng, [[0, 2]], [0, 1], steps=40, recorded=100)
    chosen = np.unique(np.linspace(0, 99, 32).astype(int))
    assert len(chosen) == 32
    assert trace.diagnose() == r_hat_and_effective(trace.value[:, :, chosen]).worst


@pytest.mark.parametrize(("effective", "divisor"), [(25.0, 5.0), (0.3, 1.0), (1.7, np.sqrt(1.7))])
def test_a_chain_that_is_alone_has_the_errors_of_its_effective_draws(rng, effective, divisor):
    """Those of means and sds of so many independent normal draws, at least one; what is not coupled has none."""
    target = relaxed_target(Dataset.from_pairs(envs.four_state(), [("2", "to-3")]), 0.5, 2.0)
    varies = target.coupled[target.model.pair_state]
    assert 0 < varies.sum() < 5
    alone, two = made_up(rng, [[0, 2]], [0]), made_up(rng, [[0, 2]], [0, 1])
    mean, sd = alone.estimate(target, effective)
    expected = np.sqrt(alone.moments.square[0] / 6.0)
    np.testing.assert_allclose(sd.value, np.where(varies, expected, 2.0))
    np.testing.assert_allclose(mean.value, np.where(varies, alone.moments.mean[0], 0.0))
    np.testing.assert_allclose(mean.se, np.where(varies, expected / divisor, 0.0))
    np.testing.assert_allclose(sd.se, np.where(varies, expected / divisor / np.sqrt(2.0), 0.0))
    for found, known in zip(two.estimate(target, effective), two.moments.estimate(target), strict=True):
        np.testing.assert_array_equal(found.se, known.se)
        np.testing.assert_array_equal(found.value, known.value)
