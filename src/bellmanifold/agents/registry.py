"""Agents by name: which options each has, with their defaults, and what it needs of a problem.

To add an agent, write it in a file of its own and give it an entry in `AGENTS`; `learn` and plans find it there. Its
module is imported only when it is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from bellmanifold.agents.episodes import Agent
from bellmanifold.agents.worlds import World, open_world
from bellmanifold.errors import BadInputError, UnsupportedError, quote
from bellmanifold.limits import NUMBERS
from bellmanifold.ssp import SSP

Value: TypeAlias = bool | int | float | str | None
Options: TypeAlias = Mapping[str, Value]
"""Option name -> value; None means not given."""

NUMBERS_OF_DRAW = 1000
"""What a draw takes besides its action values, at most."""
LARGEST = 1e100
"""Numbers are squared and multiplied on the way."""
WIDTH = 10
"""Runs in a block: those with seeds 10 k, ..., 10 k + 9. Changing it changes the last bits of runs in blocks."""
MEMBERS = 100
"""Samples of `bayes-td-en`: the paper's number for deterministic problems (it takes 10 for the stochastic one)."""


@dataclass(frozen=True)
class Option:
    """One option of an agent.

    Attributes:
        default: its value unless given.
        allows: is this value sound?
        wanted: what to say if it is not.
    """

    default: Value
    allows: Callable[[Any], bool]
    wanted: str


@dataclass(frozen=True)
class AgentKind:
    """A kind of agent.

    Attributes:
        name: what the command line and plans call it.
        about: what it is, in a few words.
        options: the options it has.
        make: builds one for a problem with some of its options; a function of a module, so that kinds can be pickled.
        needs_laws: does it use the transition laws of visited pairs?
        needs_exact_rewards: does it take every reward for the pair's expected reward?
        make_block: for agents whose runs are played in step by one program: builds those of a block of runs, from the
            problem in each run's order, the options and the runs' seeds.
    """

    name: str
    about: str
    options: Mapping[str, Option]
    make: Callable[[SSP, Options], Agent]
    needs_laws: bool = True
    needs_exact_rewards: bool = False
    make_block: Callable[[Sequence[SSP], Options, Sequence[int]], Sequence[Agent]] | None = None

    @property
    def width(self) -> int:
        """How many runs are played in step: all of a block, or one at a time."""
        return 1 if self.make_block is None else WIDTH

    def build(self, model: SSP, given: Options) -> Agent:
        """Build one with the given options and the defaults of the others."""
        return self.make(model, self.settle(given))

    def settle(self, given: Options) -> dict[str, Value]:
        """The value of every option: those given (None means not given), the defaults of the others.

        Raises:
            BadInputError: for an option it does not have, or a value that makes no sense.
        """
        chosen = {name: value for name, value in given.items() if value is not None}
        for name, value in chosen.items():
            if name not in self.options:
                has = ", ".join(self.options) or "no options"
                raise BadInputError(f"{self.name} has no option {quote(name)}: it has {has}; leave it out")
            if not self.options[name].allows(value):
                shown = quote(value) if isinstance(value, str) else value
                raise BadInputError(f"{name} is {shown}: give {self.options[name].wanted}")
        rivals = [name for name in ("epsilon", "noise_sd", "infer_noise") if chosen.get(name, False) is not False]
        if len(rivals) > 1:
            raise BadInputError(f"{' and '.join(rivals)} exclude each other: noise replaces the tolerance; give one")
        return {name: chosen.get(name, option.default) for name, option in self.options.items()}


def find_agent(name: str) -> AgentKind:
    """The kind of agent that has a name."""
    if name not in AGENTS:
        raise BadInputError(f"unknown agent {quote(name)}: choose from {', '.join(AGENTS)}")
    return AGENTS[name]


def make_agent(kind: str | AgentKind, problem: Any, options: Options | None = None) -> Agent:
    """Build an agent for a problem.

    Args:
        kind: its name or its entry in `AGENTS`.
        problem: an `SSP`, a Gymnasium environment or a `World`.
        options: values of its options; the defaults where they are missing or None.

    Raises:
        BadInputError: for an unknown agent, option or value.
        UnsupportedError: if the problem is not one this agent can learn.

    >>> from bellmanifold import envs
    >>> make_agent("bayes-td", envs.two_state(), {"epsilon": 0.1}).settings.epsilon
    0.1
    """
    kind = find_agent(kind) if isinstance(kind, str) else kind
    world = open_world(problem)
    refuse(kind, world, options or {})
    return kind.build(world.model, options or {})


