"""The files `ssp/2` and `data/2`: round trips through JSON, npz and objects; what is wrong is named with its place."""

import copy
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hostile import damaged, examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_hostile_input import ARRAY, read

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold._util.options import on_command_line
from bellmanifold.errors import BadInputError
from bellmanifold.io.observations import from_json as data_from_json
from bellmanifold.io.observations import load_data, write_data
from bellmanifold.io.problem import from_json, read_problem, to_json_text, write_problem
from bellmanifold.problem.builder import assemble
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.ssp import Description, StatedPrior

NAN = float("nan")
WHOLE = {
    "format": "bellmanifold.ssp/2",
    "name": "roads",
    "goals": ["home"],
    "initial": {"a": 1.0},
    "prior": {"mean": -10.0, "sd": 5.0},
    "pairs": [
        {"state": "a", "action": "left", "reward": -1.0, "next": {"a": 0.25, "b": 0.75}},
        {"state": "a", "action": "right", "reward": -2.0, "prior": {"mean": -3.0}},
        {"state": "b", "action": "left", "next": {"home": 1.0}, "prior": {"sd": 2.0}},
        {"state": "b", "action": "right"},
    ],
}
DATA = {
    "format": "bellmanifold.data/2",
    "observations": [
        {"state": "a", "action": "left", "reward": -1.0, "sd": 0.5, "next": "b"},
        {"state": "a", "action": "left"},
        {"state": "a", "action": "right", "next": "b"},
        {"state": "b", "action": "right", "next": "home"},
        {"state": "b", "action": "left", "reward": -4.0, "sd": 0},
    ],
}
MODEL = from_json(WHOLE)


def test_what_an_open_problem_says():
    assert MODEL.open_law.tolist() == [False, True, False, True]
    assert MODEL.open_reward.tolist() == [False, False, True, True]
    assert MODEL.prior == StatedPrior(-10.0, 5.0, np.array([NAN, -3.0, NAN, NAN]), np.array([NAN, NAN, 2.0, NAN]))
    assert json.loads(to_json_text(MODEL)) == WHOLE


def test_what_data_say(tmp_path):
    (tmp_path / "d.json").write_text(json.dumps(DATA))
    data = load_data(tmp_path / "d.json", MODEL)
    assert data.pair.tolist() == [0, 0, 1, 3, 2]
    np.testing.assert_array_equal(data.reward, [-1.0, -1.0, -2.0, NAN, -4.0])
    np.testing.assert_array_equal(data.sd, [0.5, NAN, NAN, NAN, 0.0])
    assert data.next.tolist() == [1, -1, 1, 2, -1]


def test_closed_problems_are_written_as_before(tmp_path):
    """The oldest version that can say it: no new key or array appears."""
    assert json.loads(to_json_text(envs.two_state()))["format"] == "bellmanifold.ssp/1"
    write_problem(envs.two_state(), tmp_path / "p.npz")
    assert not {"format", "open_discount", "prior_mean"} & set(np.load(tmp_path / "p.npz").files)
    stated = replace(envs.two_state(), prior=StatedPrior(None, 3.0, np.full(2, NAN), np.full(2, NAN)))
    assert json.loads(to_json_text(stated))["format"] == "bellmanifold.ssp/2"
    plain = Dataset.from_pairs(MODEL, [("a", "left"), ("b", "right", 2.0)])
    write_data(plain, tmp_path / "d.json")
    assert json.loads((tmp_path / "d.json").read_text())["format"] == "bellmanifold.data/1"
    write_data(plain.with_belief(0.0, 1.0), tmp_path / "d.json")
    assert json.loads((tmp_path / "d.json").read_text())["format"] == "bellmanifold.data/2"
    write_data(plain, tmp_path / "d.npz")
    assert str(np.load(tmp_path / "d.npz")["format"]) == "bellmanifold.data/1"


