from dataclasses import replace

import numpy as np
import pytest
from problems import all_policies, chain, closure, mean_reward_in, random_problem

from bellmanifold import envs
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.io.models import load_model
from bellmanifold.mdp.checks import assumption_2, check
from bellmanifold.mdp.graph import recurrent_classes


def literal_assumption_2(model):
    """The paper's words: a proper policy exists, and every improper one has value -infinity somewhere.

    A policy's value is -infinity at a state if and only if that state reaches a closed class of negative mean reward.
    """
    proper_exists = False
    for policy in all_policies(model):
        if closure(chain(model, policy))[:-1, -1].all():
            proper_exists = True
            continue
        if min(mean_reward_in(model, policy, members) for members in recurrent_classes(model, policy)) > -1e-9:
            return False
    return proper_exists


@pytest.mark.parametrize("problems", [100, pytest.param(300, marks=pytest.mark.slow)])
def test_against_the_literal_definition(rng, problems):
    verdicts = []
    for k in range(problems):
        model = random_problem(rng, states=int(rng.integers(1, 5)), reward_kind=("any", "integers", "costs")[k % 3])
        verdict = assumption_2(model)
        assert verdict.holds == literal_assumption_2(model), model.describe()
        assert verdict.holds == (not verdict.reasons)
        verdicts.append(verdict.holds)
    assert 0.1 * problems < sum(verdicts) < 0.9 * problems


@pytest.mark.parametrize("depth", [1, 2, 3, 5, 8])
def test_deep_sea_and_pyramid_have_no_improper_policy(depth):
    for model in (envs.deep_sea(depth), envs.pyramid(depth), envs.deep_sea(depth, slip=0.1)):
        answer = check(model).to_dict()
        assert answer["assumption_2"]
        assert not answer["improper_policies_exist"]
        assert answer["acyclic"]
        assert answer["unidentifiable"] == answer["end_components"] == []


def test_swirl_has_improper_policies_and_satisfies_assumption_2():
    answer = check(envs.swirl(5)).to_dict()
    assert answer["assumption_1"]
    assert answer["assumption_2"]
    assert answer["assumption_2_reachable"]
    assert answer["improper_policies_exist"]
    assert answer["deterministic"]
    assert not answer["acyclic"]
    assert answer["end_components"][0] == {"states": ["1,0", "1,1"], "max_mean_reward": pytest.approx(-0.09)}
    u = answer["unidentifiable"][0]["u"]
    assert u["0,0"] == {"left": 1.0, "right": 1.0}
    assert u["1,0"] == {"left": 0.0, "right": 1.0}
    assert u["4,4"] == {"left": 0.0, "right": 0.0}


def test_gymnasiums_tables():
    assert check(load_model("gym:CliffWalking-v1")).holds
    assert check(load_model("gym:Taxi-v4")).holds
    lake = load_model("gym:FrozenLake-v1")
    checks = check(lake)
    assert not checks.holds
    assert "costs nothing" in checks.messages[0]
    assert check(lake, discount=0.95).holds


def test_the_two_state_direction():
    """Example 1: u = (1, 0) for the action that stays."""
    assert check(envs.two_state()).to_dict()["unidentifiable"] == [
        {"states": ["s1"], "u": {"s1": {"stay": 1.0, "go": 0.0}}}
    ]


def test_messages_a_person_understands():
    free = {
        ("a", "on"): Move(0.0, {"b": 1.0}),
        ("b", "back"): Move(0.0, {"a": 1.0}),
        ("b", "go"): Move(-1.0, {"goal": 1.0}),
    }
    assert check(from_moves("free", free, start="a")).messages[0] == (
        "the loop a -> b -> a costs nothing, so waiting forever is as good as arriving (Assumption 2): "
        "give its moves a negative reward"
    )
    paid = {**free, ("a", "on"): Move(1.0, {"b": 1.0})}
    assert "pays 0.5 per move, so never arriving is better" in check(from_moves("paid", paid, start="a")).messages[0]
    trap = {**free, ("a", "on"): Move(-1.0, {"trap": 1.0}), ("trap", "stay"): Move(-1.0, {"trap": 1.0})}
    message = check(from_moves("trap", trap, start="a")).messages[0]
    assert message.startswith("no policy is sure to reach the goal from states a, trap (Assumption 2)")


def test_the_part_the_start_can_reach():
    moves = {
        ("a", "go"): Move(-1.0, {"goal": 1.0}),
        ("island", "wait"): Move(0.0, {"island": 1.0}),
        ("island", "go"): Move(-1.0, {"goal": 1.0}),
    }
    checks = check(from_moves("island", moves, start="a"))
    answer = checks.to_dict()
    assert not answer["assumption_2"]
    assert answer["assumption_2_reachable"]
    assert "the part that the start can reach (1 of 2 states) satisfies both" in checks.messages


def test_directions_of_large_problems_only_on_request():
    model = envs.grid(16, 16)
    assert check(model).to_dict()["unidentifiable"][0]["u"] is None
    u = check(model, full=True).to_dict()["unidentifiable"][0]["u"]
    assert u["0,0"]["up"] == 1.0


def test_hostile_names_stay_on_one_line():
    moves = {("a\nb", "on"): Move(0.0, {"a\nb": 1.0}), ("a\nb", "go"): Move(-1.0, {"goal": 1.0})}
    for message in check(from_moves("x", moves, start="a\nb")).messages:
        assert "\n" not in message


def test_long_loops_are_shortened():
    moves = {(f"state number {k}", "on"): Move(0.0, {f"state number {(k + 1) % 50}": 1.0}) for k in range(50)}
    moves[("state number 0", "go")] = Move(-1.0, {"goal": 1.0})
    message = check(from_moves("ring", moves, start="state number 0")).messages[0]
    assert "(50 moves)" in message
    assert len(message) < 400


def test_a_loop_that_rounding_cannot_judge_is_said_to_be_so():
    """200 rewards that sum to 0: too long a loop for exact arithmetic, too near 0 for rounding."""
    moves = {(str(k), "on"): Move((-1.0) ** k / 2, {str((k + 1) % 200): 1.0}) for k in range(200)}
    moves[("0", "out")] = Move(-1.0, {"goal": 1.0})
    report = check(from_moves("ring", moves, start="0"))
    assert not report.holds
    assert "too near 0 to tell its sign, so it may not lose anything" in report.messages[0]


def test_loops_that_plainly_cost_need_not_be_looked_for(rng):
    """Where no move pays, only those that are free can make a loop free: the verdict is that of the literal words."""
    verdicts = []
    for _ in range(150):
        model = random_problem(rng, states=int(rng.integers(1, 5)), actions=2, reward_kind="integers", goal_share=0.4)
        model = replace(model, reward=np.minimum(model.reward, 0.0))
        verdicts.append(literal_assumption_2(model))
        assert assumption_2(model).holds == verdicts[-1] == assumption_2(model, all_means=True).holds
    assert 30 < sum(verdicts) < 120
