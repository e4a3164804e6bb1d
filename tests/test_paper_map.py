"""The page that maps the paper to the code stays true: paths resolve, tests exist, no item is missing."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "paper-map.md"
PROOF_ONLY = "proof only"

SOURCE_LABELS = """
eqn:bellmanoptim eqn:def_of_g eqn:llhpstarnoisy eqn:llhpstarnoisyfull eqn:pstarnoisyfull eq:ts_mdp eqn:hausdorff
eqn:abcpos eqn:gaussianintegralformula eqn:maxprob_u eq:bar_lowercase_p eqn:bar_P_y eqn:lemma_fpi
eqn:jointgaussian:apdproofpsrl eqn:lem:step1 eqn:lemma:loopthm_alg_2 eqn:lem_llhinv eqn:lem:propernou_eq1
eqn:lem:propernou_eq2
ass:boeunique1 ass:boeunique2 def:tabular def:rcp def:coareaformula
thmvunique thm:hausdorff_maintext thm:hausdorff_maintext_tabular thm:unboundedlh cor:qvuniqueness
cor:tabularhausdorff_m lem:loopthm lem:propernou lem:complete_diaconis lem:lipschitz lem:bellmanfirstpart
lem:cor:hausdorff lem:nongoalrecurstate lem:theta_plus_c_u prop:psrl_new
rem:dataset rem:hausdorff_corr rmk:psrl_extension rem:Gamma_0_Gamma_1 ex:2dmdp
alg:onlinedegen1 tab:hmc_stepsize
fig:2dmdp fig:2dcontour fig:illustrative_plot fig:deepsea_init_demo fig:demo_deepsea fig:demo_deepseapyramid
fig:demo_deepseaswirl fig:deepsea_demo_3 fig:deepsea_policy_cvg fig:deepsea_cumreg fig:deepsea_cumreg_and_acc
fig:deepsea_expl_prog fig:deepsea_hmc_acc fig:deepseapyramid_demo_5 fig:deepseaswirl_demo_5 fig:deepsea_hmc_add
fig:deepsea_hmc_acc_add fig:deepsea_convg_hmc_add fig:deepseaswirl_policy_cvg fig:deepseaswirl_s10_policy_cvg
fig:deepseaswirl_s1_policy_cvg fig:deepseaswirl_cumreg fig:deepseaswirl_s10_cumreg fig:deepseaswirl_s1_cumreg
fig:deepseaswirl_cumreg_and_acc fig:deepseaswirl_s10_expl_prog fig:deepseaswirl_s10_hmc_acc
fig:deepseaswirl_s1_expl_prog fig:deepseaswirl_s1_hmc_acc fig:deepseapyramid_policy_cvg fig:deepseapyramid_cumreg
fig:deepseapyramid_cumreg_and_acc fig:deepseapyramid_expl_prog fig:deepseapyramid_hmc_acc fig:deepseapyramid_rank
fig:deepsea_sto_cumreg
"""
"""Every label the source gives an equation, statement, figure, table or algorithm."""

COUNTS = {"Equation": 21, "Assumption": 2, "Definition": 3, "Theorem": 4, "Corollary": 2, "Lemma": 8, "Proposition": 1}
COUNTS |= {"Remark": 5, "Example": 1, "Algorithm": 1, "Table": 1, "Figure": 19}
"""How many of each kind LaTeX numbers, unlabelled ones included."""


class Row(NamedTuple):
    number: str
    label: str
    says: str
    code: str
    test: str


class Symbol(NamedTuple):
    symbol: str
    meaning: str
    name: str
    where: str


def cells(line: str) -> list[str]:
    return [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]


def table_lines() -> list[list[str]]:
    lines = [cells(line) for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [line for line in lines if line[0] not in ("number", "symbol") and not line[0].startswith("---")]


ROWS = [Row(*line) for line in table_lines() if len(line) == len(Row._fields)]
SYMBOLS = [Symbol(*line) for line in table_lines() if len(line) == len(Symbol._fields)]


def resolve(path: str) -> Any:
    """The object a dotted path names, as Python code would find it; raises if there is none."""
    first, *parts = path.split(".")
    found: Any = importlib.import_module(first)
    for depth, part in enumerate(parts, start=1):
        is_submodule = inspect.ismodule(found) and not hasattr(found, part)
        found = importlib.import_module(".".join([first, *parts[:depth]])) if is_submodule else getattr(found, part)
    return found


@cache
def names_of_tests(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def complaints(row: Row) -> list[str]:
    """What is wrong with a row; nothing if it is sound."""
    if PROOF_ONLY in (row.code, row.test):
        return [] if row.code == row.test else [f"{row.number}: proof only in one column"]
    found = []
    try:
        resolve(row.code)
    except (ImportError, AttributeError) as error:
        found.append(f"{row.number}: {row.code}: {error}")
    if not row.code.startswith(("bellmanifold.", "bellmanifold_paper.")):
        found.append(f"{row.number}: {row.code} is not ours")
    file, _, name = row.test.partition("::")
    if not (file.startswith("tests/") and (ROOT / file).is_file()):
        found.append(f"{row.number}: no file {file}")
    elif name not in names_of_tests(ROOT / file):
        found.append(f"{row.number}: no test {name} in {file}")
    return found


def test_every_row_is_a_row_of_one_of_the_two_tables():
    assert len(ROWS) + len(SYMBOLS) == len(table_lines())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.number)
def test_code_and_test_exist(row):
    assert complaints(row) == []


def test_a_wrong_row_would_be_noticed():
    good = Row(
        "Lemma 0", "-", "", "bellmanifold.mdp.graph.is_proper", "tests/test_paper_map.py::test_code_and_test_exist"
    )
    assert complaints(good) == []
    assert complaints(good._replace(code=PROOF_ONLY, test=PROOF_ONLY)) == []
    wrong = [
        good._replace(code="bellmanifold.mdp.graph.no_such_function"),
        good._replace(code="bellmanifold.no_such_module.solve"),
        good._replace(code="bellmanifold.problem.ssp.SSP.no_such_method"),
        good._replace(code="numpy.linalg.solve"),
        good._replace(code=PROOF_ONLY),
        good._replace(test=PROOF_ONLY),
        good._replace(test="tests/test_no_such_file.py::test_x"),
        good._replace(test="tests/test_paper_map.py::test_no_such_test"),
        good._replace(test="tests/test_paper_map.py"),
    ]
    assert [len(complaints(row)) for row in wrong] == [1] * len(wrong)


def test_every_label_of_the_paper_is_on_the_page():
    on_page = [row.label for row in ROWS if row.label != "-"]
    assert sorted(on_page) == sorted(re.findall(r"\S+", SOURCE_LABELS))


def test_numbers_run_without_gaps():
    numbered = [match for row in ROWS if (match := re.fullmatch(r"([A-Z][a-z]+) (\d+)", row.number))]
    for kind, count in COUNTS.items():
        found = [int(match[2]) for match in numbered if match[1] == kind]
        assert found == list(range(1, count + 1)), kind
    assert {match[1] for match in numbered} == set(COUNTS)


def names_of(found: Any) -> set[str]:
    """Attributes, fields and arguments of an object."""
    arguments = set(inspect.signature(found).parameters) if callable(found) else set()
    return {*dir(found), *getattr(found, "__annotations__", {}), *arguments}


@pytest.mark.parametrize("row", SYMBOLS, ids=lambda row: row.symbol)
def test_symbols_have_the_names_the_page_gives_them(row):
    assert row.name in names_of(resolve(row.where))
