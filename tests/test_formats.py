import copy
import errno
import io
import json
import os
import socket
import subprocess
import sys
import tracemalloc
import zipfile
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from problems import random_problem

from bellmanifold import envs
from bellmanifold._util.limits import BYTES
from bellmanifold.errors import BadInputError, DiskError
from bellmanifold.io.files import sync_directory
from bellmanifold.io.npz import MOST_MEMBERS
from bellmanifold.io.observations import from_json as data_from_json
from bellmanifold.io.observations import load_data, write_data
from bellmanifold.io.problem import read_problem, to_json_text, write_problem
from bellmanifold.problem.dataset import Dataset

TWO_STATE = json.loads(to_json_text(envs.two_state()))


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_write_then_read_is_the_identity(rng, tmp_path, suffix):
    path = tmp_path / f"problem{suffix}"
    for k in range(60):
        model = random_problem(rng, states=int(rng.integers(1, 9)), reward_kind=("any", "integers")[k % 2])
        write_problem(model, path)
        assert read_problem(path) == model
    for build in envs.BUILT_IN.values():
        write_problem(build(), path)
        assert read_problem(path) == build()
    assert os.listdir(tmp_path) == [path.name], "no temporary file is left"


def test_noise_metadata_and_strange_names_survive(tmp_path):
    whole = copy.deepcopy(TWO_STATE)
    whole["metadata"] = {"author": "é", "list": [1, None]}
    whole["pairs"][0]["reward_sd"] = 0.25
    whole["pairs"][1]["action"] = "<script>\n‮ 𝛾 \u0000x"
    (tmp_path / "a.json").write_text(json.dumps(whole))
    model = read_problem(tmp_path / "a.json")
    assert model.reward_sd.tolist() == [0.25, 0.0]
    for name in ("b.json", "b.npz"):
        write_problem(model, tmp_path / name)
        assert read_problem(tmp_path / name) == model


def test_data_round_trip(tmp_path):
    model = envs.deep_sea(3)
    data = Dataset.from_pairs(model, [("0,0", "right"), ("1,1", "left", 0.25), ("0,0", "right")])
    write_data(data, tmp_path / "d.json")
    again = load_data(tmp_path / "d.json", model)
    assert again.pair.tolist() == data.pair.tolist()
    assert again.reward.tolist() == data.reward.tolist()


def test_discount_in_the_file():
    whole = {**TWO_STATE, "discount": 0.5}
    path = io.BytesIO(json.dumps(whole).encode())
    from bellmanifold.io.problem import from_json

    assert from_json(json.loads(path.getvalue())) == envs.two_state().discounted(0.5)


def with_pair(**changes):
    whole = copy.deepcopy(TWO_STATE)
    whole["pairs"][1].update(changes)
    return whole


def without(key):
    return {k: v for k, v in TWO_STATE.items() if k != key}