def test_version_2_may_say_what_version_1_says():
    closed = json.loads(to_json_text(envs.two_state()))
    assert from_json({**closed, "format": "bellmanifold.ssp/2"}) == envs.two_state()


def test_discounts_of_open_problems_survive(tmp_path):
    """A file's discount counts for open laws too; once read, it is written as what is left to do."""
    model = from_json({**WHOLE, "discount": 0.9})
    assert model == MODEL.discounted(0.9)
    assert model.open_discount == 0.9
    for name in ("p.json", "p.npz"):
        write_problem(model, tmp_path / name)
        assert read_problem(tmp_path / name) == model
    twice = from_json({**json.loads(to_json_text(model)), "discount": 0.5})
    assert twice == model.discounted(0.5)


numbers = st.floats(-1e6, 1e6)
sds = st.floats(1e-3, 1e3)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)


@st.composite
def open_problems(draw):
    """Fields of descriptions with pairs that are open and priors that are stated in every way; and a discount."""
    states = draw(st.lists(texts, min_size=1, max_size=4, unique=True))
    goal, actions = "goal of " + "".join(states), draw(st.lists(texts, min_size=1, max_size=3, unique=True))
    pairs = [(s, a) for s in range(len(states)) for a in range(len(actions)) if a == 0 or draw(st.booleans())]
    rows = [draw(st.lists(st.integers(0, len(states)), max_size=3, unique=True)) for _ in pairs]
    shares = {0: [], 1: [1.0], 2: [0.25, 0.75], 3: [0.25, 0.25, 0.5]}

    def stated(values):
        return np.array([draw(st.just(NAN) | values) for _ in pairs])

    prior = StatedPrior(draw(st.none() | numbers), draw(st.none() | sds), stated(numbers), stated(sds))
    fields = {
        "state_names": [*states, goal],
        "action_names": actions,
        "goals": [len(states)],
        "initial_state": [0],
        "initial_prob": [1.0],
        "pair_state": [s for s, _ in pairs],
        "pair_action": [a for _, a in pairs],
        "reward": stated(numbers),
        "next_start": np.cumsum([0, *map(len, rows)]),
        "next_state": np.array([s for row in rows for s in row], dtype=np.int64),
        "next_prob": np.array([p for row in rows for p in shares[len(row)]]),
        "reward_sd": [draw(st.just(0.0) | sds) for _ in pairs],
        "name": draw(texts),
        "prior": prior,
        "may_be_open": True,
    }
    return fields, draw(st.sampled_from([1.0, 1.0, 0.9]))


@st.composite
def data_of(draw, model):
    """Observations that the problem allows, of every kind."""
    pair = np.array(draw(st.lists(st.integers(0, model.n_pairs - 1), max_size=6)), dtype=np.int64)
    reward, sd, landing = np.full(len(pair), NAN), np.full(len(pair), NAN), np.full(len(pair), -1)
    for t, i in enumerate(pair):
        possible = model.next_state[model.next_start[i] : model.next_start[i + 1]].tolist()
        landing[t] = draw(st.sampled_from([-1, *(possible or range(model.n_states + 1))]))
        if landing[t] < 0 or draw(st.booleans()):
            reward[t] = draw(numbers)
        if not (np.isnan(reward[t]) and model.open_reward[i]):
            sd[t] = draw(st.just(NAN) | sds)
    return Dataset(model, pair, reward, sd, landing)


def same_data(one, other):
    parts = ("pair", "reward", "sd", "next")
    return all(np.array_equal(getattr(one, part), getattr(other, part), equal_nan=True) for part in parts)


OFTEN = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@settings(OFTEN, max_examples=25)
@given(drawn=st.data())
def test_round_trips(tmp_path, drawn):
    round_trip(tmp_path, drawn)


@pytest.mark.slow
@OFTEN
@given(drawn=st.data())
def test_many_round_trips(tmp_path, drawn):
    round_trip(tmp_path, drawn)


