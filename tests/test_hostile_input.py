"""Readers, commands and plans against input made to do harm: a result or one clear line, never anything else.

The slow suite tries 100,000 inputs, the fast one a few hundred, always the same.
"""

import json

import numpy as np
import pytest
from hostile import (
    STRANGE_NUMBERS,
    STRANGE_TEXTS,
    VALID_TEXTS,
    call,
    damaged,
    elsewhere,
    examples,
    require_answer,
    values,
)
from hypothesis import strategies as st
from test_formats import npz

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.errors import BadInputError
from bellmanifold.io.observations import load_data
from bellmanifold.io.problem import read_problem, to_json_text
from bellmanifold_lab.sweeps.plan import read_plan
from bellmanifold_paper.ledger_file import read_ledger

FOUR = json.loads(to_json_text(envs.four_state()))
SWIRL = json.loads(to_json_text(envs.swirl(2)))
SLIPPERY = json.loads(to_json_text(envs.grid(1, 3, slip=0.25)))
DATA = {
    "format": "bellmanifold.data/1",
    "observations": [{"state": "s1", "action": "stay", "reward": -1.0}, {"state": "s1", "action": "go"}],
}
LEDGER = {
    "format": "bellmanifold.claims/1",
    "runs": 10,
    "version": "0.1.0",
    "commit": "abc",
    "date": "2026-11-15",
    "claims": [
        {
            **{"id": "a", "source": "b", "statement": "c", "criterion": "d", "verdict": "holds", "remark": ""},
            "measured": [
                {
                    **{"what": "w", "value": 0.3, "low": None, "high": 1.0, "sd": None, "runs": 3},
                    **{"wanted": "equal to 0.06", "outcome": "refuted"},
                }
            ],
        }
    ],
}
GARBAGE = (
    st.binary(max_size=300)
    | st.text(max_size=150).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.text(alphabet='{}[]",:0123456789.eE+-\\untfalsr "', max_size=150).map(str.encode)
    | st.integers(1, 3000).map(lambda depth: b'{"a":' * depth)
)


def read(reader, content, *more):
    """What a reader makes of some bytes; a refusal is one line that begins with the file."""
    with elsewhere() as room:
        (room / "file").write_bytes(content)
        try:
            return reader(room / "file", *more)
        except BadInputError as error:
            fault = str(error)
        assert fault.startswith(str(room)[:20])
        assert fault.isprintable(), fault
        return None


def in_one_line(build):
    """A result, or a refusal in one line."""
    fault = ""
    try:
        build()
    except BadInputError as error:
        fault = str(error)
    assert fault.isprintable(), fault


@examples(30, 12_000, content=GARBAGE)
def test_bytes_for_a_problem(content):
    read(read_problem, content)


@examples(60, 20_000, content=damaged(FOUR) | damaged(SWIRL) | damaged(SLIPPERY))
def test_a_damaged_problem(content):
    """What is read can be written and read again."""
    model = read(read_problem, content)
    if model is not None:
        assert read(read_problem, to_json_text(model).encode()) == model


ARRAYS = (
    "state_names",
    "action_names",
    "goals",
    "initial_state",
    "initial_prob",
    "pair_state",
    "pair_action",
    "reward",
)
ARRAYS += ("next_start", "next_state", "next_prob", "reward_sd", "name", "discount", "metadata", "extra")
ARRAY = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(lambda items: np.array(items, dtype=np.int64)),
    st.lists(st.floats(), max_size=4).map(np.array),
    st.lists(st.sampled_from([0, 1, 2]), min_size=2, max_size=3).map(lambda items: np.array(items, dtype=np.uint8)),
    st.sampled_from(
        [np.array(["s1", "goal"]), np.array("{}"), np.array("["), np.array(b"x"), np.zeros((2, 2)), np.array(0.5)]
    ),
    st.sampled_from(
        [np.array([1 + 2j]), np.array([True, False]), np.array([], dtype=str), np.array(["a\udc80"]), None]
    ),
)


