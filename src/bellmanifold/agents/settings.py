"""Options of agents: one frozen record per agent, the only place where its options are declared.

Each field is an option: its name is the one used in plans and on the command line, and the function that makes the
field defines its default, its valid values and what an error message asks for. So a new option is one line here; the
agent reads it from its settings record. An option shared by several agents belongs in a common base record.

The records of the library's agents are in this module, which imports nothing heavy: `learn` and plans check options
without the agents. What an agent of another package declares is in that package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, partial
from typing import Any, Literal, TypeAlias

Value: TypeAlias = bool | int | float | str | None
Options: TypeAlias = Mapping[str, Value]
"""Option name -> value; None means not given."""

LARGEST = 1e100
"""Largest option value: numbers are squared and multiplied in the computations."""
NOISE = ("noise_sd", "infer_noise")
"""Options that replace `epsilon` and are mutually exclusive."""


@dataclass(frozen=True)
class Option:
    """One option of an agent.

    Attributes:
        default: its value unless given.
        allows: whether a value is valid.
        wanted: what the error message asks for if it is not.
        is_real: whether it is a real number, which may also be given as an integer.
    """

    default: Value
    allows: Callable[[Any], bool]
    wanted: str
    is_real: bool = False

    def convert(self, value: Value) -> Value:
        """A valid value, converted to the type of the field."""
        return float(value) if self.is_real and value is not None else value


@cache
def options_of(record: Any) -> Mapping[str, Option]:
    """The options that a settings record (the class) declares, by name."""
    return {entry.name: entry.metadata["option"] for entry in fields(record)}


def option(default: Value, allows: Callable[[Any], bool], wanted: str, is_real: bool = False) -> Any:
    """A field of a settings record; see `Option`."""
    return field(default=default, metadata={"option": Option(default, allows, wanted, is_real)})


def choice(*words: str, wanted: str = "") -> Any:
    """An option that is one of several words; the first is the default."""
    return option(words[0], words.__contains__, wanted or f"{', '.join(words[:-1])} or {words[-1]}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and 1.0 / LARGEST <= value <= LARGEST


def _within(least: float, most: float) -> Callable[[Any], bool]:
    return lambda value: _is_number(value) and least <= value <= most


_real = partial(option, is_real=True)
number = partial(_real, allows=_is_number, wanted="a finite number")
positive = partial(_real, allows=_is_positive, wanted="a positive number, at most 1e100 in size")
not_negative = partial(_real, allows=lambda x: x == 0 or _is_positive(x), wanted="a number that is not negative")
moderate = partial(_real, allows=_within(1e-6, 1e6), wanted="a number from 1e-6 to 1e6")
"""A positive number whose square and inverse square are not affected by rounding."""
concentrated = partial(_real, allows=_within(1e-12, 1e12), wanted="a number from 1e-12 to 1e+12")
"""The range of concentrations in `bellmanifold.posteriors.laws`."""
share = partial(_real, allows=_within(0.0, 1.0), wanted="a number from 0 to 1")
whole = partial(option, allows=lambda x: type(x) is int and x >= 1, wanted="a whole number, at least 1")
flag = partial(option, allows=lambda x: isinstance(x, bool), wanted="true or false")


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """Options shared by agents that choose policies; the only ones of `nearest` and of users' own agents.

    Attributes:
        replan: continue episodes when a state repeats, and let the agent look again when a pair is new or its count
            has doubled.
    """

    replan: bool = flag(False)


@dataclass(frozen=True)
class DrawSettings(PlanSettings):
    """Options shared by agents that draw action values from a posterior.

    Attributes:
        epsilon: tolerance: sd of the residual of an observed pair's equation (or TD target); 0 is exact.
        prior_scale: prior sd of every action value.
        prior_mean: prior mean of every action value.
        noise_sd: known sd of the rewards' noise; if given, noise_sd / sqrt(visits to the pair) replaces epsilon.
    """

    epsilon: float = not_negative(0.01)
    prior_scale: float = positive(10.0)
    prior_mean: float = number(0.0)
    noise_sd: float | None = positive(None)


@dataclass(frozen=True)
class SamplingSettings(DrawSettings):
    """`bayes-br`, and `manifold`, which has epsilon 0 and no noise.

    Attributes:
        infer_noise: infer the sd of the rewards' noise, with a half-normal prior of scale 1; replaces epsilon.
        method: "B" draws action values, "A" routes.
        laws: with "known" the agent is shown the whole law of every pair it plays, otherwise only the next states:
            "deterministic" takes these to be the law, "dirichlet" learns it.
        concentration: concentration of the Dirichlet prior of a law; inferred unless given.
        explore: what to play if a draw plays something unseen: the draw, or the shortest way to an unseen pair.
        until_loss: stop exploring once the expected loss of the best policy is at most this; never unless given.
    """

    infer_noise: bool = flag(False)
    method: Literal["A", "B"] = choice("B", "A", wanted="A (draw a route) or B (draw action values)")
    laws: Literal["known", "deterministic", "dirichlet"] = choice("known", "deterministic", "dirichlet")
    concentration: float | None = concentrated(None)
    explore: Literal["thompson", "directed"] = choice("thompson", "directed")
    until_loss: float | None = not_negative(None)


@dataclass(frozen=True)
class PSRLSettings(PlanSettings):
    """`psrl`.

    Attributes:
        noise_sd: sd of the rewards' noise.
        concentration: concentration of the Dirichlet prior of a law; inferred unless given.
    """

    noise_sd: float = moderate(1.0)
    concentration: float | None = concentrated(None)


@dataclass(frozen=True)
class RLSVISettings(PlanSettings):
    """`rlsvi`.

    Attributes:
        prior_scale: sd of the prior of every action value.
        noise_sd: sd of the noise of a move's reward plus the value of its next state.
    """

    prior_scale: float = moderate(1.0)
    noise_sd: float = moderate(1.0)


@dataclass(frozen=True)
class QLearningSettings:
    """`q-learning`.

    Attributes:
        exploration: probability that a move is uniform over the state's pairs.
        step_size: fraction of the way that a value moves towards its target at each update.
        start_value: initial value of every pair.
    """

    exploration: float = share(0.1)
    step_size: float = share(0.5)
    start_value: float = number(1.0)


@dataclass(frozen=True)
class UCBQSettings:
    """`ucb-q`.

    Attributes:
        bonus: bonus of a pair that was visited once, in units of the square root of the horizon.
        horizon: assumed number of moves in an episode; the number of states unless given.
        start_value: initial value of every pair, and upper bound on the value of a state.
    """

    bonus: float = not_negative(0.001)
    horizon: int | None = whole(None)
    start_value: float = number(1.0)