BAD_PROBLEMS = {
    "negative probability": (with_pair(next={"goal": 1.5, "s1": -0.5}), r'pair \("s1", "go"\).*-0.5'),
    "sum not 1": (with_pair(next={"goal": 0.9}), r'pair \("s1", "go"\): probabilities sum to 0.9'),
    "sum off by 2e-9": (with_pair(next={"goal": 1 - 2e-9}), "probabilities sum to"),
    "no successor": (with_pair(next={}), r'pair \("s1", "go"\): probabilities sum to 0'),
    "duplicate pair": (with_pair(action="stay"), r'pair \("s1", "stay"\): occurs twice'),
    "goal with a pair": (with_pair(state="goal"), r'pair \("goal", "go"\): its state is a goal'),
    "unknown next": (with_pair(next={"limbo": 1.0}), r'next state "limbo" is not a goal and has no pair'),
    "reward is text": (with_pair(reward="much"), r'pairs\[1\] \("s1", "go"\): reward is a string'),
    "reward is true": (with_pair(reward=True), "reward is true or false"),
    "reward is null": (with_pair(reward=None), "reward is null"),
    "reward is huge": (with_pair(reward=10**400), "too large"),
    "sd negative": (with_pair(reward_sd=-1), "reward_sd is -1"),
    "next is a list": (with_pair(next=["goal"]), "next must be an object"),
    "state is a number": (with_pair(state=3), r"pairs\[1\].state is a number"),
    "unknown key in pair": (with_pair(colour="red"), r'pairs\[1\]: unknown key "colour"'),
    "pair is a number": ({**TWO_STATE, "pairs": [1]}, r"pairs\[0\] is a number"),
    "pairs is an object": ({**TWO_STATE, "pairs": {}}, "pairs is an object"),
    "no pairs": ({**TWO_STATE, "pairs": []}, 'unknown state "s1"|there are none'),
    "unknown key": ({**TWO_STATE, "colour": 1}, 'unknown key "colour"'),
    "goals written wrong": ({**without("goals"), "goal": ["goal"]}, 'unknown key "goal": did you mean "goals"\\?'),
    "missing goals": (without("goals"), '"goals" is missing'),
    "missing initial": (without("initial"), '"initial" is missing'),
    "missing format": (without("format"), '"format" is missing'),
    "no goal": ({**TWO_STATE, "goals": []}, "goals: there are none"),
    "goals is a string": ({**TWO_STATE, "goals": "goal"}, "goals is a string"),
    "wrong format": ({**TWO_STATE, "format": "bellmanifold.ssp/9"}, '"format" is "bellmanifold.ssp/9"'),
    "data given": ({"format": "bellmanifold.data/1", "observations": []}, '"format" is "bellmanifold.data/1"'),
    "unknown initial": ({**TWO_STATE, "initial": {"s7": 1.0}}, 'initial: unknown state "s7"'),
    "initial sum": ({**TWO_STATE, "initial": {"s1": 0.5}}, "initial: probabilities sum to 0.5"),
    "initial is a goal": ({**TWO_STATE, "initial": {"goal": 1.0}}, "is a goal"),
    "initial is a list": ({**TWO_STATE, "initial": ["s1"]}, "initial must be an object"),
    "discount 0": ({**TWO_STATE, "discount": 0}, "discount is 0"),
    "discount above 1": ({**TWO_STATE, "discount": 1.1}, "discount is 1.1"),
    "name is a number": ({**TWO_STATE, "name": 3}, "name is a number"),
    "metadata is a list": ({**TWO_STATE, "metadata": []}, "metadata is a list"),
    "lone surrogate": (with_pair(action="\ud800"), "surrogate"),
}


@pytest.mark.parametrize("case", BAD_PROBLEMS)
def test_bad_problem_files(tmp_path, case):
    value, message = BAD_PROBLEMS[case]
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(value))
    with pytest.raises(BadInputError, match=message) as error:
        read_problem(path)
    assert str(error.value).startswith(str(path)[:20])
    assert "\n" not in str(error.value)


BAD_BYTES = {
    "empty": (b"", "empty"),
    "not UTF-8": (b"\xff\xfe{", "UTF-8"),
    "not JSON": (b"{oops", "line 1 column 2"),
    "a list": (b"[1, 2]", "contains a list"),
    "a number": (b"3", "contains a number"),
    "NaN": (json.dumps(with_pair(reward=float("nan"))).encode(), r'pairs\[1\] \("s1", "go"\): reward is nan'),
    "Infinity": (json.dumps(with_pair(next={"goal": float("inf")})).encode(), r"probability of .goal. is inf"),
    "NaN in metadata": (json.dumps({**TWO_STATE, "metadata": {"a": [float("nan")]}}).encode(), "metadata contains NaN"),
    "half of a surrogate pair in metadata": (
        json.dumps({**TWO_STATE, "metadata": {"a": ["\ud800"]}}).encode(),
        "metadata contains half of a surrogate pair",
    ),
    "1e999": (json.dumps(TWO_STATE).replace("-1.0", "1e999").encode(), "too large"),
    "a key twice": (b'{"format": 1, "format": 2}', 'key "format" occurs twice'),
    "deep nesting": (b"[" * 200_000, "nested too deeply"),
    "many digits": (b'{"a": ' + b"1" * 5000 + b"}", "too many digits"),
    "damaged npz": (b"PK\x03\x04 and then nothing", "damaged npz"),
}


@pytest.mark.parametrize("case", BAD_BYTES)
def test_bad_bytes(tmp_path, case):
    content, message = BAD_BYTES[case]
    path = tmp_path / "problem.json"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match=message):
        read_problem(path)


def test_places_that_cannot_be_read(tmp_path, monkeypatch):
    with pytest.raises(BadInputError, match="no such file"):
        read_problem(tmp_path / "missing.json")
    with pytest.raises(BadInputError, match="is a directory"):
        read_problem(tmp_path)
    with pytest.raises(BadInputError, match="cannot be read"):
        read_problem("a\0b")

    def denied(*_):
        raise PermissionError(13, "Permission denied")

    (tmp_path / "secret.json").touch()
    monkeypatch.setattr("builtins.open", denied)
    with pytest.raises(BadInputError, match="no permission"):
        read_problem(tmp_path / "secret.json")


def in_a_process(*arguments, **options):
    """A command that must answer within a minute; most of that is for starting Python on a busy machine."""
    command = [sys.executable, "-m", "bellmanifold", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)


