"""TD posteriors against formulas, quadrature, brute force and the definition of each variant.

Monte Carlo checks use fixed seeds and allow 5 standard errors; fewer than 40 numbers are compared that way, so a
correct program fails for at most 1 seed in 40,000.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

from bellmanifold import SSP, Dataset, envs, solve
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.gaussian.maximum import largest
from bellmanifold.posteriors.kernels import Uniform
from bellmanifold.posteriors.target import Target, ValuePrior, relaxed_target
from bellmanifold_paper import td

STANDARD_ERRORS = 5.0


def fan(actions: int, reward: float = -1.0) -> SSP:
    """A start with one action to a state that has many, all of them to the goal."""
    moves = {("start", "go"): Move(reward, {"fan": 1.0})}
    moves |= {("fan", f"a{k}"): Move(reward - k, {"goal": 1.0}) for k in range(actions)}
    return from_moves("fan", moves, start="start")


def seen(model: SSP, pairs: list[int], epsilon: float = 0.1, prior_scale: float = 2.0) -> Target:
    pair = np.array(pairs, dtype=np.int64)
    return relaxed_target(Dataset(model, pair, model.reward[pair]), epsilon, prior_scale)


# --- one update


def test_initial_is_the_prior() -> None:
    model = envs.deep_sea(depth=3)
    prior = td.initial(model, 4.0)
    np.testing.assert_array_equal(prior.q_mean, 0.0)
    np.testing.assert_array_equal(prior.q_sd, 4.0)
    np.testing.assert_array_equal(td.action_probabilities(model, prior), 0.5)
    np.testing.assert_allclose(td.expected_best(model, prior), 4.0 / np.sqrt(np.pi), rtol=1e-14)


def test_td_max_starts_from_the_expected_maximum_of_the_prior() -> None:
    """Two prior actions: sigma / sqrt(pi); TD itself starts from 0."""
    model = envs.deep_sea(depth=2)
    target = seen(model, [0], epsilon=0.5, prior_scale=3.0)
    prior = td.initial(model, 3.0)
    precision = 1 / 3.0**2 + 1 / 0.5**2
    reward = model.reward[0]
    expected = (reward + 3.0 / np.sqrt(np.pi)) / 0.5**2 / precision
    np.testing.assert_allclose(td.update_td_max(prior, target).q_mean[0], expected, rtol=1e-14)
    np.testing.assert_allclose(td.update_td(prior, target).q_mean[0], reward / 0.5**2 / precision, rtol=1e-14)
    posterior = td.update_td(prior, target)
    np.testing.assert_allclose(posterior.variance[0], 1 / precision, rtol=1e-14)
    np.testing.assert_array_equal(posterior.variance[1:], 9.0)
    np.testing.assert_array_equal(posterior.q_mean[1:], 0.0)


@pytest.mark.parametrize("same", [True, False])
def test_td_is_gaussian_regression(same: bool) -> None:
    """Against the textbook's matrix formula, on a problem with random transitions, unequal kernel widths and priors."""
    model = envs.deep_sea(depth=3, slip=0.2)
    rng = np.random.default_rng(3)
    observed = rng.random(model.n_pairs) < 0.6
    scale = np.where(observed, rng.uniform(0.1, 1.0, model.n_pairs), 0.0)
    own = ValuePrior(rng.normal(size=model.n_pairs), rng.uniform(0.3, 3.0, model.n_pairs))
    prior = ValuePrior.same(model, 2.0) if same else own
    target = Target(model, observed, np.where(observed, model.reward, 0.0), scale, prior)
    previous = td.TDPosterior(np.ones(1), rng.normal(size=(1, model.n_pairs)), np.ones(model.n_pairs))
    guess = model.best(previous.mean[0])
    y = (model.backup(guess))[observed]
    design = np.eye(model.n_pairs)[observed]
    noise = np.diag(1 / scale[observed] ** 2)
    precision = np.diag(1 / prior.sd**2)
    covariance = np.linalg.inv(precision + design.T @ noise @ design)
    posterior = td.update_td(previous, target)
    expected = covariance @ (precision @ prior.mean + design.T @ noise @ y)
    np.testing.assert_allclose(posterior.q_mean, expected, atol=1e-12)
    np.testing.assert_allclose(posterior.variance, np.diag(covariance), rtol=1e-12)


@pytest.mark.parametrize("epsilon", [1e-6, 0.0])
def test_td_converges_to_the_true_values_on_an_acyclic_problem(epsilon: float) -> None:
    model = envs.deep_sea(depth=4, slip=0.1)
    target = relaxed_target(Dataset.complete(model), epsilon, 1e4)
    plain = best = td.initial(model, 1e4)
    for _ in range(4):
        plain, best = td.update_td(plain, target), td.update_td_max(best, target)
    np.testing.assert_allclose(plain.q_mean, solve(model).q, atol=1e-11)
    np.testing.assert_allclose(best.q_mean, solve(model).q, atol=1e-5)
    np.testing.assert_allclose(plain.q_sd, epsilon, atol=1e-12)


