"""Sweeps: runs, files, processes, and what happens when something dies."""

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import toy_agents
import xarray as xr
from test_agents import Masked
from toy_agents import TOY, play_here, record_run

from bellmanifold._util.limits import BYTES
from bellmanifold.agents.registry import AGENTS, find_agent
from bellmanifold.cli.main import run as command
from bellmanifold.errors import BadInputError, BellmanifoldError, DiskError, StoppedError
from bellmanifold.io.models import load_model, load_problem
from bellmanifold.learning.metrics import find_optimum
from bellmanifold.learning.run_file import decode, encode, file_name, load_run, load_runs
from bellmanifold.learning.run_settings import RunSettings, make_settings
from bellmanifold.learning.runs import learn
from bellmanifold_lab.sweeps import units
from bellmanifold_lab.sweeps.locks import Presence
from bellmanifold_lab.sweeps.plan import plan_runs, read_plan
from bellmanifold_lab.sweeps.progress import Progress, show_progress
from bellmanifold_lab.sweeps.runner import require_success, sweep
from bellmanifold_lab.sweeps.store import Store
from bellmanifold_lab.sweeps.workers import play_in_processes

PROGRAM = [sys.executable, str(Path(toy_agents.__file__))]
TWO_WORKERS = partial(play_in_processes, workers=2)

pytestmark = pytest.mark.usefixtures("known_toys")


def toy(seed=0, model="env:swirl?depth=3", episodes=6, **options):
    return RunSettings(model, "toy", 0.1, None, episodes, seed, tuple(sorted(options.items())))


def toys(count=4, **options):
    return plan_runs([toy(seed, **options) for seed in range(count)])


