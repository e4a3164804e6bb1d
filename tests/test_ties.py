"""Actions that are almost equally good: what counts as a tie, as almost one, and as a clear difference."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import bellmanifold as bm
from bellmanifold.chart.batch import ChartLimits, batch_chart
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.posteriors import ties
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.system import system_of
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.posteriors.ties import near_ties, points_of, without_near_ties
from bellmanifold.problem.dataset import Dataset


def two_actions(gap, reward=-1.0, unseen=0):
    """Both observed, worth `reward` and a little less; perhaps beside others that nobody has tried."""
    moves = {("s", "a"): Move(reward, {"goal": 1.0}), ("s", "b"): Move(reward - gap, {"goal": 1.0})}
    moves |= {("s", f"u{k}"): Move(0.0, {"goal": 1.0}) for k in range(unseen)}
    model = from_moves("two actions", moves, start="s")
    return Dataset.from_pairs(model, [("s", "a"), ("s", "b")])


def found(data, epsilon=0.0):
    target = relaxed_target(data, epsilon, 10.0)
    return near_ties(Coordinates(target), batch_chart(target.model), 0)


def gross(target, greedy, value):
    """What each pair and then the greedy policy would collect if nothing were negative, at some points."""
    system = system_of(Coordinates(target), batch_chart(target.model))
    reward = np.broadcast_to(target.reward[:, None], value.shape)
    return ties._gross(system, system.law, greedy, jnp.asarray(reward), jnp.asarray(value))


@pytest.mark.parametrize("reward", [-1.0, -1e6, -1e-6])
def test_near_is_between_rounding_and_ten_widths(reward):
    """Relative to the reward: below 1e-10 a tie, up to ten times 1e-8 too near to tell, above clearly different."""
    size = abs(reward)
    for gap, near in ((0.0, False), (0.5e-10, False), (2e-10, True), (1e-8, True), (0.9e-7, True), (1.1e-7, False)):
        assert found(two_actions(gap * size, reward)) == (["s"] if near else []), gap


def test_near_ties_are_seen_where_observed_actions_are_rarely_best():
    assert found(two_actions(1e-9, unseen=4)) == ["s"]
    assert found(two_actions(0.0, unseen=4)) == []


def chain_of(*rewards, stop=0.0):
    """Stop at once, or collect some rewards one after the other."""
    names = [f"s{k}" for k in range(len(rewards))]
    moves = {
        (name, "go"): Move(r, {after: 1.0}) for name, r, after in zip(names, rewards, [*names[1:], "goal"], strict=True)
    }
    moves["s0", "stop"] = Move(stop, {"goal": 1.0})
    return Dataset.complete(from_moves("chain", moves, start="s0"))


def test_what_rounding_leaves_of_a_sum_is_a_tie():
    """0.1 + 0.2 - 0.3 is 5.6e-17 as computed: a tie with 0, although relative to 0 any gap is large."""
    assert 0.1 + 0.2 - 0.3 != 0.0
    assert found(chain_of(0.1, 0.2, -0.3)) == []
    assert found(chain_of(0.0, 0.1, 0.2, -0.3)) == [], "the sum is collected after a move that pays nothing"
    assert found(chain_of(0.0, 0.1, 0.2, -0.3 + 1e-12)) == ["s0"], "more than rounding, less than the residuals"


@pytest.mark.parametrize(("gap", "near"), [(0.5e-10, False), (2e-10, True)])
def test_differences_are_measured_by_payments_too(gap, near):
    """The values, next to 0, are what is left of 1 - 1: a tie is below 1e-10 of that 1."""
    assert found(chain_of(1.0, -1.0 + gap, 0.0)) == (["s0"] if near else [])


def test_a_noisy_reward_behind_one_of_two_actions_tells_them_apart():
    """Its mean would make them tie almost; from point to point it differs by far more than that. At epsilon 0 it does
    not, and a difference of 1e-9 is too little to tell."""
    moves = {
        ("s", "a"): Move(-1.0, {"goal": 1.0}),
        ("s", "b"): Move(-0.5, {"t": 1.0}),
        ("t", "on"): Move(-0.5 - 1e-9, {"goal": 1.0}),
    }
    target = relaxed_target(Dataset.complete(from_moves("behind", moves, start="s")), 0.0, 10.0)
    chart = batch_chart(target.model)
    assert near_ties(Coordinates(target), chart, 0) == ["s"]
    noisy = replace(target, scale=np.array([0.0, 0.0, 0.3]))
    assert near_ties(Coordinates(noisy), chart, 0) == []


def test_gross_is_what_would_be_collected_if_nothing_were_negative():
    """Along the greedy policy: by pair, its payment and then the best action's of its successor."""
    target = relaxed_target(chain_of(0.5, -2.0, 3.0, stop=-7.0), 0.0, 10.0)
    model = target.model
    greedy = np.array([[model.pair_name(i)[1] == "go"] * 2 for i in range(4)])
    found = gross(target, greedy, np.full((4, 2), -np.inf))
    expected = {("s0", "go"): 5.5, ("s1", "go"): 5.0, ("s2", "go"): 3.0, ("s0", "stop"): 7.0}
    for point in range(2):
        assert {model.pair_name(i): found[i, point] for i in range(4)} == pytest.approx(expected)


