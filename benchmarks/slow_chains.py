"""Problems whose chains are hard on linear solvers, built to any size: many components, long stretches, wide rewards.

They follow the description of five models of the Quantitative Verification Benchmark Set that took long: rewards of 1e5
beside tiny ones, long acyclic stretches, many small components, and attempts that begin again from the start.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import bellmanifold as bm
from bellmanifold.problem.builder import assemble
from bellmanifold.problem.ssp import Description

ACTIONS = 2


def _problem(
    name: str, states: int, moves: list[tuple[np.ndarray, np.ndarray, np.ndarray]], reward: np.ndarray
) -> bm.SSP:
    """A problem from moves (pairs, next states, weights); weights are divided by their sum; the goal is the last."""
    pair, landing, weight = (np.concatenate(part) for part in zip(*moves, strict=True))
    order = np.argsort(pair, kind="stable")
    pairs = states * ACTIONS
    total = np.bincount(pair, weight, pairs)
    return assemble(
        Description(
            state_names=[str(s) for s in range(states)] + ["goal"],
            action_names=[f"a{k}" for k in range(ACTIONS)],
            goals=[states],
            initial_state=[0],
            initial_prob=[1.0],
            pair_state=np.repeat(np.arange(states), ACTIONS),
            pair_action=np.tile(np.arange(ACTIONS), states),
            reward=reward,
            next_start=np.searchsorted(pair[order], np.arange(pairs + 1)),
            next_state=landing[order],
            next_prob=(weight / total[pair])[order],
            name=name,
        )
    )


def _costs(rng: np.random.Generator, states: int) -> np.ndarray:
    """One in ten up to 1e5, the others from 1e-6 to 10."""
    size = states * ACTIONS
    return -np.where(rng.random(size) < 0.1, 1e5 * rng.random(size), 10.0 ** rng.uniform(-6, 1, size))


def small_components(states: int, size: int = 4, seed: int = 0) -> bm.SSP:
    """Components of a few states one behind the other; every move may go round, or to one of the next three."""
    rng = np.random.default_rng(seed)
    states -= states % size
    pair = np.arange(states * ACTIONS)
    first = pair // ACTIONS // size * size
    around = first + (pair // ACTIONS - first + 1) % size
    within = first + rng.integers(0, size, len(pair))
    ahead = np.minimum(first + size * rng.integers(1, 4, len(pair)) + rng.integers(0, size, len(pair)), states)
    shares = (0.5 + rng.random(len(pair)), rng.random(len(pair)), 0.01 + 0.3 * rng.random(len(pair)))
    moves = [(pair, landing, share) for landing, share in zip((around, within, ahead), shares, strict=True)]
    return _problem(f"small-components-{states}", states, moves, _costs(rng, states))


def long_chain(states: int, loops: float = 0.0, seed: int = 0) -> bm.SSP:
    """Moves one to four states ahead; a share of the pairs may also go back up to five states."""
    rng = np.random.default_rng(seed)
    pair = np.arange(states * ACTIONS)
    state = pair // ACTIONS
    moves = []
    for _ in range(2):
        ahead = np.minimum(state + rng.integers(1, 5, len(pair)), states)
        moves.append((pair, ahead, 0.1 + rng.random(len(pair))))
    back = np.flatnonzero(rng.random(len(pair)) < loops)
    target = np.maximum(state[back] - rng.integers(0, 6, len(back)), 0)
    moves.append((back, target, 0.5 * rng.random(len(back))))
    return _problem(f"long-chain-{states}", states, moves, _costs(rng, states))


def _layers(rng: np.random.Generator, states: int, width: int) -> tuple[np.ndarray, list[tuple[np.ndarray, ...]]]:
    """All pairs, each with two moves into the next layer of states."""
    pair = np.arange(states * ACTIONS)
    layer = (pair // ACTIONS // width + 1) * width
    moves = []
    for _ in range(2):
        ahead = np.minimum(layer + rng.integers(0, width, len(pair)), states)
        moves.append((pair, ahead, 0.1 + rng.random(len(pair))))
    return pair, moves


def attempts(states: int, hubs: int = 1, width: int = 40, seed: int = 0) -> bm.SSP:
    """Layers; from every state an attempt may fail and begin again: acyclic except for the moves to a few states."""
    rng = np.random.default_rng(seed)
    pair, moves = _layers(rng, states, width)
    moves.append((pair, rng.integers(0, hubs, len(pair)), rng.random(len(pair)) * 2 * width / states))
    return _problem(f"attempts-{states}", states, moves, _costs(rng, states))


def setbacks(states: int, share: float = 0.02, width: int = 40, seed: int = 0) -> bm.SSP:
    """Layers; a share of the pairs may go up to twenty layers back: one component that is neither narrow nor nearly
    acyclic."""
    rng = np.random.default_rng(seed)
    pair, moves = _layers(rng, states, width)
    back = np.flatnonzero(rng.random(len(pair)) < share)
    target = np.maximum(back // ACTIONS - rng.integers(0, 20 * width, len(back)), 0)
    moves.append((back, target, rng.random(len(back))))
    return _problem(f"setbacks-{states}", states, moves, _costs(rng, states))


PROBLEMS: dict[str, Callable[[int], bm.SSP]] = {
    "small components": small_components,
    "components of two": lambda states: small_components(states, size=2),
    "components of a hundred": lambda states: small_components(states, size=100),
    "long acyclic chain": long_chain,
    "nearly acyclic chain": lambda states: long_chain(states, loops=0.02),
    "chain with many loops": lambda states: long_chain(states, loops=0.3),
    "attempts from one start": attempts,
    "attempts from twenty starts": lambda states: attempts(states, hubs=20),
    "narrow attempts": lambda states: attempts(states, width=2),
    "setbacks": setbacks,
}
"""By name, from the number of states; two pairs each."""
