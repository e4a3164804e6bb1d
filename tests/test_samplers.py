"""HMC's tuning against the paper's words, and both samplers on laws that are known."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bellmanifold._util.jax_setup  # noqa: F401 (switches double precision on)
from bellmanifold_paper.engines import hmc, nuts

SD = jnp.array([0.5, 1.0, 3.0])


def log_normal(x, own):
    """Independent normals with given means and standard deviations, up to a constant."""
    mean, sd = own
    return -0.5 * jnp.sum(((x - mean) / sd) ** 2, axis=0)


@pytest.fixture(scope="module")
def run():
    """One compiled program for all of HMC's tests."""
    jitted = jax.jit(hmc.episode, static_argnames=("log_density", "draws", "tuning"))

    def call(keys, state, own, tuning=hmc.PAPER, log_density=log_normal):
        return jitted(keys, state, log_density, own, 600, tuning)

    return call


def chains(count, steps, seed=0):
    keys = jax.random.split(jax.random.key(seed), count)
    own = (jnp.full((count, 3), 2.0, dtype=float), jnp.ones((count, 3)) * SD)
    return keys, hmc.init(jnp.zeros((count, 3)), jnp.asarray(steps)), own


def the_papers_words(step, acceptances, increase, decrease):
    """Step sizes of the windows and of the walk after them, told by loops and ifs."""
    steps, above_target, crossed, before = [], None, False, None
    for acceptance in acceptances:
        steps.append(step)
        above = acceptance > 0.7
        if above:
            above_target = step
        if before is not None and above != before:
            crossed = True
        before = above
        step *= (increase if above else decrease)[int(crossed)]
    return steps, step if above_target is None else above_target


@pytest.mark.parametrize("tuning", [hmc.PAPER, hmc.RETUNED], ids=["paper", "retuned"])
def test_step_sizes_follow_the_rule(run, tuning):
    """Starts far too small, about right, and so large that no window reaches the target."""
    keys, state, own = chains(6, [1e-3, 0.05, 0.3, 1.0, 5.0, 1e4])
    after, _, info = run(keys, state, own, tuning)
    kinds = set()
    for k in range(6):
        steps, final = the_papers_words(
            float(state.step_size[k]), np.asarray(info.window_acceptance[k]), tuning.increase, tuning.decrease
        )
        np.testing.assert_allclose(info.window_step_size[k], steps, rtol=1e-12)
        assert float(after.step_size[k]) == pytest.approx(final, rel=1e-12)
        above = np.asarray(info.window_acceptance[k]) > 0.7
        kinds.add("none" if not above.any() else "all" if above.all() else "crossed")
    assert kinds == {"none", "all", "crossed"}
    assert tuning.windows == 10
    assert tuning.window == 100


def test_variances_of_the_last_500_points_are_carried_over(run):
    keys, state, own = chains(6, [0.3] * 6)
    after, points, _ = run(keys, state, own)
    np.testing.assert_allclose(after.variance, np.var(np.asarray(points)[:, -500:], axis=1), rtol=1e-12)
    np.testing.assert_array_equal(after.position, points[:, -1])


def test_a_chain_that_never_moves_keeps_its_variance(run):
    keys, state, own = chains(6, [1e6] * 6)
    state = state._replace(variance=2.0 * state.variance)
    after, points, info = run(keys, state, own)
    assert np.ptp(np.asarray(points), axis=1).max() == 0.0
    assert float(info.acceptance.max()) == 0.0
    np.testing.assert_array_equal(after.variance, np.full((6, 3), 2.0))


def test_the_preconditioner_undoes_the_scales(run):
    """With variances SD^2 the chain is that of a standard normal law, stretched: the same keys give the same points."""
    keys, state, (mean, sd) = chains(6, [0.3] * 6)
    _, standard, _ = run(keys, state._replace(position=jnp.zeros((6, 3))), (0.0 * mean, jnp.ones_like(sd)))
    _, stretched, _ = run(keys, state._replace(position=mean, variance=sd**2), (mean, sd))
    np.testing.assert_allclose(stretched, mean[:, None] + sd[:, None] * standard, rtol=0, atol=1e-9)


