"""The packages, their rooms, and the direction of dependency between them, read from the import statements."""

import ast
import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bellmanifold import envs
from bellmanifold_paper.bellman import log_likelihood, residuals, transitions

SOURCES = Path(__file__).parent.parent / "src"
SOURCE = SOURCES / "bellmanifold"
PAPER, LAB = "bellmanifold_paper", "bellmanifold_lab"

BASE = {"_util", "errors"}
"""Errors, options, display, progress: every room may import them, and they import no other."""
MAY_IMPORT = {
    "problem": set(),
    "gaussian": set(),
    "samplers": set(),
    "mdp": {"problem"},
    "envs": {"mdp", "problem"},
    "io": {"envs", "mdp", "problem"},
    "pictures": {"mdp", "problem"},
    "chart": {"mdp", "problem"},
    "posteriors": {"chart", "gaussian", "io", "mdp", "problem", "samplers"},
    "decisions": {"chart", "io", "mdp", "posteriors", "problem"},
    "agents": {"chart", "decisions", "io", "mdp", "posteriors", "problem"},
    "learning": {"agents", "envs", "io", "mdp", "problem"},
    "cli": {"agents", "decisions", "envs", "io", "learning", "mdp", "pictures", "posteriors", "problem"},
}
"""Room of the library -> rooms it may import beside the base. A new room needs a line here."""
PACKAGES = {"bellmanifold": set(), LAB: {"bellmanifold"}, PAPER: {"bellmanifold", LAB}}
"""Package -> packages it may import. Engines, agents and commands of the other two are found by entry points."""


def named(path: Path) -> str:
    """The module in a file of `src`, a package by its own name."""
    return ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")


MODULES = {named(path): path for path in sorted(SOURCES.rglob("*.py"))}


def imported(path: Path) -> set[str]:
    """Modules of ours that a file imports, inside functions too; what only type checkers see does not count."""
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    found = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        if isinstance(node, ast.ImportFrom):
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {part if part in MODULES else node.module for part in parts}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        waiting += ast.iter_child_nodes(node)
    return found & set(MODULES)


def room(module: str) -> str:
    """The part of its package that a module belongs to; `__init__` is what the package itself says."""
    name = module.split(".")[1] if "." in module else "__init__"
    return "base" if name in BASE else name


@pytest.mark.parametrize("module", MODULES)
def test_direction_of_dependency(module):
    package, own, found = module.split(".")[0], room(module), imported(MODULES[module])
    others = {name.split(".")[0] for name in found} - {package}
    assert others <= PACKAGES[package], f"{package} must not import {sorted(others - PACKAGES[package])}"
    if package != "bellmanifold" or own in ("__init__", "__main__"):
        return
    rooms = {room(name) for name in found if name != "bellmanifold"} - {own}
    if own == "base":
        assert not rooms
    else:
        assert own in MAY_IMPORT, f"{own} is a new room: say in MAY_IMPORT what it may import"
        forbidden = rooms - MAY_IMPORT[own] - {"base"}
        assert not forbidden, f"{own} must not import {sorted(forbidden)}"


def test_the_rule_can_fail(tmp_path):
    text = "from bellmanifold.cli.main import app\ndef f():\n    import bellmanifold.mdp.solver\n"
    text += "if TYPE_CHECKING:\n    import bellmanifold.problem.ssp\n"
    text += "else:\n    from bellmanifold import envs, __version__\n"
    (tmp_path / "x.py").write_text(text)
    assert imported(tmp_path / "x.py") == {f"bellmanifold.{name}" for name in ("cli.main", "mdp.solver", "envs")} | {
        "bellmanifold"
    }


def test_rooms_are_acyclic_and_a_dozen():
    done: set[str] = set()
    while len(done) < len(MAY_IMPORT):
        ready = {name for name, needs in MAY_IMPORT.items() if needs <= done} - done
        assert ready, f"a cycle among {sorted(set(MAY_IMPORT) - done)}"
        done |= ready
    rooms = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert rooms == {*MAY_IMPORT, "_util"}
    assert {path.stem for path in SOURCE.glob("*.py")} == {"__init__", "__main__", "errors"}, "no loose modules"