def numbers(directory):
    """Everything in a directory's results that does not depend on the clock, to the bit."""
    found = {}
    for path in sorted(Path(directory).glob("*.nc")):
        data = load_run(path)
        found[path.name] = {
            name: (v.dims, v.dtype.str, v.values.tobytes())
            for name, v in data.variables.items()
            if "seconds" not in str(name)
        } | {"settings": data.attrs["settings"]}
    return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The results of four toy runs, played here one by one."""
    out = tmp_path_factory.mktemp("expected")
    before = dict(AGENTS)
    AGENTS["toy"] = TOY
    sweep(toys(), out, play_here)
    AGENTS.clear()
    AGENTS.update(before)
    return numbers(out)


# one run and its record


def test_a_record_says_what_happened():
    settings = toy(seed=3, model="env:swirl?depth=4", episodes=40)
    record = record_run(settings)
    model = load_model(settings.model)
    best = find_optimum(model).at_start
    ends = np.cumsum(record.moves.values)
    tried = set()
    for k in range(40):
        own = slice(ends[k] - record.moves.values[k], ends[k])
        pairs, policy = record.pair.values[own], record.policy.values[k]
        assert (model.pair_state[policy] == np.arange(model.n_states)).all()
        assert (policy[model.pair_state[pairs]] == pairs).all(), "the moves are the policy's"
        assert (record.reward.values[own] == model.reward[pairs]).all()
        assert record.regret.values[k] == best - record.reward.values[own].sum()
        tried |= set(pairs.tolist())
        assert record.coverage.values[k] == len(tried) / model.n_pairs
        after = model.next_state[model.next_start[pairs[-1]]]
        assert record.goal_reached.values[k] == (after == model.n_states)
        if record.goal_reached.values[k]:  # deterministic: what was collected is what is expected
            assert record.expected_regret.values[k] == pytest.approx(record.regret.values[k], abs=1e-12)
        else:
            assert np.isnan(record.expected_regret.values[k])
    assert 0 < record.goal_reached.values.sum() < 40, "the seed was meant to show both"
    assert record.diagnostic_most.values[-1] == record.total_reward.values.max()
    assert record.policy.dtype == record.pair.dtype == np.int32
    assert record.optimal_value == best
    clocks = {name for name in record.variables if "seconds" in name}
    assert clocks == {"seconds_episode", "seconds_total"}


def test_a_record_carries_its_origin():
    labels = record_run(toy(pause=0)).attrs
    assert json.loads(labels["settings"]) == {
        "model": "env:swirl?depth=3",
        "agent": "toy",
        "epsilon": 0.1,
        "pause": 0,
        "episodes": 6,
        "seed": 0,
    }
    assert labels["version"] == "0.1.0"
    assert "numpy" in json.loads(labels["versions"])
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    assert labels["commit"].removesuffix("-dirty") == head.stdout.strip()


def test_a_run_of_a_plan_is_a_run_of_learn():
    """... to the bit."""
    for model, agent in (("env:deep-sea?depth=2", "manifold"), ("gym:CliffWalking-v1", "q-learning")):
        entry = {"model": model, "agent": agent, "episodes": 3, "seed": 5}
        record = record_run(make_settings(entry))
        run = learn(load_problem(model), agent, episodes=3, runs=2, seed=4).runs[1]
        assert (record.regret.values == run.regret).all()
        assert (record.coverage.values == run.coverage).all()
        names = [run.model.pair_name(i) for i in np.concatenate([e.pairs for e in run.played])]
        loaded = load_model(model)
        assert [loaded.pair_name(i) for i in record.pair.values] == names


def test_regret_is_undefined_where_the_optimum_is():
    record = record_run(toy(model="gym:FrozenLake-v1"))
    assert np.isnan(record.regret.values).all()
    assert np.isnan(record.expected_regret.values).all()
    assert np.isnan(record.completed_regret.values).all()
    assert np.isfinite(record.total_reward.values).all()


# blocks


def test_a_block_is_always_played_whole(monkeypatch):
    """Wanted seeds 3, 4 and 17 of a block player: blocks 0-9 and 10-19 are played, three runs come back."""
    played = []
    alone = find_agent("toy")

    def block(models, options, seeds):
        played.append(list(seeds))
        return [alone.make(model, options) for model in models]

    monkeypatch.setitem(AGENTS, "toy", replace(alone, make_block=block))
    plan = plan_runs([toy(17), toy(3), toy(4)])
    made = units.units_of(plan, plan.runs)
    assert [[run.seed for run in unit.runs] for unit in made] == [[17], [3, 4]]
    records = {seed: record for unit in made for seed, record in units.play_unit(unit).items()}
    assert played == [list(range(10, 20)), list(range(10))]
    assert sorted(records) == [3, 4, 17]
    assert all(json.loads(record.attrs["settings"])["seed"] == seed for seed, record in records.items())


def test_other_agents_play_one_run_at_a_time():
    plan = toys(3)
    assert [[run.seed for run in unit.runs] for unit in units.units_of(plan, plan.runs)] == [[0], [1], [2]]


def test_a_worker_with_another_problem_is_refused():
    plan = toys(1)
    (unit,) = units.units_of(plan, plan.runs)
    with pytest.raises(BadInputError, match="a different problem on this worker"):
        units.play_unit(replace(unit, model_digest="0" * 64), {})


# files


def test_files_hold_every_bit_and_open_anywhere(tmp_path):
    record = record_run(toy(episodes=300))
    content = encode(record)
    xr.testing.assert_identical(decode(content), record)
    assert {name: v.dtype for name, v in decode(content).variables.items()} == {
        name: v.dtype for name, v in record.variables.items()
    }
    path = tmp_path / "run.nc"
    path.write_bytes(content)
    xr.testing.assert_identical(xr.load_dataset(path, engine="h5netcdf"), record)


def test_every_kind_of_damage_is_found(rng):
    content = encode(record_run(toy()))
    cut = [content[:n] for n in (0, 1, 50, len(content) // 2, len(content) - 1)]
    flipped = []
    for bit in rng.integers(8 * len(content), size=200):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << (bit % 8)
        flipped.append(bytes(changed))
    for bad in [*cut, *flipped, content + b"x", b"\0" * 200]:
        with pytest.raises(BadInputError, match="damaged"):
            decode(bad)


def test_only_missing_and_damaged_runs_are_played(tmp_path, expected, capfd):
    assert sweep(toys(), tmp_path, play_here).played == 4
    assert numbers(tmp_path) == expected
    first, second, third, fourth = (tmp_path / file_name(run) for run in toys().runs)
    untouched = third.stat().st_mtime_ns, fourth.stat().st_mtime_ns
    first.unlink()
    second.write_bytes(second.read_bytes()[:-100])
    capfd.readouterr()
    tally = sweep(toys(), tmp_path, play_here)
    assert (tally.kept, tally.played, len(tally.damaged)) == (2, 2, 1)
    assert f"{second.name}: damaged" in capfd.readouterr().err
    assert numbers(tmp_path) == expected
    assert (third.stat().st_mtime_ns, fourth.stat().st_mtime_ns) == untouched
    assert sweep(toys(), tmp_path, play_here).played == 0


def test_a_file_under_a_wrong_name_is_not_believed(tmp_path, expected):
    sweep(toys(), tmp_path, play_here)
    first, second, *_ = (tmp_path / file_name(run) for run in toys().runs)
    second.write_bytes(first.read_bytes())
    assert sweep(toys(), tmp_path, play_here).damaged == [f"{second}: holds another run"]
    assert numbers(tmp_path) == expected


def test_damage_is_one_line_when_a_result_is_read(tmp_path):
    sweep(toys(1), tmp_path, play_here)
    (path,) = tmp_path.glob("*.nc")
    assert [settings for settings, _ in load_runs(tmp_path)] == [toy(0)]
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(BadInputError, match=rf"^{path}: damaged, .*makes it again$"):
        list(load_runs(tmp_path))
    with pytest.raises(BadInputError, match="no such directory"):
        list(load_runs(tmp_path / "nothing"))


def test_results_may_be_copied_into_a_larger_plan(tmp_path, expected):
    sweep(toys(2), tmp_path / "small", play_here)
    (tmp_path / "large").mkdir()
    for path in (tmp_path / "small").glob("*.nc"):
        (tmp_path / "large" / path.name).write_bytes(path.read_bytes())
    assert sweep(toys(4), tmp_path / "large", play_here).played == 2
    assert numbers(tmp_path / "large") == expected


def test_the_directory_of_another_plan_is_refused(tmp_path):
    sweep(toys(2), tmp_path, play_here)
    before = numbers(tmp_path)
    with pytest.raises(BadInputError, match=r"belongs to another plan \(0 of its runs .* 1 are new\): choose another"):
        sweep(toys(3), tmp_path, play_here)
    assert numbers(tmp_path) == before
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(BadInputError, match=r"plan\.json: line 1"):
        sweep(toys(2), tmp_path, play_here)
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(BadInputError, match="not a file of this program"):
        sweep(toys(2), tmp_path, play_here)


def test_a_problem_file_that_changed_is_another_plan(tmp_path):
    path = tmp_path / "p.json"
    assert command(["env", "export", "env:swirl?depth=3", "--out", str(path)]) == 0
    out = tmp_path / "out"
    sweep(plan_runs([toy(model=str(path))]), out, play_here)
    assert command(["env", "export", "env:swirl?depth=4", "--out", str(path)]) == 0
    with pytest.raises(BadInputError, match="was a different problem when this began"):
        sweep(plan_runs([toy(model=str(path))]), out, play_here)


def test_closed_directories_are_refused_before_anything_is_played(tmp_path, monkeypatch):
    def nobody(units):
        raise AssertionError("nothing may be played")

    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "sub", Path("/proc/nothing")):
        with pytest.raises(BadInputError, match="choose another --out"):
            sweep(toys(1), out, nobody)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # tests may run as root, whom no mode stops
    with pytest.raises(BadInputError, match="cannot be written to"):
        sweep(toys(1), tmp_path, nobody)


def test_a_full_disk_loses_nothing_that_was_finished(tmp_path, monkeypatch, expected):
    room, real = ["the plan", "a run", "another run"], os.fsync

    def fsync(handle):
        if stat.S_ISREG(os.fstat(handle).st_mode) and not (room and room.pop()):  # directories are synced, too
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(DiskError, match="no space left on device: make room and run the same command again") as caught:
        sweep(toys(), tmp_path, play_here)
    assert caught.value.exit_code == 74
    assert len(list(tmp_path.iterdir())) == 3, "no temporary file stays"
    room.extend(["the plan", "a run", "another run"])
    assert sweep(toys(), tmp_path, play_here).played == 2
    assert numbers(tmp_path) == expected


def test_leftovers_of_killed_writers_are_removed_when_they_are_old(tmp_path):
    name = file_name(toy(0))
    old, fresh, other = (tmp_path / f".{n[:40]}.{k}bcdefgh" for k, n in enumerate((name, name, "notes")))
    for path in (old, fresh, other):
        path.write_text("half")
    for path in (old, other):
        os.utime(path, (time.time() - 7200,) * 2)
    sweep(toys(1), tmp_path, play_here)
    assert [path.exists() for path in (old, fresh, other)] == [False, True, True]


# processes


def test_processes_give_the_same_bits(tmp_path, expected):
    tally = sweep(toys(), tmp_path / "two", TWO_WORKERS)
    assert (tally.played, tally.failures) == (4, [])
    sweep(toys(), tmp_path / "one", partial(play_in_processes, workers=1))
    assert numbers(tmp_path / "two") == numbers(tmp_path / "one") == expected


def test_a_problem_from_a_file_travels_with_its_runs(tmp_path, monkeypatch):
    path = tmp_path / "p.json"
    assert command(["env", "export", "env:swirl?depth=3", "--out", str(path)]) == 0
    plan = plan_runs([toy(model=str(path))])
    path.unlink()
    assert sweep(plan, tmp_path / "out", TWO_WORKERS).played == 1


def test_a_worker_that_dies_is_replaced_once(tmp_path):
    marker = tmp_path / "trap"
    marker.write_text("")
    plan = plan_runs([toy(0, trap=str(marker)), toy(1)])
    tally = sweep(plan, tmp_path / "out", partial(play_in_processes, workers=1))
    assert not marker.exists(), "the trap has snapped"
    assert (tally.played, tally.failures) == (2, [])


def test_what_fails_twice_is_reported_and_the_rest_goes_on(tmp_path, capfd):
    plan = plan_runs([toy(0, trap=trap) for trap in ("die", "raise", "refuse", "crash")] + [toy(1)])
    tally = sweep(plan, tmp_path, partial(play_in_processes, workers=1))
    assert (tally.played, len(tally.failures)) == (1, 4)
    assert [path.name for path in tmp_path.glob("*.nc")] == [file_name(toy(1))]
    log = (tmp_path / "failures.log").read_text()
    assert "trap=die" in log
    assert "its worker process died (signal 9)" in log
    assert "ZeroDivisionError: the toy is broken" in log
    assert log.count("Traceback") == 2, "of the exception and of the refusal"
    assert "Fatal Python error: Segmentation fault" in log
    assert "in make_toy" in log
    assert tally.exit_code == 70
    assert "failed: model=env:swirl?depth=3 agent=toy epsilon=0.1 trap=raise" in capfd.readouterr().err
    with pytest.raises(BellmanifoldError, match="4 of 5 runs failed") as caught:
        require_success(tally)
    assert caught.value.exit_code == 70


def test_failures_have_the_exit_code_they_agree_on(tmp_path):
    tally = sweep(plan_runs([toy(k, trap="refuse") for k in range(2)]), tmp_path, play_here)
    assert tally.exit_code == 3
    with pytest.raises(BellmanifoldError, match="the toy cannot play this: use q-learning") as caught:
        require_success(tally)
    assert caught.value.exit_code == 3


def test_workers_that_cannot_start_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("multiprocessing.spawn._python_exe", b"/bin/false")
    with pytest.raises(BellmanifoldError, match="no worker process can start"):
        sweep(toys(), tmp_path, TWO_WORKERS)


@pytest.mark.slow
def test_numbers_do_not_depend_on_the_number_of_cores(tmp_path):
    """`sweep` on one core and `learn` on all there are, to the bit. (XLA's own threads change last bits here.)"""
    given = {"model": "env:deep-sea?depth=8", "agent": "manifold", "episodes": 6}
    plan = tmp_path / "plan.toml"
    plan.write_text("seeds = 0\n" + "".join(f"{key} = {value!r}\n" for key, value in given.items()))
    one_core = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]
    subprocess.run([*one_core, *PROGRAM, "sweep", str(plan), "--out", str(tmp_path / "one")], check=True)
    learn_it = [*PROGRAM, "learn", given["model"], "--agent", "manifold", "--episodes", "6", "--runs", "1"]
    subprocess.run([*learn_it, "--out", str(tmp_path / "all")], check=True)
    assert len(numbers(tmp_path / "all")) == 1
    assert numbers(tmp_path / "one") == numbers(tmp_path / "all")


