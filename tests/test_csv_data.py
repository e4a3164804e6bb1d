"""Observations as a table: what is read, what is written, and what is said about faults."""

import numpy as np
import pytest

import bellmanifold as bm
from bellmanifold import envs
from bellmanifold.errors import BadInputError
from bellmanifold.io.csv_data import from_csv, looks_like_table
from bellmanifold.io.observations import load_data, write_data

MODEL = envs.two_state()


def read(text, model=MODEL):
    return from_csv(text.encode(), model)


def same(one, other):
    for name in ("pair", "reward", "sd", "next"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize(
    "text",
    [
        "state,action,reward\ns1,stay,-1\ns1,go,-2.5\n",
        "state;action;reward\ns1;stay;-1\ns1;go;-2.5\n",
        "state\taction\treward\ns1\tstay\t-1\ns1\tgo\t-2.5\n",
        "\ufeffState, Action, Reward\r\n\r\ns1, stay, -1.0\r\ns1, go, -2.5e0\r\n",
        'reward,action,state\n" -1",stay,s1\n-2.5,go,"s1"',
    ],
)
def test_tables_in_several_dialects(text):
    same(read(text), bm.Dataset.from_pairs(MODEL, [("s1", "stay", -1.0), ("s1", "go", -2.5)]))


def test_what_is_left_out_means_what_it_means_in_json():
    found = read("state,action,reward,sd,next\ns1,stay,,,\ns1,go,-3,0.5,goal\n")
    given = [bm.Observation("s1", "stay"), bm.Observation("s1", "go", -3.0, 0.5, "goal")]
    same(found, bm.Dataset.from_pairs(MODEL, given))
    assert read("state,action\ns1,go\n").reward.tolist() == [-1.0]
    assert len(read("state,action,reward\n").pair) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("state,reward\ns1,1\n", 'line 1: column "action" is missing: begin with a line such as state, action, reward'),
        ("state,action,loss\n", 'line 1: unknown column "loss": a table of observations has state, action, reward'),
        (
            "junction,to,price\n",
            r'line 1: unknown columns "junction", "to", "price": a table of observations has state, action, reward, '
            r'sd, next: write state instead of "junction", action instead of "to", reward instead of "price" \(a cost',
        ),
        ("state,action,r,loss\n", 'unknown columns "r", "loss": .* next: write reward instead of "r"$'),
        ("state,action,r,cost\n", 'columns "cost" and "r" say the same, a cost of 5 is a reward of -5: keep one'),
        ("state,action,colour\n", "has state, action, reward, sd, next$"),
        ("state,action,reward\ns1,go,-3,5\n", r"line 2: has 4 cells, the first line 3: write -3\.5, not -3,5, or"),
        ("state,action,sd,reward\ns1,go,0,5,-3\n", r"has 5 cells, the first line 4: write 0\.5, not 0,5, or correct"),
        ("state,action,state\n", 'line 1: column "state" occurs twice: keep one of them'),
        ("state,action,reward\ns1,go\n", "line 2: has 2 cells, the first line 3: put names"),
        ("state,action,reward\n0,0,right,1\n", 'line 2: has 4 cells, the first line 3: put names that contain "," in'),
        ("state,action,reward\n\ns1,go,much\n", 'line 3, column reward: "much" is not a finite number: give one'),
        (
            "state;action;reward\ns1;go;-1,5\n",
            'column reward: "-1,5" is not a finite number: give one, with a decimal point, such as -1.5',
        ),
        ("state,action,reward\ns1,go,nan\n", 'line 2, column reward: "nan" is not a finite number'),
        ("state,action,reward\ns1,go,1_0\n", 'line 2, column reward: "1_0" is not a finite number'),
        ("state,action,reward,sd\ns1,go,1,-1\n", "line 2: sd is -1.0: give a finite number"),
        ("state,action,reward\n,go,1\n", "line 2, column state: is empty: give a name, or remove the line"),
        ("state,action,reward\ns1,go,1\ns9,go,1\n", 'line 3: unknown state "s9": the problem has "s1"'),
        ("state,action,reward\ns1,fly,1\n", 'line 2: state "s1" has no action "fly": it has "stay", "go"'),
        ("state,action,reward,next\ns1,go,1,s1\n", "line 2: pair .* led to .* makes impossible"),
        ("state,action,reward,next\ns1,go,1,s7\n", 'line 2: next state "s7" is not a goal'),
        ('state,action,reward\n"s1,go,1\n', "line 2: .*: close the quotes"),
    ],
)
def test_faults_are_named_with_line_and_remedy(text, message):
    with pytest.raises(BadInputError, match=message):
        read(text)


def test_rewards_that_do_not_repeat_name_the_line_and_the_noise():
    found = read("state,action,reward\ns1,go,-1\ns1,stay,-1\ns1,go,-2\n")
    with pytest.raises(BadInputError, match=r"^line 4: .* paid -2 but -1 before: .*noise_sd=ETA or infer_noise=True"):
        found.deterministic_reward()


def test_other_encodings_are_refused():
    with pytest.raises(BadInputError, match=r"not UTF-8 text \(byte 20\): save the table as CSV in UTF-8"):
        from_csv("state,action,reward\né".encode("latin-1"), MODEL)


def test_tables_are_told_apart_by_name_or_content(tmp_path):
    text = "state,action,reward\ns1,go,-1\n"
    for name in ("data.csv", "DATA.CSV", "data.txt"):
        (tmp_path / name).write_text(text)
        same(load_data(tmp_path / name, MODEL), read(text))
    assert not looks_like_table(b'{"format": "state action"}')
    (tmp_path / "empty.csv").write_text("nothing\n")
    with pytest.raises(BadInputError, match=r'empty.csv: line 1: unknown column "nothing"'):
        load_data(tmp_path / "empty.csv", MODEL)


def test_what_is_written_is_read_again(tmp_path):
    grid = envs.grid(2, 2)
    observations = [bm.Observation("0,0", "right", -1.25, 0.5, "0,1"), bm.Observation("0,1", "down", 1e-17)]
    data = bm.Dataset.from_pairs(grid, observations)
    write_data(data, tmp_path / "data.csv")
    assert (tmp_path / "data.csv").read_text().splitlines() == [
        "state,action,reward,sd,next",
        '"0,0",right,-1.25,0.5,"0,1"',
        '"0,1",down,1e-17,,',
    ]
    same(load_data(tmp_path / "data.csv", grid), data)
    write_data(bm.Dataset.complete(MODEL), tmp_path / "data.csv")
    assert (tmp_path / "data.csv").read_text() == "state,action,reward\ns1,stay,-1.0\ns1,go,-1.0\n"


def test_the_command_reads_tables(cli, tmp_path):
    (tmp_path / "data.csv").write_text("state,action,reward\ns1,go,-1\ns1,go,-2\n")
    code, out, err = cli("posterior", "env:two-state", str(tmp_path / "data.csv"))
    assert (code, out) == (2, "")
    assert "data.csv: line 3: pair" in err
    assert "--infer-noise" in err
    code, out, _ = cli("posterior", "env:two-state", str(tmp_path / "data.csv"), "--noise-sd", "1")
    assert code == 0
