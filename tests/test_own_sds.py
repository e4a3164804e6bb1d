"""Rewards with sds of their own, exact beside noisy ones, beliefs, and the prior that is flat over rewards.

One state with two actions to the goal has closed forms for everything: values are independent normals.
"""

import itertools

import numpy as np
import pytest
from open_quadrature import ONE, open_model
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

import bellmanifold as bm
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.policies import action_probabilities
from bellmanifold.posteriors.walk import by_walk
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.observation import Observation

TWO_ACTIONS = open_model(["s"], [("s", "a"), ("s", "b")], [(("s", "a"), {"goal": 1.0}), (("s", "b"), {"goal": 1.0})])
MAY_STAY = open_model(
    ["s"], [("s", "a"), ("s", "b")], [(("s", "a"), {"s": 0.5, "goal": 0.5}), (("s", "b"), {"goal": 1.0})]
)
PRIOR = (-0.5, 2.0)
"""Mean and sd of the prior of every action value."""


def seen(*observations, model=TWO_ACTIONS):
    """Observations (action, reward, sd); without an sd where that is None."""
    return Dataset.from_pairs(model, [Observation("s", *one) for one in observations])


def asked(data, **options):
    mean, scale = PRIOR
    return bm.posterior(data.model, data, prior_mean=mean, prior_scale=scale, **options)


def log_density(rewards, variances):
    """Of rewards of one pair, its value integrated over."""
    n = len(rewards)
    return multivariate_normal.logpdf(rewards, np.full(n, PRIOR[0]), np.diag(variances) + PRIOR[1] ** 2)


def value(rewards, variances):
    """Posterior mean and sd of a pair's value."""
    precision = np.append(1.0 / np.asarray(variances), PRIOR[1] ** -2)
    return np.append(rewards, PRIOR[0]) @ precision / precision.sum(), precision.sum() ** -0.5


def check(found, a, b, log_evidence, accuracy):
    """Probability of the first action, means, sds and evidence against two independent normals (mean, sd)."""
    (mean_a, sd_a), (mean_b, sd_b) = a, b
    probability = found.action_probability
    exact = norm.cdf((mean_a - mean_b) / np.hypot(sd_a, sd_b))
    assert abs(probability.value[0] - exact) <= max(accuracy, 4.5 * probability.se[0])
    assert np.abs(found.q_mean.value - [mean_a, mean_b]).max() <= max(accuracy, 4.5 * found.result.q_mean.se.max())
    assert found.q_sd.value.tolist() == pytest.approx([sd_a, sd_b], rel=max(accuracy, 2e-3), abs=1e-6)
    if found.log_evidence is not None:
        assert abs(found.log_evidence.value - log_evidence) <= max(accuracy, 4.5 * found.log_evidence.se)


OWN = (("a", -1.0, 0.5), ("a", -2.0, 1.0), ("b", -1.8, 0.3))


@pytest.mark.parametrize(("engine", "accuracy"), [("auto", 1e-4), ("chart", 1e-4), ("mixture", 1e-6)])
def test_own_sds(engine, accuracy):
    """Observations of a pair combine by precision.

    A false-alarm rate below 1e-4.
    """
    found = asked(seen(*OWN), engine=engine)
    evidence = log_density([-1.0, -2.0], [0.25, 1.0]) + log_density([-1.8], [0.09])
    check(found, value([-1.0, -2.0], [0.25, 1.0]), value([-1.8], [0.09]), evidence, accuracy)
    assert found.dimension == 2
    again = asked(seen(*OWN), engine=engine, noise_sd=7.0)
    check(again, value([-1.0, -2.0], [0.25, 1.0]), value([-1.8], [0.09]), evidence, accuracy)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["hmc", "nuts"])
def test_own_sds_by_gradients(engine):
    """A false-alarm rate below 1e-3."""
    found = asked(seen(*OWN), engine=engine)
    a, b = value([-1.0, -2.0], [0.25, 1.0]), value([-1.8], [0.09])
    exact = norm.cdf((a[0] - b[0]) / np.hypot(a[1], b[1]))
    assert abs(found.action_probability.value[0] - exact) < 4.5 * found.action_probability.se[0]
    assert np.abs(found.q_mean.value - [a[0], b[0]]).max() < 4.5 * found.result.q_mean.se.max()
    assert found.q_sd.value.tolist() == pytest.approx([a[1], b[1]], rel=0.05)


