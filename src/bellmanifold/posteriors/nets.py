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
from bellmanifold.posteriors.estimated import Estimate, ratio, resolution_of
from bellmanifold.posteriors.pieces import PIECE, REPLICATES, NetPart, Pieces
from bellmanifold.posteriors.policies import PolicyTable, Weights, entries, weights_of
from bellmanifold.posteriors.result import LawSummary, Moments
from bellmanifold.posteriors.system import n_policies, system_of

SCOUTS = 2, 32, 128
"""Scouting nets of 1,024 points; more of them where the first ones do not say enough."""
EVEN, ENOUGH = 0.5, 200.0
"""Points are stretched if less than this share of the scouts is effective, but at least this number."""
EQUAL = 1.0 - 1e-9
"""All weights are the same, and their sum is known, where at least this share of the points is effective."""
FEW_POLICIES = 2**16
"""Up to this many policies are counted instead of sorted."""


@dataclass(frozen=True, eq=False)
class Sample:
    """A weighed sample of a posterior, reduced to what answers need.

    Attributes:
        table, q_mean, q_sd, log_evidence, noise_scale, laws, effective_sample_size: as in `Result`.
        points: number of points weighed.
        unsolvable: share of points without a proper solution.
        tied_states: states in which observed actions tie exactly at some point (exact posteriors only).
    """

    table: PolicyTable
    q_mean: Estimate
    q_sd: Estimate
    log_evidence: Estimate
    noise_scale: tuple[float, float] | None
    effective_sample_size: float
    points: int
    unsolvable: float
    tied_states: Int[np.ndarray, "tied"]
    laws: LawSummary | None = None


class Nets:
    """32 scrambled nets of each component of a mixture in equal shares, which can be grown as long as needed.

    A net is the beginning of the net twice its size, so growing costs only the new points.

    Args:
        components: coordinates whose weights are relative to the mixture of all of them; mostly just one.
        chart: of the problem.
        seed: fixes the points.
    """

    def __init__(self, components: list[Coordinates], chart: BatchChart, seed: int) -> None:
        self.components, self.chart, self.seed = components, chart, seed
        self.systems = [system_of(coordinates, chart) for coordinates in components]
        self.stretches: list[Stretch | None] = [None] * len(components)
        self.size = 0
        self.sums: list[_Sums] = []
        self._latest: Sample | None = None

    @property
    def log2_size(self) -> int:
        """Binary logarithm of the points in each net."""
        return self.size.bit_length() - 1

    def scout(self, log2_size: int) -> None:
        """Stretch each component's points as other points say, of which there are no more than in nets of that size."""
        assert not self.size, "points that were weighed already had another law"
        most = REPLICATES * max(PIECE, 2**log2_size)
        for k, (coordinates, system) in enumerate(zip(self.components, self.systems, strict=True)):
            for nets in SCOUTS:
                if nets * PIECE > most:
                    break
                part = NetPart(coordinates, system, 0, PIECE, self.seed + (k << 32) + (1 << 42), nets)
                self.stretches[k], is_known = part.learnt(EVEN, ENOUGH)
                if is_known:
                    break

    def sample(self, log2_size: int) -> Sample:
        """Grow the nets to 2^log2_size points (at least 1,024), if they are smaller, and sum up."""
        if self._latest is not None and self.size >= 2**log2_size:
            return self._latest
        while self.size < max(PIECE, 2**log2_size):
            more = self.size or max(PIECE, 2**log2_size)
            for k, (coordinates, system) in enumerate(zip(self.components, self.systems, strict=True)):
                seed = self.seed + (k << 32)
                part = NetPart(coordinates, system, self.size, more, seed, stretch=self.stretches[k])
                self.sums.append(_weigh(part, n_policies(self.chart)))
            self.size += more
        self._latest = _sample(self.components[0], self.chart, self.sums)
        return self._latest


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
    noise_scale: Moments
    code: UInt64[np.ndarray, "rows"]
    choice: Int[np.ndarray, "states rows"]
    weight: Weights
    tied: Bool[np.ndarray, "states"]


def _weigh(part: NetPart, policies: int) -> _Sums:
    weighed = part.weigh()
    top = float(weighed.log_weight.max())
    reference = top if np.isfinite(top) else 0.0
    weight = np.exp(weighed.log_weight - reference).reshape(REPLICATES, -1)
    code, choice, by_policy = _merged(weighed, weight, policies)
    eta = weighed.noise_scale.transpose(1, 0, 2).reshape(part.coordinates.scales, *weight.shape)
    return _Sums(
        top,
        weight.size,
        int(np.isneginf(weighed.log_weight).sum()),
        float((weight**2).sum()),
        part.moments(weighed, reference),
        _weighted(weight, eta),
        code,
        choice,
        by_policy,
        np.any(weighed.tied, axis=0),
    )


