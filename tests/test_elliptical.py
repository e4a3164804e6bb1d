"""Elliptical slices of all coordinates, or of some, and slices of one coordinate at a time: the right law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bellmanifold.samplers import coordinatewise, elliptical
from bellmanifold.samplers.coordinatewise import Evaluation, Visited

CHAINS = 1000


def narrow(x):
    """Log likelihood of an observation 2 with sd 0.4 of each of three coordinates; zero where the first is negative."""
    total = -0.5 * jnp.sum(((x - 2.0) / 0.4) ** 2, axis=0)
    return jnp.where(x[0] > 0, total, -jnp.inf)


def walked(turning):
    start = jax.random.normal(jax.random.key(1), (3, CHAINS)) + jnp.array([[3.0], [0], [0]])
    keys = jax.random.split(jax.random.key(7), 60)
    state = elliptical.State(start, narrow(start))
    state, _ = jax.lax.scan(lambda state, key: elliptical.step(key, state, narrow, turning), state, keys)
    return np.asarray(start), np.asarray(state.position)


def test_law_of_elliptical_slices():
    """N(0, 1) times the likelihood is N(2/1.16, 0.16/1.16) in every coordinate (the first is negative with 1e-6).

    1,000 chains of 60 steps are independent: three Kolmogorov-Smirnov tests, false alarm 3e-4 together.
    """
    _, end = walked(jnp.ones(3, dtype=bool))
    for coordinate in end:
        assert stats.kstest(coordinate, stats.norm(2 / 1.16, np.sqrt(0.16 / 1.16)).cdf).pvalue > 1e-4


def test_only_what_turns_moves():
    """Two of three coordinates have the law above, the third is where it was; false alarm 2e-4."""
    start, end = walked(jnp.array([True, False, True]))
    np.testing.assert_array_equal(end[1], start[1])
    for coordinate in end[[0, 2]]:
        assert stats.kstest(coordinate, stats.norm(2 / 1.16, np.sqrt(0.16 / 1.16)).cdf).pvalue > 1e-4


def of_the_largest(has_ceilings):
    """A likelihood of the largest of five coordinates, 0.5 with sd 0.3; the others are idle."""

    def evaluate(x):
        largest = jnp.max(x, axis=0)
        ceiling = jnp.where((x < largest) & has_ceilings, largest, -jnp.inf)
        return Evaluation(-0.5 * ((largest - 0.5) / 0.3) ** 2, ceiling)

    return evaluate


LARGEST = np.linspace(-4.0, 4.0, 20_001)
DENSITY = stats.norm.pdf(LARGEST) * stats.norm.cdf(LARGEST) ** 4 * np.exp(-0.5 * ((LARGEST - 0.5) / 0.3) ** 2)
CUMULATIVE = np.cumsum(DENSITY) / DENSITY.sum()


@pytest.mark.parametrize("has_ceilings", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_law_of_one_coordinate_at_a_time(has_ceilings):
    """The largest of five has density phi(m) Phi(m)^4 L(m), the others are independent normals below it.

    1,000 chains, 25 rounds of 5 visits; Kolmogorov-Smirnov on the largest, on another one given the largest, and
    a binomial test of which is the largest: false alarm 3e-4 together, fixed seed.
    """
    evaluate, every = of_the_largest(has_ceilings), Visited(jnp.array([0, 1, 2, 3, 4]), jnp.array(5))
    start = jax.random.normal(jax.random.key(0), (5, CHAINS))

    def move(state, key):
        visiting, refreshing = jax.random.split(key)
        state, cost = coordinatewise.visit(visiting, state, evaluate, every, jnp.array(5))
        return coordinatewise.refresh(refreshing, state), cost

    state = coordinatewise.State(start, evaluate(start))
    state, cost = jax.lax.scan(move, state, jax.random.split(jax.random.key(3), 25))
    x = np.asarray(state.position)
    np.testing.assert_allclose(evaluate(state.position).log_likelihood, state.evaluation.log_likelihood)
    largest, holder = x.max(axis=0), x.argmax(axis=0)
    assert stats.kstest(largest, lambda m: np.interp(m, LARGEST, CUMULATIVE)).pvalue > 1e-4
    other = x[(holder + 1) % 5, np.arange(CHAINS)]
    assert stats.kstest(stats.norm.cdf(other) / stats.norm.cdf(largest), "uniform").pvalue > 1e-4
    assert stats.binomtest(int((holder == 0).sum()), CHAINS, 0.2).pvalue > 1e-4
    assert float(np.mean(cost)) > 5, "the slowest chain evaluates more often than it picks"


def test_ceilings_save_evaluations_but_not_picks():
    """One chain of 1,000 picks: idle coordinates that stay idle are not looked at."""
    every = Visited(jnp.array([0, 1, 2, 3, 4]), jnp.array(5))
    start = jnp.array([[0.5], [0.0], [0.0], [0.0], [0.0]])

    @jax.jit
    def cost(has_ceilings):
        evaluate = of_the_largest(has_ceilings)
        state = coordinatewise.State(start, evaluate(start))
        return coordinatewise.visit(jax.random.key(0), state, evaluate, every, jnp.array(1000))[1]

    plain = cost(jnp.array(False))
    assert plain > 1000
    assert cost(jnp.array(True)) < 0.7 * plain


def test_chains_without_likelihood_and_coordinates_nobody_visits_stay():
    def evaluate(x):
        return Evaluation(jnp.where(x[0] > 0, 0.0, -jnp.inf), jnp.full(x.shape, -jnp.inf))

    @jax.jit
    def visit(state, count):
        visited = Visited(jnp.array([0, 1, 0]), count)
        return coordinatewise.visit(jax.random.key(0), state, evaluate, visited, jnp.array(20))

    start = jnp.array([[1.0, -1.0], [0.3, 0.4], [0.5, 0.6]])
    state, _ = visit(coordinatewise.State(start, evaluate(start)), jnp.array(2))
    np.testing.assert_array_equal(state.position[:, 1], start[:, 1])
    assert (np.asarray(state.position)[:2, 0] != np.asarray(start)[:2, 0]).all()
    assert state.position[2, 0] == start[2, 0]
    after, cost = visit(state, jnp.array(0))
    np.testing.assert_array_equal(after.position, state.position)
    assert cost == 0
