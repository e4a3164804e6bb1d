"""How an engine is run and what is said of it: options, points, walks and fallbacks, with engines told what to find."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from by_hand import result_of, summary_of, trace_of, two_policies, weights_with_error

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.chart.batch import batch_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.posteriors import draws, importance, inference, question, walk
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.cuts import MISSED, Covering, covering, cut_set, needs_cut, other_cut
from bellmanifold.posteriors.estimated import Estimate, effective_size
from bellmanifold.posteriors.importance import by_importance
from bellmanifold.posteriors.inference import posterior_of
from bellmanifold.posteriors.kernels import Laplace, StudentT, Uniform
from bellmanifold.posteriors.nets import Nets
from bellmanifold.posteriors.noise import HalfNormal, InferredScale, KnownScale
from bellmanifold.posteriors.policies import improper_mass
from bellmanifold.posteriors.result import Result
from bellmanifold.posteriors.rounding import without_lost_tolerance
from bellmanifold.posteriors.target import noisy_target, relaxed_target
from bellmanifold.posteriors.walk import by_sparse_walk, by_walk, check_sparse
from bellmanifold.posteriors.walker import Walker
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.observation import Observation
from bellmanifold_paper import evidence
from bellmanifold_paper.engines.cells import check_cells
from bellmanifold_paper.engines.mixture import mixture
from bellmanifold_paper.engines.rejection import rejection

TREE = envs.deep_sea(2)
"""Three states of two pairs each."""
LOOP = envs.two_state()
ACCURACY = 2.0**-10
"""An accuracy without rounding."""


def complete(model, epsilon=0.5, kernel="gaussian", proper_only=False):
    return relaxed_target(Dataset.complete(model), epsilon, 10.0, kernel, proper_only)


# Options


def test_the_smallest_options_are_taken_and_smaller_ones_refused():
    nothing = Dataset.from_pairs(TREE, [])
    summary = bm.posterior(TREE, nothing, samples=1, top=0, seed=0)
    assert (summary.engine, summary.routes, summary.budget.seed) == ("prior", [], 0)
    for wrong in ({"samples": 0}, {"top": -1}, {"seed": -1}):
        with pytest.raises(BadInputError, match=f"{next(iter(wrong))} is"):
            bm.posterior(TREE, nothing, **wrong)
        with pytest.raises(BadInputError, match=f"{next(iter(wrong))} is"):
            Budget(**wrong)
    with pytest.raises(BadInputError, match=r"accuracy is 0\.0: give a positive number"):
        Budget(accuracy=0.0)


def test_without_data_the_posterior_is_the_prior():
    summary = bm.posterior(TREE, Dataset.from_pairs(TREE, []), prior_scale=3.0, top=7, seed=5)
    assert summary.action_probability.value.tolist() == [0.5] * 6
    assert summary.action_probability.se.tolist() == [0.0] * 6
    assert summary.q_mean.value.tolist() == [0.0] * 6
    assert summary.q_sd.value.tolist() == [3.0] * 6
    assert (summary.dimension, summary.budget.top, summary.budget.seed) == (0, 7, 5)
    assert (float(summary.log_evidence.value), float(summary.log_evidence.se)) == (0.0, 0.0)
    assert summary.result.noise_scale is None
    noisy = bm.posterior(TREE, Dataset.from_pairs(TREE, []), infer_noise=True)
    np.testing.assert_allclose(noisy.result.noise_scale, [np.sqrt(2 / np.pi), np.sqrt(1 - 2 / np.pi)], rtol=1e-3)
    target = relaxed_target(Dataset.from_pairs(TREE, []), 0.0, 3.0)
    assert posterior_of(target).engine == "prior"


def test_noise_is_known_or_inferred_or_there_is_none():
    assert question.inferred_noise(True, None) == HalfNormal()
    own = HalfNormal(0.3)
    assert question.inferred_noise(own, None) is own
    with pytest.raises(BadInputError, match="leave one of the two out"):
        question.inferred_noise(True, 0.5)


@pytest.fixture
def asked(monkeypatch):
    """What the posterior call asks for, as (target, budget, engine); nothing is computed."""
    seen = []

    def answer(target, budget, engine):
        seen.append((target, budget, engine))
        return summary_of(target, [[1, 3]], budget, reason="chosen")

    monkeypatch.setattr(inference, "posterior_of", answer)
    return seen


def test_options_become_a_target_and_a_budget(asked):
    data = Dataset.complete(TREE)
    bm.posterior(TREE, data, epsilon=0.5, prior_scale=3.0, engine="chart", proper_only=True, samples=9, top=3, seed=4)
    target, budget, engine = asked[0]
    assert (target.epsilon, target.prior.scale, target.proper_only, engine) == (0.5, 3.0, True, "chart")
    assert budget == Budget(samples=9, top=3, seed=4)
    bm.posterior(TREE, data, noise_sd=0.5, proper_only=True)
    assert asked[1][0].proper_only
    bm.posterior(TREE, data)
    assert (asked[2][0].proper_only, asked[2][1:]) == (False, (Budget(), "auto"))


def test_relaxing_and_noise_do_not_go_together(asked):
    data = Dataset.complete(TREE)
    for wrong in ({"noise": "laplace"}, {"noise_sd": 0.5, "epsilon": 0.1}, {"noise_sd": 0.5, "kernel": "uniform"}):
        with pytest.raises(BadInputError, match=r"without its scale|leave them out where rewards are noisy"):
            bm.posterior(TREE, data, **wrong)
    assert not asked
    assert bm.posterior(TREE, data).target.is_exact
    assert bm.posterior(TREE, data, epsilon=0.1, kernel="uniform").target.kernel == Uniform()
    noisy = bm.posterior(TREE, data, noise_sd=0.5, noise="laplace").target
    assert (noisy.kernel, noisy.noise_sd) == (Laplace(), 0.5)
    assert bm.posterior(TREE, data, noise_sd=0.5, noise=StudentT(3.0)).target.kernel == StudentT(3.0)


def test_repeats_under_other_noise_keep_every_visit(asked):
    """One visit of each pair is a mean like any other; two are not, except under Gaussian noise."""
    once, twice = Dataset.complete(TREE), Dataset(TREE, np.tile(np.arange(6), 2), np.tile(TREE.reward, 2))
    options = {"noise_sd": 0.5, "noise": "laplace", "seed": 4, "top": 3, "samples": 9}
    assert bm.posterior(TREE, once, **options).target.every_visit is None
    assert bm.posterior(TREE, twice, **{**options, "noise": "gaussian"}).target.every_visit is None
    summary = bm.posterior(TREE, twice, **options)
    target = summary.target
    assert target.every_visit.data.count.tolist() == [2] * 6
    assert target.every_visit.noise == KnownScale(0.5, Laplace())
    assert (target.kernel, target.noise_scale, target.log_constant) == (Laplace(), None, 0.0)
    assert summary.budget == Budget(samples=9, top=3, seed=4)
    assert without_lost_tolerance(target) is target
    apart = Dataset(TREE, np.tile(np.arange(6), 2), np.append(TREE.reward, TREE.reward + 0.3))
    inferred = bm.posterior(TREE, apart, noise="laplace", infer_noise=True).target
    assert inferred.every_visit.noise == InferredScale(HalfNormal(), Laplace())
    assert inferred.noise_scale is None


def test_a_discount_leaves_room_for_the_goal(asked):
    target = bm.posterior(LOOP, Dataset.complete(LOOP), discount=0.9).target
    assert not target.loops
    assert target.model == LOOP.discounted(0.9)


def all_told(*more):
    """Every reward of the tree with an sd of its own, and more."""
    own = [Observation(*TREE.pair_name(i), -1.0, 0.5) for i in range(TREE.n_pairs)]
    return Dataset.from_pairs(TREE, [*own, *more])


def test_options_without_effect_are_named(asked):
    """Each with its reason; not where they do have one, or where nobody gave them."""

    def remarks(data, **options):
        return [remark.split(" has no effect: ") for remark in bm.posterior(TREE, data, **options).remarks]

    complete_, own, nothing = Dataset.complete(TREE), all_told(), Dataset.from_pairs(TREE, [])
    partly = all_told(Observation(*TREE.pair_name(0), -1.0))
    every = "every reward has an sd of its own"
    assert remarks(complete_, epsilon=0.1, kernel="uniform", prior_mean=1.0) == []
    assert remarks(own, epsilon=0.1) == [["epsilon", every]]
    assert (
        remarks(own, epsilon=0) == remarks(own) == remarks(partly, epsilon=0.1) == remarks(nothing, epsilon=0.1) == []
    )
    assert remarks(own, noise_sd=0.1) == [["noise_sd", every]]
    assert remarks(partly, noise_sd=0.1) == []
    assert remarks(complete_, kernel="uniform") == [["kernel", "epsilon is 0, so no equation is relaxed"]]
    assert remarks(own, prior_scale="flat", prior_mean=1.0) == [["prior_mean", "the prior is flat over rewards"]]
    assert remarks(own, prior_scale="flat") == []
    both = remarks(complete_, laws="dirichlet", concentration=1.0)
    assert [name for name, _ in both] == ["laws", "concentration"]


def test_who_holds_proper_policies_only(asked):
    """A flat prior, and beliefs about all rewards under engines that can; unless one is told."""
    belief = {"reward_belief": (-1.0, 0.5)}
    for options, flat, proper_only in (
        ({}, False, False),
        (belief, True, True),
        (belief | {"prior_scale": 2.0}, False, True),
        (belief | {"prior_scale": 2.0, "engine": "chart"}, False, True),
        (belief | {"prior_scale": 2.0, "engine": "nuts"}, False, False),
        (belief | {"prior_scale": 2.0, "proper_only": False}, False, False),
        ({"proper_only": True}, False, True),
    ):
        summary = bm.posterior(TREE, Dataset.complete(TREE), **options)
        assert (summary.target.prior.flat, summary.target.proper_only) == (flat, proper_only)
    assert bm.posterior(TREE, all_told(), prior_scale="flat").target.proper_only
    told = bm.posterior(TREE, Dataset.from_pairs(TREE, [TREE.pair_name(2)]), **belief)
    assert told.untried.tolist() == [i != 2 for i in range(6)]


# Running the engine of choice


ASKED = "asked for"


@pytest.fixture
def engines(monkeypatch):
    """Every engine answers with its name and the reason it was given, or as it was told: a function of the target."""
    told = SimpleNamespace(answers={}, ran=[])

    def run(target, engine, reason, budget):
        told.ran.append((engine, reason, budget))
        plain = result_of(target, [[1, 3]], engine=engine, reason=reason)
        return told.answers.get(engine, lambda result: result)(plain)

    def plugged(kind, name):
        def engine(target, budget, reason):
            if name == "mixture":
                check_cells(target, budget.cells)
            return run(target, name, reason, budget)

        return engine

    monkeypatch.setattr(inference, "load", plugged)
    monkeypatch.setattr(inference, "by_importance", lambda target, _, budget: run(target, "importance", ASKED, budget))
    monkeypatch.setattr(inference, "by_walk", lambda target, budget, reason: run(target, "walk", reason, budget))
    return told


def raising(error):
    def fail(_):
        raise error

    return fail


def doubting(*doubts):
    return lambda result: replace(result, doubts=doubts)


def with_error(error, stopped=""):
    return lambda result: replace(
        result, table=two_policies(complete(TREE), weights_with_error(error)), stopped=stopped
    )


@pytest.mark.parametrize(("factor", "said"), [(1.5, True), (1.0, False), (0.5, False)])
def test_errors_that_stay_large_are_said_once(engines, factor, said):
    engines.answers["importance"] = with_error(factor * ACCURACY)
    summary = posterior_of(complete(TREE), Budget(accuracy=ACCURACY))
    assert summary.largest_error == factor * ACCURACY
    assert ("stopped at a largest" in summary.reason) == said
    engines.answers["importance"] = with_error(factor * ACCURACY, "stopped early")
    assert posterior_of(complete(TREE), Budget(accuracy=ACCURACY)).reason == "asked for; stopped early"


def test_errors_are_said_only_where_nobody_asked_for_a_number_of_points(engines):
    engines.answers["importance"] = with_error(0.1)
    data = Dataset.complete(TREE)
    assert "largest standard error of 0.1" in bm.posterior(TREE, data, epsilon=0.5).reason
    assert bm.posterior(TREE, data, epsilon=0.5, samples=10).reason == "asked for"


def test_the_largest_error_is_one_of_an_action_or_of_a_route():
    """A route may vary where no action does: two routes swap their shares between replicates."""
    target = complete(TREE)
    policy = np.array([[0, 2, 4], [1, 3, 5], [0, 3, 4], [1, 2, 5]])
    weight = np.array([[0.3, 0.3, 0.2, 0.2], [0.2, 0.2, 0.3, 0.3]])
    summary = summary_of(target, [[1, 1], [1, 1]])
    table = replace(summary.table, policy=policy, weight=weight)
    summary = replace(summary, result=replace(summary.result, table=table))
    assert summary.action_probability.se.max() == pytest.approx(0.0, abs=1e-12)
    assert summary.largest_error == pytest.approx(0.05)
    random = from_moves("random", {("s", "on"): Move(-1.0, {"s": 0.5, "goal": 0.5})}, start="s")
    assert summary_of(complete(random), [[1, 0]]).largest_error == 0.0


def test_a_posterior_that_is_given_as_such_has_a_budget(engines):
    """The engine that is asked for, with all of the budget; as many points as errors need unless it says otherwise."""
    posterior_of(complete(TREE), Budget(seed=5))
    posterior_of(complete(TREE), asked="hmc")
    assert engines.ran == [("importance", "asked for", Budget(seed=5)), ("hmc", "asked for", Budget())]


def test_what_importance_sampling_refuses_is_enumerated(engines):
    """Where no point fits; if there is an enumeration, and nothing else was asked for. Others' refusals stand."""
    engines.answers = {"importance": raising(UnsupportedError("cannot")), "nuts": raising(UnsupportedError("no"))}
    summary = posterior_of(complete(TREE))
    assert (summary.engine, summary.reason) == ("mixture", "the chart does not apply (cannot)")
    for target, engine in (
        (complete(TREE), "chart"),
        (complete(TREE, 0.0), "chart"),
        (complete(TREE, proper_only=True), "auto"),
        (complete(TREE, kernel="uniform"), "auto"),
    ):
        with pytest.raises(UnsupportedError, match=r"^cannot$"):
            posterior_of(target, asked=engine)
    with pytest.raises(UnsupportedError, match=r"^cannot; mixture: .* 8 cells, more than the 7"):
        posterior_of(complete(TREE), Budget(cells=7))
    with pytest.raises(UnsupportedError, match=r"^no$"):
        posterior_of(complete(TREE), asked="nuts")


