"""A standard error of 0 is for exact answers; a spread keeps its digits; what rounding hides is not told as certain."""

import numpy as np
import pytest
from scipy.stats import binomtest, norm

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.agents.registry import make_agent
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.posteriors.result import Moments

RING = 41
"""States of a random round that is too large for batches: problems beside it are walked on sparse systems."""
SURPRISES = 6
"""Moves that pay far more than the prior thinks possible: weights are uneven, and problems beside them are walked."""


def choice(pays, *others, state="s"):
    """One state: `known` ends and pays, the others are untried and end, too."""
    moves = {(state, "known"): Move(pays, {"goal": 1.0})}
    return moves | {(state, other): Move(0.0, {"goal": 1.0}) for other in others}


def ring(scale):
    """Observed states in a circle; each move ends with probability 1/2 and pays nothing."""
    return {(f"r{k}", "go"): Move(0.0, {f"r{(k + 1) % RING}": 0.5, "goal": 0.5}) for k in range(RING)}


def surprises(scale):
    """Moves that pay five prior scales and lead on to something untried."""
    moves = {(f"m{k}", "go"): Move(5.0 * scale, {f"n{k}": 1.0}) for k in range(SURPRISES)}
    return moves | {(f"n{k}", "untried"): Move(0.0, {"goal": 1.0}) for k in range(SURPRISES)}


SURROUNDINGS = {"chart": lambda scale: {}, "walk": surprises, "sparse walk": ring}
WALKS = [pytest.param(walk, marks=pytest.mark.slow) for walk in ("walk", "sparse walk")]
UNLIKELY = {"chart": (4.5, 1000), "walk": (5.5, 64), "sparse walk": (4.5, 400)}
"""What `known` pays, and how many points are asked for: hardly any of them meets what is untried."""


def surrounded(moves, how, scale=1.0):
    """The problem with something beside it, and data that say everything but what is untried."""
    model = from_moves("problem", moves | SURROUNDINGS[how](scale), start="s")
    seen = [model.pair_name(i) for i in range(model.n_pairs)]
    return model, bm.Dataset.from_pairs(model, [(s, a) for s, a in seen if not a.startswith("untried")])


def assert_honest(value, se, truth):
    """Not certain, not far off, and not vague either."""
    assert se > 0
    assert abs(value - truth) <= 4.5 * se
    assert se < 0.05


def test_nets_that_agree_by_chance_are_not_certain():
    """One normal number decides. All 32 nets may agree on how many of their points pass the known reward.

    A net of n points is off by f/n at most, f uniform, and all agree with probability (1 - f)^32; then the error bar is
    1/32n. False alarms: 8 of these are exceeded with probability 2 (3/4)^33 / 33 = 5e-6, in 40 cases 2e-4.
    """
    for case, pays in enumerate(np.linspace(-1.5, 1.5, 40)):
        model = from_moves("problem", choice(float(pays), "untried"), start="s")
        data = bm.Dataset.from_pairs(model, [("s", "known")])
        found = bm.posterior(model, data, prior_scale=1.0, seed=case).action_probability["s", "untried"]
        assert 0 < found.se < 1e-4
        assert abs(found.value - norm.sf(pays)) <= 8 * found.se


def test_nets_that_agree_by_chance_are_not_certain_of_moments_and_evidence():
    """Staying is worth v unless the untried exit is better: weights jump by 1 / leak where the exit is worth v.

    The evidence was up to 26 of its errors off, the mean 4.5. Against the trapezoidal rule on both sides of the jump;
    3.5 errors were exceeded by none of 80 seeds. False alarms: below 1e-3 for each of 20 numbers, fixed seeds.
    """
    leak = 0.25
    for seed, v in ((11, 0.03), (39, 0.03), (45, -0.46), (54, -0.97)):
        moves = {
            ("s", "stay"): Move(v * leak, {"s": 1 - leak, "goal": leak}),
            ("s", "untried"): Move(0.0, {"goal": 1.0}),
        }
        model = from_moves("problem", moves, start="s")
        found = bm.posterior(model, bm.Dataset.from_pairs(model, [("s", "stay")]), prior_scale=1.0, seed=seed)
        below, above = np.linspace(-9.0, v, 20001), np.linspace(v, 9.0, 20001)
        sums = np.zeros(5)
        for x, stay, determinant in (
            (below, np.full_like(below, v), leak),
            (above, v * leak + (1 - leak) * above, 1.0),
        ):
            weight = norm.pdf(x) * norm.pdf(stay) / determinant
            sums += [np.trapezoid(weight * power, x) for power in (np.ones_like(x), stay, stay**2, x, x**2)]
        _, stay, stay_square, untried, untried_square = sums / sums[0]
        mean, sd = np.array([stay, untried]), np.sqrt([stay_square - stay**2, untried_square - untried**2])
        assert np.all(np.abs(found.q_mean.value - mean) <= 3.5 * found.q_mean.se)
        assert np.all(np.abs(found.q_sd.value - sd) <= 3.5 * found.q_sd.se)
        assert abs(found.log_evidence.value - np.log(sums[0])) <= 3.5 * found.log_evidence.se
        assert max(found.q_mean.se.max(), found.q_sd.se.max(), float(found.log_evidence.se)) < 3e-4


