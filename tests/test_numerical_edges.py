"""Numbers at the edge of what floats can do: right against exact arithmetic, or refused with the reason."""

import time
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import bellmanifold as bm
from bellmanifold.chart.batch import batch_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.inference import posterior_of
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.posteriors.ties import near_ties
from bellmanifold.problem.dataset import Dataset

MANY = 10_000


def leaking(probability, *others):
    """Try to leave a loop at -1 a time, or pay for something else."""
    moves = {("s", "try"): Move(-1.0, {"s": 1.0 - probability, "goal": probability})}
    moves |= {("s", name): Move(reward, {"goal": 1.0}) for name, reward in others}
    return from_moves("leaking", moves, start="s")


@pytest.mark.parametrize("probability", [1e-3, 1e-9, 1e-12, 1e-15])
@pytest.mark.parametrize("method", [None, "vi", "pi", "lp"])
def test_a_loop_that_is_hardly_ever_left(probability, method):
    """Exactly -1/p, with p the probability as given; `vi` and `lp` may refuse, and name the method that can."""
    model = leaking(probability)
    assert bm.check(model).holds
    exact = float(-1 / Fraction(probability))
    if method in ("vi", "lp") and probability < 1e-3:
        with pytest.raises(UnsupportedError, match='use method="pi"'):
            bm.solve(model, method=method)
    else:
        assert bm.solve(model, method=method).value_at_start == pytest.approx(exact, rel=1e-14)


@pytest.mark.parametrize("probability", [1e-9, 1e-12, 1e-15])
def test_a_loop_that_is_hardly_ever_left_does_not_hide_a_better_action(probability):
    """The first policy is worth -1e15: rounding of that must not decide between -6 and -5."""
    solution = bm.solve(leaking(probability, ("pay", -5.0), ("pay more", -5.0 - 1e-3)))
    assert solution.value_at_start == -5.0
    assert solution.to_dict()["optimal_actions"] == {"s": ["pay"]}


def test_a_huge_value_elsewhere_does_not_blur_small_ones():
    """Two states that have nothing to do with each other: -1e15 in one, a choice between -1 and -1.001 in the other."""
    moves = {
        ("far", "try"): Move(-1.0, {"far": 1.0 - 1e-15, "goal": 1e-15}),
        ("near", "good"): Move(-1.0, {"goal": 1.0}),
        ("near", "bad"): Move(-1.001, {"goal": 1.0}),
        ("near", "leave"): Move(-1.0, {"far": 1.0}),
    }
    solution = bm.solve(from_moves("two worlds", moves, start="near"))
    assert solution.value_at_start == -1.0
    assert solution.to_dict()["optimal_actions"]["near"] == ["good"]


def test_posteriors_of_a_loop_that_is_hardly_ever_left():
    """The chart: both pairs seen, so one point is left, Q(try) = -1 + (1 - p) (-5), Q(pay) = -5, of density |A|^-1."""
    model = leaking(1e-12, ("pay", -5.0))
    answer = bm.posterior(model, Dataset.complete(model)).to_dict()
    assert answer["trustworthy"]
    assert answer["actions"]["s"]["pay"] == {"probability": 1.0, "se": 0.0}
    assert answer["q_mean"]["s"]["try"] == pytest.approx(-6.0, abs=1e-6)
    density = -0.5 * (6.0**2 + 5.0**2) / 100 - 2 * np.log(10.0) - np.log(2 * np.pi)
    assert answer["log_evidence"] == pytest.approx(density, abs=1e-6)
    data, engines = Dataset.complete(model), ("chart", "mixture")
    evidence = [bm.posterior(model, data, epsilon=0.1, engine=name).to_dict()["log_evidence"] for name in engines]
    assert evidence[0] == pytest.approx(evidence[1], abs=1e-3)


def looping(mean):
    """A loop of two moves that pays `mean` a move, and a way out."""
    moves = {
        ("a", "round"): Move(1.0, {"b": 1.0}),
        ("b", "back"): Move(-1.0 + 2 * mean, {"a": 1.0}),
        ("a", "out"): Move(-1.0, {"goal": 1.0}),
    }
    return from_moves("looping", moves, start="a")