@examples(30, 12_000, changes=st.dictionaries(st.sampled_from(ARRAYS), ARRAY, max_size=2), flips=st.data())
def test_a_damaged_npz(changes, flips):
    content = bytearray(npz(**changes))
    for _ in range(flips.draw(st.sampled_from([0, 0, 1, 3]))):
        content[flips.draw(st.integers(0, len(content) - 1))] = flips.draw(st.integers(0, 255))
    read(read_problem, bytes(content))


@examples(40, 15_000, content=damaged(DATA) | GARBAGE)
def test_damaged_data(content):
    read(load_data, content, envs.two_state())


HEADERS = ("from", "to", "cost", "name", "probability", "oneway", "sd", "minutes", "from_x", "from_y", "u", "next", "")
CELL = st.sampled_from(["A", "B", "C", "s1", "goal", "", "1", "0.5", "-1", "nan", "yes", "no", "1e400", *STRANGE_TEXTS])
ROWS = st.tuples(
    st.lists(st.sampled_from(HEADERS), min_size=1, max_size=6), st.lists(st.lists(CELL, max_size=6), max_size=5)
)


@st.composite
def csv_tables(draw):
    """Tables of roads or trips with odd cells, and bytes that were damaged on the way."""
    header, rows = draw(ROWS)
    rows = [
        ["from", "to", *header],
        *([*draw(st.sampled_from([["A", "B"], ["B", "C"], ["s1", "goal"]])), *r] for r in rows),
    ]
    mark = draw(st.sampled_from(",;\t"))
    return "\n".join(mark.join(row[: len(rows[0])] + [""] * (len(rows[0]) - len(row))) for row in rows).encode(
        "utf-8", "surrogatepass"
    )


@examples(60, 4_000, content=csv_tables() | GARBAGE)
def test_a_table_of_roads(content):
    """What is read can be written and read again."""
    model = read(lambda path: bm.from_edges(path, "C", "A"), content)
    if model is not None:
        assert read(read_problem, to_json_text(model).encode()) == model


@examples(60, 3_000, content=csv_tables())
def test_a_table_of_trips(content):
    with elsewhere() as room:
        (room / "trips.csv").write_bytes(content)
        in_one_line(lambda: load_data(room / "trips.csv", envs.two_state()))


@examples(60, 3_000, given=st.lists(st.dictionaries(st.sampled_from(HEADERS), values, max_size=6), max_size=4))
def test_odd_cells_of_records(given):
    """Anything may be in the cells of a DataFrame."""
    in_one_line(lambda: bm.from_edges([{"from": "A", "to": "C"}, *given], "C", "A"))
    in_one_line(lambda: bm.Dataset.from_frame(envs.two_state(), [{"from": "s1", "to": "goal"}, *given]))


@examples(20, 10_000, content=damaged(LEDGER) | GARBAGE)
def test_a_damaged_ledger(content):
    read(read_ledger, content)