def round_trip(tmp_path, drawn):
    """Object -> JSON -> object -> npz -> object -> JSON: always equal, and the texts are, too."""
    fields, discount = drawn.draw(open_problems())
    model = assemble(Description(**fields)).discounted(discount)
    first, arrays, last = (tmp_path / name for name in ("a.json", "b.npz", "c.json"))
    write_problem(model, first)
    write_problem(read_problem(first), arrays)
    again = read_problem(arrays)
    assert again == model
    write_problem(again, last)
    assert first.read_bytes() == last.read_bytes()
    data = drawn.draw(data_of(model))
    write_data(data, first)
    write_data(load_data(first, model), arrays)
    assert same_data(load_data(arrays, again), data)
    write_data(load_data(arrays, again), last)
    assert first.read_bytes() == last.read_bytes()


def with_pair(k, **changes):
    """The problem with another pair k; ... removes a key."""
    whole = copy.deepcopy(WHOLE)
    pair = whole["pairs"][k]
    pair.update(changes)
    whole["pairs"][k] = {key: value for key, value in pair.items() if value is not ...}
    return whole


BAD_PROBLEMS = {
    "next is null": (
        with_pair(0, next=None),
        r'pairs\[0\] \("a", "left"\): next is null: leave it out if it is unknown',
    ),
    "next is empty": (
        with_pair(0, next={}),
        r'pairs\[0\] \("a", "left"\): next is empty: leave it out if it is unknown',
    ),
    "next sums to 0": (with_pair(0, next={"home": 0}), r'pair \("a", "left"\): probabilities sum to 0'),
    "next is a list": (with_pair(0, next=["b"]), r'pairs\[0\] \("a", "left"\): next must be an object'),
    "next to an unknown state": (
        with_pair(0, next={"limbo": 1.0}),
        r'pair \("a", "left"\): next state "limbo" is not a goal and has no pair: give it a pair, possibly an open',
    ),
    "a start listed nowhere": (
        {**WHOLE, "initial": {"limbo": 1.0}},
        'initial: unknown state "limbo": name a state that has a pair, possibly an open one',
    ),
    "reward is null": (with_pair(0, reward=None), r"pairs\[0\].*: reward is null: leave it out if it is unknown"),
    "reward is a string": (with_pair(0, reward="?"), "reward is a string: give a number"),
    "prior is null": (with_pair(1, prior=None), r'pairs\[1\] \("a", "right"\): prior is null: give an object'),
    "prior is empty": (with_pair(1, prior={}), r"pairs\[1\].*: prior is empty: give mean, sd or both"),
    "prior of the problem is empty": ({**WHOLE, "prior": {}}, "prior is empty"),
    "prior.sd is 0": (with_pair(1, prior={"sd": 0}), r"pairs\[1\].*: prior\.sd is 0: give a positive number"),
    "prior.sd is negative": ({**WHOLE, "prior": {"sd": -2}}, r"prior\.sd is -2: give a positive number"),
    "prior.sd is null": ({**WHOLE, "prior": {"sd": None}}, r"prior\.sd is null: give a number"),
    "prior.mean is a string": (with_pair(1, prior={"mean": "much"}), r"pairs\[1\].*: prior\.mean is a string"),
    "prior has another key": (with_pair(1, prior={"scale": 1}), 'prior: unknown key "scale": it takes mean, sd'),
    "unknown key in a pair": (with_pair(1, law={}), r'pairs\[1\]: unknown key "law"'),
    "unknown key": ({**WHOLE, "laws": 1}, 'unknown key "laws"'),
    "open_discount 0": ({**WHOLE, "open_discount": 0}, "open_discount is 0"),
    "unknown version": (
        {**WHOLE, "format": "bellmanifold.ssp/3"},
        '"format" is "bellmanifold.ssp/3": this needs "bellmanifold.ssp/1" or "bellmanifold.ssp/2"',
    ),
    "prior in version 1": (
        {**WHOLE, "format": "bellmanifold.ssp/1"},
        'unknown key "prior": write "bellmanifold.ssp/2"',
    ),
    "prior of a pair in version 1": (
        {**{k: v for k, v in WHOLE.items() if k != "prior"}, "format": "bellmanifold.ssp/1"},
        r'pairs\[1\]: unknown key "prior": write "bellmanifold.ssp/2" under "format", which takes it',
    ),
    "open in version 1": (
        {**{k: v for k, v in WHOLE.items() if k != "prior"}, "format": "bellmanifold.ssp/1"},
        r'pairs\[1\]: "next" is missing: add it, or write "bellmanifold.ssp/2" under "format" to leave it open',
    ),
}
BAD_PROBLEMS["open in version 1"][0]["pairs"] = [
    {key: value for key, value in pair.items() if key != "prior"} for pair in WHOLE["pairs"]
]


