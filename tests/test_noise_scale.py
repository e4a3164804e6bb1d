"""The law of an inferred noise scale: densities, tables and what has no finite mass."""

import numpy as np
import pytest
from scipy import integrate, stats

from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError
from bellmanifold.posteriors.noise import HalfNormal
from bellmanifold.posteriors.noise_scale import combine, log_scatter, scale_table
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.observation import Observation

ETA = np.array([0.01, 0.3, 1.0, 4.0])


def rewards(*by_action):
    """One state whose actions end at once, and rewards of each."""
    moves = {("s", f"a{k}"): Move(0.0, {"goal": 1.0}) for k in range(max(1, len(by_action)))}
    model = from_moves("bandit", moves, start="s")
    return Dataset.from_pairs(model, [("s", f"a{k}", r) for k, own in enumerate(by_action) for r in own])


def log_normal_law(centre, width):
    """A prior under which log eta is N(centre, width^2)."""
    return stats.lognorm(width, scale=np.exp(centre)).logpdf


def flat(eta):
    return np.zeros_like(eta)


def test_half_normal_is_scipys():
    for scale in (0.2, 1.0, 3.0):
        np.testing.assert_allclose(HalfNormal(scale)(ETA), stats.halfnorm.logpdf(ETA, scale=scale), rtol=1e-13)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan")])
def test_half_normal_has_a_positive_scale(scale):
    with pytest.raises(BadInputError, match="prior scale of the noise"):
        HalfNormal(scale)


def test_scatter_is_what_the_mean_leaves_of_the_joint_density():
    """Joint density of a pair's rewards = that of their mean x scatter, whatever the value g is; pairs multiply."""
    own = ([0.1, 0.4, -0.2], [1.0, 1.3], [5.0])
    for eta in (0.3, 2.0):
        found = log_scatter(rewards(*own, []), np.array([eta]))[0]
        for g in (-1.0, 0.7):
            joint = sum(stats.norm.logpdf(r, g, eta).sum() for r in own)
            of_means = sum(stats.norm.logpdf(np.mean(r), g, eta / np.sqrt(len(r))) for r in own)
            assert found == pytest.approx(joint - of_means, rel=1e-12)


def test_two_means_of_one_pair_leave_their_gap():
    """Rewards of sd eta and of sds of their own: their joint density is that of the mean of all x scatter."""
    plain, own, sds = [0.1, 0.4, -0.2], [1.5, 2.0], [0.5, 0.8]
    model = rewards(plain).model
    seen = [Observation("s", "a0", r) for r in plain] + [
        Observation("s", "a0", *one) for one in zip(own, sds, strict=True)
    ]
    data = Dataset.from_pairs(model, seen)
    for eta in (0.3, 2.0):
        sd = np.array([eta] * 3 + sds)
        mean, width = np.average(plain + own, weights=sd**-2), (sd**-2).sum() ** -0.5
        found = combine(np.mean(plain), eta / np.sqrt(3), data.own_mean[0], data.own_precision[0], np)
        assert found == pytest.approx((mean, width), rel=1e-12)
        scatter = log_scatter(data, np.array([eta]))[0]
        for g in (-1.0, 0.7):
            joint = stats.norm.logpdf(plain + own, g, sd).sum()
            assert scatter == pytest.approx(joint - stats.norm.logpdf(mean, g, width), rel=1e-12)


def test_scatter_of_rewards_of_every_kind():
    """Plain ones, ones with sds of their own and exact ones, alone and beside each other.

    Beside an exact reward all others have their density around it; elsewhere the density of the mean is left out.
    """
    plain = {0: [0.1, 0.4, -0.2], 1: [1.3], 2: [0.8, 0.5], 6: [-0.6, 0.2]}
    own = {1: [(1.5, 0.5), (2.0, 0.8)], 3: [(0.3, 0.7)], 4: [(0.9, 0.4), (0.2, 1.1), (0.5, 0.6)], 6: [(0.1, 0.9)]}
    exact = {2: 0.7, 3: 0.1, 5: 1.0, 6: -0.3}
    seen = [Observation("s", f"a{k}", r) for k, rows in plain.items() for r in rows]
    seen += [Observation("s", f"a{k}", *one) for k, rows in own.items() for one in rows]
    seen += [Observation("s", f"a{k}", r, 0.0) for k, r in exact.items()]
    data = Dataset.from_pairs(rewards(*[[]] * 8).model, seen)
    found = log_scatter(data, ETA)
    for place, eta in enumerate(ETA):
        expected = 0.0
        for k in range(8):
            values = np.array(plain.get(k, []) + [r for r, _ in own.get(k, [])])
            sds = np.array([eta] * len(plain.get(k, [])) + [sd for _, sd in own.get(k, [])])
            expected += stats.norm.logpdf(values, exact.get(k, 0.37), sds).sum()
            if k not in exact and len(values):
                mean, width = np.average(values, weights=sds**-2), (sds**-2).sum() ** -0.5
                expected -= stats.norm.logpdf(mean, 0.37, width)
        assert found[place] == pytest.approx(expected, rel=1e-12)


