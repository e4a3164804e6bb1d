"""Which engine is taken, how long it works and what is said of it: decisions, with engines told what to find."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import xarray
from by_hand import summary_of, two_policies, walk_of, weights_with_error

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.chart.batch import TooLargeError, batch_chart
from bellmanifold.data import Dataset
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.kernels import Laplace, StudentT, Uniform
from bellmanifold.posteriors import (
    cut,
    draws,
    from_chains,
    importance,
    inference,
    near_ties,
    rejection,
    sparse_walk,
    walk,
)
from bellmanifold.posteriors.importance import Nets, Sample
from bellmanifold.posteriors.policies import Estimate
from bellmanifold.posteriors.target import noisy_target, relaxed_target

TREE = envs.deep_sea(2)
"""Three states of two pairs each."""
LOOP = envs.two_state()


def complete(model, epsilon=0.5, kernel="gaussian"):
    return relaxed_target(Dataset.complete(model), epsilon, 10.0, kernel)


# Options


def test_the_smallest_options_are_taken_and_smaller_ones_refused():
    nothing = Dataset.from_pairs(TREE, [])
    summary = bm.posterior(TREE, nothing, samples=1, top=0, seed=0)
    assert (summary.engine, summary.routes, summary.seed) == ("prior", [], 0)
    for wrong in ({"samples": 0}, {"top": -1}, {"seed": -1}):
        with pytest.raises(BadInputError, match=f"{next(iter(wrong))} is"):
            bm.posterior(TREE, nothing, **wrong)


def test_without_data_the_posterior_is_the_prior():
    summary = bm.posterior(TREE, Dataset.from_pairs(TREE, []), prior_scale=3.0, top=7, seed=5)
    assert summary.action_probability.value.tolist() == [0.5] * 6
    assert summary.action_probability.se.tolist() == [0.0] * 6
    assert summary.q_mean.tolist() == [0.0] * 6
    assert summary.q_sd.tolist() == [3.0] * 6
    assert (summary.dimension, summary.top, summary.seed) == (0, 7, 5)
    assert (float(summary.log_evidence.value), float(summary.log_evidence.se)) == (0.0, 0.0)
    assert summary.findings.noise_scale is None
    noisy = bm.posterior(TREE, Dataset.from_pairs(TREE, []), infer_noise=True)
    np.testing.assert_allclose(noisy.findings.noise_scale, [np.sqrt(2 / np.pi), np.sqrt(1 - 2 / np.pi)], rtol=1e-3)
    target = relaxed_target(Dataset.from_pairs(TREE, []), 0.0, 3.0)
    assert inference.posterior_of(target).engine == "prior"


def test_noise_is_known_or_inferred_or_there_is_none():
    assert inference._noise_scale(None, False) is None
    assert inference._noise_scale(0.5, False) == 0.5
    assert inference._noise_scale(None, True) == HalfNormal()
    own = HalfNormal(0.3)
    assert inference._noise_scale(None, own) is own
    with pytest.raises(BadInputError, match="leave one of the two out"):
        inference._noise_scale(0.5, True)


@pytest.fixture
def no_near_ties(monkeypatch):
    """Nobody looks for near ties."""
    monkeypatch.setattr(near_ties, "without_near_ties", lambda summary: summary)


@pytest.mark.usefixtures("no_near_ties")
def test_relaxing_and_noise_do_not_go_together(monkeypatch):
    monkeypatch.setattr(inference, "_choose", lambda target, *_: replace(summary_of(target, [[1, 3]]), reason="ok"))
    data = Dataset.complete(TREE)
    for wrong in ({"noise": "laplace"}, {"noise_sd": 0.5, "epsilon": 0.1}, {"noise_sd": 0.5, "kernel": "uniform"}):
        with pytest.raises(BadInputError, match=r"without its scale|leave them out where rewards are noisy"):
            bm.posterior(TREE, data, **wrong)
    assert bm.posterior(TREE, data).target.is_exact
    assert bm.posterior(TREE, data, epsilon=0.1, kernel="uniform").target.law == Uniform()
    noisy = bm.posterior(TREE, data, noise_sd=0.5, noise="laplace").target
    assert (noisy.law, noisy.noise_sd) == (Laplace(), 0.5)
    assert bm.posterior(TREE, data, noise_sd=0.5, noise=StudentT(3.0)).target.law == StudentT(3.0)


def test_repeats_under_other_noise_go_to_chains(monkeypatch):
    """One visit of each pair is a mean like any other; two are not, except under Gaussian noise."""
    seen = []

    def by_every_visit(data, noise, target, sampler, samples, seed):
        seen.append((noise, target, sampler, samples, seed))
        return summary_of(target, [[1, 3]])

    monkeypatch.setattr(from_chains, "by_every_visit", by_every_visit)
    monkeypatch.setattr(inference, "_choose", lambda target, *_: replace(summary_of(target, [[1, 3]]), reason="chart"))
    once, twice = Dataset.complete(TREE), Dataset(TREE, np.tile(np.arange(6), 2), np.tile(TREE.reward, 2))
    options = {"noise_sd": 0.5, "noise": "laplace", "seed": 4, "top": 3, "samples": 9}
    assert bm.posterior(TREE, once, **options).reason == "chart"
    assert bm.posterior(TREE, twice, **{**options, "noise": "gaussian"}).reason == "chart"
    assert not seen
    summary = bm.posterior(TREE, twice, **options)
    assert (summary.top, summary.seed) == (3, 4)
    noise, target, sampler, samples, seed = seen[0]
    assert (noise, sampler, samples, seed, target.law) == (0.5, "nuts", 9, 4, Laplace())
    assert (target.noise_scale, target.log_constant) == (None, 0.0)
    bm.posterior(TREE, twice, **options, engine="hmc")
    assert seen[1][2] == "hmc"
    with pytest.raises(UnsupportedError, match="uniform noise has no gradient"):
        bm.posterior(TREE, twice, **{**options, "noise": Uniform()})
    with pytest.raises(UnsupportedError, match="chart takes laplace noise only"):
        bm.posterior(TREE, twice, **options, engine="chart")
    with pytest.raises(BadInputError, match="no --proper-only"):
        bm.posterior(TREE, twice, **options, proper_only=True)


@pytest.mark.usefixtures("no_near_ties")
def test_a_discount_leaves_room_for_the_goal(monkeypatch):
    monkeypatch.setattr(inference, "_choose", lambda target, *_: summary_of(target, [[1, 3]]))
    target = bm.posterior(LOOP, Dataset.complete(LOOP), discount=0.9).target
    assert not target.loops
    assert target.model == LOOP.discounted(0.9)


# What is said about errors


@pytest.fixture
def accuracy(monkeypatch):
    """An accuracy without rounding."""
    monkeypatch.setattr(inference, "ACCURACY", 2.0**-10)
    return 2.0**-10


@pytest.mark.parametrize(("factor", "said"), [(1.5, True), (1.0, False), (0.5, False)])
def test_errors_that_stay_large_are_said_once(accuracy, factor, said):
    summary = summary_of(complete(TREE), weights_with_error(factor * accuracy))
    assert summary.largest_error == factor * accuracy
    assert ("stopped at a largest" in inference._with_its_error(summary).reason) == said
    told = replace(summary, reason="stopped early")
    assert inference._with_its_error(told).reason == "stopped early"


def test_errors_are_said_only_where_nobody_asked_for_a_number_of_points(monkeypatch):
    monkeypatch.setattr(inference, "_choose", lambda target, *_: summary_of(target, weights_with_error(0.1)))
    data = Dataset.complete(TREE)
    assert "largest standard error of 0.1" in bm.posterior(TREE, data, epsilon=0.5).reason
    assert bm.posterior(TREE, data, epsilon=0.5, samples=10).reason == "by hand"


def test_the_largest_error_is_one_of_an_action_or_of_a_route():
    """A route may vary where no action does: two routes swap their shares between replicates."""
    target = complete(TREE)
    policy = np.array([[0, 2, 4], [1, 3, 5], [0, 3, 4], [1, 2, 5]])
    weight = np.array([[0.3, 0.3, 0.2, 0.2], [0.2, 0.2, 0.3, 0.3]])
    summary = summary_of(target, [[1, 1], [1, 1]])
    table = replace(summary.table, policy=policy, weight=weight)
    summary = replace(summary, findings=replace(summary.findings, table=table))
    assert summary.action_probability.se.max() == pytest.approx(0.0, abs=1e-12)
    assert summary.largest_error == pytest.approx(0.05)
    random = from_moves("random", {("s", "on"): Move(-1.0, {"s": 0.5, "goal": 0.5})}, start="s")
    assert summary_of(complete(random), [[1, 0]]).largest_error == 0.0


@pytest.mark.parametrize(("pays", "exists"), [(-1e-9, True), (0.0, False), (1e-9, False)])
def test_the_exact_posterior_needs_loops_that_cost_something(pays, exists):
    data = Dataset.from_pairs(LOOP, [("s1", "stay", pays), ("s1", "go", -1.0)])
    target = relaxed_target(data, 0.0, 10.0)
    if exists:
        inference.require_assumption_2(target)
    else:
        with pytest.raises(UnsupportedError, match="the exact posterior does not exist"):
            inference.require_assumption_2(target)
    with pytest.raises(UnsupportedError, match="the exact posterior does not exist"):
        inference.by_chart(relaxed_target(Dataset.from_pairs(LOOP, [("s1", "stay", 1.0)]), 0.0, 1.0), False, None, 0)


# Coordinates


def test_ways_to_cover_a_posterior():
    """The chart alone where no parameter is improper; a cut where loops were seen; centred coordinates besides."""

    def ways(target, proper_only=False):
        chart = batch_chart(target.model)
        return [components[0].way for components in inference.covering(target, chart, proper_only)]

    assert ways(complete(TREE, 0.0)) == ["non-centred"]
    assert ways(complete(TREE)) == ["non-centred", "centred"]
    assert ways(complete(LOOP)) == ["cut", "centred"]
    assert ways(complete(LOOP), proper_only=True) == ["non-centred"]
    assert ways(complete(LOOP, 0.0)) == ["non-centred"]


def test_where_chains_walk():
    for target, proper_only, centred in (
        (complete(LOOP), False, True),
        (complete(LOOP), True, False),
        (complete(LOOP, 0.0), False, False),
        (complete(TREE), False, False),
    ):
        assert inference.walkable(target, batch_chart(target.model), proper_only).centred == centred


# Importance sampling with nets that find what they are told


@pytest.fixture
def nets(monkeypatch):
    """Nets whose effective share, error and so on are set by the way of their coordinates."""
    told = SimpleNamespace(share={}, error=lambda size: 0.0, unsolvable=0.0, mass={}, sizes=[], seeds=set())

    class ToldNets(Nets):
        def sample(self, log2_size):
            first = self.components[0]
            target = first.target
            told.sizes.append((first.way, log2_size))
            told.seeds.add(self.seed)
            points = 32 * 2**log2_size
            zero = np.zeros(target.model.n_pairs)
            mass, error = told.mass.get(first.cut, (0.5, told.error(log2_size)))
            return Sample(
                table=two_policies(target, weights_with_error(error, mass)),
                q_mean=Estimate.of(zero, zero),
                q_sd=zero,
                log_evidence=Estimate.of(-1.0, 0.1),
                effective_sample_size=told.share.get(first.cut, told.share.get(first.way, 1.0)) * points,
                points=points,
                unsolvable=told.unsolvable,
                tied_states=np.array([0]),
            )

    monkeypatch.setattr(importance, "Nets", ToldNets)
    return told


def test_the_first_good_coordinates_are_taken(nets):
    """More than a fifth of the points effective is good; exactly a fifth is not, and the better ones are taken."""
    assert "non-centred" in inference.by_chart(complete(TREE), False, None, 7).reason
    assert nets.sizes == [("non-centred", 12)]
    assert nets.seeds == {7}
    nets.sizes.clear()
    nets.share = {"non-centred": 0.2, "centred": 0.1}
    assert "non-centred" in inference.by_chart(complete(TREE), False, None, 0).reason
    assert nets.sizes == [("non-centred", 12), ("centred", 12)]
    nets.share = {"non-centred": 0.1, "centred": 0.15}
    assert "in centred" in inference.by_chart(complete(TREE), False, None, 0).reason


def test_nets_grow_until_errors_are_small(nets, accuracy):
    nets.error = lambda size: 4 * accuracy * 0.5 ** (size - 12)
    summary = inference.by_chart(complete(TREE, 0.0), False, None, 0)
    assert [size for _, size in nets.sizes] == [12, 13, 14], "an error of exactly the accuracy is small enough"
    assert summary.diagnostics["points"] == 32 * 2**14
    assert summary.trustworthy


def test_nets_grow_as_long_as_their_points_may_be_held(nets, monkeypatch):
    nets.error = lambda size: 0.1
    summary = inference.by_chart(complete(TREE, 0.0), False, None, 0)
    assert summary.diagnostics["points"] == inference.MOST_POINTS
    monkeypatch.setattr(inference, "MOST_HELD", 6 * 2**18 + 5)  # six coordinates: residuals of all pairs
    summary = inference.by_chart(complete(TREE, 0.0), False, None, 0)
    assert summary.diagnostics["points"] == 2**18


@pytest.mark.parametrize(("effective", "grown"), [(400.0, True), (399.0, False)])
def test_hopeless_weights_are_not_weighed_on(nets, effective, grown):
    """Fewer than 400 effective points even with all points that may be taken."""
    nets.error = lambda size: 0.1
    nets.share = {"non-centred": effective / inference.MOST_POINTS}
    summary = inference.by_chart(complete(TREE, 0.0), False, None, 0)
    assert (len(nets.sizes) > 1) == grown
    assert summary.trustworthy == grown


def test_points_that_were_asked_for(nets):
    """So many, rounded up to 32 nets of a power of two; errors do not matter."""
    nets.error = lambda size: 0.1
    for samples, sizes in ((1, [0]), (32, [0]), (33, [1]), (64, [1]), (32 * 2**12, [12]), (32 * 2**12 + 1, [12, 13])):
        nets.sizes.clear()
        inference.by_chart(complete(TREE, 0.0), False, samples, 0)
        assert [size for _, size in nets.sizes] == sizes


def test_no_solution_at_any_point_is_refused(nets):
    nets.unsolvable = 0.999
    assert inference.by_chart(complete(TREE), False, None, 0).diagnostics["unsolvable_share"] == 0.999
    nets.unsolvable = 1.0
    with pytest.raises(UnsupportedError, match="larger --epsilon"):
        inference.by_chart(complete(TREE), False, None, 0)
    with pytest.raises(UnsupportedError, match="leave --proper-only out"):
        inference.by_chart(complete(TREE), True, None, 0)


def test_limits_of_importance_sampling(nets, monkeypatch):
    """Six pairs in six slots: at the limit they are taken, beyond it not."""
    monkeypatch.setattr(inference, "MOST_COORDINATES", 6)
    monkeypatch.setattr(inference, "MOST_IN_PIECE", 6 * importance.PIECE)
    monkeypatch.setattr(inference, "MOST_HELD", 6 * 100)
    assert inference.by_chart(complete(TREE), False, 100, 0).trustworthy is False
    with pytest.raises(BadInputError, match="samples is 101: at most 100 points of 6 coordinates"):
        inference.by_chart(complete(TREE), False, 101, 0)
    monkeypatch.setattr(inference, "MOST_COORDINATES", 5)
    with pytest.raises(inference.TooManyCoordinatesError, match="6 coordinates are too many"):
        inference.by_chart(complete(TREE), False, None, 0)
    monkeypatch.setattr(inference, "MOST_IN_PIECE", 6 * importance.PIECE - 1)
    with pytest.raises(TooLargeError, match="the padded problem has 6 pairs"):
        inference.by_chart(complete(TREE), False, None, 0)


def test_coordinates_are_counted_with_their_residuals(nets, monkeypatch):
    """Two observed pairs, and one that stands for both unobserved ones of each state next to them; or six values."""
    target = relaxed_target(Dataset.from_pairs(TREE, [("0,0", "left"), ("0,0", "right")]), 0.5, 1.0)
    monkeypatch.setattr(inference, "MOST_COORDINATES", 3)
    with pytest.raises(inference.TooManyCoordinatesError, match=r"^6 coordinates"):
        inference.by_chart(target, False, None, 0)
    with pytest.raises(inference.TooManyCoordinatesError, match=r"^4 coordinates"):
        inference.by_chart(target, True, None, 0)


def test_what_a_summary_of_points_says(nets):
    summary = inference.by_chart(complete(TREE), False, 32, 0)
    assert summary.log_evidence is not None
    assert summary.diagnostics["ties_split"] == ["0,0"]
    assert not summary.trustworthy, "32 points"
    for points, trusted in ((400.0, True), (399.9, False)):
        nets.share = {"non-centred": points / (32 * 2**12)}
        assert inference.by_chart(complete(TREE), True, 32 * 2**12, 0).trustworthy == trusted
    nets.share = {}
    assert inference.by_chart(complete(LOOP), True, None, 0).log_evidence is None, "of a part of the parameters only"
    assert inference.by_chart(complete(LOOP, 0.0), True, None, 0).log_evidence is not None
    assert inference.by_chart(complete(LOOP), False, None, 0).log_evidence is not None
    assert inference.by_chart(complete(LOOP), False, None, 0).diagnostics["cut"] == [["s1", "stay"]]


@pytest.mark.parametrize(
    ("gap", "error", "agree"), [(0.9e-3, 0.0, True), (1.1e-3, 0.0, False), (0.0705, 0.01, True), (0.0709, 0.01, False)]
)
def test_two_cuts_must_agree_within_their_errors(nets, gap, error, agree):
    """Within 1e-3, or 5 standard errors of the difference: 5 sqrt(2) 0.01 = 0.0707. Playing first pairs is improper."""
    target = relaxed_target(Dataset.complete(from_moves("ring", ring(), start="a")), 0.5, 10.0)
    assert cut.cut_set(target) == [0]
    assert cut.other_cut(cut.cut_coordinates(target, batch_chart(target.model), False))[0].cut == (2,)
    nets.mass = {(0,): (0.5, error), (2,): (0.5 + gap, error)}
    summary = inference.by_chart(target, False, 2**17, 0)
    assert float(summary.improper_mass.value) == pytest.approx(0.5)
    assert summary.trustworthy == agree
    assert summary.diagnostics["second_cut_improper_mass"] == pytest.approx(0.5 + gap)
    assert summary.diagnostics["second_cut"] == [["b", "on"]]


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
    summary = inference.by_chart(target, False, None, 0)
    assert "second_cut" not in summary.diagnostics
    assert not summary.trustworthy
    nets.share = {(2,): 1e-9}
    assert inference.by_chart(target, False, None, 0).trustworthy, "a second cut that weighs badly refutes nothing"
    nets.share = {}
    assert not inference.by_chart(target, False, None, 0).trustworthy


def lingering(closed):
    """State a is hardly ever left; another state loops for ever, or not."""
    moves = {("a", "stay"): Move(-1.0, {"a": 0.999, "goal": 0.001}), ("a", "out"): Move(-1.0, {"b": 1.0})}
    moves |= {("b", "stay"): Move(-1.0, {"b" if closed else "goal": 1.0}), ("b", "out"): Move(-1.0, {"goal": 1.0})}
    return complete(from_moves("lingering", moves, start="a"))


def test_loops_that_are_hardly_ever_left_are_cut_but_not_improper(nets):
    """Their cut needs no second one; with --proper-only it leaves closed loops closed, and the evidence is a part's."""
    for closed, proper_only, whole in ((False, False, True), (False, True, True), (True, True, False)):
        summary = inference.by_chart(lingering(closed), proper_only, None, 0)
        assert summary.diagnostics["cut"] == [["a", "stay"]]
        assert "second_cut" not in summary.diagnostics
        assert (summary.log_evidence is not None) == whole
    both = inference.by_chart(lingering(True), False, None, 0)
    assert sorted(both.diagnostics["cut"]) == [["a", "stay"], ["b", "stay"]]
    assert both.log_evidence is not None


