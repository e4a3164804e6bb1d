"""Importance sampling as an engine: how many points, which coordinates, and priors of each pair."""

from dataclasses import replace

import numpy as np
import pytest
from by_hand import result_of, weights_with_error
from open_quadrature import TWO, landed
from scipy import stats
from wandering import SEEN, own_priors, shared_pair, two_rings, wandering

from bellmanifold import envs, posterior
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.cuts import covering
from bellmanifold.posteriors.estimated import Estimate
from bellmanifold.posteriors.importance import _has_sharp_means, _until_accurate, by_importance
from bellmanifold.posteriors.inference import posterior_of
from bellmanifold.posteriors.laws import close_laws
from bellmanifold.posteriors.nets import Nets
from bellmanifold.posteriors.pieces import CALL_NUMBERS, PIECE, REPLICATES
from bellmanifold.posteriors.target import ValuePrior, relaxed_target
from bellmanifold.problem.dataset import Dataset


def test_problems_with_more_pairs_than_a_call_has_room_for():
    """One piece at a time, then: 930 pairs, of which the two of the start are seen and pay almost the same."""
    model = envs.deep_sea(depth=30)
    assert model.n_pairs * PIECE > CALL_NUMBERS
    found = posterior(model, Dataset(model, np.array([0, 1]), model.reward[:2]), epsilon=0.1, samples=2**15)
    np.testing.assert_allclose(found.action_probability.value[:2], [0.5, 0.5], atol=0.02)


def test_fewer_points_than_the_first_look_may_be_asked_for():
    """The answers of 32 nets of 1,024 and of 4,096 points: within 6 combined standard errors, all 12 of them; six are
    1/2 except for rounding.

    A false alarm has a probability below 1e-6 for a fresh seed.
    """
    model = envs.deep_sea(depth=3)
    data = Dataset(model, np.arange(6), model.reward[:6])
    few, many = (posterior(model, data, epsilon=0.1, engine="chart", samples=n) for n in (2**15, 2**17))
    assert few.diagnostics["points"] == 2**15
    gap = np.abs(few.action_probability.value - many.action_probability.value)
    assert (gap <= 6 * np.hypot(few.action_probability.se, many.action_probability.se) + 1e-12).all()