def test_same_seed_same_chain_and_a_batch_is_its_chains(run):
    keys, state, own = chains(6, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    own = (own[0] + jnp.arange(6.0)[:, None], own[1])
    after, points, _ = run(keys, state, own)
    again, points_again, _ = run(keys, state, own)
    np.testing.assert_array_equal(points, points_again)
    np.testing.assert_array_equal(after.variance, again.variance)
    _, alone, _ = run(keys[3:4], *jax.tree.map(lambda leaf: leaf[3:4], (state, own)))
    np.testing.assert_allclose(alone[0], points[3], rtol=0, atol=1e-12)
    _, other, _ = run(jax.random.split(jax.random.key(1), 6), state, own)
    assert not np.array_equal(points, other)


def test_chains_are_those_of_blackjax(run):
    """The same keys draw the same numbers: 40 moves end where BlackJAX's kernel ends, up to rounding."""
    keys, state, (mean, sd) = chains(6, [0.1, 0.2, 0.3, 0.4, 0.5, 2.0])
    state = state._replace(variance=sd**1.5)
    tuning = hmc.Tuning(windows=0)
    _, points, info = jax.jit(hmc.episode, static_argnums=(2, 4, 5))(keys, state, log_normal, (mean, sd), 40, tuning)
    kernel = blackjax.hmc.build_kernel()

    def density(x):
        return log_normal(x, (mean[0], sd[0]))

    @jax.jit
    def move(key, chain, step, variance):
        with jax.numpy_dtype_promotion("standard"):  # BlackJAX mixes integers and floats
            return kernel(key, chain, density, step, variance, tuning.leapfrogs)

    rejected = 0
    for k in range(6):
        chain = blackjax.hmc.init(state.position[k], density)
        for number, key in enumerate(jax.random.split(keys[k], 40)):
            chain, theirs = move(key, chain, state.step_size[k], state.variance[k])
            np.testing.assert_allclose(points[k, number], chain.position, rtol=0, atol=1e-9)
            np.testing.assert_allclose(info.acceptance[k, number], theirs.acceptance_rate, rtol=1e-7, atol=1e-12)
            assert bool(info.is_divergent[k, number]) == bool(theirs.is_divergent)
            rejected += not theirs.is_accepted
    assert 10 < rejected < 200


def test_moments_of_a_normal_law_by_hmc(run):
    """Three means and three second moments within 4 standard errors of 256 chains: false alarms 1e-3 in all.

    A chain's second moment is skewed to the right: of 64 chains the t statistic would be so to the left, noticeably.
    """
    keys, state, own = chains(256, [0.3] * 256)
    state, _, _ = run(keys, state, own)
    _, points, _ = run(jax.random.split(jax.random.key(5), 256), state, own)
    within_four_errors(points)


@pytest.mark.slow
def test_moments_of_a_normal_law_by_nuts():
    """As for HMC: false alarms 1e-3 in all."""
    keys, state, own = chains(64, [0.3] * 64)
    adapted = jax.jit(nuts.adapt, static_argnames=("log_density", "steps"))(keys, state.position, log_normal, own, 300)
    walk = jax.jit(nuts.walk, static_argnames=("log_density", "draws"))
    _, points, acceptance, is_divergent = walk(keys, adapted, log_normal, own, 300)
    within_four_errors(points)
    assert 0.6 < float(acceptance.mean()) < 0.95
    assert not bool(is_divergent.any())
    again = walk(keys, adapted, log_normal, own, 300)[1]
    np.testing.assert_array_equal(points, again)


def within_four_errors(points):
    x = np.asarray(points) - 2.0
    for moment, expected in ((x.mean(axis=1), np.zeros(3)), ((x**2).mean(axis=1), np.asarray(SD) ** 2)):
        error = moment.std(axis=0, ddof=1) / np.sqrt(len(moment))
        assert np.all(np.abs(moment.mean(axis=0) - expected) < 4 * error)


@pytest.mark.parametrize(
    ("epsilon", "prior_scale", "step"),
    [(0.01, 10.0, 1e-4), (0.2, 10.0, 0.01), (5.0, 10.0, 0.1), (0.5, 1.0, 0.3), (0.001, 10.0, 1e-5), (20.0, 10.0, 0.4)],
)
def test_first_step_sizes(epsilon, prior_scale, step):
    assert hmc.first_step_size(epsilon, prior_scale) == pytest.approx(step)
