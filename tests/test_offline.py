"""No command looks for the network.

Every Python process that a command starts gets an audit hook that ends it when a socket is connected, bound or written
to, or when a name is looked up. Sweeps on a cluster are allowed the loopback and nothing else. Code in C that opens a
socket of its own is not seen by the hook; so the commands also have to work where there is no network.
"""

import json
import os
import subprocess
import sys

import pytest
from test_cluster import started, wait_for_address

GUARD = """
import os, sys

LOOPBACK = os.environ.get("TEST_ALLOW_LOOPBACK") and ("127.0.0.1", "::1", "localhost")
NAMES = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo")
PLACES = ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg")

def guard(event, arguments):
    if event not in NAMES + PLACES:
        return
    place = arguments[0] if event in NAMES else arguments[1]
    place = place[0] if isinstance(place, tuple) else place
    if not (LOOPBACK and place in LOOPBACK):
        sys.stderr.write(f"NETWORK {event} {place!r}\\n")
        sys.stderr.flush()
        os._exit(99)

sys.addaudithook(guard)
"""
SEVERAL = """
import json, sys
from bellmanifold.cli.main import run

for arguments in json.loads(sys.argv[1]):
    code = run(arguments)
    if code != 0:
        sys.exit(f"{arguments}: exit code {code}")
"""


@pytest.fixture
def guarded(tmp_path):
    """Environment variables that put every Python process under guard."""
    home = tmp_path / "guard"
    home.mkdir()
    (home / "sitecustomize.py").write_text(GUARD)
    places = (str(home), os.environ.get("PYTHONPATH", ""))
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}


def write(path, text):
    path.write_text(text)
    return str(path)


def commands(tmp_path):
    """The commands that take no time; each needs what those before it wrote."""
    data = '{"format": "bellmanifold.data/1", "observations": [{"state": "s1", "action": "go"}]}'
    plan = "model = 'gym:CliffWalking-v1'\nagent = ['q-learning', 'psrl']\nepisodes = 3\nseeds = [0, 1]\n"
    problem, runs = str(tmp_path / "p.json"), str(tmp_path / "runs")
    return [
        ["env", "export", "env:two-state", "--out", problem],
        ["check", problem],
        ["solve", problem],
        ["posterior", problem, write(tmp_path / "d.json", data), "--engine", "mixture", "--epsilon", "0.1"],
        ["learn", problem, "--agent", "q-learning", "--runs", "1", "--episodes", "3"],
        ["sweep", write(tmp_path / "plan.toml", plan), "--out", runs],
        ["report", runs],
    ]


def play(lines, environment, before=()):
    program = [*before, sys.executable, "-c", SEVERAL, json.dumps(lines)]
    return subprocess.run(program, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "attempt",
    [
        "socket.create_connection(('127.0.0.1', 9))",
        "socket.getaddrinfo('example.org', 80)",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
        "subprocess.run([sys.executable, '-c', 'import socket; socket.gethostbyname(\"x\")'], check=True)",
    ],
)
def test_the_guard_guards(guarded, attempt):
    code = f"import socket, subprocess, sys; {attempt}"
    done = subprocess.run([sys.executable, "-c", code], env=guarded, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "NETWORK socket." in done.stderr


def test_the_commands_ask_nobody(tmp_path, guarded):
    done = play(commands(tmp_path), guarded)
    assert "NETWORK" not in done.stderr
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("report: ")


@pytest.mark.slow
def test_the_commands_work_where_there_is_no_network(tmp_path, guarded):
    """In a network namespace without a single device that is up; skipped where the system allows no such thing."""
    alone = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]
    try:
        allowed = subprocess.run([*alone, "true"], capture_output=True, check=False)
    except OSError:
        pytest.skip("there is no unshare here")
    if allowed.returncode != 0:
        pytest.skip("nobody may make network namespaces here")
    done = play([*commands(tmp_path), *longer_commands(tmp_path)], guarded, before=alone)
    assert done.returncode == 0, done.stderr


def longer_commands(tmp_path):
    posterior = ["posterior", "env:two-state", str(tmp_path / "d.json")]
    return [
        [*posterior, "--picture", str(tmp_path / "p.png")],
        [*posterior, "--epsilon", "0.1", "--engine", "nuts"],
        ["learn", "env:swirl?depth=3", "--agent", "manifold", "--runs", "1", "--episodes", "3"],
        ["reproduce", "two-state-contours", "--out", str(tmp_path / "figures"), "--runs", "1", "--workers", "1"],
        ["demo", "--out", str(tmp_path / "demo")],
    ]


@pytest.mark.slow
def test_longer_commands_ask_nobody(tmp_path, guarded):
    commands(tmp_path)
    done = play(longer_commands(tmp_path), guarded)
    assert "NETWORK" not in done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_cluster_is_asked_and_nobody_else(tmp_path, guarded):
    """The client of a cluster on this machine speaks to the loopback only."""
    described = tmp_path / "scheduler.json"
    quiet = ("--no-dashboard", "--scheduler-file", str(described))
    alone = ("--nthreads", "1", "--no-nanny", "--local-directory", str(tmp_path))
    with started("scheduler", "--host", "127.0.0.1", "--port", "0", *quiet), started("worker", *alone, *quiet):
        line = ["sweep", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "out"), "--dask"]
        commands(tmp_path)
        done = play([[*line, wait_for_address(described)]], guarded | {"TEST_ALLOW_LOOPBACK": "1"})
    assert "NETWORK" not in done.stderr
    assert done.returncode == 0, done.stderr
