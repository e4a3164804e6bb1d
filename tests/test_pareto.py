"""The Pareto index of a tail: right for Pareto draws, low for all that has a mean, high for a few huge draws."""

import numpy as np
import pytest

from bellmanifold.posteriors.pareto import ENOUGH, LEAST_DRAWS, TAILS, LargestOf, pareto_index


def pareto(rng, index, shape):
    """Generalised Pareto draws of scale 1, by the quantile function."""
    left = rng.random(shape)
    return -np.log(left) if index == 0.0 else (left**-index - 1.0) / index


@pytest.mark.parametrize("index", [0.0, 0.3, 0.7, 1.2, 2.0])
def test_the_index_of_pareto_draws(index):
    """The fit shrinks towards 1/2, and the largest of four tails counts: its mean over 100 samples is within 0.15."""
    found = pareto_index(pareto(np.random.default_rng(3), index, (100, 4000)), 4000)
    assert float(found.mean()) == pytest.approx(index, abs=0.15)
    assert found.std() < 0.3


def plain_fit(x):
    """The fit of Zhang and Stephens (2009) in loops, for exceedances in ascending order; k as the library signs it."""
    n = len(x)
    size, quartile = 30 + int(n**0.5), x[int(n / 4 + 0.5) - 1]
    grid = [1.0 / x[-1] + (1.0 - (size / (j - 0.5)) ** 0.5) / (3.0 * quartile) for j in range(1, size + 1)]
    indices = [sum(np.log1p(-b * one) for one in x) / n for b in grid]
    log_likelihood = np.array([n * (np.log(-b / k) - k - 1.0) for b, k in zip(grid, indices, strict=True)])
    weight = [1.0 / np.exp(log_likelihood - one).sum() for one in log_likelihood]
    middle = float(np.dot(weight, grid))
    return (sum(np.log1p(-middle * one) for one in x) + 10 * 0.5) / (n + 10)


def test_the_fit_in_plain_loops():
    draws = np.sort(pareto(np.random.default_rng(4), 0.4, 2000))
    fits = [plain_fit(draws[-length:] - draws[-length - 1]) for length in TAILS if 5 * length <= 2000]
    assert pareto_index(draws[None], 2000)[0] == pytest.approx(max(fits), rel=1e-9)


def test_few_huge_draws_among_many_ordinary_ones():
    """Two draws in 8,192, or 100, hold all of the mean: tails of several lengths show them."""
    rng = np.random.default_rng(5)
    draws = np.abs(rng.normal(0.0, 5.0, (20, 8192)))
    assert (pareto_index(draws, 8192) < ENOUGH).all()
    for few in (2, 100):
        draws[:, :few] = 1e6 * rng.random((20, few))
        assert (pareto_index(draws, 8192) > ENOUGH).all()


def test_no_alarm_for_values_of_acyclic_problems():
    """Values of 200 random acyclic problems with Gaussian payments, 20 states each: all means exist.

    By construction of the threshold an index passes 0.7 with a probability below 1e-6 a value, 0.004 for the 4,000.
    """
    rng = np.random.default_rng(6)
    highest = []
    for _ in range(200):
        value = np.zeros((21, 1024))
        for state in range(1, 21):
            leads = rng.integers(0, state, 3)
            value[state] = (rng.normal(-5.0, 2.0, (3, 1024)) * rng.uniform(0.1, 1.0, (3, 1)) + value[leads]).max(axis=0)
        away = np.abs(value[1:] - np.median(value[1:], axis=1, keepdims=True))
        highest.append(pareto_index(away, 1024).max())
    assert max(highest) < ENOUGH


def test_batches_weights_and_degenerate_rows():
    draws = pareto(np.random.default_rng(7), 0.9, (3, 5000))
    kept = LargestOf()
    for batch in np.array_split(draws, 7, axis=1):
        kept.add(batch)
    assert np.array_equal(kept.index(), pareto_index(draws, 5000))
    heavy = np.abs(np.random.default_rng(8).normal(size=(1, 5000)))
    weight = np.ones(5000)
    weight[:3] = 1e5
    assert pareto_index(weight * heavy, 5000)[0] > ENOUGH
    assert pareto_index(np.full((1, 5000), 3.0), 5000)[0] == -np.inf, "no spread, no tail"
    assert pareto_index(heavy[:, : LEAST_DRAWS - 1], LEAST_DRAWS - 1)[0] == -np.inf, "too few draws"
    assert LargestOf().index().shape == (0,)
