"""The rejection oracle against one-dimensional quadrature on the two-state problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import random_problem
from scipy.special import ndtr
from scipy.stats import norm, truncnorm

from bellmanifold import envs
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.policies import action_probabilities
from bellmanifold.posteriors.target import ValuePrior, relaxed_target
from bellmanifold.problem.dataset import Dataset
from bellmanifold_paper.engines.rejection import rejection, satisfied_equations


def gauss_legendre(low: float, high: float, count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    x, w = np.polynomial.legendre.leggauss(count)
    return low + (high - low) * (x + 1) / 2, w * (high - low) / 2


@pytest.mark.parametrize(("epsilon", "prior_scale"), [(0.5, 1.0), (1.5, 2.0)])
def test_two_states_against_quadrature(epsilon, prior_scale):
    """Given go, stay lies in an interval: within epsilon of go - 1, and above go whenever epsilon > 1.

    False alarms: six comparisons at 4 standard errors with 31 degrees of freedom, 2.4e-3 in all.
    """
    model = envs.two_state()
    found = rejection(relaxed_target(Dataset.complete(model), epsilon, prior_scale, "uniform"), seed=2)
    go, weight = gauss_legendre(-1 - epsilon, -1 + epsilon)
    low = go - 1 - epsilon
    high = np.full_like(go, np.inf) if epsilon > 1 else go - 1 + epsilon
    prior = weight * norm.pdf(go, scale=prior_scale)
    mass = prior * (ndtr(high / prior_scale) - ndtr(low / prior_scale))
    improper = prior * ndtr(-go / prior_scale) if epsilon > 1 else np.zeros_like(go)
    inside = truncnorm(low / prior_scale, high / prior_scale, scale=prior_scale)
    mean = np.array([(mass * inside.mean()).sum(), (mass * go).sum()]) / mass.sum()
    square = np.array([(mass * (inside.var() + inside.mean() ** 2)).sum(), (mass * go**2).sum()]) / mass.sum()

    action = action_probabilities(model, found.table)
    assert abs(action.value[0] - improper.sum() / mass.sum()) <= 4 * action.se[0] + 1e-12
    assert np.all(np.abs(found.q_mean.value - mean) <= 4 * found.q_mean.se)
    assert abs(found.log_evidence.value - np.log(mass.sum() / (2 * epsilon) ** 2)) <= 4 * found.log_evidence.se
    four_errors = 4 / np.sqrt(
        2 * found.diagnostics["accepted"]
    )  # of a standard deviation, where tails are no heavier than normal
    assert found.q_sd.value == pytest.approx(np.sqrt(square - mean**2), rel=four_errors)
    assert found.diagnostics["accepted"] > 10**4


def test_equations_are_checked_draw_by_draw(rng):
    """Random problems, some pairs seen: |theta_i - sum p V - r_i| < epsilon, written out; coupled states only."""
    kept = 0
    for _ in range(20):
        model = random_problem(rng, states=4)
        pairs = np.flatnonzero(rng.random(model.n_pairs) < 0.4)
        target = relaxed_target(Dataset(model, pairs, model.reward[pairs]), 1.5, 2.0, "uniform")
        theta = np.zeros((50, model.n_pairs))
        theta[:, target.own] = rng.normal(size=(50, len(target.own)))
        found = satisfied_equations(target, theta)
        assert found.shape == (50, len(pairs))
        for q, holds in zip(theta, found, strict=True):
            best = np.where(target.coupled, model.best(q), np.nan)
            residual = q - (model.backup(best) - model.reward)
            np.testing.assert_array_equal(holds, np.abs(residual - model.reward)[pairs] < 1.5)
        kept += found.all(axis=1).sum()
    assert kept > 50


def test_draws_do_not_depend_on_batches_and_too_few_are_refused():
    """Draws are rounded up to 32 equal replicates; exactly as many kept ones as an answer needs are enough."""
    target = relaxed_target(Dataset.complete(envs.two_state()), 1.5, 2.0, "uniform")
    found = rejection(target, draws=2**12 + 1, min_accepted=1)
    draws, accepted = found.diagnostics["draws"], found.diagnostics["accepted"]
    assert draws == 2**12 + 32
    assert rejection(target, draws=2**12 + 1, min_accepted=accepted).effective_sample_size == accepted
    with pytest.raises(UnsupportedError, match=f"{accepted} of {draws} prior draws satisfy the 2 observed"):
        rejection(target, draws=2**12 + 1, min_accepted=accepted + 1)
    again = rejection(target, draws=2**12 + 1, min_accepted=1, held=7)
    np.testing.assert_array_equal(again.table.weight, found.table.weight)
    np.testing.assert_array_equal(again.q_mean.value, found.q_mean.value)
    count = found.table.weight.sum(axis=1)
    error = count.std(ddof=1) / np.sqrt(32) / count.mean()
    assert float(found.log_evidence.se) == pytest.approx(error)
    assert float(found.log_evidence.value) == pytest.approx(np.log(accepted / draws) - 2 * np.log(3.0))


def test_kept_draws_satisfy_the_equations():
    model = envs.four_state()
    data = Dataset.from_pairs(model, [("2", "to-3"), ("3", "to-4")])
    found = rejection(relaxed_target(data, 1.0, 2.0, "uniform"), draws=2**18)
    assert np.array_equal(found.table.coupled, [False, True, True])
    assert abs(found.q_mean.value[4] + 1.0) < 1.0
    assert found.q_sd.value[4] < 1.0
    assert np.array_equal(found.q_sd.value[:2], [2.0, 2.0])


def choice(prior, epsilon):
    """One state: `x` was seen and paid -1, `y` was not; each has its own prior."""
    moves = {("s", "x"): Move(-1.0, {"goal": 1.0}), ("s", "y"): Move(-1.0, {"goal": 1.0})}
    data = Dataset.from_pairs(from_moves("choice", moves, start="s"), [("s", "x")])
    return relaxed_target(data, epsilon, prior, "uniform")


def test_every_pair_has_its_own_prior():
    """x is N(0.5, 2^2) cut off at -1 +- 0.8, y is N(-1.2, 0.5^2): y is better with a probability by quadrature.

    False alarms: seven comparisons at 4 standard errors with 31 degrees of freedom, 3e-3 in all.
    """
    found = rejection(choice(ValuePrior(np.array([0.5, -1.2]), np.array([2.0, 0.5])), 0.8), draws=2**19)
    inside = truncnorm((-1.8 - 0.5) / 2.0, (-0.2 - 0.5) / 2.0, loc=0.5, scale=2.0)
    x, weight = gauss_legendre(-1.8, -0.2)
    better = (weight * inside.pdf(x) * norm.sf(x, -1.2, 0.5)).sum()
    action = action_probabilities(envs.two_state(), found.table)
    assert np.all(np.abs(action.value - [1 - better, better]) <= 4 * action.se)
    assert np.all(np.abs(found.q_mean.value - [inside.mean(), -1.2]) <= 4 * found.q_mean.se)
    four_errors = 4 / np.sqrt(2 * found.diagnostics["accepted"])
    assert found.q_sd.value == pytest.approx([inside.std(), 0.5], rel=four_errors)
    evidence = np.log((norm.cdf(-0.2, 0.5, 2.0) - norm.cdf(-1.8, 0.5, 2.0)) / 1.6)
    assert abs(float(found.log_evidence.value) - evidence) <= 4 * float(found.log_evidence.se)


def test_an_action_that_no_draw_met_has_an_error_and_small_spreads_survive():
    """Values of 1e6 give or take 1e-3, and one that is a hundred thousand deviations below them.

    False alarms: two sds at 4 standard errors, 1.3e-4 in all.
    """
    prior = ValuePrior(np.array([1e6, 1e6 - 100.0]), np.array([1e-3, 1e-3]))
    whole = replace(choice(prior, 1e-3), reward=np.array([1e6, 0.0]))
    found = rejection(whole, draws=2**17)
    accepted = found.diagnostics["accepted"]
    action = action_probabilities(whole.model, found.table)
    assert action.value.tolist() == [1.0, 0.0]
    assert action.se == pytest.approx([1 / (accepted + 2)] * 2)
    assert found.q_sd.value == pytest.approx([1e-3 * truncnorm(-1.0, 1.0).std(), 1e-3], rel=4 / np.sqrt(2 * accepted))


def test_no_data_keeps_everything():
    model = envs.four_state()
    found = rejection(relaxed_target(Dataset.from_pairs(model, []), 1.0, 2.0, "uniform"), draws=2**12)
    assert found.diagnostics["accepted"] == found.diagnostics["draws"]
    assert found.log_evidence.value == 0.0
    action = action_probabilities(model, found.table)
    assert action.value == pytest.approx([0.5, 0.5, 0.5, 0.5, 1.0])
    assert not action.se.any(), "nothing was estimated"


def test_refusals():
    complete = Dataset.complete(envs.four_state())
    with pytest.raises(UnsupportedError, match=r"prior draws satisfy the 5 observed.*chart engine") as refusal:
        rejection(relaxed_target(complete, 1e-3, 2.0, "uniform"), draws=2**16)
    assert refusal.value.exit_code == 3
    with pytest.raises(UnsupportedError, match="uniform kernel"):
        rejection(relaxed_target(complete, 0.1, 2.0))
    with pytest.raises(UnsupportedError, match="uniform kernel"):
        rejection(relaxed_target(complete, 0.0, 2.0, "uniform"))
