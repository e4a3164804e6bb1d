"""The result of every engine: weighted greedy policies, moments of the action values, and how far to trust them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.posteriors.estimated import Estimate, ratio
from bellmanifold.posteriors.policies import PolicyTable
from bellmanifold.posteriors.target import Target

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True, eq=False)
class Moments:
    """Weighted means and squared deviations of the action values and other tracked quantities, by replicate.

    Deviations are taken from each replicate's own mean and pooled by the formula of Chan, Golub and LeVeque (1983), so
    that a small spread about a large value is preserved.

    Attributes:
        weight: total weight, shape (replicates,).
        mean: weighted mean, shape (replicates, pairs + followed).
        square: weighted sum of squared deviations from that mean, shape (replicates, pairs + followed).
    """

    weight: Float[np.ndarray, "replicates"]
    mean: Float[np.ndarray, "replicates pairs"]
    square: Float[np.ndarray, "replicates pairs"]

    @classmethod
    def of_draws(cls, q: Float[np.ndarray, "chains draws pairs"]) -> Moments:
        """Moments of equally weighted draws; replicates are chains."""
        mean = q.mean(axis=1)
        square = ((q - mean[:, None]) ** 2).sum(axis=1)
        return cls(np.full(len(q), float(q.shape[1])), mean, square)

    @classmethod
    def pooled(cls, parts: Sequence[Moments], factors: Sequence[float] | None = None) -> Moments:
        """Pool several parts, replicate by replicate; the weights of each may be multiplied by a factor."""
        scale = np.ones((len(parts), 1)) if factors is None else np.array(factors)[:, None]
        weight, mean, square = (
            np.stack([getattr(part, name) for part in parts]) for name in ("weight", "mean", "square")
        )
        return cls(*pool(scale * weight, mean, scale[..., None] * square))

    def standing(self, stand_in: Int[np.ndarray, "pairs"]) -> Moments:
        """Replace each pair's column by that of the pair that stands for it; other tracked quantities stay."""
        column = np.append(stand_in, np.arange(len(stand_in), self.mean.shape[1]))
        return replace(self, mean=self.mean[:, column], square=self.square[:, column])

    def estimate(self, target: Target, resolution: float = 0.0) -> tuple[Estimate, Estimate]:
        """Means and standard deviations of all pairs, with errors; those of the prior for uncoupled states."""
        mean, sd = self._estimate(slice(target.model.n_pairs), resolution)
        own = target.coupled[target.model.pair_state]
        return (
            Estimate.of(np.where(own, mean.value, target.prior.mean), np.where(own, mean.se, 0.0)),
            Estimate.of(np.where(own, sd.value, target.prior.sd), np.where(own, sd.se, 0.0)),
        )

    def laws(self, target: Target) -> LawSummary | None:
        """Posterior of open laws and their concentration, whose columns follow those of the pairs."""
        if target.laws is None:
            return None
        found, sd = self._estimate(slice(target.model.n_pairs, None))
        knots = target.laws.concentration
        mean, spread = (found.value[-1], sd.value[-1]) if len(knots) > 1 else (knots[0], 0.0)  # known, without rounding
        return LawSummary(found[:-1], (float(mean), float(spread)))

    def _estimate(self, columns: slice, resolution: float = 0.0) -> tuple[Estimate, Estimate]:
        """Means and standard deviations of some columns over all replicates, with errors from the spread between them.

        The error of the variance is that of a ratio: squared deviations from the pooled mean over weights.

        Nets may agree by chance: on which side of a jump of the weights their points lie, or on how far out the
        outermost point is. So errors are at least the change that one draw, a share r = `resolution` of all, makes. A
        draw z standard deviations away moves the mean by r z sd, and the variance by r z^2 sd^2, hence the standard
        deviation by r z^2 sd / 2. The farthest of 1 / r normal draws has z^2 = 2 log(1 / r).
        """
        mean, square = self.mean[:, columns], self.square[:, columns]
        total, centre, whole = pool(self.weight, mean, square)
        away = mean - centre
        found = ratio(self.weight[:, None] * away, self.weight)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            spread = ratio(square + self.weight[:, None] * away**2, self.weight)
            sd = root(Estimate(whole / (total or np.nan), spread.se))
        if resolution == 0.0:
            return Estimate(centre + found.value, found.se), sd
        z_square = -2.0 * np.log(resolution)
        return (
            Estimate(centre + found.value, np.maximum(found.se, resolution * np.sqrt(z_square) * sd.value)),
            Estimate(sd.value, np.maximum(sd.se, resolution * z_square / 2.0 * sd.value)),
        )


