"""What a summary says of what an engine found, without any engine."""

from dataclasses import replace

import numpy as np
import pytest
import xarray
from by_hand import summary_of
from scipy.sparse import csr_array

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.estimated import Estimate
from bellmanifold.posteriors.kernels import Laplace
from bellmanifold.posteriors.laws import open_laws
from bellmanifold.posteriors.noise import HalfNormal
from bellmanifold.posteriors.target import noisy_target, relaxed_target
from bellmanifold.problem.dataset import Dataset


def two_state(epsilon=0.5):
    return relaxed_target(Dataset.complete(envs.two_state()), epsilon, 10.0)


def test_probabilities_of_policies_of_this_problem_only():
    """Three states of two pairs each: one pair of each, in order; nothing else is a policy."""
    model = envs.deep_sea(2)
    summary = summary_of(relaxed_target(Dataset.complete(model), 0.5, 1.0), [[1, 3]])
    assert summary.policy_probability(np.array([1, 3, 5])).value == 0.75
    assert summary.policy_probability(np.array([0, 2, 5])).value == 0.0
    for wrong in ([-1, 2, 4], [0, 2, 6], [0, 2], [0, 2, 4, 0], [0, 1, 4], [2, 2, 4], [0, 2, 3], []):
        with pytest.raises(BadInputError, match="one pair of each of the 3 states"):
            summary.policy_probability(np.array(wrong, dtype=np.int64))


def test_routes_need_certain_moves_and_one_start():
    model = envs.deep_sea(2)
    target = relaxed_target(Dataset.complete(model), 0.5, 1.0)
    assert [route.probability for route in summary_of(target, [[1, 3]]).routes] == [0.75, 0.25]
    two_starts = replace(model, initial=np.array([0.5, 0.5, 0.0]))
    assert summary_of(replace(target, model=two_starts), [[1, 3]]).routes is None
    moves = {("s", "on"): Move(-1.0, {"s": 0.5, "goal": 0.5}), ("s", "out"): Move(-1.0, {"goal": 1.0})}
    random = from_moves("random", moves, start="s")
    assert summary_of(relaxed_target(Dataset.complete(random), 0.5, 1.0), [[1, 3]]).routes is None


def test_a_summary_is_its_result_and_its_budget():
    """As many routes are listed as the budget says; a restricted posterior has no improper mass."""
    summary = summary_of(two_state(), [[1, 3]], Budget(top=1, seed=5), doubts=("uneven",), stopped="stopped early")
    assert (summary.engine, summary.dimension, summary.effective_sample_size) == ("test", 3, None)
    assert summary.reason == "by hand; uneven; stopped early"
    assert not summary.trustworthy
    assert summary_of(two_state(), [[1, 3]]).trustworthy
    assert len(summary.routes) == 1
    assert len(summary_of(two_state(), [[1, 3]]).routes) == 2
    assert summary.action_probability is summary.action_probability
    assert summary.routes is summary.routes
    assert float(summary.improper_mass.value) == 0.25
    proper = replace(two_state(), proper_only=True)
    assert float(summary_of(proper, [[1, 3]]).improper_mass.value) == 0.0


def test_improper_mass_is_none_where_nothing_improper_is_left():
    """Staying forever has a quarter of the weight; but not on the manifold, nor where the loop was not seen."""
    assert float(summary_of(two_state(), [[1, 3]]).improper_mass.value) == 0.25
    assert float(summary_of(two_state(0.0), [[1, 3]]).improper_mass.value) == 0.0
    only_go = relaxed_target(Dataset.from_pairs(envs.two_state(), [("s1", "go")]), 0.5, 10.0)
    summary = summary_of(only_go, [[1, 3]])
    assert float(summary.improper_mass.value) == 0.0
    assert float(summary.improper_mass_model.value) == 0.25, "the true transitions loop, seen or not"
    acyclic = relaxed_target(Dataset.complete(envs.deep_sea(2)), 0.5, 10.0)
    assert float(summary_of(acyclic, [[1, 3]]).improper_mass_model.value) == 0.0