# the command, killed and interrupted


def write_plan(tmp_path, count=6, pause=0.1):
    text = f"model = 'env:swirl?depth=3'\nagent = ['toy', 'plain']\nepsilon = 0.1\nepisodes = 5\npause = {pause}\n"
    path = tmp_path / "plan.toml"
    path.write_text(text + f"seeds = {list(range(count))}\n")
    return path


def start(*arguments):
    """The command in a process group of its own, as a terminal would start it."""
    return subprocess.Popen(
        [*PROGRAM, *map(str, arguments)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    )


def wait_for_files(out, count, limit=30.0):
    deadline = time.monotonic() + limit
    while len(list(Path(out).glob("*.nc"))) < count:
        assert time.monotonic() < deadline, "nothing was written in time"
        time.sleep(0.02)


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_playing(pid):
    """Is it a worker that has gone to sleep in the toy's pause, with its thread that watches the parent?"""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        command_line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"spawn_main" in command_line and "Threads:\t1\n" not in status and "State:\tS" in status


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_kill_and_resume_gives_the_same_bits(tmp_path, capfd):
    """`kill -9` in the middle: what was written is whole, and the same command finishes the plan."""
    plan, out = write_plan(tmp_path), tmp_path / "out"
    first = start("sweep", plan, "--out", out, "--workers", 2)
    wait_for_files(out, 2)
    first.kill()
    first.communicate()
    survivors = numbers(out)
    assert 2 <= len(survivors) < 12
    assert command(["sweep", str(plan), "--out", str(out), "--workers", "1"]) == 0
    assert f"12 runs in {out}" in capfd.readouterr().out
    sweep(read_plan(plan), tmp_path / "whole", play_here)
    whole = numbers(tmp_path / "whole")
    assert len(whole) == 12
    assert numbers(out) == whole
    assert survivors.items() <= whole.items()


def test_workers_end_when_their_parent_is_killed(tmp_path):
    """... at once, though the run they play would take minutes."""
    process = start("sweep", write_plan(tmp_path, count=2, pause=60), "--out", tmp_path / "out")
    deadline = time.monotonic() + 60
    while not (workers := [pid for pid in children_of(process.pid) if is_playing(pid)]):
        assert time.monotonic() < deadline, "no worker plays"
        time.sleep(0.02)
    process.kill()
    process.wait()  # its pipes stay open as long as its workers live
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in workers):
        assert time.monotonic() < deadline, "orphans go on"
        time.sleep(0.02)
    process.communicate()


