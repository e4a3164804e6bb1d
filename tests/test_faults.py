"""Pulling the plug: programs killed, disks full or closed, clocks wrong, files damaged, others in the same directory.

Expected everywhere: nothing is lost that was reported as done, nothing wrong is accepted, and the same command given
again ends with the bits of a sweep that nothing happened to. `docs/reliability.md` lists fault, expectation and test.
"""

import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from test_sweep import PROGRAM, numbers, start, toy, toys, write_plan
from toy_agents import play_here, record_run

from bellmanifold._util.stderr import remark
from bellmanifold.errors import BadInputError
from bellmanifold.io.files import write_atomically
from bellmanifold.learning.run_file import encode, load_run, verify
from bellmanifold_lab.sweeps.locks import Presence
from bellmanifold_lab.sweeps.plan import plan_runs, read_plan
from bellmanifold_lab.sweeps.runner import sweep
from bellmanifold_lab.sweeps.store import PLAN_FILE, Store

KILLS = 50

pytestmark = pytest.mark.usefixtures("known_toys")


def undisturbed(plan, out):
    """What a sweep of a plan file gives that nothing happens to."""
    sweep(read_plan(plan), out, play_here)
    return numbers(out)


def environment(**more):
    """Of a program that finds the toys, and whatever else lies beside them."""
    places = (*more.pop("places", ()), str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))} | more


# killed

WRITER = """
import os, signal, sys
from pathlib import Path
from bellmanifold.io.files import write_atomically

target = Path(sys.argv[1])

def killing_at(number):
    seen = 0
    def trace(frame, event, argument):
        nonlocal seen
        if frame.f_code is not write_atomically.__code__:
            return None
        seen += event == "line"
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace
    return trace

for number in range(1, 100):
    target.write_bytes(b"old")
    child = os.fork()
    if child == 0:
        sys.settrace(killing_at(number))
        write_atomically(target, lambda file: file.write(b"new" * 100000))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print({b"old": "old", b"new" * 100000: "new"}.get(target.read_bytes(), "damaged"))
    if status == 0:
        break
"""


def test_a_writer_killed_at_any_line_leaves_the_old_file_or_the_new_one(tmp_path):
    """... and never loses the new one again once it is there."""
    done = subprocess.run([sys.executable, "-c", WRITER, tmp_path / "file"], capture_output=True, text=True, check=True)
    states = done.stdout.split()
    assert states == sorted(states, reverse=True), "first old, then new"
    assert set(states) == {"old", "new"}
    assert len(states) > 10, "every line was a moment to be killed at"
    assert all(path.name == "file" or path.name.startswith(".file.") for path in tmp_path.iterdir())


def test_a_file_is_reported_only_when_it_outlasts_a_power_failure(tmp_path, monkeypatch):
    """Its content is synced before it gets its name, and its directory afterwards, before anybody hears of it."""
    steps = []
    sync, rename = os.fsync, os.replace

    def noticed(handle):
        steps.append("directory" if stat.S_ISDIR(os.fstat(handle).st_mode) else "content")
        sync(handle)

    monkeypatch.setattr(os, "fsync", noticed)
    monkeypatch.setattr(os, "replace", lambda *names: (steps.append("name"), rename(*names)))
    write_atomically(tmp_path / "file", lambda file: file.write(b"new"))
    assert steps == ["content", "name", "directory"]


TELLING = """
from toy_agents import PLAIN, TOY
from bellmanifold.agents.registry import AGENTS
from bellmanifold.cli.main import main
from bellmanifold_lab.sweeps import progress

progress.SECONDS_BETWEEN_LINES = 0.0
AGENTS.update({"toy": TOY, "plain": PLAIN})
main()
"""