def test_td_needs_one_update_a_level() -> None:
    """After k updates exactly the states at most k moves from the goal know their values."""
    model = envs.deep_sea(depth=4)
    target = relaxed_target(Dataset.complete(model), 0.0, 10.0)
    posterior = td.initial(model, 10.0)
    right = np.abs(td.update_td(posterior, target).q_mean - solve(model).q) < 1e-12
    row = np.array([int(model.pair_name(i)[0].split(",")[0]) for i in range(model.n_pairs)])
    assert right[row == 3].all()
    assert not right[row == 0].any()


# --- the ensemble


@pytest.mark.parametrize("same", [True, False])
def test_ensemble_weights_are_marginal_likelihoods(same: bool) -> None:
    """One-dimensional integrals of prior times likelihood, pair by pair, for every sample; priors may differ."""
    model = envs.deep_sea(depth=3)
    observed = [0, 1, 2, 5, 9]
    target = seen(model, observed, epsilon=0.7, prior_scale=1.5)
    if not same:
        target = replace(target, prior=ValuePrior(np.linspace(-1.0, 1.0, 12), np.linspace(0.5, 2.0, 12)))
    prior = td.initial(model, 1.5)
    samples = td.draw(prior, np.random.default_rng(7), 4)
    posterior = td.update_td_en(prior, target, np.random.default_rng(7), members=4)

    def evidence(sample: np.ndarray) -> float:
        guess = np.append(model.best(sample), 0.0)
        total = 1.0
        for i in observed:
            after = model.next_prob[model.next_start[i] : model.next_start[i + 1]]
            ahead = after @ guess[model.next_state[model.next_start[i] : model.next_start[i + 1]]]
            reward = model.reward[i]

            def joint(q: float, i: int = i, reward: float = reward, ahead: float = ahead) -> float:
                own = norm.pdf(q, target.prior.mean[i], target.prior.sd[i])
                return float(own * norm.pdf(reward, q - ahead, 0.7))

            total *= quad(joint, -20, 20, epsabs=1e-14, epsrel=1e-12)[0]
        return total

    direct = np.array([evidence(sample) for sample in samples])
    np.testing.assert_allclose(posterior.weights, direct / direct.sum(), rtol=1e-9)


def test_ensemble_is_the_mixture_the_paper_defines() -> None:
    """Posterior mean and sd of one pair by quadrature of prior times the average likelihood."""
    model = envs.two_state()
    target = seen(model, [0], epsilon=0.8, prior_scale=2.0)
    prior = td.initial(model, 2.0)
    guesses = td.draw(prior, np.random.default_rng(5), 6).max(axis=1)
    posterior = td.update_td_en(prior, target, np.random.default_rng(5), members=6)

    def moment(power: int) -> float:
        def integrand(q: float) -> float:
            return float(q**power * norm.pdf(q, 0, 2.0) * norm.pdf(-1.0, q - guesses, 0.8).mean())

        return quad(integrand, -20, 20, epsabs=1e-14, epsrel=1e-12)[0]

    mean = moment(1) / moment(0)
    np.testing.assert_allclose(posterior.q_mean[0], mean, atol=1e-10)
    np.testing.assert_allclose(posterior.q_sd[0], np.sqrt(moment(2) / moment(0) - mean**2), atol=1e-10)


def test_ensemble_from_zeros_is_td_once() -> None:
    """The published code's start: every sample makes the same guess, 0, which is also TD's first guess."""
    model = envs.deep_sea(depth=3)
    target = seen(model, [0, 3, 4])
    ensemble = td.update_td_en(td.zeros(model), target, np.random.default_rng(0), members=10)
    plain = td.update_td(td.initial(model, 2.0), target)
    np.testing.assert_allclose(ensemble.weights, 0.1)
    np.testing.assert_array_equal(ensemble.mean, np.repeat(plain.mean, 10, axis=0))
    from_prior = td.update_td_en(td.initial(model, 2.0), target, np.random.default_rng(0), members=10)
    assert not np.allclose(from_prior.mean, ensemble.mean)


def test_small_spreads_of_huge_values_survive() -> None:
    """Components 1e-3 apart about 1e8, each with an sd of 1e-3: sqrt(2) 1e-3 in all."""
    mean = 1e8 + np.array([[-1e-3], [1e-3]])
    posterior = td.TDPosterior(np.full(2, 0.5), mean, np.array([1e-6]))
    np.testing.assert_allclose(posterior.q_sd, np.sqrt(2.0) * 1e-3, rtol=1e-4)


