"""Residuals and likelihood, written out pair by pair."""

from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import random_problem
from scipy import stats

from bellmanifold.envs.building import Move, from_moves
from bellmanifold_paper.bellman import UNROLLED, Sums, log_likelihood, residuals, state_values, transitions


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


def even_problem(rng, states, actions, successors):
    """Every state has as many actions, every pair leads to as many places, one of which may be the goal."""
    names = [f"s{k}" for k in range(states)] + ["goal"]
    moves = {}
    for name in names[:-1]:
        for action in range(actions):
            where = rng.choice(names, successors, replace=False)
            law = dict(zip(where, rng.dirichlet(np.ones(successors)), strict=True))
            moves[name, f"a{action}"] = Move(0.0, law)
    return from_moves("even", moves, start="s0")


def plain_slopes(model, q, slope):
    """d/dq of sum_i slope_i g_i(q): best values share what is taken of their state, however many tie."""
    found = slope.copy()
    for e, i in enumerate(model.next_pair):
        if model.next_state[e] < model.n_states:
            own = np.arange(*model.pair_start[model.next_state[e] :][:2])
            best = own[q[own] == q[own].max()]
            found[best] -= model.next_prob[e] * slope[i] / len(best)
    return found


@pytest.mark.parametrize("kind", ["even", "even, without tables", "uneven", "long rows"])
def test_residuals_of_many_chains_and_their_slopes(rng, kind):
    """Values lie along two more axes; in the even problem two or three tie in some states."""
    successors = 10 if kind == "long rows" else 3
    model = random_problem(rng, 5) if kind.startswith("uneven") else even_problem(rng, 11, 3, successors)
    law = transitions(model)
    assert law.actions == (0 if kind.startswith("uneven") else 3)
    assert law.tables is not None
    assert law.tables.after.entry.shape == (model.n_pairs, np.diff(model.next_start).max())
    law = replace(law, tables=None) if kind.endswith("without tables") else law
    q, slope = rng.normal(size=(2, model.n_pairs, 2, 2))
    if law.actions:
        q[:2], q[3:6, 1], q[7:9, :, 1] = 1.5, 2.5, 3.5

    @jax.jit
    def pulled_back(law, q, slope):
        found, back = jax.vjp(lambda x: residuals(law, x), q)
        return found, *back(slope)

    found, slopes = pulled_back(law, jnp.asarray(q), jnp.asarray(slope))
    for chain in np.ndindex(2, 2):
        own = (slice(None), *chain)
        np.testing.assert_allclose(found[own], plain_residuals(model, q[own]), atol=1e-14)
        np.testing.assert_allclose(slopes[own], plain_slopes(model, q[own], slope[own]), atol=1e-14)


@pytest.mark.parametrize("width", [1, UNROLLED, UNROLLED + 1])
def test_sums_of_rows_short_and_long(rng, width):
    entry, weight, values = rng.integers(0, 4, (3, width)), rng.normal(size=(3, width)), rng.normal(size=(4, 2))
    expected = [sum(weight[row, k] * values[entry[row, k]] for k in range(width)) for row in range(3)]
    found = jax.jit(Sums.of)(Sums(jnp.asarray(entry), jnp.asarray(weight)), jnp.asarray(values))
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def star(leaves, stays):
    """Leaves that lead to one state, which ends, and may stay."""
    moves = {(f"{k:04}", "in"): Move(0.0, {"hub": 1.0}) for k in range(leaves)} | {
        ("hub", "out"): Move(0.0, {"goal": 1.0})
    }
    return from_moves("star", moves | ({("hub", "stay"): Move(0.0, {"hub": 1.0})} if stays else {}), start="0000")


def test_tables_are_not_padded_far_beyond_the_problem():
    """32 states, of which one has 32 predecessors: 1,024 entries are still made; 33 are too many, as more states are.
    A table of 1,101 states with one predecessor each is no larger than the problem."""
    assert transitions(star(31, stays=True)).tables is not None
    assert transitions(star(32, stays=False)).tables is None
    names = [f"{k:04}" for k in range(1101)] + ["goal"]
    corridor = from_moves("corridor", {(k, "on"): Move(0.0, {n: 1.0}) for k, n in pairwise(names)}, start="0000")
    tables = transitions(corridor).tables
    assert tables is not None
    assert tables.before.entry.shape == (1101, 1)
    assert transitions(star(1100, stays=True)).tables is None
