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

Which pairs are cut matters. In a closed class C with stationary law pi the residuals obey sum_j pi_j e_j = -pi.r; with
f the only free pair, e_f = -(pi.r + eps sum_{j != f} pi_j xi_j)/pi_f: a pair that is rarely visited almost never meets
the improper mode, and no diagnostic notices. A pair may be heavy in one class and rare in another, so a cut is *sound*
if in every closed class of observed pairs

    time in F = sum_{f in F and C} pi_f  >=  SHARE pi_j    for every pair j of C.

Whether some class breaks this for a given j is a question about the best mean reward of a process that pays SHARE for
j and -1 for every pair of F: there is one if and only if that is positive, and Howard's iteration returns it. Then its
heaviest pair is cut, too.

Loops that are left, but hardly ever, are cut, too (`bellmanifold.posteriors.lingering`).

`other_cut` finds a second sound cut that avoids the pairs of the first where it can: two cuts must agree on the
improper mass.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.chart import BatchChart
from bellmanifold.errors import UnsupportedError
from bellmanifold.gain import MeanReward, best_mean_reward
from bellmanifold.graph import EndComponent, end_components
from bellmanifold.linear import chain_on
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.lingering import MOST_VISITS, lingering_cut
from bellmanifold.posteriors.target import Target
from bellmanifold.ssp import SSP

MAX_CUT = 6
SHARE = 0.25
"""The time every closed class spends in the cut, at least, relative to the time it spends on its heaviest pair."""


class LargeCutError(UnsupportedError):
    """The observed loops cannot be cut open by a few pairs."""


def cut_set(target: Target, avoided: Collection[int] = ()) -> list[int]:
    """A sound cut: observed pairs that meet every closed class of observed pairs where it spends its time.

    Args:
        target: the posterior.
        avoided: pairs that are cut only where no other pair of the class is nearly as heavy.

    Returns:
        The pairs; more than `MAX_CUT` of them if the search was given up.
    """
    model = replace(target.model, reward=target.reward)
    left = target.observed.copy()
    cut: list[int] = []
    components = target.loops
    while components:
        for component in components:
            cut.append(_heaviest(model, best_mean_reward(model, component), avoided))
            left[cut[-1]] = False
        if len(cut) > MAX_CUT:
            return cut
        components = end_components(model, left)
    for component in target.loops:
        while len(cut) <= MAX_CUT and (rare := _rarely_cut(model, component, cut)):
            cut.append(_heaviest(model, rare, avoided))
    if len(cut) > MAX_CUT:
        return cut
    left = target.observed.copy()
    left[cut] = False
    return [*cut, *lingering_cut(model, left, MAX_CUT - len(cut))]


def proper_cut_set(target: Target) -> list[int]:
    """Observed pairs that meet the loops which are left, but hardly ever; closed classes are not cut open.

    Such a loop holds a pair that belongs to no closed class, and that one is cut. Loops that share pairs with a closed
    class are found where rare moves are left out: how long they hold a policy cannot be asked without that class.
    """
    left = target.observed.copy()
    cut: list[int] = []
    while len(cut) <= MAX_CUT:
        if not (outside := _outside(target, left)):
            for component in target.loops:
                left[component.pairs] = False
            return [*cut, *lingering_cut(target.model, left, MAX_CUT - len(cut))]
        cut.append(outside[0])
        left[cut[-1]] = False
    return cut


def lingers_outside(target: Target) -> bool:
    """Whether some loop that is not closed becomes so without rare moves; also for problems of any size."""
    return bool(_outside(target, target.observed))


def _outside(target: Target, allowed: Bool[np.ndarray, "pairs"]) -> list[int]:
    """Pairs of loops that only rare moves leave, but of no closed class."""
    closed = np.zeros(target.model.n_pairs, dtype=bool)
    for component in target.loops:
        closed[component.pairs] = True
    likely = end_components(without_rare_moves(target.model), allowed)
    return [int(pair) for component in likely for pair in component.pairs if not closed[pair]]


def without_rare_moves(model: SSP) -> SSP:
    """The problem without moves that are less probable by a factor `MOST_VISITS` than the likeliest of their pair."""
    likeliest = np.maximum.reduceat(model.next_prob, model.next_start[:-1])
    keep = model.next_prob * MOST_VISITS >= likeliest[model.next_pair]
    pair, probability = model.next_pair[keep], model.next_prob[keep]
    return replace(
        model,
        next_start=np.append(0, np.cumsum(np.bincount(pair, minlength=model.n_pairs))),
        next_state=model.next_state[keep],
        next_prob=probability / np.bincount(pair, probability)[pair],
    )


def _rarely_cut(model: SSP, component: EndComponent, cut: list[int]) -> MeanReward | None:
    """A closed class that spends more than 1/SHARE times as long on some pair as it spends in the cut."""
    for pair in np.setdiff1d(component.pairs, cut):
        reward = np.zeros(model.n_pairs)
        reward[cut] = -1.0
        reward[pair] = SHARE
        best = best_mean_reward(replace(model, reward=reward), component)
        if best.value > 1e-12:
            return best
    return None


def _heaviest(model: SSP, loop: MeanReward, avoided: Collection[int]) -> int:
    """The pair with the largest stationary weight; one of the avoided only if the others are lighter by SHARE."""
    law = stationary_law(model, loop.loop, loop.policy)
    law = np.where(np.isin(loop.policy, list(avoided)), SHARE * law, law)
    return int(loop.policy[np.argmax(law)])


def cut_coordinates(target: Target, chart: BatchChart, proper_only: bool) -> list[Coordinates]:
    """One set of coordinates for each way of freeing the pairs of a cut; together they cover the posterior.

    Args:
        target: the posterior.
        chart: of its problem.
        proper_only: cover only parameters that are not known to be improper.

    Raises:
        LargeCutError: if the cut is too large to enumerate its subsets.
    """
    cut = proper_cut_set(target) if proper_only else cut_set(target)
    if len(cut) > MAX_CUT:
        raise LargeCutError(
            f"the observed loops, closed or hardly ever left, can only be cut open by more than {MAX_CUT} pairs, "
            f"too many to enumerate: use {'' if proper_only else '--proper-only, '}--epsilon 0 or, for few cells, "
            "--engine mixture"
        )
    return _treatments(target, chart, cut)


def other_cut(components: list[Coordinates]) -> list[Coordinates] | None:
    """The coordinates of a second cut, to check the first one by; None if there is no other of a moderate size."""
    first = components[0]
    cut = cut_set(first.target, avoided=first.cut)
    if len(cut) > MAX_CUT or set(cut) == set(first.cut):
        return None
    return _treatments(first.target, first.chart, cut)


def _treatments(target: Target, chart: BatchChart, cut: list[int]) -> list[Coordinates]:
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
