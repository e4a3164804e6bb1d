"""Walking the chart: Markov chains for posteriors whose importance weights are too uneven.

Chains of slice steps (`bellmanifold.posteriors.steps`) in the posterior's standard coordinates, where the prior is
N(0, I) and the weight is the likelihood. Each chain counts its own greedy policies, so the spread *between* chains
gives standard errors without any autocorrelation estimate; R-hat and effective sample size (ArviZ) of the state values
say whether the chains agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt64

from bellmanifold.errors import UnsupportedError
from bellmanifold.jax_setup import random_key
from bellmanifold.posteriors.convergence import LEAST_EFFECTIVE, R_HAT_LIMIT, evenly_spread, r_hat_and_effective
from bellmanifold.posteriors.coordinates import (
    Coordinates,
    Kind,
    Point,
    Structure,
    Weighed,
    member_moments,
    normal_point,
    policy_table,
    weigh_normals,
)
from bellmanifold.posteriors.findings import Findings, from_moments
from bellmanifold.posteriors.policies import ratio
from bellmanifold.posteriors.steps import Stand, advance, stand, step

CHAINS = 256
ROUND = 250
"""Steps of a round."""
LOOKED_AT, MOST_RECORDED = 32, 128
"""States whose values R-hat is computed of, among those whose values are recorded."""
MOST_LOST = 0.05
"""If a larger share of the chains finds no point of positive likelihood the others are not to be trusted either."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Walk(Findings):
    """What the chains found; replicates of the table are chains.

    Attributes:
        r_hat: the worst over coupled states' values.
        effective_sample_size: the smallest over coupled states' values.
        steps: recorded steps of each chain.
        lost: chains that found no point of positive likelihood while warming up; they are left out.
        evaluations: mean likelihood evaluations of the slowest chain a step; None if they were not counted.
    """

    r_hat: float
    effective_sample_size: float
    steps: int
    lost: int = 0
    evaluations: float | None = None

    @property
    def trustworthy(self) -> bool:
        """Have the chains mixed, and all but a few of them found the posterior?"""
        few_lost = self.lost <= MOST_LOST * (self.lost + len(self.table.weight))
        return few_lost and self.r_hat < R_HAT_LIMIT and self.effective_sample_size > LEAST_EFFECTIVE


class Chains:
    """256 chains that can be walked on as long as needed; a round of 250 steps, not recorded, warms them up."""

    def __init__(self, coordinates: Coordinates, seed: int) -> None:
        self.coordinates = coordinates
        self.key, start = jax.random.split(random_key(seed))
        self.position = normal_point(start, (*coordinates.chart.slot.shape, CHAINS), coordinates.scales)
        self.rounds: list[_Round] = []

    def walk(self, rounds: int) -> Walk:
        """Walk until a number of rounds is recorded, and summarise them."""
        coordinates = self.coordinates
        kind, structure = coordinates.kind, coordinates.structure
        if not self.rounds:
            self.position = advance(kind, ROUND, structure, jax.random.fold_in(self.key, 0), self.position)
        while len(self.rounds) < rounds:
            key = jax.random.fold_in(self.key, 1 + len(self.rounds))
            self.rounds.append(_run(kind, ROUND, structure, _recorded(coordinates), key, self.position))
            self.position = self.rounds[-1].position
        return _summarise(coordinates, self.rounds)


def _recorded(coordinates: Coordinates) -> Int[Array, "recorded"]:
    """Coupled states, in the chart's order, whose values are recorded: those of all would fill the memory."""
    coupled = np.flatnonzero(coordinates.target.coupled[coordinates.chart.order])
    return jnp.asarray(coupled[np.unique(np.linspace(0, len(coupled) - 1, MOST_RECORDED).astype(np.int64))])


def end_points(chains: Chains) -> Weighed:
    """Where the chains are now; those without any likelihood are left out."""
    weighed = weigh_normals(chains.coordinates.kind, chains.coordinates.structure, chains.position)
    kept = np.isfinite(weighed.log_weight)
    return weighed._replace(
        log_weight=weighed.log_weight[kept], q=weighed.q[..., kept], noise_scale=weighed.noise_scale[:, kept]
    )


class _Record(NamedTuple):
    """One step of all chains: log weight, hash and slots of the greedy policies, some values, noise scale, cost."""

    log_weight: Float[Array, "*steps chains"]
    code: UInt64[Array, "*steps chains"]
    choice: Int[Array, "*steps states chains"]
    value: Float[Array, "*steps recorded chains"]
    noise_scale: Float[Array, "*steps scales chains"]
    evaluations: Int[Array, "*steps"]


