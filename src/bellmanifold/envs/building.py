"""Shared parts of the built-in problems: moves by name, action order, and parameter checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bellmanifold.errors import require, require_count, require_kind
from bellmanifold.mdp.pruning import without_loops
from bellmanifold.problem.builder import assemble
from bellmanifold.problem.ssp import SSP, Description

GOAL = "goal"


@dataclass(frozen=True)
class Move:
    """The outcome of one pair: its reward, the probabilities of its successors, and the sd of the reward's noise."""

    reward: float
    successors: Mapping[str, float]
    reward_sd: float = 0.0


def from_moves(
    name: str,
    moves: Mapping[tuple[str, str], Move],
    start: str,
    goal: str = GOAL,
    action_seed: int | None = None,
    prune: bool = False,
) -> SSP:
    """Build a problem with a single start state from a table (state, action) -> `Move`.

    With `prune` a successor that is not the goal and has no move is dropped, with the moves that may lead there.

    >>> from_moves("one step", {("home", "walk"): Move(-1.0, {"goal": 1.0})}, start="home")
    SSP("one step", 1 state, 1 pair)
    """
    require_kind(moves, Mapping, "moves", "give {(state, action): Move(reward, {state: probability})}, after a name")
    for key, move in moves.items():
        of_pair = isinstance(key, tuple) and len(key) == 2
        require(of_pair, f"moves: {key!r} is not a pair: name a state and an action, (state, action)")
        require_kind(move, Move, f"moves[{key!r}]", "give Move(reward, {state: probability})")
        require_kind(move.successors, Mapping, f"moves[{key!r}]: successors", "give {state: probability}")
        for number in (move.reward, move.reward_sd, *move.successors.values()):
            require_kind(number, (int, float, np.number), f"moves[{key!r}]: {number!r}", "give a number")
    require(any(state == start for state, _ in moves), f"start is {start!r}: name a state that has a move")
    names: dict[str, int] = {}
    actions: dict[str, int] = {}
    pair_state = [names.setdefault(state, len(names)) for state, _ in moves]
    pair_action = [actions.setdefault(action, len(actions)) for _, action in moves]
    next_state = [names.setdefault(s, len(names)) for move in moves.values() for s in move.successors]
    model = assemble(
        Description(
            state_names=list(names) if goal in names else [*names, goal],
            action_names=list(actions),
            goals=[names.get(goal, len(names))],
            initial_state=[names[start]],
            initial_prob=[1.0],
            pair_state=pair_state,
            pair_action=pair_action,
            reward=[float(move.reward) for move in moves.values()],
            next_start=np.cumsum([0, *(len(move.successors) for move in moves.values())]),
            next_state=next_state,
            next_prob=[float(p) for move in moves.values() for p in move.successors.values()],
            reward_sd=[float(move.reward_sd) for move in moves.values()],
            name=name,
        ),
        without_loops if prune else None,
    )
    return model if action_seed is None else with_action_order(model, action_seed)


def with_action_order(model: SSP, seed: int) -> SSP:
    """The same problem with the actions of every state in random order, so that ties favour no action."""
    require_count(action_seed=seed)
    require(seed >= 0, f"action_seed is {seed}: give a whole number that is not negative")
    return model.subproblem(np.lexsort((np.random.default_rng(seed).random(model.n_pairs), model.pair_state)))
