"""Problems from matrices: P and R as pymdptoolbox takes them, Q and R as QuantEcon does.

With S states, A actions and L pairs of a state and an action, transitions are

- one matrix per action (pymdptoolbox): an array (A, S, S), or a list of A matrices, dense or sparse: P[a][s, s'];
- one row per state and action (QuantEcon's product form): an array (S, A, S): Q[s, a, s'];
- one row per pair (QuantEcon's other form): a matrix (L, S), dense or sparse, and the state and action of each row;
- a `quantecon.markov.DiscreteDP`, which holds one of the last two with its rewards and its discount.

Rewards are those of states (S,), of states and actions (S, A), of pairs (L,), or have the shape of the transitions. The
last depend on the next state, and r(s, a) = sum over s' of P[a][s, s'] R[a][s, s'] takes their place: values and
optimal policies are the same. A reward of minus infinity says that a state does not have this action.

These problems have no goal of their own. States that are named as goals are absorbing and pay nothing, whatever their
rows say. A discount g < 1 is turned into a fictitious goal, where every move ends with probability 1 - g: then V of the
problem is the discounted V,

    V(s) = max over a of r(s, a) + g sum over s' of P[a][s, s'] V(s') + (1 - g) 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array, csr_matrix, issparse, vstack

from bellmanifold._util.limits import SIZE
from bellmanifold.errors import (
    BadInputError,
    count_of,
    kind_of_value,
    quote,
    require,
    require_kind,
    require_numbers,
)
from bellmanifold.io.files import locate_errors
from bellmanifold.io.matrices import Arrays, from_record
from bellmanifold.problem.builder import PROBABILITY_TOLERANCE, assemble
from bellmanifold.problem.ssp import SSP, Description

First = Literal["action", "state"]
GOAL = "goal"
"""Name of the fictitious goal, where no state has it."""
AS_TRANSITIONS = "one matrix (S, S) for each action, an array (S, A, S), or rows (L, S) with s_indices and a_indices"


@dataclass(frozen=True, eq=False)
class _Rows:
    """Transitions, one row per pair in any order, and rewards.

    Attributes:
        state, action: the pairs, by number.
        law: their transitions, shape (pairs, states).
        reward: one for each pair, or a matrix like `law`, dense or sparse, if they depend on the next state.
        actions: number of actions.
    """

    state: Int[np.ndarray, "pairs"]
    action: Int[np.ndarray, "pairs"]
    law: csr_array
    reward: Any
    actions: int

    def without(self, is_goal: Bool[np.ndarray, "states"]) -> _Rows:
        """The pairs of states that are no goals, without those whose reward is -inf."""
        own = ~is_goal[self.state]
        if self.reward.ndim == 1:
            own &= self.reward != -np.inf
        return _Rows(self.state[own], self.action[own], self.law[own], self.reward[own], self.actions)


def from_arrays(
    transitions: Any,
    rewards: Any = None,
    goals: Any = None,
    discount: float | None = None,
    *,
    s_indices: Any = None,
    a_indices: Any = None,
    states: Sequence[str] | None = None,
    actions: Sequence[str] | None = None,
    initial: Any = None,
    first: First | None = None,
    name: str = "",
) -> SSP:
    """The problem of transition matrices and rewards, as pymdptoolbox and QuantEcon take them.

    Args:
        transitions: `P[a][s, s']`, an array (A, S, S) or a list of A matrices, dense or sparse; `Q[s, a, s']`, an
            array (S, A, S); or rows (L, S) with `s_indices` and `a_indices`. Or a `quantecon.markov.DiscreteDP`, which
            holds rewards and discount, too, or what `model.to_arrays()` returns, which holds everything.
        rewards: of states (S,), of states and actions (S, A), of pairs (L,), or in the shape of the transitions where
            they depend on the next state (they are averaged). -inf says that the state does not have this action.
        goals: states where an episode ends, by index or name, or as a mask; their rows are ignored.
        discount: every move ends the episode with probability 1 - discount; by default that of the object, if any.
        s_indices: the state of each row.
        a_indices: the action of each row.
        states: names of the states; by default "0", "1", ...
        actions: names of the actions; by default "0", "1", ...
        initial: where an episode starts: a state, by index or name, the probability of each state, shape (S,), or
            {state: probability}; by default every state but the goals is equally probable.
        first: what the first of three axes counts, "action" or "state". By default the shape tells; where A = S it
            counts actions, unless rewards are -inf, as only QuantEcon has them.
        name: a label for display.

    Raises:
        BadInputError: naming the state, the action, what is wrong and the remedy.

    >>> stay, go = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]
    >>> from_arrays([stay, go], [[-1.0, -1.0], [0.0, 0.0]], goals=[1], actions=["stay", "go"])
    SSP("", 1 state, 2 pairs)
    """
    with locate_errors("from_arrays"):
        if isinstance(transitions, Arrays):
            others = (rewards, goals, discount, s_indices, a_indices, states, actions, initial, first, name or None)
            require(all(one is None for one in others), "such a record holds everything: give nothing else")
            return from_record(transitions)
        if hasattr(transitions, "beta") and hasattr(transitions, "Q"):
            given = transitions
            own = rewards is None and s_indices is None and a_indices is None
            require(own, "a DiscreteDP holds its rewards and indices: leave them out")
            discount = float(given.beta) if discount is None else discount
            transitions, rewards, s_indices, a_indices = given.Q, given.R, given.s_indices, given.a_indices
            first = "state"
        require(rewards is not None, "rewards are missing: give them second")
        require_numbers(discount=discount)
        if s_indices is None and a_indices is None:
            rows = _by_action_or_state(transitions, rewards, first)
        else:
            rows = _by_pair(transitions, rewards, s_indices, a_indices)
        return _problem(rows, goals, discount, states, actions, initial, name)


def _problem(
    given: _Rows, goals: Any, discount: float | None, states: Any, actions: Any, initial: Any, name: str
) -> SSP:
    """The problem of pairs; -inf rewards and rows of goals are left out."""
    state_names = _names("states", states, given.law.shape[1])
    action_names = _names("actions", actions, given.actions)
    numbers = {name: k for k, name in enumerate(state_names)}
    require(len(numbers) == len(state_names), "states: a name occurs twice: make them distinct")
    is_goal = np.zeros(len(numbers), dtype=bool)
    is_goal[_goals(goals, numbers)] = True
    if not is_goal.any():
        remedy = "name the states where an episode ends, as goals=[3], or give the discount, as discount=0.95"
        require(discount is not None and discount != 1.0, f"there is neither a goal nor a discount below 1: {remedy}")
    rows = given.without(is_goal)
    idle = np.flatnonzero(~is_goal & (np.bincount(rows.state, minlength=len(numbers)) == 0))
    if len(idle):
        raise BadInputError(
            f"state {quote(state_names[idle[0]])} has no action with a reward above -inf: give it one, or list it "
            "under goals"
        )
    _check_law(rows, state_names, action_names)
    start = _initial(initial, numbers, is_goal)
    fictitious = () if is_goal.any() else (_unlike(GOAL, numbers),)
    model = assemble(
        Description(
            state_names=(*state_names, *fictitious),
            action_names=action_names,
            goals=[len(numbers)] if fictitious else np.flatnonzero(is_goal),
            initial_state=np.flatnonzero(start),
            initial_prob=start[start != 0],
            pair_state=rows.state,
            pair_action=rows.action,
            reward=_expected(rows, state_names, action_names),
            next_start=rows.law.indptr,
            next_state=rows.law.indices,
            next_prob=rows.law.data,
            name=name,
        )
    )
    return model if discount is None else model.discounted(discount)


def _check_law(rows: _Rows, states: Sequence[str], actions: Sequence[str]) -> None:
    """Raise for the first row that is no distribution."""
    data, starts = rows.law.data, rows.law.indptr
    wrong = np.flatnonzero(~((data >= 0) & (data < np.inf)))
    if len(wrong):
        entry = int(wrong[0])
        row, after = int(np.searchsorted(starts, entry, side="right")) - 1, states[rows.law.indices[entry]]
        raise BadInputError(
            f"{_pair(rows, row, states, actions)}: probability of state {quote(after)} is {data[entry]:.12g}: give a "
            "number from 0 to 1"
        )
    total = np.asarray(rows.law.sum(axis=1)).ravel()
    wrong = np.flatnonzero(np.abs(total - 1.0) > PROBABILITY_TOLERANCE)
    if len(wrong):
        row = int(wrong[0])
        raise BadInputError(
            f"{_pair(rows, row, states, actions)}: probabilities sum to {total[row]:.12g}: make this row of the "
            "transitions sum to 1"
        )


def _expected(rows: _Rows, states: Sequence[str], actions: Sequence[str]) -> Float[np.ndarray, "pairs"]:
    """The reward of each pair; the mean over next states if rewards depend on them."""
    reward, law = rows.reward, rows.law
    if reward.ndim == 1:
        wrong = np.flatnonzero(~np.isfinite(reward))
        if len(wrong):
            where = _pair(rows, int(wrong[0]), states, actions)
            raise BadInputError(f"{where}: reward is {reward[wrong[0]]}: give a finite number")
        return np.asarray(reward, dtype=np.float64)
    row = np.repeat(np.arange(law.shape[0]), np.diff(law.indptr))
    table = csr_matrix(reward) if _is_sparse(reward) else reward
    paid = np.asarray(table[row, law.indices], dtype=np.float64).ravel()
    wrong = np.flatnonzero(~np.isfinite(paid))
    if len(wrong):
        k = int(wrong[0])
        where, after = _pair(rows, int(row[k]), states, actions), quote(states[law.indices[k]])
        raise BadInputError(f"{where}: reward of the move to state {after} is {paid[k]}: give a finite number")
    return np.bincount(row, law.data * paid, law.shape[0])


def _pair(rows: _Rows, row: int, states: Sequence[str], actions: Sequence[str]) -> str:
    """The state and the action of a row, for a message."""
    return f"state {quote(states[rows.state[row]])}, action {quote(actions[rows.action[row]])}"


def _by_pair(transitions: Any, rewards: Any, s_indices: Any, a_indices: Any) -> _Rows:
    """QuantEcon's form with a row per pair."""
    law = _matrix(transitions, "transitions")
    pairs, states = law.shape
    indices = []
    for what, given in (("s_indices", s_indices), ("a_indices", a_indices)):
        remedy = "give the state and the action of each row of the transitions"
        require(given is not None, f"{what} is missing: {remedy}")
        index = np.asarray(given)
        if index.shape != (pairs,) or index.dtype.kind not in "iu":
            raise BadInputError(f"{what}: must be a list of {count_of(pairs, 'whole number')}: {remedy}")
        indices.append(index.astype(np.int64))
    state, action = indices
    for what, index, below in (("s_indices", state, states), ("a_indices", action, SIZE.value)):
        wrong = np.flatnonzero((index < 0) | (index >= below))
        if len(wrong):
            raise BadInputError(f"{what}[{wrong[0]}] is {index[wrong[0]]}: give a whole number from 0 to {below - 1}")
    reward = rewards if _is_sparse(rewards) else _table(rewards, "rewards")
    if reward.shape not in ((pairs,), law.shape):
        raise BadInputError(f"rewards have shape {reward.shape}: give one for each row of the transitions, ({pairs},)")
    return _Rows(state, action, law, reward, int(action.max()) + 1)


