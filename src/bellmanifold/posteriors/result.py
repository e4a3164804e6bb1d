"""What every engine returns: weighted greedy policies, moments of the action values, and how far to trust them."""

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
    """Weighted means and squared deviations of the action values and other tracked quantities, in replicates.

    Deviations are taken from each replicate's own mean, and pooled by the formula of Chan, Golub and LeVeque (1983), so
    that a small spread about a large value survives.

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
        """Of draws that weigh the same; replicates are chains."""
        mean = q.mean(axis=1)
        square = ((q - mean[:, None]) ** 2).sum(axis=1)
        return cls(np.full(len(q), float(q.shape[1])), mean, square)

    @classmethod
    def pooled(cls, parts: Sequence[Moments], factors: Sequence[float] | None = None) -> Moments:
        """Replicate by replicate, several parts as one; the weights of each may be multiplied by a factor."""
        scale = np.ones((len(parts), 1)) if factors is None else np.array(factors)[:, None]
        weight, mean, square = (
            np.stack([getattr(part, name) for part in parts]) for name in ("weight", "mean", "square")
        )
        return cls(*pool(scale * weight, mean, scale[..., None] * square))

    def standing(self, stand_in: Int[np.ndarray, "pairs"]) -> Moments:
        """With each pair's column replaced by that of the pair that stands for it; other tracked quantities stay."""
        column = np.append(stand_in, np.arange(len(stand_in), self.mean.shape[1]))
        return replace(self, mean=self.mean[:, column], square=self.square[:, column])

    def estimate(self, target: Target, resolution: float = 0.0) -> tuple[Estimate, Estimate]:
        """Means and standard deviations, with errors, of all pairs; the prior's where a state is not coupled."""
        mean, sd = self._estimate(slice(target.model.n_pairs), resolution)
        own = target.coupled[target.model.pair_state]
        return (
            Estimate.of(np.where(own, mean.value, target.prior.mean), np.where(own, mean.se, 0.0)),
            Estimate.of(np.where(own, sd.value, target.prior.sd), np.where(own, sd.se, 0.0)),
        )

    def laws(self, target: Target) -> LawSummary | None:
        """What open laws and their concentration have become; their columns follow those of the pairs."""
        if target.laws is None:
            return None
        found, sd = self._estimate(slice(target.model.n_pairs, None))
        knots = target.laws.concentration
        mean, spread = (found.value[-1], sd.value[-1]) if len(knots) > 1 else (knots[0], 0.0)  # known, without rounding
        return LawSummary(found[:-1], (float(mean), float(spread)))

    def _estimate(self, columns: slice, resolution: float = 0.0) -> tuple[Estimate, Estimate]:
        """Means and standard deviations of some columns over all replicates, with errors from the spread between them.

        The variance has the error of the ratio of squared deviations, from the pooled mean, to weights.

        Nets agree by chance on moments: on which side of a jump of the weights their points lie, or on how far out the
        outermost one is. So errors are no smaller than what one draw, a share r = `resolution` of all, moves. One that
        lies z standard deviations away moves the mean by r z sd, and the variance by r z^2 sd^2, hence the standard
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
    """Standard deviations from variances; the delta method's errors."""
    sd = np.sqrt(variance.value)
    return Estimate.of(sd, np.divide(variance.se, 2.0 * sd, out=np.zeros_like(sd), where=~(sd <= 0)))


def pool(weight: np.ndarray, mean: np.ndarray, square: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Total weight, mean and squared deviations over the first axis."""
    total = np.asarray(weight.sum(axis=0))
    safe = np.where(total > 0, total, 1.0)
    centre = (weight[..., None] * mean).sum(axis=0) / safe[..., None]
    with np.errstate(over="ignore", invalid="ignore"):  # chains that are not yet where the posterior is
        return total, centre, square.sum(axis=0) + (weight[..., None] * (mean - centre) ** 2).sum(axis=0)


class LawSummary(NamedTuple):
    """The posterior of open transition laws.

    Attributes:
        probability: mean of the probability of each landing that was seen, as `OpenLaws.seen` lists them.
        concentration: mean and standard deviation.
    """

    probability: Estimate
    concentration: tuple[float, float]


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """What an engine found out about a posterior.

    Attributes:
        table: greedy policies with their weights.
        q_mean: posterior mean of each action value, shape (pairs,).
        q_sd: posterior standard deviation of each action value, shape (pairs,).
        log_evidence: log of the integral of prior times kernels; None where the engine does not know it.
        noise_scale: posterior mean and standard deviation of an inferred noise scale; None where it is known.
        laws: of open transition laws; None where all laws are given.
        engine: which engine this is.
        reason: why that one, and how it went.
        dimension: coordinates integrated over.
        effective_sample_size: None where the engine has none.
        doubts: why the numbers are not to be trusted; empty if they are.
        stopped: why it stopped before the accuracy was reached; empty if it did not.
        largest_error: of the probabilities of actions and routes, where the engine computed it.
        diagnostics: whatever else the engine measured.
        draws: makes draws of the action values, of equal weight and by chain, where the engine has its own; None: the
            chart draws them.
        points: action values that chains of equal weight met, chain by chain, those of pairs that stand for several as
            the largest of these; None where none are kept, shape (pairs, points).
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
        """Whether no diagnostic says not to trust the numbers."""
        return not self.doubts

    def doubted(self, doubt: str, **found: Any) -> Result:
        """The same with one more doubt, unless that is empty, and further diagnostics."""
        doubts = (*self.doubts, doubt) if doubt else self.doubts
        return replace(self, doubts=doubts, diagnostics={**self.diagnostics, **found})
