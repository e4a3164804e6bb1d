"""The rooms and the direction of dependency between them, read from the import statements."""

import ast
import inspect
import re
import runpy
import subprocess
import sys
from collections import Counter
from functools import cached_property
from pathlib import Path
from types import CodeType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bellmanifold import envs, posterior
from bellmanifold.problem.dataset import Dataset
from bellmanifold_paper.bellman import log_likelihood, residuals, transitions

SOURCES = Path(__file__).parent.parent / "src"
SOURCE = SOURCES / "bellmanifold"
PAPER = "bellmanifold_paper"

MAY_IMPORT = {
    "options": set(),
    "errors": {"options"},
    "jax_setup": set(),
    "registration": set(),
    "stderr": set(),
    "interrupts": {"errors"},
    "meter": {"errors", "stderr"},
    "limits": {"errors"},
    "description": {"errors"},
    "pruning": {"description", "errors", "graph", "ssp"},
    "display": {"errors"},
    "compressed_rows": set(),
    "ssp": {"compressed_rows", "description", "display", "errors"},
    "naming": {"errors", "observation", "ssp"},
    "maps": {"errors", "naming", "ssp"},
    "costs": {"ssp"},
    "assembly": {"compressed_rows", "errors", "limits", "options", "pruning", "ssp"},
    "subtraction_free": set(),
    "blocks": {"compressed_rows", "errors", "subtraction_free"},
    "components": {"blocks", "compressed_rows", "subtraction_free"},
    "linear": {"blocks", "components", "errors", "ssp", "subtraction_free"},
    "graph": {"components", "linear", "ssp"},
    "gain": {"graph", "linear", "lookahead", "ssp", "subtraction_free"},
    "health": {"display", "errors", "gain", "graph", "maps", "options", "ssp"},
    "backward": {"components", "graph", "linear", "ssp"},
    "lookahead": {"compressed_rows", "graph", "linear", "ssp"},
    "solver": {"backward", "display", "errors", "graph", "health", "linear", "lookahead", "options", "ssp"},
    "envs": {"assembly", "errors", "limits", "ssp"},
    "observation": {"errors"},
    "data": {"display", "errors", "naming", "observation", "ssp"},
    "formats": {"assembly", "compressed_rows", "data", "display", "envs", "errors", "graph", "limits", "naming"}
    | {"observation", "pruning", "ssp", "stderr"},
    "models": {"envs", "errors", "formats", "pruning", "ssp"},
    "kernels": {"errors", "jax_setup"},
    "chart": {"compressed_rows", "errors", "graph", "jax_setup", "linear", "ssp"},
    "priors": {"errors", "jax_setup", "kernels"},
    "noise": {"errors", "jax_setup", "kernels"},
    "parametrisation": {"errors", "jax_setup", "ssp"},
    "gaussian": {"jax_setup"},
    "samplers": set(),
    "posteriors": {"chart", "compressed_rows", "data", "display", "errors", "gain", "gaussian", "graph", "health"}
    | {"components", "formats", "jax_setup", "kernels"}
    | {"limits", "linear", "meter", "naming", "noise", "options", "parametrisation", "priors", "samplers"}
    | {"solver", "ssp"},
    "decisions": {
        "chart",
        "costs",
        "data",
        "display",
        "errors",
        "formats",
        "graph",
        "kernels",
        "linear",
        "meter",
        "posteriors",
    }
    | {"solver", "ssp", "subtraction_free"},
    "identifiability": {"data", "display", "errors", "gaussian", "graph", "health", "linear", "posteriors", "ssp"},
    "hausdorff": {"chart", "data", "errors", "parametrisation", "posteriors", "priors"},
    "agents": {
        "assembly",
        "chart",
        "data",
        "decisions",
        "errors",
        "formats",
        "gaussian",
        "graph",
        "jax_setup",
        "kernels",
        "limits",
        "linear",
        "noise",
    }
    | {"parametrisation", "posteriors", "priors", "samplers", "solver", "ssp"},
    "runs": {"agents", "data", "display", "envs", "errors", "graph", "health", "limits", "linear", "meter"}
    | {"models", "options", "solver", "ssp"},
    "sweeps": {"__init__", "agents", "errors", "formats", "limits", "meter", "models", "runs", "ssp", "stderr"},
    "figures": {"display", "errors", "graph", "maps", "ssp"},
    "report": {"__init__", "agents", "errors", "figures", "formats", "models", "runs", "ssp", "sweeps"},
    "explorer": {
        "data",
        "decisions",
        "display",
        "errors",
        "figures",
        "formats",
        "interrupts",
        "posteriors",
        "report",
        "ssp",
    },
    "commands": {
        "agents",
        "costs",
        "data",
        "decisions",
        "envs",
        "errors",
        "explorer",
        "figures",
        "formats",
        "graph",
        "interrupts",
        "limits",
        "maps",
        "meter",
        "models",
    }
    | {"options", "posteriors", "report", "runs", "ssp", "stderr", "sweeps"},
    "cli": {"__init__", "commands", "data", "envs", "errors", "figures", "formats"}
    | {"health", "models", "options", "solver", "stderr"},
    "__main__": {"cli"},
}
"""Room of the library -> rooms it may import. A new room needs a line here. What makes the paper again is no room: it
imports the library, and nothing imports it; the command `reproduce` finds it by name."""


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
    """The part of the library that a module belongs to; `__init__` is what the library itself says."""
    return module.split(".")[1] if "." in module else "__init__"


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("bellmanifold.")])
def test_direction_of_dependency(module):
    own, found = room(module), imported(MODULES[module])
    assert not [name for name in found if name.startswith(PAPER)], "the library does not know the paper's package"
    assert own in MAY_IMPORT, f"{own} is a new room: say in MAY_IMPORT what it may import"
    forbidden = {room(name) for name in found} - MAY_IMPORT[own] - {own}
    assert not forbidden, f"{own} must not import {sorted(forbidden)}"


