"""The runs behind the paper's comparisons, cell by cell.

A *cell* is what a curve of the paper averages over: runs that agree in everything but their seeds, which are
0, 1, 2, ... . Cells name runs of the store, so a run that several figures need is played once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import xarray as xr

from bellmanifold.learning.run_file import load_run
from bellmanifold.learning.run_settings import RunSettings, make_settings
from bellmanifold_lab.sweeps.store import Store

EPISODES = 100
TOLERANCES = (0.01, 0.1, 0.2, 0.5, 1.0, 5.0)
"""The six tolerances of the paper."""
DEEP_SEA, PYRAMID, SWIRL = (f"env:{name}?depth=5" for name in ("deep-sea", "pyramid", "swirl"))
SMALL_DEEP_SEA, SMALL_SWIRL = "env:deep-sea?depth=3", "env:swirl?depth=3"
SLIPPERY = "env:deep-sea?depth=4&slip=0.1"
"""The stochastic problem of the appendix."""
RAGGED = ("pair", "reward", "policy", "action_probability", "q_mean")
"""Variables of a run that a cell does not stack: runs differ in their number of moves, and in what is recorded."""


@dataclass(frozen=True)
class Cell:
    """What the runs of a curve share.

    Attributes:
        model: reference of the problem.
        agent: name of the agent.
        epsilon: tolerance; None for agents that have none, such as `manifold`.
        prior_scale: standard deviation of the prior.
        tuning: of `bayes-br-hmc`: "paper" or "retuned".
        episodes: of each run; by default as many as in the paper.
    """

    model: str
    agent: str
    epsilon: float | None = None
    prior_scale: float = 10.0
    tuning: str = "paper"
    episodes: int | None = None

    def settings(self, runs: int) -> list[RunSettings]:
        """The cell's runs."""
        entry = {
            "model": self.model,
            "agent": self.agent,
            "prior_scale": self.prior_scale,
            "episodes": self.episodes or EPISODES,
        }
        entry |= {} if self.epsilon is None else {"epsilon": self.epsilon}
        entry |= {"tuning": self.tuning} if self.agent == "bayes-br-hmc" else {}
        entry |= {"members": 10} if self.model == SLIPPERY and self.agent == "bayes-td-en" else {}
        return [make_settings({**entry, "seed": seed}) for seed in range(runs)]


@dataclass(frozen=True)
class PaperRuns:
    """Cells read from a store.

    Attributes:
        root: the directory the runs are in.
        runs: how many a cell has.
    """

    root: Path
    runs: int

    @cached_property
    def _read(self) -> dict[Cell, xr.Dataset]:
        return {}

    def cell(self, cell: Cell) -> xr.Dataset:
        """All runs of a cell, stacked along the dimension `run`; each file is read once."""
        if cell not in self._read:
            found = [_in_order(run.drop_vars(RAGGED, errors="ignore")) for run in self.separately(cell)]
            self._read[cell] = xr.concat(found, "run", combine_attrs="drop")
        return self._read[cell]

    def separately(self, cell: Cell) -> list[xr.Dataset]:
        """The runs of a cell one by one, with every move."""
        store = Store(self.root)
        return [load_run(store.path(settings)) for settings in cell.settings(self.runs)]


def _in_order(run: xr.Dataset) -> xr.Dataset:
    """A run with its routes in the order of their pairs, which is the same for all runs of a cell."""
    return run.isel(route_number=np.lexsort(run["route"].values.T[::-1])) if "route" in run else run