def refuse(kind: AgentKind, world: World, given: Options) -> None:
    """Raise if the agent with these options cannot learn this problem, and name one that can."""
    name, settled = world.model.name, kind.settle(given)
    noise = settled.get("noise_sd") is not None or bool(settled.get("infer_noise"))
    for option in ("optimism", "members"):
        if option in settled:
            NUMBERS.require(int(settled[option] or 1) * (world.model.n_pairs + NUMBERS_OF_DRAW), option)
    exact = kind.needs_exact_rewards or (settled.get("epsilon") == 0.0 and not noise)
    if kind.needs_laws and not world.has_laws:
        able = ", ".join(other.name for other in AGENTS.values() if not other.needs_laws)
        raise UnsupportedError(
            f"{kind.name} needs the transition laws of what it visited, and {quote(name)} has no table P: use {able}"
        )
    if exact and world.has_laws and (world.model.reward_sd > 0).any():
        raise UnsupportedError(
            f"{kind.name} takes rewards to be exact, and rewards of {quote(name)} are noisy (reward_sd): "
            "use bayes-br --noise-sd"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and 1.0 / LARGEST <= value <= LARGEST


def _is_moderate(value: Any) -> bool:
    return _is_number(value) and 1e-6 <= value <= 1e6


def _is_not_negative(value: Any) -> bool:
    return value == 0 or _is_positive(value)


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def positive(default: float | None) -> Option:
    """An option that is a positive number."""
    return Option(default, _is_positive, "a positive number, at most 1e100 in size")


def moderate(default: float) -> Option:
    """An option that is a positive number whose square, and its inverse, stay far from rounding."""
    return Option(default, _is_moderate, "a number from 1e-6 to 1e6")


def whole(default: int) -> Option:
    """An option that is a whole number, at least 1."""
    return Option(default, _is_count, "a whole number, at least 1")


def share(default: float) -> Option:
    """An option that is a number from 0 to 1."""
    return Option(default, _is_share, "a number from 0 to 1")


SAMPLING = {
    "epsilon": Option(0.01, _is_not_negative, "a number that is not negative"),
    "prior_scale": positive(10.0),
    "noise_sd": positive(None),
    "optimism": whole(1),
}
"""Options of agents that draw action values from a posterior."""


def _settings(values: Options) -> dict[str, Any]:
    """Options as keyword arguments: numbers that are no counts as floats."""
    return {name: _as_float(value) if name not in ("optimism", "members") else value for name, value in values.items()}


def _as_float(value: Value) -> Value:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _bayes_td(model: SSP, values: Options) -> Agent:
    from bellmanifold.agents import bayes_td

    return bayes_td.BayesTD(model, bayes_td.plain, bayes_td.Settings(**_settings(values)))


def _bayes_td_max(model: SSP, values: Options) -> Agent:
    from bellmanifold.agents import bayes_td

    return bayes_td.BayesTD(model, bayes_td.maximal, bayes_td.Settings(**_settings(values)))


def _bayes_td_en(model: SSP, values: Options) -> Agent:
    from bellmanifold.agents import bayes_td

    settings = _settings(values)
    update = bayes_td.ensemble(settings.pop("members", MEMBERS))
    return bayes_td.BayesTD(model, update, bayes_td.Settings(**settings))


def _psrl(model: SSP, values: Options) -> Agent:
    from bellmanifold.agents.psrl import PSRL

    return PSRL(model, **_settings(values))


def _rlsvi(model: SSP, values: Options) -> Agent:
    from bellmanifold.agents.rlsvi import RLSVI

    return RLSVI(model, **_settings(values))


def _q_learning(model: SSP, values: Options) -> Agent:
    from bellmanifold.agents.q_learning import QLearning

    return QLearning(model, **_settings(values))


def _bayes_br(model: SSP, values: Options) -> Agent:
    from bellmanifold.agents.posterior_sampling import PosteriorSampling, Settings

    return PosteriorSampling(model, Settings(**_settings(values)))


def _manifold(model: SSP, values: Options) -> Agent:
    return _bayes_br(model, {**values, "epsilon": 0.0})


def _bayes_br_hmc(model: SSP, values: Options) -> Agent:
    from bellmanifold.agents.bayes_hmc import LoneHMC, Settings

    return LoneHMC(model, Settings(**_settings(values)))


def _block_of_hmc(models: Sequence[SSP], values: Options, seeds: Sequence[int]) -> Sequence[Agent]:
    from bellmanifold.agents.bayes_hmc import Settings, block_of_agents

    return block_of_agents(models, Settings(**_settings(values)), seeds)


METHOD = Option("B", ("A", "B").__contains__, "A (draw a route) or B (draw action values)")
KINDS = (
    AgentKind(
        "bayes-br",
        "Thompson sampling from the relaxed posterior",
        {**SAMPLING, "infer_noise": Option(False, _is_flag, "true or false"), "method": METHOD},
        _bayes_br,
    ),
    AgentKind(
        "manifold",
        "Thompson sampling from the exact posterior",
        {"prior_scale": positive(10.0), "optimism": whole(1), "method": METHOD},
        _manifold,
        needs_exact_rewards=True,
    ),
    AgentKind(
        "bayes-br-hmc",
        "the same by Hamiltonian Monte Carlo, as the paper ran it",
        {
            **SAMPLING,
            "epsilon": positive(0.01),
            "tuning": Option("paper", ("paper", "retuned").__contains__, "paper or retuned"),
        },
        _bayes_br_hmc,
        make_block=_block_of_hmc,
    ),
    AgentKind(
        "bayes-td",
        "Bayesian TD on the best of the previous means",
        SAMPLING,
        _bayes_td,
    ),
    AgentKind(
        "bayes-td-en",
        "Bayesian TD on an ensemble of previous samples",
        {**SAMPLING, "members": whole(MEMBERS)},
        _bayes_td_en,
    ),
    AgentKind(
        "bayes-td-max",
        "Bayesian TD on the previous mean of the best",
        SAMPLING,
        _bayes_td_max,
    ),
    AgentKind(
        "psrl",
        "solves a problem drawn from a Dirichlet posterior of the laws",
        {"noise_sd": moderate(1.0), "optimism": whole(1)},
        _psrl,
        needs_laws=False,
    ),
    AgentKind(
        "rlsvi",
        "randomised least-squares value iteration",
        {"prior_scale": moderate(1.0), "noise_sd": moderate(1.0), "optimism": whole(1)},
        _rlsvi,
        needs_laws=False,
    ),
    AgentKind(
        "q-learning",
        "epsilon-greedy Q-learning from an optimistic start",
        {
            "exploration": share(0.1),
            "step_size": share(0.5),
            "start_value": Option(1.0, _is_number, "a finite number"),
        },
        _q_learning,
        needs_laws=False,
    ),
)
AGENTS: dict[str, AgentKind] = {kind.name: kind for kind in KINDS}
"""Name -> kind of agent."""