def test_loops_that_pay_next_to_nothing():
    """Signs are decided exactly: below 0 there is an optimum, at 0 and above there is none, and everybody says so."""
    model = looping(-1e-12)
    assert bm.check(model).holds
    assert bm.solve(model).value_at_start == -1.0
    answer = bm.posterior(model, Dataset.complete(model)).to_dict()
    assert answer["actions"]["a"]["out"]["probability"] == 1.0
    assert answer["q_mean"]["a"]["out"] == pytest.approx(-1.0, abs=1e-7)
    for mean, says in ((0.0, "costs nothing"), (1e-12, "pays 1e-12 per move")):
        model = looping(mean)
        assert not bm.check(model).holds
        with pytest.raises(UnsupportedError, match=says):
            bm.solve(model)
        with pytest.raises(UnsupportedError, match=says):
            bm.posterior(model, Dataset.complete(model))
        learnt = bm.learn(model, "q-learning", episodes=3, runs=1)
        assert learnt.messages
        assert np.isnan(learnt.cumulative_regret.mean).all()


def test_loops_that_pay_next_to_nothing_have_a_relaxed_posterior():
    """Improper mass and all: the chart with its cut against enumeration (6 standard errors: false alarm 2e-9)."""
    for mean in (-1e-12, 0.0, 1e-12):
        model = looping(mean)
        found = [
            bm.posterior(model, Dataset.complete(model), epsilon=0.1, engine=engine).to_dict()["actions"]["a"]["out"]
            for engine in ("chart", "mixture")
        ]
        assert abs(found[0]["probability"] - found[1]["probability"]) <= 6 * found[0]["se"] + 1e-12


def spanning():
    """Seven states in a row, rewards from -1e-6 to -1e6; the second action of each costs a millionth more."""
    moves = {}
    for k in range(7):
        reward, after = -(10.0 ** (2 * k - 6)), f"s{k + 1}" if k < 6 else "goal"
        moves[f"s{k}", "a"] = Move(reward, {after: 1.0})
        moves[f"s{k}", "b"] = Move(reward * (1 + 1e-6), {after: 1.0})
    return from_moves("spanning", moves, start="s0")


@pytest.mark.parametrize("method", ["vi", "pi", "lp"])
def test_rewards_of_twelve_orders_of_magnitude(method):
    """Values against the sum of the rewards as given; policies may differ by what rounding could explain (64 eps)."""
    model = spanning()
    solution = bm.solve(model, method=method)
    exact = sum(Fraction(model.reward[2 * k]) for k in range(7))
    assert abs(Fraction(solution.value_at_start) / exact - 1) < 7 * 64 * Fraction(float(np.finfo(float).eps))
    assert solution.optimal[[0, 2, 4, 6, 8, 10, 12]].all()
    assert not solution.optimal[[11, 13]].any(), "0.01 of 1e6 is seen"


def test_values_that_differ_too_little_for_an_exact_posterior_are_not_trusted():
    """-1e4 and -1e4 (1 + 1e-6) before a move of -1e6: the residuals that split ties are as wide as that gap.

    The solver, which is asked where everything is known, has no such residuals.
    """
    model = spanning()
    found = bm.posterior(model, Dataset.complete(model))
    assert found.engine == "solver"
    assert found.trustworthy
    assert found.action_probability.value[model.pair_state == model.states.index("s5")].tolist() == [1.0, 0.0]
    assert ((found.action_probability.value > 0) == bm.solve(model).optimal).all()
    summary = bm.posterior(model, Dataset.complete(model), engine="chart")
    answer = summary.to_dict()
    assert not answer["trustworthy"]
    assert answer["diagnostics"]["near_ties"] == ["s5"]
    assert "too little to tell" in answer["reason"]
    assert answer["actions"]["s6"]["a"]["probability"] == 1.0