# Walks that find what they are told


@pytest.mark.parametrize(
    ("errors", "r_hat", "samples", "walked"),
    [
        ([1], 1.0, None, [1]),
        ([2, 2, 1], 1.0, None, [1, 2, 4]),
        ([1, 1, 1, 1], 2.0, None, [1, 2, 4, 8]),
        ([2, 2, 2, 2], 1.0, None, [1, 2, 4, 8]),
        ([2], 2.0, 1, [1]),
        ([2], 2.0, 3 * 256 * 250, [3]),
        ([2], 2.0, 3 * 256 * 250 - 1, [2]),
    ],
)
def test_walks_go_on_until_they_are_good_or_long(monkeypatch, accuracy, errors, r_hat, samples, walked):
    """Rounds are doubled up to 8; both mixing and small errors end them; a number of points is rounded down."""
    rounds, seeds, left = [], [], [accuracy * error for error in errors]

    class ToldChains:
        def __init__(self, coordinates, seed):
            self.coordinates = coordinates
            seeds.append(seed)

        def walk(self, number):
            rounds.append(number)
            return walk_of(self.coordinates.target, weights_with_error(left.pop(0)), r_hat=r_hat, evaluations=3.5)

    monkeypatch.setattr(walk, "Chains", ToldChains)
    summary = inference.by_walk(complete(TREE), False, "because", samples, 9)
    assert rounds == walked
    assert seeds == [9]
    assert summary.reason == "because: slice chains instead"
    assert summary.trustworthy == (r_hat == 1.0)
    told = {"chains": 2, "lost_chains": 0, "steps": 5, "r_hat": r_hat, "coordinates": "non-centred"}
    assert summary.diagnostics == {**told, "evaluations_per_step": 3.5}


