"""Lookup of pairs and states by name, with clear errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Int

from bellmanifold.errors import BadInputError, guess, listed, quote, require_kind
from bellmanifold.ssp import SSP

MOST_LISTED = 5
"""Maximum number of names listed in a message."""


def find_pair(model: SSP, state: str, action: str, where: str) -> int:
    """The index of a pair by its names; errors start with `where`."""
    for what, name in (("state", state), ("action", action)):
        require_name(name, f"{where}: {what}")
    pair = model.pair_index.get((state, action))
    if pair is not None:
        return pair
    s = find_state(model, state, where)
    own = [model.pair_name(i)[1] for i in range(model.pair_start[s], model.pair_start[s + 1])]
    raise BadInputError(
        f"{where}: state {quote(state)} has no action {quote(action)}: {suggestion(action, own, 'it has')}"
    )


def find_policy(model: SSP, policy: Int[np.ndarray, "states"] | Mapping[str, str]) -> Int[np.ndarray, "states"]:
    """The pair that each state plays, from these pairs themselves or from a mapping of every state to an action."""
    if isinstance(policy, Mapping):
        missing = next((state for state in model.states if state not in policy), None)
        if missing is not None:
            raise BadInputError(f"the policy has no action for state {quote(missing)}: name one for each state")
        policy = np.array([find_pair(model, state, policy[state], "the policy") for state in model.states])
    first, after = model.pair_start[:-1], model.pair_start[1:]
    if len(policy) != model.n_states or not ((first <= policy) & (policy < after)).all():
        raise BadInputError(f"the policy does not name one pair of each of the {model.n_states} states")
    return policy


def find_state(model: SSP, state: str, where: str) -> int:
    """The index of a non-goal state by its name; errors start with `where`."""
    if state in model.goals:
        raise BadInputError(f"{where}: {quote(state)} is a goal: nothing is played there, remove the observation")
    if state not in model.state_index:
        raise BadInputError(f"{where}: unknown state {quote(state)}: {suggestion(state, model.states)}")
    return model.state_index[state]


def require_name(name: object, what: str) -> None:
    """Raise if a name is not a string: states of Gymnasium environments, too, are named by strings such as "0"."""
    remedy = f'names are strings, write "{name}"' if isinstance(name, int | float) else "give its name, a string"
    require_kind(name, str, what, remedy)


def find_landing(model: SSP, state: str, where: str) -> int:
    """The index of a state or goal by its name (all goals have the same); errors start with `where`."""
    require_name(state, f"{where}: next")
    if state in model.goals:
        return model.n_states
    if state not in model.state_index:
        near = guess(state, (*model.states, *model.goals))
        raise BadInputError(
            f"{where}: next state {quote(state)} is not a goal and has no pair in the problem: "
            + (f"{near} Otherwise give" if near else "correct it, or give")
            + " it a pair there, possibly an open one"
        )
    return model.state_index[state]


def suggestion(name: str, names: Iterable[str], has: str = "the problem has") -> str:
    """A similar name that may have been meant, or else a list of existing names."""
    known = list(names)
    return guess(name, known) or f"{has} {listed(known, MOST_LISTED, quote)}"
