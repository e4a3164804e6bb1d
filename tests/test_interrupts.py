"""Ctrl-C that a library swallows: nothing that was computed after it is shown or kept, and the exit code is 130."""

import contextlib
import gc
import json
import signal
import sys
import time

import pytest
from toy_agents import play_here

import bellmanifold as bm
from bellmanifold._util.interrupts import interruptible
from bellmanifold.errors import StoppedError
from bellmanifold.learning import runs as learning
from bellmanifold.learning.run_settings import make_settings
from bellmanifold_lab.commands import demo
from bellmanifold_lab.sweeps.plan import plan_runs

SWIRL = "env:swirl?depth=3"


GOES_ON = "the same command plays only the others"


def swallow():
    """An interrupt that is noticed by nobody."""
    with contextlib.suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_that_is_swallowed_stops_at_the_end():
    with pytest.raises(StoppedError, match="interrupted: do it again"), interruptible("do it again"):
        swallow()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_is_lost_in_a_callback_comes_again(capfd):
    """What callbacks of the garbage collector raise is printed and forgotten by Python, and JAX has such a callback."""

    def callback(*_):
        gc.callbacks.remove(callback)
        signal.raise_signal(signal.SIGINT)

    before = sys.unraisablehook
    reached = []

    def work():
        gc.callbacks.append(callback)
        gc.collect()
        reached.append("after the callback")
        time.sleep(10.0)
        reached.append("the end")

    with pytest.raises(StoppedError, match="interrupted: do it again"), interruptible("do it again"):
        work()
    assert reached == ["after the callback"]
    assert capfd.readouterr().err == ""
    assert sys.unraisablehook is before


def test_other_exceptions_of_callbacks_are_still_told(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    def callback(*_):
        gc.callbacks.remove(callback)
        raise ValueError("of a callback")

    with interruptible("do it again"):
        gc.callbacks.append(callback)
        gc.collect()
    assert [str(what.exc_value) for what in told] == ["of a callback"]


def half_a_table():
    swallow()
    raise ValueError("half a table")


def test_what_fails_after_an_interrupt_is_the_interrupts_fault():
    with pytest.raises(StoppedError), interruptible("x"):
        half_a_table()


def test_other_faults_and_results_pass():
    with pytest.raises(ValueError, match="mine"), interruptible("x"):
        raise ValueError("mine")
    with interruptible("x") as require_none:
        require_none()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_posterior_prints_nothing(cli, tmp_path, monkeypatch):
    (tmp_path / "data.json").write_text('{"format": "bellmanifold.data/1", "observations": []}')

    def compute(problem, data, **options):
        swallow()
        return found

    found = bm.posterior(bm.envs.two_state(), bm.Dataset.from_pairs(bm.envs.two_state(), []))
    monkeypatch.setattr("bellmanifold.posteriors.inference.posterior", compute)
    code, out, err = cli("posterior", "env:two-state", str(tmp_path / "data.json"))
    assert (code, out) == (130, "")
    assert err == "bellmanifold: interrupted: run the same command again; nothing was printed\n"


def test_learn_keeps_the_runs_before_the_interrupt_alone(cli, tmp_path, monkeypatch):
    play_runs = learning.play_runs

    def interrupted(*arguments):
        for k, run in enumerate(play_runs(*arguments)):
            if k == 1:
                swallow()
            yield run

    monkeypatch.setattr(learning, "play_runs", interrupted)
    options = ("--agent", "bayes-td", "--episodes", "2", "--runs", "3", "--out", str(tmp_path / "out"))
    code, out, err = cli("learn", "env:two-state", *options)
    assert (code, out) == (130, "")
    assert err == f"bellmanifold: interrupted: 1 of 3 runs are in {tmp_path / 'out'}; {GOES_ON}\n"
    (first,) = (tmp_path / "out").glob("*.nc")
    before = first.stat().st_mtime_ns
    monkeypatch.undo()
    code, out, err = cli("learn", "env:two-state", *options, "--json")
    assert code == 0
    assert err == f"1 of 3 runs are in {tmp_path / 'out'} and are not played again\n"
    assert first.stat().st_mtime_ns == before
    assert len(list((tmp_path / "out").glob("*.nc"))) == 3
    again, whole = json.loads(out), bm.learn("env:two-state", "bayes-td", 2, 3).to_dict()
    clock = {"seconds": 0.0, "out": None}
    assert again | clock == whole | clock, "as if nothing had happened"


def test_learn_without_out_says_that_nothing_is_kept(cli, monkeypatch):
    monkeypatch.setattr(learning, "play_runs", lambda *_: swallow() or iter(()))
    code, out, err = cli("learn", "env:two-state", "--agent", "bayes-td", "--runs", "3")
    assert (code, out) == (130, "")
    said = "nothing is kept without --out; the same command plays all runs from the start"
    assert err == f"bellmanifold: interrupted: {said}\n"


def test_demo_says_how_to_go_on(capfd, tmp_path):
    plan = plan_runs([make_settings({"model": SWIRL, "agent": "bayes-td", "episodes": 2, "seed": 0})])
    with pytest.raises(StoppedError, match="run the same command again to resume"):
        demo.show(plan, tmp_path, play_here, improper=lambda model, run, pairs: swallow() or 0.0)
    assert "report" not in capfd.readouterr().out


def test_a_handler_of_the_programs_own_is_left_alone():
    """A program that uses the library may want Ctrl-C for itself, and another thread may not have it at all."""
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append("theirs"))
    try:
        with interruptible("go on"):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == ["theirs"]
