"""PRISM and JANI files through Storm, and DRN files of Storm's (the optional extra "storm").

Storm's exact engine is the oracle. Models are in `tests/data/prism`.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from bellmanifold import envs
from bellmanifold.errors import BadInputError
from bellmanifold.io.models import load_model
from bellmanifold.io.problem import write_problem
from bellmanifold.mdp.solver import solve

stormpy = pytest.importorskip(
    "stormpy", reason="the optional extra is not installed: pip install 'bellmanifold[storm]'"
)

MODELS = Path(__file__).parent / "data" / "prism"
MACHINE = "machine.prism?ORDER=6&repaired=0.75&property=cost_min"
FERRY = "ferry.prism?FARE=4&storm=false"
SHUTTLE = "shuttle.jani?works=0.3"
ASKED = [
    MACHINE,
    "machine.prism?ORDER=6&repaired=3/4&property=hours_min",
    "machine.prism?ORDER=40&repaired=0.999&property=cost_min",
    'machine.prism?ORDER=3&repaired=0.5&property=R{"hours"}min=? [F left<2 %26 wear<2]',
    "dice.prism",
    "dice.prism?property=flips",
    "dice.prism?property=R=? [F d>3]",
    "race.prism?GOAL=4&property=turns_min",
    "race.prism?GOAL=4&property=turns_max",
    "ford.prism?drown=0.1",
    "race.prism?GOAL=5&property=nameless",
    FERRY + "&property=fare",
    "ferry.prism?FARE=1&storm=true&property=2&PLACE=1",
    FERRY + "&property=landings",
    FERRY + "&property=steps",
    FERRY + '&property=R{"fare"}min=? [F "landed" | place=1]',
    *(SHUTTLE + f"&property={name}" for name in ("moves", "places", "all", "double", "count")),
    SHUTTLE + '&property=R{"cost"}min=? [F trips=2]',
    SHUTTLE + '&property=R{"cost"}max=? [F trips=1]',
]


def exact_value(reference):
    """Storm's exact value of a property in the initial state."""
    path, _, query = str(reference).partition("?")
    given = dict(item.replace("%26", "&").split("=", 1) for item in query.split("&") if item)
    asked = given.pop("property", None)
    if path.endswith(".jani"):
        program, listed = stormpy.parse_jani_model(path)
    else:
        program = stormpy.parse_prism_program(path)
        listed = stormpy.parse_properties(Path(path).with_suffix(".props").read_text(), program)
    written = asked is not None and "=?" in asked
    listed = stormpy.parse_properties(asked, program) if written else listed
    found = [p for p in listed if written or asked in (None, p.get_name())]
    program, found = stormpy.instantiate_constants(program, ",".join(f"{k}={v}" for k, v in given.items()), found[:1])
    model = stormpy.build_model[stormpy.Rational](program, options=stormpy.BuilderOptions(found))
    result = stormpy.model_checking(model, found[0], environment=stormpy.environments.exact())
    return float(result.get_value(model.initial_states[0]))


@pytest.mark.parametrize("name", ASKED)
def test_values_are_those_of_storms_exact_engine(name):
    """Chains and decision processes; rewards of states and actions; constants, loops, minima and maxima."""
    model = load_model(str(MODELS / name))
    sign = -1.0 if (model.reward <= 0).all() else 1.0
    assert sign * solve(model).value_at_start == pytest.approx(exact_value(MODELS / name), rel=1e-15)


def test_names_come_from_variables_and_labels():
    model = load_model(str(MODELS / MACHINE))
    assert "left=6,wear=0" in model.states
    assert set(model.actions) == {"run", "repair", "replace"}
    assert set(model.goals) >= {"left=0,wear=0"}
    assert model.reward[model.pair_index["left=2,wear=2", "repair"]] == -3.0
    assert model.name == "machine"
    race = load_model(str(MODELS / "race.prism?GOAL=2&property=turns_min"))
    first = [race.pair_name(pair)[1] for pair in range(race.n_pairs) if race.pair_state[pair] == 0]
    assert first == ["step", "step/2"], "choices without a label have names of their own"
    assert {"pass", "pass/2", "wait"} <= set(race.actions)


