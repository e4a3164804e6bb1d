"""What can be set about each agent: one frozen record per agent, and nothing is said about an option anywhere else.

A field is an option: its name is what plans and the command line call it, its default is what holds unless it is given,
and the function that makes the field says which values are sound and what to ask for instead. So a new option is one
line here; the agent reads it from the record it is made with. An option that several agents share
belongs in a record that theirs inherit.

Records live together in this module, which imports nothing heavy: `learn` and plans check options without the agents.
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
"""Numbers are squared and multiplied on the way."""
MEMBERS = 100
"""Samples of `bayes-td-en`: the paper's number for deterministic problems (it takes 10 for the stochastic one)."""
NOISE = ("noise_sd", "infer_noise", "stated_noise")
"""Options that replace `epsilon`, and exclude each other."""


@dataclass(frozen=True)
class Option:
    """One option of an agent.

    Attributes:
        default: its value unless given.
        allows: is this value sound?
        wanted: what to say if it is not.
        is_real: is it a real number, which may be given as a whole one?
    """

    default: Value
    allows: Callable[[Any], bool]
    wanted: str
    is_real: bool = False

    def typed(self, value: Value) -> Value:
        """A sound value as the record holds it."""
        return float(value) if self.is_real and value is not None else value


@cache
def options_of(record: Any) -> Mapping[str, Option]:
    """The options that a settings record (the class) states, by name."""
    return {entry.name: entry.metadata["option"] for entry in fields(record)}


def option(default: Value, allows: Callable[[Any], bool], wanted: str, is_real: bool = False) -> Any:
    """A field of a settings record; see `Option`."""
    return field(default=default, metadata={"option": Option(default, allows, wanted, is_real)})


def choice(*words: str, wanted: str = "") -> Any:
    """An option that is one of a few words, the first unless given."""
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
"""A positive number whose square, and its inverse, stay far from rounding."""
concentrated = partial(_real, allows=_within(1e-12, 1e12), wanted="a number from 1e-12 to 1e+12")
"""As `bellmanifold.posteriors.laws` takes concentrations."""
share = partial(_real, allows=_within(0.0, 1.0), wanted="a number from 0 to 1")
whole = partial(option, allows=lambda x: type(x) is int and x >= 1, wanted="a whole number, at least 1")
flag = partial(option, allows=lambda x: isinstance(x, bool), wanted="true or false")


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """What agents that name policies share; all that `nearest`, and agents of one's own, have.

    Attributes:
        replan: episodes go on when a state repeats, and the agent looks again when it has seen something new.
    """

    replan: bool = flag(False)


@dataclass(frozen=True)
class DrawSettings(PlanSettings):
    """What agents that draw action values from a posterior share; all that `bayes-td` and `bayes-td-max` have.

    Attributes:
        epsilon: tolerance: sd of what an observed pair's value may miss its equation (or its TD target) by; 0 is exact.
        prior_scale: sd of the prior of every action value.
        prior_mean: mean of that prior.
        noise_sd: known sd of the rewards' noise; if given, it replaces epsilon by noise_sd / sqrt(visits of the pair).
        optimism: play the most promising of this many draws; 1 is the paper.
    """

    epsilon: float = not_negative(0.01)
    prior_scale: float = positive(10.0)
    prior_mean: float = number(0.0)
    noise_sd: float | None = positive(None)
    optimism: int = whole(1)


@dataclass(frozen=True)
class EnsembleSettings(DrawSettings):
    """`bayes-td-en`.

    Attributes:
        members: samples of the previous posterior, each of which makes its own guess.
    """

    members: int = whole(MEMBERS)


@dataclass(frozen=True)
class SamplingSettings(DrawSettings):
    """`bayes-br`, and `manifold`, which has epsilon 0 and no noise.

    Attributes:
        infer_noise: unknown sd of the rewards' noise, half-normal prior of scale 1; replaces epsilon.
        stated_noise: every reward comes with the sd that the problem states (`reward_sd`), exact where that is 0;
            replaces epsilon.
        method: "B" draws action values, "A" routes.
        laws: "known" is shown the whole law of every pair it plays, the others only where they land: "deterministic"
            takes that for the law, "dirichlet" learns it.
        concentration: of the Dirichlet prior of a law; inferred unless given.
        explore: what to play if a draw wants something unseen: the draw, or the shortest way to the unseen.
        until_loss: stop exploring once the expected loss of the best policy is at most this; never unless given.
    """

    infer_noise: bool = flag(False)
    stated_noise: bool = flag(False)
    method: Literal["A", "B"] = choice("B", "A", wanted="A (draw a route) or B (draw action values)")
    laws: Literal["known", "deterministic", "dirichlet"] = choice("known", "deterministic", "dirichlet")
    concentration: float | None = concentrated(None)
    explore: Literal["thompson", "directed"] = choice("thompson", "directed")
    until_loss: float | None = not_negative(None)


@dataclass(frozen=True)
class HMCSettings(DrawSettings):
    """`bayes-br-hmc`, whose chains need a positive tolerance.

    Attributes:
        tuning: the paper's first rule, or its second attempt.
    """

    epsilon: float = positive(0.01)
    tuning: Literal["paper", "retuned"] = choice("paper", "retuned")


@dataclass(frozen=True)
class PSRLSettings(PlanSettings):
    """`psrl`.

    Attributes:
        noise_sd: sd of the rewards' noise.
        optimism: play the most promising of this many sampled problems.
    """

    noise_sd: float = moderate(1.0)
    optimism: int = whole(1)


@dataclass(frozen=True)
class RLSVISettings(PlanSettings):
    """`rlsvi`.

    Attributes:
        prior_scale: sd of the prior of every action value.
        noise_sd: sd of the noise of what a move pays and leads to.
        optimism: play the most promising of this many draws.
    """

    prior_scale: float = moderate(1.0)
    noise_sd: float = moderate(1.0)
    optimism: int = whole(1)


@dataclass(frozen=True)
class QLearningSettings:
    """`q-learning`.

    Attributes:
        exploration: probability that a move is any of the state's pairs alike.
        step_size: how far a value goes towards what a move paid and promises.
        start_value: what every value begins at.
    """

    exploration: float = share(0.1)
    step_size: float = share(0.5)
    start_value: float = number(1.0)


@dataclass(frozen=True)
class UCBQSettings:
    """`ucb-q`.

    Attributes:
        bonus: what is added for a pair that was seen once, in units of the square root of the horizon.
        horizon: how many moves an episode is thought to have; the number of states unless given.
        start_value: what every value begins at, and the most a state is hoped to be worth.
    """

    bonus: float = not_negative(0.001)
    horizon: int | None = whole(None)
    start_value: float = number(1.0)
