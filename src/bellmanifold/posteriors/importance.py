"""Importance sampling: weigh quasi-random points of a posterior's reference law.

The points are independent scramblings of one Sobol net; every answer is a ratio of weighted sums, its standard error
comes from the spread between scramblings, and the effective sample size (sum w)^2 / sum w^2 says how evenly the weights
lie. Everything goes through the compiled programs in pieces of one size: more points never mean another compilation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from bellmanifold.posteriors.coordinates import Coordinates, Point, Weighed, policy_table
from bellmanifold.posteriors.findings import Findings, from_moments
from bellmanifold.posteriors.points import largest_normal_points, member_moments
from bellmanifold.posteriors.policies import Estimate, PolicyTable, ratio

PIECE = 4096
"""Points that go through a compiled program at a time; also the smallest net."""
REPLICATES = 32
"""Independent scramblings; with fewer the standard errors themselves become too noisy to be trusted at 4 of them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Sample(Findings):
    """A weighed sample of a posterior, reduced to what answers need.

    Attributes:
        effective_sample_size: (sum w)^2 / sum w^2.
        points: number of points weighed.
        unsolvable: share of points without a proper solution.
        tied_states: states in which observed actions tie exactly at some point (exact posteriors only).
    """

    effective_sample_size: float
    points: int
    unsolvable: float
    tied_states: Int[np.ndarray, "tied"]


def sample(components: Sequence[Coordinates], log2_size: int, seed: int) -> Sample:
    """Weigh 32 scrambled nets of 2^log2_size points (at least 4,096) of each component of a mixture in equal shares.

    Args:
        components: coordinates whose weights are relative to the mixture of all of them; mostly just one.
        log2_size: size of each net.
        seed: fixes the points.
    """
    nets = [_Net(coordinates, max(PIECE, 2**log2_size), seed, k) for k, coordinates in enumerate(components)]
    weighed = [[net.weigh(k) for k in range(net.pieces)] for net in nets]
    log_weight = np.stack([np.concatenate([np.asarray(piece.log_weight) for piece in pieces]) for pieces in weighed])
    top = log_weight.max()
    reference = float(top) if np.isfinite(top) else 0.0
    weight = np.exp(log_weight - reference).reshape(len(nets), REPLICATES, -1)
    whole = weight.sum(axis=(0, 2))
    moments = [net.moments(pieces, own, reference) for net, pieces, own in zip(nets, weighed, weight, strict=True)]
    first, second = (np.sum([moment[power] for moment in moments], axis=0) for power in (0, 1))
    mean_weight = ratio(whole / (len(nets) * nets[0].size), np.ones(REPLICATES))
    with np.errstate(divide="ignore", invalid="ignore"):
        constant = reference + components[0].target.log_constant
        evidence = Estimate.of(np.log(mean_weight.value) + constant, mean_weight.se / mean_weight.value)
        effective = float(weight.sum() ** 2 / (weight**2).sum())
    tied = np.any([np.asarray(piece.tied) for pieces in weighed for piece in pieces], axis=0)
    q_mean, q_sd = from_moments(components[0].target, ratio(first, whole), ratio(second, whole))
    return Sample(
        table=_table(components[0], weighed, weight),
        q_mean=q_mean,
        q_sd=q_sd,
        log_evidence=evidence,
        effective_sample_size=effective if np.isfinite(effective) else 0.0,
        points=weight.size,
        unsolvable=float(np.isneginf(log_weight).mean()),
        tied_states=np.sort(components[0].chart.order[tied]),
        noise_scale=_noise_scale(weighed, weight) if components[0].scales else None,
    )


def _noise_scale(
    weighed: list[list[Weighed]], weight: Float[np.ndarray, "components replicates points"]
) -> tuple[float, float]:
    """Posterior mean and standard deviation of the noise scale."""
    eta = np.concatenate([np.asarray(piece.noise_scale)[0] for pieces in weighed for piece in pieces])
    share = weight.ravel() / weight.sum()
    mean = float(share @ eta)
    return mean, float(np.sqrt(share @ (eta - mean) ** 2))