def test_states_without_a_finite_value_are_left_out():
    """Whoever drowns never arrives: wading is no choice, and being drowned no state."""
    model = load_model(str(MODELS / "ford.prism?drown=0.1"))
    assert model.states == ("place=0", "place=1")
    assert set(model.actions) == {"walk", "swim"}
    safe = load_model(str(MODELS / "ford.prism?drown=0"))
    assert "wade" in safe.actions


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("machine.prism?ORDER=3&property=cost_min", r"constant repaired has no value: add \?repaired=VALUE"),
        ("machine.prism?property=cost_min", r"constant ORDER, repaired has no value: add \?ORDER=VALUE&repaired=VALUE"),
        (
            MACHINE + "&SIZE=3",
            'constant "SIZE" cannot be set: it takes property and the constants ORDER, repaired',
        ),
        (MACHINE + "&WORN=x", 'constant "WORN" is "x": give a number, true or false'),
        (MACHINE + "&ORDER=3", 'parameter "ORDER" is given twice'),
        (MACHINE + "&fast", '"fast" has no value: write it as fast=VALUE'),
        (
            "machine.prism?ORDER=3&repaired=1",
            "there are several properties: add .property=NAME, one of cost_min, hours",
        ),
        ("machine.prism?ORDER=3&repaired=1&property=speed", 'no property "speed": choose from cost_min, hours_min'),
        ("machine.prism?ORDER=3&repaired=1&property=chance", "is not an expected reward: only a reward until a target"),
        ("machine.prism?ORDER=3&repaired=1&property=mean", "is not until a target is reached: only a reward until"),
        ("machine.prism?ORDER=3&repaired=2&property=cost_min", "Storm cannot read it: "),
        (
            'machine.prism?ORDER=3&repaired=1&property=R{"x"}min=? [F "finished"]',
            "Storm cannot read it|no reward struct",
        ),
        (
            "machine.prism?ORDER=3&repaired=1&property=Rmin=? [F left=0]",
            'names no reward structure: name one of "cost"',
        ),
        (
            "machine.prism?ORDER=3&repaired=0&property=hours_max",
            "is infinite: a policy may stay in .*ask for the minimum",
        ),
        (
            "race.prism?GOAL=3&property=never",
            "is infinite: no state is in the target; ask for another one",
        ),
        ("race.prism?GOAL=3&property=early_min", "is infinite: no policy is sure to reach the target from the initial"),
        ("race.prism?GOAL=3&property=early_max", "is infinite: a policy may stay in"),
        ("race.prism?GOAL=3&property=now", "is in the target .*: nothing is collected, ask for another target"),
        ("race.prism?GOAL=3&property=bounded", "compares with a bound: ask for the value itself, with =?"),
        ("race.prism?GOAL=3&property=open", "does not say min or max, and some state has a choice"),
        ('two_starts.prism?property=R{"steps"}=? [F s=2]', "it has 2 initial states: give it one"),
        ('clock.prism?property=R{"steps"}=? [F s=2]', "its type is CTMC: only DTMC and MDP can be read"),
        ("clock.prism", 'there is no property: add .property=R{"steps"}min=.'),
        ("nowhere.prism", "no such file: check the path"),
        (
            "ferry.prism?FARE=2.5&storm=true&property=fare",
            'constant "FARE" is "2.5": give a whole number',
        ),
        ("ferry.prism?FARE=2&storm=1&property=fare", 'constant "storm" is "1": give true or false'),
        ("machine.prism?ORDER=3&repaired=true&property=cost_min", 'constant "repaired" is "true": give a number'),
        ("machine.prism?ORDER=3&repaired=1/0&property=cost_min", 'constant "repaired" is "1/0": give a number'),
        (FERRY + "&property=from", "is filtered by other states than the initial one: ask for the value there"),
        (FERRY + "&property=mixed", 'is infinite: a policy may stay in "place=0" and never reach the target'),
        (FERRY + "&property=7", 'there is no property "7": choose from fare, 2, landings'),
        (FERRY + '&property=R{"fare"}min=? [F "lande"]', 'no label "lande": choose from "landed", "init", "deadlock"'),
        (FERRY + '&property=R{"fair"}min=? [F "landed"]', 'no reward structure "fair": choose from "fare", "mixed"'),
        (FERRY + '&property=R{"fare"}<=3 [F "landed"]', "compares with a bound: ask for the value itself, with =?"),
        (FERRY + '&property=R{"fare"}min=? [F port=2]', "Storm cannot read property .*port=2.*: write it as R{"),
        (SHUTTLE + "&property=nothing", "collects nothing: let it accumulate steps"),
        (SHUTTLE + "&property=later", "is filtered by other states than the initial one"),
        (SHUTTLE + '&property=Rmin=? [F "home"]', 'there is no label "home": choose from '),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(cli, name, message):
    import re

    code, out, err = cli("check", str(MODELS / name))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.search(message, err)
    assert name.partition("?")[0] in err


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".prism", "mdp\nmodule m\n  s : [0..2] init 0;\n"),
        (".prism", "\x00\x01\x02"),
        (".prism", "mdp module m s : [0..1] init 5; [] true -> true; endmodule"),
        (".jani", "{}"),
        (".jani", "[" * 5000),
        (".jani", '{"jani-version": 1, "name": "m", "type": "mdp"}'),
    ],
)
def test_malformed_files_are_one_clear_line(cli, tmp_path, suffix, text):
    path = tmp_path / f"broken{suffix}"
    path.write_text(text)
    code, out, err = cli("check", f'{path}?property=R{{"r"}}min=? [F "done"]' if suffix == ".prism" else str(path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"broken{suffix}: Storm" in err


def test_a_model_without_end_is_refused(cli, tmp_path, monkeypatch):
    """Storm has as much memory as the largest problem that is read may take."""
    path = tmp_path / "endless.prism"
    path.write_text("dtmc module m x : int init 0; [] true -> 0.5 : (x'=x+1) + 0.5 : (x'=x+2); endmodule")
    monkeypatch.setenv("BELLMANIFOLD_MAX_SIZE", "1000")
    code, out, err = cli("check", f"{path}?property=T=? [F x<0]")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "endless.prism: Storm needs more than 0.5 GB to build it: make it smaller, or set BELLMANIFOLD_MAX" in err


def test_a_variable_out_of_its_bounds_is_refused(cli, tmp_path):
    path = tmp_path / "far.prism"
    path.write_text("dtmc module m x : [0..1] init 0; [] true -> 0.5 : (x'=x+2) + 0.5 : (x'=1); endmodule")
    code, out, err = cli("check", f"{path}?property=T=? [F x=1]")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "takes a variable out of its bounds: widen its range, or guard the command" in err


def test_a_game_is_refused(cli, tmp_path):
    path = tmp_path / "game.prism"
    path.write_text("smg module m s : [0..1] init 0; [] true -> true; endmodule")
    code, out, err = cli("check", f"{path}?property=Tmin=? [F s=1]")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "its type is none that Storm can build: only DTMC and MDP can be read" in err


def test_properties_that_storm_cannot_read_are_named_by_their_file(cli, tmp_path):
    path = tmp_path / "m.prism"
    path.write_text((MODELS / "dice.prism").read_text())
    path.with_suffix(".props").write_text('"a": R{"flips"}=? [F "done"]; "b": E [F "done"];')
    code, out, err = cli("check", f"{path}?property=a")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "m.prism: Storm cannot read its properties in m.props: " in err
    assert "fix them, or add ?property=R{" in err


def test_whoever_has_to_arrive_does_not_wait_for_nothing():
    """Free choices that stay are no choices of a minimum; those that cost, or gain, stay."""
    assert set(load_model(str(MODELS / (FERRY + "&property=landings"))).actions) == {"cross", "land"}
    assert "wait" in load_model(str(MODELS / (FERRY + "&property=steps"))).actions


def test_jani_files_have_their_own_properties(tmp_path):
    """A PRISM file turned into JANI by Storm, with a property written into it."""
    program = stormpy.parse_prism_program(str(MODELS / "race.prism"))
    wanted = stormpy.parse_properties('"quick": R{"turns"}min=? [F "over"]', program)
    jani, properties = program.to_jani(wanted)
    path = tmp_path / "race.jani"
    stormpy.io.export_jani_to_file(path, jani, properties)
    assert json.loads(path.read_text())["properties"]
    model = load_model(f"{path}?GOAL=4")
    value = exact_value(MODELS / "race.prism?GOAL=4&property=turns_min")
    assert -solve(model).value_at_start == pytest.approx(value, rel=1e-15)
    assert "a=2,b=0,t=1" in model.states, "labels and rewards are no part of a state"
    with pytest.raises(BadInputError, match='no property "slow": choose from quick'):
        load_model(f"{path}?GOAL=4&property=slow")


@pytest.mark.parametrize(
    "model", [envs.grid(4, 4, slip=0.2), envs.robot(), envs.deep_sea(4), envs.swirl(3)], ids=lambda model: model.name
)
def test_what_we_write_storm_reads(model, tmp_path):
    """The same states, choices and chances; where all is cost, the same value by Storm's default engine."""
    write_problem(model, tmp_path / "m.drn")
    theirs = stormpy.build_model_from_drn[float](str(tmp_path / "m.drn"))
    assert (theirs.nr_states, theirs.nr_choices) == (model.n_states + 1, model.n_pairs + 1)
    for pair in range(model.n_pairs):
        row = {entry.column: entry.value for entry in theirs.transition_matrix.get_row(pair)}
        own = slice(model.next_start[pair], model.next_start[pair + 1])
        assert row == dict(zip(model.next_state[own].tolist(), model.next_prob[own].tolist(), strict=True))
    name = "cost" if (model.reward <= 0).all() else "reward"
    sign = -1.0 if name == "cost" else 1.0
    paid = theirs.reward_models[name].state_action_rewards
    np.testing.assert_array_equal(sign * np.array(paid[:-1]), model.reward)
    assert list(theirs.labeling.get_states("goal")) == [model.n_states]
    if name == "cost":
        asked = stormpy.parse_properties('R{"cost"}min=? [F "goal"]')[0]
        found = stormpy.model_checking(theirs, asked).get_value(theirs.initial_states[0])
        assert -solve(model).value_at_start == pytest.approx(found, rel=1e-5)


def test_what_storm_writes_as_drn_we_read(tmp_path):
    """Without Storm, from its export: the same problem as through Storm, names of states apart."""
    program = stormpy.parse_prism_program(str(MODELS / "machine.prism"))
    asked = stormpy.parse_properties('R{"cost"}min=? [F "finished"]', program)
    program, asked = stormpy.instantiate_constants(program, "ORDER=6,repaired=0.75", asked)
    options = stormpy.BuilderOptions(asked)
    options.set_build_state_valuations()
    options.set_build_choice_labels()
    stormpy.io.export_to_drn(stormpy.build_model(program, options=options), str(tmp_path / "m.drn"))
    ours = load_model(f'{tmp_path / "m.drn"}?property=R{{"cost"}}min=? [F "finished"]')
    through = load_model(str(MODELS / MACHINE))
    assert ours.states == through.states
    assert ours.actions == through.actions
    np.testing.assert_array_equal(ours.reward, through.reward)
    np.testing.assert_array_equal(ours.next_state, through.next_state)
    np.testing.assert_array_equal(ours.next_prob, through.next_prob)