def root(variance: Estimate) -> Estimate:
    """Standard deviations from variances, with errors by the delta method."""
    sd = np.sqrt(variance.value)
    return Estimate.of(sd, np.divide(variance.se, 2.0 * sd, out=np.zeros_like(sd), where=~(sd <= 0)))


def pool(weight: np.ndarray, mean: np.ndarray, square: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Total weight, mean and squared deviations over the first axis."""
    total = np.asarray(weight.sum(axis=0))
    safe = np.where(total > 0, total, 1.0)
    centre = (weight[..., None] * mean).sum(axis=0) / safe[..., None]
    with np.errstate(over="ignore", invalid="ignore"):  # chains that have not reached the posterior yet
        return total, centre, square.sum(axis=0) + (weight[..., None] * (mean - centre) ** 2).sum(axis=0)


class LawSummary(NamedTuple):
    """The posterior of open transition laws.

    Attributes:
        probability: posterior mean of the probability of each landing in `OpenLaws.seen`.
        concentration: posterior mean and standard deviation of the concentration.
    """

    probability: Estimate
    concentration: tuple[float, float]


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """An engine's answers about a posterior.

    Attributes:
        table: greedy policies with their weights.
        q_mean: posterior mean of each action value, shape (pairs,).
        q_sd: posterior standard deviation of each action value, shape (pairs,).
        log_evidence: log of the integral of prior times kernels; None if the engine does not compute it.
        noise_scale: posterior mean and standard deviation of an inferred noise scale; None if it is known.
        laws: posterior of open transition laws; None if all laws are given.
        engine: name of the engine.
        reason: why this engine was chosen, and what it did.
        dimension: number of coordinates that were integrated over.
        effective_sample_size: effective sample size; None for engines without one.
        doubts: why the numbers are not trustworthy; empty if they are.
        stopped: why the engine stopped before the accuracy was reached; empty if it did not.
        largest_error: largest standard error of action and route probabilities, if the engine computed it.
        diagnostics: further measurements of the engine.
        draws: function that returns equally weighted draws of the action values by chain, if the engine has its own;
            None if the chart draws them.
        points: equally weighted action values visited by chains, chain by chain (the maximum, for pairs that stand for
            several); None if none are kept, shape (pairs, points).
    """

    table: PolicyTable
    q_mean: Estimate
    q_sd: Estimate
    log_evidence: Estimate | None = None
    noise_scale: tuple[float, float] | None = None
    laws: LawSummary | None = None
    engine: str
    reason: str
    dimension: int
    effective_sample_size: float | None = None
    doubts: tuple[str, ...] = ()
    stopped: str = ""
    largest_error: float | None = None
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    draws: Callable[[], xarray.Dataset] | None = None
    points: Float[np.ndarray, "pairs points"] | None = None

    @property
    def trustworthy(self) -> bool:
        """Whether no diagnostic casts doubt on the numbers."""
        return not self.doubts

    def doubted(self, doubt: str, **found: Any) -> Result:
        """The same result with one more doubt, unless that is empty, and further diagnostics."""
        doubts = (*self.doubts, doubt) if doubt else self.doubts
        return replace(self, doubts=doubts, diagnostics={**self.diagnostics, **found})
