"""Graph analysis of a problem: reachability, end components, proper policies, cycles.

Almost all of it depends only on whether probabilities are positive, not on their size, so the answers are exact.
Many functions take the set of pairs that may be played (`allowed`, all by default), because the posterior
needs the same answers for the *observed* pairs alone.

*End component*: a set of states and, for each of them, at least one pair, such that no pair leaves the set and
every state can reach every other within it. A policy can stay in an end component forever, and conversely
the states a policy visits infinitely often form one. So improper policies exist if and only if there is an end
component without the goal. Unions of overlapping ones are end components; `end_components` lists the maximal ones.

*Almost sure reachability*: a policy that reaches the goal with probability 1 from everywhere (a proper policy)
exists if and only if there is one for each state on its own; `reach_goal` finds those states by repeatedly
removing the states that cannot reach the goal at all and every pair that may lead to one of them.

*Maximal reachability* u (equation eqn:maxprob_u of the paper): the largest probability of ever reaching a set of
states. The graph determines where it is 0 or 1; policy iteration computes the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csc_array, csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from bellmanifold.mdp.components import by_depth, longest_paths, peeled, topological
from bellmanifold.mdp.linear import solve_chain
from bellmanifold.problem.ssp import SSP

Pairs = Bool[np.ndarray, "pairs"]
States = Bool[np.ndarray, "states"]
Nodes = Bool[np.ndarray, "states_and_goal"]
"""Mask of the states, with the goal last."""
Policy = Int[np.ndarray, "states"]
"""A deterministic policy: the pair each state plays."""
StateValues = Float[np.ndarray, "states"]
PairValues = Float[np.ndarray, "pairs"]

STRICTLY = 1e-12
"""A reachability probability must increase by more than this to count as better."""


@dataclass(frozen=True)
class EndComponent:
    """A maximal end component that avoids the goal.

    Attributes:
        states: its states, ascending, shape (own states,).
        pairs: every pair that cannot leave it, ascending, shape (own pairs,).
    """

    states: Int[np.ndarray, "own_states"]
    pairs: Int[np.ndarray, "own_pairs"]


def all_pairs(model: SSP) -> Pairs:
    """The mask that allows every pair."""
    return np.ones(model.n_pairs, dtype=bool)


def state_graph(model: SSP, allowed: Pairs) -> csr_array:
    """Edges from each state to the distinct successors of its allowed pairs; node S is the goal."""
    target, start = _successors(model, allowed)
    graph = _edges(target, np.append(start[model.pair_start], start[-1]))
    graph.sum_duplicates()
    return graph


def reachable(model: SSP, start: States, allowed: Pairs | None = None) -> States:
    """The states that can be reached by allowed pairs from any of the given ones, which are included."""
    n, first = model.n_states, np.flatnonzero(start).astype(np.int32)
    target, begin = _successors(model, all_pairs(model) if allowed is None else allowed)
    target = np.append(target, first)  # an extra node, n + 1, with an edge to every start
    return _search(_edges(target, np.append(begin[model.pair_start], [begin[-1], len(target)])), n + 1)[0][:n]


def end_components(model: SSP, allowed: Pairs | None = None) -> list[EndComponent]:
    """The maximal end components among the allowed pairs, in order of their first states.

    Pairs that may leave their strongly connected component are dropped, then states left without a pair and the
    pairs that may lead to those, until nothing changes.
    """
    keep = (all_pairs(model) if allowed is None else allowed) & ~_touches(model, _goals(model))
    while True:
        _, component = connected_components(state_graph(model, keep), connection="strong")
        own = np.repeat(component[model.pair_state], np.diff(model.next_start))
        leaves = keep & model.over_successors(np.logical_or, component[model.next_state] != own, True)
        if not leaves.any():
            break
        keep &= ~leaves
        cascade(model, keep, np.zeros(model.n_states, dtype=bool))
    pairs = np.flatnonzero(keep)
    labels = component[model.pair_state[pairs]]
    order = np.argsort(labels, kind="stable")
    groups = np.split(pairs[order], np.flatnonzero(np.diff(labels[order])) + 1) if len(pairs) else []
    found = [EndComponent(np.unique(model.pair_state[group]), group) for group in groups]
    return sorted(found, key=lambda c: int(c.states[0]))


def reach_goal(model: SSP, allowed: Pairs | None = None, also_goals: States | None = None) -> tuple[States, Policy]:
    """The states that reach the goal with probability 1 under some policy, and one policy that does so from all.

    The policy is -1 in all other states, and in `also_goals`, which are treated as goals.
    """
    return _reach_surely(model, _goals(model, also_goals), all_pairs(model) if allowed is None else allowed)


def leaving_policy(model: SSP, solved: Pairs, avoided: Pairs | None = None) -> Policy | None:
    """A proper policy of the problem in which pairs that are not solved lead to the goal; None if there is none.

    States with such a pair that is not to be avoided play the first of them.
    """
    ends = ~solved if avoided is None else ~(solved | avoided)
    free = np.where(ends, np.arange(model.n_pairs), model.n_pairs)
    first_free = np.minimum.reduceat(free, model.pair_start[:-1])
    at_once = first_free < model.n_pairs
    states, policy = reach_goal(model, solved, also_goals=at_once)
    return np.where(at_once, first_free, policy) if states.all() else None


def steps_towards(model: SSP, target: States, allowed: Pairs | None = None) -> Policy:
    """For each state that can reach the target by allowed pairs, a pair that may lead a step closer; else -1."""
    keep = all_pairs(model) if allowed is None else allowed
    return _reach_possibly(model, np.append(target, False), keep & ~target[model.pair_state])[1]


def steps_to_goal(model: SSP, allowed: Pairs) -> Policy:
    """For each state that can reach the goal by allowed pairs, a pair that may lead a step closer; else -1."""
    return _reach_possibly(model, _goals(model), allowed)[1]


def direct_routes(model: SSP) -> tuple[Policy, Int[np.ndarray, "states"], StateValues]:
    """A policy whose pairs may lead a move closer to the goal, the distance to it in moves, and the reward on the way.

    Of several such pairs it plays the one with the smallest mean distance after the move. Where the goal can be reached
    at all, the policy reaches it with positive probability; elsewhere it is -1, and the distance exceeds all others.
    """
    n = model.n_states
    reached, towards, _ = _search_backwards(model, _goals(model), all_pairs(model))
    towards = np.where((towards >= 0) & (towards < n), towards, n)[:-1]
    distance = _along(towards, np.where(reached[:-1], 1.0, n + 1.0))
    ahead = distance[model.next_state]
    nearer = model.over_successors(np.minimum, ahead, np.inf) < distance[model.pair_state]
    mean = model.over_successors(np.add, model.next_prob * ahead, np.inf)
    policy = np.where(reached[:-1], model.greedy(np.where(nearer, -mean, -np.inf)), -1)
    pays = _along(towards, np.where(policy < 0, 0.0, model.reward[policy]))
    return policy, distance[:n].astype(np.int64), pays[:n]


def _along(towards: Int[np.ndarray, "nodes"], each: StateValues) -> Float[np.ndarray, "nodes"]:
    """The sum of a quantity over each node and its successors on the path to the goal, the last node."""
    total = np.append(each, 0.0)
    while (towards < len(each)).any():  # each round doubles the length of the paths summed
        total, towards = total + total[towards], towards[towards]
    return total


def _goals(model: SSP, also: States | None = None) -> Nodes:
    """Mask of the goal and of states that are treated as goals."""
    return np.append(np.zeros(model.n_states, dtype=bool) if also is None else also, True)


def _reach_surely(model: SSP, target: Nodes, allowed: Pairs) -> tuple[States, Policy]:
    """`reach_goal` for any target set."""
    n = model.n_states
    keep = allowed & ~target[model.pair_state]
    while True:
        reached, policy = _reach_possibly(model, target, keep)
        lost = ~reached
        risky = keep & _touches(model, lost)
        if not risky.any():
            return reached[:n], policy
        keep &= ~risky
        cascade(model, keep, (lost | target)[:n])


def _reach_possibly(model: SSP, target: Nodes, keep: Pairs) -> tuple[Nodes, Policy]:
    """Nodes that reach the target with positive probability by kept pairs, and a pair of each that leads closer."""
    reached, nearer, (aim, start) = _search_backwards(model, target, keep)
    step = aim == np.repeat(nearer[: model.n_states], np.diff(start))
    pair = np.repeat(np.flatnonzero(keep), np.diff(model.next_start)[keep])[step]
    policy = np.full(model.n_states, model.n_pairs)
    np.minimum.at(policy, model.pair_state[pair], pair)
    return reached, np.where(policy < model.n_pairs, policy, -1)


def _search_backwards(
    model: SSP, target: Nodes, keep: Pairs
) -> tuple[Nodes, Int[np.ndarray, "nodes"], tuple[Int[np.ndarray, "edges"], Int[np.ndarray, "states_plus_1"]]]:
    """Nodes that reach the target by kept pairs, the next node on a shortest path there, and all moves by state.

    The target is merged into a single node, after the goal.
    """
    aim, start = _successors(model, keep)
    root, start = model.n_states + 1, start[model.pair_start]
    aim[target[aim]] = root
    reached, nearer = _search(_edges(aim, np.append(start, [start[-1]] * 2)).T.tocsr(), root)
    return reached[:-1] | target, nearer, (aim, start)


def may_end(model: SSP) -> Pairs:
    """Mask of pairs that may lead directly to the goal. In a discounted problem all of them do."""
    if not len(model.next_state):
        return np.zeros(model.n_pairs, dtype=bool)
    last = model.next_state[model.next_start[1:] - 1]  # the goal comes last
    return (last == model.n_states) & ~model.open_law


def _pairs_of(model: SSP, policy: Policy) -> Pairs:
    """Mask of the pairs that a policy plays."""
    played = np.zeros(model.n_pairs, dtype=bool)
    played[policy] = True
    return played


def is_proper(model: SSP, policy: Policy) -> bool:
    """Whether the policy reaches the goal with probability 1 from every state."""
    return bool(reaches_goal(model, policy).all())


def reaches_goal(model: SSP, policy: Policy, ends: States | None = None) -> States:
    """States from which the policy's chain can reach the goal, or `ends`. (The policy is proper if all states can.)"""
    if ends is None and may_end(model)[policy].all():
        return np.ones(model.n_states, dtype=bool)
    return _search_backwards(model, _goals(model, ends), _pairs_of(model, policy))[0][:-1]


