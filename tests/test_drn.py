"""DRN files, read and written without Storm."""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from problems import random_problem

from bellmanifold import envs
from bellmanifold.io.models import load_model
from bellmanifold.io.problem import read_problem, write_problem
from bellmanifold.mdp.checks import assumption_2
from bellmanifold.mdp.graph import reachable
from bellmanifold.mdp.solver import solve

WALK = """// by hand
@type: MDP
@value_type: double
@parameters

@reward_models
time cost
@nr_states
4
@nr_choices
5
@model
state 0 [1, 0.5] init
//[x=0\t& y=1]
\taction go [0, 2]
\t\t1 : 0.5
\t\t2 : 1/2
\taction wait [0, 0]
\t\t0 : 1
state 1 [1, 0] "half way" tired
\taction __NOLABEL__ [0, 4]
\t\t3 : 1
state 2 [1, 0]
\taction __NOLABEL__
\t\t2 : 1
state 3 [0, 0] done
\taction __NOLABEL__ [0, 0]
\t\t3 : 1
"""


def same(ours, other):
    """The same problem, except for its name and what it says about itself."""
    return replace(ours, name="", metadata={}) == replace(other, name="", metadata={})


@pytest.mark.parametrize(
    "model", [envs.grid(3, 4, slip=0.2), envs.deep_sea(4), envs.swirl(3), envs.robot(), envs.two_state()]
)
def test_what_is_written_is_read_again(model, tmp_path):
    write_problem(model, tmp_path / "m.drn")
    assert same(load_model(tmp_path / "m.drn"), replace(model, goals=model.goals[:1]))


def test_many_problems_come_back(rng, tmp_path):
    """Random laws and costs, to the last digit: the part that the start can reach."""
    checked = 0
    while checked < 15:
        model = random_problem(rng, states=6, reward_kind="costs")
        model = replace(model, initial=np.eye(model.n_states)[0])
        if assumption_2(model).holds:
            write_problem(model, tmp_path / "m.drn")
            part = model.subproblem(reachable(model, model.initial > 0)[model.pair_state])
            assert same(load_model(tmp_path / "m.drn"), part)
            checked += 1


def test_odd_names_come_back(tmp_path):
    from bellmanifold.envs.building import Move, from_moves

    moves = {
        ("a b\n", "go on"): Move(-1.0, {"ü\t[x]": 1.0}),
        ("a b\n", "go_on"): Move(-2.0, {"ü\t[x]": 1.0}),
        ("ü\t[x]", "__NOLABEL__"): Move(-1.0, {'"q"': 1.0}),
        ("ü\t[x]", "0"): Move(-1.5, {'"q"': 1.0}),
    }
    model = from_moves("odd", moves, start="a b\n", goal='"q"')
    write_problem(model, tmp_path / "m.drn")
    assert same(load_model(tmp_path / "m.drn"), model)


def test_several_starts_become_one_state_before_them(tmp_path):
    model = envs.grid(3, 3, slip=0.1)
    start = np.zeros(model.n_states)
    start[:2] = 0.25, 0.75
    model = replace(model, initial=start)
    write_problem(model, tmp_path / "m.drn")
    found = load_model(tmp_path / "m.drn")
    assert found.states == ("start", *model.states)
    assert solve(found).value_at_start == pytest.approx(solve(model).value_at_start, rel=1e-14)


def test_what_waits_for_nothing_comes_back(tmp_path):
    """Model checkers call a maximum infinite if one may stay away; a problem that was written is read as it was."""
    from bellmanifold.envs.building import Move, from_moves

    moves = {("a", "wait"): Move(0.0, {"a": 1.0}), ("a", "go"): Move(1.0, {"b": 0.5, "a": 0.5})}
    moves |= {("b", "go"): Move(-0.5, {"goal": 1.0})}
    model = from_moves("wait", moves, start="a")
    write_problem(model, tmp_path / "m.drn")
    assert same(load_model(tmp_path / "m.drn"), model)
    with pytest.raises(ValueError, match='infinite: a policy may stay in "a"'):
        load_model(f'{tmp_path / "m.drn"}?property=R{{"reward"}}max=? [F "goal"]')


