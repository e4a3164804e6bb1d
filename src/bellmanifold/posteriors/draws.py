"""Draws of all action values from a posterior.

The chart's points hold the largest of a state's unobserved values; here the others are filled in below it (which one is
the largest is uniform), and pairs of states the data do not touch get a draw from their prior. *Weighted draws* carry
importance weights, or come from chains and have equal weights.

**Draws of equal weight.** Plotting code and ArviZ ignore weights. So `equal_draws` chooses k of n points with weights
w_i (which sum to 1) by systematic sampling, such that point i is chosen with probability k w_i. That needs k w_i <= 1,
so k is 1 / max w, rounded down; then no point is chosen twice, and for any quantity x with mean m

    Var(mean of the chosen) = sum k w_i (1 - k w_i) (x_i - m)^2 / k^2 + sum w_i^2 (x_i - m)^2 = sum w_i (x_i - m)^2 / k,

the variance added by choosing plus that of the points themselves: exactly the variance of the mean of k independent
draws. With more draws than that, points repeat, and standard errors computed from them would be too small.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr, ndtri_exp

from bellmanifold._util.jax_setup import random_key
from bellmanifold._util.progress import advance, expect
from bellmanifold.chart.batch import BatchChart, TooLargeError
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.cuts import Covering, LargeCutError, covering
from bellmanifold.posteriors.estimated import effective_size, systematic
from bellmanifold.posteriors.result import Result
from bellmanifold.posteriors.system import Drawn, chart_of, drawn_laws, system_of
from bellmanifold.posteriors.target import Target
from bellmanifold.posteriors.walk import walked_chains
from bellmanifold.posteriors.weight import propose
from bellmanifold.problem.ssp import SSP

if TYPE_CHECKING:
    import xarray

DRAWS = 8192
MORE_DRAWS, BATCHES = 2**17, 16
"""Number of importance points where weights are uneven (fewer if memory does not allow it), and, with open laws, of
batches of these."""
ROUNDING = 1e-9
"""Weights that are equal up to this relative rounding count as equal."""
GROUPS, LEAST_IN_GROUP = 4, 4
"""Independent draws are split into GROUPS pseudo-chains of at least LEAST_IN_GROUP draws, so that R-hat is defined."""


def posterior_draws(target: Target, budget: Budget) -> xarray.Dataset:
    """Weighted draws: importance draws if their effective sample size suffices, else the ends of mixed chains."""
    try:
        chart = chart_of(target, budget.chart)
    except TooLargeError as refusal:
        raise UnsupportedError(f"no draws of a problem this large ({refusal}): use the summary's numbers") from None
    cover = covering_if_small(target, budget)
    if cover.missed:
        raise UnsupportedError(f"no draws: {cover.missed}; use --epsilon above 0")
    for components in cover.ways:
        drawn = weighted_draws(components, chart, DRAWS, budget.seed)
        if distinct(drawn) >= budget.enough:
            return with_weight(drawn)
        many = min(MORE_DRAWS, budget.kept // target.model.n_pairs)
        drawn = weighted_draws(components, chart, many, budget.seed)
        if effective_size(drawn.weight.values) >= budget.enough:
            return with_weight(drawn)
        if target.laws is not None and BATCHES * effective_size(drawn.weight.values) >= budget.enough:
            seeds = (budget.seed + (k << 33) for k in range(BATCHES))
            batches = (weighted_draws(components, chart, many, seed) for seed in seeds)
            drawn = _pool(batches, budget.seed)
            if effective_size(drawn.weight.values) >= budget.enough:
                return drawn
    walked = chain_draws(target, chart, budget)
    if walked is None:
        raise UnsupportedError(
            "no draws: importance weights are too uneven and chains do not mix; use the summary's own numbers, "
            "--proper-only or another --epsilon"
        )
    return walked


def covering_if_small(target: Target, budget: Budget) -> Covering:
    """Coordinates for importance points; none if too many pairs would have to be cut open."""
    try:
        return covering(target, budget.cut)
    except LargeCutError:
        return Covering([])


def _pool(batches: Iterable[xarray.Dataset], seed: int) -> xarray.Dataset:
    """Batches of weighted draws as one; only one batch is held in memory at a time.

    From each batch 8,192 draws are chosen by systematic sampling, and weighted by how often they are chosen. Together
    they have the total weight of the batch.
    """
    import xarray

    rng, parts, weights, log_totals = np.random.default_rng(seed), [], [], []
    expect("batches", BATCHES)
    for batch in batches:
        advance("batches")
        weight = batch.weight.values
        if not weight.any():
            continue
        rows, times = np.unique(systematic(weight, DRAWS, rng), return_counts=True)
        parts.append(batch.isel(draw=rows).drop_vars("weight"))
        weights.append(times / DRAWS)
        log_totals.append(float(batch.attrs["log_total"]))
    share = np.exp(np.array(log_totals) - max(log_totals))
    weight = np.concatenate([own * of_batch for own, of_batch in zip(share, weights, strict=True)])
    joined = xarray.concat(
        parts, "draw", data_vars="minimal", coords="minimal", compat="override", combine_attrs="drop"
    )
    return joined.assign(weight=("draw", weight / weight.sum()))


def complete(
    coordinates: Coordinates, q: Float[np.ndarray, "pairs draws"], rng: np.random.Generator
) -> Float[np.ndarray, "draws pairs"]:
    """Action values of every pair, drawn given a batch of points of the chart."""
    target, prior = coordinates.target, coordinates.target.prior
    values, count = np.array(q.T), q.shape[-1]
    for first in np.flatnonzero(coordinates.free & (coordinates.alternatives > 1)):
        members = np.flatnonzero(coordinates.stand_in == first)
        largest = values[:, first].copy()
        log_room = log_ndtr((largest - prior.mean[first]) / prior.sd[first])[:, None]
        below = ndtri_exp(np.log(rng.random((count, len(members)))) + log_room)
        values[:, members] = prior.mean[first] + prior.sd[first] * below
        values[np.arange(count), rng.choice(members, count)] = largest
    idle = ~target.coupled[target.model.pair_state]
    values[:, idle] = prior.mean[idle] + prior.sd[idle] * rng.standard_normal((count, int(idle.sum())))
    return values


class Points(NamedTuple):
    """Importance draws as plain arrays.

    Attributes:
        q: action values of every pair, shape (draws, pairs).
        weight: importance weights, which sum to 1 or are all 0, shape (draws,).
        noise_scale: eta, if it is inferred, shape (1 or 0, draws).
        laws: open laws, part by part; empty if all laws are given.
        log_total: logarithm of the sum of the unnormalised weights; -inf if they are all 0.
    """

    q: Float[np.ndarray, "draws pairs"]
    weight: Float[np.ndarray, "draws"]
    noise_scale: Float[np.ndarray, "scales draws"]
    laws: list[Drawn]
    log_total: float


def importance_points(components: list[Coordinates], chart: BatchChart, count: int, seed: int) -> Points:
    """Importance draws from a mixture of coordinates with equal shares."""
    rng = np.random.default_rng(seed)
    each = -(-count // len(components))
    parts, log_weights, scales, laws = [], [], [], []
    for number, coordinates in enumerate(components):
        drawn = drawn_laws(coordinates.target.laws, rng, each)
        weighed = propose(system_of(coordinates, chart), random_key(seed, number), each, drawn)
        parts.append(complete(coordinates, np.asarray(weighed.q), rng))
        log_weights.append(np.asarray(weighed.log_weight))
        scales.append(np.asarray(weighed.noise_scale))
        laws += [drawn] if drawn else []
    log_weight = np.concatenate(log_weights)
    top = log_weight.max()
    weight = np.exp(log_weight - (top if np.isfinite(top) else 0.0))
    total = float(weight.sum())
    log_total = float(top) + float(np.log(total)) if total > 0 else -np.inf
    weight = weight / max(total, 1e-300)
    return Points(np.concatenate(parts), weight, np.concatenate(scales, axis=1), laws, log_total)


def weighted_draws(components: list[Coordinates], chart: BatchChart, count: int, seed: int) -> xarray.Dataset:
    """Importance draws as an xarray data set: `q` by draw and pair, and `weight` (sums to 1).

    An inferred noise scale is included as `noise_scale`.
    """
    target, points = components[0].target, importance_points(components, chart, count, seed)
    drawn = as_dataset(target.model, points.q, points.weight, points.noise_scale)
    return with_laws(drawn, target, points.laws).assign_attrs(log_total=points.log_total)


def with_laws(draws: xarray.Dataset, target: Target, laws: list[Drawn]) -> xarray.Dataset:
    """Draws with the probabilities of observed landings and the concentration, where laws are open."""
    if target.laws is None:
        return draws
    rows, landings = target.laws.seen
    model, pairs = target.model, target.laws.pairs[rows]
    log_law = np.concatenate([np.asarray(drawn.log_law)[rows, landings] for drawn in laws], axis=1)
    names = [(*model.pair_name(pair), model.state_name(state)) for pair, state in zip(pairs, landings, strict=True)]
    return draws.assign(
        law=(("draw", "landing"), np.exp(log_law).T),
        concentration=("draw", np.concatenate([np.asarray(drawn.concentration)[0] for drawn in laws])),
    ).assign_coords(landing=readable(names, ": ", " -> "))


def distinct(draws: xarray.Dataset) -> int:
    """Number of equally weighted draws that can be chosen without repeats: 1 / max w, rounded down."""
    weight = draws.weight.values
    largest = float(weight.max(initial=0.0))
    return min(len(weight), int(weight.sum() / largest * (1.0 + ROUNDING))) if largest > 0 else 0


def with_weight(draws: xarray.Dataset) -> xarray.Dataset:
    """The draws of positive weight; others may hold infinities."""
    (rows,) = np.nonzero(draws.weight.values)
    return draws if len(rows) == draws.sizes["draw"] else draws.isel(draw=rows)


def equal_draws(draws: xarray.Dataset, seed: int) -> xarray.Dataset:
    """Equally weighted draws chosen from weighted ones, without repeats and in random order.

    They have dimensions chain, draw and pair, for ArviZ: draws are independent, and chains are groups of them.
    """
    draws = with_weight(draws)
    rng, count = np.random.default_rng(seed), min(DRAWS, distinct(draws))
    rows = np.unique(systematic(draws.weight.values, count, rng))
    groups = GROUPS if len(rows) >= GROUPS * LEAST_IN_GROUP else 1
    rows = rng.permutation(rows)[: len(rows) - len(rows) % groups]
    return by_chain(draws.isel(draw=rows).drop_vars("weight"), groups, float(len(rows)))


def by_chain(draws: xarray.Dataset, chains: int, effective_sample_size: float) -> xarray.Dataset:
    """Equally weighted draws, ordered chain by chain, with dimensions chain and draw."""
    size = draws.sizes["draw"] // chains
    variables = {
        name: (("chain", *array.dims), array.values.reshape(chains, size, *array.shape[1:]))
        for name, array in draws.data_vars.items()
    }
    coordinates = {name: array for name, array in draws.coords.items() if "draw" not in array.dims}
    found = type(draws)(variables, {"chain": np.arange(chains), "draw": np.arange(size), **coordinates})
    return found.assign_attrs(effective_sample_size=effective_sample_size, weights="equal")


def in_one_row(draws: xarray.Dataset) -> xarray.Dataset:
    """Draws of chains, concatenated, as weighted draws of equal weight."""
    chains, size = draws.sizes["chain"], draws.sizes["draw"]
    variables = {
        name: (array.dims[1:], array.values.reshape(chains * size, *array.shape[2:]))
        for name, array in draws.data_vars.items()
    }
    coordinates = {name: array for name, array in draws.coords.items() if name not in ("chain", "draw")}
    return type(draws)({**variables, "weight": ("draw", equal_weight(chains * size))}, coordinates)


def equal_weight(count: int) -> Float[np.ndarray, "draws"]:
    """Weights of equally weighted draws."""
    return np.full(count, 1.0 / count)


def chain_draws(target: Target, chart: BatchChart, budget: Budget) -> xarray.Dataset | None:
    """The last points of independent chains, equally weighted; None if the chains have not mixed."""
    chains = walked_chains(target, chart, budget)
    if chains is None:
        return None
    ends = chains.ends()
    values = complete(chains.coordinates, ends.q, np.random.default_rng(budget.seed))
    found = as_dataset(target.model, values, equal_weight(len(values)), ends.noise_scale)
    return with_laws(found, target, [ends.laws] if ends.laws else [])


def point_draws(target: Target, points: Float[np.ndarray, "pairs points"], seed: int) -> Float[np.ndarray, "d p"]:
    """Draws of all action values given points of chains on sparse systems."""
    return complete(Coordinates(target), points, np.random.default_rng(seed))


def result_draws(target: Target, result: Result, seed: int) -> xarray.Dataset:
    """An engine's own equally weighted points as draws, chain by chain."""
    assert result.points is not None, "the engine has points"
    q, effective = point_draws(target, result.points, seed), result.effective_sample_size
    drawn = as_dataset(target.model, q, None, np.zeros((0, len(q))))
    return by_chain(drawn, int(result.diagnostics.get("chains", 1)), float(len(q)) if effective is None else effective)