@pytest.mark.slow
def test_own_sds_by_a_walk():
    """A false-alarm rate below 1e-3."""
    target = asked(seen(*OWN)).target
    found = by_walk(target, Budget(), "asked for")
    a, b = value([-1.0, -2.0], [0.25, 1.0]), value([-1.8], [0.09])
    probability = action_probabilities(target.model, found.table)
    exact = norm.cdf((a[0] - b[0]) / np.hypot(a[1], b[1]))
    assert abs(probability.value[0] - exact) < max(1e-3, 4.5 * probability.se[0])
    assert np.abs(found.q_mean.value - [a[0], b[0]]).max() < 4.5 * found.q_mean.se.max()


def test_exact_beside_noisy():
    """An exact reward overrules: what else was paid says something about the evidence alone.

    A false-alarm rate below 1e-4.
    """
    b = value([-1.5], [0.25])
    evidence = norm.logpdf(-1.0, *PRIOR) + norm.logpdf(-1.4, -1.0, 0.5) + log_density([-1.5], [0.25])
    for exact in (("a", -1.0, 0.0), ("a", -1.0, None)):
        found = asked(seen(exact, ("a", -1.4, 0.5), ("b", -1.5, 0.5)))
        check(found, (-1.0, 0.0), b, evidence, 1e-4)
        assert found.dimension == 1
    found = asked(seen(("a", -1.0, 0.0), ("a", -1.4, None), ("b", -1.5, None)), noise_sd=0.5)
    check(found, (-1.0, 0.0), b, evidence, 1e-4)


def test_known_noise_beside_own_sds():
    """Plain rewards have the noise's sd, others their own.

    A false-alarm rate below 1e-4.
    """
    data = seen(("a", -1.0, None), ("a", -1.3, None), ("a", -1.4, 0.5), ("b", -1.5, None), ("b", -1.2, 0.2))
    a, b = ([-1.0, -1.3, -1.4], [0.09, 0.09, 0.25]), ([-1.5, -1.2], [0.09, 0.04])
    for engine in ("chart", "mixture"):
        found = asked(data, noise_sd=0.3, engine=engine)
        check(found, value(*a), value(*b), log_density(*a) + log_density(*b), 1e-4)


@pytest.mark.parametrize("exact", [False, True])
def test_inferred_noise_beside_own_sds(exact):
    """Evidence and mean of eta, action probability and values against quadrature over eta.

    A false-alarm rate below 1e-4.
    """
    data = seen(
        ("a", -1.0, None), ("a", -1.3, None), ("a", -1.4, 0.5), ("b", -1.5, None), ("b", -1.2, 0.2 * (not exact))
    )

    def joint(eta):
        a = log_density([-1.0, -1.3, -1.4], [eta**2, eta**2, 0.25])
        b = (
            norm.logpdf(-1.2, *PRIOR) + norm.logpdf(-1.5, -1.2, eta)
            if exact
            else log_density([-1.5, -1.2], [eta**2, 0.04])
        )
        return 2.0 * norm.pdf(eta) * np.exp(a + b)

    def first(eta):
        a = value([-1.0, -1.3, -1.4], [eta**2, eta**2, 0.25])
        b = (-1.2, 0.0) if exact else value([-1.5, -1.2], [eta**2, 0.04])
        return a[0], b[0], norm.cdf((a[0] - b[0]) / np.hypot(a[1], b[1])), eta

    def integral(f):
        return quad(f, 1e-9, 10.0, points=[0.1, 0.3, 1.0], limit=500)[0]

    mass = integral(joint)
    means = [integral(lambda eta, k=k: first(eta)[k] * joint(eta)) / mass for k in range(4)]
    found = asked(data, infer_noise=True)
    assert found.log_evidence.value == pytest.approx(np.log(mass), abs=1e-4)
    assert found.q_mean.value.tolist() == pytest.approx(means[:2], abs=1e-3)
    assert abs(found.action_probability.value[0] - means[2]) < max(1e-3, 4.5 * found.action_probability.se[0])
    assert found.result.noise_scale[0] == pytest.approx(means[3], abs=1e-3)
    assert found.dimension == (2 if exact else 3)