@pytest.mark.parametrize(("names", "asked"), [(" cost ", "R"), ("time  ", "R"), (" cost ", 'R{"cost"}')])
def test_a_reward_model_without_a_name(tmp_path, names, asked):
    """Storm ends every name by a space, so that a line may begin or end with an empty one."""
    path = tmp_path / "m.drn"
    path.write_text(WALK.replace("time cost", names).replace("\t\t2 : 1/2", "\t\t3 : 1/2"))
    model = load_model(f'{path}?property={asked}min=? [F "done"]')
    unnamed = asked == "R" and names.startswith(" ")
    assert model.reward[model.pair_index["x=0,y=1", "go"]] == (-1.0 if unnamed else -2.5)


def test_a_file_by_hand(tmp_path):
    """Rewards of states and actions, fractions, labels in quotes, names from valuations; the dead end is left out."""
    path = tmp_path / "walk.drn"
    path.write_text(WALK)
    with pytest.raises(ValueError, match="infinite: no policy is sure to reach the target"):
        load_model(f'{path}?property=R{{"cost"}}min=? [F "done"]')
    path.write_text(WALK.replace("\t\t2 : 1/2", "\t\t3 : 1/2"))
    model = load_model(f'{path}?property=R{{"cost"}}min=? [F "done"]')
    assert model.states == ("x=0,y=1", "1")
    assert model.reward[model.pair_index["x=0,y=1", "go"]] == -2.5
    assert model.metadata == {"property": 'R{"cost"}min=? [F "done"]'}
    assert solve(model).value_at_start == -4.5
    path.write_text(WALK.replace("\t\t2 : 1/2", "\t\t1 : 1/2"))
    half = load_model(f'{path}?property=R{{"time"}}min=? [F "half way"]')
    assert half.goals == ("1",)
    assert half.states == ("x=0,y=1",)


