"""Draws of all action values from a posterior, for whoever wants numbers instead of summaries.

The chart's points hold the largest of a state's unobserved values; here the others are filled in below it (which one is
the largest is uniform), and pairs of states the data do not touch get a draw from their prior. Draws carry importance
weights, or come from chains and weigh the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr, ndtri_exp

from bellmanifold.chart.batch import BatchChart, TooLargeError
from bellmanifold.errors import UnsupportedError
from bellmanifold.jax_setup import random_key
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.cuts import Covering, LargeCutError, covering
from bellmanifold.posteriors.system import Drawn, chart_of, drawn_laws, system_of
from bellmanifold.posteriors.target import Target
from bellmanifold.posteriors.walk import walked_chains
from bellmanifold.posteriors.weight import propose
from bellmanifold.ssp import SSP

if TYPE_CHECKING:
    import xarray

DRAWS = 8192
MORE_DRAWS, BATCHES = 2**17, 16
"""Uneven draws are resampled from this many, or fewer if these are more numbers than may be kept; with open laws, where
that is too few, from so many batches of them."""


def posterior_draws(target: Target, budget: Budget) -> xarray.Dataset:
    """Draws of the action values: importance draws of the chart where they weigh well, else the ends of chains.

    Raises:
        UnsupportedError: if neither importance weights nor chains can be trusted.
    """
    try:
        chart = chart_of(target, budget.chart)
    except TooLargeError as refusal:
        raise UnsupportedError(f"no draws of a problem this large ({refusal}): use the summary's numbers") from None
    try:
        cover = covering(target, budget.cut)
    except LargeCutError:
        cover = Covering([])
    if cover.missed:
        raise UnsupportedError(f"no draws: {cover.missed}; use --epsilon above 0")
    ways = cover.ways
    for components in ways:
        drawn = weighted_draws(components, chart, DRAWS, budget.seed)
        if effective(drawn) >= budget.enough:
            return drawn
        many = min(MORE_DRAWS, budget.kept // target.model.n_pairs)
        drawn = weighted_draws(components, chart, many, budget.seed)
        if effective(drawn) >= budget.enough:
            return resampled(drawn, DRAWS, budget.seed)
        if target.laws is not None and BATCHES * effective(drawn) >= budget.enough:
            seeds = (budget.seed + (k << 33) for k in range(BATCHES))
            batches = (weighted_draws(components, chart, many, seed) for seed in seeds)
            drawn = _pooled(batches, budget.seed)
            if effective(drawn) >= budget.enough:
                return drawn
    walked = chain_draws(target, chart, budget)
    if walked is None:
        raise UnsupportedError(
            "no draws: importance weights are too uneven and chains do not mix; use the summary's own numbers, "
            "--proper-only or another --epsilon"
        )
    return walked


def _pooled(batches: Iterable[xarray.Dataset], seed: int) -> xarray.Dataset:
    """Batches of weighted draws as one, of which only one is held at a time.

    Of each batch 8,192 draws are chosen by systematic sampling; one that is chosen several times weighs as much more.
    Together they weigh what the batch weighs.
    """
    import xarray

    rng, parts, weights, log_totals = np.random.default_rng(seed), [], [], []
    for batch in batches:
        weight = batch.weight.values
        if not weight.any():
            continue
        level = (np.arange(DRAWS) + rng.random()) / DRAWS * weight.sum()
        chosen = np.minimum(np.searchsorted(np.cumsum(weight), level), len(weight) - 1)
        rows, times = np.unique(chosen, return_counts=True)
        parts.append(batch.isel(draw=rows).drop_vars("weight"))
        weights.append(times / DRAWS)
        log_totals.append(float(batch.attrs["log_total"]))
    share = np.exp(np.array(log_totals) - max(log_totals))
    weight = np.concatenate([own * of_batch for own, of_batch in zip(share, weights, strict=True)])
    joined = xarray.concat(
        parts, "draw", data_vars="minimal", coords="minimal", compat="override", combine_attrs="drop"
    )
    return joined.assign(weight=("draw", weight / weight.sum()))


def completed(
    coordinates: Coordinates, q: Float[np.ndarray, "pairs draws"], rng: np.random.Generator
) -> Float[np.ndarray, "draws pairs"]:
    """Action values of every pair from a batch of the chart."""
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
        weight: sums to 1, or is 0 everywhere, shape (draws,).
        noise_scale: eta, if it is inferred, shape (1 or 0, draws).
        laws: open laws, part by part; empty if all laws are given.
        log_total: logarithm of the sum of the weights before they were made to sum to 1; -inf if there are none.
    """

    q: Float[np.ndarray, "draws pairs"]
    weight: Float[np.ndarray, "draws"]
    noise_scale: Float[np.ndarray, "scales draws"]
    laws: list[Drawn]
    log_total: float


