"""Would the tests notice? Small changes to the code, one at a time, each of which some test ought to refuse.

    python validation/mutation.py --mutants 320 --seed 0 --workers 2 --out out/mutants.json

A random sample of places in the modules that decide what is right (Bellman equations, charts, graphs, posteriors) is
changed: a comparison, an operator, a number, a condition, the order of two choices. The tests of that module run until
one fails. Messages, annotations and constants that only trade speed for memory are left alone. A mutant that every test
passes *survives*; docs/mutants.md says why each of them may, or what was done about it. One whose tests have not ended
after --limit seconds, which has to be several times what they need, is taken to loop forever, and killed. The tests
have to pass without any change first.

The package is copied for every worker and mutants are run as separate processes: nothing is forked.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src"
PACKAGES = ("bellmanifold", "bellmanifold_lab", "bellmanifold_paper")
ROOMS = ("chart", "gaussian", "posteriors")
PAPERS = ("bellman", "evidence", "log_posterior", "td")
TESTS = {
    "accuracy": ("accuracy", "summary"),
    "arrangement": ("chart", "weight"),
    "batch": ("chart", "weight"),
    "batch_walk": ("proposals", "batch_walk", "walk"),
    "bellman": ("bellman", "hausdorff", "chart"),
    "between": ("between",),
    "budget": ("budget", "inference"),
    "cells": ("cells", "mixture"),
    "chains": ("convergence", "gradient", "samplers"),
    "choose": ("choose", "inference"),
    "chunks": ("orthant",),
    "contradictions": ("contradictions", "beliefs"),
    "convergence": ("convergence", "walk"),
    "coordinates": ("coordinates", "weight"),
    "costs_only": ("costs_only",),
    "cut_weight": ("weight", "cuts"),
    "cuts": ("cuts", "lingering_exact"),
    "draws": ("draws", "inference", "open_laws"),
    "elimination": ("elimination", "chart", "weight"),
    "estimated": ("result", "draws", "honest_errors"),
    "evidence": ("evidence", "inference"),
    "exchangeable": ("exchangeable",),
    "gradient": ("gradient", "convergence"),
    "graph": ("graph", "checks", "sparse_chart", "mean_payoff"),
    "hmc": ("samplers", "chains"),
    "importance": ("importance", "inference"),
    "inference": ("inference", "choose"),
    "jax_setup": ("many_problems", "nets"),
    "kernels": ("noise", "weight"),
    "known": ("tie_split", "known", "inference"),
    "laws": ("laws", "sparse_laws", "open_laws"),
    "layout": ("elimination", "chart", "weight"),
    "leaks": ("leaks", "open_laws"),
    "log_posterior": ("log_posterior", "gradient"),
    "maximum": ("maximum", "td"),
    "mixture": ("mixture",),
    "narrow": ("elimination", "chart"),
    "nearby": ("nearby", "sparse_walk"),
    "nets": ("nets", "importance"),
    "noise": ("noise", "log_posterior"),
    "noise_scale": ("noise_scale", "target"),
    "orthant": ("orthant", "mixture"),
    "pareto": ("pareto",),
    "pieces": ("nets", "stretch"),
    "points": ("points", "nets"),
    "most_probable": ("policies", "summary"),
    "policies": ("policies", "summary"),
    "question": ("question", "inference"),
    "rejection": ("rejection",),
    "reporting": ("reporting", "summary", "display"),
    "result": ("result", "nets"),
    "rounding": ("rounding", "ties", "honest_errors"),
    "route": ("reporting", "policies"),
    "sequential": ("sequential", "orthant"),
    "sobol": ("sobol", "points"),
    "sparse": ("nearby", "sparse_chart", "sweeping"),
    "sparse_laws": ("laws", "sparse_laws", "proposals", "open_laws"),
    "sparse_system": ("sparse_system", "sparse_walk", "proposals", "sparse_chart"),
    "sparse_walk": ("sparse_system", "sparse_walk", "proposals", "sparse_chart"),
    "stretch": ("stretch", "nets"),
    "summary": ("summary", "policies"),
    "sweeping": ("sweeping", "sparse_chart"),
    "system": ("system", "weight", "coordinates", "batch_walk"),
    "tails": ("tails",),
    "target": ("target", "cells", "coordinates"),
    "td": ("td",),
    "tie_split": ("tie_split", "known", "ties"),
    "ties": ("ties", "numerical_edges"),
    "trace": ("trace", "walk"),
    "value_prior": ("target", "priors"),
    "visits": ("cuts", "sparse_walk", "walk"),
    "walk": ("walk", "inference"),
    "walker": ("proposals", "walk", "sparse_walk"),
    "ways": ("elimination", "chart", "weight"),
    "weight": ("weight", "system", "batch_walk", "cuts"),
}
"""Tests of a module, the most telling first."""

COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.FloorDiv: ast.Mult,
}
LEFT_ALONE = ("annotation", "returns", "decorator_list", "bases", "msg")
NAMES = {"max": "min", "min": "max", "argmax": "argmin", "argmin": "argmax", "any": "all", "all": "any"}
NAMES |= {"maximum": "minimum", "minimum": "maximum", "floor": "ceil", "ceil": "floor"}


PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider")


@dataclass(frozen=True)
class Mutant:
    """One change: the `place`-th mutable node of a module, what was there and what is there now."""

    module: str
    line: int
    place: int
    before: str
    after: str


@dataclass(frozen=True)
class Fate:
    """What became of it."""

    mutant: Mutant
    killed: bool
    how: str
    seconds: float


def changes(node: ast.AST) -> ast.AST | None:
    """A node with a small change, or None if it has none to offer."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and type(new.ops[0]) in COMPARISONS:
        new.ops[0] = COMPARISONS[type(new.ops[0])]()
    elif isinstance(new, (ast.BinOp, ast.AugAssign)) and type(new.op) in OPERATORS:
        new.op = OPERATORS[type(new.op)]()
    elif isinstance(new, ast.BoolOp):
        new.op = ast.Or() if isinstance(new.op, ast.And) else ast.And()
    elif isinstance(new, ast.UnaryOp):
        new = new.operand
    elif isinstance(new, ast.Constant) and isinstance(new.value, (bool, int, float)):
        new.value = (not new.value) if isinstance(new.value, bool) else new.value + 1
    elif isinstance(new, (ast.If, ast.IfExp)):
        new.test = ast.UnaryOp(ast.Not(), new.test)
    elif isinstance(new, ast.Attribute) and new.attr in NAMES:
        new.attr = NAMES[new.attr]
    elif isinstance(new, ast.Call) and isinstance(new.func, ast.Attribute) and new.func.attr == "where":
        if len(new.args) != 3:
            return None
        new.args[1:] = reversed(new.args[1:])
    else:
        return None
    return new