@dataclass(frozen=True, eq=False)
class _Net:
    """The points of a sample, by slot: free pairs come first, because Sobol's first dimensions are the best."""

    coordinates: Coordinates
    size: int
    seed: int
    number: int

    @property
    def pieces(self) -> int:
        return REPLICATES * self.size // PIECE

    @cached_property
    def free(self) -> Int[np.ndarray, "free"]:
        return np.flatnonzero(self.coordinates.free)

    @cached_property
    def residual(self) -> Int[np.ndarray, "residual"]:
        return np.flatnonzero(self.coordinates.residual)

    @cached_property
    def group(self) -> Int[np.ndarray, "free"]:
        """How many exchangeable pairs each free pair stands for."""
        return np.bincount(self.coordinates.stand_in, minlength=len(self.coordinates.free))[self.free]

    @property
    def key(self) -> tuple[int, int, int, int]:
        dimension = max(1, len(self.free) + len(self.residual) + self.coordinates.scales)
        return dimension, int(np.log2(self.size)), REPLICATES, self.seed + (self.number << 32)

    def piece(self, number: int) -> Point:
        """The points of one piece."""
        chart = self.coordinates.chart
        own = slice(number * PIECE, (number + 1) * PIECE)
        x = np.zeros((*chart.slot.shape, PIECE))
        action, state = chart.place
        for row, (pair, of) in enumerate(zip(self.free, self.group, strict=True)):
            x[action[pair], state[pair]] = largest_normal_points(self.key, len(self.free), int(of))[row, own]
        rest = largest_normal_points(self.key, self.key[0], 1)[len(self.free) :, own]
        scales = self.coordinates.scales
        if len(self.residual):
            x[action[self.residual], state[self.residual]] = rest[scales:]
        return Point(jnp.asarray(x), jnp.asarray(rest[:scales]))

    def weigh(self, number: int) -> Weighed:
        """One piece weighed, without its action values: those of all pieces would fill the memory."""
        weighed = self.coordinates.weigh(self.piece(number))
        return weighed._replace(q=weighed.q[:, :, :0])

    def moments(
        self, weighed: list[Weighed], weight: Float[np.ndarray, "replicates points"], reference: float
    ) -> list[Float[np.ndarray, "replicates pairs"]]:
        """Weighted sums of q and q^2 for every pair of a coupled state; 0 elsewhere."""
        coordinates, model = self.coordinates, self.coordinates.target.model
        scales = np.array([float(piece.log_scale) for piece in weighed])
        factor = np.exp(np.minimum(scales - reference, 0.0))  # above 0 only where a piece has no weight at all
        action, state = coordinates.chart.place
        sums = []
        for power, name in ((1, "first"), (2, "second")):
            by_piece = np.stack([np.asarray(getattr(piece, name))[action, state] for piece in weighed])
            by_replicate = (by_piece * factor[:, None]).reshape(REPLICATES, -1, model.n_pairs).sum(axis=1)
            for row, (pair, of) in enumerate(zip(self.free, self.group, strict=True)):
                if of > 1:
                    member = member_moments(self.key, row, int(of))[power - 1].reshape(weight.shape)
                    by_replicate[:, pair] = (weight * member).sum(axis=1) * coordinates.target.prior_scale**power
            coupled = coordinates.target.coupled[model.pair_state]
            sums.append(np.where(coupled, by_replicate[:, coordinates.stand_in], 0.0))
        return sums


def _table(
    coordinates: Coordinates, weighed: list[list[Weighed]], weight: Float[np.ndarray, "components replicates points"]
) -> PolicyTable:
    """Merge equal policies."""
    chart = coordinates.chart
    pieces = [piece for own in weighed for piece in own]
    code = np.concatenate([np.asarray(piece.code) for piece in pieces])
    _, first, row = np.unique(code, return_index=True, return_inverse=True)
    rows = len(first)
    replicate = np.broadcast_to(np.arange(REPLICATES)[:, None], weight.shape).ravel()
    summed = np.bincount(replicate * rows + row, weight.ravel(), REPLICATES * rows).reshape(REPLICATES, rows)
    keep = summed.sum(axis=0) > 0
    choices = [np.asarray(piece.choice) for piece in pieces]
    picked = [choices[k // PIECE][:, k % PIECE] for k in first[keep]]
    choice = np.array(picked, dtype=np.int64).reshape(-1, len(chart.order))
    return policy_table(coordinates, choice, summed[:, keep])
