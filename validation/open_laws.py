"""Simulation-based calibration where transition laws are unknown: `PYTHONPATH=src python validation/open_laws.py`.

Action values come from their prior, laws from their Dirichlet (and its concentration, where that is to be inferred,
from its log-uniform prior), landings from the laws, rewards from g(Q, p). Then values, laws and concentration are one
draw from the posterior given landings and rewards, and the rank of any function of them among posterior draws is
uniform. Prints a row of p-values for each likelihood; the smallest of 24 is below 0.001 in 2 % of all runs.

A replication is fixed by its likelihood and its index alone, and is simulated by NumPy alone.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from dataclasses import dataclass, replace

import numpy as np
from ranks import DRAWS, p_value, ranks
from simulated import PRIOR_SCALE, WIDTH, leaky_loop

import bellmanifold as bm
from bellmanifold.errors import BellmanifoldError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.draws import posterior_draws
from bellmanifold.posteriors.laws import LEAST, MOST, close_laws
from bellmanifold.posteriors.target import Target, noisy_target, relaxed_target

QUANTITIES = (
    "Q of a seen pair",
    "Q of an unseen pair",
    "V of the start",
    "probability of a landing",
    "log likelihood of the landings",
    "concentration",
)
MODEL = leaky_loop().opened()
"""Two states with three and two pairs; nothing is known of where they lead."""
SEEN, UNSEEN = (0, 0, 0, 1, 3, 3), 2
"""Pairs that are seen, in order, and the unseen pair whose value is looked at."""
LIKELIHOODS = ("exact", "relaxed", "noisy", "inferred")
"""Rewards without noise, with one error a pair, with one a visit; without noise and with an unknown concentration."""
CONCENTRATION = 2.0


@dataclass(frozen=True, eq=False)
class Replication:
    """One draw of everything.

    Attributes:
        likelihood: one of `LIKELIHOODS`.
        truth: action values, shape (pairs,).
        law: where each pair leads, the goal last, shape (pairs, states + 1).
        concentration: that laws were drawn with.
        data: observations.
    """

    likelihood: str
    truth: np.ndarray
    law: np.ndarray
    concentration: float
    data: bm.Dataset

    def looked_at(self, q: np.ndarray, landing: np.ndarray, concentration: np.ndarray) -> np.ndarray:
        """The `QUANTITIES` of each draw: action values, probabilities of the landings seen, concentration."""
        best = np.maximum.reduceat(q, MODEL.pair_start[:-1], axis=-1)
        counts = self.data.landing_counts.toarray()
        likelihood = np.log(np.maximum(landing, 1e-300)) @ counts[counts > 0]
        columns = (q[..., SEEN[0]], q[..., UNSEEN], best[..., 0], landing[..., 0], likelihood, concentration)
        return np.stack(columns, axis=-1)

    def true_quantities(self) -> np.ndarray:
        """Those of the truth."""
        landing = self.law[self.data.landing_counts.toarray() > 0]
        return self.looked_at(self.truth, landing, np.array(self.concentration))


def replication(likelihood: str, index: int) -> Replication:
    """Draw values, laws, landings and rewards."""
    rng = np.random.default_rng([index, 77])
    truth = PRIOR_SCALE * rng.standard_normal(MODEL.n_pairs)
    nexts = MODEL.n_states + 1
    drawn = float(np.exp(rng.uniform(np.log(LEAST), np.log(MOST))))
    concentration = drawn if likelihood == "inferred" else CONCENTRATION
    log_gamma = np.log(rng.standard_gamma(concentration / nexts + 1.0, (MODEL.n_pairs, nexts)))
    log_gamma += np.log(rng.random(log_gamma.shape)) * nexts / concentration
    law = np.exp(log_gamma - log_gamma.max(axis=1, keepdims=True))
    law /= law.sum(axis=1, keepdims=True)
    best = np.append(np.maximum.reduceat(truth, MODEL.pair_start[:-1]), 0.0)
    pairs = np.array(SEEN)
    error = {"relaxed": rng.standard_normal(MODEL.n_pairs)[pairs], "noisy": rng.standard_normal(len(pairs))}
    own = best[MODEL.pair_state][:, None]
    reward = truth - own[:, 0] + (law * (own - best)).sum(axis=1)  # truth - law @ best, also where the pair just stays
    reward = reward[pairs] + WIDTH * error.get(likelihood, 0.0)
    landed = np.array([rng.choice(nexts, p=law[pair]) for pair in pairs])
    data = bm.Dataset(MODEL, pairs, reward, np.full(len(pairs), np.nan), landed)
    return Replication(likelihood, truth, law, concentration, data)


def target_of(case: Replication) -> Target:
    """The posterior of a replication."""
    known = None if case.likelihood == "inferred" else CONCENTRATION
    whole, laws, no_law = close_laws(case.data, "dirichlet", known)
    data = replace(case.data, model=whole)
    if case.likelihood == "noisy":
        target = noisy_target(data, WIDTH, PRIOR_SCALE)
    else:
        target = relaxed_target(data, WIDTH if case.likelihood == "relaxed" else 0.0, PRIOR_SCALE)
    return replace(target, laws=laws, no_law=no_law)


def replicate(task: tuple[str, int]) -> list[int] | str:
    """The ranks of a replication, or why there are none."""
    likelihood, index = task
    case = replication(likelihood, index)
    rng = np.random.default_rng([index, 78])
    try:
        drawn = posterior_draws(target_of(case), Budget(seed=index))
    except BellmanifoldError as error:
        return str(error)
    rows = rng.choice(len(drawn.weight), DRAWS, p=drawn.weight.values)
    found = (drawn.q.values[rows], drawn.law.values[rows], drawn.concentration.values[rows])
    return ranks(case.true_quantities(), case.looked_at(*found), rng)


def main() -> None:
    """Read the arguments, replicate, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=500)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for likelihood in LIKELIHOODS:
            found = pool.map(replicate, [(likelihood, index) for index in range(options.replications)], chunksize=10)
            table = np.array([row for row in found if not isinstance(row, str)])
            failed = sorted({row for row in found if isinstance(row, str)})
            print(f"{likelihood}: {len(found) - len(table)} of {len(found)} failed {failed[:1]}", file=sys.stderr)
            row = {name: round(p_value(column), 4) for name, column in zip(QUANTITIES, table.T, strict=True)}
            print(json.dumps({"likelihood": likelihood, "replications": len(table), "p": row}), flush=True)


if __name__ == "__main__":
    main()