def reached(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """For every node those that a path of one step or more leads to."""
    found = {}
    for start in graph:
        seen, waiting = set(), [start]
        while waiting:
            new = graph[waiting.pop()] - seen
            seen |= new
            waiting += new
        found[start] = seen
    return found


def knots(graph: dict[str, set[str]]) -> list[set[str]]:
    """Nodes that lead to each other, knot by knot."""
    found = reached(graph)
    each = {frozenset(other for other in found[name] if name in found[other]) for name in graph}
    return [set(knot) for knot in each if knot]


def test_modules_import_one_way():
    """Of modules, not rooms, and of imports inside functions too."""
    assert knots({name: imported(path) - {name} for name, path in MODULES.items()}) == []


def test_no_two_modules_share_a_name():
    files = [path for path in SOURCE.rglob("*.py") if not path.name.startswith("__")]
    assert [name for name, count in Counter(path.stem for path in files).items() if count > 1] == []


def test_knots_are_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"d", "f"}, "f": {"e"}}
    assert sorted(map(sorted, knots(graph))) == [["a", "b", "c"], ["e", "f"]]


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("bellmanifold", "jax scipy matplotlib typer"),
        ("bellmanifold.mdp.solver", "jax matplotlib typer blackjax xarray"),
        ("bellmanifold_paper.bellman", "matplotlib typer blackjax xarray"),
        ("bellmanifold.cli.main", "jax scipy matplotlib xarray distributed rich.progress"),
        ("bellmanifold_paper.command", "jax scipy matplotlib xarray distributed rich.progress"),
        ("bellmanifold_lab.sweeps.workers", "jax matplotlib typer distributed"),
        ("bellmanifold.posteriors.inference", "matplotlib typer blackjax xarray arviz_stats"),
    ],
)
def test_heavy_libraries_are_imported_only_where_needed(module, absent):
    code = f"import sys, {module}; print(*[m for m in '{absent}'.split() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_core_imports_without_the_outer_libraries():
    """Core modules run on a machine that has only jax, numpy and scipy besides (the GPU machine)."""
    code = """
import sys
for name in ("gymnasium", "typer", "rich", "matplotlib", "blackjax", "xarray"):
    sys.modules[name] = None
import bellmanifold as bm
from bellmanifold_paper import bellman
model = bm.envs.swirl(3)
bm.solve(model); bm.check(model); bm.load_model("env:pyramid")
bm.posterior(model, bm.Dataset.complete(model)).to_dict()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_growing_data_does_not_recompile():
    model = envs.deep_sea(4)
    law = transitions(model)
    traces = []

    @jax.jit
    def value(q, observed, reward, scale):
        traces.append(1)
        return log_likelihood(law, q, observed, reward, scale)

    q = jnp.zeros(model.n_pairs)
    for n in range(model.n_pairs + 1):
        observed = jnp.arange(model.n_pairs) < n
        value(q, observed, jnp.asarray(model.reward), jnp.full(model.n_pairs, 0.1))
    assert len(traces) == 1


def test_residuals_are_the_rewards_at_the_solution(rng):
    from problems import random_problem

    from bellmanifold.mdp.checks import assumption_2
    from bellmanifold.mdp.solver import solve

    checked = 0
    while checked < 5:
        model = random_problem(rng, states=5)
        if assumption_2(model).holds:
            q = jnp.asarray(solve(model).q)
            np.testing.assert_allclose(residuals(transitions(model), q), model.reward, atol=1e-9)
            checked += 1


def test_log_likelihood_by_hand():
    model = envs.two_state()
    seen = jnp.array([True, False])
    scale = jnp.array([2.0, 0.0])
    value = log_likelihood(transitions(model), jnp.array([3.0, -1.0]), seen, jnp.array([-1.0, 0.0]), scale)
    z = (-1.0 - (3.0 - 3.0)) / 2.0
    assert float(value) == pytest.approx(-0.5 * z**2 - np.log(2.0) - 0.5 * np.log(2 * np.pi))


def test_statistical_tests_state_their_false_alarm_rate():
    """Who speaks of standard errors, or asks for a p-value, says how often it fails for nothing."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                continue
            says = " ".join((ast.get_docstring(node) or "").lower().replace("-", " ").split())
            names = {name.attr for name in ast.walk(node) if isinstance(name, ast.Attribute)}
            if re.search(r"within \S+ (combined )?standard errors", says) or "pvalue" in names:
                assert "false alarm" in says, f"{path.name}: {node.name} states no false-alarm rate"


def test_no_module_is_long():
    """Longer ones hold more than one idea."""
    lines = {path.name: len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert {name: count for name, count in lines.items() if count > 450} == {}


def test_every_module_that_decides_what_is_right_has_tests_for_its_mutants():
    root = Path(__file__).parent.parent
    mutation = runpy.run_path(str(root / "validation" / "mutation.py"))
    modules = {mutant.module for mutant in mutation["sample"](10**9, 0)}
    assert len(modules) > 50
    for module in modules:
        assert all((root / name).exists() for name in mutation["test_files"](module)), module
