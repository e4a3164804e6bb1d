"""Example 1 of the paper: a posterior of two numbers, stretched along an improper policy.

At the only state one may stay (theta_1) or go (theta_2); both pay -1, so Q* = (-2, -1). Contours show the joint
density, evaluated directly. Partial data with a small tolerance leave a ridge of width epsilon along theta_1 =
theta_2 - 1, which no grid of moderate size would meet: its grid is sheared along the ridge, which keeps areas.

Marginals are integrals over the other coordinate. The integrand is smooth between the kink at theta_1 = theta_2 and
multiples of the scales sigma and epsilon around its peaks; Gauss's rule on each piece gives them to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from bellmanifold.bellman import log_likelihood, transitions
from bellmanifold.envs import two_state
from bellmanifold.figures.contours import SHARES, draw_contours
from bellmanifold.figures.diagram import draw_diagram
from bellmanifold.figures.marginals import draw_marginals
from bellmanifold.figures.style import TEXT_WIDTH, handles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PRIOR_SCALE = 10.0
TRUTH = (-2.0, -1.0)
COMPLETE, PARTIAL = np.array([True, True]), np.array([True, False])
MARGINAL_TOLERANCES = (0.1, 0.5, 1.0, 2.0, 5.0)
WIDTHS = np.array([2.0, 5.0, 9.0, 14.0])
"""Pieces of an integral end at so many scales from each peak."""
NODES = 20

Points = Float[np.ndarray, "*shape"]


def log_density(
    theta: Float[np.ndarray, "*shape 2"], epsilon: float, observed: Bool[np.ndarray, "2"] = COMPLETE
) -> Float[np.ndarray, "*shape"]:
    """Log of prior times relaxed likelihood: the posterior's density up to the evidence."""
    model = two_state()
    law, reward = transitions(model), jnp.asarray(model.reward)
    seen, scale = jnp.asarray(observed), jnp.full(2, epsilon)
    likelihood = jax.vmap(lambda q: log_likelihood(law, q, seen, reward, scale))(jnp.asarray(theta.reshape(-1, 2)))
    prior = -0.5 * (theta**2).sum(axis=-1) / PRIOR_SCALE**2 - np.log(2 * np.pi * PRIOR_SCALE**2)
    return np.asarray(prior + np.asarray(likelihood).reshape(theta.shape[:-1]))


@lru_cache
def log_evidence(epsilon: float) -> float:
    """Log of the total mass of `log_density` with complete data."""
    peaks = np.array([TRUTH[1]])
    return float(np.log(_integrate(lambda y: _slice_mass(1, y, epsilon), _breaks(peaks, epsilon))))


def marginal(which: int, x: Float[np.ndarray, "points"], epsilon: float) -> Float[np.ndarray, "points"]:
    """Posterior density of theta_1 (`which` 0) or theta_2 (1) with complete data."""
    return _slice_mass(which, x, epsilon) / np.exp(log_evidence(epsilon))


def _slice_mass(which: int, x: Points, epsilon: float) -> Points:
    """Mass on the line where one coordinate is x."""
    x = np.asarray(x, dtype=np.float64)
    # over theta_2 the likelihood peaks at -1 and at theta_1 + 1; over theta_1 at theta_2 - 1; both have a kink at x
    peaks = np.stack([np.full_like(x, TRUTH[1]), x + 1.0, x] if which == 0 else [x - 1.0, x], axis=-1)

    def along(y: Points) -> Points:
        here = np.broadcast_to(x[..., None, None], y.shape)
        theta = np.stack([here, y] if which == 0 else [y, here], axis=-1)
        return np.exp(log_density(theta, epsilon))

    return _integrate(along, _breaks(peaks, epsilon))


def _breaks(peaks: Float[np.ndarray, "*shape peaks"], epsilon: float) -> Float[np.ndarray, "*shape breaks"]:
    """Where pieces of an integral begin and end."""
    away = np.concatenate([-epsilon * WIDTHS, [0.0], epsilon * WIDTHS])
    near = (peaks[..., None] + away).reshape(*peaks.shape[:-1], -1)
    far = np.broadcast_to(PRIOR_SCALE * np.array([-9.0, -3.0, -1.0, 0.0, 1.0, 3.0, 9.0]), (*near.shape[:-1], 7))
    return np.sort(np.clip(np.concatenate([near, far], axis=-1), far.min(), far.max()), axis=-1)


def _integrate(integrand: Callable[[Points], Points], breaks: Float[np.ndarray, "*shape breaks"]) -> Points:
    """Gauss's rule on every piece, summed."""
    node, weight = np.polynomial.legendre.leggauss(NODES)
    low, high = breaks[..., :-1, None], breaks[..., 1:, None]
    y = (low + high) / 2 + (high - low) / 2 * node
    return np.asarray((integrand(y) * weight * (high - low) / 2).sum(axis=(-2, -1)))


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


def draw_two_state_marginals() -> Figure:
    """Figure 3: both marginals for several tolerances."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(TEXT_WIDTH, 2.4), layout="constrained")
    pair = figure.subplots(1, 2, sharey=True)
    for which, (axes, low, high) in enumerate(zip(pair, (-12.0, -12.0), (28.0, 10.0), strict=True)):
        x = np.union1d(np.linspace(low, high, 401), np.linspace(TRUTH[which] - 1.5, TRUTH[which] + 1.5, 201))
        density = {rf"$\epsilon = {epsilon:g}$": marginal(which, x, epsilon) for epsilon in MARGINAL_TOLERANCES}
        draw_marginals(axes, x, density, TRUTH[which])
        axes.set_xlim(low, high)
        axes.set_xlabel(rf"$\theta_{which + 1}$ ({('stay', 'go')[which]})")
    pair[0].set_ylim(1e-4, 10.0)
    pair[0].set_ylabel("posterior density")
    figure.legend(handles=handles(pair[0]), loc="outside lower center", ncols=len(MARGINAL_TOLERANCES))
    return figure
