"""Priors of action values with means and sds of their own, in every engine, the TD posteriors and the agents.

The problem: (s, a) was seen to pay and leads to t; (s, b), (t, c) and (t, d) are untried. With V = max(c, d), whose
density is n_c Phi_d + n_d Phi_c, and a = r + V + noise everything is an integral over V and a.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from open_quadrature import open_model
from scipy.stats import norm

import bellmanifold as bm
from bellmanifold.agents.registry import find_agent, make_agent
from bellmanifold.errors import BadInputError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.policies import action_probabilities
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.posteriors.walk import by_walk
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.ssp import StatedPrior
from bellmanifold_paper import td

PAIRS = [("s", "a"), ("s", "b"), ("t", "c"), ("t", "d")]
MODEL = open_model(["s", "t"], PAIRS, [(("s", "a"), {"t": 1.0}), *((pair, {"goal": 1.0}) for pair in PAIRS[1:])])
MEAN, SD = np.array([-2.0, -1.0, 0.5, 1.0]), np.array([2.0, 1.0, 1.5, 0.5])
REWARD = -1.0
DATA = Dataset.from_pairs(MODEL, [("s", "a", REWARD)])


def exact(epsilon, kernel="gaussian", grid=2000):
    """Log evidence, probabilities of a and c, mean of a and c."""
    v = np.linspace(-8.0, 9.0, grid)[:, None]
    c, d = (norm(MEAN[k], SD[k]) for k in (2, 3))
    by_c, by_d = c.pdf(v) * d.cdf(v), d.pdf(v) * c.cdf(v)
    if epsilon:
        q = np.linspace(-12.0, 8.0, grid)[None, :]
        miss = (q - v - REWARD) / epsilon
        width = (v[1, 0] - v[0, 0]) * (q[0, 1] - q[0, 0])
        shape = norm.pdf(miss) if kernel == "gaussian" else 0.5 * (np.abs(miss) < 1.0)
        weight = norm.pdf(q, MEAN[0], SD[0]) * shape / epsilon * width
    else:
        q = REWARD + v
        weight = norm.pdf(q, MEAN[0], SD[0]) * (v[1] - v[0])
    both, a_best = weight * (by_c + by_d), norm.cdf(q, MEAN[1], SD[1])
    z = both.sum()
    below = MEAN[2] - SD[2] ** 2 * c.pdf(v) / c.cdf(v)
    mean_c = (weight * (by_c * v + by_d * below)).sum() / z
    return np.log(z), (both * a_best).sum() / z, (weight * by_c).sum() / z, (both * q).sum() / z, mean_c


def check(target, result, answer, accuracy=1e-3):
    """Within the accuracy, or 4.5 standard errors."""
    evidence, best_a, best_c, mean_a, mean_c = answer
    found, mean = action_probabilities(target.model, result.table), result.q_mean
    for value, se, right in (
        (found.value[0], found.se[0], best_a),
        (found.value[2], found.se[2], best_c),
        (mean.value[0], mean.se[0], mean_a),
        (mean.value[2], mean.se[2], mean_c),
    ):
        assert abs(value - right) <= max(accuracy, 4.5 * se), (value, se, right)
    if result.log_evidence is not None:
        assert abs(result.log_evidence.value - evidence) <= max(accuracy, 4.5 * result.log_evidence.se)


@pytest.mark.parametrize(
    ("engine", "epsilon", "kernel"),
    [
        ("chart", 0.0, "gaussian"),
        ("chart", 0.3, "gaussian"),
        ("mixture", 0.3, "gaussian"),
        ("chart", 0.5, "uniform"),
        ("rejection", 0.5, "uniform"),
        pytest.param("hmc", 0.3, "gaussian", marks=pytest.mark.slow),
        pytest.param("nuts", 0.3, "gaussian", marks=pytest.mark.slow),
    ],
)
def test_engines(engine, epsilon, kernel):
    """Pair by pair, against quadrature.

    A false-alarm rate below 1e-4 in each.
    """
    found = bm.posterior(MODEL, DATA, epsilon=epsilon, kernel=kernel, engine=engine, prior_mean=MEAN, prior_scale=SD)
    assert found.trustworthy
    assert not found.warnings
    check(found.target, found.result, exact(epsilon, kernel), 2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_walk(epsilon):
    """A false-alarm rate below 1e-3."""
    target = relaxed_target(DATA, epsilon, ValuePrior(MEAN, SD))
    check(target, by_walk(target, Budget(), "asked for"), exact(epsilon), 2e-3)


def test_equal_priors_with_a_mean():
    """Untried pairs that share a prior are exchangeable, whatever its mean: one coordinate, the same answers.

    A false-alarm rate below 1e-4.
    """
    shifted = bm.posterior(MODEL, DATA, prior_mean=3.0, prior_scale=2.0)
    assert shifted.dimension == 2
    apart = bm.posterior(MODEL, DATA, prior_mean=np.array([3.0, 3.0, 3.0, 3.0 + 1e-12]), prior_scale=2.0)
    assert apart.dimension == 3
    se = np.hypot(shifted.action_probability.se, apart.action_probability.se)
    assert (np.abs(shifted.action_probability.value - apart.action_probability.value) <= 4.5 * se + 1e-4).all()
    assert np.abs(shifted.q_mean.value - apart.q_mean.value).max() < 1e-2
    assert shifted.q_sd.value.tolist() == pytest.approx(apart.q_sd.value.tolist(), rel=1e-2)


def test_what_states_a_prior():
    """Numbers, arrays, a mapping and the file; options override what the file says of all pairs, not of one."""
    told = replace(MODEL, prior=StatedPrior(-1.0, 3.0, np.array([np.nan, 5.0, np.nan, np.nan]), np.full(4, np.nan)))

    def stated(*given, model=MODEL, **options):
        prior = ValuePrior.stated(model, *given, **options)
        return prior.mean.tolist(), prior.sd.tolist()

    assert stated() == ([0.0] * 4, [10.0] * 4)
    assert stated(2, -1) == ([-1.0] * 4, [2.0] * 4)
    assert stated(SD, MEAN) == (MEAN.tolist(), SD.tolist())
    assert stated(2.0, pairs={("t", "c"): (7.0, 0.5)}) == ([0.0, 0.0, 7.0, 0.0], [2.0, 2.0, 0.5, 2.0])
    assert stated(model=told) == ([-1.0, 5.0, -1.0, -1.0], [3.0] * 4)
    assert stated(2.0, 0.5, model=told) == ([0.5, 5.0, 0.5, 0.5], [2.0] * 4)
    assert stated(model=told, pairs={("s", "b"): (1.0, 2.0)}) == ([-1.0, 1.0, -1.0, -1.0], [3.0, 2.0, 3.0, 3.0])
    found = bm.posterior(told, replace(DATA, model=told), prior={("t", "c"): (7.0, 0.5)}, samples=1024)
    assert found.target.prior.mean.tolist() == [-1.0, 5.0, 7.0, -1.0]
    assert (found.q_mean.value[1], found.q_sd.value[1]) == (pytest.approx(5.0, abs=0.3), pytest.approx(3.0, abs=0.3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior_mean": np.nan}, "prior_mean is nan: give a finite number"),
        ({"prior_mean": np.zeros(3)}, "prior_mean has 3 numbers: give one, or one for each of 4 pairs"),
        ({"prior_scale": np.array([1.0, 0.0, 1.0, 1.0])}, "prior_scale is 0.0: give a positive number"),
        ({"prior_scale": -1}, "prior_scale is -1.0: give a positive number"),
        ({"prior": {("s", "x"): (0.0, 1.0)}}, 'prior: state "s" has no action "x"'),
        ({"prior": {("s", "a"): (0.0, 0.0)}}, r'prior: the sd of \("s", "a"\) is 0.0: give a positive number'),
        ({"prior": {("s", "a"): (np.inf, 1.0)}}, "prior: a mean or a standard deviation is not finite"),
    ],
)
def test_priors_that_are_none(options, message):
    with pytest.raises(BadInputError, match=message):
        bm.posterior(MODEL, DATA, **options)


def test_a_prior_in_a_file(cli, tmp_path):
    """The command line reads it, and `--prior-mean` speaks of the other pairs."""
    stated = StatedPrior(None, 1.0, np.array([np.nan, 5.0, np.nan, np.nan]), np.full(4, np.nan))
    problem, data = tmp_path / "problem.json", tmp_path / "data.json"
    bm.write_problem(replace(MODEL, prior=stated), problem)
    bm.write_data(DATA, data)
    code, out, _ = cli("posterior", str(problem), str(data), "--prior-mean", "-3", "--json")
    assert code == 0
    told = bm.posterior(MODEL, DATA, prior_mean=np.array([-3.0, 5.0, -3.0, -3.0]), prior_scale=1.0).to_dict()
    assert json.loads(out)["q_mean"] == told["q_mean"]


# --- contradictions -------------------------------------------------------------------------------------------------


def test_data_that_contradict_the_prior():
    """Values many prior sds away get a warning with numbers that would fit; these get none."""
    data = Dataset.from_pairs(MODEL, [("t", "c", -100.0), ("t", "d", -120.0)])
    found = bm.posterior(MODEL, data)
    assert found.trustworthy
    (warning,) = found.warnings
    assert warning == (
        'the data contradict the prior: the value of ("t", "d") is about -120, 12 prior standard deviations from its '
        "prior mean 0: prior_mean=-1.1e+02, prior_scale=1.1e+02 would fit"
    )
    assert found.to_dict()["warnings"] == [warning]
    assert not bm.posterior(MODEL, data, prior_mean=-110.0, prior_scale=110.0).warnings
    assert not bm.posterior(MODEL, DATA).warnings


# --- temporal differences and agents --------------------------------------------------------------------------------


def test_temporal_differences():
    prior = ValuePrior(MEAN, SD)
    first = td.initial(MODEL, prior)
    assert first.q_mean.tolist() == MEAN.tolist()
    assert first.q_sd.tolist() == pytest.approx(SD.tolist())
    target = relaxed_target(DATA, 0.5, prior)
    shrink = 1.0 / (1.0 + (0.5 / SD[0]) ** 2)
    plain = td.update_td(first, target)
    assert plain.q_mean.tolist() == pytest.approx([MEAN[0] + shrink * (REWARD + 1.0 - MEAN[0]), *MEAN[1:]])
    assert plain.q_sd.tolist() == pytest.approx([0.5 * shrink**0.5, *SD[1:]])
    spread = np.hypot(SD[2], SD[3])
    gap = (MEAN[2] - MEAN[3]) / spread
    best = MEAN[2] * norm.cdf(gap) + MEAN[3] * norm.cdf(-gap) + spread * norm.pdf(gap)
    largest = td.update_td_max(first, target)
    assert largest.q_mean[0] == pytest.approx(MEAN[0] + shrink * (REWARD + best - MEAN[0]))
    ensemble = td.update_td_en(first, target, np.random.default_rng(0), members=20_000)
    y = REWARD + np.maximum(*td.draw(first, np.random.default_rng(1), 400_000)[:, 2:].T)
    weight = norm.pdf(y, MEAN[0], np.hypot(SD[0], 0.5))
    assert ensemble.q_mean[0] == pytest.approx(MEAN[0] + shrink * (weight @ y / weight.sum() - MEAN[0]), abs=0.03)


AGENTS = ["manifold", "bayes-br", "bayes-td", "bayes-td-max", "bayes-td-en"]
AGENTS += [pytest.param("bayes-br-hmc", marks=pytest.mark.slow)]


@pytest.mark.parametrize("agent", AGENTS)
def test_agents(agent):
    """What was tried paid 1: a prior mean of 6 prefers what was not, one of -4 what was: five sds."""
    moves = open_model(["s"], [("s", "a"), ("s", "b")], [(("s", k), {"goal": 1.0}) for k in "ab"])
    model = replace(moves, reward=np.array([1.0, 1.0]))
    for mean, wanted in ((6.0, 1), (-4.0, 0)):
        for given in (True, False):
            told = (
                model if given else replace(model, prior=StatedPrior(mean, 1.0, np.full(2, np.nan), np.full(2, np.nan)))
            )
            options = {"prior_mean": mean, "prior_scale": 1.0} if given else {}
            played = make_agent(agent, told, options)
            rng = np.random.default_rng(0)
            played.policy(rng)
            played.observe(np.array([0]), np.array([1.0]))
            assert played.policy(rng).tolist() == [wanted], (mean, given)


@pytest.mark.parametrize("agent", AGENTS)
def test_agents_begin_with_the_prior_of_each_pair(agent):
    model = open_model(["s"], [("s", "a"), ("s", "b")], [(("s", k), {"goal": 1.0}) for k in "ab"])
    for best in (0, 1):
        mean = np.where(np.arange(2) == best, 3.0, -3.0)
        told = replace(model, reward=np.zeros(2), prior=StatedPrior(None, None, mean, np.full(2, 0.1)))
        assert make_agent(agent, told, {}).policy(np.random.default_rng(0)).tolist() == [best]


def test_runs_that_are_played_in_step_know_the_prior_of_the_problem():
    """`bayes-br-hmc` in `learn`: the first episode plays a draw from the stated prior, and only (s, a) pays 0."""
    model = open_model(["s"], [("s", "a"), ("s", "b")], [(("s", k), {"goal": 1.0}) for k in "ab"])
    stated = StatedPrior(50.0, 1e-3, np.array([np.nan, 49.0]), np.full(2, np.nan))
    model = replace(model, reward=np.array([0.0, -1.0]), prior=stated)
    settings = find_agent("bayes-br-hmc").settings_for(model, {"epsilon": 0.5})
    assert (settings.prior_mean, settings.prior_scale, settings.epsilon) == (50.0, 1e-3, 0.5)
    played = bm.learn(model, agent="bayes-br-hmc", episodes=1, runs=3)
    assert [run.played[0].rewards.tolist() for run in played.runs] == [[0.0]] * 3


def test_a_prior_of_a_pair_is_two_numbers():
    model = bm.envs.two_state()
    for wrong in ({("s1", "go"): -80.0}, {"a state": (0.0, 1.0)}, {("s1", "go"): ("a", 1.0)}):
        with pytest.raises(BadInputError, match="two numbers for a pair"):
            bm.posterior(model, bm.Dataset.from_pairs(model, []), prior=wrong)