@pytest.mark.parametrize(("samples", "steps"), [(None, 500), (1, 1), (8, 2), (9, 2)])
def test_sparse_walks_share_their_steps_among_four_chains(monkeypatch, samples, steps):
    seen = []

    def told(coordinates, steps, warm_up, seed):
        seen.append((steps, warm_up, seed))
        return walk_of(coordinates.target)

    monkeypatch.setattr(sparse_walk, "sparse_walk", told)
    summary = inference.by_sparse_walk(complete(TREE), False, "too large", samples, 3)
    assert seen == [(steps, steps // 4, 3)]
    assert "too large: slice chains on sparse systems" in summary.reason
    assert "evaluations_per_step" not in summary.diagnostics


def test_what_sparse_walks_do_not_cover_is_refused_with_a_way_out(monkeypatch):
    monkeypatch.setattr(sparse_walk, "sparse_walk", lambda coordinates, *_, **__: walk_of(coordinates.target))
    with pytest.raises(UnsupportedError, match="use --proper-only or --epsilon 0"):
        inference.by_sparse_walk(complete(LOOP), False, "why", None, 0)
    with pytest.raises(UnsupportedError, match="use --kernel gaussian"):
        inference.by_sparse_walk(complete(LOOP, kernel="uniform"), True, "why", None, 0)
    laplace = noisy_target(Dataset.complete(TREE), 0.5, 1.0, Laplace())
    with pytest.raises(UnsupportedError, match="give --noise-sd, and gaussian noise"):
        inference.by_sparse_walk(laplace, False, "why", None, 0)
    for target, proper_only in ((complete(LOOP), True), (complete(LOOP, 0.0), False), (complete(TREE), False)):
        assert inference.by_sparse_walk(target, proper_only, "why", None, 0).engine == "chart"


# Which engine


@pytest.fixture
def engines(monkeypatch):
    """Every engine says its name and the reason it was given; the chart's answer or refusal can be set."""
    told = SimpleNamespace(chart=lambda target: summary_of(target, [[1, 3]]), mixture=None)

    def by_chart(target, proper_only, samples, seed):
        return told.chart(target)

    def by_mixture(target, why, seed):
        if told.mixture is not None:
            raise told.mixture
        return replace(summary_of(target, [[1, 3]]), engine="mixture", reason=why)

    def walks(name):
        return lambda target, proper_only, why, samples, seed: replace(
            summary_of(target, [[1, 3]]), engine=name, reason=why
        )

    monkeypatch.setattr(inference, "by_chart", by_chart)
    monkeypatch.setattr(inference, "by_mixture", by_mixture)
    monkeypatch.setattr(inference, "by_walk", walks("walk"))
    monkeypatch.setattr(inference, "by_sparse_walk", walks("sparse"))
    monkeypatch.setattr(
        inference, "by_rejection", lambda target, seed: replace(summary_of(target, [[1, 3]]), engine="rejection")
    )
    monkeypatch.setattr(
        from_chains,
        "by_chains",
        lambda target, sampler, samples, seed: replace(summary_of(target, [[1, 3]]), engine=sampler),
    )
    return told


def chosen(target, engine="auto", proper_only=False, samples=None):
    return inference._choose(target, engine, proper_only, samples, 0)


@pytest.mark.parametrize("engine", ["mixture", "rejection", "hmc", "nuts"])
def test_an_engine_that_was_asked_for(engines, engine):
    assert chosen(complete(TREE), engine).engine == engine
    with pytest.raises(BadInputError, match=f"the {engine} engine has no --proper-only"):
        chosen(complete(TREE), engine, proper_only=True)
    if engine in ("hmc", "nuts"):
        assert chosen(complete(TREE), engine, samples=10).engine == engine
    else:
        with pytest.raises(BadInputError, match=f"the {engine} engine has no --samples"):
            chosen(complete(TREE), engine, samples=10)


def raising(error):
    def fail(_):
        raise error

    return fail


def test_what_the_chart_refuses_goes_elsewhere(engines):
    """Too many coordinates: a walk; too large: a sparse one; else an enumeration, where there is one."""
    assert chosen(complete(TREE)).engine == "test"
    engines.chart = raising(inference.TooManyCoordinatesError("too many"))
    assert (chosen(complete(TREE)).engine, chosen(complete(TREE)).reason) == ("walk", "too many")
    engines.chart = raising(TooLargeError("too large"))
    assert (chosen(complete(TREE)).engine, chosen(complete(TREE)).reason) == ("sparse", "too large")
    engines.chart = raising(UnsupportedError("cannot"))
    assert chosen(complete(TREE)).reason == "the chart does not apply (cannot)"
    for wrong in (
        {"target": complete(TREE), "engine": "chart"},
        {"target": complete(TREE, 0.0)},
        {"target": complete(TREE), "proper_only": True},
        {"target": complete(TREE, kernel="uniform")},
    ):
        with pytest.raises(UnsupportedError, match=r"^cannot$"):
            chosen(**wrong)
    engines.mixture = UnsupportedError("nor this")
    with pytest.raises(UnsupportedError, match=r"^cannot; nor this$"):
        chosen(complete(TREE))


@pytest.mark.parametrize(("effective", "doubt"), [(399.0, "uneven"), (400.0, "disagree"), (None, "uneven")])
def test_what_is_not_trusted_is_enumerated_or_walked(engines, effective, doubt):
    engines.chart = lambda target: replace(
        summary_of(target, [[1, 3]]), trustworthy=False, effective_sample_size=effective
    )
    assert chosen(complete(TREE)).engine == "mixture"
    assert doubt in chosen(complete(TREE)).reason
    assert chosen(complete(TREE), "chart").engine == "walk"
    assert doubt in chosen(complete(TREE), "chart").reason
    engines.mixture = UnsupportedError("too many cells")
    assert chosen(complete(TREE)).engine == "walk"


def test_a_posterior_that_is_given_as_such_is_whole(monkeypatch):
    """No part of it is left out, and as many points are taken as errors need."""
    asked = []

    def by_chart(target, proper_only, samples, seed):
        asked.append((proper_only, samples, seed))
        return summary_of(target, [[1, 3]])

    monkeypatch.setattr(inference, "by_chart", by_chart)
    inference.posterior_of(complete(TREE), seed=5)
    assert asked == [(False, None, 5)]


def test_enumeration_and_rejection_say_what_they_did(monkeypatch):
    few = partial(rejection.rejection, draws=2**14)
    monkeypatch.setattr(rejection, "rejection", few)
    target = complete(LOOP, 2.0)
    summary = inference.by_mixture(target, "asked for", 0)
    assert summary.reason == f"asked for: enumeration of {summary.diagnostics['cells']} cells"
    assert summary.dimension == 2
    uniform = complete(LOOP, 5.0, "uniform")
    summary = inference.by_rejection(uniform, 0)
    assert summary.effective_sample_size == summary.diagnostics["accepted"] > 1000
    assert str(summary.diagnostics["draws"]) in summary.reason


# Draws


@pytest.mark.parametrize(
    ("few", "many", "mixed", "source"),
    [
        (400.0, 0.0, True, "weighted"),
        (399.0, 400.0, True, "resampled"),
        (399.0, 399.0, True, "chains"),
        (399.0, 399.0, False, None),
    ],
)
def test_draws_come_from_weights_or_chains_or_are_refused(monkeypatch, few, many, mixed, source):
    def marked(name, count=1):
        return xarray.Dataset({"weight": ("draw", np.full(count, 1.0 / count))}, attrs={"source": name})

    counts = []

    def weighted(components, count, seed):
        counts.append(count)
        return marked("weighted", count)

    monkeypatch.setattr(draws, "weighted_draws", weighted)
    monkeypatch.setattr(draws, "effective", lambda drawn: few if drawn.sizes["draw"] == inference.DRAWS else many)
    monkeypatch.setattr(draws, "resampled", lambda drawn, count, seed: marked("resampled", count))
    monkeypatch.setattr(draws, "chain_draws", lambda coordinates, seed: marked("chains") if mixed else None)
    monkeypatch.setattr(inference, "MOST_NUMBERS", 6 * 10_000)
    if source is None:
        with pytest.raises(UnsupportedError, match="no draws: importance weights are too uneven"):
            inference.posterior_draws(complete(TREE), False, 0)
        assert counts == [8192, 10_000] * 2, "both coordinates were tried"
    else:
        found = inference.posterior_draws(complete(TREE), False, 0)
        assert found.attrs["source"] == source
        if source == "resampled":
            assert found.sizes["draw"] == inference.DRAWS


# Evidence


def test_the_evidence_curve_collects_one_evidence_a_scale(monkeypatch):
    def told(model, data, epsilon, prior_scale, seed):
        evidence = Estimate.of(-prior_scale, 0.1 * prior_scale) if prior_scale < 5 else None
        return summary_of(complete(TREE), [[1, 3]], log_evidence=evidence)

    monkeypatch.setattr(inference, "posterior", told)
    curve = inference.evidence_curve(TREE, Dataset.complete(TREE), [1.0, 2.0, 4.0], epsilon=0.5)
    assert curve.prior_scale.tolist() == [1.0, 2.0, 4.0]
    assert curve.log_evidence.tolist() == [-1.0, -2.0, -4.0]
    np.testing.assert_allclose(curve.se, [0.1, 0.2, 0.4])
    with pytest.raises(UnsupportedError, match="importance weights failed there"):
        inference.evidence_curve(TREE, Dataset.complete(TREE), [1.0, 8.0], epsilon=0.5)
    with pytest.raises(BadInputError, match="prior_scales is empty"):
        inference.evidence_curve(TREE, Dataset.complete(TREE), [])