def test_ensemble_weights_survive_hopeless_targets() -> None:
    model = fan(3, reward=-1e6)
    target = seen(model, [0, 1], epsilon=1e-8, prior_scale=1e-3)
    posterior = td.update_td_en(td.initial(model, 1e-3), target, np.random.default_rng(0), members=20)
    assert np.isfinite(posterior.weights).all()
    np.testing.assert_allclose(posterior.weights.sum(), 1.0)


# --- answers


def ensemble_after(updates: int, members: int = 20) -> tuple[SSP, td.TDPosterior]:
    model = envs.deep_sea(depth=3)
    target = seen(model, [0, 1, 3, 5, 10], epsilon=0.1, prior_scale=1.0)
    rng = np.random.default_rng(11)
    posterior = td.initial(model, 1.0)
    for _ in range(updates):
        posterior = td.update_td_en(posterior, target, rng, members)
    return model, posterior


def routes_of(model: SSP) -> list[tuple[int, ...]]:
    """Every route of a deterministic problem without cycles."""

    def follow(state: int) -> list[tuple[int, ...]]:
        if state == model.n_states:
            return [()]
        pairs = range(model.pair_start[state], model.pair_start[state + 1])
        return [(i, *rest) for i in pairs for rest in follow(int(model.next_state[model.next_start[i]]))]

    return follow(int(np.argmax(model.initial)))


@pytest.mark.parametrize("updates", [0, 1, 3])
def test_route_probabilities_sum_to_one(updates: int) -> None:
    model, posterior = ensemble_after(updates)
    routes = routes_of(model)
    assert len(routes) == 8
    chance = td.route_probabilities(model, posterior, routes)
    np.testing.assert_allclose(chance.sum(), 1.0, atol=1e-14)
    first = [route[0] == 0 for route in routes]
    np.testing.assert_allclose(chance[first].sum(), td.action_probabilities(model, posterior)[0], atol=1e-14)


def test_policies_sum_to_one() -> None:
    model, posterior = ensemble_after(1)
    policies = list(product(*(range(model.pair_start[s], model.pair_start[s + 1]) for s in range(model.n_states))))
    np.testing.assert_allclose(td.route_probabilities(model, posterior, policies).sum(), 1.0, atol=1e-13)


def test_routes_of_a_mixture_sum_products_and_not_the_other_way_round() -> None:
    model, posterior = ensemble_after(2, members=3)
    routes = routes_of(model)
    chance = td.route_probabilities(model, posterior, routes)
    draws = td.draw(posterior, np.random.default_rng(17), 200_000)
    greedy = model.pair_start[:-1] + (draws[:, 0::2] < draws[:, 1::2])
    frequency = np.array([np.mean((greedy[:, model.pair_state[list(route)]] == route).all(axis=1)) for route in routes])
    allowed = STANDARD_ERRORS * np.sqrt(chance * (1 - chance) / len(draws)) + 1e-9
    assert np.all(np.abs(frequency - chance) < allowed)
    marginal = td.action_probabilities(model, posterior)
    wrong = np.array([marginal[list(route)].prod() for route in routes])
    assert np.any(np.abs(frequency - wrong) > 2 * allowed), "the example cannot tell the two apart"


def test_moments_and_best_values_agree_with_draws() -> None:
    model, posterior = ensemble_after(2, members=5)
    draws = td.draw(posterior, np.random.default_rng(19), 100_000)
    allowed = STANDARD_ERRORS * posterior.q_sd / np.sqrt(len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - posterior.q_mean) < allowed)
    np.testing.assert_allclose(draws.std(axis=0), posterior.q_sd, rtol=0.03)
    best = np.maximum.reduceat(draws, model.pair_start[:-1], axis=1)
    allowed = STANDARD_ERRORS * best.std(axis=0) / np.sqrt(len(draws))
    assert np.all(np.abs(best.mean(axis=0) - td.expected_best(model, posterior)) < allowed)


def test_a_route_with_two_actions_in_one_state_is_impossible() -> None:
    model, posterior = ensemble_after(1)
    np.testing.assert_array_equal(td.route_probabilities(model, posterior, [(0, 1)]), 0.0)
    twice, once, empty = td.route_probabilities(model, posterior, [(0, 0), (0,), ()])
    assert twice == once
    np.testing.assert_allclose(empty, 1.0)


# --- shapes and extremes