def test_interruption_is_clean_and_says_how_to_go_on(tmp_path):
    plan, out = write_plan(tmp_path), tmp_path / "out"
    process = start("sweep", plan, "--out", out)
    wait_for_files(out, 1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the worker, too
    printed, complaint = process.communicate(timeout=20)
    assert process.returncode == 130
    assert printed == ""
    assert complaint.splitlines()[-1].startswith("bellmanifold: interrupted: ")
    assert f"of 12 runs are in {out}; run the same command again to resume" in complaint
    assert "Traceback" not in complaint
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


def test_interruption_in_python(tmp_path):
    def interrupted(units):
        yield units[0], next(play_here(units))[1]
        raise KeyboardInterrupt

    with pytest.raises(StoppedError, match="1 of 4 runs are in"):
        sweep(toys(), tmp_path, interrupted)


def test_two_sweeps_at_once_do_no_harm(tmp_path, expected):
    """One sweep is in the middle of its second run when another one plays the whole plan."""

    def disturbed(units):
        first, second, *others = play_here(units)
        yield first
        assert sweep(toys(), tmp_path, play_here).played == 3
        yield from (second, *others)

    assert sweep(toys(), tmp_path, disturbed).played == 4
    assert numbers(tmp_path) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("PLAN",), "--out"),
        (("PLAN", "--out", "x", "--workers", "0"), "--workers is 0"),
        (("PLAN", "--out", "x", "--workers", "1", "--dask", "tcp://h:1"), "--workers and --dask contradict"),
        (("nothing.toml", "--out", "x"), "nothing.toml: no such file"),
        (("PLAN", "--out", "PLAN"), "cannot be made: file exists"),
    ],
)
def test_wrong_commands_are_one_line(tmp_path, capfd, arguments, message):
    plan = str(write_plan(tmp_path))
    code = command(["sweep", *(plan if a == "PLAN" else a for a in arguments)])
    out, err = capfd.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_dry_run_lists_and_estimates_and_writes_nothing(tmp_path, capfd):
    plan, out = write_plan(tmp_path, count=2, pause=0.02), tmp_path / "out"
    plan.write_text(plan.read_text() + "[[override]]\nmatch = {seeds = 1}\ntrap = 'refuse'\n")
    assert command(["sweep", str(plan), "--out", str(out), "--dry-run"]) == 0
    listed = capfd.readouterr().out.splitlines()
    assert not out.exists()
    assert len(listed) == 6
    assert listed[0] == "missing model=env:swirl?depth=3 agent=toy epsilon=0.1 pause=0.02 episodes=5 seed=0"
    assert "(refused: the toy cannot play this" in listed[1]
    assert listed[4] == "4 runs, 0 done, 4 to play"
    assert listed[5].startswith("roughly 1 s with --workers 1 (from 2 short trials, ")
    command(["sweep", str(plan), "--out", str(out)])
    capfd.readouterr()
    assert command(["sweep", str(plan), "--out", str(out), "--dry-run"]) == 0
    assert "3 done, 1 to play" in capfd.readouterr().out