def _weighted(
    weight: Float[np.ndarray, "replicates points"], value: Float[np.ndarray, "rows replicates points"]
) -> Moments:
    """Moments of some quantities, in each replicate."""
    total = weight.sum(axis=1)
    centre = np.einsum("rp,krp->rk", weight, value) / np.where(total > 0, total, 1.0)[:, None]
    return Moments(total, centre, np.einsum("rp,krp->rk", weight, (value - centre.T[..., None]) ** 2))


def _merged(
    weighed: Pieces, weight: Float[np.ndarray, "replicates points"], policies: int
) -> tuple[UInt64[np.ndarray, "rows"], Int[np.ndarray, "states rows"], Weights]:
    """Codes, choices and weights of the distinct policies that have any weight."""
    code, place, row = distinct(weighed.code.ravel(), policies)
    replicate = np.repeat(np.arange(len(weight)), weight.shape[1])
    summed = weights_of(replicate, row, weight.ravel(), (len(weight), len(code)))
    keep = np.asarray(summed.sum(axis=0)) > 0
    choice = weighed.choice[place[keep] // PIECE, :, place[keep] % PIECE].T
    return code[keep], choice, summed if keep.all() else summed[:, keep]


Distinct: TypeAlias = tuple[UInt64[np.ndarray, "rows"], Int[np.ndarray, "rows"], Int[np.ndarray, "n"]]
"""Distinct codes in ascending order, a place where each is found, and the row each code has among them."""


def distinct(codes: UInt64[np.ndarray, "n"], policies: int) -> Distinct:
    """The distinct codes of policies: by counting if there are few possible policies, else by sorting."""
    if policies > FEW_POLICIES:
        return np.unique(codes, return_index=True, return_inverse=True)
    place = np.full(policies, -1)
    place[codes] = np.arange(len(codes))
    code = np.flatnonzero(place >= 0)
    row = np.empty(policies, dtype=np.int64)
    row[code] = np.arange(len(code))
    return code.astype(np.uint64), place[code], row[codes]


def _together(parts: list[_Sums], factor: list[float], row: Int[np.ndarray, "n"], rows: int) -> Weights:
    """The weights of all parts on one scale, by the row that each part's policies have among all of them."""
    if len(parts) == 1:
        return factor[0] * parts[0].weight
    begin = np.cumsum([0, *(len(part.code) for part in parts)])
    own = [entries(part.weight) for part in parts]
    replicate = np.concatenate([of for of, _, _ in own])
    where = np.concatenate([row[first + of] for first, (_, of, _) in zip(begin, own, strict=False)])
    weight = np.concatenate([scale * of for scale, (_, _, of) in zip(factor, own, strict=True)])
    return weights_of(replicate, where, weight, (REPLICATES, rows))


def _sample(coordinates: Coordinates, chart: BatchChart, parts: list[_Sums]) -> Sample:
    """Add the sums of all parts up, on one scale."""
    target = coordinates.target
    top = max(part.reference for part in parts)
    reference = top if np.isfinite(top) else 0.0
    factor = [float(np.exp(part.reference - reference)) for part in parts]
    moments, eta = (
        Moments.pooled([getattr(part, name).scaled(scale) for scale, part in zip(factor, parts, strict=True)])
        for name in ("moments", "noise_scale")
    )
    whole, points = moments.weight, sum(part.points for part in parts)
    square = sum(scale**2 * part.square for scale, part in zip(factor, parts, strict=True))
    effective = float(whole.sum() ** 2 / square) if square > 0 else 0.0
    mean_weight = ratio(whole * REPLICATES / points, np.ones(REPLICATES))
    with np.errstate(divide="ignore", invalid="ignore"):
        constant = reference + target.log_constant
        evidence = Estimate.of(np.log(mean_weight.value) + constant, mean_weight.se / mean_weight.value)
    codes = np.concatenate([part.code for part in parts])
    code, first, row = np.unique(codes, return_index=True, return_inverse=True)
    summed = _together(parts, factor, row, len(code))
    policy = chart.pairs(np.concatenate([part.choice for part in parts], axis=1)[:, first])[target.coupled].T
    tied = np.any([part.tied for part in parts], axis=0)
    certain = np.zeros(len(tied), dtype=bool)
    certain[chart.layout.state] = ~tied & (coordinates.dimension == 0)
    heaviest = 1.0 / (float(whole.sum()) or np.inf)
    resolution = 0.0 if certain.all() else resolution_of(effective)
    q_mean, q_sd = moments.estimate(target, resolution)
    if effective < EQUAL * points:  # nets agree by chance on a jump: one point more or less changes the sum
        evidence = Estimate.of(evidence.value, np.maximum(evidence.se, heaviest))
    return Sample(
        table=PolicyTable(target.coupled, policy, summed, coordinates.stand_in, resolution, heaviest, certain),
        q_mean=q_mean,
        q_sd=q_sd,
        log_evidence=evidence,
        noise_scale=eta.mean_and_sd(),
        laws=moments.laws(target),
        effective_sample_size=effective,
        points=points,
        unsolvable=sum(part.unsolvable for part in parts) / points,
        tied_states=np.sort(np.asarray(chart.layout.state)[tied]),
    )
