"""The largest of independent Gaussians against closed forms and one-dimensional integrals."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

from bellmanifold.gaussian.maximum import largest

STANDARD_ERRORS = 5.0
"""By which simulations with fixed seeds, of ten numbers, may be off: of a correct program 1 seed in 100,000 is."""
WIDE = (np.array([0.3, -1.0, 2.0, 0.5]), np.array([0.1, 4.0, 0.7, 2.0]))


def by_definition(mean, sd):
    """P(a is the largest) and the expectation: the integrals that define them, by SciPy's adaptive rule."""
    low, high = (mean - 12 * sd).min(), (mean + 12 * sd).max()
    points = np.unique((mean[:, None] + sd[:, None] * np.arange(-9, 10, 3)).ravel())

    def density(x, a):
        z = (x - mean) / sd
        return norm.pdf(z[a]) / sd[a] * np.delete(ndtr(z), a).prod()

    def integral(f, a):
        return quad(f, low, high, args=(a,), points=points, epsabs=1e-12, epsrel=1e-12, limit=500)[0]

    chance = np.array([integral(density, a) for a in range(len(mean))])
    return chance, sum(integral(lambda x, a: x * density(x, a), a) for a in range(len(mean)))


def test_one_is_the_largest():
    mean = np.array([[2.0], [-3.0]])
    found = largest(mean, np.array([[1.0], [0.0]]))
    np.testing.assert_array_equal(found.probability, [[1.0], [1.0]])
    np.testing.assert_array_equal(found.expectation, [2.0, -3.0])


def test_two_by_the_textbook():
    """E max = m_1 Phi(g) + m_2 Phi(-g) + t phi(g), g the difference of the means over t = the sd of the difference."""
    mean, sd = np.array([[0.3, -0.9], [-2.0, 1.0], [4.0, 4.0]]), np.array([[0.5, 1.2], [3.0, 4.0], [0.1, 0.0]])
    spread = np.sqrt((sd**2).sum(axis=1))
    gap = (mean[:, 0] - mean[:, 1]) / spread
    found = largest(mean, sd)
    np.testing.assert_allclose(found.probability, np.stack([norm.cdf(gap), norm.sf(gap)], axis=1), rtol=1e-14)
    textbook = mean[:, 0] * norm.cdf(gap) + mean[:, 1] * norm.cdf(-gap) + spread * norm.pdf(gap)
    np.testing.assert_allclose(found.expectation, textbook, rtol=1e-14)


def test_two_constants_and_two_that_are_far_apart():
    mean = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 1.0], [0.0, 1e9], [1e300, -1e300]])
    sd = np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 2.0], [1.0, 1.0]])
    found = largest(mean, sd)
    np.testing.assert_array_equal(found.probability, [[0, 1], [1, 0], [0.5, 0.5], [0, 1], [1, 0]])
    np.testing.assert_array_equal(found.expectation, [2.0, 2.0, 1.0, 1e9, 1e300])


def test_two_that_are_hardly_ever_mistaken():
    """30 sds apart the less likely one still has its probability, to all digits."""
    found = largest(np.array([[0.0, 42.0]]), np.array([[1.0, 1.0]]))
    assert found.probability[0, 0] == pytest.approx(norm.sf(42.0 / np.sqrt(2.0)), rel=1e-12)


def test_several_agree_with_their_definition():
    for mean, sd in (WIDE, (np.array([1.0, 1.1, 0.9]), np.array([0.02, 0.5, 0.5])), (np.zeros(5), np.full(5, 3.0))):
        chance, expectation = by_definition(mean, sd)
        found = largest(mean[None], sd[None])
        np.testing.assert_allclose(found.probability[0], chance, atol=1e-10)
        assert found.expectation[0] == pytest.approx(expectation, abs=1e-9)


