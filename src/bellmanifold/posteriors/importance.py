"""Importance sampling: weigh quasi-random points of a posterior's reference law.

The points are independent scramblings of one Sobol net; every answer is a ratio of weighted sums, its standard error
comes from the spread between scramblings, and the effective sample size (sum w)^2 / sum w^2 says how evenly the weights
lie. Everything goes through the compiled programs in pieces of one size: more points never mean another compilation.
A piece is small, so that its arrays stay in the processor's cache, and a program weighs several, so that calls are few.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt64

from bellmanifold.gaussian.points import Part, member_moments, normal_points, uniform_points
from bellmanifold.posteriors.coordinates import (
    Coordinates,
    Kind,
    Point,
    Structure,
    Subsets,
    Weighed,
    n_policies,
    policy_table,
    weigh_with,
)
from bellmanifold.posteriors.findings import Findings, from_moments
from bellmanifold.posteriors.policies import Estimate, ratio

PIECE = 1024
"""Points that are weighed at a time; also the smallest net."""
CALL_PIECES, CALL_NUMBERS = 16, 2**19
"""Pieces that go through a compiled program in one call: so many, or fewer if they hold more numbers than that."""
REPLICATES = 32
"""Independent scramblings; with fewer the standard errors themselves become too noisy to be trusted at 4 of them."""
FEW_POLICIES = 2**16
"""Up to this many policies are counted instead of sorted."""
NOTHING = jnp.zeros((0, 0, 0))


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


class Nets:
    """32 scrambled nets of each component of a mixture in equal shares, which can be grown as long as needed.

    A net is the beginning of the net twice its size, so growing costs only the new points.

    Args:
        components: coordinates whose weights are relative to the mixture of all of them; mostly just one.
        seed: fixes the points.
    """

    def __init__(self, components: list[Coordinates], seed: int) -> None:
        self.components, self.seed = components, seed
        self.size = 0
        self.sums: list[_Sums] = []

    def sample(self, log2_size: int) -> Sample:
        """Grow the nets to 2^log2_size points (at least 1,024), if they are smaller, and sum up."""
        while self.size < max(PIECE, 2**log2_size):
            more = self.size or max(PIECE, 2**log2_size)
            for k, coordinates in enumerate(self.components):
                self.sums.append(_weigh(_Part(coordinates, self.size, more, self.seed + (k << 32))))
            self.size += more
        return _sample(self.components[0], self.sums)


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over some points, of weights relative to exp(reference). Those of several parts add up.

    Attributes:
        reference: -inf where nothing has any weight.
        points, unsolvable: how many.
        square: sum of squared weights.
        whole: sum of weights, shape (replicates,).
        first, second: of q and q^2, shape (replicates, pairs).
        noise_scale: of the noise scale and its square, or nothing unless it is inferred, shape (2 or 0,).
        code, choice, weight: distinct policies: code, action slots and weights.
        tied: states where best actions tie, shape (states,).
    """

    reference: float
    points: int
    unsolvable: int
    square: float
    whole: Float[np.ndarray, "replicates"]
    first: Float[np.ndarray, "replicates pairs"]
    second: Float[np.ndarray, "replicates pairs"]
    noise_scale: Float[np.ndarray, "powers"]
    code: UInt64[np.ndarray, "rows"]
    choice: Int[np.ndarray, "rows states"]
    weight: Float[np.ndarray, "replicates rows"]
    tied: Bool[np.ndarray, "states"]


def _weigh(part: _Part) -> _Sums:
    weighed = part.weigh()
    top = float(weighed.log_weight.max())
    reference = top if np.isfinite(top) else 0.0
    weight = np.exp(weighed.log_weight - reference).reshape(REPLICATES, -1)
    code, choice, by_policy = _merged(weighed, weight, n_policies(part.coordinates.chart))
    first, second = part.moments(weighed, weight, reference)
    eta = weighed.noise_scale.transpose(1, 0, 2).reshape(part.coordinates.scales, weight.size)
    return _Sums(
        top,
        weight.size,
        int(np.isneginf(weighed.log_weight).sum()),
        float((weight**2).sum()),
        weight.sum(axis=1),
        first,
        second,
        np.concatenate([eta @ weight.ravel(), eta**2 @ weight.ravel()]),
        code,
        choice,
        by_policy,
        np.any(weighed.tied, axis=0),
    )


