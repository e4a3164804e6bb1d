"""Weighing quasi-random points: independent scramblings of one Sobol net, sent through compiled programs in pieces.

Every answer is a ratio of weighted sums, its standard error comes from the spread between scramblings, and the
effective sample size (sum w)^2 / sum w^2 says how even the weights are.

Where less than half of a few scouts is effective, the points are stretched (`bellmanifold.gaussian.stretch`). Scouts
come from scramblings of their own, so that given what they say the nets are independent and unbiased. Above half there
is little to gain: an eighth of the points is not stretched, and single coordinates do not explain all of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from bellmanifold.chart.batch import BatchChart
from bellmanifold.gaussian.stretch import Stretch
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.estimated import Estimate, effective_size, ratio, resolution_of
from bellmanifold.posteriors.pieces import PIECE, REPLICATES, Arranged, Pieces
from bellmanifold.posteriors.policies import PolicyTable, Weights, entries, weights_of
from bellmanifold.posteriors.result import Moments, Result, pool

SCOUTS = 2, 32, 128
"""Scouting nets of 1,024 points; more of them where the first ones do not say enough."""
EVEN, ENOUGH = 0.5, 200.0
"""Points are stretched if less than this share of the scouts is effective, but at least this number."""
EQUAL = 1.0 - 1e-9
"""All weights are the same, and their sum is known, where at least this share of the points is effective."""
FEW_POLICIES = 2**16
"""Policies whose numbers are below this are counted instead of sorted."""


class Nets:
    """32 scrambled nets of each component of a mixture in equal shares, which can be grown as long as needed.

    A net is the beginning of the net twice its size, so growing costs only the new points. Weights in each component's
    coordinates are relative to the mixture of all of them; mostly there is just one.
    """

    def __init__(self, components: list[Coordinates], chart: BatchChart, seed: int) -> None:
        self.components, self.chart, self.seed = components, chart, seed
        self.arranged = [Arranged(coordinates, chart) for coordinates in components]
        self.stretches: list[Stretch | None] = [None] * len(components)
        self.size = 0
        self.sums: list[_Sums] = []

    def scout(self, log2_size: int) -> None:
        """Stretch each component's points as other points say, of which there are no more than in nets of that size.

        If half of these are effective there is no need to, and if only a few are they say nothing.
        """
        assert not self.size, "points that were weighed already had another law"
        most = REPLICATES * max(PIECE, 2**log2_size)
        for k, arranged in enumerate(self.arranged):
            for nets in SCOUTS if len(arranged.plain) else ():
                if nets * PIECE > most:
                    break
                part = (arranged.dimension, 0, PIECE, nets, self.seed + (k << 32) + (1 << 42))
                log_weight = arranged.weigh(part).log_weight.ravel()
                top = log_weight.max()
                weight = np.exp(log_weight - (top if np.isfinite(top) else 0.0))
                effective = effective_size(weight)
                if ENOUGH <= effective < EVEN * len(weight):
                    self.stretches[k] = arranged.learnt(part, weight)
                if effective >= ENOUGH:
                    break

    def sample(self, log2_size: int) -> Result:
        """Grow the nets to 2^log2_size points (at least 1,024), if they are smaller, and sum up."""
        while self.size < max(PIECE, 2**log2_size):
            more = self.size or max(PIECE, 2**log2_size)
            for k, arranged in enumerate(self.arranged):
                part = (arranged.dimension, self.size, more, REPLICATES, self.seed + (k << 32))
                self.sums.append(_sums(arranged.coordinates, arranged.weigh(part, self.stretches[k])))
            self.size += more
        return _result(self.components[0], self.chart, self.sums)


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over some points, of weights relative to exp(reference). Those of several parts add up.

    Attributes:
        reference: -inf where nothing has any weight.
        points, unsolvable: how many.
        square: sum of squared weights.
        moments: of the action values.
        noise_scale: of the noise scale, or nothing unless it is inferred; pairs are scales.
        code, choice, weight: distinct policies: code, actions and weights.
        tied: states where best actions tie, shape (states,).
    """

    reference: float
    points: int
    unsolvable: int
    square: float
    moments: Moments
    noise_scale: Moments | None
    code: UInt64[np.ndarray, "rows"]
    choice: Int[np.ndarray, "states rows"]
    weight: Weights
    tied: Bool[np.ndarray, "states"]


