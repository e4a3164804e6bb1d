"""Walking the chart of a large cyclic problem, one chain after the other (`bellmanifold.posteriors.sparse_steps`)."""

from __future__ import annotations

import numpy as np

from bellmanifold.posteriors.findings import from_moments
from bellmanifold.posteriors.policies import PolicyTable, ratio
from bellmanifold.posteriors.sparse_coordinates import SparseCoordinates
from bellmanifold.posteriors.sparse_steps import step
from bellmanifold.posteriors.walk import Walk, diagnose, nowhere

CHAINS = 4


def sparse_walk(coordinates: SparseCoordinates, steps: int, warm_up: int, seed: int) -> Walk:
    """Run four chains of slice steps."""
    target = coordinates.target
    model, coupled = target.model, target.coupled
    policies, values, sums = [], [], []
    for child in np.random.SeedSequence(seed).spawn(CHAINS):
        rng = np.random.default_rng(child)
        here = coordinates.place(rng.standard_normal(coordinates.size), None)
        for _ in range(warm_up):
            here = step(coordinates, here, rng)
        if not np.isfinite(here.log_likelihood):
            continue
        own = np.zeros((steps, int(coupled.sum())), dtype=np.int64)
        value = np.zeros((steps, int(coupled.sum())))
        first, second = np.zeros(model.n_pairs), np.zeros(model.n_pairs)
        for k in range(steps):
            here = step(coordinates, here, rng)
            own[k], value[k] = model.greedy(here.q)[coupled], model.best(here.q)[coupled]
            more_first, more_second = coordinates.moments(here.q)
            first, second = first + more_first / steps, second + more_second / steps
        policies.append(own)
        values.append(value)
        sums.append((first, second))
    chains = len(policies)
    if not chains:
        raise nowhere()
    table = PolicyTable.of_chains(coupled, np.array(policies), coordinates.stand_in)
    by_pair = np.array(sums)[:, :, coordinates.stand_in]
    q_mean, q_sd = from_moments(target, *(ratio(by_pair[:, power], np.ones(chains)) for power in (0, 1)))
    r_hat, effective = diagnose(np.array(values))
    return Walk(
        table=table,
        q_mean=q_mean,
        q_sd=q_sd,
        r_hat=r_hat,
        effective_sample_size=effective,
        steps=steps,
        lost=CHAINS - chains,
    )