def test_a_budget_bounds_the_points():
    """Doubled from the pilot until they are accurate enough, too many, or hold too many numbers."""
    model = envs.deep_sea(depth=3)
    target = relaxed_target(Dataset(model, np.arange(6), model.reward[:6]), 0.1, 10.0)
    cover = covering(target)
    per_net = {"pilot": 10, "accuracy": 1e-9, "enough": 1.0}
    points = {
        "few": by_importance(target, cover, Budget(points=4 * REPLICATES * 1024, **per_net)),
        "held": by_importance(target, cover, Budget(held=2 * REPLICATES * 1024 * cover.largest, **per_net)),
        "rough": by_importance(target, cover, Budget(pilot=10, accuracy=0.5)),
        "hopeless": by_importance(target, cover, Budget(pilot=10, accuracy=1e-9, enough=1e12)),
    }
    found = {name: result.diagnostics["points"] // (REPLICATES * 1024) for name, result in points.items()}
    assert found == {"few": 4, "held": 2, "rough": 1, "hopeless": 1}
    assert [name for name, result in points.items() if not result.trustworthy] == ["hopeless"]
    with pytest.raises(BadInputError, match=r"samples is 100: at most 12 points of \d+ coordinates fit"):
        by_importance(target, cover, Budget(samples=100, held=12 * cover.largest))
    held = by_importance(target, cover, Budget(samples=100, held=100 * cover.largest, pilot=10))
    more = by_importance(target, cover, Budget(samples=REPLICATES * 1024 + 1, pilot=10))
    assert [result.diagnostics["points"] // (REPLICATES * 1024) for result in (held, more)] == [1, 2]
    enough = Budget(samples=100, pilot=10, enough=held.effective_sample_size)
    assert by_importance(target, cover, enough).trustworthy, "exactly enough is enough"
    too_few = replace(enough, enough=np.nextafter(enough.enough, np.inf))
    assert not by_importance(target, cover, too_few).trustworthy


def open_target():
    """A posterior with an open law, whose answers are made up."""
    data = landed(TWO, -1.0, (1, 2, 1))
    whole, learnt, _ = close_laws(data, "dirichlet")
    return replace(relaxed_target(replace(data, model=whole), 0.0, 2.0), laws=learnt)


class MadeUp(Nets):
    """Nets that find what they are told: by size the error of the probabilities and that of the means."""

    def __init__(self, target, errors):
        self.components, self.errors, self.size = [Coordinates(target)], errors, 1
        self.target = target

    def sample(self, log2_size):
        self.size = 2**log2_size
        error, se = self.errors.get(self.size, (0.25, 1.0))
        mean = np.full(self.target.model.n_pairs, se)
        told = {"diagnostics": {"points": 8 * self.size}, "effective_sample_size": 4.0 * self.size}
        result = result_of(self.target, weights_with_error(error), **told)
        return replace(result, q_mean=Estimate.of(mean, mean), q_sd=Estimate.of(mean - mean + 2.0, mean))


@pytest.mark.parametrize(
    ("errors", "most", "enough", "size", "known"),
    [
        ({}, 64, 1.0, 8, False),
        ({}, 63, 1.0, 4, False),
        ({4: (0.125, 1.0)}, 64, 1.0, 4, True),
        ({1: (0.125, 1.0)}, 64, 1.0, 1, True),
        ({1: (0.125, 1.0)}, 64, 33.0, 1, False),
        ({1: (0.125, 1.0)}, 64, 32.0, 1, True),
        ({}, 64, 33.0, 1, False),
        ({}, 64, 32.0, 8, False),
        ({4: (0.1251, 1.0)}, 64, 1.0, 8, False),
    ],
)
def test_points_are_doubled_until_they_do(errors, most, enough, size, known):
    """8, 16, 32, ... points, half of them effective, until the error is 0.125 or there would be more than allowed; not
    at all if as many as are allowed would not be enough."""
    model = envs.deep_sea(depth=2)
    nets = MadeUp(relaxed_target(Dataset.complete(model), 0.1, 10.0), errors)
    budget = Budget(accuracy=0.125, enough=enough)
    found = _until_accurate(nets, nets.sample(0), most, budget)
    assert (nets.size, found.diagnostics["points"]) == (size, 8 * size)
    assert found.largest_error == (0.125 if known else None)


@pytest.mark.parametrize(
    ("errors", "most", "size"),
    [
        ({2: (0.1, 1.0), 4: (0.1, 1.0), 8: (0.1, 1.0)}, 1000, 8),
        ({2: (0.1, 1.0), 4: (0.1, 0.02)}, 1000, 4),
        ({2: (0.1, 0.02)}, 1000, 2),
        ({2: (0.1, 1.0), 4: (0.1, 1.0)}, 63, 4),
        ({2: (0.1, 1.0), 4: (0.1, 1.0)}, 64, 8),
    ],
)
def test_means_under_open_laws_have_up_to_four_times_the_points(errors, most, size):
    """From those that make the probabilities accurate, here 16, until the means' errors are a hundredth of 2."""
    nets = MadeUp(open_target(), errors)
    found = _until_accurate(nets, nets.sample(0), most, Budget(accuracy=0.125, enough=1.0))
    assert (nets.size, found.diagnostics["points"]) == (size, 8 * size)


def test_means_that_are_sharp_beside_their_spread():
    """Errors of all means up to a hundredth of the sd, and rounding of 1e-9 of the mean; flat priors have no say."""
    target = open_target()

    def sharp(mean, se, sd=2.0, target=target):
        told = (np.array([0.0, number, 0.0]) for number in (mean, se, sd))
        mean, se, sd = told
        result = replace(result_of(target, [[1, 3]]), q_mean=Estimate.of(mean, se), q_sd=Estimate.of(sd, se))
        return _has_sharp_means(target, result)

    assert sharp(0.0, 0.02)
    assert not sharp(0.0, np.nextafter(0.02, 1.0))
    assert sharp(-1e6, 0.0209)
    assert not sharp(-1e6, 0.0211)
    assert not sharp(1.0, 0.03)
    assert sharp(1.0, 5.0, target=replace(target, prior=replace(target.prior, flat=True)))


def test_posteriors_without_any_point_are_refused():
    """A loop that pays whatever the residuals are: uniform ones are at most 0.1."""
    model = from_moves("paid", {("s", "stay"): Move(9.0, {"s": 1.0}), ("s", "go"): Move(0.0, {"goal": 1.0})}, start="s")
    target = relaxed_target(Dataset.complete(model), 0.1, 2.0, "uniform", proper_only=True)
    with pytest.raises(UnsupportedError, match=r"costs are negative rewards.*some observed loop pays"):
        by_importance(target, covering(target), Budget())
    everything = replace(target, proper_only=False)
    with pytest.raises(UnsupportedError, match="no parameter fits the data: use a larger epsilon"):
        by_importance(everything, covering(everything), Budget())


# --- priors of each pair ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "seen"),
    [(wandering, SEEN), *(pytest.param(problem, None, marks=pytest.mark.slow) for problem in (two_rings, shared_pair))],
)
def test_enumeration_agrees_with_importance_sampling_where_each_pair_has_its_prior(problem, seen):
    """Both engines, which share nothing beyond the target: probabilities, means and evidence within 5 combined standard
    errors (t with 15 and 31 degrees of freedom: false alarm below 2e-4 for each of some 25 numbers, fixed seeds), and
    spreads within 2%."""
    model = problem()
    data = Dataset.complete(model) if seen is None else Dataset.from_pairs(model, seen)
    target = relaxed_target(data, 0.6, own_priors(model))
    chart, cells = (posterior_of(target, Budget(), engine) for engine in ("chart", "mixture"))
    assert (chart.engine, cells.engine) == ("chart", "mixture")
    assert chart.trustworthy
    assert cells.trustworthy
    for found, truth in (
        (chart.action_probability, cells.action_probability),
        (chart.result.q_mean, cells.result.q_mean),
        (chart.log_evidence, cells.log_evidence),
    ):
        assert np.all(np.abs(found.value - truth.value) <= 5 * np.hypot(found.se, truth.se) + 1e-6)
    np.testing.assert_allclose(chart.q_sd.value, cells.q_sd.value, rtol=0.02)
    shared = posterior_of(replace(target, prior=ValuePrior.same(model, 2.0)), Budget(), "mixture")
    assert np.abs(shared.action_probability.value - cells.action_probability.value).max() > 0.05, "it matters"


@pytest.mark.parametrize("engine", ["chart", "mixture"])
def test_one_seen_action_among_others_of_other_priors(engine):
    """A bandit: normal conjugacy for what was seen, priors for the others, by the textbook; within 0.01."""
    model = from_moves("bandit", {("s", name): Move(-1.0, {"goal": 1.0}) for name in "abc"}, start="s")
    prior = ValuePrior(np.array([1.0, -0.5, 0.5]), np.array([2.0, 0.5, 1.0]))
    summary = posterior_of(relaxed_target(Dataset.from_pairs(model, [("s", "a")]), 0.5, prior), Budget(), engine)
    variance = 1.0 / (1.0 / 4.0 + 1.0 / 0.25)
    mean, sd = np.array([variance * (1.0 / 4.0 - 1.0 / 0.25), -0.5, 0.5]), np.array([np.sqrt(variance), 0.5, 1.0])
    np.testing.assert_allclose(summary.q_mean.value, mean, atol=0.01)
    np.testing.assert_allclose(summary.q_sd.value, sd, rtol=0.01)
    assert summary.log_evidence.value == pytest.approx(stats.norm.logpdf(-1.0, 1.0, np.sqrt(4.25)), abs=5e-3)
    at = np.linspace(-9.0, 9.0, 200_001)
    best = []
    for k in range(3):
        others = [stats.norm.cdf(at, mean[j], sd[j]) for j in range(3) if j != k]
        best.append(np.trapezoid(stats.norm.pdf(at, mean[k], sd[k]) * np.prod(others, axis=0), at))
    np.testing.assert_allclose(summary.action_probability.value, best, atol=5e-3)


def test_states_that_no_data_touch_follow_their_priors():
    """Two actions of priors N(1, 1) and N(0, 4): the first is best with probability Phi(1 / sqrt 5), data or none."""
    moves = {
        ("far", "x"): Move(-1.0, {"s": 1.0}),
        ("far", "y"): Move(-1.0, {"s": 1.0}),
        ("s", "a"): Move(-1.0, {"goal": 1.0}),
    }
    model = from_moves("far", moves, start="far")
    prior = ValuePrior(np.zeros(3), np.ones(3))
    prior.mean[model.pair_index["far", "x"]], prior.sd[model.pair_index["far", "y"]] = 1.0, 2.0
    for seen in ([], [("s", "a")]):
        summary = posterior_of(relaxed_target(Dataset.from_pairs(model, seen), 0.5, prior))
        probability = summary.action_probability
        assert probability.value[model.pair_index["far", "x"]] == pytest.approx(stats.norm.cdf(5**-0.5), abs=2e-3)
        assert summary.q_mean.value[model.pair_index["far", "x"]] == pytest.approx(1.0, abs=0.01)
        assert summary.q_sd.value[model.pair_index["far", "y"]] == pytest.approx(2.0, abs=0.02)
