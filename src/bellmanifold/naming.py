"""Pairs and states of a problem by their names, or a clear error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Int

from bellmanifold.errors import BadInputError, guess, listed, quote, require_kind
from bellmanifold.ssp import SSP

MOST_LISTED = 5
"""Names that a message lists."""


def find_pair(model: SSP, state: str, action: str, where: str) -> int:
    """The index of a pair by its names, or a clear error that starts with `where`."""
    for what, name in (("state", state), ("action", action)):
        require_name(name, f"{where}: {what}")
    pair = model.pair_index.get((state, action))
    if pair is not None:
        return pair
    s = find_state(model, state, where)
    own = [model.pair_name(i)[1] for i in range(model.pair_start[s], model.pair_start[s + 1])]
    raise BadInputError(f"{where}: state {quote(state)} has no action {quote(action)}: {meant(action, own, 'it has')}")


def find_policy(model: SSP, policy: Int[np.ndarray, "states"] | Mapping[str, str]) -> Int[np.ndarray, "states"]:
    """The pair that each state plays, given that or state -> action for all of them; or a clear error."""
    if isinstance(policy, Mapping):
        missing = next((state for state in model.states if state not in policy), None)
        if missing is not None:
            raise BadInputError(f"the policy says nothing about state {quote(missing)}: name an action of each")
        policy = np.array([find_pair(model, state, policy[state], "the policy") for state in model.states])
    first, after = model.pair_start[:-1], model.pair_start[1:]
    if len(policy) != model.n_states or not ((first <= policy) & (policy < after)).all():
        raise BadInputError(f"the policy does not name one pair of each of the {model.n_states} states")
    return policy


def find_state(model: SSP, state: str, where: str) -> int:
    """The index of a state in which something is played, or a clear error that starts with `where`."""
    if state in model.goals:
        raise BadInputError(f"{where}: {quote(state)} is a goal: nothing is played there, remove the observation")
    if state not in model.state_index:
        raise BadInputError(f"{where}: unknown state {quote(state)}: {meant(state, model.states)}")
    return model.state_index[state]


def require_name(name: object, what: str) -> None:
    """Refuse names that are no texts: states of Gymnasium environments are named by their numbers, as texts."""
    remedy = f'names are texts, write "{name}"' if isinstance(name, int | float) else "give its name, a text"
    require_kind(name, str, what, remedy)


def find_landing(model: SSP, state: str, where: str) -> int:
    """The index of a state by its name, that of the goal for each goal, or a clear error that starts with `where`."""
    require_name(state, f"{where}: next")
    if state in model.goals:
        return model.n_states
    if state not in model.state_index:
        near = guess(state, (*model.states, *model.goals))
        raise BadInputError(
            f"{where}: next state {quote(state)} is neither a goal nor has a pair in the problem: "
            + (f"{near} Else give" if near else "correct it, or give")
            + " it a pair there, possibly an open one"
        )
    return model.state_index[state]


def meant(name: str, names: Iterable[str], has: str = "the problem has") -> str:
    """The name that was meant, if one is near; else some of those there are."""
    known = list(names)
    return guess(name, known) or f"{has} {listed(known, MOST_LISTED, quote)}"
