"""Cutting open the observed end components, so that the chart also covers improper parameters.

Where observed pairs form an end component, the chart misses the parameters whose greedy policy stays in it. Choose a
set F of observed pairs that meets every such component. With the pairs of F treated as free no policy is improper, so
the values of F become coordinates and their equations likelihood factors: everything is covered, but the proper points,
where theta_f nearly solves its equation, are hit rarely. So points are proposed from all 2^|F| ways of treating each
pair of F as *free* (theta_f ~ N(0, sigma^2), reaches the improper half-lines) or *solved* (xi_f from the kernel), in
equal shares, with weights relative to the density of the mixture (the balance heuristic of Veach and Guibas 1995):

    w = prod_{i observed} N(theta_i; 0, sigma^2) prod_{f in F} K(e_f)
        / prod_blocks mean_b [ |det A_b(theta)| prod_{f in b} K(e_f) prod_{f not in b} N(theta_f; 0, sigma^2) ],

with e_f = g_f(theta) - r_f and A_b the chart's matrix with b solved and the rest of F free. The determinant of a b that
could not have produced theta is exactly 0. Strongly connected components do not share determinants, so the mean over
subsets factorises over them.

The choice of the cut matters. In a closed class C with stationary law pi the residuals obey sum_j pi_j e_j = -pi.r; if
f is the only free pair, e_f = -(pi.r + eps sum_{j != f} pi_j xi_j)/pi_f: a pair that is rarely visited almost never
hits the improper mode, and no diagnostic shows it. A pair may be heavy in one class and rare in another, so a cut is
*sound* if in every closed class of observed pairs

    time in F = sum_{f in F and C} pi_f  >=  SHARE pi_j    for every pair j of C.

Some class violates this for a given j if and only if the best mean reward of a process that pays SHARE for j and -1 for
every pair of F is positive; Howard's policy iteration returns that class, and its heaviest pair is cut, too.

Loops that are rarely left are also cut. They are not improper, but points of the chart hit them almost as rarely: if a
greedy policy returns to a state N times before it leaves, values of moderate size require residuals in a window of
width 1/N, where points have weight N. The probabilities of single moves do not reveal such loops: four states that are
each left backwards with probability 0.97 hold a policy for tens of thousands of steps. So for every state the largest
expected number of visits is computed that a policy of observed pairs, starting there, makes before it leaves them. It
is the optimum of a small shortest path problem that pays 1 for a visit, is finite if no policy stays forever, and is
found by policy iteration within each strongly connected component.

Under an exact posterior residuals are infinitesimal and there is nothing to cut. Instead, the exits of such a loop are
drawn below the value of lingering (`bellmanifold.posteriors.coordinates`). That does not cover a loop that observed
pairs may leave towards unobserved values, lingering in a part of a loop, or loops that share exits: `covering` then
reports `missed`.

`other_cut` finds a second sound cut that avoids the pairs of the first if possible, to check that both agree on the
improper mass.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.errors import UnsupportedError
from bellmanifold.mdp.checks import complaint, state_names
from bellmanifold.mdp.graph import EndComponent, end_components, leaving_policy, reach_goal, reachable
from bellmanifold.mdp.linear import chain_on
from bellmanifold.mdp.mean_payoff import MeanReward, best_mean_reward
from bellmanifold.posteriors.coordinates import Coordinates, Loop, stand_ins
from bellmanifold.posteriors.target import Target
from bellmanifold.posteriors.visits import Lingering, most_visited, without_rare_moves
from bellmanifold.problem.ssp import SSP

MAX_CUT = 6
"""Maximum number of pairs of a cut, or of loops: all subsets are enumerated."""
SHARE = 0.25
"""Least time that every closed class spends in the cut, relative to the time it spends on its heaviest pair."""
MISSED = "observed loops are rarely exited, and the sample misses policies that stay in them"


class LargeCutError(UnsupportedError):
    """The observed loops cannot be cut open by a few pairs."""


@dataclass(frozen=True, eq=False)
class Covering:
    """Coordinates in which points cover a posterior.

    Attributes:
        ways: alternatives, each a mixture of coordinates in equal shares; the first good one is used.
        missed: a message about what they do not cover; empty if they cover everything.
    """

    ways: list[list[Coordinates]]
    missed: str = ""

    @property
    def largest(self) -> int:
        """The largest number of coordinates that belong to pairs, including infinitesimal residuals."""
        return max(coordinates.size - coordinates.scales for way in self.ways for coordinates in way)


def covering(target: Target, most: int = MAX_CUT) -> Covering:
    """Coordinates that cover a posterior.

    Raises:
        LargeCutError: if a cut needs more than `most` pairs, too many to enumerate its subsets.
    """
    if target.prior.flat:  # no weight grows as a loop is left ever more rarely
        return Covering([[Coordinates(target)]])
    if target.is_acyclic:
        centred = [] if target.exact.any() else [[Coordinates(target, centred=True)]]
        return Covering([[Coordinates(target)], *centred])
    if target.is_exact:
        loops, missed = lingering_loops(target, most)
        return Covering([[Coordinates(target, lingering=loops)]], missed)
    if not target.proper_only and any(target.exact[loop.pairs].any() for loop in target.improper_loops):
        raise UnsupportedError(
            "one loop of observed pairs has exact and noisy rewards: use --proper-only, or give the exact ones an sd"
        )
    cut = proper_cut_set(target, most) if target.proper_only else cut_set(target, most)
    if len(cut) > most:
        exactly = "--epsilon 0 or, " if target.epsilon else ""
        remedy = f"--proper-only, {exactly}for few cells, --engine mixture"
        if _may_be_flat(target):
            remedy = "--prior-scale flat, since every pair has a reward or a belief"
        elif target.proper_only:  # the mixture has no such option
            remedy = f"{exactly}where every reward is known to some degree, --prior-scale flat"
        raise LargeCutError(
            f"the observed loops, closed or rarely exited, can only be cut open by more than {most} pairs, "
            f"too many to enumerate: use {remedy}"
        )
    treatments = _treatments(target, cut)
    leaves_out = target.proper_only and bool(target.improper_loops)  # centred coordinates would include these
    if leaves_out or target.exact.any():
        return Covering([treatments])
    return Covering([treatments, [Coordinates(target, centred=True)]])


def _may_be_flat(target: Target) -> bool:
    """Whether a prior that is flat over rewards would do: every pair has a reward or a belief, and none is exact."""
    return bool(target.observed.all() and (target.scale > 0).all()) and target.epsilon == 0


def missed_by_walks(target: Target, batch: bool, most: int = MAX_CUT) -> str:
    """A message if chains in non-centred coordinates miss loops that are rarely left; empty if they do not.

    In problems that do not fit a batch chart, only loops whose exits are individually rare moves are looked for.
    """
    if not batch:
        return MISSED if _hardly_left(target, _may_linger(target)) else ""
    loops = lingering_loops(target, most) if target.is_exact else (proper_cut_set(target, most), "")
    return MISSED if any(loops) else ""


def needs_cut(target: Target, most: int = MAX_CUT) -> bool:
    """Whether non-centred coordinates miss parameters that belong to the posterior."""
    return not (target.is_exact or target.proper_only) and bool(cut_set(target, most))


def check_exact(target: Target, remedy: str = "use --epsilon above 0, or --discount 0.99") -> None:
    """Refuse an exact posterior that does not exist: every loop of observed pairs must cost something."""
    if not target.exact.any():
        return
    for component in target.loops if target.is_exact else end_components(target.model, target.exact):
        mean = best_mean_reward(replace(target.model, reward=target.reward), component)
        if mean.sign >= 0:
            raise UnsupportedError(f"{complaint(target.model, mean)}; the exact posterior does not exist: {remedy}")


def trap_error(target: Target, solved: Bool[np.ndarray, "pairs"]) -> UnsupportedError:
    """The error raised if M~ has no proper policy; its message names the trapped states and remedies."""
    model = target.model
    leaves = np.zeros(model.n_states, dtype=bool)
    leaves[model.pair_state[~solved]] = True
    out, _ = reach_goal(model, solved, also_goals=leaves)
    trap = next(c for c in end_components(model, solved) if not out[c.states].any())
    it = "it" if len(trap.states) == 1 else "them"
    way_out = f"remove {it} and all moves that lead there from the problem (--prune)"
    if not target.prior.flat:  # which covers proper policies only
        other = "use --epsilon above 0 without --proper-only" if target.is_exact else "leave --proper-only out"
        way_out = f"{other}, {way_out}"
    return UnsupportedError(
        f"the observed pairs trap {state_names(model, trap.states)}: no policy reaches the goal or an unobserved "
        f"pair from there, so no parameter is proper; {way_out}, or use --discount 0.99"
    )


def cut_set(target: Target, most: int = MAX_CUT, avoided: Collection[int] = ()) -> list[int]:
    """A sound cut: observed pairs that meet every closed class of observed pairs where it spends its time.

    It has more than `most` pairs if the search was abandoned. Pairs in `avoided` are cut only if no other pair of the
    class is nearly as heavy.
    """
    model = replace(target.model, reward=target.reward)
    left = target.observed & (target.scale > 0)
    cut: list[int] = []
    components = target.improper_loops
    while components:
        for component in components:
            cut.append(_heaviest(model, best_mean_reward(model, component), avoided))
            left[cut[-1]] = False
        if len(cut) > most:
            return cut
        components = end_components(model, left)
    for component in target.improper_loops:
        while len(cut) <= most and (rare := _rarely_cut(model, component, cut)):
            cut.append(_heaviest(model, rare, avoided))
    left[cut] = False
    while len(cut) <= most:
        found = _hardly_left(target, left) if target.laws is not None else None  # open laws were only seen to stay
        found = found or most_visited(target.support, left)
        if found is None:
            break
        cut.append(found.pair)
        left[found.pair] = False
    return cut


def proper_cut_set(target: Target, most: int = MAX_CUT) -> list[int]:
    """Observed pairs that meet all loops that are rarely left; closed classes are not cut open."""
    return [found.pair for found in _lingering(target, most)]


def other_cut(components: list[Coordinates], most: int = MAX_CUT) -> list[Coordinates] | None:
    """Coordinates of a second cut, for checking the first one; None if there is no other of moderate size."""
    first = components[0]
    cut = cut_set(first.target, most, avoided=first.cut)
    if len(cut) > most or set(cut) == set(first.cut):
        return None
    return _treatments(first.target, cut)


def _treatments(target: Target, cut: list[int]) -> list[Coordinates]:
    """One set of coordinates for each way of freeing the pairs of a cut; together they cover the posterior."""
    subsets = itertools.chain.from_iterable(itertools.combinations(cut, k) for k in range(len(cut), -1, -1))
    return [Coordinates(target, cut=tuple(cut), freed=freed) for freed in subsets]


# --- closed classes -------------------------------------------------------------------------------------------------


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
    """The pair with the largest stationary weight; avoided pairs count with the factor SHARE."""
    law = stationary_law(model, loop.loop, loop.policy)
    law = np.where(np.isin(loop.policy, list(avoided)), SHARE * law, law)
    return int(loop.policy[np.argmax(law)])


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


# --- loops that are rarely left -------------------------------------------------------------------------------------


def _lingering(target: Target, most: int, allowed: Bool[np.ndarray, "pairs"] | None = None) -> list[Lingering]:
    """Loops that are rarely left, each cut open before the search for the next; at most `most` + 1 of them.

    Such a loop contains a pair outside all closed classes, which is cut. Loops that share pairs with a closed class are
    found by ignoring rare moves, since the numbers of visits are computed without closed classes.
    """
    left = (_may_linger(target) if allowed is None else allowed).copy()
    loops: list[Lingering] = []
    while len(loops) <= most:
        found = _hardly_left(target, left) or most_visited(target.support, left & ~_in_closed_classes(target))
        if found is None:
            break
        loops.append(found)
        left[found.pair] = False
    return loops


def _may_linger(target: Target) -> Bool[np.ndarray, "pairs"]:
    """Pairs that may hold a policy for long unnoticed: in an exact posterior, not those whose laws are drawn.

    If drawn laws leave a loop ever more rarely, the values, and with them the prior density, show it.
    """
    return target.observed & ~(target.open & target.is_exact)


def _in_closed_classes(target: Target) -> Bool[np.ndarray, "pairs"]:
    return np.isin(np.arange(target.model.n_pairs), [pair for loop in target.loops for pair in loop.pairs])


def _hardly_left(target: Target, allowed: Bool[np.ndarray, "pairs"]) -> Lingering | None:
    """A loop that only rare moves leave, with a pair of it outside all closed classes; for problems of any size."""
    closed = _in_closed_classes(target)
    for component in end_components(without_rare_moves(target.support), allowed):
        for pair in component.pairs[~closed[component.pairs]]:
            return Lingering(int(pair), component.states, component.pairs)
    return None


def lingering_loops(target: Target, most: int = MAX_CUT) -> tuple[tuple[Loop, ...], str]:
    """Loops of an exact posterior that are rarely left, with their exits, and a message if these miss something."""
    found = _lingering(target, most)
    if len(found) > most:
        return (), MISSED
    unseen = ~target.observed & target.coupled[target.model.pair_state]
    stand_in = stand_ins(target, unseen)
    exits_of = unseen & (stand_in == np.arange(len(unseen)))
    loops: list[Loop] = []
    for one in found:
        exits = np.flatnonzero(exits_of & np.isin(target.model.pair_state, one.states))
        loops.append(Loop(*(tuple(part.tolist()) for part in (one.states, exits, one.pairs))))
    all_exits = [pair for loop in loops for pair in loop.exits]
    if len(set(all_exits)) < len(all_exits):
        return (), MISSED
    if leaving_policy(target.model, target.observed, np.isin(stand_in, all_exits)) is None:
        return (), MISSED
    is_missed = any(_left_otherwise(target, one) or _lingers_in_part(target, one) for one in found)
    return tuple(loops), MISSED if is_missed else ""


def _lingers_in_part(target: Target, loop: Lingering) -> bool:
    """Whether some policy lingers at only some of the states at which the loop has exits.

    A coin closes the exits of all states of the loop, so it misses the cell in which an exit of the others is greedy.
    """
    model = target.model
    unseen = np.unique(model.pair_state[~target.observed])
    ends = np.intersect1d(loop.states, unseen)
    inside = target.observed & np.isin(model.pair_state, loop.states)
    return len(ends) > 1 and any(_lingering(target, 0, inside & (model.pair_state != state)) for state in ends)


def _left_otherwise(target: Target, loop: Lingering) -> bool:
    """Whether observed pairs outside the loop can leave its states towards unknown values."""
    model, inside = target.model, np.isin(target.model.pair_state, loop.states)
    others = target.observed & inside & ~np.isin(np.arange(model.n_pairs), loop.pairs)
    after = np.zeros(model.n_states + 1, dtype=bool)
    after[model.next_state[others[model.next_pair]]] = True
    after[loop.states] = False
    met = reachable(model, after[:-1], target.observed & ~inside)
    return bool((~target.observed & ~inside & met[model.pair_state]).any())