@pytest.mark.parametrize("sds", list(itertools.product([None, 0.4], repeat=2)))
def test_a_tolerance_beside_own_sds(sds):
    """Plain rewards have the tolerance, others their sd.

    A false-alarm rate below 1e-4.
    """
    data = seen(("a", -1.0, sds[0]), ("b", -1.6, sds[1]))
    a, b = (([reward], [0.01 if sd is None else sd**2]) for reward, sd in zip((-1.0, -1.6), sds, strict=True))
    check(asked(data, epsilon=0.1), value(*a), value(*b), log_density(*a) + log_density(*b), 1e-4)


def test_a_belief_about_an_untried_pair():
    """It is an observation with an sd that leads nowhere: with a law it makes the pair one that is solved."""
    belief = asked(seen(("a", -1.0, 0.0), ("b", -5.0, 2.0)))
    check(belief, (-1.0, 0.0), value([-5.0], [4.0]), norm.logpdf(-1.0, *PRIOR) + log_density([-5.0], [4.0]), 1e-4)
    assert belief.target.observed.all()


def test_what_engines_refuse():
    mixed = seen(("a", -1.0, 0.0), ("b", -5.0, 2.0))
    with pytest.raises(UnsupportedError, match="mixture: the exact posterior"):
        asked(mixed, engine="mixture")
    for engine in ("hmc", "nuts"):
        with pytest.raises(UnsupportedError, match=f"{engine} cannot mix exact and noisy rewards"):
            asked(mixed, engine=engine)
        with pytest.raises(UnsupportedError, match=f"{engine} cannot infer the noise if some rewards have"):
            asked(seen(("a", -1.0, None), ("b", -5.0, 2.0)), engine=engine, infer_noise=True)
    with pytest.raises(UnsupportedError, match="rejection: only a uniform kernel"):
        asked(seen(*OWN), engine="rejection")
    with pytest.raises(UnsupportedError, match="rewards with an sd of their own are Gaussian"):
        asked(seen(*OWN), kernel="uniform", epsilon=0.1)
    with pytest.raises(UnsupportedError, match="rewards with an sd of their own are Gaussian"):
        asked(seen(*OWN), noise_sd=1.0, noise="laplace")


# --- flat over rewards ----------------------------------------------------------------------------------------------


def of_sampled_rewards(rng, mean, sd, draws=400_000):
    """P(a), values of a and b in `MAY_STAY`: rewards are drawn, the problem solved."""
    r = np.array(mean) + np.array(sd) * rng.standard_normal((draws, 2))
    best = np.maximum(2.0 * r[:, 0], r[:, 1])
    return np.mean(2.0 * r[:, 0] > r[:, 1]), np.mean(r[:, 0] + 0.5 * best), np.mean(r[:, 1])


def test_flat_over_rewards(rng):
    """Under random laws 1/|det A| would say 0.667; drawing rewards and solving says 0.5.

    A false-alarm rate below 1e-4: 4.5 standard errors of 400,000 draws.
    """
    found = bm.posterior(MAY_STAY, seen(("a", -1.0, 0.3), ("b", -2.0, 0.3), model=MAY_STAY), prior_scale="flat")
    assert found.action_probability.value[0] == pytest.approx(0.5, abs=1e-3)
    assert found.log_evidence is None
    assert found.to_dict()["prior_scale"] == "flat"
    assert "flat over rewards" in found.reason
    sampled = of_sampled_rewards(rng, (-1.0, -2.0), (0.3, 0.3))
    assert [found.action_probability.value[0], *found.q_mean.value] == pytest.approx(
        sampled, abs=4.5 / np.sqrt(400_000)
    )
    wide = bm.posterior(MAY_STAY, seen(("a", -1.0, 0.3), ("b", -2.0, 0.3), model=MAY_STAY), prior_scale=1000.0)
    assert wide.action_probability.value[0] == pytest.approx(2.0 / 3.0, abs=2e-3)


def test_a_belief_about_every_pair(rng):
    """The map is known, the costs are not: a flat prior is the default, and an observation is weighed in.

    A false-alarm rate below 1e-4.
    """
    found = bm.posterior(MAY_STAY, seen(("a", -4.0, 1.0), model=MAY_STAY), reward_belief=(-5.0, 2.0))
    assert found.target.prior.flat
    assert found.target.proper_only
    mean, sd = (-4.0 - 5.0 / 4.0) / 1.25, 1.25**-0.5
    sampled = of_sampled_rewards(rng, (mean, -5.0), (sd, 2.0))
    exact = [found.action_probability.value[0], *found.q_mean.value]
    assert exact == pytest.approx(sampled, abs=4.5 * 3.0 / np.sqrt(400_000))
    numbered = bm.posterior(MAY_STAY, seen(model=MAY_STAY), reward_belief=(-5.0, 2.0), prior_scale=50.0)
    assert not numbered.target.prior.flat


