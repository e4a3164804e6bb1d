"""Elliptical slice sampling of a single chain: as the chain of one angle after the other, and of the right law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bellmanifold.samplers import elliptical


def narrow(x):
    """Log likelihood of an observation 2 with sd 0.4 of each of three coordinates; zero where the first is negative."""
    total = -0.5 * jnp.sum(((x - 2.0) / 0.4) ** 2, axis=0)
    return jnp.where(x[0] > 0, total, -jnp.inf)


def one_angle_at_a_time(key, state):
    """A lone step written down plainly: the same random numbers, one likelihood at a time."""
    key_ellipse, key_level, key_angle, key_shrink = jax.random.split(key, 4)
    x = np.asarray(state.position)
    other = np.asarray(jax.random.normal(jax.random.split(key_ellipse, 1)[0], x.shape))
    level = float(state.log_likelihood[0] + jnp.log(jax.random.uniform(key_level, (1,)))[0])
    angle = float(jax.random.uniform(key_angle, maxval=2 * jnp.pi))
    low, high = angle - 2 * np.pi, angle
    for count in range(elliptical.MOST_SHRINKS):
        fresh = jax.random.uniform(jax.random.fold_in(key_shrink, count // elliptical.AHEAD), (elliptical.AHEAD,))
        point = x * np.cos(angle) + other * np.sin(angle)
        if float(narrow(point)[0]) > level:
            return point, count + 1
        low, high = (angle, high) if angle < 0 else (low, angle)
        angle = low + float(fresh[count % elliptical.AHEAD]) * (high - low)
    raise AssertionError("never found a point")


def test_angles_ahead_are_the_angles_one_after_the_other():
    state = elliptical.init(jnp.array([[0.5], [-1.0], [0.3]]), narrow)
    rounds = set()
    for k in range(30):
        key = jax.random.key(k)
        wanted, tried = one_angle_at_a_time(key, state)
        rounds.add((tried - 1) // elliptical.AHEAD)
        state = elliptical.lone_step(key, state, narrow)
        np.testing.assert_allclose(np.asarray(state.position), wanted, rtol=1e-12)
        assert state.log_likelihood[0] == pytest.approx(float(narrow(wanted)[0]), rel=1e-9)
    assert len(rounds) > 1, "no step needed a second round of angles"


def test_law_of_a_lone_chain():
    """N(0, 1) times the likelihood is N(2/1.16, 0.16/1.16) in every coordinate (the first is negative with 1e-6).

    400 chains of 60 steps are independent: Kolmogorov-Smirnov on the last of the coordinates, false alarm 1e-4.
    """

    def last(key):
        start = elliptical.init(
            jax.random.normal(jax.random.fold_in(key, 1), (3, 1)) + jnp.array([[3.0], [0], [0]]), narrow
        )
        keys = jax.random.split(key, 60)
        end, _ = jax.lax.scan(lambda state, k: (elliptical.lone_step(k, state, narrow), None), start, keys)
        return end.position[2, 0]

    drawn = np.asarray(jax.lax.map(last, jax.random.split(jax.random.key(7), 400)))
    law = stats.norm(2 / 1.16, np.sqrt(0.16 / 1.16))
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-4