def test_learn_keeps_its_runs_as_a_sweep_does(tmp_path, capfd):
    options = ["--agent", "bayes-td", "--runs", "2", "--seed", "3", "--episodes", "5", "--epsilon", "0.5", "--json"]
    learn_it = ["learn", "env:swirl?depth=3", *options, "--out", str(tmp_path / "learn")]
    assert command(learn_it) == 0
    assert json.loads(capfd.readouterr().out)["out"] == str(tmp_path / "learn")
    path = tmp_path / "plan.toml"
    path.write_text("model='env:swirl?depth=3'\nagent='bayes-td'\nepsilon=0.5\nepisodes=5\nseeds=[3, 4]\n")
    sweep(read_plan(path), tmp_path / "sweep", play_here)
    assert numbers(tmp_path / "learn") == numbers(tmp_path / "sweep")
    assert sweep(read_plan(path), tmp_path / "learn", play_here).kept == 2
    assert command([*learn_it, "--prior-scale", "2"]) == 0
    assert len(list((tmp_path / "learn").glob("*.nc"))) == 4, "other runs may be kept beside them"
    assert sweep(read_plan(path), tmp_path / "learn", play_here).kept == 2
    capfd.readouterr()
    for wrong, message in (("--noise-sd", "epsilon"), ("--infer-noise", "no option")):
        assert command([*learn_it[:-1], str(tmp_path / "new"), wrong, *(["1"] if wrong == "--noise-sd" else [])]) == 2
        out, err = capfd.readouterr()
        assert (out, err.count("\n"), message in err) == ("", 1, True)
    assert not (tmp_path / "new").exists()


