"""The Pareto index of a tail: right for Pareto draws, low for all that has a mean, high for a few huge draws."""

import numpy as np
import pytest

from bellmanifold.posteriors.pareto import ENOUGH, LEAST_DRAWS, TAILS, LargestOf, is_ruled_by_few, pareto_index


def pareto(rng, index, shape):
    """Generalised Pareto draws of scale 1, by the quantile function."""
    left = rng.random(shape)
    return -np.log(left) if index == 0.0 else (left**-index - 1.0) / index


@pytest.mark.parametrize("index", [0.0, 0.3, 0.7, 1.2, 2.0])
def test_the_index_of_pareto_draws(index):
    """The fit shrinks towards 1/2, and the largest of its tails counts: its mean over 100 samples is within 0.15."""
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
    draws = np.sort(pareto(np.random.default_rng(4), 0.4, 8000))
    fits = [plain_fit(draws[-length:] - draws[-length - 1]) for length in TAILS if 30 * length <= 8000]
    assert pareto_index(draws[None], 8000)[0] == pytest.approx(max(fits), rel=1e-9)


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

    With another seed none of 60,000 values was suspected (88 have an index above 0.7: where a narrow payment competes
    with a wide one, a tail is long but holds little). So the false-alarm rate is below 5e-5 a value, at most 0.2 for
    these 4,000.
    """
    rng = np.random.default_rng(6)
    suspected = 0
    for _ in range(200):
        value = np.zeros((21, 2048))
        for state in range(1, 21):
            leads = rng.integers(0, state, 3)
            value[state] = (rng.normal(-5.0, 2.0, (3, 2048)) * rng.uniform(0.1, 1.0, (3, 1)) + value[leads]).max(axis=0)
        away = np.abs(value[1:] - np.median(value[1:], axis=1, keepdims=True))
        suspected += int((pareto_index(away, 2048, away.sum(axis=1)) > ENOUGH).sum())
    assert suspected == 0


def test_batches_weights_and_degenerate_rows():
    draws = pareto(np.random.default_rng(7), 0.9, (3, 5000))
    kept = LargestOf()
    for batch in np.array_split(draws, 7, axis=1):
        kept.add(batch)
    assert kept.total == pytest.approx(draws.sum(axis=1))
    assert np.array_equal(kept.rule_the_mean(), pareto_index(draws, 5000, draws.sum(axis=1)) > ENOUGH)
    assert kept.rule_the_mean().any()
    heavy = np.abs(np.random.default_rng(8).normal(size=(1, 5000)))
    weight = np.ones(5000)
    weight[:3] = 1e5
    assert pareto_index(weight * heavy, 5000)[0] > ENOUGH
    assert pareto_index(np.full((1, 5000), 3.0), 5000)[0] == -np.inf, "no spread, no tail"
    assert pareto_index(heavy[:, : LEAST_DRAWS - 1], LEAST_DRAWS - 1)[0] == -np.inf, "too few draws"


def test_outliers_too_small_to_move_the_mean_do_no_harm():
    """Thirty draws in 8,192 at twenty standard deviations hold 9% of the deviations, and the mean is well known."""
    draws = np.abs(np.random.default_rng(9).normal(0.0, 1.0, 8192))
    draws[:30] = 20.0
    assert pareto_index(draws[None], 8192)[0] > ENOUGH
    assert not is_ruled_by_few(draws)
    draws[:30] = 2000.0
    draws[:10] = 1e5
    assert is_ruled_by_few(draws)
    alike = np.random.default_rng(10).random((500, 8192)) ** -0.9
    ruled = [is_ruled_by_few(one) for one in alike]
    assert np.mean(ruled) > 0.9, "Pareto draws of index 0.9 have an infinite variance and hardly a mean"