def test_where_laws_are_open_or_missing_the_true_transitions_are_not_known():
    """Staying forever has a quarter of the weight: not said where a law is open, or where one pair has none."""
    target = two_state()
    laws = open_laws(csr_array(np.array([[3.0, 1.0], [0.0, 2.0]])), np.arange(2))
    none, some = np.zeros(2, dtype=bool), np.array([False, True])
    for unknown in ({"laws": laws}, {"laws": laws, "no_law": none}, {"no_law": some}):
        assert summary_of(replace(target, **unknown), [[1, 3]]).improper_mass_model is None
    assert float(summary_of(replace(target, no_law=none), [[1, 3]]).improper_mass_model.value) == 0.25


def test_what_a_picture_needs():
    """Pairs with a belief about them that were never tried are counted, and not drawn as tried."""
    summary = summary_of(two_state(), [[1, 3]])
    probability, seen = summary.pies()
    assert probability.tolist() == [0.25, 0.75]
    assert (seen.tolist(), summary.believed) == ([True, True], 0)
    believed = replace(summary, untried=np.array([False, True]))
    assert (believed.pies()[1].tolist(), believed.believed) == ([True, False], 1)


def test_the_posterior_object_of_the_interface():
    told = summary_of(
        two_state(),
        [[1, 3], [3, 1]],
        log_evidence=Estimate.of(-2.0, 0.5),
        effective_sample_size=7.0,
        diagnostics={"r_hat": np.inf, "steps": 3, "share": 0.5},
    ).to_dict()
    assert (told["engine"], told["reason"], told["trustworthy"]) == ("test", "by hand", True)
    assert (told["epsilon"], told["prior_scale"], told["observed_pairs"], told["dimension"]) == (0.5, 10.0, 2, 3)
    assert (told["log_evidence"], told["log_evidence_se"], told["effective_sample_size"]) == (-2.0, 0.5, 7.0)
    assert told["actions"] == {"s1": {"stay": {"probability": 0.5, "se": 0.25}, "go": {"probability": 0.5, "se": 0.25}}}
    assert told["routes"] == [
        {"pairs": [["s1", "stay"]], "ends": "loop", "probability": 0.5, "se": 0.25},
        {"pairs": [["s1", "go"]], "ends": "goal", "probability": 0.5, "se": 0.25},
    ]
    assert told["q_mean"] == {"s1": {"stay": -1.0, "go": -1.0}}
    assert told["q_sd"] == {"s1": {"stay": 2.0, "go": 2.0}}
    assert told["improper_mass"] == told["improper_mass_model"] == {"probability": 0.5, "se": 0.25}
    assert told["diagnostics"] == {"r_hat": None, "steps": 3, "share": 0.5}, "what is no number is null in JSON"
    assert "noise" not in told


def test_what_is_not_known_is_null():
    told = summary_of(two_state(), [[1, 3]]).to_dict()
    assert told["log_evidence"] is told["log_evidence_se"] is told["effective_sample_size"] is None
    told = summary_of(two_state(), [[0, 0]], log_evidence=Estimate.of(-np.inf, np.nan)).to_dict()
    assert told["log_evidence"] is told["log_evidence_se"] is None


def test_rounding_leaves_probabilities_between_0_and_1():
    summary = summary_of(two_state(), [[1.0 + 1e-12, -1e-12]])
    told = summary.to_dict()["actions"]["s1"]
    assert (told["stay"]["probability"], told["go"]["probability"]) == (1.0, 0.0)


def test_noise_is_told_where_rewards_are_noisy():
    data = Dataset.complete(envs.two_state())
    known = noisy_target(data, 0.7, 10.0, Laplace())
    assert summary_of(known, [[1, 3]]).to_dict()["noise"] == {"law": "laplace", "mean": 0.7, "sd": 0.0}
    inferred = summary_of(known, [[1, 3]], noise_scale=(0.5, np.nan)).to_dict()
    assert inferred["noise"] == {"law": "laplace", "mean": 0.5, "sd": None}
    assert inferred["epsilon"] is None


def test_draws_of_the_engine_come_before_those_of_the_chart():
    own = xarray.Dataset({"q": (("chain", "draw", "pair"), np.arange(12.0).reshape(2, 3, 2))})
    summary = summary_of(two_state(), [[1, 3]], draws=lambda: own)
    assert summary.draws is own
    assert summary.weighted_draws.q.values.tolist() == np.arange(12.0).reshape(6, 2).tolist()
    assert summary.weighted_draws.weight.values.tolist() == [1 / 6] * 6