class _Round(NamedTuple):
    """Where the chains ended, their records, and the chains' sums of moments of the action values."""

    position: Point
    record: _Record
    first: Float[Array, "actions states chains"]
    second: Float[Array, "actions states chains"]


@partial(jax.jit, static_argnames=("kind", "steps"))
def _run(
    kind: Kind,
    steps: int,
    structure: Structure,
    recorded: Int[Array, "recorded"],
    key: PRNGKeyArray,
    position: Point,
) -> _Round:
    def move(carry: tuple[Stand, Array, Array], key: PRNGKeyArray) -> tuple[tuple[Stand, Array, Array], _Record]:
        here, first, second = carry
        here, cost = step(kind, structure, key, here)
        found = weigh_normals(kind, structure, here.point)
        more_first, more_second = member_moments(structure, found.q)
        value = jnp.max(found.q, axis=0)[recorded]
        record = _Record(found.log_weight, found.code, found.choice, value, found.noise_scale, cost.evaluations)
        return (here, first + more_first, second + more_second), record

    nothing = jnp.zeros_like(position.x)
    begin = (stand(kind, structure, position), nothing, nothing)
    (here, first, second), record = jax.lax.scan(move, begin, jax.random.split(key, steps))
    return _Round(here.point, record, first, second)


def nowhere() -> UnsupportedError:
    """What to say when no chain finds a point of positive likelihood."""
    return UnsupportedError(
        "no chain found a parameter that fits the data: check the rewards, or use a larger --epsilon"
    )


def _summarise(coordinates: Coordinates, rounds: list[_Round]) -> Walk:
    target, chart = coordinates.target, coordinates.chart
    stand = coordinates.stand_in
    action, state = chart.place
    kept = np.isfinite(np.asarray(rounds[0].record.log_weight[0]))  # a chain that has found the posterior stays there
    if not kept.any():
        raise nowhere()
    chains = int(kept.sum())
    steps = ROUND * len(rounds)
    moments = []
    for name in ("first", "second"):
        total = np.sum([np.asarray(getattr(done, name)) for done in rounds], axis=0) / steps
        moments.append(ratio(total[action[stand], state[stand]][:, kept].T, np.ones(chains)))
    value = np.concatenate([np.asarray(done.record.value) for done in rounds])
    eta = np.concatenate([np.asarray(done.record.noise_scale) for done in rounds])[:, :, kept]
    r_hat, effective = diagnose(np.moveaxis(np.concatenate([value[:, :, kept], eta], axis=1), 2, 0))
    code = np.concatenate([np.asarray(done.record.code) for done in rounds])[:, kept]
    _, first, row = np.unique(code, return_index=True, return_inverse=True)
    chain = np.broadcast_to(np.arange(chains), code.shape)
    weight = np.bincount((chain * len(first) + row.reshape(code.shape)).ravel(), minlength=chains * len(first))
    choices = np.concatenate([np.asarray(done.record.choice) for done in rounds])[:, :, kept]
    choice = choices[first // chains, :, first % chains]
    table = policy_table(coordinates, choice, weight.reshape(chains, -1).astype(np.float64))
    evaluations = float(np.mean([np.asarray(done.record.evaluations).mean() for done in rounds]))
    q_mean, q_sd = from_moments(target, moments[0], moments[1])
    return Walk(
        table=table,
        q_mean=q_mean,
        q_sd=q_sd,
        r_hat=r_hat,
        effective_sample_size=effective,
        steps=steps,
        lost=CHAINS - chains,
        evaluations=evaluations,
        noise_scale=(float(eta.mean()), float(eta.std())) if eta.size else None,
    )


def diagnose(value: Float[np.ndarray, "chains steps states"]) -> tuple[float, float]:
    """The worst R-hat and the smallest bulk effective sample size over the values of states that vary.

    Of more than 32 such states 32 are looked at.
    """
    spread = np.ptp(value, axis=(0, 1)) > 1e-6 * (1.0 + np.abs(value).max(axis=(0, 1)))
    varying = np.flatnonzero(spread)
    if not len(varying):
        return 1.0, float(value.shape[0] * value.shape[1])
    r_hat, effective = r_hat_and_effective(evenly_spread(value[:, :, varying], LOOKED_AT))
    return float(r_hat.max()), float(effective.min())