def improper_policy(model: SSP, component: EndComponent) -> Policy:
    """A policy that never leaves the component once it is in it, and plays the first pair elsewhere."""
    policy = model.pair_start[:-1].copy()
    states, first = np.unique(model.pair_state[component.pairs], return_index=True)
    policy[states] = component.pairs[first]
    return policy


def recurrent_classes(model: SSP, policy: Policy) -> list[Int[np.ndarray, "_"]]:
    """The recurrent classes of a policy's chain, without the goal."""
    graph = state_graph(model, _pairs_of(model, policy))
    count, component = connected_components(graph, connection="strong")
    edges = graph.tocoo()
    is_open = np.zeros(count, dtype=bool)
    crossing = component[edges.row] != component[edges.col]
    is_open[component[edges.row[crossing]]] = True
    order = np.flatnonzero(~is_open[component[:-1]])
    labels = component[order]
    return [order[labels == c] for c in np.unique(labels)]


def levels(model: SSP, allowed: Pairs | None = None, may_stay: bool = False) -> Int[np.ndarray, "states"] | None:
    """The largest number of moves from each state by allowed pairs; None if these have a cycle.

    A state of level k moves only to states of lower levels, so one sweep by increasing level solves the problem.
    States without an allowed pair have level 0. With `may_stay` self-loops do not count as cycles.
    """
    keep = all_pairs(model) if allowed is None else allowed
    graph = state_graph(model, keep)[:-1, :-1].tocsr()
    if may_stay:
        graph.setdiag(0.0)
        graph.eliminate_zeros()
    depth = longest_paths(graph)
    if depth is None:
        return None
    moves = np.zeros(model.n_states, dtype=np.int64)
    moves[model.pair_state[keep]] = 1
    return depth + moves