@pytest.mark.parametrize("case", BAD_PROBLEMS)
def test_bad_problem_files(cli, tmp_path, case):
    value, message = BAD_PROBLEMS[case]
    path = tmp_path / "p.json"
    path.write_text(json.dumps(value))
    with on_command_line(), pytest.raises(BadInputError, match=message) as error:
        read_problem(path)
    assert cli("env", "show", str(path)) == (2, "", f"bellmanifold: {error.value}\n")
    assert str(error.value).startswith(f"{path}: ")


def npz(model=MODEL, **changes):
    """The npz file of an open problem with other arrays; None removes one."""
    file = io.BytesIO()
    plain = model.describe()
    fields = ("state_names", "action_names", "goals", "initial_state", "initial_prob", "pair_state", "pair_action")
    arrays = {name: np.asarray(getattr(plain, name)) for name in (*fields, "reward", "next_start", "next_state")}
    arrays |= {"next_prob": plain.next_prob, "format": np.array("bellmanifold.ssp/2")}
    arrays |= {"prior_mean": plain.prior.pair_mean, "prior_sd": plain.prior.pair_sd}
    arrays |= {"problem_prior_mean": np.array(-10.0), "problem_prior_sd": np.array(5)}
    np.savez(file, **{name: array for name, array in (arrays | changes).items() if array is not None})
    return file.getvalue()


def test_npz_by_hand(tmp_path):
    path = tmp_path / "p.npz"
    path.write_bytes(npz(name=np.array("roads")))
    assert read_problem(path) == MODEL
    path.write_bytes(npz(name=np.array("roads"), prior_mean=None, problem_prior_sd=None))
    assert read_problem(path).prior == replace(MODEL.prior, sd=None, pair_mean=np.full(4, NAN))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": None}, 'array "open_discount" needs|array "prior_mean" needs format "bellmanifold.ssp/2"'),
        ({"format": np.array("bellmanifold.ssp/7")}, '"format" is "bellmanifold.ssp/7"'),
        ({"format": np.array(2.0)}, "format: must be one string"),
        ({"prior_sd": np.array([1.0, 0.0, NAN, 1.0])}, r'pair \("a", "right"\): prior: sd is 0.0: give a positive'),
        ({"prior_mean": np.array([1.0, np.inf, NAN, 1.0])}, r'pair \("a", "right"\): prior: mean is inf'),
        ({"prior_mean": np.zeros(3)}, "one entry per pair"),
        ({"prior_mean": np.array(["x"] * 4)}, "prior_mean: must be a list of numbers"),
        ({"problem_prior_sd": np.array(0.0)}, "prior: sd is 0.0: give a positive number"),
        ({"problem_prior_mean": np.array([1.0, 2.0])}, "problem_prior_mean: must be one number"),
        ({"open_discount": np.array(2.0)}, "open_discount is 2.0"),
        ({"reward": np.array([1.0, 2.0, np.inf, NAN])}, r'pair \("b", "left"\): reward is inf'),
    ],
)
def test_bad_npz(tmp_path, changes, message):
    path = tmp_path / "p.npz"
    path.write_bytes(npz(**changes))
    with pytest.raises(BadInputError, match=message) as error:
        read_problem(path)
    assert str(error.value).startswith(f"{path}: ")


