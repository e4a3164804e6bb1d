"""Example 1 of the paper as figures: a posterior of two numbers, stretched along an improper policy.

Contours show the joint density, evaluated directly. Partial data with a small tolerance leave a ridge of width epsilon
along theta_1 = theta_2 - 1, which no grid of moderate size would meet: its grid is sheared along the ridge, which keeps
areas. Marginals are integrals over the other coordinate (`bellmanifold_paper.example_1`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from bellmanifold.envs import two_state
from bellmanifold_paper.example_1 import PARTIAL, TRUTH, log_density, marginal
from bellmanifold_paper.plots.densities import SHARES, draw_contours, draw_marginals
from bellmanifold_paper.plots.diagram import draw_diagram
from bellmanifold_paper.plots.style import TEXT_WIDTH, handles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARGINAL_TOLERANCES = (0.1, 0.5, 1.0, 2.0, 5.0)


def draw_two_state_diagram() -> Figure:
    """Figure 1: the problem."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4, 0.95))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    draw_diagram(axes, two_state(), ("$s^1$", "$s^2$"), ("$a^1$ (stay), $-1$", "$a^2$ (go), $-1$"), "$a^g$, 0")
    return figure


def draw_two_state_contours() -> Figure:
    """Figure 2: complete data with a wide tolerance, partial data with a narrow one."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(TEXT_WIDTH, 2.75), layout="constrained")
    left, right = figure.subplots(1, 2)
    x, y = np.meshgrid(np.linspace(-20.0, 36.0, 481), np.linspace(-10.0, 8.0, 361), indexing="ij")
    draw_contours(left, x, y, log_density(np.stack([x, y], axis=-1), 2.0))
    left.set_title(r"complete data, $\epsilon = 2$")
    left.set_xlim(-10.0, 28.0)
    along, across = np.meshgrid(np.linspace(-45.0, 45.0, 601), np.linspace(-0.06, 0.06, 121), indexing="ij")
    x, y = along - 1.0 + across, along
    density = log_density(np.stack([x, y], axis=-1), 0.01, PARTIAL)
    draw_contours(right, x, y, density)
    right.set_title(r"partial data, $\epsilon = 0.01$")
    right.set_xlim(-30.0, 30.0)
    right.set_ylim(-30.0, 30.0)
    closer = right.inset_axes((0.62, 0.1, 0.36, 0.36))
    draw_contours(closer, x, y, density)
    closer.set(xlim=(-2.06, -1.94), ylim=(-1.06, -0.94), xticks=[-2.0], yticks=[-1.0])
    for axes in (left, right, closer):
        _mark(axes)
    for axes in (left, right):
        axes.set_xlabel(r"$\theta_1$ (stay)")
        axes.set_ylabel(r"$\theta_2$ (go)")
    shades = [tuple(colour) for colour in left.collections[0].get_facecolor()]
    marks = [Patch(color=c, label=f"{share:.0%}") for c, share in zip(shades, SHARES, strict=True)]
    figure.legend(handles=[*marks, *handles(left)], loc="outside lower center", ncols=8, title="mass inside")
    return figure


def _mark(axes: Axes) -> None:
    """The true values, and the border between policies."""
    (low, high), other = axes.get_xlim(), axes.get_ylim()
    axes.plot([-60.0, 60.0], [-60.0, 60.0], color="0.5", linewidth=0.7, linestyle=":", label=r"$\theta_1 = \theta_2$")
    axes.plot(*TRUTH, color="#D55E00", marker="*", markersize=6, linestyle="none", label="$Q^*$")
    axes.set_xlim(low, high)
    axes.set_ylim(other)


def draw_two_state_marginals(density_of: Callable[[int, np.ndarray, float], np.ndarray] = marginal) -> Figure:
    """Figure 3: both marginals for several tolerances."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(TEXT_WIDTH, 2.4), layout="constrained")
    pair = figure.subplots(1, 2, sharey=True)
    for which, (axes, low, high) in enumerate(zip(pair, (-12.0, -12.0), (28.0, 10.0), strict=True)):
        x = np.union1d(np.linspace(low, high, 401), np.linspace(TRUTH[which] - 1.5, TRUTH[which] + 1.5, 201))
        density = {rf"$\epsilon = {epsilon:g}$": density_of(which, x, epsilon) for epsilon in MARGINAL_TOLERANCES}
        draw_marginals(axes, x, density, TRUTH[which])
        axes.set_xlim(low, high)
        axes.set_xlabel(rf"$\theta_{which + 1}$ ({('stay', 'go')[which]})")
    pair[0].set_ylim(1e-4, 10.0)
    pair[0].set_ylabel("posterior density")
    figure.legend(handles=handles(pair[0]), loc="outside lower center", ncols=len(MARGINAL_TOLERANCES))
    return figure