@pytest.mark.parametrize("doubt", ["uneven", "disagree"])
def test_what_is_not_trusted_is_enumerated_or_walked(engines, doubt):
    engines.answers["importance"] = doubting(doubt, "another")
    assert posterior_of(complete(TREE)).engine == "mixture"
    assert posterior_of(complete(TREE)).reason == doubt
    assert posterior_of(complete(TREE), asked="chart").engine == "walk"
    assert posterior_of(complete(TREE), asked="chart").reason == doubt
    assert posterior_of(complete(TREE), Budget(cells=7)).engine == "walk"
    engines.answers["walk"] = doubting("not mixed")
    walked = posterior_of(complete(TREE), Budget(cells=7))
    assert (walked.trustworthy, walked.reason) == (False, f"{doubt}; not mixed"), "nothing is tried after a walk"


def test_what_points_are_known_to_miss_is_not_walked_either(engines):
    """A loop that is hardly ever left, but can be towards what is not known: chains would not find its policy."""
    moves = {
        ("a", "stay"): Move(-1.0, {"a": 0.999, "goal": 0.001}),
        ("a", "out"): Move(-1.0, {"b": 1.0}),
        ("b", "on"): Move(-1.0, {"goal": 1.0}),
        ("b", "out"): Move(-1.0, {"goal": 1.0}),
    }
    data = Dataset.from_pairs(from_moves("leaky", moves, start="a"), [("a", "stay"), ("a", "out")])
    target = relaxed_target(data, 0.0, 10.0)
    assert covering(target).missed == MISSED
    engines.answers["importance"] = doubting(MISSED)
    assert posterior_of(target).reason == f"asked for; {MISSED}"
    assert [name for name, *_ in engines.ran] == ["importance"]


