"""The settings of a run: everything that determines its results, and their digest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, TypeAlias

from bellmanifold.agents.registry import find_agent
from bellmanifold.agents.settings import NOISE
from bellmanifold.errors import printable
from bellmanifold.problem.ssp import SSP

Value: TypeAlias = bool | int | float | str


LARGEST = 2**63 - 1


@dataclass(frozen=True)
class RunSettings:
    """Everything that determines the results of one run.

    Attributes:
        model: reference to the problem, as accepted by `load_problem`.
        epsilon, prior_scale: None if the agent has no such setting.
        seed: fixes the order of actions, the agent's draws, the transitions and the noise.
        options: further options as (name, value), sorted by name.
    """

    model: str
    agent: str
    epsilon: float | None
    prior_scale: float | None
    episodes: int
    seed: int
    options: tuple[tuple[str, Value], ...] = ()

    def choices(self) -> dict[str, Value]:
        """The agent's options, including epsilon and prior scale if it has them."""
        own = {"epsilon": self.epsilon, "prior_scale": self.prior_scale}
        return {name: value for name, value in own.items() if value is not None} | dict(self.options)

    def to_dict(self) -> dict[str, Any]:
        """The settings as a plan's entry."""
        first: dict[str, Any] = {"model": self.model, "agent": self.agent}
        return first | self.choices() | {"episodes": self.episodes, "seed": self.seed}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> RunSettings:
        """The settings from an entry made by `to_dict`."""
        fixed = {"model", "agent", "epsilon", "prior_scale", "episodes", "seed"}
        own = {"epsilon": None, "prior_scale": None} | {name: entry[name] for name in entry if name in fixed}
        return cls(**own, options=tuple(sorted((name, entry[name]) for name in entry if name not in fixed)))

    @property
    def cell(self) -> RunSettings:
        """The settings with seed 0, shared by runs that differ only in their seeds."""
        return replace(self, seed=0)

    @property
    def identity(self) -> str:
        """A digest of the settings: equal for equal runs, on every machine."""
        plain = {name: _plain(value) for name, value in self.to_dict().items()}
        return sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()

    def __str__(self) -> str:
        return printable(" ".join(f"{name}={value}" for name, value in self.to_dict().items()))


def make_settings(entry: Mapping[str, Any], problem: Any = None) -> RunSettings:
    """The settings of a run from a plan's entry, without those that its agent does not have.

    Options that are not given are filled in with the agent's defaults, so that stating a default makes no difference.
    If the problem is given, the prior it states takes precedence over these defaults.

    >>> run = make_settings({"model": "env:swirl", "agent": "manifold", "epsilon": 0.1, "episodes": 5, "seed": 0})
    >>> run.choices()["prior_scale"], run.choices()["explore"]
    (10.0, 'thompson')
    """
    kind = find_agent(str(entry["agent"]))
    has = kind.options
    given = {name: value for name, value in entry.items() if name in has}
    if isinstance(problem, SSP):
        given = dict(kind.with_stated(problem, given))
    noise = any(given.get(name, False) is not False for name in NOISE)
    if noise:
        given.pop("epsilon", None)
    own: dict[str, Any] = {n: _plain(value) for n, value in kind.resolve_options(given).items() if value is not None}
    if noise:
        own.pop("epsilon", None)
    own |= {name: float(own[name]) for name in ("epsilon", "prior_scale") if name in own}
    own |= {"model": str(entry["model"]), "agent": str(entry["agent"])}
    return RunSettings.from_dict(own | {"episodes": int(entry["episodes"]), "seed": int(entry["seed"])})


def _plain(value: Value) -> Value:
    """Whole floats as integers: 1.0 and 1 are the same setting."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def digest(problem: SSP) -> str:
    """A digest of a problem: its names and numbers, but not its metadata."""
    plain = problem.describe()
    total = sha256(json.dumps([*plain.state_names, None, *plain.action_names]).encode())
    pairs, moves = ("pair_state", "pair_action", "reward", "reward_sd"), ("next_start", "next_state", "next_prob")
    for name in ("goals", "initial_state", "initial_prob", *pairs, *moves):
        total.update(getattr(plain, name).tobytes())
    if (prior := plain.prior) is not None:
        total.update(json.dumps([prior.mean, prior.sd]).encode() + prior.pair_mean.tobytes() + prior.pair_sd.tobytes())
    return total.hexdigest()
