"""Weighing quasi-random points: independent scramblings of one Sobol net, sent through compiled programs in pieces.

Every answer is a ratio of weighted sums, its standard error comes from the spread between scramblings, and the
effective sample size (sum w)^2 / sum w^2 says how even the weights are. Pieces have one size: more points never mean
another compilation. A piece is small, so that its arrays stay in the processor's cache, and a program weighs several,
so that calls are few.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt64

from bellmanifold.chart.batch import BatchChart
from bellmanifold.gaussian.exchangeable import member_moments
from bellmanifold.gaussian.points import Part, normal_points, uniform_points
from bellmanifold.meter import advance
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.estimated import Estimate, ratio, resolution_of
from bellmanifold.posteriors.policies import PolicyTable, Weights, entries, weights_of
from bellmanifold.posteriors.result import LawSummary, Moments
from bellmanifold.posteriors.system import Drawn, Point, System, drawn_laws, n_policies, system_of
from bellmanifold.posteriors.weight import Weighed, weigh

PIECE = 1024
"""Points that are weighed at a time; also the smallest net."""
CALL_PIECES, CALL_NUMBERS = 16, 2**19
"""Maximum number of pieces that go through a compiled program in one call, and of the numbers they hold."""
REPLICATES = 32
"""Independent scramblings; with fewer the standard errors themselves become too noisy to be trusted at 4 of them."""
MOST_KEPT = 2**25
"""Numbers of the points that are kept: making them costs more than sending them through a chart."""
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
        self.size = 0
        self.sums: list[_Sums] = []

    @property
    def log2_size(self) -> int:
        """Binary logarithm of the points in each net."""
        return self.size.bit_length() - 1

    def sample(self, log2_size: int) -> Sample:
        """Grow the nets to 2^log2_size points (at least 1,024), if they are smaller, and sum up."""
        while self.size < max(PIECE, 2**log2_size):
            more = self.size or max(PIECE, 2**log2_size)
            for k, (coordinates, system) in enumerate(zip(self.components, self.systems, strict=True)):
                part = _Part(coordinates, system, self.size, more, self.seed + (k << 32))
                self.sums.append(_weigh(part, n_policies(self.chart)))
            self.size += more
        return _sample(self.components[0], self.chart, self.sums)


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


def _weigh(part: _Part, policies: int) -> _Sums:
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
    weighed: _Pieces, weight: Float[np.ndarray, "replicates points"], policies: int
) -> tuple[UInt64[np.ndarray, "rows"], Int[np.ndarray, "states rows"], Weights]:
    """Codes, choices and weights of the distinct policies that have any weight."""
    code, place, row = distinct(weighed.code.ravel(), policies)
    replicate = np.repeat(np.arange(len(weight)), weight.shape[1])
    summed = weights_of(replicate, row, weight.ravel(), (len(weight), len(code)))
    keep = np.asarray(summed.sum(axis=0)) > 0
    choice = np.concatenate(list(weighed.choice), axis=1)[:, place[keep]]
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
    heaviest = 1.0 / (float(whole.sum()) or np.inf)  # its share of all weights: what was missed may weigh as much
    resolution = 0.0 if certain.all() else max(resolution_of(effective), heaviest)
    q_mean, q_sd = moments.estimate(target)
    return Sample(
        table=PolicyTable(target.coupled, policy, summed, coordinates.stand_in, resolution, certain),
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


@dataclass(frozen=True, eq=False)
class _Part:
    """Points of all nets from `begin` on: free pairs come first, as Sobol's first dimensions are the best."""

    coordinates: Coordinates
    system: System
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
        return self.coordinates.alternatives[self.free]

    @cached_property
    def extra(self) -> int:
        """Coordinates that belong to no pair: noise scale and coins."""
        return self.coordinates.scales + len(self.coordinates.lingering)

    @cached_property
    def key(self) -> Part:
        dimension = max(1, len(self.free) + len(self.residual) + self.extra)
        return dimension, self.begin, self.size, REPLICATES, self.seed

    @cached_property
    def row(self) -> Int[Array, "pairs"]:
        """The row of the points that belongs to each pair; the last one is all zeros."""
        row = np.full(self.coordinates.target.model.n_pairs, self.key[0])
        row[self.free] = np.arange(len(self.free))
        row[self.residual] = len(self.free) + self.coordinates.scales + np.arange(len(self.residual))
        return jnp.asarray(row)

    @cached_property
    def shared(self) -> Int[np.ndarray, "shared"]:
        """Free pairs that stand for several."""
        return self.free[self.group > 1]

    @cached_property
    def lowered(self) -> Int[np.ndarray, "lowered"]:
        """Pairs that stand for several and may be drawn below their prior: their values are kept."""
        exits = [pair for loop in self.coordinates.lingering for pair in loop.exits]
        return self.shared[np.isin(self.shared, exits)]

    def weigh(self) -> _Pieces:
        """Weigh them all. Without the action values: those would fill the memory."""
        of, groups = self.coordinates, tuple(int(of) for of in self.group)
        laws = of.target.laws
        numbers = len(of.free) + (laws.counts.size if laws else 0)
        calls = reference_calls(self.key, groups, pieces_in_call(numbers))
        kept, extra = jnp.asarray(self.lowered), (len(groups), of.scales, len(of.lingering))
        rng = np.random.default_rng([self.seed, self.begin, self.size])
        found = []
        for call in calls:
            drawn = drawn_laws(laws, rng, call.x.shape[0] * PIECE)
            point = _arranged(extra, self.row, call.x, drawn)
            found.append(self._with_members(weigh_pieces(self.system, kept, point), call))
            advance("points", call.x.shape[0] * PIECE)
        return _Pieces(*(np.concatenate([getattr(call, name) for call in found]) for name in _Pieces._fields))

    def _with_members(self, weighed: Weighed | _Pieces, call: _Call) -> _Pieces:
        """The pieces with moments of any one of the pairs that each stands for, instead of the largest of them."""
        pieces = _Pieces(*(np.asarray(getattr(weighed, name)) for name in _Pieces._fields))
        if not len(self.shared):
            return pieces
        prior, first, second = self.coordinates.target.prior, call.first, call.second
        if len(self.lowered):
            pairs = self.lowered[:, None]
            largest = (pieces.q - prior.mean[pairs]) / prior.sd[pairs]
            own = np.searchsorted(self.shared, self.lowered)
            first, second = first.copy(), second.copy()
            first[:, own], second[:, own] = _member(largest, self.coordinates.alternatives[pairs])
        weight = np.exp(pieces.log_weight - pieces.log_scale[:, None])
        total = np.where(pieces.weight > 0, pieces.weight, 1.0)[:, None]
        centre = (first @ weight[..., None])[..., 0] / total
        square = (second @ weight[..., None])[..., 0] - total * centre**2  # as wide as the prior: nothing cancels
        all_mean, all_square = pieces.mean.copy(), pieces.square.copy()
        all_mean[:, self.shared] = prior.mean[self.shared] + prior.sd[self.shared] * centre
        all_square[:, self.shared] = prior.sd[self.shared] ** 2 * square
        return pieces._replace(mean=all_mean, square=all_square)

    def moments(self, weighed: _Pieces, reference: float) -> Moments:
        """Moments of every pair of a coupled state, in each replicate."""
        factor = np.exp(np.minimum(weighed.log_scale - reference, 0.0))  # above 0 only where a piece has no weight
        found = Moments(weighed.weight * factor, weighed.mean, weighed.square * factor[:, None])
        return found.grouped(REPLICATES).standing(self.coordinates.stand_in)


