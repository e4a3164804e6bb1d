"""Solving the problems that agents sample, which are small, leaky and new in every episode; and the way home.

A sampled problem pays reward_i for pair i and moves to state s with probability law[i, s]. The rows of `law` sum to
*less* than 1: the problem may end after any pair. So every policy is proper, the Bellman equations have a unique
solution whatever the rewards are, and policy iteration finds it; Assumption 2, which a sampled problem may violate, is
not needed. Where the law is sparse, a few sweeps of value iteration before each switch propagate values over several
states at a fraction of the cost of a linear system: they start from a policy's value, so values only increase, and the
greedy policy at their end is better still.

The best way home by known pairs, in contrast, is an ordinary problem on the states from which known pairs reach the
goal with probability 1. From other states there may be a way that reaches it with positive probability.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array, eye_array
from scipy.sparse.linalg import splu

from bellmanifold.errors import BellmanifoldError
from bellmanifold.mdp.graph import Pairs, Policy, is_proper, reach_goal, steps_to_goal
from bellmanifold.mdp.solver import solve
from bellmanifold.problem.ssp import SSP

Law: TypeAlias = csr_array | np.ndarray
"""Transition probabilities, one row per pair; sparse or dense."""

DENSE = 60
"""Sparse problems with at most this many states are solved densely, which is faster."""
MAX_POLICIES = 1000
SWEEPS = 20


def solve_leaky(model: SSP, reward: Float[np.ndarray, "pairs"], law: Law, policy: Policy) -> Float[np.ndarray, "pairs"]:
    """Optimal action values of a sampled problem, by policy iteration from a given policy.

    Of `model` only the assignment of pairs to states is used.
    """
    for _ in range(MAX_POLICIES):
        value = _policy_value(reward[policy], law[policy])
        q = np.asarray(reward + law @ value)
        best = model.greedy(q)
        noise = 64 * np.finfo(float).eps * (np.abs(value).max() + np.abs(reward).max())
        better = q[best] > q[policy] + noise
        if not better.any():
            break
        ahead = q
        for _ in range(SWEEPS if isinstance(law, csr_array) else 0):
            ahead = np.asarray(reward + law @ model.best(ahead))
        policy = model.greedy(ahead)
    return q


def _policy_value(reward: Float[np.ndarray, "states"], law: Law) -> Float[np.ndarray, "states"]:
    """Solve (I - law) value = reward."""
    if isinstance(law, csr_array):
        if len(reward) > DENSE:
            return np.asarray(splu((eye_array(len(reward)) - law).tocsc()).solve(reward))
        law = law.toarray()
    return np.linalg.solve(np.eye(len(reward)) - law, reward)


def way_home(model: SSP, known: Pairs, reward: Float[np.ndarray, "pairs"]) -> Policy:
    """The pair to play in each state on the best way to the goal by known pairs; -1 where they do not lead there.

    States that cannot reach the goal with probability 1 play a pair that may bring them nearer; so do all states if
    known loops pay, or cost so little that no optimal policy can be determined. Nothing is read about unknown pairs.
    """
    policy = steps_to_goal(model, known)
    sure, proper = reach_goal(model, known)
    policy = np.where(sure, proper, policy)
    safe = np.logical_and.reduceat(np.append(sure, True)[model.next_state], model.next_start[:-1])
    pairs = np.flatnonzero(known & sure[model.pair_state] & safe)
    if len(pairs):
        keep = np.zeros(model.n_pairs, dtype=bool)
        keep[pairs] = True
        part = replace(model, reward=np.where(keep, reward, 0.0)).subproblem(keep)
        try:
            best = part.greedy(solve(part).q)
        except BellmanifoldError:
            return policy
        if is_proper(part, best):
            policy[sure] = pairs[best]
    return policy