def test_the_rule_can_fail(tmp_path):
    text = "from bellmanifold.cli.main import app\ndef f():\n    import bellmanifold.mdp.solver\n" text += "if
    TYPE_CHECKING:\n    import bellmanifold.problem.ssp\nelse:\n    from bellmanifold import envs, __version__\n"
    (tmp_path / "x.py").write_text(text) assert imported(tmp_path / "x.py") == {f"bellmanifold.{name}" for name in
    ("cli", "solver", "envs")} | {
        "bellmanifold"
    }


def test_rooms_are_acyclic():
    done: set[str] = set()
    while len(done) < len(MAY_IMPORT):
        ready = {name for name, needs in MAY_IMPORT.items() if needs - {"__init__"} <= done} - done
        assert ready, f"a cycle among {sorted(set(MAY_IMPORT) - done)}"
        done |= ready


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


def test_a_newcomer_reads_for_an_afternoon():
    """CONTRIBUTING lists the modules of the newcomer's path in their order; those in parentheses are not on it."""
    text = (SOURCES.parent / "CONTRIBUTING.md").read_text()
    path = re.sub(r"\([^()]*\)", "", text[text.index("\n1. `problem/ssp.py`") : text.index("\n| room |")])
    names = re.findall(r"`([\w/]+\.py)`", path)
    lines = sum(len((SOURCE / name).read_text().splitlines()) for name in names)
    assert len(names) > 10
    assert lines <= 3000
    stated = re.search(r"about ([\d,]+) lines", text)
    assert stated is not None
    assert abs(int(stated[1].replace(",", "")) - lines) <= 100


def getters() -> set[CodeType]:
    """The code of all properties of the library, as far as it was imported."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("bellmanifold.")]
    own = [one for module in modules for one in vars(module).values() if isinstance(one, type)]
    classes = {one for one in own if one.__module__.startswith("bellmanifold.")}
    found = [value for one in classes for value in vars(one).values()]
    plain = [value.fget for value in found if isinstance(value, property)]
    cached = [value.func for value in found if isinstance(value, cached_property)]
    return {inspect.unwrap(getter).__code__ for getter in plain + cached if getter is not None}


def test_the_way_from_a_call_to_its_summary_is_short():
    """An acyclic problem, after a first call: functions and properties that know posteriors, charts and Gaussians."""
    model = envs.deep_sea(depth=3)
    data = Dataset.from_pairs(model, [("0,0", "right"), ("1,1", "left"), ("2,0", "right")])
    rooms = tuple(str(SOURCE / room) for room in ("posteriors", "chart", "gaussian"))
    met: set[CodeType] = set()

    def look(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(rooms) and not code.co_name.startswith("<"):
            met.add(code)

    posterior(model, data, epsilon=0.01)
    before = sys.getprofile()
    sys.setprofile(look)
    try:
        posterior(model, data, epsilon=0.01)
    finally:
        sys.setprofile(before)
    properties = met & getters()
    assert len(met - properties) <= 56
    assert len(properties) <= 25
    assert len(met) > 50, "whoever looks at wrong files sees nothing"
    text = (SOURCES.parent / "docs" / "design.md").read_text()
    words = set(re.findall(r"\w+", text[text.index("## A reader's tour") :]))
    names = {code.co_qualname.split(".")[-2 if code.co_name.startswith("__") else -1] for code in met - properties}
    assert names - words == set(), "the tour names everything on the way"


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