def test_enumeration_and_rejection_say_what_they_did():
    found = mixture(complete(LOOP, 2.0))
    assert (found.engine, found.reason) == ("mixture", f"asked for: enumeration of {found.diagnostics['cells']} cells")
    assert found.dimension == 2
    found = rejection(complete(LOOP, 5.0, "uniform"), draws=2**14)
    assert found.engine == "rejection"
    assert found.effective_sample_size == found.diagnostics["accepted"] > 1000
    assert str(found.diagnostics["draws"]) in found.reason


# Coordinates


def test_ways_to_cover_a_posterior():
    """The chart alone where no parameter is improper; a cut where loops were seen; centred coordinates besides."""

    def ways(target):
        return [components[0].way for components in covering(target).ways]

    assert ways(complete(TREE, 0.0)) == ["non-centred"]
    assert ways(complete(TREE)) == ["non-centred", "centred"]
    assert ways(complete(LOOP)) == ["cut", "centred"]
    assert ways(complete(LOOP, proper_only=True)) == ["non-centred"]
    assert ways(complete(LOOP, 0.0)) == ["non-centred"]


# Importance sampling with nets that find what they are told


@pytest.fixture
def nets(monkeypatch):
    """Nets whose effective share, error and so on are set by the way of their coordinates."""
    told = SimpleNamespace(share={}, error=lambda size: 0.0, unsolvable=0.0, mass={}, sizes=[], seeds=set(), scouted=[])

    class ToldNets(Nets):
        def __init__(self, components, chart, seed):
            self.components, self.chart, self.seed = components, chart, seed
            self.size = 0

        def scout(self, log2_size):
            told.scouted.append((self.components[0].way, log2_size))

        def sample(self, log2_size):
            first = self.components[0]
            target = first.target
            self.size = 2**log2_size
            told.sizes.append((first.way, log2_size))
            told.seeds.add(self.seed)
            points = 32 * 2**log2_size
            zero = np.zeros(target.model.n_pairs)
            mass, error = told.mass.get(first.cut, (0.5, told.error(log2_size)))
            return Result(
                table=two_policies(target, weights_with_error(error, mass)),
                q_mean=Estimate.of(zero, zero),
                q_sd=Estimate.of(zero, zero),
                engine="chart",
                reason=f"told nets in {first.way} coordinates",
                dimension=first.dimension,
                effective_sample_size=told.share.get(first.cut, told.share.get(first.way, 1.0)) * points,
                diagnostics={
                    "points": points,
                    "unsolvable_share": told.unsolvable,
                    "cut": [list(target.model.pair_name(i)) for i in first.cut],
                },
            )

    monkeypatch.setattr(importance, "Nets", ToldNets)
    return told


