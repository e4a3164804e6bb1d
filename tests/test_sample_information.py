"""What one trial is worth, against closed forms and nested simulations over all policies of small problems."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.stats import norm, spearmanr

from bellmanifold.decisions.sample_information import Factored, trial_gains
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import UnsupportedError

MANY, UNSEEN = 4.5, 1e-4
"""Standard errors allowed, a false alarm in 150,000; and what is due to outcomes that no draw of a simulation met."""


def visits_of_all(model):
    """Expected plays of each pair under every proper policy, without repetitions."""
    choices = [range(a, b) for a, b in zip(model.pair_start[:-1], model.pair_start[1:], strict=True)]
    policies = np.array(list(product(*choices)))
    law = np.zeros((model.n_pairs, model.n_states + 1))
    np.add.at(law, (model.next_pair, model.next_state), model.next_prob)
    system = np.eye(model.n_states) - law[policies][:, :, :-1]
    proper = np.linalg.matrix_rank(system) == model.n_states
    policies = policies[proper]
    visits = np.linalg.solve(system[proper].transpose(0, 2, 1), model.initial[None, :, None])[..., 0]
    plays = np.zeros((len(policies), model.n_pairs))
    np.put_along_axis(plays, policies, visits, axis=1)
    return np.unique(plays.round(12), axis=0)


def simulated(model, mean, covariance, sd, pairs, count, seed):
    """Nested simulation: draw rewards and the outcome of a trial, choose by the means given that outcome, and see what
    the choice earns beyond the choice without the trial; the gains and their standard errors."""
    plays, rng = visits_of_all(model), np.random.default_rng(seed)
    rewards = mean[:, None] + np.linalg.cholesky(covariance + 1e-12 * np.eye(len(mean))) @ rng.standard_normal(
        (len(mean), count)
    )
    values, before = plays @ rewards, plays @ mean
    first = int(np.argmax(before))
    found = []
    for pair in pairs:
        surprise = rewards[pair] + sd[pair] * rng.standard_normal(count) - mean[pair]
        slope = plays @ covariance[:, pair] / (covariance[pair, pair] + sd[pair] ** 2)
        choice = np.argmax(before[:, None] + slope[:, None] * surprise, axis=0)
        saved = values[choice, np.arange(count)] - values[first]
        found.append((saved.mean(), saved.std() / np.sqrt(count)))
    return np.array(found).T


def layered():
    """Thirteen moves through three layers, no way back."""
    layers = [["s"], ["a", "b"], ["c", "d", "e"], ["f", "g"], ["goal"]]
    moves = {
        (here, there): Move(-1.0, {there: 1.0}) for now, then in pairwise(layers) for here in now for there in then
    }
    return from_moves("layered", moves, start="s")


def two_way(slip=0.0):
    """Six junctions, two-way roads; drivers may miss a turn."""
    roads = ["ab", "ac", "bd", "cd", "ce", "df", "ef", "be"]
    leaving = {}
    for one, other in roads:
        leaving.setdefault(one, []).append(other)
        leaving.setdefault(other, []).append(one)
    moves = {}
    for here, ends in leaving.items():
        for there in ends if here != "f" else []:
            others = [end for end in ends if end != there]
            moves[here, there] = Move(-1.0, {there: 1.0 - slip} | {end: slip / len(others) for end in others if slip})
    return from_moves("two-way", moves, start="a", goal="f")


def believed(model, seed, spread=0.8):
    """Means, sds and noise: costs of about 5, some better known than others."""
    rng = np.random.default_rng(seed)
    own = spread * rng.uniform(0.4, 1.0, model.n_pairs)
    return -5.0 + 0.2 * rng.standard_normal(model.n_pairs), own, rng.uniform(0.2, 1.0, model.n_pairs)


NETWORKS = {"layered": layered(), "loops": two_way(), "slips": two_way(0.2)}


@pytest.mark.parametrize("name", NETWORKS)
def test_nested_simulation_says_the_same(name):
    """Every gain of three networks, about 15 each; a false alarm of the means in 3,000 seeds. Ranks agree."""
    model = NETWORKS[name]
    mean, own, sd = believed(model, 1)
    gain = trial_gains(model, mean, own**2, sd)
    truth, se = simulated(model, mean, np.diag(own**2), sd, range(model.n_pairs), 40_000, 2)
    assert (np.abs(gain - truth) <= MANY * se + UNSEEN).all()
    assert spearmanr(gain, truth).statistic > 0.95
    assert gain.max() > 0.05


@pytest.mark.parametrize("name", ["layered", pytest.param("slips", marks=pytest.mark.slow)])
def test_one_drive_tells_about_the_others(name):
    """Correlated costs, as a matrix and as factors; about 15 gains, a false alarm in 10,000 seeds."""
    model = NETWORKS[name]
    mean, own, sd = believed(model, 3, spread=0.5)
    factor = 0.5 * np.random.default_rng(4).standard_normal((model.n_pairs, 2))
    covariance = factor @ factor.T + np.diag(own**2)
    gain = trial_gains(model, mean, covariance, sd)
    np.testing.assert_allclose(trial_gains(model, mean, Factored(own**2, factor), sd), gain, rtol=1e-12)
    truth, se = simulated(model, mean, covariance, sd, range(model.n_pairs), 40_000, 5)
    assert (np.abs(gain - truth) <= MANY * se + UNSEEN).all()


def one_state(*names):
    return from_moves("one-state", {("s", name): Move(0.0, {"goal": 1.0}) for name in names}, start="s")


def unit_loss(z):
    """E[(N(0, 1) - z)^+]."""
    return norm.pdf(z) - z * norm.sf(z)


@pytest.mark.parametrize(("known", "sd"), [(-1.0, 0.0), (0.0, 0.7), (2.0, 0.0), (0.3, 3.0)])
def test_a_known_and_an_uncertain_action(known, sd):
    """E[max(known, N(0.3, c^2))] - max(known, 0.3); trials of what is known tell nothing."""
    gain = trial_gains(one_state("a", "b"), np.array([known, 0.3]), np.array([0.0, 4.0]), np.full(2, sd))
    spread = 4.0 / np.hypot(2.0, sd)
    assert gain[0] == 0.0
    assert gain[1] == pytest.approx(spread * unit_loss(abs(known - 0.3) / spread), rel=1e-9)


def test_two_correlated_actions():
    """Only the difference matters: it moves by (c_a - c_b) z."""
    covariance = np.array([[1.0, 0.6], [0.6, 2.0]])
    gain = trial_gains(one_state("a", "b"), np.array([-1.0, -1.5]), covariance, np.array([0.5, 0.0]))
    for pair, noise in enumerate((0.5, 0.0)):
        column = covariance[:, pair] / np.hypot(np.sqrt(covariance[pair, pair]), noise)
        spread = abs(column[0] - column[1])
        assert gain[pair] == pytest.approx(spread * unit_loss(0.5 / spread), rel=1e-9)


def test_limits_of_the_noise():
    """An exact trial is worth as much as the reward (quadrature over it), a hopeless one nothing; between, it falls."""
    model = NETWORKS["slips"]
    mean, own, _ = believed(model, 6)
    plays = visits_of_all(model)
    levels = [trial_gains(model, mean, own**2, np.full(model.n_pairs, sd)) for sd in (0.0, 0.5, 2.0, 1e9)]
    z = np.linspace(-8.0, 8.0, 4001)
    for pair in range(model.n_pairs):
        best = (plays @ mean + (plays[:, pair] * own[pair] * z[:, None])).max(axis=1)
        exact = np.trapezoid(best * norm.pdf(z), z) - (plays @ mean).max()
        assert levels[0][pair] == pytest.approx(exact, abs=2e-5)
    assert all((less <= more).all() for more, less in pairwise(levels))
    assert levels[-1].max() < 1e-9


def test_no_trial_is_worth_more_than_knowing_all_rewards():
    """EVSI is at most EVPI, in 12 random problems; within 4.5 standard errors of 4,000 draws, a false alarm in
    10,000."""
    for seed in range(12):
        model = (layered(), two_way(), two_way(0.3))[seed % 3]
        mean, own, sd = believed(model, seed)
        plays, rng = visits_of_all(model), np.random.default_rng(seed)
        rewards = mean[:, None] + own[:, None] * rng.standard_normal((model.n_pairs, 4000))
        values = plays @ rewards
        lost = values.max(axis=0) - values[np.argmax(plays @ mean)]
        gain = trial_gains(model, mean, own**2, sd)
        assert (gain >= 0.0).all()
        assert gain.max() <= lost.mean() + MANY * lost.std() / np.sqrt(4000)


def test_what_changes_nothing_is_worth_exactly_nothing():
    """A move of a state that the start never leads to, one that is hopeless, and the only way."""
    moves = {
        ("s", "on"): Move(0.0, {"t": 1.0}),
        ("t", "good"): Move(0.0, {"goal": 1.0}),
        ("t", "hopeless"): Move(0.0, {"goal": 1.0}),
        ("island", "out"): Move(0.0, {"t": 1.0}),
    }
    model = from_moves("four", moves, start="s")
    mean = np.where(np.arange(4) == model.pair_index["t", "hopeless"], -100.0, -1.0)
    assert trial_gains(model, mean, np.ones(4), np.zeros(4)).tolist() == [0.0] * 4


def test_equal_means_and_several_starts():
    """Three actions with equal means at each of two starts, a kink at 0: half an absolute value."""
    moves = {(state, action): Move(0.0, {"goal": 1.0}) for state in "st" for action in "abc"}
    model = replace(from_moves("two", moves, start="s"), initial=np.array([0.25, 0.75]))
    gain = trial_gains(model, np.full(6, -1.0), np.ones(6), np.full(6, 0.5))
    expected = norm.pdf(0.0) / np.hypot(1.0, 0.5)
    np.testing.assert_allclose(gain, np.repeat([0.25 * expected, 0.75 * expected], 3), rtol=1e-12)


def round_trip(back=-1.0, slip=0.0):
    """Way out at once, or over t, from which a road leads back: the loop pays if the first road pays more than 1."""
    moves = {
        ("s", "over"): Move(0.0, {"t": 1.0}),
        ("s", "exit"): Move(-1.5, {"goal": 1.0}),
        ("t", "back"): Move(back, {"s": 1.0 - slip} | ({"goal": slip} if slip else {})),
        ("t", "out"): Move(0.0, {"goal": 1.0}),
    }
    return from_moves("round-trip", moves, start="s")


@pytest.mark.parametrize("mean", [-2.0, -1.0, 0.5])
def test_a_line_is_cut_where_a_loop_would_pay(mean):
    """Of one uncertain reward, the truncated normal distribution is exact: quadrature over it."""
    model = round_trip()
    over = model.pair_index["s", "over"]
    means = np.where(np.arange(4) == over, mean, model.reward)
    gain = trial_gains(model, means, np.where(np.arange(4) == over, 1.0, 0.0), np.zeros(4))
    reward = np.linspace(-12.0, 1.0, 400_001)
    density = norm.pdf(reward, mean)
    density /= np.trapezoid(density, reward)
    average = np.trapezoid(reward * density, reward)
    truth = np.trapezoid(np.maximum(reward, -1.5) * density, reward) - max(average, -1.5)
    assert gain[over] == pytest.approx(truth, abs=2e-6)
    assert gain.sum() == gain[over]


def test_loops_that_pay_at_the_means_are_refused():
    model = round_trip()
    means = np.where(np.arange(4) == model.pair_index["s", "over"], 2.0, model.reward)
    with pytest.raises(UnsupportedError):
        trial_gains(model, means, np.ones(4), np.zeros(4))


def test_loops_that_are_hardly_ever_left():
    """A leak of 1e-7: the matrix of visits is computed afresh; against the maximum over all policies."""
    model = round_trip(back=-2.0, slip=1e-7)
    mean, own = np.where(model.reward == 0.0, -1.0, model.reward), np.array([1.0, 0.3, 0.3, 0.3])
    z, leak = np.linspace(-9.0, 9.0, 100_001), 1e-7
    gain = trial_gains(model, mean, own**2, np.zeros(4))
    for pair in range(4):
        over, exit_, back, out = (
            mean[model.pair_index[name]] + own[model.pair_index[name]] * z * (model.pair_index[name] == pair)
            for name in (("s", "over"), ("s", "exit"), ("t", "back"), ("t", "out"))
        )
        best = np.maximum.reduce([exit_, over + out, (over + back) / leak])
        truth = np.trapezoid(best * norm.pdf(z), z) - best[50_000]
        assert gain[pair] == pytest.approx(truth, rel=1e-3, abs=1e-5)
