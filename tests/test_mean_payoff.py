from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from problems import all_policies, mean_reward_in, random_problem, recurrent
from scipy.optimize import linprog

from bellmanifold import envs
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.mdp.graph import end_components, recurrent_classes
from bellmanifold.mdp.mean_payoff import as_given, best_mean_reward, rational_rows


def brute_gain(model, component):
    """Best mean reward over all policies that stay in the component, from stationary laws."""
    best = -np.inf
    inside = np.isin(np.arange(model.n_states), component.states)
    for policy in all_policies(model):
        closed = recurrent(model, policy) & inside
        if not closed.any() or not np.isin(policy[closed], component.pairs).all():
            continue
        for members in (own for own in recurrent_classes(model, policy) if closed[own[0]]):
            best = max(best, mean_reward_in(model, policy, members))
    return best


@pytest.mark.parametrize(
    "kind", ["integers", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("any", "costs"))]
)
def test_against_every_policy(rng, kind):
    compared = 0
    for _ in range(120):
        model = random_problem(rng, states=int(rng.integers(1, 6)), reward_kind=kind)
        for component in end_components(model):
            mean, brute = best_mean_reward(model, component), brute_gain(model, component)
            assert mean.value == pytest.approx(brute, abs=1e-10)
            if abs(brute) > 1e-9:
                assert mean.sign == np.sign(brute)
            assert mean.decided
            compared += 1
    assert compared > 30


def loop(*rewards):
    """A cycle with these rewards, and a way out of its first state."""
    n = len(rewards)
    moves = {(str(k), "on"): Move(rewards[k], {str((k + 1) % n): 1.0}) for k in range(n)}
    return from_moves("loop", {**moves, ("0", "out"): Move(-1.0, {"goal": 1.0})}, start="0")


@pytest.mark.parametrize(
    ("rewards", "sign"),
    [
        ((-0.1, -0.2, 0.3), 0),  # in floating point the sum is 5.6e-17
        ((0.1, 0.2, -0.3), 0),
        ((1.0, -1.000000000001), -1),
        ((1.0, -0.999999999999), 1),
        ((1e6, -1e6 - 1e-9), -1),
        ((1e12, -1e12, -1e-12), -1),
        ((-1e-12,), -1),
        ((0.0,), 0),
        ((1e-300, -2e-300), -1),
        ((1e-300,), 1),
    ],
)
def test_sign_is_exact(rewards, sign):
    model = loop(*rewards)
    (component,) = end_components(model)
    assert best_mean_reward(model, component).sign == sign


@pytest.mark.parametrize(("last", "sign"), [(-1e-12, -1), (0.0, 0), (1e-12, 1)])
def test_sign_is_exact_in_large_components(last, sign):
    """A cycle of 200 states, too many for exact policy iteration: decided by exact bounds at the floating-point answer.

    Rewards are binary fractions, so the sum of all but the last is exactly 0.
    """
    rewards = [0.5, -0.5] * 100
    rewards[-1] += last
    model = loop(*rewards)
    (component,) = end_components(model)
    mean = best_mean_reward(model, component)
    long_way = len(mean.loop) > 64 and sign >= 0
    assert mean.sign == (0 if long_way else sign)
    assert mean.decided == (not long_way)


def test_loop_is_in_order_of_visits():
    model = loop(-1.0, 2.0, -1.0, 1.0)
    (component,) = end_components(model)
    mean = best_mean_reward(model, component)
    assert [model.states[s] for s in mean.loop] == ["0", "1", "2", "3"]
    assert [model.pair_name(i) for i in mean.policy] == [(str(k), "on") for k in range(4)]


def test_numbers_are_taken_as_given():
    assert as_given(0.1) == Fraction(1, 10)
    assert as_given(-3e-12) == Fraction(-3, 10**12)
    slippery = rational_rows(envs.grid(3, 3, slip=0.3))
    model = envs.grid(3, 3, slip=0.3)
    assert set(np.add.reduceat(slippery, model.next_start[:-1])) == {Fraction(1)}


