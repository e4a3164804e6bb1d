"""Laws of large problems, kept as few landings: their distribution, and the concentration given them."""

from dataclasses import replace

import numpy as np
import pytest
from open_quadrature import log_landings
from scipy import stats
from scipy.sparse import csr_array

from bellmanifold import envs
from bellmanifold.agents.memory import Memory
from bellmanifold.chart.batch import TooLargeError
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors import laws as of_laws
from bellmanifold.posteriors.laws import close_laws, log_dirichlet, open_laws
from bellmanifold.posteriors.sparse_laws import Drawer
from bellmanifold.posteriors.system import chart_of
from bellmanifold.posteriors.target import relaxed_target

COUNTS = np.array([[0.0, 3, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0]])
DRAWS = 4000


def drawer(counts, concentration=None):
    return Drawer(open_laws(csr_array(counts), np.arange(len(counts)), concentration))


@pytest.mark.parametrize("concentration", [0.5, 5.0])
@pytest.mark.parametrize("way", ["sticks", "gammas"])
def test_laws_are_dirichlet(way, concentration):
    """Means and variances of 12 probabilities, within 5 standard errors: less than 1 false alarm in 10,000 seeds."""
    rng = np.random.default_rng(1)
    if way == "sticks":
        drawn = drawer(np.tile(COUNTS, (DRAWS, 1)), concentration).draw(rng, concentration)
        found = drawn.law.toarray().reshape(DRAWS, 2, 6)
    else:
        shape = np.broadcast_to((COUNTS + concentration / 6)[:, :, None], (2, 6, DRAWS))
        found = np.exp(log_dirichlet(rng, shape)).transpose(2, 0, 1)
    shape = COUNTS + concentration / 6
    total = shape.sum(axis=1, keepdims=True)
    mean, variance = shape / total, shape * (total - shape) / total**2 / (total + 1)
    assert np.allclose(found.sum(axis=2), 1.0)
    assert (np.abs(found.mean(axis=0) - mean) < 5 * np.sqrt(variance / DRAWS)).all()
    spread = (found - mean) ** 2
    assert (np.abs(spread.mean(axis=0) - variance) < 5 * spread.std(axis=0) / np.sqrt(DRAWS)).all()


def test_sticks_are_broken_until_hardly_anything_is_left():
    """Every stick leaves a share whose -log is exponential with rate a, until log F + their sum is below log 1e-9.

    So a Poisson number of sticks, and one more: the mean of 4,000 within 5 standard errors, less than 1 false alarm in
    a million seeds.
    """
    drawn = drawer(np.tile(COUNTS[:1], (DRAWS, 1)), 2.0).draw(np.random.default_rng(4), 2.0)
    expected = 2.0 * (drawn.log_fresh - np.log(1e-9))
    assert (expected > 0).all()
    assert abs((drawn.sticks - 1.0 - expected).sum()) < 5 * np.sqrt(expected.sum())
    assert (drawn.log_fresh + drawn.log_left <= np.log(1e-9)).all()


def test_the_largest_concentration_is_taken():
    assert drawer(COUNTS, 40.0).laws.concentration == [40.0]
    with pytest.raises(UnsupportedError, match="give at most 40"):
        drawer(COUNTS, 40.5)


@pytest.mark.parametrize("way", [pytest.param("sticks", marks=pytest.mark.slow), "gammas"])
def test_a_concentration_given_laws_that_were_drawn_with_one(way):
    """A concentration given landings, laws given it, and a concentration given these: the last is as the first.

    So the mean of their difference is 0, and that of their squares, both in logarithms: 4,000 independent draws, within
    5 standard errors, less than 1 false alarm in 100,000 seeds.
    """
    rng, source = np.random.default_rng(2), drawer(np.tile(COUNTS, (4, 1)))
    laws, found = source.laws, []
    none = np.zeros((len(laws.active), 1), dtype=bool)
    first = laws.draw_concentration(rng, DRAWS)
    for value in first:
        if way == "sticks":
            found.append(source.concentration_given(rng, source.draw(rng, float(value))))
        else:
            found.append(float(laws.concentration_given(rng, laws.draw(rng, np.array([value])), none)[0]))
    for power in (1, 2):
        gap = np.log(found) ** power - np.log(first) ** power
        assert abs(gap.mean()) < 5 * gap.std(ddof=1) / np.sqrt(DRAWS)


