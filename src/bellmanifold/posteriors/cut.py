"""Cutting the observed end components open, so that the chart also covers improper parameters.

Where observed pairs hold an end component the chart misses the parameters whose greedy policy stays in it. Choose a set
F of observed pairs that meets every such component. With the pairs of F treated as free no policy is improper, so the
values of F become coordinates and their equations likelihood factors: everything is covered, but the proper points,
where theta_f nearly solves its equation, are hit rarely. So points are proposed from all 2^|F| ways of treating each
pair of F as *free* (theta_f ~ N(0, sigma^2), reaches the improper half-lines) or *solved* (xi_f from the kernel), in
equal shares, and weighed against the density of the whole mixture (the balance heuristic of Veach and Guibas 1995):

    w = prod_{i observed} N(theta_i; 0, sigma^2) prod_{f in F} K(e_f)
        / prod_blocks mean_b [ |det A_b(theta)| prod_{f in b} K(e_f) prod_{f not in b} N(theta_f; 0, sigma^2) ],

with e_f = g_f(theta) - r_f and A_b the chart's matrix with b solved and the rest of F free. The determinant of a b that
could not have produced theta is 0 exactly. Strong components of the graph do not share determinants, so the mean over
subsets factorises over them.

Which pair is cut matters. In a closed class with stationary law pi the residual of f is -(pi.r + eps sum_{j != f} pi_j
xi_j)/pi_f: a pair that is rarely visited almost never meets the improper mode, and no diagnostic notices. So the pair
with the largest stationary weight is cut.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.chart import BatchChart
from bellmanifold.errors import UnsupportedError
from bellmanifold.gain import best_mean_reward
from bellmanifold.graph import end_components
from bellmanifold.linear import chain_on
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.target import Target
from bellmanifold.ssp import SSP

MAX_CUT = 6


def cut_set(target: Target) -> list[int]:
    """Observed pairs that meet every end component of observed pairs, heavy ones first."""
    model = replace(target.model, reward=target.reward)
    left = target.observed.copy()
    cut: list[int] = []
    while components := end_components(model, left):
        for component in components:
            mean = best_mean_reward(model, component)
            heaviest = int(mean.policy[np.argmax(stationary_law(model, mean.loop, mean.policy))])
            left[heaviest] = False
            cut.append(heaviest)
    return cut


def cut_coordinates(target: Target, chart: BatchChart) -> list[Coordinates]:
    """One set of coordinates for each way of freeing the pairs of a cut; together they cover the posterior.

    Raises:
        UnsupportedError: if the cut is too large to enumerate its subsets.
    """
    cut = cut_set(target)
    if len(cut) > MAX_CUT:
        raise UnsupportedError(
            f"the observed loops can only be cut open by {len(cut)} pairs (at most {MAX_CUT} are enumerated): "
            "use --proper-only, --epsilon 0 or, for few cells, --engine mixture"
        )
    subsets = itertools.chain.from_iterable(itertools.combinations(cut, k) for k in range(len(cut), -1, -1))
    return [Coordinates(target, chart, cut=tuple(cut), freed=freed) for freed in subsets]


def stationary_law(
    model: SSP, states: Int[np.ndarray, "loop"], pairs: Int[np.ndarray, "loop"]
) -> Float[np.ndarray, "loop"]:
    """The stationary law of the closed class in which each state plays its pair: pi = pi P, sum pi = 1."""
    policy = np.zeros(model.n_states, dtype=np.int64)
    policy[states] = pairs
    ordered = np.sort(states)
    moves, leaving, _ = chain_on(model, policy, ordered)
    balance = moves.toarray().T - np.diag(leaving)
    system = np.vstack([balance, np.ones(len(ordered))])
    law = np.linalg.lstsq(system, np.append(np.zeros(len(ordered)), 1.0), rcond=None)[0]
    return law[np.searchsorted(ordered, states)]