def by_points(target, **budget):
    """By importance sampling with a budget."""
    budget = Budget(**budget)
    return by_importance(target, covering(target, budget.cut), budget)


def test_the_first_good_coordinates_are_taken(nets):
    """More than a fifth of the points effective is good; exactly a fifth is not, and the better ones are taken."""
    assert "non-centred" in by_points(complete(TREE), seed=7).reason
    assert nets.scouted == nets.sizes == [("non-centred", 12)], "all that is weighed first was scouted"
    assert nets.seeds == {7}
    nets.sizes.clear()
    nets.share = {"non-centred": 0.2, "centred": 0.1}
    assert "non-centred" in by_points(complete(TREE)).reason
    assert nets.sizes == [("non-centred", 12), ("centred", 12)]
    nets.share = {"non-centred": 0.1, "centred": 0.15}
    assert "in centred" in by_points(complete(TREE)).reason


def test_nets_grow_until_errors_are_small(nets):
    nets.error = lambda size: 4 * ACCURACY * 0.5 ** (size - 12)
    result = by_points(complete(TREE, 0.0), accuracy=ACCURACY)
    assert [size for _, size in nets.sizes] == [12, 13, 14], "an error of exactly the accuracy is small enough"
    assert result.diagnostics["points"] == 32 * 2**14
    assert result.trustworthy


