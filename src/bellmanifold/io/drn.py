"""Storm's explicit text format DRN, read and written without Storm.

    @type: MDP
    @reward_models
    cost
    @model
    state 0 [0] init
    // "home"
        action walk [1]
                1 : 0.9
                0 : 0.1
    state 1 [0] goal
        action stay [0]
                1 : 1

A state has one reward per reward model, and labels; an action has one reward per reward model, and successors. Names of
states are comments on the next line: a quoted string in files of this module, a valuation `[x=0 & y=1]` in Storm's.
Names of actions that are not identifiers become numbers, listed in comments before `@model`: `// action 2 "hand over"`.

DRN has no place for a property, so MODEL states it: `m.drn?property=R{"cost"}min=? [F "goal"]`. The default is the
minimal "cost", or else the maximal "reward", until "goal", which is what this module writes. With the default, a policy
that avoids the goal is worth what it collects, as in the original problem; with a property its value is infinite.
"""

from __future__ import annotations

import io
import json
import os
import re
from array import array
from collections.abc import Iterator
from fractions import Fraction
from typing import IO

import numpy as np

from bellmanifold._util.limits import SIZE
from bellmanifold.errors import BadInputError, quote
from bellmanifold.io.explicit import EXAMPLE, Explicit, Question, read_query, read_question, reward_until_target
from bellmanifold.io.files import label, locate_errors, read_bytes, write_atomically
from bellmanifold.problem.ssp import SSP, require_closed

NO_LABEL = "__NOLABEL__"
KINDS = ("MDP", "DTMC")
COST, REWARD, GOAL, INIT = "cost", "reward", "goal", "init"
_ACTION = re.compile(r"// action (\S+) (\".*)")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_drn(path: str, query: str = "") -> SSP:
    """Read a DRN file; the query may give a `property`."""
    with locate_errors(label(path)):
        given = read_query(query)
        for key in given:
            if key != "property":
                raise BadInputError(f"unknown parameter {quote(key)}: a DRN file takes property, such as {EXAMPLE}")
        return _Reader(read_bytes(path)).problem(given.get("property"), path)


def write_drn(model: SSP, path: str | os.PathLike[str]) -> None:
    """Write a problem as DRN: as costs if no reward is positive, otherwise as rewards.

    DRN has one initial state: if episodes may start in several, a state that leads to them is added. Goals are merged
    into one state; reward noise, metadata and priors are left out.
    """
    require_closed(model, "DRN")
    write_atomically(path, lambda file: _write(model, file))


