"""The same seed gives the same bits: with any number of workers, on a cluster, again, and with or without a cache."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from test_cluster import started, wait_for_address
from test_sweep import toy
from toy_agents import TOY, record_run

from bellmanifold.learning.run_file import encode, load_run

PLAN = """
model = ["env:deep-sea?depth=3", "env:swirl?depth=3"]
agent = ["bayes-br", "manifold", "bayes-td-max", "rlsvi"]
episodes = 6
seeds = [0, 1]

[[override]]
match = {agent = "manifold", seeds = 1}
explore = "directed"
replan = true
"""
LARGER = """
model = "env:deep-sea?depth=8"
agent = ["manifold", "bayes-td"]
episodes = 6
seeds = 0
"""


def without_clock(record):
    """The bytes of a record's file, had the clock stood still.

    The commit is left out, too: who works on this package may commit while a test runs.
    """
    clocks = [name for name in record.variables if "seconds" in str(name)]
    still = record.assign({name: xr.zeros_like(record[name]) for name in clocks})
    return encode(still.assign_attrs(commit="0" * 40))


def files(directory):
    """What the files of a directory would be, byte by byte, had the clock stood still."""
    return {path.name: without_clock(load_run(path)) for path in sorted(Path(directory).glob("*.nc"))}


def test_two_runs_are_equal_files_but_for_the_clock():
    """HDF5 could write dates and addresses; it does not. All that differs are the variables with seconds, and seals."""
    first, second = (record_run(toy(episodes=300), TOY) for _ in range(2))
    assert (first.seconds_episode.values != second.seconds_episode.values).any()
    assert encode(first) == encode(first.copy(deep=True))
    assert without_clock(first) == without_clock(second)
    differing = np.frombuffer(encode(first), np.uint8) != np.frombuffer(encode(second), np.uint8)
    assert 0 < differing.sum() <= first.seconds_episode.nbytes + first.seconds_total.nbytes + 64


def command(plan, out, *options, **environment):
    line = [sys.executable, "-m", "bellmanifold", "sweep", str(plan), "--out", str(out), *options]
    subprocess.run(line, check=True, env=os.environ | environment)
    return files(out)


@pytest.fixture(scope="module")
def dask(tmp_path_factory):
    """The address of a scheduler with a worker that has no nanny, which would set its threads."""
    home = tmp_path_factory.mktemp("dask")
    described = str(home / "scheduler.json")
    quiet = ("--no-dashboard", "--scheduler-file", described)
    alone = ("--nthreads", "1", "--local-directory", str(home))
    scheduler = started("scheduler", "--host", "127.0.0.1", "--port", "0", *quiet)
    with scheduler, started("worker", *alone, "--no-nanny", *quiet):
        yield wait_for_address(Path(described))


@pytest.mark.slow
def test_real_agents_give_the_same_files_everywhere(tmp_path, dask):
    """One worker with a new cache, two workers that find it filled, no cache at all, a cluster; and once more."""
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    expected = command(plan, tmp_path / "new cache", "--workers", "1", **cache)
    assert len(expected) == 16
    assert any((tmp_path / "cache").iterdir())
    assert command(plan, tmp_path / "filled cache", "--workers", "2", **cache) == expected
    assert command(plan, tmp_path / "no cache", "--workers", "2", JAX_ENABLE_COMPILATION_CACHE="false") == expected
    assert command(plan, tmp_path / "cluster", "--dask", dask) == expected
    assert command(plan, tmp_path / "again", "--workers", "1", **cache) == expected


@pytest.mark.slow
def test_threads_change_nothing_on_a_cluster(tmp_path, dask):
    """A problem large enough for XLA to split its sums among threads if it were allowed to: other last bits here."""
    plan = tmp_path / "plan.toml"
    plan.write_text(LARGER)
    expected = command(plan, tmp_path / "local", "--workers", "1")
    assert len(expected) == 2
    assert command(plan, tmp_path / "cluster", "--dask", dask) == expected


@pytest.mark.slow
def test_a_damaged_cache_of_compiled_programs_changes_nothing(tmp_path, rng):
    """Every kept program is cut off, emptied or has a bit flipped; then it is compiled again, or was not damaged."""
    plan = tmp_path / "plan.toml"
    plan.write_text('model = "env:deep-sea?depth=3"\nagent = ["bayes-br", "manifold"]\nepisodes = 6\nseeds = 0\n')
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    expected = command(plan, tmp_path / "first", **cache)
    kept = [path for path in sorted((tmp_path / "cache").rglob("*")) if path.is_file()]
    assert len(kept) > 5
    for number, path in enumerate(kept):
        content = bytearray(path.read_bytes())
        if number % 3 == 0:
            content = content[: len(content) // 2]
        elif number % 3 == 1 and content:
            content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        else:
            content = bytearray()
        path.write_bytes(content)
    assert command(plan, tmp_path / "second", **cache) == expected