@pytest.mark.parametrize("forgotten", [[False, False], [True, False], [False, True], [True, True]])
def test_a_concentration_given_some_laws_and_the_landings_of_others(forgotten):
    """Two values, whose odds are those of densities: Dirichlet of laws that are known, Dirichlet-multinomial of others.

    10,000 independent draws, within 5 standard errors, in four cases: a false alarm in 400,000 seeds.
    """
    rng, values, prior = np.random.default_rng(4), np.array([1.0, 2.0]), np.array([0.6, 0.4])
    laws = replace(drawer(COUNTS).laws, concentration=values, log_prior=np.log(prior), log_posterior=np.zeros(2))
    law = np.array([[0.001, 0.7, 0.004, 0.005, 0.04, 0.25], [0.05, 0.3, 0.009, 0.001, 0.04, 0.6]])
    density = prior.copy()
    for row, gone in enumerate(forgotten):
        for k, a in enumerate(values):
            told = log_landings(a, COUNTS[row]) if gone else stats.dirichlet.logpdf(law[row], np.full(6, a / 6))
            density[k] *= np.exp(told)
    expected = density[1] / density.sum()
    batch = np.broadcast_to(np.log(law)[:, :, None], (2, 6, 10_000))
    gone = np.broadcast_to(np.array(forgotten)[:, None], (2, 10_000))
    found = laws.concentration_given(rng, batch, gone)
    assert set(found) == set(values)
    assert abs((found == 2.0).mean() - expected) < 5 * np.sqrt(expected * (1 - expected) / 10_000)


def test_a_given_concentration_stays():
    laws = drawer(COUNTS, 0.7).laws
    same, none = np.full((2, 6, 3), -np.log(6)), np.zeros((2, 3), dtype=bool)
    assert laws.concentration_given(np.random.default_rng(5), same, none).tolist() == [0.7] * 3


def test_rows_of_another_point_and_what_is_carried_over():
    rng = np.random.default_rng(3)
    before, more = drawer(COUNTS, 1.0), COUNTS.copy()
    more[1, 2] = 1
    one, other = before.draw(rng, 1.0), before.draw(rng, 1.0)
    mixed = one.with_rows(other, np.array([1]))
    np.testing.assert_array_equal(mixed.law.toarray(), [one.law.toarray()[0], other.law.toarray()[1]])
    for name in ("log_fresh", "sticks", "log_left"):
        assert getattr(mixed, name).tolist() == [getattr(one, name)[0], getattr(other, name)[1]]
    after = drawer(more, 1.0).carry(rng, before, one).law.toarray()
    np.testing.assert_array_equal(after[0], one.law.toarray()[0])
    assert after[1, 2] > 0.0
    assert not np.array_equal(after[1], one.law.toarray()[1])


def test_laws_of_many_states_have_no_batch_chart():
    """Whoever draws: found by a user as a crash of `learn --until-loss`."""
    model = envs.deep_sea(11)
    memory = Memory(model.opened())
    memory.add(np.array([0]), np.array([0.0]))
    memory.land(0, 1)
    whole, laws, _ = close_laws(memory, "dirichlet", all_rows=True)
    target = relaxed_target(memory, 0.0, 10.0, reward=memory.mean_reward.copy())
    target = replace(target, model=whole, laws=laws)
    for only_observed in (False, True):
        with pytest.raises(TooLargeError, match="67 states: too many"):
            chart_of(target, only_observed=only_observed)


@pytest.mark.parametrize("concentration", [1e-6, 1.0, 1e6, 1e9, 1e12])
def test_landings_keep_their_digits_at_any_concentration(concentration):
    """A hundred pairs that led to two of ten states once each: (a/10)^2 / (a (a + 1)) for each of them."""
    landed = csr_array((np.ones(200), (np.repeat(np.arange(100), 2), np.tile([2, 7], 100))), shape=(100, 10))
    found = of_laws.log_landings(landed, np.array([concentration]))
    expected = 100 * (np.log(concentration / (concentration + 1.0)) - 2.0 * np.log(10.0))
    assert found == pytest.approx([expected], abs=1e-6)
