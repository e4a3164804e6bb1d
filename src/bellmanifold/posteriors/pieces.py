"""Points of nets and their weights, piece by piece: from Sobol points through compiled programs to sums.

All pieces have one size, so more points never require another compilation. A piece is so small that its arrays stay in
the processor's cache, and a program processes several, to keep calls few. The program takes rows of numbers, one for
each coordinate, and looks up the row of each pair itself; the number of rows is rounded up to a power of two, so data
of another size rarely need another program.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt64

from bellmanifold._util.progress import advance
from bellmanifold.chart.batch import BatchChart
from bellmanifold.gaussian.exchangeable import member_moments
from bellmanifold.gaussian.points import Part, normal_points, uniform_points
from bellmanifold.gaussian.stretch import Stretch, learn_stretch, stretch_points
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.system import Drawn, Point, System, drawn_laws, system_of
from bellmanifold.posteriors.weight import Weighed, weigh

PIECE = 1024
"""Number of points processed at a time; also the size of the smallest net."""
CALL_PIECES, CALL_NUMBERS = 16, 2**19
"""Maximum number of pieces in one call of a compiled program, and of the numbers they hold."""
REPLICATES = 32
"""Independent scramblings; with fewer, standard errors would be too noisy for intervals of 4 of them."""
MOST_KEPT = 2**25
"""Maximum size of all kept points, in numbers: generating them costs more than sending them through a chart."""
FEW_ROWS = 32
"""Minimum number of rows of a program's input."""


class Arranged:
    """Coordinates, and how the numbers of a point are arranged in them.

    Free pairs come first, as the first dimensions of a Sobol sequence are the best. The *place* of a number is the pair
    it belongs to; the noise scale comes after the pairs, and then the coins.

    Attributes:
        coordinates: what the numbers of a point mean.
        system: the posterior in these coordinates.
        dimension: number of coordinates of a point, at least 1.
        groups: number of exchangeable pairs that each free pair stands for.
        place: place of each coordinate, shape (coordinates,).
        row: coordinate of each place; if it has none, the index of a row of zeros after all others, shape (places,).
        plain: coordinates that may be stretched: not those of coins and of pairs that stand for several.
        shared: free pairs that stand for several.
        lowered: shared pairs that may be drawn from below a bound; their values are kept.
        pieces: number of pieces in a call, a power of two.
    """

    def __init__(self, coordinates: Coordinates, chart: BatchChart) -> None:
        self.coordinates, self.system = coordinates, system_of(coordinates, chart)
        pairs, laws = coordinates.target.model.n_pairs, coordinates.target.laws
        free = np.flatnonzero(coordinates.free)
        group = coordinates.alternatives[free]
        self.groups: tuple[int, ...] = tuple(group.tolist())
        scales = pairs + np.arange(coordinates.scales)
        coins = pairs + len(scales) + np.arange(len(coordinates.lingering))
        self.place = np.concatenate([free, scales, np.flatnonzero(coordinates.residual), coins])
        self.dimension = max(1, len(self.place))
        self.row = np.full(pairs + len(scales) + len(coins), self.dimension)
        self.row[self.place] = np.arange(len(self.place))
        is_plain = ~np.isin(self.place, coins)
        is_plain[: len(free)] = group == 1
        self.plain = np.flatnonzero(is_plain)
        self.shared = free[group > 1]
        exits = [pair for loop in coordinates.lingering for pair in loop.exits]
        self.lowered = self.shared[np.isin(self.shared, exits)]
        fit = max(1, CALL_NUMBERS // (PIECE * (pairs + (laws.counts.size if laws else 0))))
        self.pieces = min(CALL_PIECES, 1 << (fit.bit_length() - 1))

    def weigh(self, part: Part, stretch: Stretch | None = None) -> Pieces:
        """Compute the weights of points of some nets, possibly stretched, keeping few action values to save memory."""
        laws, (_, begin, size, _, seed) = self.coordinates.target.laws, part
        rng = np.random.default_rng([seed, begin, size])
        stretch = Stretch.none(len(self.row)) if stretch is None else stretch
        found = []
        for call in reference_calls(part, self.groups, self.pieces):
            drawn = drawn_laws(laws, rng, len(call.x) * PIECE) if laws else None
            weighed = weigh_pieces(self.system, self.lowered, self.row, stretch, call.x, drawn, call.pieces)
            own = Pieces(*(np.asarray(getattr(weighed, name))[: call.pieces] for name in Pieces._fields))
            found.append(self.with_members(own, call) if len(self.shared) else own)
            advance("points", call.pieces * PIECE)
        return Pieces(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))

    def with_members(self, pieces: Pieces, call: _Call) -> Pieces:
        """Replace moments of the maximum of exchangeable pairs by those of any single one of them."""
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
        square = (second @ weight[..., None])[..., 0] - total * centre**2  # as wide as the prior: no cancellation
        all_mean, all_square = pieces.mean.copy(), pieces.square.copy()
        all_mean[:, self.shared] = prior.mean[self.shared] + prior.sd[self.shared] * centre
        all_square[:, self.shared] = prior.sd[self.shared] ** 2 * square
        return pieces._replace(mean=all_mean, square=all_square)

    def learnt(self, part: Part, weight: Float[np.ndarray, "points"]) -> Stretch:
        """The stretch for other points, learnt from some points and their weights."""
        calls = reference_calls(part, self.groups, self.pieces)
        x = np.concatenate([np.asarray(call.x)[: call.pieces, self.plain] for call in calls])
        return learn_stretch(np.concatenate(list(x), axis=1), weight, self.place[self.plain], len(self.row))


