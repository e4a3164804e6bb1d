"""Sweeps on a Dask cluster: a real scheduler and real worker processes."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from distributed import Client
from test_sweep import numbers, start, toy, wait_for_files, write_plan
from toy_agents import play_here

import bellmanifold
from bellmanifold.cli.main import run as command
from bellmanifold.errors import BadInputError, BellmanifoldError
from bellmanifold_lab.sweeps.cluster import play_on_cluster
from bellmanifold_lab.sweeps.plan import plan_runs, read_plan
from bellmanifold_lab.sweeps.runner import sweep

pytestmark = pytest.mark.usefixtures("known_toys")


@contextmanager
def started(program, *arguments):
    """A Dask program with this package and the toy agents on its path."""
    places = (str(Path(__file__).parent), str(Path(bellmanifold.__file__).parent.parent))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
    process = subprocess.Popen(
        [sys.executable, "-m", f"distributed.cli.dask_{program}", *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for_address(described):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError):  # not there yet, or half written
            return json.loads(described.read_text())["address"]
        time.sleep(0.05)
    raise AssertionError("no scheduler")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The address of a scheduler with two workers, and the workers' processes."""
    home = tmp_path_factory.mktemp("dask")
    described = str(home / "scheduler.json")
    quiet = ("--no-dashboard", "--scheduler-file", described)
    alone = ("--nthreads", "1", "--no-nanny", "--local-directory", str(home))
    scheduler = started("scheduler", "--host", "127.0.0.1", "--port", "0", *quiet)
    with scheduler, started("worker", *alone, *quiet) as one, started("worker", *alone, *quiet) as two:
        address = wait_for_address(Path(described))
        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        yield address, (one, two)


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_gives_the_same_bits(cluster, tmp_path):
    """Failures are reported first, then one of two workers is killed after the third result."""
    address, (victim, _) = cluster
    failing = [toy(0, trap=trap) for trap in ("raise", "refuse")]
    tally = sweep(plan_runs([*failing, toy(1)]), tmp_path / "failing", partial(play_on_cluster, address=address))
    assert tally.played == 1
    assert sorted(failure.exit_code for _, failure in tally.failures) == [3, 70]
    assert "ZeroDivisionError: the toy is broken" in (tmp_path / "failing" / "failures.log").read_text()

    problem = tmp_path / "p.json"  # a file only this machine has
    assert command(["env", "export", "env:pyramid?depth=3", "--out", str(problem)]) == 0
    plan = plan_runs([toy(k, model=m, pause=0.02) for k in range(8) for m in ("env:swirl?depth=3", str(problem))])
    problem.unlink()

    def disturbed(units):
        for k, played in enumerate(play_on_cluster(units, address)):
            yield played
            if k == 2:
                victim.kill()

    tally = sweep(plan, tmp_path / "cluster", disturbed)
    assert (tally.played, tally.failures) == (16, [])
    assert victim.wait(10) != 0
    sweep(plan, tmp_path / "local", play_here)
    assert numbers(tmp_path / "cluster") == numbers(tmp_path / "local")


def test_the_command_on_a_cluster(cluster, tmp_path, capfd):
    address, _ = cluster
    plan = tmp_path / "plan.toml"
    plan.write_text("model = 'env:swirl?depth=3'\nagent = 'toy'\nepisodes = 3\nseeds = [0, 1]\n")
    assert command(["sweep", str(plan), "--out", str(tmp_path / "out"), "--dask", address]) == 0
    assert "2 played now" in capfd.readouterr().out


@pytest.mark.parametrize(
    "address",
    [
        "tcp://127.0.0.1:9",
        *(pytest.param(a, marks=pytest.mark.slow) for a in ("nonsense://x", "127.0.0.1:notaport")),
        "",
    ],
)
def test_an_address_without_a_scheduler_is_refused(address):
    with pytest.raises(BadInputError, match="no scheduler answers at") as caught:
        next(play_on_cluster([], address, patience=0.5))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_scheduler_without_workers_is_reported(tmp_path, capfd):
    """It is said, once, and the work begins when a worker comes."""
    described, said = tmp_path / "scheduler.json", ""
    place = ("--no-dashboard", "--scheduler-file", str(described))
    alone = ("--nthreads", "1", "--no-nanny", "--local-directory", str(tmp_path))
    with started("scheduler", "--host", "127.0.0.1", "--port", "0", *place):
        address = wait_for_address(described)
        with ThreadPoolExecutor(1) as pool:
            player = partial(play_on_cluster, address=address, without_workers=0.2)
            done = pool.submit(sweep, plan_runs([toy(0)]), tmp_path / "out", player)
            deadline = time.monotonic() + 30
            while "waiting for a worker" not in said and time.monotonic() < deadline:
                said += capfd.readouterr().err
                time.sleep(0.05)
            with started("worker", *alone, *place):
                assert done.result(60).played == 1
    assert f"`dask worker {address}`" in said


def test_a_scheduler_that_goes_is_reported(tmp_path, capfd):
    """It is killed after the first of many results; the command says so in one line, and what was finished is kept."""
    described = tmp_path / "scheduler.json"
    place = ("--no-dashboard", "--scheduler-file", str(described))
    alone = ("--nthreads", "1", "--no-nanny", "--local-directory", str(tmp_path))
    with (
        started("scheduler", "--host", "127.0.0.1", "--port", "0", *place) as scheduler,
        started("worker", *alone, *place),
    ):
        address = wait_for_address(described)

        def disturbed(units):
            for played in play_on_cluster(units, address):
                yield played
                scheduler.kill()

        with pytest.raises(BellmanifoldError, match="the Dask scheduler has gone: finished runs are kept"):
            sweep(plan_runs([toy(k, pause=0.2) for k in range(6)]), tmp_path / "out", disturbed)
    assert 1 <= len(numbers(tmp_path / "out")) < 6
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
def test_a_scheduler_that_is_restarted_costs_only_the_runs_in_flight(tmp_path):
    """Killed after two results, started again at the same address: the command ends, and goes on when given again."""
    described = tmp_path / "scheduler.json"
    place = ("--no-dashboard", "--scheduler-file", str(described))
    alone = ("--nthreads", "1", "--no-nanny", "--local-directory", str(tmp_path))
    plan, out = write_plan(tmp_path, count=10, pause=0.1), tmp_path / "out"
    with (
        started("scheduler", "--host", "127.0.0.1", "--port", "0", *place) as scheduler,
        started("worker", *alone, *place) as worker,
    ):
        address = wait_for_address(described)
        first = start("sweep", plan, "--out", out, "--dask", address)
        wait_for_files(out, 2, limit=120.0)
        for process in (scheduler, worker):
            process.kill()
            process.wait()
        described.unlink()
        port = address.rpartition(":")[2]
        with (
            started("scheduler", "--host", "127.0.0.1", "--port", port, *place),
            started("worker", *alone, *place),
        ):
            assert wait_for_address(described) == address
            printed, complaint = first.communicate(timeout=120)
            assert (first.returncode, printed) == (70, "")
            assert "the Dask scheduler has gone: finished runs are kept, run the same command again" in complaint
            assert "Traceback" not in complaint, complaint
            kept = numbers(out)
            assert 2 <= len(kept) < 20
            again = start("sweep", plan, "--out", out, "--dask", address)
            printed, complaint = again.communicate(timeout=120)
            assert again.returncode == 0, complaint
            assert f"{20 - len(kept)} played now, {len(kept)} already there" in printed
    sweep(read_plan(plan), tmp_path / "whole", play_here)
    whole = numbers(tmp_path / "whole")
    assert kept.items() <= whole.items()
    assert numbers(out) == whole
