"""Dead ends are dropped with the moves that may lead there, against repeated searches of the graph by hand."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import bellmanifold as bm
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.errors import BadInputError
from bellmanifold.io.problem import read_problem, write_problem

TRAPS = {
    ("a", "walk"): Move(-1.0, {"b": 0.5, "a": 0.5}),
    ("a", "jump"): Move(0.0, {"goal": 0.9, "pit": 0.1}),
    ("b", "walk"): Move(-2.0, {"goal": 1.0}),
    ("b", "climb"): Move(-1.0, {"ledge": 1.0}),
    ("ledge", "fall"): Move(-1.0, {"goal": 0.5, "pit": 0.5}),
}
PIT = {("pit", "wait"): Move(-1.0, {"pit": 1.0}), ("pit", "shout"): Move(-2.0, {"pit": 1.0})}
SAFE = {pair: TRAPS[pair] for pair in (("a", "walk"), ("b", "walk"))}


def problem(pairs, start="s0", **more):
    """The content of a problem file; `pairs` says where each pair may lead, None if nobody knows."""
    rows = []
    for k, ((state, action), aims) in enumerate(pairs.items()):
        row = {"state": state, "action": action, "reward": -1.0 - k}
        rows.append(row if aims is None else row | {"next": aims})
    form = "bellmanifold.ssp/2" if None in pairs.values() else "bellmanifold.ssp/1"
    return {"format": form, "goals": ["goal"], "initial": {start: 1.0}, "pairs": rows} | more


def written(folder, content):
    path = folder / "problem.json"
    path.write_text(json.dumps(content))
    return str(path)


def drawn(rng):
    """A random problem of up to six states, in which moves may lead to two further names that have no pair."""
    states = [f"s{k}" for k in range(rng.integers(1, 7))]
    aims = [*states, "goal", "limbo", "void"]
    share = np.array([*(1.0 for _ in states), 2.0, 0.3, 0.3])
    pairs = {}
    for state in states:
        for action in range(rng.integers(1, 4)):
            some = rng.choice(aims, size=rng.integers(1, 4), p=share / share.sum()).tolist()
            law = dict.fromkeys(rng.choice(aims, size=rng.integers(0, 2)).tolist(), 0.0)
            law |= {aim: some.count(aim) / len(some) for aim in some}
            pairs[state, f"x{action}"] = None if rng.random() < 0.1 else law
    return pairs


def left(pairs):
    """States and pairs that remain, by repeated search."""
    moves = {pair: None if law is None else {aim for aim, p in law.items() if p > 0} for pair, law in pairs.items()}
    while True:
        states = {state for state, _ in moves}
        arrives = set()
        for state in states:
            seen, waiting = {state}, [state]
            while waiting:
                here = waiting.pop()
                for (origin, _), aims in moves.items():
                    if origin == here:
                        new = ({"goal"} if aims is None else aims) - seen
                        seen |= new
                        waiting += new
            arrives |= {state} if "goal" in seen else set()
        kept = {
            pair: aims
            for pair, aims in moves.items()
            if pair[0] in arrives and (aims is None or aims <= arrives | {"goal"})
        }
        if kept == moves:
            return states, set(moves)
        moves = kept


def test_what_is_left_is_what_repeated_search_leaves(cli, tmp_path):
    """Through files, in Python and on the command line; the start is the first state, which may be dropped as well."""
    rng, outcomes = np.random.default_rng(7), []
    for k in range(80):
        pairs = drawn(rng)
        path = written(tmp_path, problem(pairs))
        states, kept = left(pairs)
        outcomes.append(("s0" in states, len(kept) < len(pairs)))
        if "s0" not in states:
            with pytest.raises(BadInputError, match='the start "s0" is a dead end'):
                bm.load_model(path, prune=True)
            continue
        model = bm.load_model(path, prune=True)
        assert set(model.states) == states
        assert set(model.pair_index) == kept
        named = {state for state, _ in pairs} | {aim for law in pairs.values() for aim in law or ()}
        assert sorted(model.dropped.states) == sorted(named - states - {"goal"})
        assert set(model.dropped.pairs) == set(pairs) - kept
        plain = problem(
            {pair: law and {aim: p for aim, p in law.items() if p > 0} for pair, law in pairs.items() if pair in kept}
        )
        rewards = {(row["state"], row["action"]): row["reward"] for row in problem(pairs)["pairs"]}
        for row in plain["pairs"]:
            row["reward"] = rewards[row["state"], row["action"]]
        assert model == read_problem(written(tmp_path, plain))
        assert bm.pruned(model) is model
        if k % 20 == 0:
            path = written(tmp_path, problem(pairs))
            assert cli("env", "export", path, "--prune", "--out", str(tmp_path / "pruned.npz"))[0] == 0
            assert read_problem(tmp_path / "pruned.npz") == model
    assert min(outcomes.count(outcome) for outcome in ((True, True), (True, False), (False, True))) >= 8


def test_a_problem_in_python():
    whole = from_moves("traps", TRAPS | PIT, start="a")
    model = bm.pruned(whole)
    assert model == from_moves("traps", SAFE, start="a")
    assert model.dropped.states == ("ledge", "pit")
    assert set(model.dropped.pairs) == set(TRAPS | PIT) - set(SAFE)
    assert repr(model) == 'SSP("traps", 2 states, 2 pairs, without 2 dead ends and 5 moves)'
    assert 'left out: 2 dead ends ("ledge", "pit")' in model._repr_html_().replace("&quot;", '"')
    assert bm.pruned(model) is model
    assert model.discounted(0.9).dropped == model.dropped
    assert bm.solve(model).value_at_start == pytest.approx(-4.0)
    assert bm.pruned(whole.discounted(0.9)) == whole.discounted(0.9), "every move of it may end at the goal"
    assert from_moves("traps", TRAPS, start="a", prune=True) == model


def test_a_dead_end_that_has_no_move_is_refused_with_the_remedy(cli, tmp_path):
    path = written(tmp_path, problem({("s0", "go"): {"goal": 1.0}, ("s0", "jump"): {"goal": 0.5, "limbo": 0.5}}))
    says = '("s0", "jump"): next state "limbo" is not a goal and has no pair: give it a pair or list it under goals; '
    code, _, err = cli("solve", path)
    assert code == 2
    assert f"{says}if it is a dead end, not a goal, --prune drops it and the moves that may lead there" in err
    with pytest.raises(BadInputError) as refused:
        bm.load_model(path)
    assert f"{says}if it is a dead end, not a goal, prune=True drops it" in str(refused.value)
    code, out, err = cli("solve", path, "--prune")
    assert code == 0
    assert "optimal value from the start -1" in out
    moves = '1 move from or to dead ends (("s0", "jump"))'
    assert err == f'bellmanifold: {path}: dropped 1 dead end ("limbo") and {moves}\n'


def test_check_names_the_remedy(cli, tmp_path):
    whole = from_moves("traps", TRAPS | PIT, start="a")
    write_problem(whole, tmp_path / "traps.json")
    code, out, _ = cli("check", str(tmp_path / "traps.json"))
    assert code == 1
    assert "or drop them with all moves that may lead there (--prune)" in out
    assert "or drop them with all moves that may lead there (bm.pruned(model))" in bm.check(whole).messages[0]
    code, out, err = cli("check", str(tmp_path / "traps.json"), "--prune")
    assert code == 0
    assert "Assumptions 1 and 2 hold" in out
    assert "dropped 2 dead ends" in err
    assert cli("check", "env:swirl", "--prune")[2] == "", "nothing is dropped"


def test_a_start_without_a_way_ends_with_one_line(cli, tmp_path):
    path = written(tmp_path, problem({("s0", "go"): {"goal": 0.5, "limbo": 0.5}}))
    for command in (("solve", path), ("learn", path, "--agent", "bayes-td"), ("env", "show", path)):
        code, out, err = cli(*command, "--prune")
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        assert 'problem.json: the start "s0" is a dead end, too' in err
    two = problem({("s0", "go"): {"goal": 1.0}, ("s1", "on"): {"s1": 1.0}}) | {"initial": {"s0": 0.5, "s1": 0.5}}
    with pytest.raises(BadInputError, match='the start "s1" is a dead end'):
        bm.pruned(read_problem(written(tmp_path, two)))


def test_a_misspelt_start_is_still_refused(tmp_path):
    with pytest.raises(BadInputError, match='initial: unknown state "s9"'):
        bm.load_model(written(tmp_path, problem({("s0", "go"): {"goal": 1.0}}, start="s9")), prune=True)


def test_a_discount_of_the_file_keeps_traps_that_have_moves(tmp_path):
    """Such a trap has a value: that of its moves until the fictitious end. A state without any move has none."""
    pairs = {("s0", "on"): {"s1": 1.0}, ("s0", "off"): {"limbo": 1.0}, ("s1", "stay"): {"s1": 1.0}}
    model = bm.load_model(written(tmp_path, problem(pairs, discount=0.5)), prune=True)
    assert model.states == ("s0", "s1")
    assert model.dropped.states == ("limbo",)
    assert model.dropped.pairs == (("s0", "off"),)
    assert bm.solve(model).value_at_start == pytest.approx(-1.0 - 0.5 * 3.0 / 0.5)


def test_open_moves_are_kept_with_their_priors(tmp_path):
    """Nobody knows where `s1 x` leads: perhaps to the goal. The prior of a pair stays with its pair."""
    pairs = {("s0", "a"): {"limbo": 1.0}, ("s0", "b"): {"s1": 1.0}, ("s1", "x"): None, ("s2", "y"): {"s2": 1.0}}
    content = problem(pairs)
    content["pairs"][2]["prior"] = {"mean": -3.0}
    model = bm.load_model(written(tmp_path, content), prune=True)
    assert list(model.pair_index) == [("s0", "b"), ("s1", "x")]
    assert model.prior.pair_mean.tolist()[1] == -3.0
    assert np.isnan(model.prior.pair_mean[0])
    with pytest.raises(BadInputError, match='led to "s2", which was dropped as a dead end'):
        bm.Dataset.from_pairs(model, [bm.Observation("s1", "x", -1.0, next="s2")])


def data_of(folder, *pairs):
    path = folder / "data.json"
    seen = [{"state": state, "action": action} for state, action in pairs]
    path.write_text(json.dumps({"format": "bellmanifold.data/1", "observations": seen}))
    return str(path)


@pytest.mark.parametrize("command", ["posterior", "advise"])
def test_observations_of_dropped_moves_are_left_out_and_counted(cli, tmp_path, command):
    """The answer is that of the problem without dead ends and the data without the moves that lead there."""
    write_problem(from_moves("traps", TRAPS | PIT, start="a"), tmp_path / "traps.json")
    write_problem(from_moves("traps", SAFE, start="a"), tmp_path / "safe.json")
    short = data_of(tmp_path, ("b", "walk"))
    wanted = json.loads(cli(command, str(tmp_path / "safe.json"), short, "--json")[1])
    long = data_of(tmp_path, ("a", "jump"), ("pit", "wait"), ("b", "walk"), ("b", "climb"))
    code, out, err = cli(command, str(tmp_path / "traps.json"), long, "--prune", "--json")
    assert code == 0
    assert "dropped 2 dead ends" in err
    answer = json.loads(out)
    assert answer.pop("warnings")[-1] == "left out 3 observations of dropped moves"
    wanted.pop("warnings", None)
    assert answer == wanted
    assert cli(command, str(tmp_path / "traps.json"), long)[0] in (0, 3), "without --prune nothing is dropped"


def test_data_say_how_many_observations_are_left_out(tmp_path):
    model = bm.pruned(from_moves("traps", TRAPS | PIT, start="a"))
    data = bm.load_data(data_of(tmp_path, ("a", "jump"), ("b", "walk")), model)
    assert (len(data), data.left_out) == (1, 1)
    assert "warning: left out 1 observation of dropped moves" in repr(data)
    assert data.with_belief(-1.0, 1.0).left_out == 1
    whole = bm.Dataset.complete(from_moves("traps", TRAPS | PIT, start="a"))
    again = bm.Dataset.from_pairs(model, whole.to_frame())
    assert (len(again), again.left_out) == (2, 5)
    assert "left out" not in repr(bm.Dataset.complete(model))
    with pytest.raises(BadInputError, match=r"observations\[1\]: state \"a\" has no action \"fly\""):
        bm.Dataset.from_pairs(model, [("a", "jump"), ("a", "fly")])


def test_an_agent_is_never_offered_a_dropped_move(cli, tmp_path):
    model = bm.pruned(from_moves("traps", TRAPS | PIT, start="a"))
    learning = bm.learn(model, agent="psrl", episodes=5, runs=2, progress=False)
    seen = {model.pair_name(pair) for run in learning.runs for episode in run.played for pair in episode.pairs}
    assert seen == set(SAFE)
    write_problem(from_moves("traps", TRAPS | PIT, start="a"), tmp_path / "traps.json")
    command = ("learn", str(tmp_path / "traps.json"), "--agent", "psrl", "--episodes", "5", "--runs", "2", "--prune")
    code, out, err = cli(*command, "--json")
    assert code == 0
    assert json.loads(out)["goal_reached_mean"] == [1.0] * 5
    assert json.loads(out)["optimal_value"] == pytest.approx(-4.0)
    assert "dropped 2 dead ends" in err
    code, out, err = cli(*command, "--out", str(tmp_path / "runs"))
    assert code == 2
    assert "env export MODEL --prune" in err
    assert not (tmp_path / "runs").exists()
    code, out, _ = cli(*command, "--discount", "0.9", "--json")
    assert json.loads(out)["optimal_value"] == pytest.approx(bm.solve(model, discount=0.9).value_at_start)


class Corridor(gymnasium.Env):
    """Squares in a table: from square 0 on to 1, which ends, or off to a square that has no row."""

    observation_space, action_space = gymnasium.spaces.Discrete(8), gymnasium.spaces.Discrete(2)
    initial_state_distrib = np.eye(8)[0]

    def __init__(self, away):
        self.P = {0: {0: [(1.0, 1, -1.0, False)], 1: [(1.0, away, 0.0, False)]}, 1: {0: [(1.0, 1, -1.0, True)]}}


@pytest.mark.parametrize("away", [2, 7])
def test_tables_of_gymnasium_are_pruned(away):
    """A square without a row is no goal, also if it is the next after those that have one."""
    with pytest.raises(BadInputError, match=rf'"{away}" is not a goal and has no pair.*prune=True drops it'):
        bm.from_gymnasium(Corridor(away))
    model = bm.from_gymnasium(Corridor(away), prune=True)
    assert list(model.pair_index) == [("0", "0"), ("1", "0")]
    assert model.dropped.states == (str(away),)


def test_environments_without_a_table_have_no_known_dead_ends(cli):
    code, _, err = cli("learn", "gym:Blackjack-v1", "--agent", "bayes-td", "--prune")
    assert code == 2
    assert "gym:Blackjack-v1: without a transition table P dead ends are not known: leave --prune out" in err


def test_positions_of_dropped_states_go_too(tmp_path):
    pairs = {("s0", "go"): {"goal": 1.0}, ("s0", "jump"): {"pit": 1.0}, ("pit", "wait"): {"pit": 1.0}}
    places = {"s0": [0, 0], "pit": [1, 1], "goal": [2, 0]}
    model = bm.load_model(written(tmp_path, problem(pairs, metadata={"positions": places, "by": "me"})), prune=True)
    assert model.metadata == {"positions": {"s0": [0, 0], "goal": [2, 0]}, "by": "me"}


def test_a_loop_is_no_name_of_an_action(tmp_path):
    """The loop that a dead end is given for a while does not clash with an action of its name."""
    pairs = {("s0", "stay"): {"goal": 1.0}, ("s0", "stay'"): {"limbo": 1.0}}
    model = bm.load_model(written(tmp_path, problem(pairs)), prune=True)
    assert list(model.pair_index) == [("s0", "stay")]
    assert Path(tmp_path / "problem.json").exists()
