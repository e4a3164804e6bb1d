"""Runs read back from their files are the runs that were written."""

import json
from dataclasses import fields

import numpy as np
import pytest

import bellmanifold as bm
from bellmanifold.learning import runs as learning
from bellmanifold.learning.kept import keep_runs
from bellmanifold.learning.run_file import decode, encode

SLIPPERY = "env:grid?rows=3&columns=3&slip=0.2"
CASES = [
    ("env:swirl?depth=3", "manifold", {"explore": "directed"}),
    (SLIPPERY, "nearest", {"replan": True}),
    ("env:deep-sea?depth=3", "q-learning", {}),
    ("gym:CliffWalking-v1", "psrl", {}),
]


def plain(run):
    """What a run holds, by name, with episodes and routes as plain values."""
    found = {field.name: getattr(run, field.name) for field in fields(run) if field.name != "model"}
    found["played"] = [vars(episode) for episode in run.played]
    order = sorted(range(len(run.routes)), key=run.routes.__getitem__)
    found["routes"] = [run.routes[k] for k in order]
    found["route_probability"] = run.route_probability[:, order]
    found["options"], found["diagnostics"] = dict(run.options), dict(run.diagnostics)
    return found


@pytest.mark.parametrize(("model", "agent", "options"), CASES)
def test_a_run_that_was_read_is_the_run_that_was_written(model, agent, options, tmp_path):
    entry = {"model": model, "agent": agent, "episodes": 4, **options}
    played = bm.learn(model, agent, 4, 2, 5, **options).runs
    with keep_runs(tmp_path, entry, range(5, 7)) as (kept, keep):
        assert kept == {}
        for run in played:
            keep(run)
    with keep_runs(tmp_path, entry, range(5, 7)) as (kept, _):
        for run in played:
            np.testing.assert_equal(plain(kept[run.seed]), plain(run))
            assert [kept[run.seed].model.pair_name(i) for i in range(4)] == [run.model.pair_name(i) for i in range(4)]


def test_damaged_and_older_files_are_played_again(cli, tmp_path, monkeypatch):
    command = ("learn", "env:two-state", "--agent", "bayes-td", "--episodes", "3", "--runs", "3", "--json")
    code, first, err = cli(*command, "--out", str(tmp_path))
    assert (code, err) == (0, "")
    damaged, older, _ = sorted(tmp_path.glob("*.nc"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    older.write_bytes(encode(decode(older.read_bytes()).drop_vars("gap_regret")))
    code, second, err = cli(*command, "--out", str(tmp_path))
    assert code == 0
    lines = err.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(str(damaged))
    assert lines[0].endswith("playing it again")
    assert lines[1] == f"{older}: made by a version that did not record gap_regret; playing it again"
    assert lines[2] == f"1 of 3 runs are in {tmp_path} and are not played again"
    clock = {"seconds": 0.0}
    assert json.loads(second) | clock == json.loads(first) | clock
    monkeypatch.setattr(learning, "play_runs", None)
    assert cli(*command, "--out", str(tmp_path))[0] == 0, "nothing is left to play"
