"""The package as others install it: what it states, what it carries, and what an import costs them.

`make dist` builds it, `make test-wheel` tries it in an environment of its own.
"""

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from fresh_install import check_contents, sizes

import bellmanifold

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HEAVY = ("arviz_stats", "blackjax", "dask", "gymnasium", "h5py", "jax", "matplotlib", "numpy", "pandas", "plotly")
HEAVY += ("rich", "scipy", "xarray")
BESIDE_THE_NUMBERS = ("arviz_stats", "blackjax", "gymnasium", "h5py", "matplotlib", "pandas", "plotly", "xarray")
ANSWERS = """
import bellmanifold as bm
import bellmanifold_paper as paper
model = bm.load_model("env:two-state")
data = bm.Dataset.from_pairs(model, [("s1", "go")])
bm.check(model), bm.solve(model), bm.posterior(model, data, samples=1024).to_dict()
"""


def loaded_after(code):
    """Packages that a fresh interpreter has imported once the code has run."""
    tell = "\nimport sys\nprint('LOADED', *{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code + tell], capture_output=True, text=True, check=True)
    return set(done.stdout.rsplit("LOADED ", 1)[1].split())


def test_what_the_package_states():
    assert PROJECT["version"] == bellmanifold.__version__
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["authors"] == [{"name": "the bellmanifold developers"}]
    assert "urls" not in PROJECT
    assert "Typing :: Typed" in PROJECT["classifiers"]
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    for package in ("bellmanifold", "bellmanifold_paper"):
        assert (ROOT / "src" / package / "py.typed").exists()


def test_the_citation_names_the_paper_and_this_version():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {PROJECT['version']}\n" in citation
    assert f"\nlicense: {PROJECT['license']}\n" in citation
    assert 'title: "Bayesian learning for the stochastic shortest path problem"' in citation
    for name in ("Ho", "Singh", "Guo"):
        assert f"family-names: {name}\n" in citation


def test_modules_are_found_after_a_fresh_import():
    found = "bm.errors, bm.kernels, bm.noise, paper.parametrisation, paper.priors"
    assert "jax" in loaded_after(
        f"import bellmanifold as bm, bellmanifold_paper as paper\nassert bm.errors.BadInputError\n{found}"
    )


def test_an_import_loads_nothing_heavy():
    assert not loaded_after("import bellmanifold") & set(HEAVY)


def test_help_loads_nothing_heavy():
    assert not loaded_after("from bellmanifold.cli.main import run\nrun(['--help'])") & set(HEAVY)


def test_answers_load_no_pictures_environments_or_tables():
    assert not loaded_after(ANSWERS) & set(BESIDE_THE_NUMBERS)


@pytest.mark.parametrize("order", ["bellmanifold, gymnasium", "gymnasium, bellmanifold"])
def test_gymnasium_knows_the_built_in_problems_in_either_order(order):
    code = f"import {order}\nimport inspect\nimport gymnasium.envs.registration as registry\n"
    code += "gymnasium.make('bellmanifold/DeepSea-v0', depth=3)\nassert inspect.getsource(registry)\n"
    code += "assert registry.__spec__.loader is registry.__loader__"
    assert "gymnasium" in loaded_after(code)


def test_gymnasium_loads_the_package_by_name():
    assert "bellmanifold" in loaded_after("import gymnasium\ngymnasium.make('bellmanifold:bellmanifold/Swirl-v0')")


def test_a_wheel_without_its_licence_or_with_tests_is_noticed(tmp_path):
    whole = {"bellmanifold/py.typed", "bellmanifold_paper/py.typed", "b.dist-info/licenses/LICENSE"}
    whole |= {"b.dist-info/entry_points.txt"}
    check_contents(made(tmp_path / "whole.whl", whole))
    with pytest.raises(AssertionError, match="lacks"):
        check_contents(made(tmp_path / "bare.whl", whole - {"b.dist-info/licenses/LICENSE"}))
    with pytest.raises(AssertionError, match="holds"):
        check_contents(made(tmp_path / "fat.whl", whole | {"tests/test_x.py"}))


def made(path, names):
    with zipfile.ZipFile(path, "w") as wheel:
        for name in names:
            wheel.writestr(name, "")
    return path


def test_sizes_are_those_of_files(tmp_path):
    place = tmp_path / "lib/python3.11/site-packages"
    (place / "large" / "part").mkdir(parents=True)
    (place / "large" / "part" / "code.so").write_bytes(bytes(3 * 2**20))
    (place / "small.py").write_bytes(bytes(2**19))
    os.mkdir(place / "pip")
    assert sizes(tmp_path) == {"large": 3.0, "small.py": 0.5}