def test_estimates_are_near_the_truth(tmp_path):
    """A toy that pauses 10 ms an episode: 100 episodes take a second, more if the machine is slow, never much less."""
    from bellmanifold_lab.sweeps.estimate import estimate

    slow = [toy(k, episodes=100, pause=0.01) for k in range(3)]
    plan = plan_runs([*slow, toy(0, episodes=50, pause=0.01)])
    about = estimate(plan, plan.runs, Store(tmp_path))
    assert about.tried == 2
    assert 3.5 <= about.total(plan.runs) < 14


# telling


def test_plain_progress_says_how_far_it_is(capfd):
    now = [0.0]
    assert type(show_progress(10, 2)) is Progress
    with Progress(10, 2, clock=lambda: now[0]) as progress:
        for _ in range(8):
            now[0] += 4.0
            progress.advance(1)
    assert capfd.readouterr().err.splitlines() == [
        "2 of 10 runs are already there",
        "5 of 10 runs done, about 20 s left",
        "8 of 10 runs done, about 8 s left",
        "10 of 10 runs done",
    ]


def test_the_time_left_counts_work_and_waits_for_some(capfd):
    """Of a hundred runs the last ninety cost a tenth of the others: the estimate knows, and is not given at once."""
    now, costs = [0.0], [10.0] * 10 + [1.0] * 90
    with Progress(100, 0, clock=lambda: now[0]) as progress:
        progress.expect(sum(costs))
        for cost in costs:
            now[0] += cost
            progress.advance(1, cost)
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "1 of 100 runs done, about 3 min left"
    assert "10 of 100 runs done, about 2 min left" in said
    with Progress(100, 0, clock=lambda: now[0]) as progress:
        now[0] += 30.0
        progress.advance(1)
    assert capfd.readouterr().err == "1 of 100 runs done\n"


