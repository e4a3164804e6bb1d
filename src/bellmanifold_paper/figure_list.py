"""Every figure of the paper by name: what it shows, which runs it needs, how it is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from bellmanifold.errors import BadInputError, quote
from bellmanifold.learning.run_settings import RunSettings
from bellmanifold_paper import demonstrations, pages
from bellmanifold_paper import two_state_figures as two_state
from bellmanifold_paper.comparisons import METHODS, Setting
from bellmanifold_paper.demonstrations import demonstration, sequence_page
from bellmanifold_paper.paper_runs import DEEP_SEA, PYRAMID, SLIPPERY, SMALL_DEEP_SEA, SWIRL, Cell, PaperRuns

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SECONDS = {"bayes-br": 0.6, "manifold": 0.3, "bayes-br-hmc": 0.8}
"""Roughly what a run of an agent takes on one core, on average over the paper's problems."""
OTHERS = 0.15
"""The same of agents whose posterior is in closed form."""


def cost(runs: Iterable[RunSettings]) -> float:
    """Roughly how many seconds of one core some runs take."""
    return math.fsum(SECONDS.get(run.agent, OTHERS) for run in runs)


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper.

    Attributes:
        name: by which it is asked for.
        number: in the paper.
        about: what it shows, in a line.
        draw: draws it from the runs.
        cells: the runs it needs.
        first_only: it needs the first run of each cell alone.
    """

    name: str
    number: int
    about: str
    draw: Callable[[PaperRuns], Figure]
    cells: tuple[Cell, ...] = ()
    first_only: bool = False

    def settings(self, runs: int) -> list[RunSettings]:
        """The runs it needs."""
        return [settings for cell in self.cells for settings in cell.settings(1 if self.first_only else runs)]


Draw = Callable[[PaperRuns], "Figure"]
DEEP, MANY, SLIP = (Setting(model) for model in (DEEP_SEA, PYRAMID, SLIPPERY))
SWIRLS = (Setting(SWIRL, 10.0), Setting(SWIRL, 1.0))


def _alone(draw: Callable[[], Figure]) -> Draw:
    """A figure that needs no runs."""
    return lambda runs: draw()


def _episodes(name: str, number: int, about: str, model: str, shown: Iterable[int]) -> PaperFigure:
    draw = partial(sequence_page, model=model, episodes=tuple(shown))
    return PaperFigure(name, number, about, draw, (demonstration(model),), first_only=True)


def _routes(name: str, number: int, about: str, *settings: Setting) -> PaperFigure:
    cells = [cell for setting in settings for cell in setting.cells("BR", "HMC", "exact")]
    return PaperFigure(name, number, about, partial(pages.routes_page, settings=settings), tuple(cells))


def _all_methods(name: str, number: int, about: str, draw: Draw, *settings: Setting) -> PaperFigure:
    cells = [cell for setting in settings for cell in setting.cells(*METHODS)]
    return PaperFigure(name, number, about, draw, tuple(cells))


def _regret(name: str, number: int, about: str, *settings: Setting) -> PaperFigure:
    return _all_methods(name, number, about, partial(pages.regret_page, settings=settings), *settings)


def _progress(name: str, number: int, about: str, *settings: Setting) -> PaperFigure:
    return _all_methods(name, number, about, partial(pages.progress_page, settings=settings), *settings)


_RETUNED = tuple(DEEP.cell("HMC", epsilon, tuning) for epsilon in pages.RETUNED for tuning in ("retuned", "paper"))
_RANKED = partial(pages.ranked_page, setting=MANY)

_ALL = (
    PaperFigure("two-state-diagram", 1, "Example 1 as a graph", _alone(two_state.draw_two_state_diagram)),
    PaperFigure(
        "two-state-contours",
        2,
        "its posterior: complete and partial data",
        _alone(two_state.draw_two_state_contours),
    ),
    PaperFigure(
        "two-state-marginals",
        3,
        "its marginals for several tolerances",
        _alone(two_state.draw_two_state_marginals),
    ),
    PaperFigure("environments", 4, "deep sea, pyramid and swirl", _alone(demonstrations.environments_page)),
    _episodes("deep-sea-3-episodes", 5, "a run on deep sea, depth 3, episode by episode", SMALL_DEEP_SEA, range(10)),
    _routes("deep-sea-routes", 6, "deep sea: route probabilities, BR and HMC", DEEP),
    _regret("deep-sea-regret", 7, "deep sea: cumulative regret", DEEP),
    _progress("deep-sea-progress", 8, "deep sea: pairs seen, HMC's acceptance", DEEP),
    _episodes("pyramid-episodes", 9, "a run on the pyramid", PYRAMID, (0, 5, 10, 15, 21)),
    _episodes("swirl-episodes", 10, "a run on the swirl", SWIRL, (0, 10, 15, 20, 36)),
    PaperFigure("hmc-retuned", 11, "deep sea: HMC tuned again", partial(pages.retuned_page, setting=DEEP), _RETUNED),
    _routes("swirl-routes", 12, "swirl: route probabilities, prior sd 10 and 1", *SWIRLS),
    _regret("swirl-regret", 13, "swirl: cumulative regret, prior sd 10 and 1", *SWIRLS),
    _progress("swirl-progress", 14, "swirl: pairs seen, HMC's acceptance, prior sd 10 and 1", *SWIRLS),
    _routes("pyramid-routes", 15, "pyramid: route probabilities, BR and HMC", MANY),
    _regret("pyramid-regret", 16, "pyramid: cumulative regret", MANY),
    _progress("pyramid-progress", 17, "pyramid: pairs seen, HMC's acceptance", MANY),
    _all_methods("pyramid-ranked", 18, "pyramid: the eight optimal routes, ranked", _RANKED, MANY),
    _regret("slippery-regret", 19, "slippery deep sea, depth 4: cumulative regret", SLIP),
)
FIGURES = {figure.name: figure for figure in _ALL}
"""All figures by name, in the order of the paper."""


def find_figures(names: Iterable[str]) -> list[PaperFigure]:
    """The figures of these names or numbers, each once, in the order of the paper; all of them if there are none.

    Raises:
        BadInputError: for an unknown name.
    """
    numbered = {str(figure.number): figure.name for figure in _ALL}
    wanted = {numbered.get(name.strip().lower().removeprefix("figure").lstrip(" -"), name) for name in names}
    unknown = sorted(wanted - set(FIGURES))
    if unknown:
        known = ", ".join(FIGURES)
        raise BadInputError(
            f"FIGURE: unknown name {quote(unknown[0])}: give a number from 1 to {len(_ALL)}, or one of {known} "
            "(--list says more)"
        )
    return [figure for figure in _ALL if figure.name in wanted or not wanted]
