"""Random problems for tests: small, cyclic, stochastic, with ties, self-loops and single-action states; their data."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from bellmanifold.problem.builder import assemble
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.ssp import SSP, Description


def random_problem(
    rng: np.random.Generator,
    states: int = 5,
    actions: int = 3,
    successors: int = 3,
    reward_kind: str = "any",
    goal_share: float = 0.15,
) -> SSP:
    """A random problem; `reward_kind` is "any" (normal), "costs" (negative) or "integers" (-2 ... 1, many ties)."""
    pair_state, pair_action, next_start, next_state, next_prob = [], [], [0], [], []
    for s in range(states):
        for a in range(rng.integers(1, actions + 1)):
            pair_state.append(s)
            pair_action.append(a)
            k = rng.integers(1, successors + 1)
            where = np.where(rng.random(k) < goal_share, states, rng.integers(0, states, k))
            weights = rng.integers(1, 5, k)
            next_state += where.tolist()
            next_prob += (weights / weights.sum()).tolist()
            next_start.append(len(next_state))
    n = len(pair_state)
    rewards = {
        "any": lambda: rng.normal(size=n) - 0.5,
        "costs": lambda: -rng.random(n) - 0.01,
        "integers": lambda: rng.integers(-2, 2, n).astype(float),
    }
    initial = rng.dirichlet(np.ones(states))
    return assemble(
        Description(
            state_names=[f"s{k}" for k in range(states)] + ["goal"],
            action_names=[f"a{k}" for k in range(actions)],
            goals=[states],
            initial_state=np.arange(states),
            initial_prob=initial,
            pair_state=pair_state,
            pair_action=pair_action,
            reward=rewards[reward_kind](),
            next_start=next_start,
            next_state=next_state,
            next_prob=next_prob,
            name="random",
        )
    )


def seen(model: SSP, mask: ArrayLike) -> Dataset:
    """Some pairs, with the rewards that the problem states."""
    pairs = np.flatnonzero(mask)
    return Dataset(model, pairs, model.reward[pairs])


def data_file(directory: Path, *observations: tuple[object, ...]) -> str:
    """Observations (state, action, reward) as a data file, whose path is returned."""
    rows = [dict(zip(("state", "action", "reward"), row, strict=False)) for row in observations]
    path = directory / "data.json"
    path.write_text(json.dumps({"format": "bellmanifold.data/1", "observations": rows}))
    return str(path)


def all_policies(model: SSP) -> Iterator[np.ndarray]:
    """Every deterministic policy, as the pair each state plays."""
    own = [range(model.pair_start[s], model.pair_start[s + 1]) for s in range(model.n_states)]
    for choice in itertools.product(*own):
        yield np.array(choice)


def chain(model: SSP, policy: np.ndarray) -> np.ndarray:
    """A policy's transition matrix among states and the goal, dense and absorbing at the goal."""
    n = model.n_states
    matrix = np.zeros((n + 1, n + 1))
    matrix[n, n] = 1.0
    for s, i in enumerate(policy):
        for e in range(model.next_start[i], model.next_start[i + 1]):
            matrix[s, model.next_state[e]] += model.next_prob[e]
    return matrix


def closure(matrix: np.ndarray) -> np.ndarray:
    """Which state reaches which, in any number of steps (0 included)."""
    reach = (matrix > 0) | np.eye(len(matrix), dtype=bool)
    for _ in range(len(matrix)):
        reach = reach | (reach.astype(int) @ reach.astype(int) > 0)
    return reach


def recurrent(model: SSP, policy: np.ndarray) -> np.ndarray:
    """Non-goal states that are recurrent under a policy: whoever they reach reaches them."""
    reach = closure(chain(model, policy))
    return np.array([all(reach[t, s] for t in np.flatnonzero(reach[s])) for s in range(model.n_states)])


def mean_reward_in(model: SSP, policy: np.ndarray, members: np.ndarray) -> float:
    """What a policy earns per move in a closed class of states, from its stationary law."""
    matrix = chain(model, policy)[np.ix_(members, members)]
    system = np.vstack([matrix.T - np.eye(len(members)), np.ones(len(members))])
    law = np.linalg.lstsq(system, np.append(np.zeros(len(members)), 1.0), rcond=None)[0]
    return float(law @ model.reward[policy[members]])