def has_cycle(model: SSP, allowed: Pairs) -> bool:
    """Whether the allowed pairs have a cycle, self-loops included."""
    graph = state_graph(model, allowed)
    count, _ = connected_components(graph, connection="strong")
    return bool(count <= model.n_states or graph.diagonal().any())


def components(model: SSP) -> Int[np.ndarray, "states"]:
    """The strongly connected component of each state: no move leads to a component with a larger number."""
    graph = state_graph(model, all_pairs(model))  # SciPy's search does not terminate on duplicate edges
    return topological(connected_components(graph, connection="strong")[1], graph)[: model.n_states]


def strong_components(model: SSP) -> Int[np.ndarray, "states"]:
    """The strongly connected component of each state; no move leads to a larger number.

    Numbers increase with the length of the longest path out of a component, counted in components.
    """
    graph = state_graph(model, all_pairs(model))[:-1, :-1].tocsr()
    return by_depth(connected_components(graph, connection="strong")[1], graph)


def reach_probability(model: SSP, target: States, allowed: Pairs | None = None) -> PairValues:
    """u: the largest probability, over all policies, of being in the target at some time >= 1 after each pair.

    The graph determines where it is 0 or 1; elsewhere, policy iteration starts from a policy that reaches the
    target with positive probability from wherever possible, and switches only to strictly better pairs.
    """
    keep = all_pairs(model) if allowed is None else allowed
    sure, _ = _reach_surely(model, np.append(target, False), keep)
    possible, policy = _reach_possibly(model, np.append(sure, False), keep)
    states, value = np.flatnonzero(possible[:-1] & ~sure), sure.astype(np.float64)
    ahead = at_once = model.expected_next(value)
    while len(states):
        value[states] = solve_chain(model, policy, states, at_once[policy[states]])
        ahead = model.expected_next(value)
        best = model.greedy(np.where(keep, ahead, -np.inf))[states]
        switch = ahead[best] > value[states] + STRICTLY
        if not switch.any():
            break
        policy[states[switch]] = best[switch]
    certain = model.over_successors(np.logical_and, np.append(sure, False)[model.next_state], False)
    return np.where(certain, 1.0, np.minimum(ahead, 1.0))


