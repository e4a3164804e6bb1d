"""Posterior draws from every engine, given one replication's data.

The chart hands out its own draws (`posterior_draws`: importance draws where they weigh well), or the ends of 256
slice chains. HMC and NUTS are the
engines behind `--engine`, 64 chains; two distant points of each chain are taken. The mixture engine has no draws: its
greedy policies are drawn with the weights it found, and action values from the Gaussian of that cell, computed here by
the textbook formula and kept where they obey the cell's walls. The three temporal-difference posteriors are closed
forms, after as many updates as they need to settle.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ranks import DRAWS
from simulated import PRIOR_SCALE, WIDTH, Replication

from bellmanifold.chart.batch import batch_chart
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.draws import chain_draws, posterior_draws
from bellmanifold.posteriors.kernels import Gaussian
from bellmanifold.posteriors.target import Target, noisy_target, relaxed_target
from bellmanifold_paper import td
from bellmanifold_paper.engines.gradient import by_gradient
from bellmanifold_paper.engines.mixture import mixture

Draws = np.ndarray
"""Action values, shape (DRAWS, pairs)."""
POINTS = 100
"""Points each chain walks after its warm-up; those in the middle and at the end are taken."""
UPDATES = 20
MOST_TRIES = 2**24


def target_of(case: Replication, prior_scale: float = PRIOR_SCALE) -> Target:
    """The posterior of a replication; the prior scale is the true one unless something is to go wrong."""
    if case.likelihood == "noisy":
        return noisy_target(case.data, WIDTH, prior_scale, Gaussian())
    return relaxed_target(case.data, WIDTH if case.likelihood == "relaxed" else 0.0, prior_scale)


def from_chart(target: Target, seed: int) -> Draws:
    """The chart's own draws, chosen by their weights."""
    drawn = posterior_draws(target, Budget(seed=seed))
    rng = np.random.default_rng([seed, 1])
    return drawn.q.values[rng.choice(len(drawn.weight), DRAWS, p=drawn.weight.values)]


def from_walk(target: Target, seed: int) -> Draws:
    """The ends of slice chains in the chart's coordinates."""
    drawn = chain_draws(target, batch_chart(target.model), Budget(seed=seed))
    if drawn is None:
        raise UnsupportedError("the chains have not mixed")
    return np.random.default_rng([seed, 6]).permutation(drawn.q.values)[:DRAWS]


def from_mixture(target: Target, seed: int) -> Draws:
    """Cells by the weights the enumeration found, action values from each cell's truncated Gaussian."""
    table, rng = mixture(target, Budget(seed=seed)).table, np.random.default_rng([seed, 2])
    chosen, wanted = np.unique(rng.choice(len(table.share), DRAWS, p=table.share), return_counts=True)
    drawn = [_within(target, table.policy[cell], int(n), rng) for cell, n in zip(chosen, wanted, strict=True)]
    return np.concatenate(drawn)


def _within(target: Target, policy: np.ndarray, wanted: int, rng: np.random.Generator) -> Draws:
    """Draws from the Gaussian of a cell of greedy actions that lie in the cell."""
    model, seen = target.model, np.flatnonzero(target.observed)
    greedy = model.pair_start[:-1].copy()
    greedy[target.coupled] = policy
    design = np.eye(model.n_pairs)
    for entry in range(len(model.next_state)):
        if model.next_state[entry] < model.n_states:
            design[model.next_pair[entry], greedy[model.next_state[entry]]] -= model.next_prob[entry]
    design = design[seen] / target.scale[seen, None]
    precision = np.diag(target.prior.sd**-2.0) + design.T @ design
    covariance = np.linalg.inv(precision)
    mean = covariance @ (target.prior.mean / target.prior.sd**2 + design.T @ (target.reward[seen] / target.scale[seen]))
    root = np.linalg.cholesky(covariance)
    kept, tried = np.zeros((0, model.n_pairs)), 0
    while len(kept) < wanted:
        q = mean + rng.standard_normal((4096, model.n_pairs)) @ root.T
        best = np.maximum.reduceat(q, model.pair_start[:-1], axis=1)
        kept = np.concatenate([kept, q[(q[:, greedy] == best)[:, target.coupled].all(axis=1)]])
        tried += len(q)
        if tried > MOST_TRIES:
            raise RuntimeError(f"a cell with positive weight met no draw in {tried} tries")
    return kept[:wanted]


def from_chains(sampler: str) -> Callable[[Target, int], Draws]:
    """Points of 64 chains of a sampler, far from each other."""

    def draw(target: Target, seed: int) -> Draws:
        walked = by_gradient(target, sampler, Budget(samples=64 * POINTS, seed=seed))
        q = walked.draws().q.values.reshape(64, POINTS, -1)[:, POINTS // 2 - 1 :: POINTS // 2]
        rng = np.random.default_rng([seed, 3])
        return rng.permutation(np.concatenate(q))[:DRAWS]

    return draw


def from_td(name: str) -> Callable[[Target, int], Draws]:
    """A temporal-difference posterior, settled."""

    def draw(target: Target, seed: int) -> Draws:
        rng = np.random.default_rng([seed, 4])
        update = {
            "td": td.update_td,
            "td-max": td.update_td_max,
            "td-en": lambda previous, target: td.update_td_en(previous, target, rng),
        }[name]
        posterior = td.initial(target.model, target.prior.scale)
        for _ in range(UPDATES):
            posterior = update(posterior, target)
        return td.draw(posterior, rng, DRAWS)

    return draw


ENGINES: dict[str, tuple[str, Callable[[Target, int], Draws]]] = {
    "exact": ("exact", from_chart),
    "chart-noisy": ("noisy", from_chart),
    "chart-relaxed": ("relaxed", from_chart),
    "chart-walk": ("relaxed", from_walk),
    "mixture": ("relaxed", from_mixture),
    "hmc": ("relaxed", from_chains("hmc")),
    "nuts": ("relaxed", from_chains("nuts")),
    "bayes-td": ("relaxed", from_td("td")),
    "bayes-td-max": ("relaxed", from_td("td-max")),
    "bayes-td-en": ("relaxed", from_td("td-en")),
}
"""Name -> the likelihood its data come from, and how it draws."""
WITHOUT_END_COMPONENTS = ("exact", "chart-walk")
"""Without noise a loop may pay, and then there is no exact posterior (Assumption 2). Where an end component was seen, a
walk leaves the chart for the action values, and on the swirl its chains say that they have not mixed."""
