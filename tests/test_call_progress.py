"""How far a long call has come: what is said, when, and to whom; numbers do not depend on it."""

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr
from pathlib import Path

import nbclient
import nbformat
import numpy as np
import pytest

import bellmanifold as bm
import bellmanifold_paper as paper
from bellmanifold import envs
from bellmanifold._util import progress
from bellmanifold._util.progress import (
    Bar,
    CallProgress,
    Cell,
    Count,
    Display,
    Lines,
    advance,
    expect,
    show_count,
    show_progress,
)
from bellmanifold.learning.run import play_runs
from bellmanifold_paper.engines.gradient import Relaxed

SOURCE = str(Path(bm.__file__).parent.parent)


class Notes(Display):
    """A display that writes down what it is shown."""

    def __init__(self):
        self.said = []

    def open(self, title):
        self.said.append(title)

    def show(self, count):
        self.said.append(count.words().split(",  ")[0])

    def close(self, finished=True):
        self.said.append("closed" if finished else "stopped")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_counts_are_shown_after_a_while_only():
    notes = Notes()
    with CallProgress("weighing", notes, patience=3600.0) as quick:
        quick.expect("points", 10)
        quick.advance("points", 5)
    assert notes.said == []
    with CallProgress("weighing", notes, patience=0.0) as slow:
        slow.expect("points", 10)
        slow.advance("steps", 5)
        slow.advance("points", 10)
    assert notes.said == ["weighing", "0 of 10 points", "10 of 10 points", "closed"]


def test_an_interrupt_is_not_taken_for_the_end():
    notes = Notes()
    stopped = CallProgress("weighing", notes, patience=0.0)
    stopped.expect("points", 10)
    stopped.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert notes.said[-1] == "stopped"


def test_an_estimate_of_what_is_left():
    count = Count("episodes", done=25.0, total=100.0, began=time.monotonic() - 10.0)
    assert count.words() in ("25 of 100 episodes, about 30 s left", "25 of 100 episodes, about 31 s left")
    later = Count("episodes", done=75.0, total=100.0, first=50.0, began=time.monotonic() - 10.0)
    assert later.words() in ("75 of 100 episodes, about 10 s left", "75 of 100 episodes, about 11 s left")
    assert Count("points", done=3000.0).words() == "3,000 points"
    assert Count("points", done=12.0, total=10.0).words() == "12 of 12 points"
    assert Count().words() == ""


def test_no_estimate_before_a_few_steps_and_none_from_a_compiled_program():
    """The first of four steps waits for a compiler, the others take a second each: three seconds are left, not more."""
    said = []

    class Slow(Notes):
        def show(self, count):
            said.append(count.words())

    with CallProgress("weighing", Slow(), patience=0.0) as slow:
        slow.expect("points", 600)
        slow.count.began -= 3600.0  # an hour for the compiler
        slow.advance("points", 100)
        for _ in range(2):
            slow.count.began -= 1.0
            slow.advance("points", 100)
    assert said[:3] == ["0 of 600 points", "100 of 600 points", "200 of 600 points"]
    assert said[3] in ("300 of 600 points, about 3 s left", "300 of 600 points, about 4 s left")