def test_nets_grow_as_long_as_their_points_may_be_held(nets):
    nets.error = lambda size: 0.1
    assert by_points(complete(TREE, 0.0)).diagnostics["points"] == Budget().points
    held = 6 * 2**18 + 5  # six coordinates: residuals of all pairs
    assert by_points(complete(TREE, 0.0), held=held).diagnostics["points"] == 2**18


@pytest.mark.parametrize(("effective", "grown"), [(400.0, True), (399.0, False)])
def test_hopeless_weights_are_not_weighed_on(nets, effective, grown):
    """Fewer than 400 effective points even with all points that may be taken."""
    nets.error = lambda size: 0.1
    nets.share = {"non-centred": effective / Budget().points}
    result = by_points(complete(TREE, 0.0))
    assert (len(nets.sizes) > 1) == grown
    assert result.trustworthy == grown


def test_points_that_were_asked_for(nets):
    """So many, rounded up to 32 nets of a power of two; errors do not matter."""
    nets.error = lambda size: 0.1
    for samples, sizes in ((1, {0}), (32, {0}), (33, {1}), (64, {1}), (32 * 2**12, {12}), (32 * 2**12 + 1, {12, 13})):
        nets.sizes.clear()
        result = by_points(complete(TREE, 0.0), samples=samples)
        assert {size for _, size in nets.sizes} == sizes
        assert result.diagnostics["points"] == 32 * 2 ** max(sizes)


def test_no_solution_at_any_point_is_refused(nets):
    nets.unsolvable = 0.999
    assert by_points(complete(TREE)).diagnostics["unsolvable_share"] == 0.999
    nets.unsolvable = 1.0
    with pytest.raises(UnsupportedError, match="larger epsilon"):
        by_points(complete(TREE))
    with pytest.raises(UnsupportedError, match="costs are negative rewards"):
        by_points(complete(TREE, proper_only=True))


def test_points_that_may_be_held(nets):
    """Six coordinates: at the limit they are taken, beyond it not."""
    assert by_points(complete(TREE), samples=100, held=6 * 100).trustworthy is False
    with pytest.raises(BadInputError, match="samples is 101: at most 100 points of 6 coordinates"):
        by_points(complete(TREE), samples=101, held=6 * 100)


