"""The cells of the paper: the runs they name are those of the shipped plan, and stacked runs agree on their routes."""

from pathlib import Path

import numpy as np
from toy_agents import record_run

from bellmanifold.learning.run_file import encode
from bellmanifold_lab.sweeps.plan import plan_runs, read_plan
from bellmanifold_lab.sweeps.store import Store
from bellmanifold_paper.paper_runs import DEEP_SEA, PYRAMID, SLIPPERY, SWIRL, TOLERANCES, Cell, PaperRuns

PLAN = Path(__file__).parent.parent / "plans" / "paper.toml"
PAPERS_AGENTS = ("bayes-br", "bayes-br-hmc", "bayes-td", "bayes-td-en", "bayes-td-max")


def test_the_cells_are_the_shipped_plan():
    settings = [(DEEP_SEA, 10.0), (PYRAMID, 10.0), (SWIRL, 10.0), (SWIRL, 1.0), (SLIPPERY, 10.0)]
    cells = [Cell(model, "manifold", None, scale) for model, scale in settings]
    cells += [Cell(m, agent, epsilon, s) for m, s in settings for agent in PAPERS_AGENTS for epsilon in TOLERANCES]
    cells += [Cell(DEEP_SEA, "bayes-br-hmc", epsilon, tuning="retuned") for epsilon in (0.01, 0.1)]
    named = plan_runs([settings for cell in cells for settings in cell.settings(10)])
    assert set(named.runs) == set(read_plan(PLAN).runs)


def test_stacked_runs_number_routes_alike(tmp_path):
    cell = Cell("env:deep-sea?depth=3", "bayes-td", 0.1, episodes=3)
    store = Store(tmp_path)
    for settings in cell.settings(4):
        store.write(settings, encode(record_run(settings)))
    found = PaperRuns(tmp_path, 4)
    stacked = found.cell(cell)
    assert stacked["regret"].shape == (4, 3)
    assert (stacked["route"] == stacked["route"][0]).all()
    for run, alone in enumerate(found.separately(cell)):
        chance = alone["route_probability"].values.T
        by_route = {tuple(route): p for route, p in zip(alone["route"].values, chance, strict=True)}
        again = [by_route[tuple(route)] for route in stacked["route"].values[run]]
        np.testing.assert_array_equal(stacked["route_probability"].values[run].T, again)
