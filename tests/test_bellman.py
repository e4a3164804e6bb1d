"""Residuals and likelihood, written out pair by pair."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import random_problem
from scipy import stats

from bellmanifold.chart.bellman import log_likelihood, residuals, state_values, transitions


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(20261115)
    model = random_problem(rng, states=6, goal_share=0.3)
    return model, rng.normal(size=model.n_pairs), rng


def plain_residuals(model, q):
    """q_i - sum p(s'|i) max_a q(s', a), the goal being worth nothing."""
    g = q.copy()
    for i in range(model.n_pairs):
        for e in range(model.next_start[i], model.next_start[i + 1]):
            s = model.next_state[e]
            if s < model.n_states:
                g[i] -= model.next_prob[e] * q[model.pair_start[s] : model.pair_start[s + 1]].max()
    return g


def test_values_of_states_are_the_largest_of_their_pairs(case):
    model, q, _ = case
    np.testing.assert_array_equal(state_values(transitions(model), jnp.asarray(q)), model.best(q))


def test_residuals_pair_by_pair(case):
    model, q, _ = case
    found = jax.jit(residuals)(transitions(model), jnp.asarray(q))
    np.testing.assert_allclose(found, plain_residuals(model, q), atol=1e-14)


def test_likelihood_is_the_product_of_normal_densities_of_observed_pairs(case):
    """Rewards and widths of pairs that were not observed do not matter, not even 0 and NaN."""
    model, q, rng = case
    observed = np.arange(model.n_pairs) % 3 != 1
    reward = np.where(observed, rng.normal(size=model.n_pairs), np.nan)
    scale = np.where(observed, rng.uniform(0.3, 2.0, model.n_pairs), 0.0)
    expected = stats.norm.logpdf(reward, loc=plain_residuals(model, q), scale=np.where(observed, scale, 1.0))
    arrays = (jnp.asarray(array) for array in (q, observed, reward, scale))
    found = float(jax.jit(log_likelihood)(transitions(model), *arrays))
    assert found == pytest.approx(expected[observed].sum(), rel=1e-13)