def test_what_a_result_of_points_says(nets):
    result = by_points(complete(TREE), samples=32)
    assert result.doubts == ("importance weights are too uneven (effective sample size 32)",), "32 points"
    for points, trusted in ((400.0, True), (399.9, False)):
        nets.share = dict.fromkeys(("non-centred", "centred"), points / (32 * 2**12))
        assert by_points(complete(TREE), samples=32 * 2**12).trustworthy == trusted
    nets.share = {}
    assert by_points(complete(LOOP)).diagnostics["cut"] == [["s1", "stay"]]


@pytest.mark.parametrize(
    ("gap", "error", "agree"), [(0.9e-3, 0.0, True), (1.1e-3, 0.0, False), (0.0705, 0.01, True), (0.0709, 0.01, False)]
)
def test_two_cuts_must_agree_within_their_errors(nets, gap, error, agree):
    """Within 1e-3, or 5 standard errors of the difference: 5 sqrt(2) 0.01 = 0.0707. Playing first pairs is improper."""
    target = relaxed_target(Dataset.complete(from_moves("ring", ring(), start="a")), 0.5, 10.0)
    assert cut_set(target) == [0]
    assert other_cut(covering(target).ways[0])[0].cut == (2,)
    nets.mass = {(0,): (0.5, error), (2,): (0.5 + gap, error)}
    result = by_points(target, samples=2**17)
    assert float(improper_mass(target.model, result.table, target.observed).value) == pytest.approx(0.5)
    assert result.trustworthy == agree
    disagree = ("two ways to cut the observed loops open disagree on the improper mass",)
    assert result.doubts == (() if agree else disagree)
    assert result.diagnostics["second_cut_improper_mass"] == pytest.approx(0.5 + gap)
    assert result.diagnostics["second_cut"] == [["b", "on"]]


def ring():
    """a and b lead to each other, or out."""
    return {
        ("a", "on"): Move(-1.0, {"b": 1.0}),
        ("a", "out"): Move(-1.0, {"goal": 1.0}),
        ("b", "on"): Move(-1.0, {"a": 1.0}),
        ("b", "out"): Move(-1.0, {"goal": 1.0}),
    }


def test_what_is_not_trusted_anyway_is_not_compared(nets):
    target = relaxed_target(Dataset.complete(from_moves("ring", ring(), start="a")), 0.5, 10.0)
    nets.mass = {(0,): (0.5, 0.0), (2,): (0.9, 0.0)}
    nets.share = {"cut": 1e-9, "centred": 1e-9}
    result = by_points(target)
    assert "second_cut" not in result.diagnostics
    assert not result.trustworthy
    nets.share = {(2,): 1e-9}
    assert by_points(target).trustworthy, "a second cut that weighs badly refutes nothing"
    nets.share = {}
    assert not by_points(target).trustworthy


def test_what_coordinates_miss_is_a_doubt(nets):
    cover = Covering(covering(complete(TREE)).ways, "loops are missed")
    assert by_importance(complete(TREE), cover, Budget()).doubts == ("loops are missed",)


def lingering(closed):
    """State a is hardly ever left; another state loops forever, or not."""
    moves = {("a", "stay"): Move(-1.0, {"a": 0.999, "goal": 0.001}), ("a", "out"): Move(-1.0, {"b": 1.0})}
    moves |= {("b", "stay"): Move(-1.0, {"b" if closed else "goal": 1.0}), ("b", "out"): Move(-1.0, {"goal": 1.0})}
    return from_moves("lingering", moves, start="a")


def test_loops_that_are_hardly_ever_left_are_cut_but_not_improper(nets):
    """Their cut needs no second one; with --proper-only it leaves closed loops closed."""
    for closed, proper_only in ((False, False), (False, True), (True, True)):
        result = by_points(complete(lingering(closed), proper_only=proper_only))
        assert result.diagnostics["cut"] == [["a", "stay"]]
        assert "second_cut" not in result.diagnostics
    both = by_points(complete(lingering(True)))
    assert sorted(both.diagnostics["cut"]) == [["a", "stay"], ["b", "stay"]]


# Walks that find what they are told

STEPS = 512
"""Steps in every record of a told walker, whatever was asked for."""


