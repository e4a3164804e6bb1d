"""Conversion of a model checker's Markov decision process into a problem: expected reward until a target is reached.

A property `R{"steps"}min=? [F "done"]` asks for the minimal expected reward collected before a target, a set of states,
is reached. The target becomes the goal. A state's reward is added to that of each of its choices; a minimised reward is
a cost, so its sign is flipped.

Paths that never reach the target count as infinite. For a *minimum*, states from which no policy reaches the target
almost surely have no finite value: they are dropped, along with the choices that may lead to them, and if the initial
state is among them the problem is refused. Choices that stay in their state at no cost are dropped, too: they never
help to reach the target. For a *maximum*, one policy that may avoid the target makes the value infinite.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple
from urllib.parse import unquote

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold._util.limits import SIZE
from bellmanifold.errors import BadInputError, quote
from bellmanifold.mdp.graph import end_components, reach_goal, reachable
from bellmanifold.problem.builder import assemble
from bellmanifold.problem.ssp import SSP, Description, row_entries

Sense = Literal["min", "max"]
UNNAMED = "step"
"""The action name of a choice without a label."""
EXAMPLE = 'property=R{"steps"}min=? [F "done"]'
_REWARD_UNTIL = re.compile(r'\s*R\s*(?:\{\s*"([^"]*)"\s*\})?\s*(min|max)?\s*=\s*\?\s*\[\s*F\s+"([^"]*)"\s*\]\s*;?\s*')


@dataclass(frozen=True)
class Explicit:
    """A Markov decision process, state by state and choice by choice.

    Attributes:
        labels: distinct labels of choices; empty for a choice without one.
        choice_label: index into `labels`, shape (choices,).
        choice_start: the choices of state s are choice_start[s]:choice_start[s + 1], shape (states + 1,).
        reward: reward of each choice, including that of its state, shape (choices,).
        next_start, next_state, next_prob: successors of all choices in compressed rows.
        target: whether each state is in the target, shape (states,).
    """

    state_names: Sequence[str]
    labels: Sequence[str]
    choice_label: Int[np.ndarray, "choices"]
    choice_start: Int[np.ndarray, "states_plus_1"]
    reward: Float[np.ndarray, "choices"]
    next_start: Int[np.ndarray, "choices_plus_1"]
    next_state: Int[np.ndarray, "successors"]
    next_prob: Float[np.ndarray, "successors"]
    initial: Int[np.ndarray, "initial"]
    target: Bool[np.ndarray, "states"]


class Question(NamedTuple):
    """The contents of a property: a reward until a label, in the PRISM language.

    Attributes:
        reward: name of the reward structure; None if the property names none.
        sense: None if the property says neither min nor max.
        target: label of the target states.
    """

    reward: str | None
    sense: Sense | None
    target: str

    def __str__(self) -> str:
        named = f'{{"{self.reward}"}}' if self.reward else ""
        return f'R{named}{self.sense or ""}=? [F "{self.target}"]'


def read_question(text: str) -> Question:
    """Parse a property.

    >>> read_question('R{"steps"}min=? [F "done"]')
    Question(reward='steps', sense='min', target='done')
    """
    found = _REWARD_UNTIL.fullmatch(text)
    if found is None:
        raise BadInputError(f"property {quote(text)} is not a reward until a label: write it as {EXAMPLE}")
    reward, sense, target = found.groups()
    return Question(reward, "min" if sense == "min" else "max" if sense == "max" else None, target)


def read_query(query: str) -> dict[str, str]:
    """Parse the keys and values after the `?` of a reference; `%26` encodes an `&` inside a value."""
    given: dict[str, str] = {}
    for item in filter(None, query.split("&")):
        key, equals, value = item.partition("=")
        if not equals:
            raise BadInputError(f"{quote(item)} has no value: write it as {key}=VALUE")
        if unquote(key) in given:
            raise BadInputError(f"parameter {quote(key)} is given twice: keep one of them")
        given[unquote(key)] = unquote(value)
    return given


def reward_until_target(model: Explicit, sense: Sense, path: str, asked: str, checked: bool = True) -> SSP:
    """The problem of minimising or maximising the expected reward until the target is reached.

    `asked` is the property, used in messages and metadata. If `checked`, avoiding the target counts as infinite, as in
    model checkers: a maximum is refused if some policy may do so. Otherwise such a policy is worth what it collects,
    and loops are left to `solve`.
    """
    SIZE.require(len(model.reward) + len(model.next_state), "the problem")
    if len(model.initial) != 1:
        raise BadInputError(
            f"it has {len(model.initial)} initial states: give it one, with a move to each of the others"
        )
    start = int(model.initial[0])
    if not model.target.any():
        raise BadInputError(f"the value of {quote(asked)} is infinite: no state is in the target; ask for another one")
    if model.target[start]:
        raise BadInputError(
            f"its initial state {quote(model.state_names[start])} is in the target of {quote(asked)}: nothing is "
            "collected, ask for another target"
        )
    problem = assemble(_description(model, sense, path, asked))
    problem = problem.subproblem(reachable(problem, problem.initial > 0)[problem.pair_state])
    if sense == "max":
        return _finite_maximum(problem, asked) if checked else problem
    problem = _finite_minimum(problem, asked)
    return _without_idling(problem) if checked else problem


def _description(model: Explicit, sense: Sense, path: str, asked: str) -> Description:
    """The choices of all states outside the target; target states are goals. A state without choices stays put."""
    states = np.flatnonzero(~model.target)
    choices, first = row_entries(model.choice_start, states)
    entries, next_start = row_entries(model.next_start, choices)
    pair_state = np.repeat(states, np.diff(first))
    label, names = _actions(model.choice_label[choices], pair_state, model.labels)
    stuck = states[np.diff(first) == 0]
    reward = np.append(model.reward[choices], np.zeros(len(stuck)))
    return Description(
        state_names=model.state_names,
        action_names=[*names, *(["stuck"] if "stuck" not in names else [])],
        goals=np.flatnonzero(model.target),
        initial_state=model.initial,
        initial_prob=[1.0],
        pair_state=np.append(pair_state, stuck),
        pair_action=np.append(label, np.full(len(stuck), [*names, "stuck"].index("stuck"))),
        reward=(-reward if sense == "min" else reward) + 0.0,  # no negative zeros
        next_start=np.append(next_start, next_start[-1] + 1 + np.arange(len(stuck))),
        next_state=np.append(model.next_state[entries], stuck),
        next_prob=np.append(model.next_prob[entries], np.ones(len(stuck))),
        name=os.path.basename(path).rpartition(".")[0],
        metadata={"property": asked},
    )


def _actions(
    label: Int[np.ndarray, "pairs"], state: Int[np.ndarray, "pairs"], labels: Sequence[str]
) -> tuple[Int[np.ndarray, "pairs"], list[str]]:
    """An index into action names for each pair, and the names: labels, numbered where a state repeats one."""
    key = state * len(labels) + label
    order = np.argsort(key, kind="stable")
    begins = np.append(True, np.diff(key[order]) != 0) if len(key) else np.zeros(0, dtype=bool)
    place = np.arange(len(key))
    before = np.empty(len(key), dtype=np.int64)  # number of earlier pairs of the same state and label
    before[order] = place - np.maximum.accumulate(np.where(begins, place, 0))
    kind, number = np.unique(before * len(labels) + label, return_inverse=True)
    names = []
    for code in kind.tolist():
        copy, which = divmod(code, len(labels))
        names.append((labels[which] or UNNAMED) + (f"/{copy + 1}" if copy else ""))
    return number, names


def _finite_minimum(problem: SSP, asked: str) -> SSP:
    """The part of a problem from which some policy reaches the goal almost surely."""
    arrives, _ = reach_goal(problem)
    if arrives.all():
        return problem
    start = int(np.argmax(problem.initial))
    if not arrives[start]:
        raise BadInputError(
            f"the value of {quote(asked)} is infinite: no policy is sure to reach the target from the initial state "
            f"{quote(problem.states[start])}; ask for another target"
        )
    safe = problem.over_successors(np.logical_and, np.append(arrives, True)[problem.next_state], False)
    return problem.subproblem(arrives[problem.pair_state] & safe)


def _without_idling(problem: SSP) -> SSP:
    """The problem without choices that always stay in their state and cost nothing."""
    stays = problem.next_state == np.repeat(problem.pair_state, np.diff(problem.next_start))
    idle = problem.over_successors(np.logical_and, stays, True) & (problem.reward == 0)
    return problem.subproblem(~idle) if idle.any() else problem


def _finite_maximum(problem: SSP, asked: str) -> SSP:
    """The problem itself; refused if some policy may never reach the goal."""
    loops = end_components(problem)
    if loops:
        where = quote(problem.states[loops[0].states[0]])
        raise BadInputError(
            f"the value of {quote(asked)} is infinite: a policy may stay in {where} and never reach the target; ask "
            "for the minimum, or for another target"
        )
    return problem