def as_dataset(
    model: SSP,
    q: Float[np.ndarray, "draws pairs"],
    weight: Float[np.ndarray, "draws"] | None,
    noise_scale: Float[np.ndarray, "scales draws"],
) -> xarray.Dataset:
    """Draws with their weights, if any.

    An xarray data set is what ArviZ takes, with InferenceData (0.x) as well as with DataTree (1.x). Pairs have a single
    coordinate, the label "state: action": ArviZ cannot tabulate variables together if they share no other coordinates.
    """
    import xarray

    names = [model.pair_name(i) for i in range(model.n_pairs)]
    draws = xarray.Dataset({"q": (("draw", "pair"), q)}, coords={"pair": readable(names, ": ")})
    draws = draws if weight is None else draws.assign(weight=("draw", weight))
    return draws.assign(noise_scale=("draw", noise_scale[0])) if len(noise_scale) else draws


def readable(names: Sequence[tuple[str, ...]], *between: str) -> list[str]:
    """Labels joined from several names each; the names are quoted if two labels would coincide otherwise."""
    plain = ["".join(part for pair in zip(parts, (*between, ""), strict=True) for part in pair) for parts in names]
    return plain if len(set(plain)) == len(plain) else [", ".join(map(json.dumps, parts)) for parts in names]
