"""Line plots: cumulative regret over episodes, and improper mass against tolerance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from bellmanifold.errors import BadInputError, kind_of_value
from bellmanifold.pictures.palette import COLOURS
from bellmanifold.problem.costs import column_name, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = tuple[Float[np.ndarray, "episodes"], Float[np.ndarray, "episodes"]]
MEASURES = {"completed_regret": "cumulative completed regret", "reward": "cumulative reward"}
"""Measures of runs and their labels; the second is used if no optimum is known."""
STYLES: Final = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D")


@runtime_checkable
class Learnt(Protocol):
    """Interface of one agent's runs, as `bm.learn` returns them."""

    @property
    def agent(self) -> str:
        """Name of the agent."""

    def curve(self, measure: str) -> Curve:
        """Mean and standard deviation over runs of a measure, cumulated over episodes."""


def improper_mass(
    epsilon: Float[np.ndarray, "epsilons"],
    prior_scale: Float[np.ndarray, "scales"],
    discount: Float[np.ndarray, "discounts"],
    mass: Float[np.ndarray, "discounts scales epsilons"],
    axes: Axes | None = None,
) -> Axes:
    """Plot improper mass against tolerance: one colour per prior scale, one line style per discount.

    Args:
        epsilon: tolerances, positive.
        prior_scale: at most eight prior standard deviations.
        discount: at most four discounts.
        mass: probabilities, as `identifiability.improper_mass_sweep` computes them.
        axes: where to draw; by default a new figure.
    """
    from matplotlib import pyplot
    from matplotlib.lines import Line2D

    if len(prior_scale) > len(COLOURS) or len(discount) > len(STYLES):
        raise ValueError(f"at most {len(COLOURS)} prior scales and {len(STYLES)} discounts can be distinguished")
    if axes is None:
        _, axes = pyplot.subplots(figsize=(6.0, 3.6), layout="constrained")
    for d, s in np.ndindex(len(discount), len(prior_scale)):
        axes.plot(epsilon, mass[d, s], color=COLOURS[s], linestyle=STYLES[d], marker=MARKERS[d], markersize=3.5)
    axes.set_xscale("log")
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("tolerance epsilon")
    axes.set_ylabel("improper mass")
    handles = [Line2D([], [], color=COLOURS[s], label=f"prior scale {x:g}") for s, x in enumerate(prior_scale)]
    for d, x in enumerate(discount):
        label = "no discount" if x == 1.0 else f"discount {x:g}"
        handles.append(
            Line2D([], [], color="black", linestyle=STYLES[d], marker=MARKERS[d], markersize=3.5, label=label)
        )
    axes.legend(handles=handles, frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def draw_regret(given: Any, axes: Axes | None = None, measure: str | None = None) -> Axes:
    """Plot regret curves, each with a band of one standard deviation over runs.

    Args:
        given: a result of `bm.learn`, several of them in a list or by label, or curves by label: each the mean and the
            standard deviation of the cumulative regret after each episode. Results of `bm.learn` show completed regret,
            or reward if the optimum is unknown for one of them.
        axes: where to draw; by default a new figure.
        measure: label of the vertical axis; by default the measure that is drawn.

    Raises:
        BadInputError: for any other `given`.
    """
    curves, drawn = _curves(_by_label(given))
    measure = drawn if measure is None else measure
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    if axes is None:
        _, axes = pyplot.subplots(figsize=(5.0, 3.5), layout="constrained")
    for k, (label, (mean, sd)) in enumerate(curves.items()):
        episode = np.arange(1, len(mean) + 1)
        colour = COLOURS[k % len(COLOURS)]
        axes.plot(episode, mean, color=colour, label=label)
        axes.fill_between(episode, mean - sd, mean + sd, color=colour, alpha=0.2, linewidth=0)
    axes.set_xlabel("episode")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(measure)
    axes.legend(frameon=False)
    return axes


def _by_label(given: Any) -> Mapping[str, Any]:
    """What to draw, by label: the agent's name by default, numbered if repeated."""
    if isinstance(given, Learnt):
        return {given.agent: given}
    if isinstance(given, Mapping) and given:
        return given
    if not isinstance(given, Mapping) and isinstance(given, Iterable):
        several = list(given)
        if several and all(isinstance(one, Learnt) for one in several):
            seen: Counter[str] = Counter()
            labels = []
            for one in several:
                seen[one.agent] += 1
                labels.append(one.agent if seen[one.agent] == 1 else f"{one.agent} {seen[one.agent]}")
            return dict(zip(labels, several, strict=True))
    raise _not_drawn(given)


def _curves(given: Mapping[str, Any]) -> tuple[dict[str, Curve], str]:
    """Curves by label, and the name of their measure."""
    learnt = [one for one in given.values() if isinstance(one, Learnt)]
    measure = "completed_regret"
    if not all(np.isfinite(one.curve(measure)[0]).all() for one in learnt):
        measure = "reward"
    curves = {
        str(label): one.curve(measure) if isinstance(one, Learnt) else _curve(one) for label, one in given.items()
    }
    if not learnt:
        return curves, "cumulative regret"
    shared = {getattr(one, "costs", None) for one in learnt}
    costs = shared.pop() if len(shared) == 1 else None
    if measure == "reward":
        curves = {label: (signed(mean, costs), sd) for label, (mean, sd) in curves.items()}
    return curves, column_name(MEASURES[measure], costs)


def _curve(given: Any) -> Curve:
    """Check a curve: a mean and a standard deviation after each episode."""
    try:
        mean, sd = (np.asarray(part, dtype=np.float64) for part in given)
    except (TypeError, ValueError):
        raise _not_drawn(given) from None
    if mean.ndim != 1 or mean.shape != sd.shape:
        raise BadInputError(f"a curve has shapes {mean.shape} and {sd.shape}: give a mean and an sd for each episode")
    return mean, sd


def _not_drawn(given: Any) -> BadInputError:
    return BadInputError(
        f"what to draw is {kind_of_value(given)}: give what bm.learn returned, a list of these, {{label: learning}} or "
        "{label: (mean, sd)}"
    )
