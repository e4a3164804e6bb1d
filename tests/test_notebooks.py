"""The notebooks of `examples` run from the first cell to the last, and are kept without what they print."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parent.parent / "examples"
NOTEBOOKS = ("first_posterior", "own_environment", "compare_agents")
SECONDS = 600
"""Each takes some ten seconds on a machine that has nothing else to do."""


def read(name):
    return nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)


def test_all_notebooks_are_here():
    assert {path.stem for path in EXAMPLES.glob("*.ipynb")} == set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_they_are_kept_without_outputs(name):
    book = read(name)
    nbformat.validate(book)
    assert book.cells[0].source.startswith("# ")
    for cell in book.cells:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
        assert max(map(len, cell.source.splitlines())) <= 160


@pytest.mark.parametrize(
    "name", [NOTEBOOKS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in NOTEBOOKS[1:])]
)
def test_they_run(name, tmp_path):
    """In a directory of their own. Whatever a cell shows is shown: no cell ends in an error, tables have HTML."""
    book = read(name)
    NotebookClient(
        book, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    kinds = {output.output_type for output in outputs}
    assert kinds <= {"execute_result", "display_data", "stream"}
    assert all(output.name == "stdout" for output in outputs if output.output_type == "stream"), "no warnings"
    assert sum("text/html" in output.get("data", {}) for output in outputs) >= 3
