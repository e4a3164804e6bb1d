"""Noisy rewards: the kernels, the table of an inferred scale, and the posterior against closed forms and quadrature."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import bellmanifold as bm
import bellmanifold_paper as paper
from bellmanifold import envs
from bellmanifold.chart.batch import batch_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.draws import weighted_draws
from bellmanifold.posteriors.kernels import Gaussian, Laplace, StudentT, Uniform, named_kernel
from bellmanifold.posteriors.noise import HalfNormal
from bellmanifold.posteriors.noise_scale import log_scatter, scale_table
from bellmanifold.posteriors.summary import Summary
from bellmanifold.posteriors.target import noisy_target
from bellmanifold.posteriors.walk import by_walk
from bellmanifold.problem.dataset import Dataset

REFERENCE = {
    Gaussian(): stats.norm(),
    Uniform(): stats.uniform(-1, 2),
    Laplace(): stats.laplace(),
    StudentT(1.0): stats.t(1),
    StudentT(3.5): stats.t(3.5),
    StudentT(50.0): stats.t(50),
    StudentT(1e15): stats.norm(),
}


@pytest.mark.parametrize("law", REFERENCE, ids=str)
def test_maps_of_normals_follow_their_laws(law):
    """Weighed by the correction, images of normals have the law's distribution function; densities are scipy's."""
    x = jnp.linspace(-9.0, 9.0, 400_001)
    z = law.from_normal(x)
    weight = np.asarray(jnp.exp(law.log_correction(z))) * stats.norm.pdf(x)
    below = integrate.cumulative_trapezoid(weight, np.asarray(x), initial=0.0)
    inner = np.abs(x) < 5.0  # beyond, uniform numbers lie on the edge
    np.testing.assert_allclose(below[inner], REFERENCE[law].cdf(z)[inner], atol=2e-7)
    density = np.asarray(jnp.exp(law.log_density(z)))
    np.testing.assert_allclose(density[inner], REFERENCE[law].pdf(z)[inner], rtol=1e-9, atol=1e-300)
    assert np.all(np.diff(z) >= 0)


def test_names_of_laws():
    assert named_kernel("gaussian") == Gaussian()
    assert named_kernel("laplace") == Laplace()
    assert named_kernel("student-t:2.5") == StudentT(2.5)
    for wrong in ("cauchy", "student-t", "student-t:", "student-t:x", "student-t:0", "student-t:-1", "student-t:nan"):
        with pytest.raises(BadInputError, match=r"student-t|choose"):
            named_kernel(wrong)


def bandit(actions=2):
    """One state whose actions all end at the goal: action values are independent given the noise scale."""
    return from_moves("bandit", {("s", f"a{k}"): Move(0.0, {"goal": 1.0}) for k in range(actions)}, start="s")


def noisy_data(model, rewards):
    """Rewards by pair."""
    return Dataset.from_pairs(model, [(*model.pair_name(i), r) for i, own in enumerate(rewards) for r in own])


def test_scale_table_against_quadrature():
    data = noisy_data(bandit(), [[0.1, 0.4, -0.2], [1.0, 1.3]])
    prior = HalfNormal(0.7)

    def density(eta):
        return np.exp(prior(np.array([eta])) + log_scatter(data, np.array([eta])))[0]

    table = scale_table(data, prior)
    mass = integrate.quad(density, 0, 8, points=[0.05, 0.2, 0.5, 1.0], epsabs=1e-13)[0]
    assert table.log_mass == pytest.approx(np.log(mass), abs=1e-8)
    for z in (-3.0, -1.0, 0.0, 0.7, 2.5):
        eta = np.exp(np.interp(z, table.normal, table.log_scale))
        below = integrate.quad(density, 0, eta, points=[min(0.05, eta / 2)], epsabs=1e-13)[0] / mass
        assert stats.norm.ppf(below) == pytest.approx(z, abs=1e-5)


def test_without_data_the_scale_keeps_its_prior():
    """Half-normal: mean sqrt(2/pi), variance 1 - 2/pi."""
    model = bandit()
    summary = bm.posterior(model, Dataset.from_pairs(model, []), infer_noise=True)
    assert summary.result.noise_scale == pytest.approx((np.sqrt(2 / np.pi), np.sqrt(1 - 2 / np.pi)), abs=1e-3)


def test_scale_table_of_sharp_data():
    """A million rewards: the scale is known to 7e-4, and the table sees the peak."""
    rewards = np.random.default_rng(0).normal(0.0, 0.3, 10**6)
    data = Dataset(bandit(1), np.zeros(10**6, dtype=np.int64), rewards)
    table = scale_table(data, HalfNormal())
    low, middle, high = np.exp(np.interp([-1.0, 0.0, 1.0], table.normal, table.log_scale))
    assert middle == pytest.approx(np.sqrt(data.scatter.sum() / (10**6 - 1)), rel=1e-5)
    assert (high - low) / 2 / middle == pytest.approx(1 / np.sqrt(2e6), rel=1e-2)


def test_four_states_seen_ten_times():
    """The published values; mixture is exact here."""
    model = envs.four_state()
    data = Dataset.from_pairs(model, [model.pair_name(i) for i in range(5)] * 10)
    summary = bm.posterior(model, data, noise_sd=0.01, prior_scale=2.0, engine="mixture")
    assert [route.probability for route in summary.routes] == pytest.approx([0.5018228465, 0.4981771535], abs=1e-6)
    chart = bm.posterior(model, data, noise_sd=0.01, prior_scale=2.0, engine="chart")
    for route, exact in zip(chart.routes, summary.routes, strict=True):
        assert route.probability == pytest.approx(exact.probability, abs=max(1e-3, 4 * route.se))
    assert float(chart.log_evidence.value) == pytest.approx(float(summary.log_evidence.value), abs=1e-5)


def test_evidence_counts_every_repeat():
    """One pair, three rewards: their joint Gaussian density in closed form, by chart and by mixture."""
    model, rewards, eta, sigma = bandit(1), [0.3, -0.5, 0.9], 0.4, 2.0
    data = noisy_data(model, [rewards])
    exact = stats.multivariate_normal(np.zeros(3), sigma**2 * np.ones((3, 3)) + eta**2 * np.eye(3)).logpdf(rewards)
    for engine in ("chart", "mixture"):
        summary = bm.posterior(model, data, noise_sd=eta, prior_scale=sigma, engine=engine)
        assert float(summary.log_evidence.value) == pytest.approx(exact, abs=1e-4)
        precision = 1 / sigma**2 + 3 / eta**2
        assert summary.q_mean.value[0] == pytest.approx(np.sum(rewards) / eta**2 / precision, abs=1e-3)
        assert summary.q_sd.value[0] == pytest.approx(precision**-0.5, rel=1e-2)


@pytest.mark.parametrize(
    "law", [*(pytest.param(law, marks=pytest.mark.slow) for law in (Gaussian(), StudentT(3.0))), Laplace()], ids=str
)
def test_two_state_by_quadrature(law):
    """Example 1, whose improper half needs a cut, for every law: evidence and improper mass within 5 SE + 1e-4."""
    model, sigma, eta = envs.two_state(), 2.0, 0.5
    summary = bm.posterior(model, Dataset.complete(model), noise_sd=eta, prior_scale=sigma, noise=law)
    stay, go = np.meshgrid(*[np.linspace(-8 * sigma, 8 * sigma, 3201)] * 2, indexing="ij", sparse=True)
    area = (16 * sigma / 3200) ** 2
    prior = stats.norm.pdf(stay, scale=sigma) * stats.norm.pdf(go, scale=sigma)
    noise = REFERENCE.get(law, stats.t(3))
    likelihood = noise.pdf((stay - np.maximum(stay, go) + 1) / eta) * noise.pdf((go + 1) / eta) / eta**2
    density = prior * likelihood
    total = density.sum() * area
    improper = (density[stay > go].sum() + 0.5 * density[stay == go].sum()) * area / total
    assert summary.diagnostics["coordinates"] == "cut"
    assert float(summary.log_evidence.value) == pytest.approx(np.log(total), abs=5 * summary.log_evidence.se + 1e-4)
    assert float(summary.improper_mass.value) == pytest.approx(improper, abs=5 * summary.improper_mass.se + 1e-4)


def eta_by_quadrature(data, sigma, prior):
    """Evidence, and posterior mean of eta and of the first action's being best, for two actions of a bandit."""
    count, mean = data.count, data.mean_reward

    def weight(eta):
        log_density = prior(np.array([eta]))[0]
        for pair, m in enumerate(count):  # all rewards of a pair share its value: jointly normal
            covariance = sigma**2 * np.ones((m, m)) + eta**2 * np.eye(m)
            law = stats.multivariate_normal(np.zeros(m), covariance, allow_singular=True)
            log_density += law.logpdf(data.reward[data.pair == pair])
        return float(np.exp(log_density))

    def first_is_best(eta):
        precision = 1 / sigma**2 + count / eta**2
        centre, variance = mean * count / eta**2 / precision, 1 / precision
        return weight(eta) * stats.norm.cdf((centre[0] - centre[1]) / np.sqrt(variance.sum()))

    def over_eta(f):
        return integrate.quad(f, 1e-6, 8, points=[0.05, 0.2, 0.5, 1.0, 2.0], limit=200)[0]

    total = over_eta(weight)
    return np.log(total), over_eta(lambda eta: eta * weight(eta)) / total, over_eta(first_is_best) / total