def test_a_bar_on_a_terminal(tmp_path):
    """The command on a pseudo-terminal draws a bar with the number of runs."""
    import pty

    plan = write_plan(tmp_path, count=2, pause=0.01)
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*PROGRAM, "sweep", str(plan), "--out", str(tmp_path / "out")], stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        try:
            seen += os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    assert process.wait(20) == 0
    assert b"4/4" in seen
    assert "━".encode() in seen


def test_a_dry_run_of_what_is_done_counts_it_and_says_what_matched_nothing(tmp_path, capfd):
    plan, out = write_plan(tmp_path, count=2), tmp_path / "out"
    plan.write_text(plan.read_text() + "[[override]]\nmatch = {agent = 'rlsvi'}\nnoise_sd = 2\n")
    sweep(read_plan(plan), out, play_here)
    capfd.readouterr()
    assert command(["sweep", str(plan), "--out", str(out), "--dry-run"]) == 0
    told, noted = capfd.readouterr()
    assert told.splitlines()[-1] == "4 runs, 4 done, 0 to play"
    assert "override 1 matches no run" in noted
    assert noted.count("\n") == 1


def test_estimates_use_finished_runs_and_guess_what_there_is_no_time_to_try(tmp_path):
    """One run is there; its cell needs no trial, and the cells left over are like it, episode by episode."""
    from bellmanifold_lab.sweeps.estimate import estimate

    plan = plan_runs([toy(0), toy(1), toy(0, episodes=60), toy(0, model="env:two-state")])
    done, again, *others = plan.runs
    store = Store(tmp_path)
    store.path(done).write_bytes(encode(record_run(done)))
    took = float(load_run(store.path(done))["seconds_total"])
    about = estimate(plan, [again, *others], store, budget=-1.0)
    assert (about.found, about.tried, about.guessed) == (1, 0, 2)
    assert about.total([again, *others]) == pytest.approx(took * (1 + 10 + 1))
    nothing = estimate(plan, plan.runs, Store(tmp_path / "empty"), budget=-1.0)
    assert set(nothing.seconds.values()) == {None}


