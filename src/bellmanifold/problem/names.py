"""Lookup of pairs and states by name, with clear errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.errors import BadInputError, guess, listed, quote, require_kind
from bellmanifold.problem.observation import Given, as_observation, number_or_nan, rows_of
from bellmanifold.problem.ssp import SSP

MOST_LISTED = 5
"""Maximum number of names listed in a message."""


def find_pair(model: SSP, state: str, action: str, where: str) -> int:
    """The index of a pair by its names; errors start with `where`."""
    _require_names(state, action, where)
    pair = model.pair_index.get((state, action))
    if pair is not None:
        return pair
    s = find_state(model, state, where)
    own = [model.pair_name(i)[1] for i in range(model.pair_start[s], model.pair_start[s + 1])]
    raise BadInputError(
        f"{where}: state {quote(state)} has no action {quote(action)}: {suggestion(action, own, 'it has')}"
    )


class Named(NamedTuple):
    """Observations in the numbers of a problem, as `Dataset` holds them.

    Attributes:
        left_out: number of observations of pairs that `bellmanifold.pruned` dropped.
    """

    pair: Int[np.ndarray, "observations"]
    reward: Float[np.ndarray, "observations"]
    sd: Float[np.ndarray, "observations"]
    next: Int[np.ndarray, "observations"]
    places: tuple[str, ...]
    left_out: int


def find_observations(model: SSP, observations: Iterable[Given], places: Sequence[str]) -> Named:
    """Look up observations given by name; those of dropped pairs are left out."""
    rows, where, left_out = [], [], 0
    for t, item in enumerate(rows_of(observations)):
        place = places[t] if places else f"observations[{t}]"
        seen = as_observation(item, place)
        _require_names(seen.state, seen.action, place)
        if (seen.state, seen.action) in model.dropped:
            left_out += 1
            continue
        pair = find_pair(model, seen.state, seen.action, place)
        numbers = (number_or_nan(getattr(seen, name), f"{place}: {name}") for name in ("reward", "sd"))
        rows.append((pair, *numbers, -1 if seen.next is None else find_landing(model, seen.next, place)))
        where.append(place)
    pairs, rewards, sds, landings = np.array(rows, dtype=np.float64).reshape(-1, 4).T
    told = tuple(where) if places or left_out else ()
    return Named(pairs.astype(np.int64), rewards, sds, landings.astype(np.int64), told, left_out)


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


def _require_names(state: object, action: object, where: str) -> None:
    for what, name in (("state", state), ("action", action)):
        require_name(name, f"{where}: {what}")


def require_name(name: object, what: str) -> None:
    """Raise if a name is not a string: states of Gymnasium environments, too, are named by strings such as "0"."""
    remedy = f'names are strings, write "{name}"' if isinstance(name, int | float) else "give its name, a string"
    require_kind(name, str, what, remedy)


def find_landing(model: SSP, state: str, where: str) -> int:
    """The index of a state or goal by its name (all goals have the same); errors start with `where`."""
    require_name(state, f"{where}: next")
    if state in model.goals:
        return model.n_states
    if state in model.dropped.states:
        raise BadInputError(
            f"{where}: led to {quote(state)}, which was dropped as a dead end, so that this move may miss the goal: "
            "remove the move from the problem, or its observations"
        )
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
