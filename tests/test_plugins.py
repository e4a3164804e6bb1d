"""What other packages plug in: a stranger's package, installed by pip; and what is said where a package is missing."""

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import bellmanifold as bm
from bellmanifold._util import plugins
from bellmanifold.agents.registry import AGENTS, agent_names, every_agent, find_agent
from bellmanifold.cli.completion import agents, engines
from bellmanifold.cli.main import run
from bellmanifold.errors import BadInputError, UnsupportedError

PLUGIN = Path(__file__).parent.parent / "examples" / "plugin"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The environment of processes that have the example plug-in beside this library."""
    place = tmp_path_factory.mktemp("plugin")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    subprocess.run([*pip, "--target", str(place), str(PLUGIN)], check=True, capture_output=True)
    before = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), *([before] if before else [])])}


def call(environment, *words, **more):
    return subprocess.run(
        [sys.executable, "-m", "bellmanifold", *words], env=environment, capture_output=True, text=True, **more
    )


def test_a_strangers_command_is_in_the_list_and_runs(environment):
    assert "hops" in call(environment, "--help").stdout
    done = call(environment, "hops", "env:robot", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["moves"] > 1.0
    wrong = call(environment, "hops", "env:nowhere")
    assert wrong.returncode == 2
    assert "unknown environment" in wrong.stderr


def test_a_strangers_agent_learns(environment):
    done = call(
        environment, "learn", "env:two-state", "--agent", "wanderer", "--episodes", "3", "--runs", "1", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["agent"] == "wanderer"
    options = call(environment, "learn", "env:two-state", "--agent", "wanderer", "--epsilon", "0.1")
    assert options.returncode == 2
    assert "wanderer has no option" in options.stderr


def test_a_strangers_agent_is_played_by_worker_processes(environment, tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_text('model = "env:two-state"\nagent = "wanderer"\nepisodes = 2\nseeds = [0, 1]\n')
    done = call(environment, "sweep", str(plan), "--out", str(tmp_path / "out"), "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "out").glob("*.nc"))) == 2


@pytest.fixture
def plugged(monkeypatch):
    """Replace what is plugged in for one kind."""

    def replace(kind, **points):
        made = {name: EntryPoint(name, value, f"bellmanifold.{kind}s") for name, value in points.items()}
        before = plugins.plugged_in
        monkeypatch.setattr(plugins, "plugged_in", lambda asked: made if asked == kind else before(asked))

    return replace


def test_the_projects_other_packages_plug_in_all_that_the_library_names():
    for kind, homes in plugins.HOMES.items():
        assert set(homes) <= set(plugins.plugged_in(kind))
        assert all(callable(plugins.load(kind, name)) or kind == "agent" for name in homes)


def test_a_missing_package_is_named(plugged, monkeypatch, capsys):
    plugged("command")
    plugged("engine")
    plugged("agent")
    assert run(["sweep", "plan.toml", "--out", "x"]) == 3
    assert "bellmanifold_lab" in capsys.readouterr().err
    model = bm.envs.two_state()
    with pytest.raises(UnsupportedError, match="mixture is in the package bellmanifold_paper"):
        bm.posterior(model, bm.Dataset.complete(model), epsilon=0.1, engine="mixture")
    monkeypatch.delitem(AGENTS, "bayes-td", raising=False)
    with pytest.raises(UnsupportedError, match="bayes-td is in the package bellmanifold_paper"):
        bm.learn(model, "bayes-td", episodes=1, runs=1)


def test_a_plug_in_that_cannot_be_imported_is_named_and_hinders_no_other(plugged, capsys):
    plugged("command", broken="no_such_module_at_all:x", sweep="bellmanifold_lab.commands.sweep:sweep")
    assert run(["--help"]) == 0
    assert "broken" in capsys.readouterr().out
    assert run(["broken"]) == 3
    assert "cannot be loaded (No module named 'no_such_module_at_all')" in capsys.readouterr().err
    plugged("agent", broken="no_such_module_at_all:x")
    assert {kind.name for kind in every_agent()} >= {"manifold", "psrl"}
    with pytest.raises(UnsupportedError, match="no_such"):
        find_agent("broken")


def test_names_that_nobody_has():
    model = bm.envs.two_state()
    with pytest.raises(BadInputError, match=r"engine is .*: choose from auto, chart, mixture"):
        bm.posterior(model, bm.Dataset.complete(model), engine="gibbs")
    with pytest.raises(BadInputError, match=r"unknown agent .*bayes-td"):
        find_agent("none")


def test_completion_knows_what_is_plugged_in():
    assert set(agents("")) == set(agent_names())
    assert engines("mix") == ["mixture"]


def test_an_engine_of_ones_own(plugged):
    plugged("engine", mine="bellmanifold_paper.engines.plugged:mixture")
    model = bm.envs.two_state()
    data = bm.Dataset.from_pairs(model, [("s1", "go")])
    mine = bm.posterior(model, data, epsilon=0.5, engine="mine")
    theirs = bm.posterior(model, data, epsilon=0.5)
    assert mine.engine == "mixture"
    assert abs(mine.action_probability.value - theirs.action_probability.value).max() < 0.01