def _by_action_or_state(transitions: Any, rewards: Any, first: First | None) -> _Rows:
    """The forms in which every state has every action: pymdptoolbox's and QuantEcon's product form."""
    if _is_sparse(transitions) or np.ndim(_unless_listed(transitions)) == 2:
        raise BadInputError(f"transitions are a single matrix: give {AS_TRANSITIONS}")
    if _is_list_of_matrices(transitions):
        if first == "state":
            raise BadInputError('transitions are a list of matrices, one per action: leave first="state" out')
        matrices = [_matrix(one, f"transitions of action {a}") for a, one in enumerate(transitions)]
        for a, one in enumerate(matrices):
            n = matrices[0].shape[0]
            if one.shape != (n, n):
                raise BadInputError(f"transitions of action {a} have shape {one.shape}: make them all ({n}, {n})")
        return _with_rewards(csr_array(vstack(matrices, format="csr")), n, len(matrices), rewards, by_action=True)
    array = _table(transitions, "transitions")
    if array.ndim != 3 or 0 in array.shape:
        raise BadInputError(f"transitions have shape {array.shape}: give {AS_TRANSITIONS}")
    fits = {"action": array.shape[1] == array.shape[2], "state": array.shape[0] == array.shape[2]}
    if first is not None and first not in fits:
        raise BadInputError(f'first is {kind_of_value(first)}: give "action" or "state"')
    if first is None:
        lacking = fits["state"] and not _is_list_of_matrices(rewards) and np.isneginf(_table(rewards, "rewards")).any()
        first = "state" if lacking or not fits["action"] else "action"
    if not fits[first]:
        wanted = "(A, S, S)" if first == "action" else "(S, A, S)"
        raise BadInputError(f"transitions have shape {array.shape}, not {wanted}: give {AS_TRANSITIONS}")
    by_action, n = first == "action", array.shape[2]
    law = _matrix(array.reshape(-1, n), "transitions")
    return _with_rewards(law, n, array.shape[0 if by_action else 1], rewards, by_action)


