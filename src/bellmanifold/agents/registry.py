"""Agents by name: the settings record of each (`bellmanifold.agents.settings`), and what it requires of a problem.

To add an agent, write it in a file of its own as a class that takes a problem and a settings record, declare its
options in that record, and add an entry to `KINDS`, where `learn` and plans find it. Its module is imported only
when an agent is made. Another package plugs its agents in by the entry point `bellmanifold.agents`: an `AgentKind`, or
anything that `kind_of` takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Any

from bellmanifold._util.limits import NUMBERS
from bellmanifold._util.plugins import load, names
from bellmanifold.agents import settings as records
from bellmanifold.agents.agent import Agent
from bellmanifold.agents.environments import World, open_world
from bellmanifold.agents.settings import NOISE, Option, Options, Value, options_of
from bellmanifold.errors import BadInputError, UnsupportedError, count_of, kind_of_value, quote
from bellmanifold.problem.ssp import SSP

NUMBERS_OF_DRAW = 1000
"""Upper bound on the numbers that a draw stores in addition to its action values."""
WIDTH = 10
"""Number of runs in a block, with seeds 10 k, ..., 10 k + 9. Changing it changes the last bits of runs in blocks."""


@dataclass(frozen=True)
class AgentKind:
    """A kind of agent.

    Attributes:
        name: its name on the command line and in plans.
        about: a short description.
        settings: the record that declares its options (`bellmanifold.agents.settings`).
        make: builds an agent from a problem and such a record: its class, or another callable that can be pickled.
        fixed: fields of the record that are not options of this kind, with their values.
        needs_laws: whether it uses the transition laws of visited pairs; if not, it is not shown them.
        needs_problem: whether it is given the whole problem, as a user's own agent is.
        needs_exact_rewards: whether it takes every reward to be the pair's expected reward.
        own_order: whether the actions keep the problem's order, because the agent was made for it.
        make_block: for agents whose runs are played in lockstep by one program: builds the agents of a block of runs
            from the problem in each run's order, the settings and the runs' seeds.
    """

    name: str
    about: str
    settings: Callable[..., Any]
    make: Callable[[SSP, Any], Agent]
    fixed: Options = field(default_factory=dict)
    needs_laws: bool = True
    needs_problem: bool = False
    needs_exact_rewards: bool = False
    own_order: bool = False
    make_block: Callable[[Sequence[SSP], Any, Sequence[int]], Sequence[Agent]] | None = None

    @property
    def options(self) -> dict[str, Option]:
        """Its options, by name."""
        return {name: option for name, option in options_of(self.settings).items() if name not in self.fixed}

    @property
    def width(self) -> int:
        """Number of runs played in lockstep: a whole block, or one."""
        return 1 if self.make_block is None else WIDTH

    def build(self, model: SSP, given: Options) -> Agent:
        return self.make(self.as_shown(model, given), self.settings_for(model, given))

    def as_shown(self, model: SSP, given: Options) -> SSP:
        """The problem as this agent is given it: without laws and rewards, unless it is shown those of played pairs."""
        return model if self.is_shown_laws(given) else model.opened()

    def is_shown_laws(self, given: Options) -> bool:
        """Whether such an agent is shown the law of every pair it plays."""
        told = self.needs_laws and self.resolve_options(given).get("laws", "known") == "known"
        return told or self.needs_problem

    def settings_for(self, model: SSP, given: Options) -> Any:
        """Its settings record: options as given, otherwise as the problem states them, otherwise the defaults."""
        options = options_of(self.settings)
        values = self.resolve_options(self.with_stated(model, given))
        return self.settings(**self.fixed, **{name: options[name].convert(value) for name, value in values.items()})

    def with_stated(self, model: SSP, given: Options) -> Options:
        """The given options, completed by what the problem states about the prior of all action values."""
        told = model.prior
        stated = {} if told is None else {"prior_scale": told.sd, "prior_mean": told.mean}
        stated = {name: value for name, value in stated.items() if name in self.options and value is not None}
        return stated | {name: value for name, value in given.items() if value is not None}

    def resolve_options(self, given: Options) -> dict[str, Value]:
        """The value of every option: as given (None means not given), otherwise the default.

        Raises:
            BadInputError: for an option it does not have, or an invalid value.
        """
        options = self.options
        chosen = {name: value for name, value in given.items() if value is not None}
        for name, value in chosen.items():
            if name not in options:
                has = ", ".join(options) or "no options"
                able = ", ".join(other.name for other in every_agent() if name in other.options)
                other = f", or use one that has it: {able}" if able else ""
                raise BadInputError(f"{self.name} has no option {quote(name)}: it has {has}; leave it out{other}")
            if not options[name].allows(value):
                shown = quote(value) if isinstance(value, str) else value
                raise BadInputError(f"{name} is {shown}: give {options[name].wanted}")
        rivals = [name for name in ("epsilon", *NOISE) if chosen.get(name, False) is not False]
        if len(rivals) > 1:
            raise BadInputError(f"{' and '.join(rivals)} exclude each other: noise replaces the tolerance; give one")
        return {name: chosen.get(name, option.default) for name, option in options.items()}


def kind_of(agent: Any) -> AgentKind:
    """The kind of an agent given by name, or of a user's own agent.

    Args:
        agent: a name; an object with `policy` and `observe` (`bellmanifold.agents.agent.Agent`), of which every run
            uses a copy; or a class or function that makes one from a problem.

    Raises:
        BadInputError: for anything else.
    """
    if isinstance(agent, AgentKind):
        return agent
    if isinstance(agent, str):
        return find_agent(agent)
    own = ("your own", records.PlanSettings)
    if isinstance(agent, Agent) and not isinstance(agent, type):
        name = type(agent).__name__
        _require_agent(agent, "the agent")
        return AgentKind(name, *own, partial(_copy_of, agent), needs_laws=False, needs_problem=True, own_order=True)
    if callable(agent):
        name = str(getattr(agent, "__name__", type(agent).__name__))
        return AgentKind(name, *own, partial(_made, agent), needs_laws=False, needs_problem=True)
    raise BadInputError(
        f"agent is {kind_of_value(agent)}: give a name ({', '.join(agent_names()[:3])}, ...), an object with "
        "policy(rng) and observe(pairs, rewards), or a class whose objects have these methods"
    )


def _takes(call: Callable[..., Any], number: int) -> bool:
    """Whether it can be called with this many arguments; True if that is unknown."""
    try:
        signature(call).bind(*range(number))
    except ValueError:  # it has no signature
        return True
    except TypeError:
        return False
    return True


def _require_agent(agent: Any, what: str) -> None:
    """Raise unless the object has the methods `policy` and `observe` with the right numbers of arguments."""
    remedy = "give it the methods policy(rng) and observe(pairs, rewards)"
    if not isinstance(agent, Agent):
        raise BadInputError(f"{what} is {kind_of_value(agent)}: {remedy}")
    for method, number in (("policy", 1), ("observe", 2)):
        if not _takes(getattr(agent, method), number):
            raise BadInputError(f"the method {method} of {what} does not take {count_of(number, 'argument')}: {remedy}")


def _copy_of(agent: Agent, model: SSP, settings: Any) -> Agent:
    return deepcopy(agent)


def _made(make: Callable[[SSP], Any], model: SSP, settings: Any) -> Agent:
    if not _takes(make, 1):
        raise BadInputError("the agent cannot be made from a problem: give a class or a function that takes it alone")
    agent = make(model)
    _require_agent(agent, "the agent that was made")
    return agent


def make_agent(kind: str | AgentKind, problem: Any, options: Options | None = None) -> Agent:
    """Build an agent for a problem.

    Args:
        kind: its name or its entry in `AGENTS`.
        problem: an `SSP`, a Gymnasium environment or a `World`.
        options: values of its options; missing ones and None stand for the defaults.

    Raises:
        BadInputError: for an unknown agent, option or value.
        UnsupportedError: if this agent cannot learn the problem.

    >>> from bellmanifold import envs
    >>> make_agent("bayes-td", envs.two_state(), {"epsilon": 0.1}).settings.epsilon
    0.1
    """
    kind = kind_of(kind)
    world = open_world(problem)
    check_supported(kind, world, options or {})
    return kind.build(world.model, options or {})


def check_supported(kind: AgentKind, world: World, given: Options) -> None:
    """Raise if the agent with these options cannot learn this problem; the message names one that can."""
    name, resolved = world.model.name, kind.resolve_options(given)
    noise = any(resolved.get(name) not in (None, False) for name in NOISE)
    if "members" in resolved:
        NUMBERS.require(int(resolved["members"] or 1) * (world.model.n_pairs + NUMBERS_OF_DRAW), "members")
    exact = kind.needs_exact_rewards or (resolved.get("epsilon") == 0.0 and not noise)
    laws = resolved.get("laws", "known")
    if resolved.get("concentration") is not None and resolved.get("laws") not in (None, "dirichlet"):
        raise BadInputError("concentration is that of a Dirichlet prior: give --laws dirichlet too, or leave it out")
    if kind.needs_laws and laws == "known" and not world.has_laws:
        able = ", ".join(other.name for other in every_agent() if not other.needs_laws)
        learns = "--laws deterministic or --laws dirichlet, or " if "laws" in resolved else ""
        raise UnsupportedError(
            f"{kind.name} needs the transition laws of what it visited, and {quote(name)} has no table P: "
            f"use {learns}{able}"
        )
    if exact and world.has_laws and (world.model.reward_sd > 0).any():
        raise UnsupportedError(
            f"{kind.name} takes rewards to be exact, and rewards of {quote(name)} are noisy (reward_sd): "
            "use bayes-br with --noise-sd or --infer-noise"
        )


def call(module: str, name: str, *arguments: Any) -> Any:
    """Import a module and call its class or function of this name."""
    return getattr(import_module(module), name)(*arguments)


def _kind(name: str, about: str, settings: Callable[..., Any], path: str, **more: Any) -> AgentKind:
    module, maker = path.split(".")
    return AgentKind(name, about, settings, partial(call, f"bellmanifold.agents.{module}", maker), **more)


KINDS = (
    _kind(
        "bayes-br",
        "Thompson sampling from the relaxed posterior",
        records.SamplingSettings,
        "posterior_sampling.PosteriorSampling",
    ),
    _kind(
        "manifold",
        "Thompson sampling from the exact posterior",
        records.SamplingSettings,
        "posterior_sampling.PosteriorSampling",
        fixed={"epsilon": 0.0, "noise_sd": None, "infer_noise": False},
        needs_exact_rewards=True,
    ),
    _kind(
        "psrl",
        "solves a problem drawn from a Dirichlet posterior over the laws",
        records.PSRLSettings,
        "psrl.PSRL",
        needs_laws=False,
    ),
    _kind("rlsvi", "randomised least-squares value iteration", records.RLSVISettings, "rlsvi.RLSVI", needs_laws=False),
    _kind(
        "q-learning",
        "epsilon-greedy Q-learning from an optimistic start",
        records.QLearningSettings,
        "q_learning.QLearning",
        needs_laws=False,
    ),
    _kind("ucb-q", "Q-learning with upper confidence bounds", records.UCBQSettings, "ucb_q.UCBQ", needs_laws=False),
    _kind(
        "nearest", "the shortest way to an unseen pair, without a posterior", records.PlanSettings, "nearest.Nearest"
    ),
)
AGENTS: dict[str, AgentKind] = {kind.name: kind for kind in KINDS}
"""Name -> kind of agent: the library's own, and those that are plugged in as far as they were asked for."""


def find_agent(name: str) -> AgentKind:
    """The kind of agent with the given name, the library's own or one that is plugged in.

    Raises:
        BadInputError: if there is none of this name.
        UnsupportedError: if the package that has it is not installed, or cannot be imported.
    """
    if name not in AGENTS:
        if name not in names("agent"):
            raise BadInputError(f"unknown agent {quote(name)}: choose from {', '.join(agent_names())}")
        found = load("agent", name)
        if not isinstance(found, AgentKind):
            found = replace(kind_of(found), name=name)
        AGENTS[name] = found
    return AGENTS[name]


def agent_names() -> list[str]:
    """The names of all agents that can be asked for."""
    return list(dict.fromkeys([*(kind.name for kind in KINDS), *names("agent"), *AGENTS]))


def every_agent() -> list[AgentKind]:
    """The kinds of all agents that are here: the library's own, and plug-ins that can be imported."""
    for name in names("agent"):
        with suppress(UnsupportedError):
            find_agent(name)
    return list(AGENTS.values())