def mutable(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Nodes that decide something, with their places in their parents, in a fixed order."""
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield from _inside(statement)


def _inside(parent: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    for name, value in ast.iter_fields(parent):
        if name in LEFT_ALONE or (name == "args" and not isinstance(parent, ast.Call)):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, (ast.Raise, ast.JoinedStr)):
                continue
            yield parent, name, index
            yield from _inside(child)


def mutants_of(path: Path) -> list[Mutant]:
    """Every change that a module offers."""
    found = []
    for place, (parent, name, index) in enumerate(mutable(ast.parse(path.read_text()))):
        node = _get(parent, name, index)
        changed = changes(node)
        if changed is not None:
            before, after = (ast.unparse(ast.fix_missing_locations(n)).split("\n")[0] for n in (node, changed))
            module = str(path.relative_to(SOURCES).with_suffix(""))
            found.append(Mutant(module, getattr(node, "lineno", 0), place, before, after))
    return found


def _get(parent: ast.AST, name: str, index: int | None) -> ast.AST:
    value = getattr(parent, name)
    return value if index is None else value[index]


def mutated(path: Path, mutant: Mutant) -> str:
    """The module's source with the change."""
    tree = ast.parse(path.read_text())
    for place, (parent, name, index) in enumerate(mutable(tree)):
        if place == mutant.place:
            changed = changes(_get(parent, name, index))
            assert changed is not None, "a mutant is a change"
            if index is None:
                setattr(parent, name, changed)
            else:
                getattr(parent, name)[index] = changed
            return ast.unparse(ast.fix_missing_locations(tree))
    raise ValueError(f"{mutant.module} has no place {mutant.place}")


def sample(number: int, seed: int) -> list[Mutant]:
    """A random sample over all modules together."""
    library, paper = SOURCES / "bellmanifold", SOURCES / "bellmanifold_paper"
    paths = [
        library / "mdp" / "graph.py",
        library / "_util" / "jax_setup.py",
        *(paper / f"{name}.py" for name in PAPERS),
    ]
    paths += sorted(path for room in ROOMS for path in (library / room).glob("*.py"))
    paths += sorted(path for path in (paper / "engines").glob("*.py"))
    everything = [mutant for path in paths for mutant in mutants_of(path)]
    return random.Random(seed).sample(everything, min(number, len(everything)))


def test_files(module: str) -> list[str]:
    """The tests that a mutant has to pass to survive, beside the examples of its docstrings."""
    return [f"tests/test_{name}.py" for name in TESTS[module.split("/")[-1]]]


def examples(module: str) -> str:
    """The test of a module's docstrings."""
    return f"tests/test_docs.py::test_doctests[{module.replace('/', '.')}]"


def tried(mutant: Mutant, place: Path, limit: float) -> Fate:
    """Run the tests on a copy of the package with one change."""
    own = place / f"{mutant.module}.py"
    whole = own.read_text()
    own.write_text(mutated(SOURCES / f"{mutant.module}.py", mutant))
    begin = time.perf_counter()
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    how, killed = "survived", False
    try:
        done = subprocess.run(
            [*PYTEST, "-p", "no:xdist", *test_files(mutant.module), examples(mutant.module)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit,
        )
        if done.returncode:
            failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
            how, killed = (failed or [f"exit code {done.returncode}"])[0][:160], True
    except subprocess.TimeoutExpired:
        how, killed = f"no end after {limit:.0f} s", True
    finally:
        own.write_text(whole)
    return Fate(mutant, killed, how, time.perf_counter() - begin)


def main() -> None:
    """Try the sample, saying of each mutant what killed it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=320)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="number of mutants of the sample to skip")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no mutant after so long")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that the tests of a mutant may take")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    modules = {mutant.module for mutant in sample(chosen.mutants, chosen.seed)}
    files = sorted({name for module in modules for name in (*test_files(module), examples(module))})
    subprocess.run([*PYTEST, "-n", str(chosen.workers), *files], cwd=ROOT, check=True)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        places: Queue[Path] = Queue()
        for number in range(chosen.workers):
            for package in PACKAGES:
                shutil.copytree(SOURCES / package, Path(scratch) / str(number) / package)
            places.put(Path(scratch) / str(number))
        fates: list[Fate] = []

        def run(mutant: Mutant) -> None:
            if time.perf_counter() - begin > chosen.seconds:
                return
            place = places.get()
            fates.append(tried(mutant, place, chosen.limit))
            places.put(place)
            chosen.out.write_text(json.dumps([asdict(fate) for fate in fates], indent=1) + "\n")
            print(f"{len(fates)}: {fates[-1].how} ({mutant.module}:{mutant.line})", flush=True)

        with ThreadPoolExecutor(chosen.workers) as pool:
            list(pool.map(run, sample(chosen.mutants, chosen.seed)[chosen.first :]))
    killed = sum(fate.killed for fate in fates)
    print(f"{killed} of {len(fates)} killed: {killed / max(len(fates), 1):.1%}")


if __name__ == "__main__":
    main()