def test_known_expectations_of_the_largest_of_equal_ones():
    """3 / (2 sqrt(pi)) for three, 6 arctan(sqrt(2)) / pi^(3/2) for four; and 1/k each, also for many."""
    for k, known in ((3, 1.5 / np.sqrt(np.pi)), (4, 6 * np.arctan(np.sqrt(2.0)) / np.pi**1.5)):
        found = largest(np.full((2, k), 7.0), np.full((2, k), 2.0))
        np.testing.assert_allclose(found.probability, 1 / k, atol=1e-13)
        np.testing.assert_allclose(found.expectation, 7.0 + 2.0 * known, atol=1e-11)
    np.testing.assert_allclose(largest(np.zeros((1, 300)), np.ones((1, 300))).probability, 1 / 300, atol=1e-13)


def test_two_actions_follow_the_normal_distribution_function():
    rng = np.random.default_rng(1)
    mean, sd = rng.normal(size=(50, 2)), rng.exponential(size=(50, 2))
    spread = np.sqrt((sd**2).sum(axis=1))
    gap = (mean[:, 0] - mean[:, 1]) / spread
    found = largest(mean, sd)
    np.testing.assert_allclose(found.probability[:, 0], norm.cdf(gap), rtol=1e-13)
    np.testing.assert_allclose(found.probability[:, 1], norm.sf(gap), rtol=1e-13)
    textbook = mean[:, 0] * norm.cdf(gap) + mean[:, 1] * norm.cdf(-gap) + spread * norm.pdf(gap)
    np.testing.assert_allclose(found.expectation, textbook, atol=1e-13)


def test_two_actions_agree_with_quadrature():
    for mean, sd in [([0.3, -0.2], [1.0, 0.4]), ([1.0, 1.5], [0.01, 2.0]), ([5.0, 0.0], [0.5, 0.5])]:
        chance, expectation = by_definition(np.array(mean), np.array(sd))
        found = largest(np.array([mean]), np.array([sd]))
        np.testing.assert_allclose(found.probability[0], chance, atol=1e-10)
        np.testing.assert_allclose(found.expectation[0], expectation, atol=1e-10)


@pytest.mark.parametrize("actions", [3, 5])
def test_more_actions_agree_with_quadrature(actions):
    rng = np.random.default_rng(actions)
    for ratio in (1.0, 10.0, 1000.0):
        mean, sd = rng.normal(size=actions), ratio ** rng.uniform(-0.5, 0.5, size=actions)
        chance, expectation = by_definition(mean, sd)
        found = largest(mean[None], sd[None])
        np.testing.assert_allclose(found.probability[0], chance, atol=1e-10)
        np.testing.assert_allclose(found.expectation[0], expectation, atol=1e-10 * max(1.0, sd.max()))


@pytest.mark.parametrize("actions", [3, 5])
def test_more_actions_agree_with_simulation(actions):
    rng = np.random.default_rng(20 + actions)
    mean, sd = rng.normal(size=actions), rng.uniform(0.2, 2.0, size=actions)
    draws = mean + sd * rng.standard_normal((400_000, actions))
    found = largest(mean[None], sd[None])
    frequency = np.bincount(draws.argmax(axis=1), minlength=actions) / len(draws)
    chance = found.probability[0]
    allowed = STANDARD_ERRORS * np.sqrt(chance * (1 - chance) / len(draws))
    assert np.all(np.abs(frequency - chance) < allowed)
    best = draws.max(axis=1)
    assert abs(best.mean() - found.expectation[0]) < STANDARD_ERRORS * best.std() / np.sqrt(len(draws))


def test_three_equal_gaussians_have_a_known_maximum():
    found = largest(np.full((1, 3), 7.0), np.full((1, 3), 2.0))
    np.testing.assert_allclose(found.probability, 1 / 3, atol=1e-14)
    np.testing.assert_allclose(found.expectation, 7.0 + 2.0 * 1.5 / np.sqrt(np.pi), atol=1e-12)