def test_version_1_npz_is_not_open(tmp_path):
    (tmp_path / "p.npz").write_bytes(
        npz(**dict.fromkeys(("format", "prior_mean", "prior_sd", "problem_prior_mean", "problem_prior_sd")))
    )
    with pytest.raises(BadInputError, match=r'pair \("b", "left"\): reward is nan'):
        read_problem(tmp_path / "p.npz")


def observed(*observations, version=2):
    return {"format": f"bellmanifold.data/{version}", "observations": list(observations)}


LEFT, RIGHT = {"state": "a", "action": "left"}, {"state": "a", "action": "right"}
OPEN = {"state": "b", "action": "right"}
BAD_DATA = {
    "next is null": (
        observed({**LEFT, "next": None}),
        r"observations\[0\]: next is null: give a state, or leave it out",
    ),
    "next is a number": (observed({**LEFT, "next": 3}), r"observations\[0\]\.next is a number: give a string"),
    "next to an unknown state": (
        observed(LEFT, {**RIGHT, "next": "limbo"}),
        r'observations\[1\]: next state "limbo" is not a goal and has no pair in the problem: correct it, or give',
    ),
    "next that cannot be": (
        observed({**LEFT, "next": "home"}),
        r'observations\[0\]: pair \("a", "left"\) led to "home", which its law in the problem makes impossible: corr',
    ),
    "sd is negative": (
        observed({**LEFT, "sd": -1}),
        r"observations\[0\]: sd is -1.0: give a finite number that is not",
    ),
    "sd is null": (observed({**LEFT, "sd": None}), r"observations\[0\]: sd is null: give a number, or leave it out"),
    "sd is a string": (observed({**LEFT, "sd": "1"}), r"observations\[0\]: sd is a string"),
    "sd is tiny": (observed({**LEFT, "sd": 1e-300}), r"observations\[0\]: sd is 1e-300: give 0 for an exact reward"),
    "reward is null": (
        observed({**LEFT, "reward": None}),
        r"observations\[0\]: reward is null: give a number, or leave",
    ),
    "nothing is said": (observed(OPEN), r'observations\[0\]: pair \("b", "right"\) has no reward and no next'),
    "nothing is said in version 1": (observed(OPEN, version=1), r'observations\[0\]: pair \("b", "right"\) has no rew'),
    "sd without a reward": (
        observed({**OPEN, "sd": 1.0, "next": "home"}),
        r'observations\[0\]: pair \("b", "right"\) has an sd but no reward, and the problem leaves that open: give',
    ),
    "exact rewards that differ": (
        observed({**OPEN, "reward": 1.0, "sd": 0}, {**OPEN, "reward": 5.0, "sd": 1}, {**OPEN, "reward": 2.0, "sd": 0}),
        r'observations\[2\]: pair \("b", "right"\) paid 2 but 1 before: exact rewards \(sd 0\) must agree: correct one',
    ),
    "unknown key": (
        observed({**LEFT, "time": 3}),
        r'observations\[0\]: unknown key "time": it takes state, action, rew',
    ),
    "sd in version 1": (
        observed({**LEFT, "sd": 1.0}, version=1),
        r'observations\[0\]: unknown key "sd": write "bellmanifold.data/2" under "format", which takes it',
    ),
    "next in version 1": (
        observed({**LEFT, "next": "home"}, version=1),
        r'observations\[0\]: unknown key "next": write "bellmanifold.data/2"',
    ),
    "next written wrong": (
        observed({**LEFT, "next": "hmoe"}),
        r'observations\[0\]: next state "hmoe" .*: did you mean "home"\? Otherwise give it a pair',
    ),
    "unknown version": (
        observed(version=3),
        '"format" is "bellmanifold.data/3": this needs "bellmanifold.data/1" or "bellmanifold.data/2"',
    ),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_files(cli, tmp_path, case):
    value, message = BAD_DATA[case]
    problem, path = tmp_path / "p.json", tmp_path / "d.json"
    write_problem(MODEL, problem)
    path.write_text(json.dumps(value))
    with pytest.raises(BadInputError, match=message) as error:
        load_data(path, MODEL)
    assert cli("posterior", str(problem), str(path)) == (2, "", f"bellmanifold: {error.value}\n")
    assert str(error.value).startswith(f"{path}: ")


def data_npz(**changes):
    file = io.BytesIO()
    arrays = {
        "format": np.array("bellmanifold.data/2"),
        "state_names": np.array(["a", "b", "home"]),
        "action_names": np.array(["left", "right"]),
        "state": np.array([0, 0, 0, 1, 1]),
        "action": np.array([0, 0, 1, 1, 0]),
        "reward": np.array([-1.0, NAN, NAN, NAN, -4.0]),
        "sd": np.array([0.5, NAN, NAN, NAN, 0.0]),
        "next": np.array([1, -1, 1, 2, -1]),
    }
    np.savez(file, **{name: array for name, array in (arrays | changes).items() if array is not None})
    return file.getvalue()


def test_data_npz_by_hand(tmp_path):
    (tmp_path / "d.npz").write_bytes(data_npz())
    (tmp_path / "d.json").write_text(json.dumps(DATA))
    assert same_data(load_data(tmp_path / "d.npz", MODEL), load_data(tmp_path / "d.json", MODEL))
    plain = {"format": np.array("bellmanifold.data/1"), "sd": None, "next": None, "reward": np.arange(5)}
    (tmp_path / "d.npz").write_bytes(data_npz(**plain))
    assert load_data(tmp_path / "d.npz", MODEL).reward.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": None}, '"format" is missing'),
        ({"format": np.array("bellmanifold.ssp/1")}, '"format" is "bellmanifold.ssp/1"'),
        ({"format": np.array("bellmanifold.data/1")}, 'unknown array "sd"'),
        ({"state": None}, 'array "state" is missing'),
        ({"state": np.zeros(5)}, "state: must be a list of whole numbers"),
        ({"state": np.array([0, 0, 0, 1, 9])}, r"observations\[4\]: state is 9: give a number from 0 to 2"),
        ({"next": np.array([1, -2, 1, 2, -1])}, r"observations\[1\]: next is -2: give a number from -1 to 2"),
        ({"next": np.array([1, -1])}, "next: has 2 entries, state has 5"),
        ({"sd": np.array([np.inf] * 5)}, r"observations\[0\]: sd is inf"),
        ({"reward": np.array(["x"] * 5)}, "reward: must be a list of numbers"),
        ({"state_names": np.array(["a", "b", "c"])}, r'observations\[3\]: next state "c" is not a goal'),
        ({"state": np.array([0, 0, 0, 2, 1])}, r'observations\[3\]: "home" is a goal'),
    ],
)
def test_bad_data_npz(tmp_path, changes, message):
    path = tmp_path / "d.npz"
    path.write_bytes(data_npz(**changes))
    with pytest.raises(BadInputError, match=message) as error:
        load_data(path, MODEL)
    assert str(error.value).startswith(f"{path}: ")