def test_single_action_states_are_certain() -> None:
    model = envs.four_state()
    posterior = td.update_td_max(td.initial(model, 10.0), seen(model, [0, 4], 0.01, 10.0))
    only = [i for i in range(model.n_pairs) if np.sum(model.pair_state == model.pair_state[i]) == 1]
    assert len(only) == 1
    np.testing.assert_array_equal(td.action_probabilities(model, posterior)[only], 1.0)
    np.testing.assert_allclose(td.expected_best(model, posterior)[model.pair_state[only]], posterior.q_mean[only])


def test_a_thousand_actions() -> None:
    model = fan(1000)
    prior = td.initial(model, 2.0)
    chance = td.action_probabilities(model, prior)
    np.testing.assert_allclose(chance[1:], 1e-3, rtol=1e-11)
    posterior = td.update_td_max(prior, seen(model, list(range(0, 500)), epsilon=0.3))
    chance = td.action_probabilities(model, posterior)
    np.testing.assert_allclose(chance[1:].sum(), 1.0, atol=1e-12)
    np.testing.assert_allclose(chance[501:], chance[501], rtol=1e-9)
    tail = quad(lambda x: 1 - ndtr(x) ** 1000, 0, 12, epsabs=1e-13, limit=200)[0]
    low = quad(lambda x: ndtr(x) ** 1000, -12, 0, epsabs=1e-13)[0]
    np.testing.assert_allclose(td.expected_best(model, prior)[1], 2.0 * (tail - low), rtol=1e-10)


@pytest.mark.parametrize("epsilon", [0.0, 1e-8, 1.0, 1e3])
@pytest.mark.parametrize("prior_scale", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("reward", [-1e6, -1.0])
def test_extremes_are_finite_and_normalised(epsilon: float, prior_scale: float, reward: float) -> None:
    model = fan(4, reward)
    rng = np.random.default_rng(2)
    for pairs in ([], [0, 2], [0, 1, 2, 3, 4]):
        target = seen(model, pairs, epsilon, prior_scale)
        for update in (td.update_td, td.update_td_max, lambda p, t: td.update_td_en(p, t, rng, members=10)):
            posterior = td.initial(model, prior_scale)
            for _ in range(3):
                posterior = update(posterior, target)
            chance = td.action_probabilities(model, posterior)
            assert np.isfinite(posterior.mean).all()
            assert np.all((chance >= 0) & (chance <= 1 + 1e-15))
            np.testing.assert_allclose(chance[1:].sum(), 1.0, atol=1e-12)
            assert np.isfinite(td.expected_best(model, posterior)).all()


def test_loops_are_no_obstacle() -> None:
    """The swirl has improper policies; TD never follows them, it only looks one move ahead."""
    model = envs.swirl(depth=3)
    target = relaxed_target(Dataset.complete(model), 0.01, 10.0)
    posterior = td.initial(model, 10.0)
    for _ in range(60):
        posterior = td.update_td(posterior, target)
    np.testing.assert_allclose(posterior.q_mean, solve(model).q, atol=1e-4)


def test_bad_input_is_refused() -> None:
    model = envs.two_state()
    target = seen(model, [0])
    with pytest.raises(BadInputError, match="prior_scale"):
        td.initial(model, 0.0)
    with pytest.raises(BadInputError, match="members"):
        td.update_td_en(td.initial(model, 1.0), target, np.random.default_rng(0), members=0)
    with pytest.raises(BadInputError, match="route"):
        td.route_probabilities(model, td.initial(model, 1.0), [(0, 7)])
    uniform = Target(model, target.observed, target.reward, target.scale, target.prior, Uniform())
    with pytest.raises(UnsupportedError, match="Gaussian kernel"):
        td.update_td(td.initial(model, 2.0), uniform)


def test_the_largest_of_many_normals_does_not_depend_on_the_step(rng):
    """A tolerance that nothing meets halves the steps as often as it may; the first ones were fine already."""
    mean, sd = rng.normal(size=(20, 5)), rng.uniform(0.01, 3.0, (20, 5))
    usual = largest(mean, sd)
    finest = largest(mean, sd, tolerance=-1.0)
    np.testing.assert_allclose(finest.probability, usual.probability, atol=1e-9)
    np.testing.assert_allclose(finest.expectation, usual.expectation, atol=1e-9)


def test_an_ensemble_has_at_least_one_member():
    target = relaxed_target(Dataset.complete(envs.two_state()), 0.5, 2.0)
    one = td.update_td_en(td.initial(target.model, 2.0), target, np.random.default_rng(0), members=1)
    assert one.weights.tolist() == [1.0]
    with pytest.raises(BadInputError, match="members is 0: TD-En needs at least one sample"):
        td.update_td_en(td.initial(target.model, 2.0), target, np.random.default_rng(0), members=0)