@pytest.mark.parametrize("level", [0.0, 1e6])
def test_narrow_beside_wide(level):
    """Two sds of 1e-8 and one of 1e6: to 1e-12 the wide one sees a constant, and the narrow ones see each other."""
    narrow, wide = 2.0**-27, 1e6
    mean, sd = np.array([[level, level + narrow, -3.0]]), np.array([[narrow, narrow, wide]])
    wins = norm.cdf((-3.0 - level) / wide)
    first = norm.cdf(-1 / np.sqrt(2))
    found = largest(mean, sd)
    np.testing.assert_allclose(found.probability[0], [(1 - wins) * first, (1 - wins) * (1 - first), wins], atol=1e-12)
    gap = (level + 3.0) / wide
    np.testing.assert_allclose(found.expectation[0], level + wide * (norm.pdf(gap) - gap * norm.sf(gap)), rtol=1e-10)


def test_zero_variance_is_the_limit_of_small_variance():
    mean = np.array([[1.0, 1.0, 0.5, 0.2], [1.0, 1.0, 0.5, 0.2], [1.0, 1.0, 0.5, 0.2]])
    sd = np.array([[0.0, 0.0, 0.0, 3.0], [1e-12, 1e-12, 1e-12, 3.0], [0.0, 0.0, 0.0, 0.0]])
    found = largest(mean, sd)
    np.testing.assert_allclose(found.probability[0], found.probability[1], atol=1e-11)
    np.testing.assert_allclose(found.expectation[0], found.expectation[1], atol=1e-11)
    np.testing.assert_array_equal(found.probability[2], [0.5, 0.5, 0.0, 0.0])
    np.testing.assert_array_equal(largest(mean[:, :2], np.zeros((3, 2))).probability, 0.5)
    np.testing.assert_array_equal(largest(mean[:, 1:3], np.zeros((3, 2))).probability, [[1.0, 0.0]] * 3)


def test_constants_that_differ_in_the_last_digit_are_not_tied():
    found = largest(np.array([[1.0, 1.0 - 2**-53, 0.0]]), np.array([[0.0, 0.0, 1e6]]))
    assert found.probability[0, 1] == 0.0
    np.testing.assert_allclose(found.probability[0, 2], norm.cdf(-1e-6), atol=1e-12)


def test_far_and_crowded_wide_actions_are_resolved():
    """The hardest case for the quadrature: many equal wide variables whose maximum is narrow and far away."""
    count = 1000
    mean, sd = np.full((1, count), 8e6), np.full((1, count), 1e6)
    mean[0, 0], sd[0, 0] = 0.0, 1e-8
    found = largest(mean, sd)
    np.testing.assert_allclose(found.probability[0, 1:], 1 / (count - 1), rtol=1e-10)
    alone = largest(np.zeros((1, count - 1)), np.ones((1, count - 1)))
    np.testing.assert_allclose((found.expectation - 8e6) / 1e6, alone.expectation, atol=1e-10)


def test_units_and_rows_do_not_matter():
    """Rows of different width side by side, and the same in other units."""
    mean, sd = WIDE
    rows = np.stack([mean, 1e-6 * mean + 5.0, 1e6 * mean])
    found = largest(rows, np.array([1.0, 1e-6, 1e6])[:, None] * sd)
    np.testing.assert_allclose(found.probability, np.repeat(found.probability[:1], 3, axis=0), atol=1e-9)
    one = found.expectation[0]
    np.testing.assert_allclose(found.expectation, [one, 5.0 + 1e-6 * one, 1e6 * one], rtol=1e-9)


def test_constants_beside_random_ones_are_limits():
    """The best constant c against N(m, s^2), others far away: Phi of their distance; ties are shared."""
    mean, sd = np.array([[1.0, 1.0, 0.5, 1.5, -1e3]]), np.array([[0.0, 0.0, 0.0, 2.0, 1.0]])
    wins = norm.cdf(0.25)
    found = largest(mean, sd)
    np.testing.assert_allclose(found.probability[0], [(1 - wins) / 2, (1 - wins) / 2, 0.0, wins, 0.0], atol=1e-9)
    assert found.expectation[0] == pytest.approx(1.0 + 0.5 * wins + 2.0 * norm.pdf(0.25), abs=1e-8)


