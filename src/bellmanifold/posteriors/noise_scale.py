"""The scale eta of reward noise, when it has to be inferred: one more coordinate of the chart.

Pair i was observed m_i times, with mean reward r_i and squared deviations from it that sum to S_i. For Gaussian noise
of sd eta its rewards have density

    N(r_i; g_i, eta^2 / m_i) x  (2 pi eta^2)^(-(m_i - 1)/2) m_i^(-1/2) exp(-S_i / (2 eta^2)).

The first factor is a kernel of width eta / sqrt(m_i), which the chart's residual coordinates absorb whatever eta is.
The second, the *scatter*, depends on eta alone. So eta is drawn from the distribution proportional to prior times
scatter, and the weight depends on eta only through the action values that it shifts. That distribution has one
dimension: its quantile function is tabulated against a standard normal number, so samplers see one more normal
coordinate, and its normalising constant enters the evidence.

Where repeats of every pair agree exactly, prior times scatter has infinite mass near eta = 0: such data come from
deterministic rewards and are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtri

from bellmanifold.errors import BadInputError
from bellmanifold.problem.dataset import Visits

LogPrior = Callable[[Float[np.ndarray, "scales"]], Float[np.ndarray, "scales"]]
"""Log density of a prior over eta > 0, vectorised."""
NEGLIGIBLE = 50.0
"""The table ends where the log density of log eta is this far below its maximum."""
WIDEST = 150.0
KNOTS = 4097


@dataclass(frozen=True, eq=False)
class ScaleTable:
    """The quantile function of eta's distribution.

    Attributes:
        normal: standard normal numbers, ascending, shape (knots,).
        log_scale: log eta at the same probabilities, shape (knots,).
        log_mass: log of the integral of prior times scatter.
    """

    normal: Float[np.ndarray, "knots"]
    log_scale: Float[np.ndarray, "knots"]
    log_mass: float

    def moments(self) -> tuple[float, float]:
        """Mean and standard deviation of eta."""
        node, weight = np.polynomial.hermite_e.hermegauss(100)
        eta = np.exp(np.interp(node, self.normal, self.log_scale))
        mean = float(weight @ eta / weight.sum())
        return mean, float(np.sqrt(weight @ (eta - mean) ** 2 / weight.sum()))


def combine(reward: Any, width: Any, own_mean: Any, own_precision: Any, xp: ModuleType) -> tuple[Any, Any]:
    """Reward and width from two means of one pair's rewards, weighted by precision; a width of 0 is an exact reward.

    The first mean has the sd `width` (infinite if there is none), the second a precision 1 / sd^2 (0 if there is none).
    """
    safe = xp.where(width > 0, width, 1.0)
    precision = 1.0 / (safe * safe)
    total = precision + own_precision
    both = (precision * reward + own_precision * own_mean) / total
    return xp.where(width > 0, both, reward), xp.where(width > 0, 1.0 / xp.sqrt(total), 0.0)


def log_scatter(data: Visits, eta: Float[np.ndarray, "scales"]) -> Float[np.ndarray, "scales"]:
    """Log likelihood of eta from the scatter of rewards of the same pair, summed over pairs.

    That is their log density without the factor N(mean; g, width^2) of each pair. Rewards beside an exact one scatter
    around that; a pair with two means, one of rewards with their own sd, adds the density of their difference.
    """
    exact = data.exact
    plain = (data.count > 0) & ~exact
    count = data.count[plain]
    repeats = float((count - 1).sum() + data.count[exact].sum())
    squares = float(data.scatter.sum() + data.count[exact] @ (data.mean_reward - data.exact_reward)[exact] ** 2)
    constant = -0.5 * repeats * np.log(2 * np.pi) - 0.5 * float(np.log(count).sum())
    constant += log_own(data, exact, data.exact_reward)
    both = plain & (data.own_precision > 0)
    variance = 1.0 / data.own_precision[both] + eta[:, None] ** 2 / data.count[both]
    gap = (data.own_mean - data.mean_reward)[both]
    gaps = -0.5 * (np.log(2 * np.pi * variance) + gap**2 / variance).sum(axis=1)
    return constant - repeats * np.log(eta) - 0.5 * squares / eta / eta + gaps


def log_own(data: Visits, known: Bool[np.ndarray, "pairs"], reward: Float[np.ndarray, "pairs"]) -> float:
    """Log density of rewards with their own sd.

    Where the pair's reward is not known, the factor N(mean; g, 1 / precision) is left out.
    """
    has = data.own_count > 0
    precision = np.where(has, data.own_precision, 1.0)
    density = -0.5 * data.own_count * np.log(2 * np.pi) - data.own_log_sd - 0.5 * data.own_scatter
    around = density - 0.5 * precision * (data.own_mean - reward) ** 2
    without = density + 0.5 * np.log(2 * np.pi / precision)
    return float(np.where(known, around, without)[has].sum())


def scale_table(data: Visits, log_prior: LogPrior) -> ScaleTable:
    """Tabulate the distribution proportional to prior times scatter; refuse one without finite mass."""
    from scipy.integrate import cumulative_simpson  # importing takes 0.1 s: only where noise is inferred

    def log_density(t: Float[np.ndarray, "knots"]) -> Float[np.ndarray, "knots"]:
        eta = np.exp(t)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            return np.asarray(log_prior(eta) + t + log_scatter(data, eta))

    t = np.linspace(-WIDEST, WIDEST, KNOTS)
    for _ in range(4):  # only a fine grid resolves a narrow peak
        log_values = log_density(t)
        if not np.isfinite(log_values.max()):  # the maximum is NaN if any value is
            raise BadInputError("the prior of the noise scale is not a log density: give finite numbers or -inf")
        counts = np.flatnonzero(log_values > log_values.max() - NEGLIGIBLE)
        if counts[0] == 0 or counts[-1] == KNOTS - 1:
            raise BadInputError(
                "the scale of the noise cannot be inferred: its posterior has no finite mass, as repeated rewards "
                "agree exactly or the prior is improper: give --noise-sd, or use deterministic rewards"
            )
        t = np.linspace(t[counts[0] - 1], t[counts[-1] + 1], KNOTS)
    log_values = log_density(t)
    top = float(log_values.max())
    values = np.exp(log_values - top)
    below = np.asarray(cumulative_simpson(values, x=t, initial=0.0))
    above = np.asarray(cumulative_simpson(values[::-1], dx=t[1] - t[0], initial=0.0))[::-1]
    mass = float(below[-1])
    normal = np.where(below < 0.5 * mass, ndtri(below / mass), -ndtri(above / mass))
    keep = np.isfinite(normal) & np.append(True, np.diff(normal) > 0)
    return ScaleTable(normal[keep], t[keep], top + float(np.log(mass)))