def _with_rewards(law: csr_array, n: int, m: int, rewards: Any, by_action: bool) -> _Rows:
    """Pairs of n states and m actions, ordered by action or by state, and their rewards."""
    pair = np.arange(n * m)
    state, action = (pair % n, pair // n) if by_action else (pair // m, pair % m)
    if _is_list_of_matrices(rewards) and len(rewards) == m and by_action:
        tables = [_matrix(one, f"rewards of action {a}") for a, one in enumerate(rewards)]
        for a, one in enumerate(tables):
            require(one.shape == (n, n), f"rewards of action {a} have shape {one.shape}: make it ({n}, {n})")
        return _Rows(state, action, law, csr_array(vstack(tables, format="csr")), m)
    table = _table(rewards, "rewards")
    whole = (m, n, n) if by_action else (n, m, n)
    if table.shape == whole:
        reward = table.reshape(-1, n)
    elif table.shape == (n, m):
        reward = table[state, action]
    elif table.shape == (n,):
        reward = table[state]
    else:
        raise BadInputError(
            f"rewards have shape {table.shape}, with {count_of(n, 'state')} and {count_of(m, 'action')}: "
            f"give them as ({n},), ({n}, {m}) or {whole}"
        )
    return _Rows(state, action, law, reward, m)


def _matrix(given: Any, what: str) -> csr_array:
    """A matrix of numbers in compressed rows, without zeros."""
    plain = given if _is_sparse(given) else _table(given, what)
    if plain.ndim != 2 or 0 in plain.shape or plain.dtype.kind not in "iufb":
        raise BadInputError(f"{what}: must be a matrix of numbers, its shape is {plain.shape}: give {AS_TRANSITIONS}")
    law = csr_array(plain, dtype=np.float64)
    law.sum_duplicates()
    law.eliminate_zeros()
    return law


def _table(given: Any, what: str) -> np.ndarray:
    """An array of numbers."""
    if _is_sparse(given):
        given = given.toarray()
    try:
        table = np.asarray(given)
    except ValueError:
        raise BadInputError(f"{what}: its rows have different lengths: give an array of numbers") from None
    if table.dtype.kind not in "iufb":
        raise BadInputError(f"{what} are {kind_of_value(given)} of other things than numbers: give an array of numbers")
    return table.astype(np.float64)


def _is_sparse(given: Any) -> bool:
    return bool(issparse(given))


def _is_list_of_matrices(given: Any) -> bool:
    """Whether this is a list, a tuple or an array of objects, each of them an array or a sparse matrix."""
    listed = isinstance(given, (list, tuple)) or (isinstance(given, np.ndarray) and given.dtype == object)
    return listed and len(given) > 0 and all(_is_sparse(one) or np.ndim(_unless_listed(one)) == 2 for one in given)


def _unless_listed(given: Any) -> Any:
    """The value itself; 0, which has no axes, for nested lists."""
    return given if isinstance(given, np.ndarray) or _is_sparse(given) else 0


def _names(what: str, given: Any, count: int) -> list[str]:
    """The names of states or actions, by default their numbers."""
    if given is None:
        return [str(k) for k in range(count)]
    require_kind(given, Iterable, what, f"give {count_of(count, 'name')}")
    names = [given] if isinstance(given, str) else list(given)
    for k, name in enumerate(names):
        require_kind(name, str, f"{what}[{k}]", "names are strings")
    require(len(names) == count, f"{what}: {count_of(len(names), 'name')} for {count} {what}: give one for each")
    return names


def _state(given: Any, numbers: Mapping[str, int], what: str) -> int:
    """The number of a state that is given by number or name."""
    if isinstance(given, str):
        require(
            given in numbers, f"{what}: no state is called {quote(given)}: give one of the states' names or numbers"
        )
        return numbers[given]
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise BadInputError(f"{what} is {kind_of_value(given)}: give the number or the name of a state")
    if not 0 <= int(given) < len(numbers):
        raise BadInputError(f"{what}: there is no state {given}: give a number from 0 to {len(numbers) - 1}")
    return int(given)


def _goals(given: Any, numbers: Mapping[str, int]) -> list[int]:
    """The numbers of the goals."""
    if given is None:
        return []
    if isinstance(given, (str, Integral)):
        given = [given]
    require_kind(given, Iterable, "goals", "give a list of states, by number or name")
    listed = list(given)
    if listed and all(isinstance(one, (bool, np.bool_)) for one in listed):
        require(
            len(listed) == len(numbers),
            f"goals: a mask of {len(listed)} for {len(numbers)} states: give one entry each",
        )
        return np.flatnonzero(listed).tolist()
    return [_state(one, numbers, "goals") for one in listed]


def _initial(
    given: Any, numbers: Mapping[str, int], is_goal: Bool[np.ndarray, "states"]
) -> Float[np.ndarray, "states"]:
    """The probability of each state at the start."""
    if given is None:
        require(not is_goal.all(), "goals: every state is a goal: leave one for an episode to start in")
        return ~is_goal / (~is_goal).sum()
    start = np.zeros(len(numbers))
    if isinstance(given, (str, Integral)):
        given = {given: 1.0}
    if isinstance(given, Mapping):
        for state, probability in given.items():
            require_numbers(initial=probability)
            start[_state(state, numbers, "initial")] += probability
        return start
    table = _table(given, "initial")
    require(table.shape == start.shape, f"initial has shape {table.shape}: give a state, or {len(start)} probabilities")
    return table


def _unlike(name: str, names: Iterable[str]) -> str:
    """The name, changed if it is taken."""
    taken = set(names)
    while name in taken:
        name += "'"
    return name