def test_beliefs_around_a_loop(rng):
    """Draws whose loop pays are left out.

    A false-alarm rate below 1e-4.
    """
    laws = {("x", "y"): "y", ("x", "end"): "goal", ("y", "x"): "x", ("y", "end"): "goal"}
    model = open_model(["x", "y"], list(laws), [(pair, {after: 1.0}) for pair, after in laws.items()])
    data = Dataset.from_pairs(model, [Observation("x", "end", -4.0, 0.5)])
    found = bm.posterior(model, data, reward_belief=(-1.0, 1.0))
    r = -1.0 + rng.standard_normal((400_000, 4))
    r[:, 1] = (-1.0 - 4.0 * 4.0) / 5.0 + rng.standard_normal(400_000) / np.sqrt(5.0)
    r = r[r[:, 0] + r[:, 2] < 0.0]
    by_x = r[:, 0] + r[:, 3] > r[:, 1]
    assert found.action_probability.value[0] == pytest.approx(by_x.mean(), abs=4.5 * 0.5 / np.sqrt(len(r)))
    assert found.q_mean.value[3] == pytest.approx(r[:, 3].mean(), abs=4.5 / np.sqrt(len(r)))
    assert found.improper_mass.value == 0.0


def test_flat_with_open_laws(rng):
    """Laws keep their Dirichlet: nothing weighs them.

    A false-alarm rate below 1e-4.
    """
    landings = [("stay", -1.0, "s"), ("stay", -1.0, "goal"), ("exit", -2.0, "goal")]
    data = Dataset.from_pairs(ONE, [Observation("s", action, reward, 0.3, after) for action, reward, after in landings])
    found = bm.posterior(ONE, data, laws="dirichlet", concentration=1.0, prior_scale="flat")
    stay = (-1.0 + 0.3 / np.sqrt(2.0) * rng.standard_normal(400_000)) / rng.beta(1.5, 1.5, 400_000)
    leave = (-2.0 + 0.3 * rng.standard_normal(400_000)) / rng.beta(1.5, 0.5, 400_000)
    se = np.hypot(found.action_probability.se[0], 0.5 / np.sqrt(400_000))
    assert abs(found.action_probability.value[0] - (stay > leave).mean()) < 4.5 * se
    laws = found.result.laws.probability
    assert laws.value.tolist() == pytest.approx([0.5, 0.5, 0.75], abs=5e-3), "rows in the order of pairs"


def test_what_is_refused_of_a_flat_prior():
    with pytest.raises(BadInputError, match=r'nothing is known about the reward of pair \("s", "b"\)'):
        bm.posterior(TWO_ACTIONS, seen(("a", -1.0, 0.3)), prior_scale="flat")
    whole = seen(("a", -1.0, 0.3), ("b", -2.0, 0.3))
    for engine in ("mixture", "hmc", "nuts", "rejection"):
        with pytest.raises(UnsupportedError, match=f"the {engine} engine has no flat prior"):
            bm.posterior(TWO_ACTIONS, whole, prior_scale="flat", engine=engine)
    with pytest.raises(BadInputError, match="leave proper_only out"):
        bm.posterior(TWO_ACTIONS, whole, prior_scale="flat", proper_only=False)
    for belief in ((np.nan, 1.0), (0.0, 0.0)):
        with pytest.raises(BadInputError, match="reward_belief: "):
            bm.posterior(TWO_ACTIONS, whole, reward_belief=belief)