@pytest.mark.parametrize(
    ("change", "query", "message"),
    [
        (
            ("", ""),
            "",
            r'which reward, until which label\? Add \?property=.* models "time", "cost" and the labels "init"',
        ),
        (("", ""), "?N=3", 'unknown parameter "N": a DRN file takes property'),
        (("", ""), '?property=P=? [F "done"]', "is not a reward until a label: write it as"),
        (("", ""), '?property=R{"x"}min=? [F "done"]', 'there is no reward model "x": the file has "time", "cost"'),
        (("", ""), '?property=Rmin=? [F "done"]', 'names no reward model, and the file has "time", "cost"'),
        (("", ""), '?property=R{"cost"}min=? [F "x"]', 'no state has the label "x": the file has "init", "half way"'),
        (("", ""), '?property=R{"cost"}=? [F "done"]', "does not say min or max, and some state has a choice"),
        (("", ""), '?property=R{"cost"}max=? [F "done"]', 'infinite: a policy may stay in "x=0,y=1"'),
        (("@type: MDP", "@type: CTMC"), "", 'line 2: the type is "CTMC": only MDP and DTMC can be read'),
        (("@type: MDP\n", ""), "", "there is no @type: write @type: MDP or @type: DTMC before @model"),
        (("@model\n", ""), "", "there is no @model: this is not a DRN file"),
        (("@nr_states\n4", "@nr_states\n5"), "", "@nr_states is 5, but there are 4: is the file complete"),
        (("@nr_choices\n5", "@nr_choices\nx"), "", 'line 11: "x" is not a number of states or choices'),
        (("@nr_choices\n5", "@nr_choices\n6"), "COST", "@nr_choices is 6, but there are 5: is the file complete"),
        (("@type: MDP", "@type: DTMC"), "COST", "state 0 of a DTMC has several actions: write @type: MDP"),
        (
            ("@parameters\n\n", "@parameters\np q\n"),
            "",
            'line 5: it has parameters .*"p q".*: give them values in Storm',
        ),
        (("0.5\n\t\t2", "half\n\t\t2"), "", 'line 16: "half" is not a number: only numbers and fractions can be read'),
        (("1/2", "1/0"), "", 'line 17: "1/0" is not a number'),
        (("\t\t3 : 1\nstate 2", "\t\t9 : 1\nstate 2"), "COST", "a successor is state 9, but there are 4: add it"),
        (("state 1", "state 7"), "", 'line 20: state "7" comes where 1 should: number the states from 0'),
        (("state 0 [1, 0.5]", "state 0 [1]"), "", "line 13: it has 1 rewards, but @reward_models names 2"),
        (("\t\t0 : 1\n", "\t\t0 1\n"), "", 'line 19: "0 1" is not a successor of an action'),
        (("\taction wait", "\tact wait"), "", 'line 18: "act wait .*" is neither a state, an action nor a successor'),
        (("] init", "]"), "COST", "it has 0 initial states: give it one"),
        (('"half way"', "init"), "COST", "it has 2 initial states: give it one"),
        (("1, 0.5] init", "1, 0.5] init done"), "COST", "is in the target .*: nothing is collected"),
        (("[0, 2]", "[0, inf]"), "COST", "reward is -inf: give a finite number"),
        (("0.5\n\t\t2", "0.3\n\t\t2"), "COST", "probabilities sum to 0.8: make them sum to 1"),
        (("//[x=0\t& y=1]", '// "x'), "", "line 14: .* is not a name in quotes: close the quotes"),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(cli, tmp_path, change, query, message):

    path = tmp_path / "walk.drn"
    assert change[0] in WALK
    path.write_text(WALK.replace(*change, 1))
    query = '?property=R{"cost"}min=? [F "done"]' if query == "COST" else query
    code, out, err = cli("check", f"{path}{query}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "walk.drn: " in err
    assert re.search(message, err), err


def test_bytes_that_are_no_text(cli, tmp_path):
    path = tmp_path / "m.drn"
    path.write_bytes(b"@type: MDP\n@model\nstate 0 \xff\n")
    code, out, err = cli("check", str(path))
    assert (code, out) == (2, "")
    assert "not UTF-8 text" in err


def test_the_command_writes_it(cli, tmp_path):
    code, _, err = cli("env", "export", "env:grid?rows=3&columns=3", "--out", str(tmp_path / "m.drn"))
    assert (code, err) == (0, f"wrote {tmp_path / 'm.drn'}\n")
    code, out, _ = cli("solve", str(tmp_path / "m.drn"), "--json")
    assert code == 0
    assert '"value_at_start": -4.0' in out


def test_open_problems_cannot_be_written(cli, tmp_path):
    write_problem(envs.grid(2, 2).opened(), tmp_path / "open.json")
    assert read_problem(tmp_path / "open.json").is_open
    code, out, err = cli("env", "export", str(tmp_path / "open.json"), "--out", str(tmp_path / "m.drn"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "DRN needs the whole problem" in err


def test_without_storm_a_line_says_what_to_install(cli, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "stormpy", None)
    (tmp_path / "m.prism").write_text("dtmc")
    code, out, err = cli("check", f"{tmp_path / 'm.prism'}?property=a")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "m.prism: a PRISM or JANI file needs stormpy: install bellmanifold[storm]" in err


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            r"Storm was ended by SIGKILL while .*it printed nothing",
        ),
        (
            "import os, sys; print('no way', file=sys.stderr); sys.stderr.flush(); os._exit(7)",
            'code 7 while .*"no way"',
        ),
    ],
)
def test_a_storm_that_dies_is_one_clear_line(cli, monkeypatch, tmp_path, fault, message):
    """A stand-in for Storm that ends its process; it is found before the real one, if there is one."""
    (tmp_path / "stormpy.py").write_text(fault)
    (tmp_path / "m.prism").write_text("dtmc")
    monkeypatch.delitem(sys.modules, "stormpy", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code, out, err = cli("check", f"{tmp_path / 'm.prism'}?property=a")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.search(message, err)