def _sums(coordinates: Coordinates, weighed: Pieces) -> _Sums:
    """Add up pieces of points, of which the first ones belong to the first replicate, and so on."""
    top = float(weighed.log_weight.max())
    reference = top if np.isfinite(top) else 0.0
    weight = np.exp(weighed.log_weight - reference).reshape(REPLICATES, -1)
    factor = np.exp(np.minimum(weighed.log_scale - reference, 0.0))  # above 0 only where a piece has no weight
    mean, square = (
        array.reshape(REPLICATES, -1, array.shape[1]).swapaxes(0, 1)
        for array in (weighed.mean, weighed.square * factor[:, None])
    )
    moments = Moments(*pool((weighed.weight * factor).reshape(REPLICATES, -1).T, mean, square))
    code, place, row = distinct(weighed.code.ravel())
    replicate = np.repeat(np.arange(REPLICATES), weight.shape[1])
    by_policy = weights_of(replicate, row, weight.ravel(), (REPLICATES, len(code)))
    keep = np.asarray(by_policy.sum(axis=0)) > 0
    return _Sums(
        reference=top,
        points=weight.size,
        unsolvable=int(np.isneginf(weighed.log_weight).sum()),
        square=float((weight**2).sum()),
        moments=moments.standing(coordinates.stand_in),
        noise_scale=None if coordinates.target.noise_scale is None else _moments_of_scale(weighed, weight),
        code=code[keep],
        choice=weighed.choice[place[keep] // PIECE, :, place[keep] % PIECE].T,
        weight=by_policy if keep.all() else by_policy[:, keep],
        tied=np.any(weighed.tied, axis=0),
    )


def _moments_of_scale(weighed: Pieces, weight: Float[np.ndarray, "replicates points"]) -> Moments:
    """Moments of the noise scale, in each replicate."""
    eta = weighed.noise_scale.reshape(weight.shape)
    total = weight.sum(axis=1)
    centre = (weight * eta).sum(axis=1) / np.where(total > 0, total, 1.0)
    square = (weight * (eta - centre[:, None]) ** 2).sum(axis=1)
    return Moments(total, centre[:, None], square[:, None])


Distinct: TypeAlias = tuple[UInt64[np.ndarray, "rows"], Int[np.ndarray, "rows"], Int[np.ndarray, "n"]]
"""Distinct codes in ascending order, a place where each is found, and the row each code has among them."""


def distinct(codes: UInt64[np.ndarray, "n"]) -> Distinct:
    """The distinct codes of policies: by counting if they are small numbers, else by sorting."""
    most = int(codes.max())
    if most >= FEW_POLICIES:
        return np.unique(codes, return_index=True, return_inverse=True)
    place = np.full(most + 1, -1)
    place[codes] = np.arange(len(codes))
    code = np.flatnonzero(place >= 0)
    row = np.empty(most + 1, dtype=np.int64)
    row[code] = np.arange(len(code))
    return code.astype(np.uint64), place[code], row[codes]


def _together(parts: list[_Sums], factor: list[float], row: Int[np.ndarray, "n"], rows: int) -> Weights:
    """The weights of all parts on one scale, by the row that each part's policies have among all of them."""
    begin = np.cumsum([0, *(len(part.code) for part in parts)])
    own = [entries(part.weight) for part in parts]
    replicate = np.concatenate([of for of, _, _ in own])
    where = np.concatenate([row[first + of] for first, (_, of, _) in zip(begin, own, strict=False)])
    weight = np.concatenate([scale * of for scale, (_, _, of) in zip(factor, own, strict=True)])
    return weights_of(replicate, where, weight, (REPLICATES, rows))


def _scale_together(parts: list[_Sums], factor: list[float]) -> tuple[float, float]:
    """Mean and standard deviation of the noise scale over all parts and replicates; NaN without any weight."""
    whole = Moments.pooled([part.noise_scale for part in parts if part.noise_scale is not None], factor)
    weight, mean, square = pool(whole.weight, whole.mean, whole.square)
    return (float(mean[0]), float(np.sqrt(square[0] / weight))) if weight > 0 else (np.nan, np.nan)


def _result(coordinates: Coordinates, chart: BatchChart, parts: list[_Sums]) -> Result:
    """Add the sums of all parts up, on one scale."""
    target, model = coordinates.target, coordinates.target.model
    top = max(part.reference for part in parts)
    reference = top if np.isfinite(top) else 0.0
    factor = [float(np.exp(part.reference - reference)) for part in parts]
    moments = Moments.pooled([part.moments for part in parts], factor)
    whole, points = moments.weight, sum(part.points for part in parts)
    square = sum(scale**2 * part.square for scale, part in zip(factor, parts, strict=True))
    effective = float(whole.sum() ** 2 / square) if square > 0 else 0.0
    mean_weight = ratio(whole * REPLICATES / points, np.ones(REPLICATES))
    with np.errstate(divide="ignore", invalid="ignore"):
        constant = reference + target.log_constant
        evidence = Estimate.of(np.log(mean_weight.value) + constant, mean_weight.se / mean_weight.value)
    is_whole = target.is_exact or target.is_acyclic or coordinates.covers_improper
    codes = np.concatenate([part.code for part in parts])
    code, first, row = np.unique(codes, return_index=True, return_inverse=True)
    policy = chart.pairs(np.concatenate([part.choice for part in parts], axis=1)[:, first])[target.coupled].T
    tied = np.any([part.tied for part in parts], axis=0)
    certain = np.zeros(len(tied), dtype=bool)
    certain[chart.layout.state] = ~tied & (coordinates.dimension == 0)
    heaviest = 1.0 / (float(whole.sum()) or np.inf)
    resolution = 0.0 if certain.all() else resolution_of(effective)
    q_mean, q_sd = moments.estimate(target, resolution)
    if effective < EQUAL * points:  # nets agree by chance on a jump: one point more or less changes the sum
        evidence = Estimate.of(evidence.value, np.maximum(evidence.se, heaviest))
    summed = factor[0] * parts[0].weight if len(parts) == 1 else _together(parts, factor, row, len(code))
    return Result(
        table=PolicyTable(target.coupled, policy, summed, coordinates.stand_in, resolution, heaviest, certain),
        q_mean=q_mean,
        q_sd=q_sd,
        log_evidence=evidence if is_whole and not target.prior.flat else None,
        noise_scale=None if target.noise_scale is None else _scale_together(parts, factor),
        laws=None if target.laws is None else moments.laws(target),
        engine="chart",
        reason=f"importance sampling in {coordinates.way} coordinates of the chart",
        dimension=coordinates.dimension,
        effective_sample_size=effective,
        diagnostics={
            "points": points,
            "coordinates": coordinates.way,
            "unsolvable_share": sum(part.unsolvable for part in parts) / points,
            "cut": [list(model.pair_name(i)) for i in coordinates.cut],
            "ties_split": [model.states[s] for s in np.sort(np.asarray(chart.layout.state)[tied])],
        },
    )