def _successors(model: SSP, keep: Pairs) -> tuple[Int[np.ndarray, "edges"], Int[np.ndarray, "pairs_plus_1"]]:
    """The successors of kept pairs as compressed rows of 32-bit integers, with empty rows for other pairs."""
    length = np.diff(model.next_start)
    entries = np.repeat(keep, length)
    length[~keep] = 0
    return model.next_state.astype(np.int32)[entries], np.append(0, np.cumsum(length)).astype(np.int32)


def _edges(target: Int[np.ndarray, "edges"], start: Int[np.ndarray, "nodes_plus_1"]) -> csr_array:
    """The graph with the given compressed rows of edges, which may have duplicates."""
    nodes = len(start) - 1
    return csr_array((np.ones(len(target)), target, start), shape=(nodes, nodes))


def _search(graph: csr_array, root: int) -> tuple[Bool[np.ndarray, "nodes"], Int[np.ndarray, "nodes"]]:
    """Breadth-first search: a mask of the nodes that are reached, and the predecessor of each node."""
    order, parent = breadth_first_order(graph, root)
    met = np.zeros(graph.shape[0], dtype=bool)
    met[order] = True
    return met, parent.astype(np.int64)


def _touches(model: SSP, states: Nodes) -> Pairs:
    """Mask of pairs that may lead to one of these states (the goal is last), which includes pairs with open laws."""
    return np.asarray(model.over_successors(np.logical_or, states[model.next_state], True), dtype=np.bool_)


def cascade(model: SSP, keep: Pairs, ignored: States) -> None:
    """Drop, in place, pairs that may lead to a state without a kept pair, repeatedly, except for `ignored` states.

    A pair is dropped with the first of its successors, a state with the last of its pairs: both are nodes of a graph.
    """
    left = np.bincount(model.pair_state[keep], minlength=model.n_states)
    if not (((left == 0) & ~ignored).any() and keep.any()):
        return
    target, start = _successors(model, keep)
    nodes, law = model.n_states + 1, (np.ones(len(target), dtype=np.int8), target, start)
    into = csc_array(law, shape=(nodes, model.n_pairs)).tocsr()  # the kept pairs that may lead to each state
    before = np.append(into.indices + nodes, model.pair_state)
    begin = np.append(into.indptr, into.indptr[-1] + np.arange(1, model.n_pairs + 1))
    never = len(before) + 1
    waiting = np.concatenate([np.where(ignored, never, left), [never], np.where(keep, 1, never)])
    keep[peeled(begin, before, waiting)[nodes:] >= 0] = False