def test_a_table_ends_where_nothing_is_left():
    """Where the log density is 50 below its largest, ten sds out for a normal law, to the knot; the ends have no normal
    number."""
    table = scale_table(rewards([1.0]), log_normal_law(0.5, 0.8))
    assert len(table.normal) == 4097 - 2
    spacing = np.diff(table.log_scale)
    np.testing.assert_allclose(spacing, spacing[0], rtol=1e-9)
    low, high = (table.log_scale[[0, -1]] - 0.5) / 0.8
    assert -10.0 < low <= -10.0 + spacing[0] / 0.8
    assert 10.0 - spacing[0] / 0.8 <= high < 10.0


def test_an_exact_reward_outweighs_others():
    assert combine(1.5, 0.0, -4.0, 9.0, np) == (1.5, 0.0)


@pytest.mark.parametrize(("centre", "width"), [(0.5, 0.8), (-3.0, 2.0), (10.0, 0.01), (2.5, 1e-4)])
def test_without_repeats_the_table_is_the_priors_quantile_function(centre, width):
    """Log eta is a linear function of the normal number, and the mass is that of a density."""
    table = scale_table(rewards([1.0]), log_normal_law(centre, width))
    inner = np.abs(table.normal) < 8.0  # the ends are where the table ends
    np.testing.assert_allclose(table.log_scale[inner], centre + width * table.normal[inner], atol=1e-5 * width)
    assert table.log_mass == pytest.approx(0.0, abs=1e-9)
    assert np.all(np.diff(table.normal) > 0)
    assert table.normal[0] < -8.0
    assert table.normal[-1] > 8.0


def test_moments_of_a_log_normal_scale():
    mean, sd = scale_table(rewards(), log_normal_law(0.2, 0.5)).moments()
    truth = stats.lognorm(0.5, scale=np.exp(0.2))
    assert (mean, sd) == pytest.approx((truth.mean(), truth.std()), rel=1e-4)


def test_the_table_of_repeats_is_an_inverse_gamma_law():
    """Prior eta^-2 and scatter: eta^2 has an inverse gamma law, whose quantiles SciPy knows."""
    data = rewards([0.5, -0.4, 1.1, 0.2])
    table = scale_table(data, lambda eta: -2.0 * np.log(eta))
    # eta^-(3 + 2) exp(-S / 2 eta^2) d eta = v^(-5/2) exp(-S / 2 v) v^(-1/2) / 2 dv at v = eta^2
    law = stats.invgamma(2.0, scale=data.scatter.sum() / 2.0)
    inner = np.abs(table.normal) < 6.0
    quantile = np.where(table.normal < 0, law.ppf(stats.norm.cdf(table.normal)), law.isf(stats.norm.sf(table.normal)))
    np.testing.assert_allclose(np.exp(2.0 * table.log_scale)[inner], quantile[inner], rtol=1e-6)
    mass = integrate.quad(lambda eta: np.exp(log_scatter(data, np.array([eta]))[0] - 2.0 * np.log(eta)), 0.05, 60.0)[0]
    assert table.log_mass == pytest.approx(np.log(mass), abs=1e-5)


@pytest.mark.parametrize(
    ("data", "prior"),
    [
        (rewards([1.0, 1.0]), HalfNormal()),  # repeats agree: all mass at 0
        (rewards([1.0]), lambda eta: -np.log(eta)),  # improper at both ends
        (rewards([1.0]), flat),  # at infinity
        (rewards([1.0, 2.0]), lambda eta: np.log(eta)),  # at infinity, although repeats differ
    ],
    ids=["repeats agree", "improper", "flat", "growing"],
)
def test_a_scale_without_finite_mass_is_refused(data, prior):
    with pytest.raises(BadInputError, match=r"cannot be inferred.*noise_sd"):
        scale_table(data, prior)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_priors_that_are_no_log_densities_are_refused(value):
    with pytest.raises(BadInputError, match="not a log density"):
        scale_table(rewards([1.0, 2.0]), lambda eta: np.full_like(eta, value))


def test_a_prior_that_is_no_number_at_one_place_is_refused():
    with pytest.raises(BadInputError, match="not a log density"):
        scale_table(rewards([1.0, 2.0]), lambda eta: np.where(eta > 1e3, np.nan, HalfNormal()(eta)))


def test_a_prior_may_leave_scales_out():
    """Half-normal above 1/2: the probabilities below the median of that."""
    table = scale_table(rewards([1.0]), lambda eta: np.where(eta < 0.5, -np.inf, HalfNormal()(eta)))
    kept = 2.0 * stats.norm.sf(0.5)
    assert table.log_mass == pytest.approx(np.log(kept), abs=1e-3)
    assert np.exp(np.interp(0.0, table.normal, table.log_scale)) == pytest.approx(stats.norm.isf(kept / 4.0), abs=2e-3)


def test_a_prior_may_leave_out_scales_between_others():
    """Half-normal without 1/2 to 1: normal numbers rise even so, and the quantiles beside the gap are the prior's."""
    table = scale_table(rewards([1.0]), lambda eta: np.where((eta > 0.5) & (eta < 1.0), -np.inf, HalfNormal()(eta)))
    assert (np.diff(table.normal) > 0).all()
    low, high = 2.0 * stats.norm.cdf(0.5) - 1.0, 2.0 * stats.norm.sf(1.0)
    for eta, below in ((0.3, 2.0 * stats.norm.cdf(0.3) - 1.0), (1.5, low + high - 2.0 * stats.norm.sf(1.5))):
        found = np.exp(np.interp(stats.norm.ppf(below / (low + high)), table.normal, table.log_scale))
        assert found == pytest.approx(eta, abs=5e-3)