@pytest.mark.parametrize("before", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_tie_that_rounding_leaves_open_is_a_tie(before):
    """0.1 + 0.2 - 0.3 against 0, at once or after a move that pays nothing: 2.8e-17 apart, as computed."""
    moves = {("s", "stop"): Move(0.0, {"goal": 1.0}), ("s", "go"): Move(0.0, {"s0": 1.0})}
    if not before:
        moves["s", "go"] = Move(0.1, {"s1": 1.0})
    moves |= {("s0", "a"): Move(0.1, {"s1": 1.0})} if before else {}
    moves |= {("s1", "a"): Move(0.2, {"s2": 1.0}), ("s2", "a"): Move(-0.3, {"goal": 1.0})}
    model = from_moves("cancelling", moves, start="s")
    assert bm.solve(model).optimal.all()
    summary = bm.posterior(model, Dataset.complete(model))
    assert summary.diagnostics["ties_split"] == ["s"]
    assert summary.trustworthy


def rare(gap, unseen=4):
    """Two observed actions that pay -1 and a little less, beside some that nobody has tried."""
    moves = {("s", "a"): Move(-1.0, {"goal": 1.0}), ("s", "b"): Move(-1.0 - gap, {"goal": 1.0})}
    moves |= {("s", f"u{k}"): Move(0.0, {"goal": 1.0}) for k in range(unseen)}
    model = from_moves("rare", moves, start="s")
    return model, Dataset.from_pairs(model, [("s", "a"), ("s", "b")])


@pytest.mark.parametrize(("gap", "trusted"), [(1e-9, False), (0.0, True), (1e-3, True)])
def test_near_ties_are_seen_where_observed_actions_are_rarely_best(gap, trusted):
    """They are best with probability 0.045 only."""
    assert bm.posterior(*rare(gap)).trustworthy == trusted


@pytest.mark.slow
def test_walks_are_checked_for_near_ties():
    for gap, found in ((1e-9, ["s"]), (0.0, None)):
        target = relaxed_target(rare(gap, unseen=1)[1], 0.0, 10.0)
        summary = posterior_of(target, Budget(coordinates=0, samples=64_000))
        assert "slice chains" in summary.reason
        assert summary.diagnostics.get("near_ties") == found
        assert summary.trustworthy == (found is None)


@pytest.mark.slow
def test_exact_ties_and_clear_gaps_are_no_near_ties():
    for model in (bm.envs.pyramid(4), bm.envs.deep_sea(4), bm.envs.four_state()):
        assert near_ties(Coordinates(relaxed_target(Dataset.complete(model), 0.0, 10.0)), batch_chart(model), 0) == []


@pytest.fixture(scope="module")
def crowd():
    """One state with 10,000 actions that end at once."""
    reward = np.random.default_rng(5).normal(size=MANY)
    moves = {("s", f"a{k}"): Move(float(reward[k]), {"goal": 1.0}) for k in range(MANY)}
    return from_moves("crowd", moves, start="s")


@pytest.mark.slow
def test_ten_thousand_actions(crowd):
    """Two actions seen: their values are known, and one of the other 9,998, all alike, is all but surely better."""
    assert bm.check(crowd).holds
    for method in ("vi", "pi", "lp"):
        assert bm.solve(crowd, method=method).value_at_start == crowd.reward.max()
    began = time.process_time()
    answer = bm.posterior(crowd, Dataset.from_pairs(crowd, [("s", "a0"), ("s", "a1")])).to_dict()
    assert time.process_time() - began < 60
    shares = answer["actions"]["s"]
    assert shares["a0"]["probability"] == shares["a1"]["probability"] == 0.0
    np.testing.assert_allclose([shares[f"a{k}"]["probability"] for k in range(2, MANY)], 1 / (MANY - 2), rtol=1e-9)
    assert answer["q_mean"]["s"]["a1"] == pytest.approx(crowd.reward[1])


@pytest.mark.slow
def test_a_uniform_kernel_is_walked_with_ten_thousand_actions(crowd):
    """The values of seen actions lie within the tolerance; beside a prior this wide they are uniform there.

    Of at least 400 effective draws: false alarm below 1e-5."""
    summary = bm.posterior(crowd, Dataset(crowd, np.array([0, 1]), crowd.reward[:2]), epsilon=0.1, kernel="uniform")
    assert summary.trustworthy
    assert "sparse systems" in summary.reason
    np.testing.assert_allclose(summary.q_mean.value[:2], crowd.reward[:2], atol=0.02)
    np.testing.assert_allclose(summary.q_sd.value[:2], 0.1 / np.sqrt(3.0), rtol=0.1)


@pytest.mark.slow
def test_noise_is_inferred_with_ten_thousand_actions(crowd):
    """Against a sum over a fine grid, of what is seen alone: the mean within 0.1, five standard errors of at least 400
    effective draws of sd 0.4, which the diagnostics ask for: false alarm below 1e-6."""
    reward = crowd.reward[[0, 0, 1]] + np.array([0.1, -0.1, 0.0])
    summary = bm.posterior(crowd, Dataset(crowd, np.array([0, 0, 1]), reward), infer_noise=True)
    assert summary.trustworthy
    assert summary.effective_sample_size > 400
    eta = np.linspace(1e-3, 8.0, 100_000)
    repeats = stats.norm.pdf(reward[0] - reward[1], scale=np.sqrt(2.0) * eta)  # their mean is another factor
    means = stats.norm.pdf(crowd.reward[0], scale=np.sqrt(100.0 + eta**2 / 2))
    means *= stats.norm.pdf(crowd.reward[1], scale=np.sqrt(100.0 + eta**2))
    weight = stats.halfnorm.pdf(eta) * repeats * means
    assert summary.result.noise_scale[0] == pytest.approx(weight @ eta / weight.sum(), abs=0.1)


@pytest.mark.slow
def test_ten_thousand_actions_are_learnt(crowd):
    for agent in ("bayes-td", "q-learning", "rlsvi"):
        learnt = bm.learn(crowd, agent, episodes=2, runs=1)
        assert learnt.runs[0].optimal_value == crowd.reward.max()
        assert (learnt.runs[0].regret >= 0).all()


@pytest.fixture(scope="module")
def fan():
    """One pair with 10,000 successors, each of which ends at its own price."""
    share = np.random.default_rng(6).dirichlet(np.ones(MANY))
    moves = {("start", "jump"): Move(-1.0, {f"t{k}": float(share[k]) for k in range(MANY)})}
    moves |= {(f"t{k}", "end"): Move(-float(k % 7), {"goal": 1.0}) for k in range(MANY)}
    return from_moves("fan", moves, start="start")


def test_ten_thousand_successors(fan):
    own = slice(fan.next_start[0], fan.next_start[1])
    price = {f"t{k}": k % 7 for k in range(MANY)}
    prices = [price[fan.states[s]] for s in fan.next_state[own]]
    exact = -1 - sum(Fraction(p) * c for p, c in zip(fan.next_prob[own].tolist(), prices, strict=True))
    assert bm.check(fan).holds
    for method in ("vi", "pi", "lp"):
        assert bm.solve(fan, method=method).value_at_start == pytest.approx(float(exact), rel=1e-12)
    learnt = bm.learn(fan, "q-learning", episodes=3, runs=1)
    assert learnt.runs[0].optimal_value == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.slow
def test_posterior_of_ten_thousand_successors(fan):
    """All pairs seen: one point is left, whatever the engine; else it is refused in a moment."""
    began = time.process_time()
    answer = bm.posterior(fan, Dataset.complete(fan), samples=200).to_dict()
    assert time.process_time() - began < 60
    assert answer["q_mean"]["start"]["jump"] == pytest.approx(bm.solve(fan).value_at_start, abs=1e-4)
    for engine in ("hmc", "nuts"):
        with pytest.raises(UnsupportedError, match="too many"):
            bm.posterior(fan, Dataset.complete(fan), epsilon=0.1, engine=engine)


@pytest.mark.slow
def test_a_problem_of_some_hundred_pairs():
    """Above 512 slots a piece of the points has a call of its own. Nothing is known about most pairs."""
    model = bm.envs.deep_sea(23)
    answer = bm.posterior(model, Dataset.from_pairs(model, [("0,0", "left")]), samples=131_072).to_dict()
    assert answer["trustworthy"]
    assert answer["q_mean"]["22,3"]["left"] == pytest.approx(0.0, abs=0.2)


@pytest.mark.slow
def test_value_iteration_does_not_promise_what_rounding_takes():
    """Rewards that cancel in a loop which is left with probability 1e-12: its value is 1e6, but nothing bounds it."""
    moves = {
        ("a", "x"): Move(1e6, {"b": 1 - 1e-12, "goal": 1e-12}),
        ("b", "x"): Move(-1e6, {"a": 1.0}),
        ("b", "y"): Move(-1e-3, {"goal": 1.0}),
    }
    model = from_moves("cancelling", moves, start="a")
    with pytest.raises(UnsupportedError, match="cannot bound its error"):
        bm.solve(model, "vi")
    assert bm.solve(model, "pi").value[0] == pytest.approx(1e6, rel=1e-8)


@pytest.mark.parametrize("method", ["pi", "vi", "lp", None])
def test_rewards_beyond_all_measure_are_refused(method):
    moves = {("a", "x"): Move(-1e308, {"b": 1.0}), ("b", "x"): Move(-1e308, {"goal": 1.0})}
    with pytest.raises(
        BadInputError, match=r'the reward of \("a", "x"\) is -1e\+308: it must be at most 1e\+200 in size'
    ):
        bm.solve(from_moves("beyond", moves, start="a"), method)
    moves = {("a", "x"): Move(-1e200, {"a": 1 - 1e-15, "goal": 1e-15})}
    value = bm.solve(from_moves("huge", moves, start="a"), "pi").value
    assert value == pytest.approx([-1e215], rel=1e-9)