@pytest.fixture
def walkers(monkeypatch):
    """Walkers of two chains that disagree by so much, in units of 1/16, in each record, and have mixed or not."""
    told = SimpleNamespace(gaps=[0] * 8, mixed=True, made=[], advanced=[], recorded=[], keeps=None)

    class ToldWalker:
        def __init__(self, coordinates, chart, rng, chains, before=None):
            self.coordinates, self.target = coordinates, coordinates.target
            told.made.append((chart is not None, int(rng.integers(2**63)), chains))

        def advance(self, rng, steps):
            told.advanced.append(steps)

        def record(self, rng, steps, keeps=False):
            gap = told.gaps[len(told.recorded)]
            told.recorded.append(steps)
            told.keeps = keeps
            last = np.arange(STEPS) >= STEPS * (0.5 + gap / 16 * np.array([[1], [-1]]))
            value = (
                None if told.mixed else np.arange(2.0)[:, None, None] + np.random.default_rng(0).random((2, STEPS, 1))
            )
            return trace_of(self.target, last.astype(np.int64), value)

    Walker.register(ToldWalker)
    monkeypatch.setattr(walk, "walker_of", ToldWalker)
    return told


@pytest.mark.parametrize(
    ("gaps", "mixed", "samples", "walked"),
    [
        ([1], True, None, 1),
        ([2, 2, 0, 0], True, None, 4),
        ([1] * 8, False, None, 8),
        ([2] * 8, True, None, 8),
        ([2], False, 1, 1),
        ([2] * 3, False, 3 * 256 * 250, 3),
        ([2] * 2, False, 3 * 256 * 250 - 1, 2),
    ],
)
def test_walks_go_on_until_they_are_good_or_long(walkers, gaps, mixed, samples, walked):
    """Rounds are doubled up to 8; both mixing and small errors end them; a number of points is rounded down.

    The accuracy is 1/16, and errors are the means of the gaps: with two rounds that are off by twice as much and two
    that are not at all, four are needed.
    """
    walkers.gaps, walkers.mixed = gaps, mixed
    result = by_walk(complete(TREE), Budget(accuracy=1 / 16, samples=samples, seed=9), "because")
    assert walkers.recorded == [250] * walked
    assert walkers.advanced == [250], "one round warms the chains up"
    assert walkers.made == [(True, int(np.random.default_rng(9).integers(2**63)), 256)]
    assert result.reason == "because: slice chains instead"
    assert result.trustworthy == mixed
    r_hat = result.diagnostics["r_hat"]
    assert (r_hat == 1.0) == mixed
    told = {"chains": 2, "lost_chains": 0, "steps": walked * STEPS, "r_hat": r_hat, "coordinates": "non-centred"}
    assert result.diagnostics == {**told, "evaluations_per_step": 3.5}


def test_where_chains_walk(walkers):
    """In the action values where the chart alone would leave improper parameters out."""
    for target, centred in (
        (complete(LOOP), True),
        (complete(LOOP, proper_only=True), False),
        (complete(LOOP, 0.0), False),
        (complete(TREE), False),
    ):
        assert needs_cut(target) == centred
        walkers.recorded.clear()
        result = by_walk(target, Budget(samples=1), "because")
        assert result.diagnostics["coordinates"] == ("centred" if centred else "non-centred")


def test_where_weights_fail_few_cells_are_enumerated_and_anything_else_is_walked(nets, walkers):
    """Asked for more effective points than importance sampling has, another engine takes over and says so."""
    nets.share = {"non-centred": 1e-9, "centred": 1e-9}
    exact = posterior_of(complete(TREE, 0.0), Budget(), "chart")
    assert (exact.engine, len(walkers.recorded)) == ("chart", 1)
    assert exact.reason.endswith("slice chains instead")
    relaxed = posterior_of(complete(TREE), Budget())
    assert (relaxed.engine, len(walkers.recorded)) == ("mixture", 1)
    assert "too uneven" in relaxed.reason


def test_the_rounds_of_a_walk_are_bounded(walkers):
    walkers.gaps = [2] * 8
    by_walk(complete(TREE), Budget(accuracy=1 / 16, rounds=2), "because")
    assert len(walkers.recorded) == 2


def test_what_walks_miss_is_a_doubt_and_they_do_not_go_on(walkers):
    """Residuals of loops that are hardly ever left, and nobody to cut them open."""
    walkers.gaps = [2] * 8
    result = by_walk(complete(lingering(False), proper_only=True), Budget(accuracy=1 / 16), "because")
    assert result.doubts == (MISSED,)
    assert len(walkers.recorded) == 1