class Pieces(NamedTuple):
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


class _Call(NamedTuple):
    """Points for one call of a compiled program.

    Attributes:
        x: standard normals: the largest of each group, then one for every other coordinate, padded with zeros.
        first, second: moments of any single normal in each group of several, given the largest.
        pieces: number of pieces that are not padding.
    """

    x: Float[Array, "padded_pieces rows piece"]
    first: Float[np.ndarray, "pieces groups piece"]
    second: Float[np.ndarray, "pieces groups piece"]
    pieces: int


_kept: OrderedDict[tuple[Part, tuple[int, ...], int], list[_Call]] = OrderedDict()


def reference_calls(part: Part, groups: tuple[int, ...], pieces: int) -> Iterable[_Call]:
    """Points of the reference distribution, some pieces at a time.

    Small sets are cached for the next posterior, the most recently used ones as far as they fit.
    """
    dimension, _, size, replicates, _ = part
    if 2 * dimension * size * replicates > MOST_KEPT:
        return (call for only in range(replicates) for call in _calls(uniform_points(*part, only), groups, pieces))
    key = (part, groups, pieces)
    _kept[key] = found = _kept.pop(key, None) or list(_calls(uniform_points(*part), groups, pieces))
    while len(_kept) > 1 and sum(call.x.size for calls in list(_kept.values()) for call in calls) > MOST_KEPT:
        _kept.popitem(last=False)
    return found


def _calls(points: Float[np.ndarray, "dimension points"], groups: tuple[int, ...], pieces: int) -> Iterator[_Call]:
    dimension = len(points)
    x = np.zeros((max(FEW_ROWS, 1 << dimension.bit_length()), points.shape[1]))
    for k, of in enumerate(groups):
        x[k] = normal_points(points[k], of)
    x[len(groups) : dimension] = normal_points(points[len(groups) :])
    by_piece = x.reshape(len(x), -1, PIECE).transpose(1, 0, 2)
    several = np.array(groups, dtype=np.int64)
    shared = np.flatnonzero(several > 1)
    for begin in range(0, len(by_piece), pieces):
        own = by_piece[begin : begin + pieces]
        padded = np.zeros((pieces, *own.shape[1:]))
        padded[: len(own)] = own
        yield _Call(jnp.asarray(padded), *_member(own[:, shared], several[shared, None]), len(own))


def _member(
    largest: Float[np.ndarray, "pieces groups piece"], of: Int[np.ndarray, "groups 1"]
) -> tuple[Float[np.ndarray, "pieces groups piece"], Float[np.ndarray, "pieces groups piece"]]:
    """First and second moment of any single one of `of` standard normals, given the largest of them."""
    return member_moments(largest, of, np.zeros(1), np.ones(1), np.zeros(1))


@jax.jit
def weigh_pieces(
    system: System,
    kept: Int[Array, "kept"],
    row: Int[Array, "arranged"],
    stretch: Stretch,
    x: Float[Array, "padded_pieces rows piece"],
    drawn: Drawn | None,
    pieces: Int[Array, ""],
) -> Weighed:
    """Compute the weights of points, piece by piece.

    Args:
        system: the posterior.
        kept: pairs whose action values are kept.
        row: the row of x that belongs to each pair, to the noise scale and to each coin.
        stretch: a map of the numbers in that order.
        x: normal numbers, already the maximum for pairs that stand for several.
        drawn: open laws of all pieces.
        pieces: number of pieces to process; the output for others is meaningless.
    """
    pairs, coins = len(system.solved), len(system.exits)
    laws = tuple(jnp.moveaxis(part.reshape(*part.shape[:-1], len(x), PIECE), -2, 0) for part in drawn or ())

    def one(k: Int[Array, ""]) -> Weighed:
        own, own_laws = jax.tree.map(lambda array: jax.lax.dynamic_index_in_dim(array, k, keepdims=False), (x, laws))
        number, log_ratio = stretch_points(stretch, own.at[row].get(mode="promise_in_bounds"))
        of_pairs, z, coin = jnp.split(number, [pairs, len(row) - coins])
        weighed = weigh(system, Point(of_pairs, z, coin, *own_laws)._replace(log_ratio=log_ratio))
        return weighed._replace(q=weighed.q[kept])

    def and_one(k: Int[Array, ""], found: Weighed) -> Weighed:
        return jax.tree.map(lambda all_, own: jax.lax.dynamic_update_index_in_dim(all_, own, k, 0), found, one(k))

    shapes = jax.eval_shape(one, 0)
    nothing = jax.tree.map(lambda own: jnp.zeros((len(x), *own.shape), own.dtype), shapes)
    found: Weighed = jax.lax.fori_loop(0, pieces, and_one, nothing)
    return found