def _merged(
    weighed: _Pieces, weight: Float[np.ndarray, "replicates points"], policies: int
) -> tuple[UInt64[np.ndarray, "rows"], Int[np.ndarray, "rows states"], Float[np.ndarray, "replicates rows"]]:
    """Codes, choices and weights of the distinct policies that have any weight."""
    codes = weighed.code.ravel()
    code, place, row = distinct(codes, policies)
    summed = _by_row(row.reshape(weight.shape), weight, len(code))
    keep = summed.sum(axis=0) > 0
    choice = weighed.choice[place[keep] // PIECE, :, place[keep] % PIECE]
    return code[keep], choice.astype(np.int64), summed[:, keep]


Distinct: TypeAlias = tuple[UInt64[np.ndarray, "rows"], Int[np.ndarray, "rows"], Int[np.ndarray, "n"]]
"""Distinct codes in ascending order, a place where each is found, and the row each code has among them."""


def distinct(codes: UInt64[np.ndarray, "n"], policies: int) -> Distinct:
    """The distinct ones of the codes of so many possible policies: by counting where these are few, else by sorting."""
    if policies > FEW_POLICIES:
        return np.unique(codes, return_index=True, return_inverse=True)
    place = np.full(policies, -1)
    place[codes] = np.arange(len(codes))
    code = np.flatnonzero(place >= 0)
    row = np.empty(policies, dtype=np.int64)
    row[code] = np.arange(len(code))
    return code.astype(np.uint64), place[code], row[codes]


def _by_row(
    row: Int[np.ndarray, "replicates n"], weight: Float[np.ndarray, "replicates n"], rows: int
) -> Float[np.ndarray, "replicates rows"]:
    """Sum each replicate's weights by row."""
    place = row + rows * np.arange(REPLICATES)[:, None]
    summed = np.bincount(place.ravel(), weight.ravel(), REPLICATES * rows)
    return summed.reshape(REPLICATES, rows).astype(np.float64)  # of nothing NumPy counts in integers


def _sample(coordinates: Coordinates, parts: list[_Sums]) -> Sample:
    """Add the sums of all parts up, on one scale."""
    top = max(part.reference for part in parts)
    reference = top if np.isfinite(top) else 0.0
    factor = [float(np.exp(part.reference - reference)) for part in parts]

    def total(name: str) -> np.ndarray:
        return np.asarray(sum(scale * getattr(part, name) for scale, part in zip(factor, parts, strict=True)))

    whole, points = total("whole"), sum(part.points for part in parts)
    square = sum(scale**2 * part.square for scale, part in zip(factor, parts, strict=True))
    mean_weight = ratio(whole * REPLICATES / points, np.ones(REPLICATES))
    with np.errstate(divide="ignore", invalid="ignore"):
        constant = reference + coordinates.target.log_constant
        evidence = Estimate.of(np.log(mean_weight.value) + constant, mean_weight.se / mean_weight.value)
    codes = np.concatenate([part.code for part in parts])
    code, first, row = np.unique(codes, return_index=True, return_inverse=True)
    weights = np.concatenate([scale * part.weight for scale, part in zip(factor, parts, strict=True)], axis=1)
    summed = _by_row(np.broadcast_to(row, weights.shape), weights, len(code))
    q_mean, q_sd = from_moments(coordinates.target, ratio(total("first"), whole), ratio(total("second"), whole))
    eta = total("noise_scale") / (whole.sum() or np.nan)
    return Sample(
        table=policy_table(coordinates, np.concatenate([part.choice for part in parts])[first], summed),
        q_mean=q_mean,
        q_sd=q_sd,
        log_evidence=evidence,
        effective_sample_size=float(whole.sum() ** 2 / square) if square > 0 else 0.0,
        points=points,
        unsolvable=sum(part.unsolvable for part in parts) / points,
        tied_states=np.sort(coordinates.chart.order[np.any([part.tied for part in parts], axis=0)]),
        noise_scale=(float(eta[0]), float(np.sqrt(max(0.0, eta[1] - eta[0] ** 2)))) if len(eta) else None,
    )


@dataclass(frozen=True, eq=False)
class _Part:
    """Points of all nets from `begin` on, by slot: free pairs come first, as Sobol's first dimensions are the best."""

    coordinates: Coordinates
    begin: int
    size: int
    seed: int

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

    @cached_property
    def key(self) -> Part:
        dimension = max(1, len(self.free) + len(self.residual) + self.coordinates.scales)
        return dimension, self.begin, self.size, REPLICATES, self.seed

    @cached_property
    def row(self) -> Int[Array, "actions states"]:
        """The coordinate each slot holds; the last one, which is 0, where it holds none."""
        chart = self.coordinates.chart
        row = np.full(len(self.coordinates.free), -1)
        row[self.free] = np.arange(len(self.free))
        row[self.residual] = len(self.free) + self.coordinates.scales + np.arange(len(self.residual))
        return jnp.asarray(chart.spread(row % (self.key[0] + 1), self.key[0]))

    def weigh(self) -> _Pieces:
        """All pieces weighed, without their action values: those would fill the memory."""
        of, groups = self.coordinates, tuple(int(of) for of in self.group)
        kind, structure, subsets = of.kind, of.structure, of.subsets_used
        most = max(1, CALL_NUMBERS // (PIECE * structure.free.size))
        calls = reference_points(self.key, groups, min(CALL_PIECES, 1 << (most.bit_length() - 1)))
        scales = slice(len(groups), len(groups) + of.scales) if of.scales else slice(0)
        found = [weigh_pieces(kind, structure, subsets, Point(_arranged(self.row, x), x[:, scales])) for x in calls]
        return _Pieces(*(np.concatenate([getattr(call, name) for call in found]) for name in _Pieces._fields))

    def moments(
        self, weighed: _Pieces, weight: Float[np.ndarray, "replicates points"], reference: float
    ) -> list[Float[np.ndarray, "replicates pairs"]]:
        """Weighted sums of q and q^2 for every pair of a coupled state; 0 elsewhere."""
        coordinates, model = self.coordinates, self.coordinates.target.model
        factor = np.exp(np.minimum(weighed.log_scale - reference, 0.0))  # above 0 only where a piece has no weight
        action, state = coordinates.chart.place
        sums = []
        for power, by_piece in ((1, weighed.first), (2, weighed.second)):
            scaled = by_piece[:, action, state] * factor[:, None]
            by_replicate = scaled.reshape(REPLICATES, -1, model.n_pairs).sum(axis=1)
            for row, (pair, of) in enumerate(zip(self.free, self.group, strict=True)):
                if of > 1:
                    member = member_moments(self.key, row, int(of))[power - 1].reshape(weight.shape)
                    by_replicate[:, pair] = (weight * member).sum(axis=1) * coordinates.target.prior_scale**power
            coupled = coordinates.target.coupled[model.pair_state]
            sums.append(np.where(coupled, by_replicate[:, coordinates.stand_in], 0.0))
        return sums


class _Pieces(NamedTuple):
    """Pieces of points with their weights: `Weighed` without action values, pieces along the first axis."""

    log_weight: Float[np.ndarray, "pieces piece"]
    choice: Int[np.ndarray, "pieces states piece"]
    code: UInt64[np.ndarray, "pieces piece"]
    noise_scale: Float[np.ndarray, "pieces scales piece"]
    log_scale: Float[np.ndarray, "pieces"]
    first: Float[np.ndarray, "pieces actions states"]
    second: Float[np.ndarray, "pieces actions states"]
    tied: Bool[np.ndarray, "pieces states"]


@lru_cache(maxsize=16)
def reference_points(part: Part, groups: tuple[int, ...], call: int) -> list[Float[Array, "pieces coordinates piece"]]:
    """Standard normals, for each call its pieces: the largest of each group, one for every other coordinate, zeros."""
    points = uniform_points(*part)
    free = [normal_points(points[k], of) for k, of in enumerate(groups)]
    zero = np.zeros((1, points.shape[1]))
    x = np.concatenate([np.reshape(free, (-1, points.shape[1])), normal_points(points[len(groups) :]), zero])
    pieces = x.reshape(len(x), -1, PIECE).transpose(1, 0, 2)
    return [jnp.asarray(pieces[k : k + call]) for k in range(0, len(pieces), call)]


@partial(jax.jit, static_argnames="kind")
def weigh_pieces(kind: Kind, s: Structure, subsets: Subsets | None, point: Point) -> Weighed:
    """Weigh pieces of points one after the other."""
    return jax.lax.map(lambda piece: weigh_with(kind, s, subsets, piece)._replace(q=NOTHING), point)


@jax.jit
def _arranged(
    row: Int[Array, "actions states"], points: Float[Array, "pieces coordinates piece"]
) -> Float[Array, "pieces actions states piece"]:
    return points.at[:, row].get(mode="promise_in_bounds")