def test_where_all_is_observed_proper_only_leaves_nothing_improper():
    model = envs.two_state()
    summary = bm.posterior(model, Dataset.complete(model), epsilon=2.0, proper_only=True)
    assert (float(summary.improper_mass_model.value), float(summary.improper_mass_model.se)) == (0.0, 0.0)
    partly = bm.posterior(model, Dataset.from_pairs(model, [("s1", "go")]), epsilon=2.0, proper_only=True)
    assert partly.improper_mass_model.value > 0.0


def test_what_is_warned_of():
    """Doubts first; then improper policies that hold more than half, and a best route that is a loop; remarks last."""
    half = summary_of(two_state(), [[1, 1]])
    assert half.warnings == ["the most probable route is a loop: proper_only=True excludes known loops"]
    assert summary_of(two_state(), [[1, 3]]).warnings == []
    most = replace(summary_of(two_state(), [[3, 1]], doubts=("uneven",)), remarks=("epsilon has no effect",))
    first, held, loop, remark = most.warnings
    assert (first, loop, remark) == ("not trustworthy: uneven", half.warnings[0], "epsilon has no effect")
    assert held.startswith("policies that are known to miss the goal hold 75% of the posterior: ")
    assert summary_of(two_state(), [[1, 3]], Budget(top=0)).warnings == []


def test_the_largest_error_and_what_a_flat_prior_means():
    """Of an action or a route; without any route of actions alone."""
    summary = summary_of(two_state(), [[1, 3], [3, 1]])
    assert summary.largest_error == pytest.approx(0.25)
    assert summary_of(two_state(), [[1, 3], [3, 1]], Budget(top=0)).largest_error == pytest.approx(0.25)
    model = envs.deep_sea(2)
    policy = np.array([[0, 2, 4], [1, 2, 5], [1, 3, 4], [0, 3, 5]])
    of_routes = summary_of(relaxed_target(Dataset.complete(model), 0.5, 1.0), [[1, 3]])
    table = replace(
        of_routes.result.table, policy=policy, weight=np.array([[0.4, 0.4, 0.1, 0.1], [0.1, 0.1, 0.4, 0.4]])
    )
    crossed = replace(of_routes, result=replace(of_routes.result, table=table))
    assert crossed.action_probability.se.max() == pytest.approx(0.3)
    assert crossed.largest_error == pytest.approx(0.3)
    flat = replace(two_state(), prior=replace(two_state().prior, flat=True))
    said = "by hand; the prior is flat over rewards, and only proper policies count"
    assert summary_of(flat, [[1, 3]]).reason == said


def test_points_of_an_engine_are_its_draws():
    """Unless a noise scale is inferred, which they do not hold; then, and without any, the chart draws."""
    points = np.arange(10.0).reshape(2, 5)
    summary = summary_of(two_state(), [[1, 3]], points=points, effective_sample_size=4.0)
    assert summary.draws.q.values.reshape(-1, 2).tolist() == points.T.tolist()
    assert summary.weighted_draws.q.values.tolist() == points.T.tolist()
    inferred = noisy_target(Dataset.complete(envs.two_state()), HalfNormal(), 10.0)
    assert not summary_of(inferred, [[1, 3]], points=points)._has_points
    assert not summary_of(two_state(), [[1, 3]])._has_points


def test_improper_mass_under_true_transitions_needs_all_of_them_to_be_seen():
    """A posterior that holds proper policies only says so of what was observed."""
    model = envs.two_state()
    for proper_only, epsilon, whole in ((True, 0.5, 0.0), (False, 0.5, 0.25), (False, 0.0, 0.0)):
        target = relaxed_target(Dataset.complete(model), epsilon, 10.0, proper_only=proper_only)
        assert float(summary_of(target, [[1, 3]]).improper_mass_model.value) == whole
    partly = relaxed_target(Dataset.from_pairs(model, [("s1", "go")]), 0.5, 10.0, proper_only=True)
    assert float(summary_of(partly, [[1, 3]]).improper_mass_model.value) == 0.25
