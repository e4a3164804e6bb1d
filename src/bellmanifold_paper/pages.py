"""The comparisons as figures: panels for the tolerances, one legend, axes named once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from bellmanifold_paper.comparisons import (
    METHODS,
    Setting,
    acceptance,
    coverages,
    regrets,
    route_probabilities,
)
from bellmanifold_paper.paper_runs import EPISODES, TOLERANCES, PaperRuns
from bellmanifold_paper.plots.bands import (
    draw_acceptance,
    draw_bands,
    draw_progress,
    draw_ranked,
    draw_routes,
    scale_of,
)
from bellmanifold_paper.plots.style import TEXT_WIDTH, Stroke, handles
from bellmanifold_paper.route_chances import POINTS, final_chances, routes_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

Curves = Mapping[str, Float[np.ndarray, "runs points"]]
ONE_HEIGHT, FOOT = 2.7, 0.2
"""Heights of a block of panels and of the legend below them, in inches."""
LEFT = 0.68
"""Share of the width for the panels of exploration; the rest is for acceptance."""
COLUMNS = list(enumerate(TOLERANCES))
RETUNED = TOLERANCES[:2]
"""The tolerances for which HMC was tuned again."""


def tolerance(epsilon: float) -> str:
    """A tolerance as it is written over a panel."""
    return rf"$\epsilon = {epsilon:g}$"


def regret_page(runs: PaperRuns, settings: Sequence[Setting]) -> Figure:
    """Cumulative regret of all methods, a panel per tolerance."""
    figure, blocks, foot = _blocks(settings, ONE_HEIGHT)
    for block, setting in zip(blocks, settings, strict=True):
        lost = {epsilon: regrets(runs, setting, epsilon) for epsilon in TOLERANCES}
        grid = _tolerance_panels(block, draw_bands, lost)
        for axes in grid:
            axes.set_ylim(bottom=0.0)
        _name_axes(block, "cumulative regret")
    _legend(foot, handles(grid[0]))
    return figure


def progress_page(runs: PaperRuns, settings: Sequence[Setting]) -> Figure:
    """Pairs seen so far, a panel per tolerance, and beside them HMC's acceptance."""
    figure, blocks, foot = _blocks(settings, ONE_HEIGHT, foot=1.7 * FOOT)
    for block, setting in zip(blocks, settings, strict=True):
        left, right = np.asarray(block.subfigures(1, 2, width_ratios=(LEFT, 1.0 - LEFT)))
        seen = {epsilon: coverages(runs, setting, epsilon) for epsilon in TOLERANCES}
        grid = _tolerance_panels(left, draw_progress, seen)
        _name_axes(left, "pairs seen (%)")
        axes = right.subplots()
        draw_acceptance(axes, {tolerance(eps): acceptance(runs, setting.cell("HMC", eps)) for eps in TOLERANCES})
        _count_episodes(axes)
        axes.set(xlabel="episode", ylabel="acceptance probability", title="HMC")
    _legend(foot, handles(grid[0]), at=LEFT / 2, columns=3)
    _legend(foot, handles(axes), at=(1.0 + LEFT) / 2, columns=3, length=1.5)
    return figure


def ranked_page(runs: PaperRuns, setting: Setting, points: int = POINTS) -> Figure:
    """Probabilities of the optimal routes in the last episode, largest first, a panel per tolerance."""
    figure, (block,), foot = _blocks([setting], ONE_HEIGHT)
    best = routes_of(setting.model).is_optimal
    chances = {
        epsilon: {label: final_chances(runs, setting.cell(label, epsilon), points)[:, best] for label in METHODS}
        for epsilon in TOLERANCES
    }
    grid = _tolerance_panels(block, draw_ranked, chances, count_episodes=False)
    grid[0].set_ylim(bottom=0.0)
    block.supxlabel("rank of the optimal route", fontsize=7.5)
    block.supylabel("probability", fontsize=7.5)
    _legend(foot, handles(grid[0]))
    return figure


def routes_page(runs: PaperRuns, settings: Sequence[Setting]) -> Figure:
    """Route probabilities of BR and HMC, a column per tolerance, and of the exact posterior in a column of its own."""
    figure, blocks, _ = _blocks(settings, 2.5, foot=0.0)
    for block, setting in zip(blocks, settings, strict=True):
        _routes_block(block, runs, setting)
    return figure


