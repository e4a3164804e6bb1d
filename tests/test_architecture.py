"""The rooms and the direction of dependency between them, read from the import statements."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bellmanifold import envs
from bellmanifold.chart.bellman import log_likelihood, residuals, transitions

SOURCE = Path(__file__).parent.parent / "src" / "bellmanifold"

MAY_IMPORT = {
    "errors": set(),
    "jax_setup": set(),
    "remarks": set(),
    "interrupts": {"errors"},
    "limits": {"errors"},
    "ssp": {"errors", "limits"},
    "linear": {"errors", "ssp"},
    "graph": {"linear", "ssp"},
    "gain": {"graph", "linear", "ssp"},
    "health": {"errors", "gain", "graph", "ssp"},
    "solver": {"errors", "graph", "health", "linear", "ssp"},
    "envs": {"errors", "limits", "ssp"},
    "data": {"errors", "ssp"},
    "bellman": {"jax_setup", "ssp"},
    "formats": {"data", "envs", "errors", "graph", "limits", "ssp"},
    "models": {"envs", "errors", "formats", "ssp"},
    "laws": {"errors", "jax_setup"},
    "chart": {"errors", "graph", "jax_setup", "ssp"},
    "sparse_chart": {"errors", "graph", "linear", "ssp"},
    "priors": {"errors", "laws", "jax_setup"},
    "noise": {"errors", "laws", "jax_setup"},
    "parametrisation": {"errors", "jax_setup", "ssp"},
    "gaussian": {"jax_setup"},
    "samplers": set(),
    "posteriors": {"bellman", "chart", "data", "errors", "gain", "gaussian", "graph", "health", "jax_setup", "laws"}
    | {"limits", "linear", "noise", "parametrisation", "priors", "samplers", "sparse_chart", "ssp"},
    "identifiability": {"bellman", "data", "errors", "gaussian", "graph", "health", "linear", "posteriors", "ssp"},
    "hausdorff": {"bellman", "data", "errors", "parametrisation", "posteriors", "priors"},
    "agents": {
        "bellman",
        "chart",
        "data",
        "errors",
        "formats",
        "graph",
        "laws",
        "noise",
        "parametrisation",
        "posteriors",
    }
    | {"jax_setup", "limits", "priors", "samplers", "ssp"},
    "experiments": {"__init__", "agents", "envs", "errors", "formats", "graph", "health", "limits", "linear", "models"}
    | {"remarks", "solver", "ssp"},
    "figures": {"errors", "graph", "ssp"},
    "reproduction": {
        "agents",
        "bellman",
        "data",
        "envs",
        "errors",
        "experiments",
        "figures",
        "formats",
        "graph",
        "identifiability",
    }
    | {"interrupts", "limits", "models", "posteriors", "solver", "ssp"},
    "report": {"__init__", "agents", "envs", "errors", "experiments", "figures", "formats", "graph", "models"}
    | {"reproduction", "ssp"},
    "commands": {"agents", "data", "errors", "experiments", "figures", "formats", "graph", "interrupts", "models"}
    | {"limits", "posteriors", "remarks", "report", "reproduction", "ssp"},
    "__main__": {"cli"},
    "cli": {"__init__", "commands", "data", "envs", "errors", "figures", "formats"}
    | {"health", "interrupts", "models", "posteriors", "remarks", "solver"},
}
"""Room -> rooms it may import. A new room needs a line here."""


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("bellmanifold"):
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {_room_of(alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("bellmanifold.")}
    return found


def _room_of(name: str) -> str:
    return name if (SOURCE / name).exists() or (SOURCE / f"{name}.py").exists() else "__init__"


FILES = [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_direction_of_dependency(path):
    own = room(path)
    assert own in MAY_IMPORT, f"{own} is a new room: say in MAY_IMPORT what it may import"
    forbidden = imported_rooms(path) - MAY_IMPORT[own] - {own}
    assert not forbidden, f"{own} must not import {sorted(forbidden)}"


def test_the_rule_can_fail(tmp_path):
    (tmp_path / "x.py").write_text("from bellmanifold.cli import app\nimport bellmanifold.solver\n")
    assert imported_rooms(tmp_path / "x.py") == {"cli", "solver"}


def test_rooms_are_acyclic():
    done: set[str] = set()
    while len(done) < len(MAY_IMPORT):
        ready = {name for name, needs in MAY_IMPORT.items() if needs - {"__init__"} <= done} - done
        assert ready, f"a cycle among {sorted(set(MAY_IMPORT) - done)}"
        done |= ready


MODULES = {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in FILES}


def imported_modules(path: Path) -> set[str]:
    """The modules of the package that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("bellmanifold."):
            home = node.module.removeprefix("bellmanifold.")
            found |= {name if (name := f"{home}.{alias.name}") in MODULES else home for alias in node.names}
    return found & set(MODULES)


ONE_WAY = sorted({room(path) for path in FILES} - {"posteriors"})
"""Rooms whose modules import each other one way only, imports inside functions included."""


@pytest.mark.parametrize("own", ONE_WAY)
def test_modules_of_a_room_are_acyclic(own):
    needs = {name: imported_modules(path) for name, path in MODULES.items() if room(path) == own}
    done: set[str] = set()
    while len(done) < len(needs):
        ready = {name for name in needs if needs[name] & set(needs) - {name} <= done} - done
        assert ready, f"a cycle among {sorted(set(needs) - done)}"
        done |= ready


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("bellmanifold", "jax scipy matplotlib typer"),
        ("bellmanifold.solver", "jax matplotlib typer blackjax xarray"),
        ("bellmanifold.bellman", "matplotlib typer blackjax xarray"),
        ("bellmanifold.cli", "jax scipy matplotlib xarray distributed rich.progress"),
        ("bellmanifold.experiments.workers", "jax matplotlib typer distributed"),
        ("bellmanifold.posteriors.inference", "matplotlib typer blackjax xarray arviz"),
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
from bellmanifold import bellman
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

    from bellmanifold.health import assumption_2
    from bellmanifold.solver import solve

    checked = 0
    while checked < 20:
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