def test_one_draw_moves_moments_by_no_more_than_their_errors():
    """The farthest of 1,000 normal draws is 3.7 standard deviations away; where nothing is sampled errors stay 0.

    Two replicates: means that differ by 1 have an error of 0.5; of those that agree and of sds that agree it is 0.
    """
    spread = np.array([[2.0, 0.4, 0.0], [2.5, 0.4, 0.0]])
    moments = Moments(np.ones(2), np.array([[1.0, -2.0, 3.0], [2.0, -2.0, 3.0]]), spread**2)
    mean, sd = moments._estimate(slice(None))
    np.testing.assert_allclose(mean.value, [1.5, -2.0, 3.0])
    np.testing.assert_allclose(mean.se, [0.5, 0.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(sd.value, [np.sqrt((2.0**2 + 2.5**2) / 2 + 0.25), 0.4, 0.0])
    assert sd.se[0] > 0.1
    least = moments._estimate(slice(None), 1e-3)
    assert [list(found.value) for found in least] == [list(mean.value), list(sd.value)]
    np.testing.assert_allclose(least[0].se, [0.5, 0.4e-3 * np.sqrt(2 * np.log(1000)), 0.0])
    np.testing.assert_allclose(least[1].se, [sd.se[0], 0.4e-3 * np.log(1000), 0.0])


@pytest.mark.parametrize("epsilon", [0.0, 1e-3])
@pytest.mark.parametrize("how", ["chart", *WALKS])
def test_an_action_that_no_point_met_has_an_error(how, epsilon):
    """Its probability is 3.4e-6 (1.9e-8 in one walk): hardly any point meets it, but none must not mean never."""
    pays, samples = UNLIKELY[how]
    model, data = surrounded(choice(pays, "untried"), how)
    found = bm.posterior(model, data, prior_scale=1.0, epsilon=epsilon, engine="chart", samples=samples)
    found = found.action_probability
    truth = norm.cdf(-pays)
    assert_honest(found.value[1], found.se[1], truth)
    assert_honest(found.value[0], found.se[0], 1 - truth)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["hmc", "nuts"])
def test_the_same_of_chains_that_follow_gradients(engine):
    """`known` paid 8 and is worth 4 +- 0.7 (tolerance and prior scale 1): the other is better with probability 5e-4.

    Few draws meet that; none must not mean never.
    """
    model, data = surrounded(choice(8.0, "untried"), "chart")
    found = bm.posterior(model, data, prior_scale=1.0, epsilon=1.0, engine=engine, samples=200).action_probability
    truth = norm.cdf(-4.0 / np.sqrt(1.5))
    assert found.se.min() > 0
    assert abs(found.value[1] - truth) <= 4.5 * found.se[1]


def test_untried_actions_that_no_point_met_have_errors_each():
    """Three untried actions share what is left, 2.1e-6 each."""
    model, data = surrounded(choice(4.6, "untried0", "untried1", "untried2"), "chart")
    found = bm.posterior(model, data, prior_scale=1.0, samples=256).action_probability
    for pair in (1, 2, 3):
        assert_honest(found.value[pair], found.se[pair], (1 - norm.cdf(4.6) ** 3) / 3)


def test_what_is_said_of_a_policy_and_of_loops_that_no_point_met_has_an_error():
    """The untried move stays forever: its policy is optimal, and improper, with probability 7.9e-7."""
    moves = choice(4.8) | {("s", "untried"): Move(-1.0, {"s": 1.0})}
    model, data = surrounded(moves, "chart")
    summary = bm.posterior(model, data, prior_scale=1.0, samples=256)
    unlikely = summary.policy_probability(np.array([1]))
    for estimate in (unlikely, summary.improper_mass_model):
        assert_honest(float(estimate.value), float(estimate.se), norm.cdf(-4.8))


def test_the_interface_says_so_too():
    """The JSON object has the same error as the summary, a number and never null."""
    model, data = surrounded(choice(4.5, "untried"), "chart")
    actions = bm.posterior(model, data, prior_scale=1.0, samples=1000).to_dict()["actions"]["s"]
    assert all(entry["se"] > 0 for entry in actions.values())


def test_exact_answers_have_no_error():
    """No data; an action that is alone; complete data without ties; one integral in closed form; untouched states."""
    model = envs.four_state()
    prior = bm.posterior(model, bm.Dataset.from_pairs(model, []))
    np.testing.assert_array_equal(prior.action_probability.se, 0.0)
    np.testing.assert_allclose(prior.action_probability.value, [0.5, 0.5, 0.5, 0.5, 1.0])
    alone = bm.posterior(model, _first(model, 2))
    only = model.pair_start[:-1][np.diff(model.pair_start) == 1]
    np.testing.assert_array_equal(alone.action_probability.value[only], 1.0)
    np.testing.assert_array_equal(alone.action_probability.se[only], 0.0)
    complete = from_moves(
        "complete", {("s", a): Move(r, {"goal": 1.0}) for a, r in [("a", -1.0), ("b", -2.0)]}, start="s"
    )
    sure = bm.posterior(complete, bm.Dataset.complete(complete))
    np.testing.assert_array_equal(sure.action_probability.value, [1.0, 0.0])
    np.testing.assert_array_equal(sure.action_probability.se, 0.0)
    tried, data = surrounded(choice(-0.4, "untried"), "chart")
    enumerated = bm.posterior(tried, data, prior_scale=1.0, epsilon=0.3, engine="mixture")
    gap = 0.4 / (1 + 0.09) / np.sqrt(1 + 0.09 / 1.09)
    np.testing.assert_allclose(enumerated.action_probability.value, [norm.cdf(-gap), norm.cdf(gap)], atol=1e-12)
    np.testing.assert_array_equal(enumerated.action_probability.se, 0.0)


SPREADS = [(-1000.0, 1e-6, 1000.0), (-1e6, 1e-4, 1e6), (1e5, 1e-3, 1e5)]
"""What the only action pays, the tolerance and the prior scale; the value's sd is 1 / hypot(1/sigma, 1/epsilon)."""


def sd_of(epsilon, scale):
    return 1 / np.hypot(1 / scale, 1 / epsilon)


@pytest.mark.parametrize(("pays", "epsilon", "scale"), SPREADS)
@pytest.mark.parametrize("engine", ["auto", "chart", "mixture"])
def test_a_spread_that_is_small_beside_the_value(engine, pays, epsilon, scale):
    """By the mean of squares it would be lost to cancellation."""
    model, data = surrounded(choice(pays), "chart")
    summary = bm.posterior(model, data, epsilon=epsilon, prior_scale=scale, engine=engine)
    assert summary.q_sd.value[0] == pytest.approx(sd_of(epsilon, scale), rel=1e-3)
    assert summary.q_mean.value[0] == pytest.approx(pays, abs=0.1 * epsilon)


@pytest.mark.parametrize("how", WALKS)
def test_a_small_spread_in_a_walk(how):
    """Chains of at least 100 independent draws each know it to 20%. False-alarm rate: below 1e-2 a case."""
    pays, epsilon, scale = SPREADS[0]
    model, data = surrounded(choice(pays), how, scale)
    summary = bm.posterior(model, data, epsilon=epsilon, prior_scale=scale, engine="chart", samples=2000)
    if summary.trustworthy:
        assert summary.q_sd.value[0] == pytest.approx(sd_of(epsilon, scale), rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["hmc", pytest.param("nuts", marks=pytest.mark.slow)])
def test_a_small_spread_in_chains_of_values(engine):
    """Right to 20%, or not trusted. False-alarm rate: below 1e-2 a case."""
    pays, epsilon, scale = SPREADS[0]
    model, data = surrounded(choice(pays), "chart")
    summary = bm.posterior(model, data, epsilon=epsilon, prior_scale=scale, engine=engine, samples=6400)
    if summary.trustworthy:
        assert summary.q_sd.value[0] == pytest.approx(sd_of(epsilon, scale), rel=0.2)


def test_a_small_spread_of_noisy_rewards():
    """A mean of 25 rewards of about -1000 with noise of sd 1e-5."""
    model, _ = surrounded(choice(-1000.0), "chart")
    data = bm.Dataset.from_pairs(model, [("s", "known", -1000.0)] * 25)
    summary = bm.posterior(model, data, noise_sd=1e-5, prior_scale=1000.0)
    assert summary.q_sd.value[0] == pytest.approx(2e-6, rel=1e-3)


@pytest.mark.parametrize("engine", ["auto", "chart", "mixture"])
@pytest.mark.parametrize("epsilon", [1e-10, 1e-12, 1e-14])
@pytest.mark.parametrize("actions", [2, 3])
def test_a_tolerance_below_the_rounding_of_the_rewards(actions, epsilon, engine):
    """Equal rewards are equally good, whatever the tolerance: right, or not trusted."""
    moves = {("s", f"a{k}"): Move(-1e5, {"goal": 1.0}) for k in range(actions)}
    model, data = surrounded(moves, "chart")
    summary = bm.posterior(model, data, epsilon=epsilon, prior_scale=1e5, engine=engine)
    found = summary.action_probability
    if summary.trustworthy:
        assert (np.abs(found.value - 1 / actions) <= 4.5 * found.se + 2e-3).all()


@pytest.mark.parametrize(
    ("scale", "epsilon"), [(1e6, 1e-12), (1e12, 0.0), pytest.param(1e4, 1e-12, marks=pytest.mark.slow)]
)
def test_a_tolerance_below_the_rounding_of_values(scale, epsilon):
    """Rewards are small and what follows is not: ties are ties, with a tolerance or without.

    False alarms: beyond 4.5 standard errors of 32 replicates with probability 9e-5, for three cases 3e-4.
    """
    moves = {("s", a): Move(-1.0, {"t": 1.0}) for a in "ab"} | {("t", "untried"): Move(0.0, {"goal": 1.0})}
    model, data = surrounded(moves, "chart")
    found = bm.posterior(model, data, epsilon=epsilon, prior_scale=scale).action_probability
    assert (np.abs(found.value[:2] - 0.5) <= 4.5 * found.se[:2] + 3e-4).all()


@pytest.mark.parametrize("actions", [1, 2])
def test_a_tolerance_is_kept_where_it_says_something(actions):
    """A spread of 1e-13 of the value, or of the prior scale, while nothing that large ties."""
    moves = {("s", f"a{k}"): Move(-1e6 if actions == 1 else -1.0, {"goal": 1.0}) for k in range(actions)}
    model, data = surrounded(moves, "chart")
    summary = bm.posterior(model, data, epsilon=1e-7, prior_scale=1e6)
    np.testing.assert_allclose(summary.q_sd.value, 1e-7, rtol=2e-3)


@pytest.mark.parametrize("elsewhere", [-1e7, -1e9])
def test_ties_beside_a_large_reward_elsewhere(elsewhere):
    """Residuals that split a tie are small beside what the values may be, whatever another state pays.

    Both actions of t pay -1, and `go` leads there: worth -1, not 4.6 +- 13. False alarms: 4.5 standard errors of 32
    replicates with probability 9e-5, of two numbers in two cases 4e-4.
    """
    moves = {("s", "go"): Move(0.0, {"t": 1.0}), ("s", "untried"): Move(0.0, {"goal": 1.0})}
    moves |= {("t", a): Move(-1.0, {"goal": 1.0}) for a in "ab"} | {("u", "go"): Move(elsewhere, {"goal": 1.0})}
    model, data = surrounded(moves, "chart")
    summary = bm.posterior(model, data, prior_scale=10.0)
    found, go = summary.action_probability, model.pair_index["s", "go"]
    assert abs(found.value[go] - norm.cdf(-0.1)) <= 4.5 * found.se[go]
    assert abs(found.value[model.pair_index["t", "a"]] - 0.5) <= 4.5 * found.se[model.pair_index["t", "a"]]
    assert summary.q_mean.value[go] == pytest.approx(-1.0, abs=1e-4)
    assert summary.q_sd.value[go] < 1e-4


@pytest.mark.parametrize("how", WALKS)
def test_the_same_in_a_walk(how):
    """Right, or not trusted; false-alarm rate: below 1e-4 a case (six standard errors of four chains or more)."""
    moves = {("s", a): Move(-1e5, {"goal": 1.0}) for a in "ab"}
    model, data = surrounded(moves, how, 1e5)
    summary = bm.posterior(model, data, epsilon=1e-12, prior_scale=1e5, engine="chart", samples=2000)
    found = summary.action_probability
    if summary.trustworthy:
        assert (np.abs(found.value[:2] - 0.5) <= 6 * found.se[:2] + 0.02).all()


def test_an_agent_with_a_tolerance_below_the_rounding():
    """It plays both actions: 400 policies of one agent, drawn from 100 points at least. False-alarm rate: 1e-5.

    The share's sd is at most sqrt(1/400 + 1/100)/2, so the binomial test is of 80 policies.
    """
    model, data = surrounded({("s", a): Move(-1e5, {"goal": 1.0}) for a in "ab"}, "chart")
    agent, rng = make_agent("bayes-br", model, {"epsilon": 1e-12, "prior_scale": 1e5}), np.random.default_rng(3)
    agent.observe(data.pair, data.reward)
    share = np.mean([agent.policy(rng)[0] == 0 for _ in range(400)])
    assert binomtest(round(80 * share), 80, 0.5).pvalue > 1e-5


def _first(model, count):
    """Data of the first few pairs."""
    return bm.Dataset(model, np.arange(count), model.reward[:count])