class _Reader:
    """One pass over the lines of a DRN file.

    Attributes:
        choice_start, choice_label, next_start, next_state, next_prob: as in `Explicit`.
        state_reward, choice_reward: one reward per reward model for each state or choice, concatenated.
        labelled: the states with each label.
    """

    def __init__(self, content: bytes) -> None:
        self.rewards: list[str] = []
        self.spaced: list[str] = []
        self.declared: dict[str, int] = {}
        self.values: dict[str, float] = {}
        self.names: dict[int, str] = {}
        self.actions: dict[str, str] = {}
        self.labels: dict[str, int] = {"": 0}
        self.labelled: dict[str, list[int]] = {}
        self.choice_start, self.choice_label = array("q"), array("q")
        self.next_start, self.next_state, self.next_prob = array("q"), array("q"), array("d")
        self.state_reward, self.choice_reward = array("d"), array("d")
        self.line, self.kind = 0, ""
        try:
            lines = iter(enumerate(io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"), 1))
            self._header(lines)
            self._body(lines)
        except UnicodeDecodeError:
            raise BadInputError(f"line {self.line + 1}: not UTF-8 text: save it as UTF-8") from None
        found = {"@nr_states": len(self.choice_start), "@nr_choices": len(self.choice_label)}
        for key, count in self.declared.items():
            if count != found[key]:
                raise BadInputError(f"{key} is {count}, but there are {found[key]}: is the file complete?")
        self.choice_start.append(len(self.choice_label))
        self.next_start.append(len(self.next_state))

    def refuse(self, what: str) -> BadInputError:
        """An error at the line read last."""
        return BadInputError(f"line {self.line}: {what}")

    def _header(self, lines: Iterator[tuple[int, str]]) -> None:
        for self.line, raw in lines:
            text = raw.strip()
            if text == "@model":
                break
            if text.startswith("@type:"):
                self.kind = text.removeprefix("@type:").strip().upper()
                if self.kind not in KINDS:
                    raise self.refuse(f"the type is {quote(self.kind)}: only {' and '.join(KINDS)} can be read")
            elif text == "@reward_models":
                raw = self._next(lines)
                *self.spaced, rest = raw.rstrip("\r\n").split(" ")
                self.rewards, self.spaced = raw.split(), [] if rest else self.spaced
            elif text in ("@nr_states", "@nr_choices"):
                self.declared[text] = self._whole(self._next(lines), "a number of states or choices")
            elif text == "@parameters":
                if given := self._next(lines).strip():
                    raise self.refuse(f"it has parameters ({quote(given)}): give them values in Storm first")
            elif (found := _ACTION.fullmatch(text)) is not None:
                self.actions[found[1]] = self._quote(found[2])
            elif text.startswith("$"):
                name, _, value = text.partition(":")
                self.values[name.strip()] = self._number(value)
        else:
            raise self.refuse("there is no @model: this is not a DRN file")
        if not self.kind:
            raise BadInputError("there is no @type: write @type: MDP or @type: DTMC before @model")

    def _next(self, lines: Iterator[tuple[int, str]]) -> str:
        """The line after a keyword; empty at the end of the file."""
        self.line, raw = next(lines, (self.line, ""))
        return raw

    def _body(self, lines: Iterator[tuple[int, str]]) -> None:
        state, limit = -1, SIZE.value
        for self.line, raw in lines:
            text = raw.strip()
            if not text:
                continue
            head = text[0]
            if head.isdigit():
                self._successor(text)
            elif head == "s" and text.startswith("state "):
                state += 1
                self._state(text, state)
            elif head == "a" and text.startswith("action "):
                self._action(text, state)
            elif head == "/" and text.startswith("//"):
                self._comment(text[2:].strip(), state)
            else:
                raise self.refuse(f"{quote(text)} is neither a state, an action nor a successor")
            if len(self.choice_label) + len(self.next_state) > limit:
                SIZE.require(len(self.choice_label) + len(self.next_state), "the problem")
        if state < 0:
            raise self.refuse("there is no state: write some after @model")

    def _successor(self, text: str) -> None:
        number, colon, value = text.partition(":")
        if not colon or not self.choice_label:
            raise self.refuse(f"{quote(text)} is not a successor of an action: write STATE : PROBABILITY below one")
        self.next_state.append(self._whole(number))
        self.next_prob.append(self._number(value))

    def _state(self, text: str, state: int) -> None:
        number, rewards, labels = _parts(text.removeprefix("state "))
        if self._whole(number) != state:
            raise self.refuse(f"state {quote(number)} comes where {state} should: number the states from 0")
        self.choice_start.append(len(self.choice_label))
        self.state_reward.extend(self._rewards(rewards))
        for name in _words(labels):
            self.labelled.setdefault(name, []).append(state)

    def _action(self, text: str, state: int) -> None:
        name, rewards, _ = _parts(text.removeprefix("action "))
        if state < 0:
            raise self.refuse("an action comes before the first state")
        self.next_start.append(len(self.next_state))
        known = "" if name == NO_LABEL else self.actions.get(name, name)
        self.choice_label.append(self.labels.setdefault(known, len(self.labels)))
        self.choice_reward.extend(self._rewards(rewards))

    def _comment(self, text: str, state: int) -> None:
        """Record the name of a state, if the comment directly follows it."""
        if state < 0 or self.choice_start[-1] != len(self.choice_label):
            return
        if text.startswith("[") and text.endswith("]"):
            self.names[state] = ",".join(part.strip() for part in re.split(r"[&\t]+", text[1:-1]) if part.strip())
        elif text.startswith('"'):
            self.names[state] = self._quote(text)

    def _quote(self, text: str) -> str:
        try:
            return str(json.loads(text))
        except ValueError:
            raise self.refuse(f"{quote(text)} is not a name in quotes: close the quotes") from None

    def _rewards(self, text: str | None) -> list[float]:
        found = [] if text is None else [self._number(part) for part in text.split(",") if part.strip()]
        if not self.state_reward and len(found) == len(self.spaced):
            self.rewards = self.spaced  # Storm ends every name with a space; an unnamed model is empty
        if not found:
            return [0.0] * len(self.rewards)
        if len(found) != len(self.rewards):
            raise self.refuse(f"it has {len(found)} rewards, but @reward_models names {len(self.rewards)}")
        return found

    def _whole(self, text: str, what: str = "the number of a state") -> int:
        try:
            return int(text)
        except ValueError:
            raise self.refuse(f"{quote(text.strip())} is not {what}") from None

    def _number(self, text: str) -> float:
        try:
            return float(text)
        except ValueError:
            pass
        text = text.strip()
        if text in self.values:
            return self.values[text]
        try:
            return float(Fraction(text.replace(" ", "")))
        except (ValueError, ZeroDivisionError, OverflowError):
            raise self.refuse(f"{quote(text)} is not a number: only numbers and fractions can be read") from None

    def problem(self, asked: str | None, path: str) -> SSP:
        """The problem that a property, or the default one, defines."""
        rewards, labels = (", ".join(map(quote, names)) or "none" for names in (self.rewards, self.labelled))
        if asked is not None:
            reward, sense, target = read_question(asked)
        elif GOAL in self.labelled and (COST in self.rewards or REWARD in self.rewards):
            reward, sense, target = (
                Question(COST, "min", GOAL) if COST in self.rewards else Question(REWARD, "max", GOAL)
            )
        else:
            raise BadInputError(
                f"which reward, until which label? Add ?{EXAMPLE}; there are the reward models {rewards} and the "
                f"labels {labels}"
            )
        if reward is None:
            if len(self.rewards) != 1 and "" not in self.rewards:
                raise BadInputError(f"the property names no reward model, and the file has {rewards}: write {EXAMPLE}")
            reward = "" if "" in self.rewards else self.rewards[0]
        if reward not in self.rewards:
            raise BadInputError(f"there is no reward model {quote(reward)}: the file has {rewards}")
        if target not in self.labelled:
            raise BadInputError(f"no state has the label {quote(target)}: the file has {labels}")
        choices = np.diff(np.array(self.choice_start))
        if self.kind == "DTMC" and (choices > 1).any():
            raise BadInputError(f"state {np.argmax(choices > 1)} of a DTMC has several actions: write @type: MDP")
        if sense is None and (choices > 1).any():
            raise BadInputError("the property does not say min or max, and some state has a choice: write Rmin or Rmax")
        sense = sense or "min"
        model = self._explicit(self.rewards.index(reward), target, choices)
        text = str(Question(reward, sense, target))
        return reward_until_target(model, sense, path, text, checked=asked is not None)

    def _explicit(self, reward: int, target: str, choices: np.ndarray) -> Explicit:
        states, kinds = len(choices), len(self.rewards)
        of_state = np.array(self.state_reward).reshape(states, kinds)[:, reward]
        of_choice = np.array(self.choice_reward).reshape(-1, kinds)[:, reward]
        next_state = np.array(self.next_state, dtype=np.int64)
        if next_state.max(initial=0) >= states:
            raise BadInputError(f"a successor is state {next_state.max()}, but there are {states}: add it")
        marked = np.zeros(states, dtype=bool)
        marked[self.labelled[target]] = True
        return Explicit(
            state_names=[self.names.get(s, str(s)) for s in range(states)],
            labels=list(self.labels),
            choice_label=np.array(self.choice_label, dtype=np.int64),
            choice_start=np.array(self.choice_start, dtype=np.int64),
            reward=of_choice + np.repeat(of_state, choices),
            next_start=np.array(self.next_start, dtype=np.int64),
            next_state=next_state,
            next_prob=np.array(self.next_prob),
            initial=np.array(self.labelled.get(INIT, []), dtype=np.int64),
            target=marked,
        )


def _parts(text: str) -> tuple[str, str | None, str]:
    """The parts of a line before, inside and after the brackets."""
    before, bracket, rest = text.partition("[")
    if not bracket:
        before, _, after = text.strip().partition(" ")
        return before, None, after
    inside, _, after = rest.partition("]")
    return before.strip(), inside, after


def _words(text: str) -> list[str]:
    """Split into labels, some of which may be quoted."""
    return [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', text)]


def _write(model: SSP, file: IO[bytes]) -> None:
    cost = bool((model.reward <= 0).all())
    starts = np.flatnonzero(model.initial).tolist()
    shift = int(len(starts) > 1)  # an added state that leads to them comes first
    goal = model.n_states + shift
    head = ["@type: MDP", "@parameters", "", "@reward_models", COST if cost else REWARD]
    head += ["@nr_states", str(goal + 1), "@nr_choices", str(model.n_pairs + shift + 1)]
    plain = [a if _PLAIN.fullmatch(a) and a != NO_LABEL else str(k) for k, a in enumerate(model.actions)]
    odd = [(word, name) for word, name in zip(plain, model.actions, strict=True) if word != name]
    head += [*(f"// action {word} {json.dumps(name)}" for word, name in odd), "@model"]
    if shift:
        name = "start"
        while name in model.states or name in model.goals:
            name += "'"
        head += [f"state 0 [0] {INIT}", f"// {json.dumps(name)}", "\taction start [0]"]
        head += [f"\t\t{s + 1} : {float(model.initial[s])!r}" for s in starts]
    file.write("\n".join([*head, ""]).encode())
    reward = (np.where(model.reward == 0, 0.0, model.reward) * (-1 if cost else 1) + 0.0).tolist()
    action, begin, first = model.pair_action.tolist(), model.next_start.tolist(), model.pair_start.tolist()
    target, prob = (model.next_state + shift).tolist(), model.next_prob.tolist()
    for state, name in enumerate(model.states):
        start = f" {INIT}" if not shift and state == starts[0] else ""
        lines = [f"state {state + shift} [0]{start}", f"// {json.dumps(name)}"]
        for pair in range(first[state], first[state + 1]):
            lines.append(f"\taction {plain[action[pair]]} [{reward[pair]!r}]")
            lines += [f"\t\t{target[e]} : {prob[e]!r}" for e in range(begin[pair], begin[pair + 1])]
        file.write("\n".join([*lines, ""]).encode())
    last = [
        f"state {goal} [0] {GOAL}",
        f"// {json.dumps(model.goals[0])}",
        f"\taction {NO_LABEL} [0]",
        f"\t\t{goal} : 1.0",
    ]
    file.write("\n".join([*last, ""]).encode())