def test_constants_alone_and_beside_rows_of_random_ones():
    mean = np.array([[3.0, 3.0, 1.0], [0.0, 0.0, 0.0], [2.0, 5.0, 4.0]])
    sd = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    found = largest(mean, sd)
    np.testing.assert_allclose(found.probability, [[0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.0, 1.0, 0.0]], atol=1e-13)
    np.testing.assert_allclose(found.expectation, [3.0, 1.5 / np.sqrt(np.pi), 5.0], atol=1e-12)


def test_a_step_that_is_too_coarse_is_halved_where_it_shows():
    mean, sd = (np.stack([row, row[::-1]]) for row in WIDE)
    fine, coarse = largest(mean, sd), largest(mean, sd, step=1.5)
    np.testing.assert_allclose(coarse.probability, fine.probability, atol=1e-10)
    np.testing.assert_allclose(coarse.expectation, fine.expectation, atol=1e-10)
    assert not np.array_equal(coarse.probability, fine.probability)


def test_rows_are_batched_without_a_trace(rng):
    mean, sd = rng.normal(size=(7, 4)), rng.uniform(0.1, 2.0, size=(7, 4))
    together = largest(mean, sd)
    for numbers in (1, 3000):
        found = largest(mean, sd, numbers=numbers)
        np.testing.assert_allclose(found.probability, together.probability, atol=1e-14)
        np.testing.assert_allclose(found.expectation, together.expectation, atol=1e-14)


def summed_plainly(mean, sd, step, nodes):
    """P(a is the largest) of each, by the sum over equally spaced y with x = c + s sinh(y); not made to sum to 1."""
    first = int(np.argmax(mean - 9.0 * sd))
    c, s = mean[first], sd[first]
    low, high = -np.arcsinh(9.0), np.arcsinh(max((mean - c + 9.0 * sd) / s))
    assert (nodes - 1) * step >= high - low, "as many nodes as the step asks for"
    found = np.zeros(len(mean))
    expectation = c
    for y in np.linspace(low, high, nodes):
        z = (c + s * np.sinh(y) - mean) / sd
        for a in range(len(mean)):
            density = np.exp(-0.5 * z[a] ** 2) / np.sqrt(2.0 * np.pi) / sd[a] * np.delete(ndtr(z), a).prod()
            mass = density * s * np.cosh(y) * (high - low) / (nodes - 1)
            found[a] += mass
            expectation += s * np.sinh(y) * mass
    return found, expectation, (high - low) / step


@pytest.mark.parametrize(("k", "divided"), [(3, 1.6), (6, np.log(6.0))])
def test_a_coarse_sum_is_what_is_written(rng, k, divided):
    """Steps are so coarse that every detail shows: `step` over log k, and over 1.6 for three and four."""
    mean, sd = rng.normal(size=(2, k)), rng.uniform(0.3, 1.7, size=(2, k))
    step = 1.3 / divided
    longest = max(summed_plainly(m, s, step, 100)[2] for m, s in zip(mean, sd, strict=True))
    found = largest(mean, sd, tolerance=np.inf, step=1.3)
    for row in range(2):
        chance, expectation, _ = summed_plainly(mean[row], sd[row], step, 1 + int(np.ceil(longest)))
        np.testing.assert_allclose(found.probability[row], chance / chance.sum(), rtol=1e-12)
        assert found.expectation[row] == pytest.approx(expectation, rel=1e-12)
        assert abs(chance.sum() - 1.0) > 1e-9, "coarse"


def test_rows_are_done_again_three_times_at_most_and_only_if_they_miss_one(rng):
    mean, sd = rng.normal(size=(2, 4)), rng.uniform(0.5, 1.5, size=(2, 4))
    again, halved = largest(mean, sd, tolerance=-1.0, step=0.8), largest(mean, sd, tolerance=np.inf, step=0.1)
    np.testing.assert_array_equal(again.probability, halved.probability)
    once, plain = largest(mean, sd, tolerance=1.0, step=0.8), largest(mean, sd, tolerance=np.inf, step=0.8)
    np.testing.assert_array_equal(once.probability, plain.probability)