def test_many_closed_classes_at_once():
    """Howard's iteration starts from a policy with many self-loops and must leave the worse ones."""
    moves = {}
    for k in range(30):
        moves[(str(k), "stay")] = Move(-1.0 - k, {str(k): 1.0})
        moves[(str(k), "on")] = Move(-5.0, {str((k + 1) % 30): 1.0})
    moves[("0", "out")] = Move(-1.0, {"goal": 1.0})
    model = from_moves("ring", moves, start="0")
    (component,) = end_components(model)
    mean = best_mean_reward(model, component)
    assert mean.value == -1.0
    assert [model.states[s] for s in mean.loop] == ["0"]


@pytest.mark.parametrize(("pays", "sign"), [(0.0, 0), (1e-12, 1)])
def test_a_short_loop_decides_a_large_component(pays, sign):
    """A costly ring of 200 states beside a loop of two whose mean is 0 or barely above: the two states are exact."""
    moves = {(str(k), "on"): Move(-1.0, {str((k + 1) % 200): 1.0}) for k in range(200)}
    moves[("0", "out")] = Move(-1.0, {"goal": 1.0})
    moves[("0", "aside")] = Move(-0.5, {"x": 1.0})
    moves[("x", "back")] = Move(0.5 + pays, {"0": 1.0})
    model = from_moves("ring", moves, start="0")
    (component,) = end_components(model)
    mean = best_mean_reward(model, component)
    assert (mean.sign, mean.decided) == (sign, True)
    assert {model.states[s] for s in mean.loop} == {"0", "x"}


def by_linear_programming(model, component):
    """The least g for which some h has g + h >= r + P h at every pair of the component, to about 1e-10."""
    row = {int(s): k for k, s in enumerate(component.states)}
    inequality = np.zeros((len(component.pairs), len(row) + 1))
    inequality[:, -1] = -1.0
    for k, pair in enumerate(component.pairs):
        inequality[k, row[int(model.pair_state[pair])]] -= 1.0
        for e in range(model.next_start[pair], model.next_start[pair + 1]):
            inequality[k, row[int(model.next_state[e])]] += model.next_prob[e]
    least, right = np.append(np.zeros(len(row)), 1.0), -model.reward[component.pairs]
    precise = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    return linprog(least, inequality, right, bounds=(None, None), method="highs", options=precise).fun


@pytest.mark.parametrize(("slip", "low"), [(0.2, -1.0), (0.2, -0.1), (0.6, -0.1), (0.0, -1.0)])
def test_a_large_component_whose_policies_hardly_leave_many_regions(slip, low):
    """A grid with random rewards: greedy policies stay in cheap regions for 1e9 moves and more."""
    model = envs.grid(15, 15, slip=slip)
    model = replace(model, reward=np.random.default_rng(0).uniform(low, low + 1.0, model.n_pairs))
    (component,) = end_components(model)
    mean = best_mean_reward(model, component)
    exact = by_linear_programming(model, component)
    assert mean.value == pytest.approx(exact, abs=1e-9)
    assert (mean.sign, mean.decided) == (np.sign(exact), True)
    assert (np.diff(np.sort(mean.loop)) > 0).all()
    assert (model.pair_state[mean.policy] == mean.loop).all()


@pytest.mark.parametrize("states", [60, 230])
def test_a_loop_that_is_hardly_ever_reached(states):
    """A loop that pays, up a river that lets one go up with probability 1e-9: values are beyond all floats."""
    moves = {(str(k), "up"): Move(-1.0, {str(k + 1): 1e-9, "0": 1.0 - 1e-9}) for k in range(states - 1)}
    last = str(states - 1)
    moves |= {(last, "stay"): Move(3.0, {last: 1.0}), (last, "back"): Move(-1.0, {"0": 1.0})}
    model = from_moves("river", {**moves, ("0", "leave"): Move(-1.0, {"goal": 1.0})}, start="0")
    (component,) = end_components(model)
    found = best_mean_reward(model, component)
    assert (found.value, found.sign, found.decided) == (3.0, 1, True)
    assert [model.states[s] for s in found.loop] == [last]