def in_notebook(*cells):
    """The outputs of cells that run in a kernel."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells])
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    return [cell.outputs for cell in notebook.cells]


def test_long_calls_say_so_in_a_notebook_even_while_nothing_is_counted():
    """A silent call is shown, too; what is left at the end is a line that says how long it took, nothing empty."""
    (first, second) = in_notebook(
        "import time\nfrom bellmanifold._util.progress import show_progress\n"
        "with show_progress('compiling'):\n    time.sleep(2.5)",
        "import bellmanifold as bm\nwith show_progress('looking'):\n    pass",
    )
    assert [output.output_type for output in first] == ["display_data"]
    assert first[0].data["text/plain"] == "compiling took 3 s"
    assert second == []


def test_chains_say_how_far_they_have_come():
    model = envs.deep_sea(2)
    data = bm.Dataset.from_pairs(model, [("0,0", "right")])
    units = []

    class Units(Notes):
        def show(self, count):
            units.append((count.unit, count.done, count.total))

    def listened(work):
        units.clear()
        with progress._listening(CallProgress("all", Units(), patience=0.0)):
            work()
        return list(units)

    chains = listened(lambda: paper.sample_chains(model, data, Relaxed(0.5), chains=4, draws=50))
    assert chains == [("steps", 0, 1050), ("steps", 1000, 1050), ("steps", 1050, 1050)]


def test_nobody_listens_by_default(capfd):
    expect("points", 10)
    advance("points")
    with show_progress("working"):
        expect("points", 10)
    assert capfd.readouterr() == ("", "")


def test_lines_where_they_are_asked_for(capfd):
    lines = Lines()
    lines.open("weighing")
    lines.show(Count())
    lines.show(Count("points", 1.0, 2.0))  # too soon
    lines.last -= progress.BETWEEN_LINES
    lines.show(Count("points", 2.0, 2.0))
    lines.close()
    assert capfd.readouterr() == ("", "weighing ...\nweighing: 2 of 2 points\n")


def test_a_bar_on_a_terminal():
    terminal = Terminal()
    with redirect_stderr(terminal), CallProgress("weighing", Bar(), patience=0.0) as bar:
        bar.expect("points", 4)
        bar.advance("points", 1)
    assert "weighing" in terminal.getvalue()
    assert "1 of 4 points" in terminal.getvalue()


def test_a_bar_appears_although_nothing_is_said():
    terminal = Terminal()
    with redirect_stderr(terminal), CallProgress("compiling", Bar(), patience=0.05):
        time.sleep(0.5)
    assert "compiling" in terminal.getvalue()


def test_work_goes_on_when_the_display_fails():
    class Broken(Notes):
        def show(self, count):
            raise BrokenPipeError

    with CallProgress("weighing", Broken(), patience=0.0) as broken:
        broken.expect("points", 4)
        broken.advance("points", 1)
    assert broken.display is None


def test_only_the_outermost_call_shows():
    terminal = Terminal()
    with redirect_stderr(terminal), show_progress("outside"):
        outer = progress._current.get()
        with show_progress("inside"):
            assert progress._current.get() is outer
        with show_count("counting", "runs", 3) as one_more:
            expect("points", 10)
            one_more()
            one_more(2)
    assert progress._current.get() is None
    assert "runs" not in terminal.getvalue()


def test_a_line_in_a_notebook():
    shown = []

    class Handle:
        def update(self, line, raw):
            shown.append(re.sub("</?small[^>]*>", "", line["text/html"]))

    cell = Cell()
    cell.title, cell.handle = "weighing", Handle()
    cell.show(Count("points", 1.0, 4.0, 0.0, time.monotonic() - 10.0))
    cell.show(Count("points", 2.0, 4.0))  # too soon
    cell.last = 0.0
    cell.show(Count("points", 2.0))
    cell.close()
    cell.close(finished=False)
    assert shown == [
        'weighing <progress value="0.2500"></progress> 1 of 4 points, about 31 s left',
        "weighing <progress></progress> 2 points",
        "weighing took 1 s",
        "weighing stopped after 1 s",
    ], "the last line stays, and is not empty"


@pytest.mark.parametrize("progress", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_numbers_do_not_depend_on_it(progress, capfd):
    model = envs.deep_sea(3)
    data = bm.Dataset.from_pairs(model, [("0,0", "right"), ("1,1", "left")])
    one, other = (bm.posterior(model, data, progress=asked) for asked in (progress, None))
    assert one.to_dict() == other.to_dict()
    one, other = (bm.advise(model, data, progress=asked).to_dict() for asked in (progress, None))
    assert one == other
    runs = [bm.learn(model, "manifold", 3, 2, progress=asked).runs for asked in (progress, None)]
    for one, other in zip(*runs, strict=True):
        np.testing.assert_array_equal(one.regret, other.regret)
    assert capfd.readouterr().out == ""


def test_runs_say_when_an_episode_was_played():
    counts = []
    list(play_runs(envs.two_state(), "bayes-td", 2, [0, 1], after_episode=counts.append))
    assert counts == [1, 1, 1, 1]
    counts.clear()
    list(play_runs(envs.two_state(), "bayes-br-hmc", 1, [0, 1, 2], after_episode=counts.append))
    assert sum(counts) == 3, "runs that are played in step count if they are wanted"


def in_terminal(*arguments, until=None):
    """Run a command with stderr on a terminal and stdout in a pipe: exit code, stdout, what the terminal saw."""
    leader, follower = pty.openpty()
    environment = dict(os.environ, PYTHONPATH=SOURCE, TERM="xterm", COLUMNS="100")
    command = [sys.executable, "-m", "bellmanifold", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, env=environment)
    os.close(follower)
    seen, asked = b"", False
    deadline = time.monotonic() + 120.0
    while time.monotonic() < deadline:
        ready, _, _ = select.select([leader], [], [], 0.2)
        if ready:
            try:
                seen += os.read(leader, 65536)
            except OSError:
                break
        elif process.poll() is not None:
            break
        if until is not None and until in seen and not asked:
            asked = True
            process.send_signal(signal.SIGINT)
    out = process.stdout.read()
    return process.wait(timeout=60), out.decode(), seen.decode(errors="replace")


def test_ctrl_c_leaves_one_clear_line_and_nothing_half_written(tmp_path):
    out = tmp_path / "runs"
    arguments = [
        "learn",
        "env:deep-sea?depth=6",
        "--agent",
        "bayes-br",
        "--episodes",
        "100000",
        "--runs",
        "1",
        "--json",
    ]
    code, stdout, seen = in_terminal(*arguments, "--out", str(out), until=b"episodes")
    assert code == 130
    assert stdout == ""
    last = seen.replace("\r", "\n").strip().splitlines()[-1]
    assert "interrupted: 0 of 1 runs are in" in seen
    assert "Traceback" not in seen
    assert last.strip().endswith("the same command plays only the others")
    assert not list(out.rglob("*.nc"))