@pytest.mark.parametrize(
    "rewards",
    [
        pytest.param([[0.5], [0.2]], marks=pytest.mark.slow, id="once"),
        pytest.param([[0.5, 0.7, 0.1], [0.2, 0.4]], marks=pytest.mark.slow, id="repeats"),
    ],
)
def test_inferred_scale_against_quadrature(rewards):
    """Scrambled nets: within 5 SE; a walk of 256 chains: within 0.02."""
    model, sigma, prior = bandit(), 1.5, HalfNormal(0.8)
    data = noisy_data(model, rewards)
    log_evidence, eta, best = eta_by_quadrature(data, sigma, prior)
    summary = bm.posterior(model, data, infer_noise=prior, prior_scale=sigma)
    assert float(summary.log_evidence.value) == pytest.approx(log_evidence, abs=5 * summary.log_evidence.se + 1e-6)
    assert summary.result.noise_scale[0] == pytest.approx(eta, abs=2e-3)
    found = summary.action_probability
    assert found.value[0] == pytest.approx(best, abs=5 * found.se[0] + 1e-4)
    answer = summary.to_dict()
    assert answer["epsilon"] is None
    assert answer["noise"]["law"] == "gaussian"
    assert answer["noise"]["mean"] == pytest.approx(eta, abs=2e-3)
    budget = Budget(samples=64_000)
    walked = Summary(summary.target, by_walk(summary.target, budget, "forced"), budget)
    assert walked.action_probability.value[0] == pytest.approx(best, abs=0.02)
    assert walked.result.noise_scale[0] == pytest.approx(eta, abs=0.02)
    draws = summary.weighted_draws
    assert float(draws.weight.values @ draws.noise_scale.values) == pytest.approx(eta, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize(("law", "inferred"), [("gaussian", False), ("gaussian", True), ("student-t:4", True)])
def test_noisy_posterior_is_calibrated(law, inferred):
    """Q, eta and noise drawn from their laws: posterior ranks of each are uniform. 200 replications of a depth-2 deep
    sea, 7 Kolmogorov-Smirnov tests at 1e-4 each: false alarm 7e-4 a case."""
    rng = np.random.default_rng(5)
    model, sigma = envs.deep_sea(2), 1.5
    chart, noise = batch_chart(model), named_kernel(law)
    ranks = []
    for replication in range(200):
        q = rng.normal(scale=sigma, size=6)
        eta = abs(rng.normal()) if inferred else 0.4
        pairs = np.array([0, 1, 2, 4])
        if law == "gaussian":
            pairs = np.repeat(pairs, [3, 2, 1, 2])
        w = REFERENCE.get(noise, stats.t(4)).rvs(len(pairs), random_state=rng)
        mean = q - (model.backup(model.best(q)) - model.reward)
        data = Dataset(model, pairs, mean[pairs] + eta * w)
        target = noisy_target(data, HalfNormal() if inferred else eta, sigma, noise)
        draws = weighted_draws([Coordinates(target)], chart, 2000, seed=replication)
        below = [draws.weight.values @ (draws.q.values[:, i] < q[i]) for i in range(6)]
        if inferred:
            below.append(draws.weight.values @ (draws.noise_scale.values < eta))
        ranks.append(below)
    p_values = [stats.kstest(column, "uniform").pvalue for column in np.array(ranks).T]
    assert min(p_values) > 1e-4, p_values


def test_bad_input():
    model = envs.two_state()
    data = Dataset.from_pairs(model, [("s1", "go", -1.0), ("s1", "go", -1.2), ("s1", "stay", -1.0)])
    for options, complaint in (
        ({"noise_sd": 0.0}, "noise_sd is 0"),
        ({"noise_sd": -1.0}, "noise_sd is -1"),
        ({"noise_sd": float("nan")}, "noise_sd is nan"),
        ({"noise_sd": 0.1, "epsilon": 0.1}, "epsilon"),
        ({"infer_noise": True, "epsilon": 0.0}, "epsilon"),
        ({"noise_sd": 0.1, "kernel": "uniform"}, "kernel"),
        ({"noise_sd": 0.1, "infer_noise": True}, "leave one"),
        ({"noise": "laplace"}, "give noise_sd or infer_noise=True"),
        ({"noise_sd": 0.1, "noise": "student-t:0"}, "degrees"),
    ):
        with pytest.raises(BadInputError, match=complaint):
            bm.posterior(model, data, **options)
    for reward in (-1.0, -0.1):  # three times 0.1, divided by 3, is not 0.1
        with pytest.raises(BadInputError, match="finite mass"):
            bm.posterior(model, Dataset.from_pairs(model, [("s1", "go", reward)] * 3), infer_noise=True)
    with pytest.raises(UnsupportedError, match="nuts"):
        bm.posterior(model, data, noise_sd=0.1, noise="laplace", engine="chart")


def test_uniform_residuals_on_the_edge_do_not_depend_on_rounding():
    """A self-loop whose reward is as large as the tolerance: its residual lies on the kernel's edge in every improper
    parameter, which has no mass; just inside the edge it has a lot."""
    moves = {("s", "x"): Move(-0.5, {"s": 1.0}), ("s", "y"): Move(-0.7, {"s": 0.5, "goal": 0.5})}
    moves |= {("s", "z"): Move(-0.9, {"goal": 1.0})}
    model = from_moves("edge", moves, start="s")
    options = {"prior_scale": 1.0, "kernel": "uniform"}
    on_edge = bm.posterior(model, Dataset.complete(model), epsilon=0.5, **options)
    assert float(on_edge.improper_mass.value) == 0.0
    inside = bm.posterior(model, Dataset.complete(model), epsilon=0.5 + 1e-6, **options)
    assert float(inside.improper_mass.value) == pytest.approx(0.81, abs=0.02)


def test_what_is_no_prior_and_no_noise_is_refused():
    model = envs.two_state()
    repeats = Dataset.from_pairs(model, [("s1", "go", -1.0), ("s1", "go", -1.2)])
    with pytest.raises(UnsupportedError, match="no gradient"):
        bm.posterior(model, repeats, noise_sd=0.5, noise=Uniform())
    with pytest.raises(BadInputError, match="prior_scales is empty"):
        paper.evidence_curve(model, repeats, [])
    summary = bm.posterior(model, Dataset.complete(model))
    with pytest.raises(BadInputError, match="one pair of each"):
        summary.policy_probability(np.array([0, 1]))


def test_priors_that_are_none_and_what_chains_cannot_do():
    model = envs.two_state()
    repeats = Dataset.from_pairs(model, [("s1", "go", -1.0), ("s1", "go", -1.2)])
    with pytest.raises(BadInputError, match=r"prior scale of the noise is 0\.0: give a positive number"):
        HalfNormal(0.0)
    with pytest.raises(BadInputError, match="not a log density: give finite numbers or -inf"):
        bm.posterior(model, repeats, infer_noise=lambda eta: np.full_like(eta, np.nan))
    with pytest.raises(BadInputError, match="no proper_only"):
        bm.posterior(model, repeats, noise_sd=0.5, noise="laplace", proper_only=True)
    with pytest.raises(
        UnsupportedError, match=r"a prior of your own over its scale: use bellmanifold_paper\.sample_chains"
    ):
        bm.posterior(model, repeats, noise="laplace", infer_noise=lambda eta: -eta)
    with pytest.raises(UnsupportedError, match='every pair was seen once: use engine="nuts"'):
        noisy_target(repeats, 0.5, 1.0, Laplace())