def start_telling(*arguments):
    """The command, in a process group of its own; it reports every run as soon as it is done."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", TELLING, *map(str, arguments)]
    return subprocess.Popen(command, **pipes, process_group=0, env=environment())


def wait_for_news(process, out, before):
    """Until a file more is there, or the process has ended."""
    while process.poll() is None and len(list(out.glob("*.nc"))) <= before:
        time.sleep(0.005)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_at_fifty_moments_a_sweep_loses_nothing(tmp_path, workers):
    """`kill -9` of the whole process group, at random moments of its first 4 s or just after a file was written."""
    rng = np.random.default_rng(20261115 + workers)
    plan, out = write_plan(tmp_path, count=40, pause=0.01), tmp_path / "out"
    expected = undisturbed(plan, tmp_path / "whole")
    before, kills, laps = {}, 0, 0
    while kills < KILLS:
        process = start_telling("sweep", plan, "--out", out, "--workers", workers)
        if kills % 2:
            wait_for_news(process, out, len(before))
            time.sleep(rng.uniform(0, 0.2))
        else:
            time.sleep(rng.uniform(0, 4.0))
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        _, told = process.communicate()
        after = {path.name: path.read_bytes() for path in out.glob("*.nc")}
        assert before.items() <= after.items(), "what was there is there, to the byte"
        for content in after.values():
            verify(content)
        reported = [int(number) for number in re.findall(r"(\d+) of 80 runs", told)]
        assert max(reported, default=0) <= len(after), "what was reported as done is there"
        if process.returncode == 0:  # it was quicker than we: from the beginning
            assert numbers(out) == expected
            shutil.rmtree(out)
            after, laps = {}, laps + 1
        else:
            assert process.returncode == -signal.SIGKILL, told
            kills += 1
        before = after
    assert laps < 10, "most of the kills should hit"
    subprocess.run([*PROGRAM, "sweep", str(plan), "--out", str(out)], check=True, capture_output=True)
    assert numbers(out) == expected


# disks


def test_files_that_may_not_grow_are_a_full_disk(tmp_path):
    """Every result is larger than the limit: writing ends in the middle of a file, of which nothing stays."""
    plan, out = write_plan(tmp_path, count=1, pause=0), tmp_path / "out"
    command = ["prlimit", "--fsize=8192", *PROGRAM, "sweep", str(plan), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (74, "")
    remedy = "file too large: make room and run the same command again, finished runs are kept"
    assert done.stderr.splitlines()[-1].endswith(remedy)
    assert "Traceback" not in done.stderr
    assert [path.name for path in out.iterdir()] == [PLAN_FILE]
    assert sweep(read_plan(plan), out, play_here).played == 2


def in_a_namespace(script, **words):
    """Run a shell script that may mount file systems, which nobody else sees and which end with it.

    Skips where the system allows no such thing, neither to root nor by a user namespace.
    """
    private = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    try:
        allowed = subprocess.run([*private, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    except OSError:
        pytest.skip("there is no unshare here")
    if allowed.returncode != 0:
        pytest.skip("nobody may mount file systems here")
    lines = [f"{name}={shlex.quote(str(word))}" for name, word in words.items()]
    program = f'program() {{ {shlex.join(PROGRAM)} "$@"; }}'
    return subprocess.run([*private, "sh", "-c", "\n".join([*lines, program, script])], check=True, timeout=120)


@pytest.mark.slow
def test_a_log_on_a_full_disk_stops_nothing(tmp_path):
    """Progress cannot be written down: the runs are, and the exit code says what became of them."""
    plan, out = write_plan(tmp_path, count=1, pause=0), tmp_path / "out"
    with open("/dev/full", "w") as log:
        done = subprocess.run([*PROGRAM, "sweep", plan, "--out", out], stderr=log, stdout=subprocess.PIPE, check=False)
        wrong = subprocess.run([*PROGRAM, "sweep", plan, "--out", plan], stderr=log, check=False)
    assert (done.returncode, wrong.returncode) == (0, 2)
    assert b"2 played now" in done.stdout
    assert len(numbers(out)) == 2


@pytest.mark.slow
def test_a_full_disk_keeps_what_was_finished(tmp_path):
    """A file system of 64 KiB holds the plan and two results. It is made larger, and the same command goes on."""
    plan, disk = write_plan(tmp_path, count=2, pause=0), tmp_path / "disk"
    disk.mkdir()
    in_a_namespace(
        """
        mount -t tmpfs -o size=64k none $disk
        program sweep $plan --out $disk/out --workers 2 2> $here/complaint; echo $? > $here/code
        cp -r $disk/out $here/first
        mount -o remount,size=10m $disk
        program sweep $plan --out $disk/out > $here/second.txt 2> /dev/null; cp -r $disk/out $here/second
        """,
        disk=disk,
        plan=plan,
        here=tmp_path,
    )
    assert (tmp_path / "code").read_text() == "74\n"
    last = (tmp_path / "complaint").read_text().splitlines()[-1]
    assert last.endswith("no space left on device: make room and run the same command again, finished runs are kept")
    first = numbers(tmp_path / "first")
    assert 0 < len(first) < 4
    assert len(list((tmp_path / "first").iterdir())) == len(first) + 1, "no temporary file stays"
    assert f"{4 - len(first)} played now, {len(first)} already there" in (tmp_path / "second.txt").read_text()
    expected = undisturbed(plan, tmp_path / "whole")
    assert numbers(tmp_path / "second") == expected
    assert first.items() <= expected.items()


@pytest.mark.slow
def test_a_disk_without_room_for_a_directory_is_full(tmp_path):
    """Not a single inode is left, so --out itself cannot be made: the disk is to blame, not the name."""
    plan, disk = write_plan(tmp_path, count=1, pause=0), tmp_path / "disk"
    disk.mkdir()
    script = """
        mount -t tmpfs -o nr_inodes=1 none $disk
        program sweep $plan --out $disk/out 2> $here/complaint; echo $? > $here/code
        """
    in_a_namespace(script, disk=disk, plan=plan, here=tmp_path)
    assert (tmp_path / "code").read_text() == "74\n"
    said = (tmp_path / "complaint").read_text()
    assert said.count("\n") == 1
    assert "cannot be made: no space left on device: make room" in said


@pytest.mark.slow
def test_a_closed_disk_is_refused_before_anything_is_played_and_in_the_middle(tmp_path):
    """Mounted for reading only: at the start (root, too, is refused), then after the first result of a sweep."""
    plan, disk = write_plan(tmp_path, count=6, pause=0.1), tmp_path / "disk"
    disk.mkdir()
    in_a_namespace(
        """
        mount -t tmpfs none $disk; mkdir $disk/out; mount -o remount,ro $disk
        program sweep $plan --out $disk/out 2> $here/start; echo $? > $here/codes
        mount -o remount,rw $disk
        program sweep $plan --out $disk/out 2> $here/middle & sweep=$!
        until ls $disk/out/*.nc > /dev/null 2>&1; do sleep 0.02; done
        until mount -o remount,ro $disk 2> /dev/null; do sleep 0.001; done
        wait $sweep; echo $? >> $here/codes
        cp -r $disk/out $here/first; mount -o remount,rw $disk
        program sweep $plan --out $disk/out > /dev/null 2>&1; cp -r $disk/out $here/second
        """,
        disk=disk,
        plan=plan,
        here=tmp_path,
    )
    assert (tmp_path / "codes").read_text().split() == ["2", "2"]
    assert (tmp_path / "start").read_text().endswith("cannot be written to: choose another --out, or allow writing\n")
    last = (tmp_path / "middle").read_text().splitlines()[-1]
    assert last.endswith("cannot be written: read-only file system: choose a place you may write to")
    first, expected = numbers(tmp_path / "first"), undisturbed(plan, tmp_path / "whole")
    assert 0 < len(first) < 12
    assert first.items() <= expected.items()
    assert numbers(tmp_path / "second") == expected


# clocks

BACKWARDS = """
import time

real, calls = time.time, 0

def backwards():
    global calls
    calls += 1
    return real() - 86400.0 * calls

time.time = backwards
time.time_ns = lambda: int(backwards() * 1e9)
"""


@pytest.mark.slow
def test_a_clock_that_goes_backwards_changes_nothing(tmp_path):
    """A day back whenever it is asked, in workers, too; half-written files of the future stay, results are the same."""
    plan, out = write_plan(tmp_path, count=2, pause=0), tmp_path / "out"
    (tmp_path / "sitecustomize.py").write_text(BACKWARDS)
    command = [*PROGRAM, "sweep", str(plan), "--out", str(out), "--workers", "2"]
    subprocess.run(command, check=True, capture_output=True, env=environment(places=[str(tmp_path)]))
    for path in out.iterdir():
        os.utime(path, (time.time() + 1e8,) * 2)
    assert sweep(read_plan(plan), out, play_here).kept == 4
    found = numbers(out)
    assert found == undisturbed(plan, tmp_path / "whole")
    for path in out.glob("*.nc"):
        assert (load_run(path).seconds_episode >= 0).all(), "durations come from a clock that cannot be set"


# company


@pytest.mark.slow
def test_two_programs_sweep_one_directory(tmp_path):
    plan, out = write_plan(tmp_path, count=4, pause=0.05), tmp_path / "out"
    both = [start("sweep", plan, "--out", out) for _ in range(2)]
    for process in both:
        printed, complaint = process.communicate(timeout=60)
        assert process.returncode == 0, complaint
        assert printed.startswith("8 runs in")
    assert numbers(out) == undisturbed(plan, tmp_path / "whole")
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


def test_another_plan_is_refused_while_the_first_has_nothing_to_show(tmp_path, capfd):
    """... as long as the first is being played; killed without a finished run, it has no claim any more."""
    (tmp_path / "other").mkdir()
    plan, other = write_plan(tmp_path, count=1, pause=60), write_plan(tmp_path / "other", count=2, pause=0)
    out = tmp_path / "out"
    first = start("sweep", plan, "--out", out)
    while not (out / PLAN_FILE).exists():
        assert first.poll() is None
        time.sleep(0.02)
    with pytest.raises(BadInputError, match="belongs to another plan"):
        sweep(read_plan(other), out, play_here)
    assert json.loads((out / PLAN_FILE).read_text())["runs"][0]["pause"] == 60
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert sweep(read_plan(other), out, play_here).played == 4


def test_of_two_plans_that_start_at_once_one_wins(tmp_path):
    """Both come to an empty directory at the same moment, thirty times."""

    def come(plan, out, doors, answers):
        doors.wait()
        try:
            with Store(out).claim(plan):
                answers.append("taken")
                doors.wait()
        except BadInputError:
            answers.append("refused")
            doors.wait()

    plans = toys(1), toys(2)
    for number in range(30):
        doors, answers = threading.Barrier(2), []
        those = (tmp_path / str(number), doors, answers)
        both = [threading.Thread(target=come, args=(plan, *those), daemon=True) for plan in plans]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join(30)
        assert sorted(answers) == ["refused", "taken"]


def test_of_plans_that_widen_a_directory_at_once_none_is_lost(tmp_path, monkeypatch):
    """Somebody is there already, so that nobody gets the directory alone; reading takes a while."""
    read = Store._read_plan

    def slowly(store):
        found = read(store)
        time.sleep(0.02)
        return found

    def come(plan, doors):
        doors.wait()
        with Store(tmp_path).claim(plan, widen=True):
            pass

    monkeypatch.setattr(Store, "_read_plan", slowly)
    doors = threading.Barrier(4)
    plans = [plan_runs([toy(seed)]) for seed in range(4)]
    threads = [threading.Thread(target=come, args=(plan, doors), daemon=True) for plan in plans]
    with closing(Presence(tmp_path)) as first:
        first.share()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sorted(run["seed"] for run in json.loads((tmp_path / PLAN_FILE).read_text())["runs"]) == [0, 1, 2, 3]
    assert [path.name for path in tmp_path.iterdir()] == [PLAN_FILE]


@pytest.mark.parametrize("gone", ["closed", "never there"])
def test_remarks_nobody_can_hear_change_nothing(gone, tmp_path, monkeypatch, capsys):
    file = (tmp_path / "log").open("w")
    file.close()
    monkeypatch.setattr(sys, "stderr", file if gone == "closed" else None)
    remark("going on")
    assert capsys.readouterr().out == ""


# damage


def flips(content):
    """The content with one bit flipped, for every bit."""
    changed = bytearray(content)
    for k in range(8 * len(content)):
        changed[k // 8] ^= 1 << (k % 8)
        yield bytes(changed)
        changed[k // 8] ^= 1 << (k % 8)


@pytest.mark.slow
def test_every_flipped_bit_and_every_cut_of_a_result_is_found():
    content = encode(record_run(toy()))
    verify(content)
    for damaged in flips(content):
        with pytest.raises(BadInputError, match="damaged"):
            verify(damaged)
    for length in range(len(content)):
        with pytest.raises(BadInputError, match="damaged"):
            verify(content[:length])


def test_every_flipped_bit_and_every_cut_of_a_plan_is_found_or_harmless(tmp_path):
    """Harmless: between the words, where it is the same plan still."""
    plan, store = plan_runs([toy(0)]), Store(tmp_path)
    sweep(plan, tmp_path, play_here)
    path = tmp_path / PLAN_FILE
    content = path.read_bytes()
    found = harmless = 0
    for damaged in [*flips(content), *(content[:length] for length in range(len(content)))]:
        path.write_bytes(damaged)
        try:
            assert store.compare(plan)
        except BadInputError:
            found += 1
        else:
            assert json.loads(damaged) == json.loads(content)
            harmless += 1
    assert found + harmless == 9 * len(content)
    assert harmless < 0.1 * found
