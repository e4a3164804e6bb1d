"""The frontier of what an agent knows, and the shortest way to it.

`Knowledge` says which pairs have known laws and which are on the *frontier*, that is, would be informative if they were
played. At present these are the pairs that were never played (`unseen`); other kinds of uncertainty, such as the mean
of a noisy reward or a law seen only a few times, could enter as another mask, since a pair may be both known and on the
frontier.

**The way** to the frontier is a shortest path problem on the known pairs. A move by a known pair costs 1 and a state
with a pair on the frontier is a goal. Where the frontier can no longer be reached, including at the goal of the
problem, a whole episode is lost, which costs as many moves as there are states:

    m(s) = 0                                      if s has a pair on the frontier,
    m(s) = n                                      if the frontier cannot be reached from s (n: the number of states),
    m(s) = min over known pairs i of s of 1 + sum over s' of p_i(s') m(s')   elsewhere.

Every move has a positive cost, and some policy is proper wherever the frontier can be reached, so the solution is
unique. If no known move is random, breadth-first search finds it, since every way is shorter than n; otherwise policy
iteration with sweeps in between does, starting from a policy that may come nearer to the frontier in every state.
Rewards of known moves do not matter: breaking ties between equally short ways by reward would explore last where
rewards lure the agent away.

**Thompson sampling decides whether to explore, the shortest way decides where.** Before an episode a policy is drawn
from the posterior. If it cannot meet the frontier on its way from the start, it is played. Otherwise the shortest way
to the frontier is played in every state; among pairs of a state on the frontier one is chosen at random; where the
frontier cannot be reached the draw is played. The decision is made once per episode: deciding anew in every state would
mix two plans into a bad one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from bellmanifold.agents.memory import Memory
from bellmanifold.agents.planning import way_home
from bellmanifold.mdp.graph import Pairs, Policy, States, steps_towards
from bellmanifold.mdp.linear import solve_chain
from bellmanifold.problem.ssp import SSP, row_entries

SWEEPS = 50
"""Sweeps of value iteration between two policies, as in `bellmanifold.mdp.solver`."""
MOST_POLICIES = 100
STRICTLY = 1e-9
"""Relative difference in length above which a way counts as shorter."""


class Way(NamedTuple):
    """The shortest way to the frontier.

    Attributes:
        moves: expected number of known moves; 0 where a pair of the state is on the
            frontier, infinite where none can be reached.
        pair: the known pair to play; -1 where `moves` is 0 or infinite.
    """

    moves: Float[np.ndarray, "states"]
    pair: Policy


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What an agent knows about the transition laws, and which pairs are on the frontier.

    Attributes:
        model: states, pairs, starts and the laws of known pairs; other laws are not read.
        known: pairs whose laws are known, shape (pairs,).
        frontier: pairs that would be informative, shape (pairs,).
    """

    model: SSP
    known: Pairs
    frontier: Pairs

    @cached_property
    def at_frontier(self) -> States:
        """Which states have a pair on the frontier."""
        return np.asarray(np.logical_or.reduceat(self.frontier, self.model.pair_start[:-1]), dtype=np.bool_)

    @cached_property
    def way(self) -> Way:
        """The shortest way to the frontier from every state."""
        successors = np.diff(self.model.next_start)[self.known]
        return _search(self) if (successors == 1).all() else _plan(self)

    def meets_frontier(self, policy: Policy) -> bool:
        """Whether a policy may play a pair on the frontier on its way from a start; -1 stands for any unknown pair."""
        telling = (policy < 0) | self.frontier[policy] | ~self.known[policy]
        return any(telling[state] for state in states_visited(self.model, policy))

    def towards_frontier(self, otherwise: Policy, rng: np.random.Generator) -> Policy:
        """The policy that takes the shortest way to the frontier, and plays `otherwise` where none can be reached."""
        moves, pair = self.way
        chance = np.where(self.frontier, rng.random(self.model.n_pairs), -1.0)
        policy = np.where(self.at_frontier, self.model.greedy(chance), pair)
        return np.where(np.isfinite(moves), policy, otherwise)


def unseen(memory: Memory) -> Knowledge:
    """What an agent knows, with unplayed pairs as its frontier; laws not given to it are the observed frequencies."""
    return Knowledge(memory.known_model, memory.observed, ~memory.observed)


def frontier_or_home(memory: Memory, state: int, otherwise: Policy, rng: np.random.Generator) -> Policy:
    """The way to the frontier if `state` can reach it, otherwise the way home; `otherwise` where neither exists."""
    knowledge = unseen(memory)
    if np.isfinite(knowledge.way.moves[state]):
        return knowledge.towards_frontier(otherwise, rng)
    home = way_home(knowledge.model, knowledge.known, memory.mean_reward)
    return np.where(home < 0, otherwise, home)