def test_an_exact_loop_beside_noisy_rewards():
    """A loop of exact rewards that costs something holds no policy, whatever is noisy elsewhere.

    stay = go - 1, so that the value of go has three normal factors. A false-alarm rate below 1e-4.
    """
    laws = [(("s", "stay"), {"s": 1.0}), (("s", "go"), {"goal": 1.0})]
    model = open_model(["s"], [("s", "stay"), ("s", "go")], laws)
    data = Dataset.from_pairs(model, [Observation("s", "stay", -1.0, 0.0), Observation("s", "go", -2.0, 0.5)])
    found = asked(data)
    precision = np.array([PRIOR[1] ** -2, PRIOR[1] ** -2, 4.0])
    points = np.array([PRIOR[0], PRIOR[0] + 1.0, -2.0])
    mean, sd = points @ precision / precision.sum(), precision.sum() ** -0.5
    go = np.linspace(-12.0, 8.0, 20_001)
    joint = norm.pdf(go, *PRIOR) * norm.pdf(go - 1.0, *PRIOR) * norm.pdf(-2.0, go, 0.5)
    assert found.trustworthy
    assert found.q_mean.value.tolist() == pytest.approx([mean - 1.0, mean], abs=1e-3)
    assert found.q_sd.value.tolist() == pytest.approx([sd, sd], rel=2e-3)
    assert found.action_probability.value.tolist() == pytest.approx([0.0, 1.0], abs=1e-4)
    assert found.log_evidence.value == pytest.approx(np.log(joint.sum() * (go[1] - go[0])), abs=1e-4)
    assert found.improper_mass.value == 0.0
    with pytest.raises(UnsupportedError, match="the exact posterior does not exist"):
        asked(Dataset.from_pairs(model, [Observation("s", "stay", 1.0, 0.0), Observation("s", "go", -2.0, 0.5)]))


def test_exact_and_noisy_rewards_in_one_loop():
    laws = {("x", "y"): "y", ("x", "end"): "goal", ("y", "x"): "x", ("y", "end"): "goal"}
    model = open_model(["x", "y"], list(laws), [(pair, {after: 1.0}) for pair, after in laws.items()])
    data = Dataset.from_pairs(model, [Observation("x", "y", -1.0, 0.0), Observation("y", "x", -1.0, 0.5)])
    with pytest.raises(UnsupportedError, match=r"has exact and noisy rewards.*proper_only=True"):
        bm.posterior(model, data)
    assert bm.posterior(model, data, proper_only=True, samples=4096).improper_mass.value == 0.0


def test_an_sd_that_rounding_swallows():
    """It is taken for an exact reward, beside others that keep theirs."""
    found = asked(seen(("a", -1.0, 1e-20), ("b", -1.5, 0.5)))
    exact = asked(seen(("a", -1.0, 0.0), ("b", -1.5, 0.5)))
    assert found.dimension == exact.dimension == 1
    assert found.action_probability.value.tolist() == exact.action_probability.value.tolist()
    assert float(found.log_evidence.value) == pytest.approx(float(exact.log_evidence.value))


def test_noise_that_is_not_gaussian_takes_no_sds_beside_repeats():
    """Found by a user: chains over every visit ignored them."""
    model = bm.envs.two_state()
    seen = [("s1", "go", -1.0), ("s1", "go", -1.3), bm.Observation("s1", "stay", reward=-1.0, sd=0.5)]
    with pytest.raises(UnsupportedError, match="use gaussian noise"):
        bm.posterior(model, bm.Dataset.from_pairs(model, seen), noise_sd=0.5, noise="student-t:4")


def test_a_belief_about_all_rewards_serves_other_engines_too():
    """Found by a user: proper_only, the chart's default here, was refused by engines that have no such option."""
    model = bm.envs.four_state()
    data = bm.Dataset.from_pairs(model, [])
    chart, cells = (
        bm.posterior(model, data, reward_belief=(-2.0, 1.0), prior_scale=10.0, engine=engine)
        for engine in ("chart", "mixture")
    )
    gap = np.abs(chart.action_probability.value - cells.action_probability.value)
    assert gap.max() < 4.5 * np.hypot(chart.action_probability.se, cells.action_probability.se).max() + 1e-3


@pytest.mark.parametrize(("reward", "apart"), [(-9.0, False), (9.0, True)])
def test_rewards_that_are_many_sds_apart_are_told(reward, apart):
    """A cost that was written as a positive number, beside a belief that it is negative."""
    model = bm.envs.two_state()
    data = Dataset.from_pairs(model, [Observation("s1", "go", reward, sd=1.0)]).with_belief(-5.0, 2.0)
    told = bm.posterior(model, data, prior_scale=50.0, proper_only=True).warnings
    assert (
        any('rewards of ("s1", "go"), beliefs included, differ by many of their sds' in line for line in told) is apart
    )