@pytest.mark.parametrize(("samples", "steps"), [(None, 500), (1, 1), (8, 2), (9, 2)])
def test_sparse_walks_share_their_steps_among_four_chains(walkers, samples, steps):
    result = by_sparse_walk(complete(TREE), Budget(samples=samples, seed=3), "too large")
    assert (walkers.recorded, walkers.advanced) == ([steps], [steps // 4])
    assert walkers.made == [(False, int(np.random.default_rng(3).integers(2**63)), 4)]
    assert result.reason == "too large: slice chains on sparse systems instead"


def test_sparse_walks_keep_points_that_are_few_and_small(walkers):
    """Every fourth step of four chains of 50: as many numbers as may be kept, and no more."""
    numbers = 50 * TREE.n_pairs
    for room, keeps in ((numbers, True), (numbers - 1, False)):
        by_sparse_walk(complete(TREE), Budget(samples=200, kept=room), "too large")
        assert walkers.keeps == keeps


def test_sparse_walks_look_for_rare_moves_only(walkers):
    """Four steps of chance 0.1 in a row leave a loop: none is rare by itself, and a large problem is searched for no
    more than that."""
    moves = {(f"{k}", "on"): Move(-1.0, {"0": 0.9, f"{k + 1}" if k < 3 else "goal": 0.1}) for k in range(4)} | {
        ("0", "out"): Move(-1.0, {"goal": 1.0})
    }
    target = complete(from_moves("four steps", moves, start="0"), proper_only=True)
    assert by_walk(target, Budget(samples=1), "because").doubts == (MISSED,)
    assert by_sparse_walk(target, Budget(samples=4), "why").doubts == ()
    rare = complete(lingering(False), proper_only=True)
    assert by_sparse_walk(rare, Budget(samples=4), "why").doubts == (MISSED,)


def test_what_sparse_walks_do_not_cover_is_refused_with_a_way_out(walkers):
    """Improper parameters; any kernel, and noise of any scale, is walked."""
    with pytest.raises(UnsupportedError, match="use proper_only=True or epsilon=0"):
        check_sparse(complete(LOOP), "why")
    with pytest.raises(UnsupportedError, match="use proper_only=True or epsilon=0"):
        by_sparse_walk(complete(LOOP), Budget(), "why")
    for target in (
        complete(LOOP, proper_only=True),
        complete(LOOP, 0.0),
        complete(TREE),
        complete(LOOP, kernel="uniform", proper_only=True),
        noisy_target(Dataset.complete(TREE), 0.5, 1.0, Laplace()),
    ):
        assert by_sparse_walk(target, Budget(), "why").engine == "chart"


# Draws


def ways_of(target, count):
    """Importance draws in each of the coordinates that cover a posterior, and how many of them are effective."""
    chart = batch_chart(target.model)
    drawn = [draws.weighted_draws(way, chart, count, 0) for way in covering(target).ways]
    return drawn, [effective_size(one.weight.values) for one in drawn]


@pytest.mark.slow
def test_draws_come_from_weights_or_chains_or_are_refused(monkeypatch):
    """Of 8,192 draws as many without repeats as is enough; or of more, as many effective ones; or ends of chains.

    Action values weigh better than residuals here, but are looked at only where more residuals do not suffice.
    """
    target, kept = complete(TREE, 20.0), 6 * 10_000
    few, _ = ways_of(target, draws.DRAWS)
    first, better = (float(draws.distinct(one)) for one in few)
    many, (more, most) = ways_of(target, 10_000)
    assert first < more < better < most

    def found(enough):
        return draws.posterior_draws(target, Budget(enough=enough, kept=kept))

    assert found(first).identical(few[0]), "exactly as many as is enough"
    assert found(more).identical(many[0]), "more of them"
    assert found(better).identical(few[1]), "both coordinates were tried"
    assert found(most).identical(many[1])
    assert found(most + 1).sizes["draw"] == walk.CHAINS
    monkeypatch.setattr(draws, "chain_draws", lambda target, chart, budget: None)
    with pytest.raises(UnsupportedError, match="no draws: importance weights are too uneven"):
        found(most + 1)


# Evidence


def test_the_evidence_curve_collects_one_evidence_a_scale(monkeypatch):
    def told(model, data, epsilon, prior_scale, seed):
        evidence = Estimate.of(-prior_scale, 0.1 * prior_scale) if prior_scale < 5 else None
        return summary_of(complete(TREE), [[1, 3]], log_evidence=evidence)

    monkeypatch.setattr(evidence, "posterior", told)
    curve = evidence.evidence_curve(TREE, Dataset.complete(TREE), [1.0, 2.0, 4.0], epsilon=0.5)
    assert curve.prior_scale.tolist() == [1.0, 2.0, 4.0]
    assert curve.log_evidence.tolist() == [-1.0, -2.0, -4.0]
    np.testing.assert_allclose(curve.se, [0.1, 0.2, 0.4])
    with pytest.raises(UnsupportedError, match="importance weights failed there"):
        evidence.evidence_curve(TREE, Dataset.complete(TREE), [1.0, 8.0], epsilon=0.5)
    with pytest.raises(BadInputError, match="prior_scales is empty"):
        evidence.evidence_curve(TREE, Dataset.complete(TREE), [])