class _Pieces(NamedTuple):
    """Pieces of points with their weights: `Weighed` with few action values, pieces along the first axis."""

    log_weight: Float[np.ndarray, "pieces piece"]
    choice: Int[np.ndarray, "pieces states piece"]
    code: UInt64[np.ndarray, "pieces piece"]
    q: Float[np.ndarray, "pieces kept piece"]
    noise_scale: Float[np.ndarray, "pieces scales piece"]
    log_scale: Float[np.ndarray, "pieces"]
    weight: Float[np.ndarray, "pieces"]
    mean: Float[np.ndarray, "pieces pairs_and_followed"]
    square: Float[np.ndarray, "pieces pairs_and_followed"]
    tied: Bool[np.ndarray, "pieces states"]


def pieces_in_call(pairs: int) -> int:
    """Number of pieces that are weighed in one call, a power of two, for points of a given number of pairs."""
    most = max(1, CALL_NUMBERS // (PIECE * pairs))
    return min(CALL_PIECES, 1 << (most.bit_length() - 1))


class _Call(NamedTuple):
    """Points that go through a compiled program at once.

    Attributes:
        x: standard normals: the largest of each group, one for every other coordinate, zeros.
        first, second: moments of any one of the normals in each group of several, given the largest.
    """

    x: Float[Array, "pieces coordinates piece"]
    first: Float[np.ndarray, "pieces groups piece"]
    second: Float[np.ndarray, "pieces groups piece"]


def reference_calls(part: Part, groups: tuple[int, ...], pieces: int) -> Iterator[_Call]:
    """Points of the reference distribution, some pieces at a time; small sets are cached for the next posterior."""
    dimension, _, size, replicates, _ = part
    if 2 * dimension * size * replicates <= MOST_KEPT:
        return iter(_kept_calls(part, groups, pieces))
    return (call for only in range(replicates) for call in _calls(uniform_points(*part, only), groups, pieces))


_kept: OrderedDict[tuple[Part, tuple[int, ...], int], list[_Call]] = OrderedDict()


def _kept_calls(part: Part, groups: tuple[int, ...], pieces: int) -> list[_Call]:
    """Calls that were made before, or are made now; of all that are kept the latest, as many as fit."""
    key = (part, groups, pieces)
    found = _kept.pop(key, None) or list(_calls(uniform_points(*part), groups, pieces))
    _kept[key] = found
    while len(_kept) > 1 and sum(call.x.size for calls in list(_kept.values()) for call in calls) > MOST_KEPT:
        _kept.popitem(last=False)
    return found


def _calls(points: Float[np.ndarray, "dimension points"], groups: tuple[int, ...], pieces: int) -> Iterator[_Call]:
    free = [normal_points(points[k], of) for k, of in enumerate(groups)]
    zero = np.zeros((1, points.shape[1]))
    x = np.concatenate([np.reshape(free, (-1, points.shape[1])), normal_points(points[len(groups) :]), zero])
    x = x.reshape(len(x), -1, PIECE).transpose(1, 0, 2)
    several = np.array(groups, dtype=np.int64)
    shared = np.flatnonzero(several > 1)
    for begin in range(0, len(x), pieces):
        own = x[begin : begin + pieces]
        yield _Call(jnp.asarray(own), *_member(own[:, shared], several[shared, None]))


def _member(
    largest: Float[np.ndarray, "pieces groups piece"], of: Int[np.ndarray, "groups 1"]
) -> tuple[Float[np.ndarray, "pieces groups piece"], Float[np.ndarray, "pieces groups piece"]]:
    """First and second moment of any one of `of` standard normals whose largest is given."""
    return member_moments(largest, of, np.zeros(1), np.ones(1), np.zeros(1))


@jax.jit
def weigh_pieces(system: System, kept: Int[Array, "kept"], point: Point) -> Weighed:
    """Weigh pieces of points one after the other; of the action values only some pairs' are kept."""

    def one(piece: Point) -> Weighed:
        weighed = weigh(system, piece)
        return weighed._replace(q=weighed.q[kept])

    return jax.lax.map(one, point)


@partial(jax.jit, static_argnames="extra")
def _arranged(
    extra: tuple[int, int, int],
    row: Int[Array, "pairs"],
    x: Float[Array, "pieces coordinates piece"],
    drawn: Drawn | None,
) -> Point:
    """Pieces as points; `extra`: how many rows come before that of the noise scale, how many scales and coins."""
    first, scales, coins = extra
    last = x.shape[1] - 1
    pairs = x.at[:, row].get(mode="promise_in_bounds")
    laws = (jnp.moveaxis(part.reshape(*part.shape[:-1], len(x), PIECE), -2, 0) for part in drawn or ())
    return Point(pairs, x[:, first : first + scales], x[:, last - coins : last], *laws)