def states_visited(model: SSP, policy: Policy) -> Iterator[int]:
    """The states that a policy may visit in an episode."""
    start, after, goal = model.next_start, model.next_state, model.n_states
    found = set(np.flatnonzero(model.initial).tolist())
    waiting = list(found)
    while waiting:
        here = waiting.pop()
        yield here
        pair = policy[here]
        for state in after[start[pair] : start[pair + 1]].tolist():
            if state not in found and state < goal:
                found.add(state)
                waiting.append(state)


def _search(knowledge: Knowledge) -> Way:
    """Breadth-first search from the states at the frontier, backwards along the moves."""
    model = knowledge.model
    pairs = np.flatnonzero(knowledge.known & ~knowledge.at_frontier[model.pair_state])
    landing = model.next_state[model.next_start[pairs]]
    root = model.n_states + 1  # all states at the frontier as one node; the one before is the goal
    source = np.where(np.append(knowledge.at_frontier, False)[landing], root, landing)
    backwards = csr_array((np.ones(len(pairs)), (source, model.pair_state[pairs])), shape=(root + 1, root + 1))
    found = dijkstra(backwards, indices=np.array([root]), unweighted=True)[0, :-1]
    moves = np.where(np.append(knowledge.at_frontier, False), 0.0, found)
    ahead = np.full(model.n_pairs, np.inf)
    ahead[pairs] = moves[landing]
    on_the_way = np.isfinite(moves[:-1]) & ~knowledge.at_frontier
    return Way(moves[:-1], np.where(on_the_way, model.greedy(-ahead), -1))


def _plan(knowledge: Knowledge) -> Way:
    """Policy iteration on the known pairs."""
    model = knowledge.model
    policy = steps_towards(model, knowledge.at_frontier, knowledge.known)
    on_the_way = policy >= 0
    value = np.where(np.append(on_the_way | knowledge.at_frontier, False), 0.0, float(model.n_states))
    part = _Part(model, np.flatnonzero(knowledge.known & on_the_way[model.pair_state]))
    ending = part.ahead(value)
    for _ in range(MOST_POLICIES if on_the_way.any() else 0):
        played = np.searchsorted(part.pairs, policy[part.states])
        value[part.states] = solve_chain(model, policy, part.states, ending[played])
        better = part.better(played, value)
        if not better.any():
            break
        ahead = part.swept(value)
        switched = part.better(played, ahead)
        chosen = part.greedy(ahead) if switched.any() else part.greedy(value)
        policy[part.states] = part.pairs[np.where(switched if switched.any() else better, chosen, played)]
    moves = np.where(on_the_way | knowledge.at_frontier, value[:-1], np.inf)
    return Way(moves, policy)


class _Part:
    """Known pairs of states on the way to the frontier, as rows of a matrix; values have one entry per state and goal.

    Attributes:
        pairs, states: their numbers, in ascending order.
        law: transition probabilities of these pairs.
    """

    def __init__(self, model: SSP, pairs: Int[np.ndarray, "known"]) -> None:
        entries, start = row_entries(model.next_start, pairs)
        shape = (len(pairs), model.n_states + 1)
        self.pairs = pairs
        self.law = csr_array((model.next_prob[entries], model.next_state[entries], start), shape)
        self.states, self._first, self._own = np.unique(model.pair_state[pairs], return_index=True, return_inverse=True)

    def ahead(self, value: Float[np.ndarray, "states_and_goal"]) -> Float[np.ndarray, "known"]:
        """The expected number of moves when each pair is played."""
        return np.asarray(1.0 + self.law @ value)

    def swept(self, value: Float[np.ndarray, "states_and_goal"]) -> Float[np.ndarray, "states_and_goal"]:
        """The values after some sweeps of value iteration; starting from a policy's value, they can only decrease."""
        value = value.copy()
        for _ in range(SWEEPS):
            value[self.states] = np.minimum.reduceat(self.ahead(value), self._first)
        return value

    def better(
        self, played: Int[np.ndarray, "own"], value: Float[np.ndarray, "states_and_goal"]
    ) -> Bool[np.ndarray, "own"]:
        """The states in which some pair is better than the one played."""
        ahead = self.ahead(value)
        now = ahead[played]
        return np.asarray(np.minimum.reduceat(ahead, self._first) < now - STRICTLY * np.maximum(now, 1.0))

    def greedy(self, value: Float[np.ndarray, "states_and_goal"]) -> Int[np.ndarray, "own"]:
        """The first of the best rows of every state."""
        ahead = self.ahead(value)
        best = np.minimum.reduceat(ahead, self._first)[self._own]
        return np.minimum.reduceat(np.where(ahead <= best, np.arange(len(ahead)), len(ahead)), self._first)