def test_workers_forget_problems_and_never_share_environments():
    """An environment has a state of its own, so only tables are kept, and not more than a few of them."""
    kept = {}
    plan = plan_runs([toy(0), toy(0, model="env:two-state"), toy(0)])
    for unit in units.units_of(plan, plan.runs):
        units.play_unit(unit, kept, most=1)
        assert list(kept) == [unit.model_digest]
    gymnasium.register(id="MaskedCorridor-v0", entry_point=Masked)
    try:
        entry = {"model": "gym:MaskedCorridor-v0", "agent": "q-learning", "episodes": 3, "seed": 0}
        stepped = plan_runs([make_settings(entry)])
        (unit,) = units.units_of(stepped, stepped.runs)
        assert units.play_unit(unit, kept)[0]["goal_reached"].values.all()
    finally:
        gymnasium.registry.pop("MaskedCorridor-v0")
    assert unit.model_digest not in kept


def test_results_of_other_problems_and_other_formats_are_not_believed(tmp_path):
    record, store, run = record_run(toy()), Store(tmp_path), toy()
    path = store.path(run)
    path.write_bytes(encode(record))
    assert store.fault(run, record.attrs["model_digest"]) is None
    assert store.fault(run, "0" * 64) == f"{path}: was made from another version of env:swirl?depth=3"
    path.write_bytes(encode(record.assign_attrs(format="bellmanifold.run/0")))
    with pytest.raises(BadInputError, match=r"not a result of the format .* made by another version; run it again"):
        load_run(path)
    entry = json.loads(record.attrs["settings"]) | {"episodes": -1}
    path.write_bytes(encode(record.assign_attrs(settings=json.dumps(entry))))
    with pytest.raises(BadInputError, match=r"episodes is .*-1.*: not the settings of a run; remove the file"):
        list(load_runs(tmp_path))


def test_an_array_too_large_to_be_read_is_refused(monkeypatch):
    content = encode(record_run(toy(episodes=300)))
    monkeypatch.setattr("bellmanifold.learning.netcdf.BYTES", replace(BYTES, default=1000))
    with pytest.raises(BadInputError, match=r"an array: .* bytes are above 1,000: .*BELLMANIFOLD_MAX_SIZE"):
        decode(content)


def test_a_folder_of_runs_that_lies_elsewhere_is_refused(tmp_path, capfd):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "elsewhere")
    assert command(["demo", "--out", str(tmp_path)]) == 2
    assert "runs: is a symbolic link: make it a folder" in capfd.readouterr().err
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_disk_that_is_full_before_the_first_run_exits_as_one_that_fills_up_later(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(DiskError, match="out: cannot be made: no space left on device: make room and run the same"):
        sweep(toys(1), tmp_path / "out", play_here)


def test_who_comes_second_writes_the_plan_if_the_first_has_not(tmp_path):
    """Somebody is there but was stopped before the plan was written: the second program's plan is the one kept."""
    with closing(Presence(tmp_path)) as first:
        first.share()
        assert sweep(toys(1), tmp_path, play_here).played == 1
        with pytest.raises(BadInputError, match="belongs to another plan"):
            sweep(toys(2), tmp_path, play_here)


def test_a_machine_without_dask_writes_the_same_bytes(monkeypatch):
    record = record_run(toy())
    content = encode(record)
    monkeypatch.setitem(sys.modules, "dask", None)
    assert encode(record) == content