def test_pipes_sockets_and_devices_are_refused_at_once(tmp_path):
    """Nobody ever writes into the pipe: whoever opened it would wait forever."""
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    done = in_a_process("check", str(pipe))
    refusal = "is a named pipe, not a file: write its content to a file and give that"
    assert (done.returncode, done.stderr) == (2, f"bellmanifold: {pipe}: {refusal}\n")
    (tmp_path / "linked.json").symlink_to(pipe)
    with pytest.raises(BadInputError, match=r"linked\.json: is a named pipe, not a file"):
        load_data(tmp_path / "linked.json", envs.two_state())
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        with pytest.raises(BadInputError, match="is a socket, not a file"):
            read_problem(tmp_path / "s")
    with pytest.raises(BadInputError, match="/dev/zero: is a device, not a file"):
        read_problem("/dev/zero")


def test_a_pipe_that_the_process_was_started_with_is_read(tmp_path):
    """As `<(...)` and `|` make them; a terminal, or nothing at all, in the place of a pipe is a device."""
    problem = to_json_text(envs.two_state())
    assert in_a_process("check", "/dev/stdin", input=problem).returncode == 0
    assert in_a_process("check", "/dev/fd/0", input=problem).returncode == 0
    done = in_a_process("check", "/dev/stdin", stdin=subprocess.DEVNULL)
    assert (done.returncode, "is a device" in done.stderr) == (2, True)
    os.mkfifo(tmp_path / "pipe")
    up = "/".join([".."] * 10)
    with pytest.raises(BadInputError, match="is a named pipe"):
        read_problem(f"/dev/fd/{up}{tmp_path}/pipe")


def test_a_large_file_of_garbage_is_refused_quickly(tmp_path):
    path = tmp_path / "garbage.json"
    with open(path, "wb") as file:
        for _ in range(200):
            file.write(os.urandom(1) * 2**20)
    with pytest.raises(BadInputError):
        read_problem(path)


def test_a_huge_file_is_refused_unread(tmp_path):
    """By its size, before a byte of it takes memory."""
    path = tmp_path / "huge.json"
    with open(path, "wb") as file:
        file.truncate(2**31)
    tracemalloc.start()
    try:
        with pytest.raises(BadInputError, match="BELLMANIFOLD_MAX_SIZE"):
            read_problem(path)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_files_above_the_limit_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "p.npz"
    write_problem(envs.deep_sea(30), path)
    monkeypatch.setattr("bellmanifold.io.files.BYTES", replace(BYTES, default=1000))
    with pytest.raises(BadInputError, match=r"the file: .* bytes are above 1,000: .*BELLMANIFOLD_MAX_SIZE"):
        read_problem(path)
    just_enough = replace(BYTES, default=path.stat().st_size + 10)
    for module in ("files", "npz"):
        monkeypatch.setattr(f"bellmanifold.io.{module}.BYTES", just_enough)
    with pytest.raises(
        BadInputError,
        match=r"contains more than .* bytes: make it smaller, or set BELLMANIFOLD_MAX_SIZE to \d+ or more",
    ):
        read_problem(path)
    monkeypatch.setenv("BELLMANIFOLD_MAX_SIZE", "many")
    with pytest.raises(BadInputError, match="whole number"):
        read_problem(path)


def npz(**changes):
    plain = envs.two_state().describe()
    names = ("state_names", "action_names", "goals", "initial_state", "initial_prob", "pair_state", "pair_action")
    names += ("reward", "next_start", "next_state", "next_prob")
    arrays = {name: np.asarray(getattr(plain, name)) for name in names} | changes
    file = io.BytesIO()
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})
    return file.getvalue()


def test_npz_by_hand_may_name_goals_and_start(tmp_path):
    path = tmp_path / "p.npz"
    path.write_bytes(npz(goals=np.array(["goal"]), initial_state=np.array(["s1"]), name=np.array("two-state")))
    assert read_problem(path) == envs.two_state()
    path.write_bytes(npz(discount=np.array(0.5), name=np.array("two-state")))
    assert read_problem(path) == envs.two_state().discounted(0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": None}, 'array "reward" is missing'),
        ({"extra": np.zeros(2)}, 'unknown array "extra"'),
        ({"reward": np.array([{}, {}], dtype=object)}, "must be a list of numbers"),
        ({"reward": np.zeros((2, 2))}, "must be a list"),
        ({"reward": np.zeros(2, dtype=complex)}, "must be a list"),
        ({"state_names": np.array([1, 2])}, "list of strings"),
        ({"goals": np.array(["nowhere"])}, "not among state_names"),
        ({"discount": np.array([0.5, 0.5])}, "one number"),
        ({"name": np.array([1.0])}, "one string"),
        ({"metadata": np.array("[]")}, "contains a list"),
    ],
)
def test_bad_npz(tmp_path, changes, message):
    path = tmp_path / "p.npz"
    path.write_bytes(npz(**changes))
    with pytest.raises(BadInputError, match=message):
        read_problem(path)