def test_npz_refuses_names_it_would_damage(tmp_path):
    model = envs.building.from_moves("n", {("s\0", "go"): envs.building.Move(-1.0, {"goal": 1.0})}, start="s\0")
    with pytest.raises(BadInputError, match="write JSON"):
        write_data(Dataset.complete(model), tmp_path / "d.npz")


@examples(60, 6_000, content=damaged(WHOLE))
def test_a_damaged_open_problem(content):
    """What is read can be written and read again."""
    model = read(read_problem, content)
    if model is not None:
        assert read(read_problem, to_json_text(model).encode()) == model


@examples(40, 5_000, content=damaged(DATA))
def test_damaged_open_data(content):
    read(load_data, content, MODEL)


OPEN_ARRAYS = ("format", "prior_mean", "prior_sd", "problem_prior_mean", "problem_prior_sd", "open_discount")
OPEN_ARRAYS += ("reward", "next_start", "next_state", "next_prob", "pair_state")
DATA_ARRAYS = ("format", "state_names", "action_names", "state", "action", "reward", "sd", "next")


@examples(30, 3_000, changes=st.dictionaries(st.sampled_from(OPEN_ARRAYS), ARRAY, max_size=2))
def test_a_damaged_open_npz(changes):
    read(read_problem, npz(**changes))