def importance_points(components: list[Coordinates], chart: BatchChart, count: int, seed: int) -> Points:
    """Importance draws from a mixture of coordinates in equal shares."""
    rng = np.random.default_rng(seed)
    each = -(-count // len(components))
    parts: list[np.ndarray] = []
    log_weights: list[np.ndarray] = []
    scales: list[np.ndarray] = []
    laws: list[Drawn] = []
    target = components[0].target
    for coordinates in components:
        drawn = drawn_laws(target.laws, rng, each)
        weighed = propose(system_of(coordinates, chart), random_key(seed, len(parts)), each, drawn)
        parts.append(completed(coordinates, np.asarray(weighed.q), rng))
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
    """Importance draws as an xarray data set: `q` by draw, state and action of each pair, and `weight` (sums to 1).

    An inferred noise scale comes along as `noise_scale`.
    """
    target, points = components[0].target, importance_points(components, chart, count, seed)
    drawn = as_dataset(target.model, points.q, points.weight, points.noise_scale)
    return with_laws(drawn, target, points.laws).assign_attrs(log_total=points.log_total)


def with_laws(draws: xarray.Dataset, target: Target, laws: list[Drawn]) -> xarray.Dataset:
    """Draws with the probabilities of landings that were seen, and the concentration, where laws are open."""
    if target.laws is None:
        return draws
    rows, landings = target.laws.seen
    model, pairs = target.model, target.laws.pairs[rows]
    log_law = np.concatenate([np.asarray(drawn.log_law)[rows, landings] for drawn in laws], axis=1)
    names = [model.pair_name(pair) for pair in pairs]
    return draws.assign(
        law=(("draw", "landing"), np.exp(log_law).T),
        concentration=("draw", np.concatenate([np.asarray(drawn.concentration)[0] for drawn in laws])),
    ).assign_coords(
        landing_state=("landing", [state for state, _ in names]),
        landing_action=("landing", [action for _, action in names]),
        landing_next=("landing", [model.state_name(state) for state in landings]),
    )


def effective(draws: xarray.Dataset) -> float:
    """The effective number of weighted draws: (sum w)^2 / sum w^2; 0 if nothing has any weight."""
    square = float((draws.weight.values**2).sum())
    return 1.0 / square if square > 0 else 0.0


def resampled(draws: xarray.Dataset, count: int, seed: int) -> xarray.Dataset:
    """Draws that weigh the same from many that do not: systematic resampling."""
    rng = np.random.default_rng(seed)
    level = (np.arange(count) + rng.random()) / count
    rows = np.searchsorted(np.cumsum(draws.weight.values), level * float(draws.weight.values.sum()))
    chosen = draws.isel(draw=np.minimum(rows, len(draws.weight) - 1))
    return chosen.assign(weight=("draw", np.full(count, 1.0 / count)))


def chain_draws(target: Target, chart: BatchChart, budget: Budget) -> xarray.Dataset | None:
    """The last points of independent chains, which weigh the same; None if the chains have not mixed."""
    chains = walked_chains(target, chart, budget)
    if chains is None:
        return None
    ends = chains.ends()
    values = completed(chains.coordinates, np.asarray(ends.q), np.random.default_rng(budget.seed))
    weight = np.full(len(values), 1.0 / len(values))
    found = as_dataset(target.model, values, weight, np.asarray(ends.noise_scale))
    laws = chains.end_laws()
    return with_laws(found, target, [laws] if laws else [])


def point_draws(target: Target, points: Float[np.ndarray, "pairs points"], seed: int) -> Float[np.ndarray, "d p"]:
    """Draws of all action values from points that chains on sparse systems met."""
    return completed(Coordinates(target), points, np.random.default_rng(seed))


def as_dataset(
    model: SSP,
    q: Float[np.ndarray, "draws pairs"],
    weight: Float[np.ndarray, "draws"],
    noise_scale: Float[np.ndarray, "scales draws"],
) -> xarray.Dataset:
    """Draws with their weights, pairs labelled by state and action."""
    import xarray

    draws = xarray.Dataset({"q": (("draw", "pair"), q), "weight": ("draw", weight)}, coords=labels(model))
    return draws.assign(noise_scale=("draw", noise_scale[0])) if len(noise_scale) else draws


def labels(model: SSP) -> dict[str, tuple[str, list[str]]]:
    """State and action of every pair, as coordinates of a data set."""
    names = [model.pair_name(i) for i in range(model.n_pairs)]
    return {"state": ("pair", [s for s, _ in names]), "action": ("pair", [a for _, a in names])}