def _routes_block(block: FigureBase, runs: PaperRuns, setting: Setting) -> None:
    grid = block.subplots(2, len(TOLERANCES) + 1, sharex=True, sharey="row")
    known = routes_of(setting.model)
    scale = scale_of(known.reward)
    panels = [(grid[row, k], label, epsilon) for row, label in enumerate(("BR", "HMC")) for k, epsilon in COLUMNS]
    for axes, label, epsilon in [*panels, (grid[0, -1], "exact", 0.0)]:
        draw_routes(axes, route_probabilities(runs, setting.cell(label, epsilon)), known.reward, known.is_loop, scale)
        _count_episodes(axes)
    for axes, title in zip(grid[0], [*map(tolerance, TOLERANCES), "exact"], strict=True):
        axes.set_title(title)
    for row, label in zip(grid, ("BR", "HMC"), strict=True):
        top = min(row[0].get_ylim()[1], 1.03)
        row[0].set_ylim(-0.03 * top, top)
        row[0].set_ylabel(label)
    grid[0, -1].tick_params(labelbottom=True)
    _name_axes(block, "probability of a route")
    grid[1, -1].set_axis_off()
    bar = grid[1, -1].inset_axes((0.1, 0.02, 0.16, 0.8))
    block.colorbar(scale, cax=bar, label="cumulative reward")


def retuned_page(runs: PaperRuns, setting: Setting) -> Figure:
    """HMC tuned again: acceptance and the probability of the best routes, beside the first tuning."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(TEXT_WIDTH, 2.5), layout="constrained")
    accept, believe = figure.subplots(1, 2)
    best = routes_of(setting.model).is_optimal
    strokes, accepted, belief = {}, {}, {}
    for tuning, line in (("retuned", "-"), ("paper", (0, (1, 1)))):
        for epsilon, colour in zip(RETUNED, ("#0072B2", "#D55E00"), strict=True):
            label = f"{tolerance(epsilon)}, {'tuned again' if tuning == 'retuned' else 'first tuning'}"
            cell = setting.cell("HMC", epsilon, tuning)
            strokes[label], accepted[label] = Stroke(colour, line), acceptance(runs, cell)
            belief[label] = route_probabilities(runs, cell)[:, :, best].sum(axis=2)
    draw_acceptance(accept, accepted, strokes)
    draw_bands(believe, belief, strokes)
    believe.set_ylim(-0.02, 1.02)
    for axes, name in ((accept, "acceptance probability"), (believe, "probability of the optimal route")):
        _count_episodes(axes)
        axes.set(xlabel="episode", ylabel=name)
    figure.legend(handles=handles(believe), loc="outside lower center", ncols=4)
    return figure


def _blocks(
    settings: Sequence[Setting], height: float, foot: float = FOOT
) -> tuple[Figure, list[FigureBase], FigureBase]:
    """A figure with a part for each setting and one below for legends; several settings name their priors."""
    from matplotlib.figure import Figure

    heights = [*(height for _ in settings), max(foot, 1e-3)]
    figure = Figure(figsize=(TEXT_WIDTH, sum(heights)), layout="constrained")
    *blocks, below = np.asarray(figure.subfigures(len(heights), 1, height_ratios=heights))
    if len(settings) > 1:
        for letter, block, setting in zip("abcd", blocks, settings, strict=False):
            block.suptitle(rf"({letter}) $\sigma = {setting.prior_scale:g}$", fontsize=8)
    return figure, blocks, below


def _tolerance_panels(
    block: FigureBase,
    draw: Callable[[Axes, Curves], object],
    found: Mapping[float, Curves],
    count_episodes: bool = True,
) -> list[Axes]:
    """A panel for each tolerance, with what was found at it."""
    grid: list[Axes] = list(block.subplots(2, 3, sharex=True, sharey=True).ravel())
    for axes, (epsilon, curves) in zip(grid, found.items(), strict=True):
        draw(axes, curves)
        axes.set_title(tolerance(epsilon))
        if count_episodes:
            _count_episodes(axes)
    return grid


def _count_episodes(axes: Axes) -> None:
    axes.set_xlim(0.0, EPISODES + 1.0)
    axes.set_xticks([0, EPISODES // 2, EPISODES])


def _name_axes(block: FigureBase, what: str) -> None:
    block.supxlabel("episode", fontsize=7.5)
    block.supylabel(what, fontsize=7.5)


def _legend(foot: FigureBase, lines: Sequence[Artist], at: float = 0.5, columns: int = 6, length: float = 2.2) -> None:
    """A legend below the panels, around a place between 0 (left) and 1 (right), with lines of some length."""
    look: dict[str, Any] = {"ncols": columns, "columnspacing": 0.6 * length, "handlelength": length}
    look |= {"borderaxespad": 0.0, "labelspacing": 0.2, "handletextpad": 0.5}
    foot.legend(handles=lines, loc="center", bbox_to_anchor=(at, 0.5), **look)