def test_gross_goes_on_with_an_unobserved_value_only_where_that_is_best():
    """First with 4, then with -1.5, better than -2; at the last point the observed action is better than -3."""
    moves = {("s0", "go"): Move(0.5, {"s1": 1.0}), ("s1", "go"): Move(-2.0, {"goal": 1.0})}
    model = from_moves("chain", {**moves, ("s1", "unseen"): Move(0.0, {"goal": 1.0})}, start="s0")
    target = relaxed_target(Dataset.from_pairs(model, list(moves)), 0.0, 10.0)
    index = model.pair_index
    greedy, value = np.zeros((3, 3), dtype=bool), np.full((3, 3), -np.inf)
    greedy[index["s0", "go"]], greedy[index["s1", "go"]] = True, [False, False, True]
    value[index["s1", "unseen"]] = [4.0, -1.5, -3.0]
    np.testing.assert_allclose(gross(target, greedy, value)[index["s0", "go"]], [4.5, 2.0, 2.5])


def test_often_is_more_than_a_tenth_of_the_points_where_observed_actions_are_best():
    known = np.ones((1, 100), dtype=bool)
    known[0, 50:] = False
    model = two_actions(0.0).model
    near = np.zeros((2, 100), dtype=bool)
    near[1, :5] = True
    assert not ties._often(model, near, known)[0], "5 of 50 are a tenth"
    near[0, 5] = True
    assert ties._often(model, near, known)[0]


def test_sizes_are_those_of_an_action_or_of_the_best():
    model = two_actions(0.0, unseen=1).model
    size, gap = np.array([[1.0], [5.0], [2.0]]), np.array([[0.0], [0.3], [0.0]])
    np.testing.assert_array_equal(ties._or_of_best(model, size, gap).ravel(), [2.0, 5.0, 2.0])


def test_only_exact_posteriors_with_two_observed_actions_are_looked_at():
    near, budget = two_actions(1e-9, unseen=1), Budget()
    target, one = (relaxed_target(data, 0.0, 10.0) for data in (near, Dataset.from_pairs(near.model, [("s", "a")])))
    assert not ties._may_split(one)
    assert not ties._may_split(relaxed_target(Dataset.from_pairs(near.model, []), 0.0, 10.0))
    assert ties._may_split(target)
    summary = bm.posterior(near.model, near, samples=2**15)
    assert not summary.trustworthy
    assert "1 state differ" in summary.reason
    assert summary.diagnostics["near_ties"] == ["s"]
    clean = replace(summary.result, doubts=(), reason="test", diagnostics={})
    again = without_near_ties(target, clean, budget)
    assert not again.trustworthy
    assert (again.reason, len(again.doubts)) == ("test", 1)
    for other, result in (
        (relaxed_target(near, 0.1, 10.0), clean),
        (one, clean),
        (target, replace(clean, diagnostics={"ties_split": []})),
        (relaxed_target(two_actions(1e-3), 0.0, 10.0), clean),
    ):
        assert without_near_ties(other, result, budget) is result
    assert without_near_ties(target, clean, Budget(chart=ChartLimits(entries=2))) is clean, "too large for a batch"


def test_large_problems_are_looked_at_in_fewer_points():
    """So many that an array has no more numbers than 2^22, but never fewer than 64 nor more than 1,024."""
    assert [points_of(pairs) for pairs in (2, 2**12, 2**12 + 1, 2**15, 2**16, 2**30)] == [1024, 1024, 1023, 128, 64, 64]