def test_npz_that_claims_more_than_it_holds(tmp_path):
    """A header that promises 10^12 numbers allocates nothing."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
    header += b" " * (117 - len(header)) + b"\n"
    raw = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 16
    path = tmp_path / "p.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("reward.npy", raw)
    with pytest.raises(BadInputError, match="stored whole"):
        read_problem(path)


def test_failed_writes_leave_nothing(tmp_path, monkeypatch):
    with pytest.raises(BadInputError, match="cannot be written"):
        write_problem(envs.two_state(), tmp_path / "no" / "such" / "place.json")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(BadInputError, match="cannot be written"):
        write_problem(envs.two_state(), tmp_path / "folder.json")
    (tmp_path / "folder.json").rmdir()
    with pytest.raises(BadInputError, match=r"ends in \.json, \.npz or \.drn"):
        write_problem(envs.two_state(), tmp_path / "problem.txt")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DiskError, match="no space left"):
        write_problem(envs.two_state(), tmp_path / "p.json")
    assert os.listdir(tmp_path) == []


def test_npz_refuses_a_name_it_would_damage(tmp_path):
    model = envs.building.from_moves("n", {("s\0", "go"): envs.building.Move(-1.0, {"goal": 1.0})}, start="s\0")
    with pytest.raises(BadInputError, match="write JSON"):
        write_problem(model, tmp_path / "p.npz")
    write_problem(model, tmp_path / "p.json")
    assert read_problem(tmp_path / "p.json") == model


def observation(**fields):
    return {"format": "bellmanifold.data/1", "observations": [{"state": "s1", "action": "go", **fields}]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (observation(reward=None), r"observations\[0\]: reward is null"),
        (observation(reward="x"), "reward is a string"),
        (observation(state="nowhere"), 'unknown state "nowhere"'),
        (observation(state="goal"), "is a goal"),
        (observation(action="fly"), 'no action "fly"'),
        (observation(time=3), 'unknown key "time"'),
        ({"format": "bellmanifold.data/1"}, '"observations" is missing'),
        ({"format": "bellmanifold.data/1", "observations": {}}, "observations is an object"),
        (TWO_STATE, '"format" is "bellmanifold.ssp/1"'),
    ],
)
def test_bad_data(value, message):
    with pytest.raises(BadInputError, match=message):
        data_from_json(value, envs.two_state())


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200) | st.text(max_size=100).map(lambda t: t.encode("utf-8", "replace")))
def test_any_bytes_are_a_model_or_a_clear_error(tmp_path, content):
    read_or_refuse(tmp_path / "fuzz", content)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_problem_is_a_model_or_a_clear_error(tmp_path, data):
    """Replace random parts of a valid file by random JSON."""
    whole = json.loads(to_json_text(envs.four_state()))
    for _ in range(data.draw(st.integers(1, 3))):
        place = whole
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if not isinstance(place[key], (dict, list)) or data.draw(st.booleans()):
                place[key] = data.draw(json_values)
                break
            place = place[key]
    read_or_refuse(tmp_path / "fuzz", json.dumps(whole).encode("utf-8", "surrogatepass"))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_npz_is_a_model_or_a_clear_error(tmp_path, data):
    content = bytearray(npz())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    read_or_refuse(tmp_path / "fuzz", bytes(content))


def read_or_refuse(path, content):
    path.write_bytes(content)
    try:
        model = read_problem(path)
    except BadInputError as error:
        assert "\n" not in str(error)  # noqa: PT017 (both outcomes are right)
    else:
        assert model.n_pairs >= 1


def test_an_archive_of_too_many_arrays_is_not_listed(tmp_path):
    path = tmp_path / "p.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for k in range(MOST_MEMBERS + 1):
            archive.writestr(f"{k}.npy", b"")
    with pytest.raises(BadInputError, match=f"contains more than {MOST_MEMBERS} arrays"):
        read_problem(path)


@pytest.mark.parametrize(("number", "is_lost"), [(errno.EIO, True), (errno.EINVAL, False)])
def test_only_a_failing_disk_makes_the_sync_of_a_directory_fail(tmp_path, monkeypatch, number, is_lost):
    """Some file systems cannot sync directories and say so (EINVAL): that is no reason to give up."""

    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="error") if is_lost else nullcontext():
        sync_directory(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr("os.open", fail)
    sync_directory(tmp_path)
