"""What the documentation shows is what the program does."""

import contextlib
import doctest
import functools
import importlib
import inspect
import pkgutil
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bellmanifold
from bellmanifold import envs
from bellmanifold.agents.registry import AgentKind, make_agent
from bellmanifold.errors import BadInputError
from bellmanifold.learning.episodes import run_episodes
from bellmanifold.mdp.checks import check
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.inference import posterior_of
from bellmanifold.posteriors.summary import Summary
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.problem.dataset import Dataset

ROOT = Path(__file__).parent.parent


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_readme_example_prints_what_the_readme_says(tmp_path):
    (code,) = blocks("README.md", "python")
    assert code.strip() == (ROOT / "examples/which_move.py").read_text().split('"""', 2)[2].strip()
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"```\n{done.stdout}```" in (ROOT / "README.md").read_text()
    assert (tmp_path / "deep-sea.png").stat().st_size > 5000


def test_readme_commands_need_no_repository(tmp_path, monkeypatch, cli):
    """Problems and data of the first commands are built in, or written by them."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text()
    table, first = re.search(r"^(printf .*)\n(bellmanifold posterior env:robot .*)$", text, re.MULTILINE).groups()
    (advice,) = re.findall(r"^(bellmanifold advise env:robot .*?) +#", text, re.MULTILINE)
    subprocess.run(["bash", "-c", table], check=True)
    for command in (first, advice):
        program, *arguments = command.split()
        code, out, _ = cli(*arguments)
        assert (program, code) == ("bellmanifold", 0)
        assert out
    assert (tmp_path / "robot.png").stat().st_size > 5000


def test_the_tour_runs():
    done = subprocess.run([sys.executable, ROOT / "examples/tour.py"], capture_output=True, text=True, check=True)
    assert "gym:FrozenLake-v1: wandering among" in done.stdout


@pytest.fixture(scope="module")
def skeletons():
    """The three skeletons of CONTRIBUTING.md, executed."""
    names = {}
    for code in blocks("CONTRIBUTING.md", "python"):
        exec(code, names)
    return names


def test_environment_skeleton(skeletons):
    model = skeletons["corridor"](length=4, slip=0.5)
    assert check(model).holds
    assert bellmanifold.solve(model).value_at_start == pytest.approx(-8.0)


def test_posterior_skeleton(skeletons):
    """Against enumeration, within 5 standard errors on two dependent numbers (t with 15 degrees: false alarm 2e-4)."""
    model = envs.two_state()
    target = relaxed_target(Dataset.complete(model), 2.0, 10.0)
    rough = Summary(target, skeletons["by_prior_draws"](target, Budget(), draws=1000), Budget())
    exact = posterior_of(target, asked="mixture")
    gap = np.abs(rough.action_probability.value - exact.action_probability.value)
    assert np.all(gap <= 5 * rough.action_probability.se + 1e-6)


def test_agent_skeleton(skeletons):
    model = envs.deep_sea(3)
    kind = AgentKind("wanderer", "wanders", skeletons["WandererSettings"], skeletons["Wanderer"])
    with pytest.raises(BadInputError, match="patience is 2: give a number from 0 to 1"):
        make_agent(kind, model, {"patience": 2})
    agent = make_agent(kind, model, {"patience": 0.5})
    episodes = run_episodes(model, agent, 50, seed=1)
    assert agent.count.sum() == sum(len(episode.pairs) for episode in episodes) == 150


def modules():
    return [info.name for info in pkgutil.walk_packages(bellmanifold.__path__, "bellmanifold.")]


@pytest.mark.parametrize("name", modules())
def test_doctests(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_nothing_refers_outside_the_repository():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]
    assert not [page for page in pages if "../shared" in page.read_text()]


def test_examples_in_docstrings_become_code():
    names = runpy.run_path(str(ROOT / "docs/docstrings.py"))
    assert names["fenced"]("Adds.\n\n>>> 1 + 1\n2\n\nMore.") == "Adds.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore."


def documented():
    """Names after `:::` on the pages of the API reference."""
    return {name for page in ROOT.glob("docs/api/*.md") for name in re.findall(r"^::: (\S+)", page.read_text(), re.M)}


def test_the_api_reference_has_every_public_name():
    elsewhere = {"bellmanifold.explore": "bellmanifold_lab.explore", "bellmanifold.figures": "bellmanifold.pictures"}
    elsewhere |= {f"bellmanifold.{name}": f"bellmanifold.posteriors.{name}" for name in ("kernels", "noise")}
    public = {f"bellmanifold.{name}" for name in bellmanifold.__all__ if name != "__version__"}
    public = {elsewhere.get(name, name) for name in public}
    assert public <= documented()


@pytest.mark.parametrize("name", sorted(documented()))
def test_what_the_api_reference_names_is_documented(name):
    """With a docstring of its own, and so has everything public in it that is written here."""
    found = find(name)
    members = {key: value for key, value in vars(found).items() if not key.startswith("_")}
    if inspect.ismodule(found):
        wanted = getattr(found, "__all__", [key for key, value in members.items() if is_from(found, value)])
        members = {key: value for key, value in members.items() if key in wanted and callable(value)}
    elif not inspect.isclass(found):
        members = {}
    said = {key: inspect.getdoc(getattr(value, "__func__", value)) for key, value in members.items() if is_code(value)}
    assert inspect.getdoc(found)
    assert not [key for key, text in said.items() if not text]


def find(name):
    """The object that a dotted name means."""
    place, _, last = name.rpartition(".")
    with contextlib.suppress(ImportError):
        return importlib.import_module(name)
    return getattr(importlib.import_module(place), last)


def is_from(module, value):
    return getattr(value, "__module__", None) == module.__name__


def is_code(value):
    return callable(value) or isinstance(value, (property, functools.cached_property, classmethod, staticmethod))