@examples(30, 3_000, changes=st.dictionaries(st.sampled_from(DATA_ARRAYS), ARRAY, max_size=2))
def test_a_damaged_data_npz(changes):
    read(load_data, data_npz(**changes), MODEL)


LACKING = (
    'needs the whole problem, but pair ("a", "right") lacks next, ("b", "left") lacks reward, '
    '("b", "right") lacks reward and next: give what they lack in the problem file, or use `posterior` or '
    "`advise`, which take open problems"
)


@pytest.mark.parametrize("suffix", ["json", "npz"])
@pytest.mark.parametrize(
    "command", [["solve"], ["check"], ["solve", "--discount", "0.9", "--json"], ["learn", "--agent", "q-learning"]]
)
def test_commands_that_need_a_whole_problem(cli, tmp_path, command, suffix):
    path = tmp_path / f"p.{suffix}"
    write_problem(MODEL, path)
    name, *options = command
    assert cli(name, str(path), *options) == (2, "", f"bellmanifold: {path}: {name} {LACKING}\n")


def test_a_plan_names_the_open_problem(cli, tmp_path):
    write_problem(MODEL, tmp_path / "p.json")
    plan = f'model = "{tmp_path}/p.json"\nagent = "q-learning"\nepisodes = 2\nseeds = 1\n'
    (tmp_path / "plan.toml").write_text(plan)
    code, out, err = cli("sweep", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "out"))
    assert (code, out) == (2, "")
    assert err.endswith(f"p.json: sweep {LACKING}\n")


def test_open_problems_are_shown_and_exported(cli, tmp_path):
    path, other = tmp_path / "p.json", tmp_path / "p.npz"
    path.write_text(json.dumps(WHOLE))
    code, out, _ = cli("env", "show", str(path))
    assert code == 0
    assert "2 states, 4 pairs (3 of them open), goal home" in out
    assert "prior of action values: mean -10, sd 5, stated for 2 of 4 pairs" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["a", "right", "-2", "open"] in rows
    assert ["b", "left", "open", "home", "(1)"] in rows
    assert ["b", "right", "open", "open"] in rows
    assert json.loads(cli("env", "show", str(path), "--json")[1]) == WHOLE
    assert cli("env", "export", str(path), "--out", str(other))[0] == 0
    assert cli("env", "export", str(other), "--out", str(path))[0] == 0
    assert json.loads(path.read_text()) == WHOLE


def test_public_names(tmp_path):
    bm.write_problem(MODEL, tmp_path / "p.json")
    model = bm.load_model(tmp_path / "p.json")
    bm.write_data(bm.Dataset.from_pairs(model, [bm.Observation("b", "right", next="home")]), tmp_path / "d.json")
    assert bm.load_data(tmp_path / "d.json", model).next.tolist() == [2]


def test_the_examples_of_the_documentation_are_read():
    page = (Path(__file__).parent.parent / "docs" / "interface.md").read_text()
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL) if "/2" in block]
    (problem,), (data,) = ([b for b in blocks if b["format"] == f"bellmanifold.{kind}/2"] for kind in ("ssp", "data"))
    assert data_from_json(data, from_json(problem)).own_count.tolist() == [1, 0, 1, 0]
