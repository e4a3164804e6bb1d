"""The three environments, and single runs shown episode by episode.

The paper shows one run of each without saying which. Here it is always the one with seed 0; no prettier one was sought.
Pies and routes are those of the posterior (Bayes-BR, epsilon 0.01) given everything seen before the episode, computed
afresh from the moves in the run's record. Episodes count from 0, as in the paper: nothing was seen before episode 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from bellmanifold.io.models import load_model
from bellmanifold.pictures.drawing import GOAL_COLOUR, draw
from bellmanifold.pictures.palette import COLOURS
from bellmanifold.posteriors.inference import posterior
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.ssp import SSP
from bellmanifold_paper.paper_runs import DEEP_SEA, PYRAMID, SWIRL, Cell, PaperRuns
from bellmanifold_paper.plots.sequence import ORANGE, Shown, draw_episode
from bellmanifold_paper.plots.style import TEXT_WIDTH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EPSILON = 0.01


def demonstration(model: str) -> Cell:
    """The runs of which the first one is shown."""
    return Cell(model, "bayes-br", EPSILON)


def seen_before(run: xr.Dataset, model: SSP, episode: int) -> Dataset:
    """What a run had seen when an episode, counted from 0, began."""
    moves = int(run["moves"].values[:episode].sum())
    return Dataset(model, run["pair"].values[:moves].astype(np.int64), run["reward"].values[:moves])


def show_episode(run: xr.Dataset, model: SSP, episode: int) -> Shown:
    """An episode of a run: what was believed before it, and what was played."""
    data = seen_before(run, model, episode)
    summary = posterior(model, data, epsilon=EPSILON, prior_scale=10.0)
    on_route = np.zeros(model.n_pairs)
    for route in summary.routes or ():
        on_route[list(route.pairs)] += route.probability
    played = seen_before(run, model, episode + 1).pair[len(data) :]
    probability = np.maximum(summary.action_probability.value, 0.0)
    return Shown(f"episode {episode}", probability, data.observed, on_route, played.tolist())


def sequence_page(runs: PaperRuns, model: str, episodes: Sequence[int], columns: int = 5) -> Figure:
    """Some episodes of the run with seed 0."""
    from matplotlib.figure import Figure

    run = PaperRuns(runs.root, 1).separately(demonstration(model))[0]
    problem = load_model(model)
    rows = -(-len(episodes) // columns)
    height = rows * TEXT_WIDTH / columns * 1.12
    figure = Figure(figsize=(TEXT_WIDTH, height + 0.3))
    bottom = 0.3 / (height + 0.3)
    grid = figure.subplots(rows, columns, squeeze=False, gridspec_kw={"wspace": 0.04, "hspace": 0.16})
    figure.subplots_adjust(left=0.005, right=0.995, bottom=bottom, top=1.0 - 0.17 / (height + 0.3))
    for axes, episode in zip(grid.ravel(), episodes, strict=True):
        draw_episode(axes, problem, show_episode(run, problem, episode))
    _explain(figure, problem)
    return figure


def _explain(figure: Figure, model: SSP) -> None:
    """One legend for all episodes."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks: list[Line2D | Patch] = [
        Patch(color=COLOURS[k], label=f"P({name} is optimal)") for k, name in enumerate(model.actions)
    ]
    marks += [
        Patch(color=GOAL_COLOUR, label="goal"),
        Line2D([], [], color="0.55", linestyle=(0, (1, 1.5)), label="no data yet"),
        Patch(facecolor=ORANGE, alpha=0.6, label="optimal route, by probability"),
        Patch(facecolor="none", edgecolor="black", linewidth=0.6, label="played"),
    ]
    figure.legend(handles=marks, loc="lower center", ncols=len(marks), fontsize=6.5, columnspacing=1.2)


def environments_page() -> Figure:
    """The three environments before anything is seen: both actions of a state are as likely to be optimal."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(TEXT_WIDTH, 2.25))
    names = {"deep sea": DEEP_SEA, "deep sea pyramid": PYRAMID, "deep sea swirl": SWIRL}
    grid = figure.subplots(1, 3, gridspec_kw={"wspace": 0.05})
    figure.subplots_adjust(left=0.005, right=0.995, bottom=0.1, top=0.92)
    for axes, (title, reference) in zip(grid, names.items(), strict=True):
        model = load_model(reference)
        draw(model, np.ones(model.n_pairs), axes=axes)
        legend = axes.get_legend()
        marks, labels = legend.legend_handles, [text.get_text() for text in legend.get_texts()]
        legend.remove()
        axes.set_title(title)
    figure.legend(handles=marks, labels=labels, loc="lower center", ncols=2)
    return figure
