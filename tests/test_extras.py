"""Whoever lacks what an extra installs reads its name in one line; everything else works without any extra."""

import json
import subprocess
import sys

import pytest

from bellmanifold._util.extras import PACKAGES

BLOCK = "import sys\nfor name in {!r}:\n    sys.modules[name] = None\n"
RUN = "from bellmanifold.cli.main import run\nsys.exit(run({!r}))"
DATA = {"format": "bellmanifold.data/1", "observations": [{"state": "s1", "action": "stay"}]}
NUTS = ["posterior", "env:two-state", "data.json", "--epsilon", "0.1", "--engine", "nuts"]
COMMANDS = {
    "report": (["report", "."], "the report needs plotly"),
    "gym": (["check", "gym:CliffWalking-v1"], "gym:CliffWalking-v1 needs gymnasium"),
    "cluster": (["sweep", "plan.toml", "--out", "out", "--dask", "tcp://127.0.0.1:1"], "--dask needs distributed"),
    "storm": (["check", "coin.prism"], "coin.prism: a PRISM or JANI file needs stormpy"),
    "gradient": (NUTS, "env:two-state: nuts needs blackjax"),
}
CALLS = """
import bellmanifold as bm
from bellmanifold.errors import UnsupportedError

class Bare:
    unwrapped = property(lambda self: self)
    step = None

def first_line(function, *arguments):
    try:
        function(*arguments)
    except UnsupportedError as error:
        print(error)

model = bm.envs.two_state()
first_line(bm.explore, model)
first_line(bm.from_gymnasium, Bare())
first_line(bm.to_gymnasium, model)
first_line(bm.learn, Bare(), "psrl")
"""
CORE = """
import bellmanifold as bm
model = bm.envs.two_state()
summary = bm.posterior(model, bm.Dataset.from_pairs(model, [("s1", "go")]), epsilon=0.1, samples=1024)
summary.draws, bm.check(model), bm.solve(model), bm.learn(model, "q-learning", episodes=2, runs=1)
assert run(["posterior", "env:two-state", "data.json", "--picture", "p.png", "--json"]) == 0
assert run(["--help"]) == 0
"""


def without(packages, code, folder):
    """A fresh interpreter in which some packages cannot be imported."""
    command = [sys.executable, "-c", BLOCK.format(packages) + code]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data.json").write_text(json.dumps(DATA))
    (tmp_path / "coin.prism").write_text("dtmc module m x : [0..1] init 0; [] x=0 -> (x'=1); endmodule")
    (tmp_path / "plan.toml").write_text("model = 'env:two-state'\nagent = 'q-learning'\n")
    return tmp_path


@pytest.mark.parametrize("extra", COMMANDS)
def test_a_command_that_lacks_a_package_names_its_extra(extra, folder):
    """One line on stderr, exit code 3, nothing written."""
    arguments, what = COMMANDS[extra]
    before = sorted(folder.iterdir())
    done = without([PACKAGES[extra]], RUN.format(arguments), folder)
    assert done.stderr == f"bellmanifold: {what}: install bellmanifold[{extra}]\n"
    assert (done.stdout, done.returncode) == ("", 3)
    assert sorted(folder.iterdir()) == before


def test_the_demo_says_so_before_it_plays(folder):
    done = without(["plotly"], RUN.format(["demo", "--out", "out"]), folder)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert not (folder / "out").exists()


def test_calls_that_lack_a_package_name_its_extra(folder):
    done = without(["anywidget", "gymnasium"], CALLS, folder)
    environment = "a Gymnasium environment needs gymnasium: install bellmanifold[gym]"
    notebook = "explore in a notebook needs anywidget: install bellmanifold[notebook]"
    assert done.stdout.splitlines() == [notebook, *[environment] * 3]


def test_the_core_needs_no_extra(folder):
    code = "from bellmanifold.cli.main import run\n" + CORE
    done = without(sorted(PACKAGES.values()), code, folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "p.png").exists()