def toml(value):
    """A value in TOML's words."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    return "1979-05-27" if value is None else str(value)


KEYS = (
    "model",
    "agent",
    "epsilon",
    "prior_scale",
    "episodes",
    "seeds",
    "noise_sd",
    "infer_noise",
    "method",
)
KEYS += ("members", "tuning", "exploration", "step_size", "start_value", "match", "override", "colour", "")
SOUND = st.sampled_from(
    [
        "env:two-state",
        "env:swirl?depth=2",
        "manifold",
        "bayes-br",
        "q-learning",
        "bayes-br-hmc",
        0.1,
        1,
        5,
        [0, 1],
        [0.1, 1],
        True,
        "A",
    ]
)
PLAN = {
    "model": "env:two-state",
    "agent": ["bayes-br", "q-learning"],
    "epsilon": [0.1, 1.0],
    "episodes": 5,
    "seeds": [0, 1],
}


@st.composite
def plans(draw):
    """A plan with some entries and overrides that mean no good."""
    entries = PLAN | draw(st.dictionaries(st.sampled_from(KEYS), SOUND | values, max_size=2))
    for key in draw(st.lists(st.sampled_from(list(PLAN)), max_size=1)):
        entries.pop(key)
    lines = [f"{key or json.dumps(key)} = {toml(value)}" for key, value in entries.items()]
    for _ in range(draw(st.integers(0, 2))):
        match = draw(st.dictionaries(st.sampled_from(KEYS), SOUND | values, max_size=2))
        options = draw(st.dictionaries(st.sampled_from(KEYS), SOUND | values, max_size=2))
        lines += ["[[override]]", f"match = {toml(match)}"]
        lines += [f"{json.dumps(key)} = {toml(value)}" for key, value in options.items()]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


@examples(40, 10_000, content=plans() | GARBAGE)
def test_a_plan(content):
    """A plan that is read has runs whose names are one component of a path each."""
    from bellmanifold.learning.run_file import file_name

    found = read(read_plan, content)
    for settings in () if found is None else found.runs:
        assert "/" not in file_name(settings)
        assert len(file_name(settings)) < 200


ARGUMENT = st.sampled_from(
    [
        *(
            "env",
            "list",
            "show",
            "export",
            "check",
            "solve",
            "posterior",
            "learn",
            "sweep",
            "report",
            "reproduce",
            "-h",
        ),
        *(
            "--json",
            "--full",
            "--discount",
            "--method",
            "--out",
            "--epsilon",
            "--prior-scale",
            "--engine",
            "--seed",
            "--top",
        ),
        *("--agent", "--episodes", "--runs", "--workers", "--dry-run", "--list", "--picture", "--noise", "--noise-sd"),
        *("vi", "lp", "hmc", "0.5", "0", "-1", "1e999", "nan", "9" * 30, "9" * 5000, "file", "out", "a.json", "a.png"),
        *(
            "env:two-state",
            "env:swirl?depth=2",
            "env:deep-sea?depth=9999999999",
            "env:grid?rows=0",
            "env:grid?walls=0,0",
        ),
        *(
            "env:deep-sea?depth=2&depth=3",
            "env:deep-sea?slip=nan",
            "env:grid?rows=2&columns=2&slip=1e-300&move_cost=inf",
        ),
        *(
            "gym:FrozenLake-v1",
            "gym:os:system",
            "gym:",
            "gym:CartPole-v1",
            "gym:../x",
            "q-learning",
            "env:",
            "env:two-state?",
        ),
        *VALID_TEXTS,
    ]
)
SAFE = ("env", "check", "solve", "report", "sweep", "learn", "posterior", "reproduce")


@examples(40, 6_000, first=st.sampled_from(SAFE), rest=st.lists(ARGUMENT | st.text(max_size=5), max_size=6))
def test_arguments(first, rest):
    if first == "reproduce" and "--out" in rest and "--dry-run" not in rest:
        rest = [item for item in rest if item != "--out"]  # it would make the paper's figures
    with elsewhere():
        require_answer(*call(first, *rest), strict_json=False)


PLACE = st.sampled_from(
    ["rows", "columns", "depth", "slip", "move_cost", "walls", "start", "goal", "action_seed", "convention", "x"]
)
NAME = st.sampled_from(["grid", "deep-sea", "swirl", "pyramid", "two-state", "four-state", "nowhere", ""])
WORD = st.one_of(
    st.sampled_from(
        ["2", "3", "0", "-1", "1e3", "0.5", "1", "nan", "inf", "9" * 20, "9" * 5000, "0,0", "1,1;2,2", "bsuite", "true"]
    ),
    st.sampled_from(["1_0", "٣", " 2", "0x10", "1e-320", "1e308"]),
    st.text(max_size=4),
)


@examples(
    40,
    2_000,
    name=NAME,
    query=st.dictionaries(PLACE, WORD, max_size=3),
    command=st.sampled_from(["check", "solve", "env show"]),
)
def test_parameters_of_built_in_problems(name, query, command):
    reference = f"env:{name}?" + "&".join(f"{key}={value}" for key, value in query.items())
    with elsewhere():
        require_answer(*call(*command.split(), reference, "--json"), strict_json=True)


@examples(
    30,
    2_000,
    content=damaged(FOUR) | damaged(SWIRL) | damaged(SLIPPERY),
    command=st.sampled_from(["check", "solve", "env show"]),
    json_out=st.booleans(),
)
def test_commands_on_damaged_problems(content, command, json_out):
    with elsewhere() as room:
        (room / "p.json").write_bytes(content)
        require_answer(*call(*command.split(), "p.json", *["--json"] * json_out), strict_json=json_out)


NUMBER = st.sampled_from([repr(value) for value in STRANGE_NUMBERS if value != 10**400]) | st.sampled_from(
    ["0.01", "1", "10", "0.3"]
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "--epsilon": NUMBER,
        "--prior-scale": NUMBER,
        "--discount": NUMBER,
        "--noise-sd": NUMBER,
        "--noise": st.sampled_from(
            ["gaussian", "laplace", "student-t:3", "student-t:-1", "student-t:nan", "student-t:", "x\n"]
        ),
        "--engine": st.sampled_from(["auto", "chart", "mixture", "rejection", "magic"]),
        "--kernel": st.sampled_from(["gaussian", "uniform"]),
        "--top": st.sampled_from(["0", "1", "-1", "9" * 30]),
        "--seed": st.sampled_from(["0", "-1", "9" * 30]),
        "--samples": st.sampled_from(["0", "-1", "1", "9" * 30]),
    },
)


@examples(6, 500, options=OPTIONS, content=damaged(DATA), keep=st.booleans(), proper=st.booleans())
def test_posterior(options, content, keep, proper):
    """Options and data of all kinds on a fixed problem."""
    with elsewhere() as room:
        (room / "d.json").write_bytes(json.dumps(DATA).encode() if keep else content)
        words = [word for option in options.items() for word in option]
        answer = call("posterior", "env:two-state", "d.json", *words, *["--proper-only"] * proper, "--json")
        require_answer(*answer, strict_json=True)


LEARN = st.fixed_dictionaries(
    {"--agent": st.sampled_from(["q-learning", "rlsvi", "psrl", "bayes-td", "bayes-td-max", "nobody"])},
    optional={
        "--epsilon": NUMBER,
        "--prior-scale": NUMBER,
        "--noise-sd": NUMBER,
        "--episodes": st.sampled_from(["1", "2", "0", "-1", "9" * 30]),
        "--runs": st.sampled_from(["1", "2", "0", "-1", "9" * 30]),
        "--seed": st.sampled_from(["0", "-1", "9" * 30, str(2**63 - 1)]),
    },
)


@examples(6, 500, options=LEARN, content=damaged(FOUR) | damaged(SLIPPERY))
def test_learn(options, content):
    """Damaged problems and options of all kinds; what is kept is kept in its directory."""
    with elsewhere() as room:
        (room / "p.json").write_bytes(content)
        small = {"--episodes": "2", "--runs": "1"} | options
        words = [word for option in small.items() for word in option]
        require_answer(*call("learn", "p.json", *words, "--out", "out", "--json"), strict_json=True)
        assert {path.name for path in room.iterdir()} <= {"p.json", "out"}


def test_the_slow_suite_tries_100_000_inputs():
    """What is promised in the documentation."""
    tests = [value for name, value in globals().items() if name.startswith("test_") and hasattr(value, "pytestmark")]
    many = [mark.args[1][1].values[0] for test in tests for mark in test.pytestmark if mark.name == "parametrize"]
    assert sum(many) == 100_000
    assert pytest.mark.slow.name == "slow"
