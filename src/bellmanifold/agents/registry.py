"""The agents a plan or a command can name, and what each of them can be told.

An `AgentKind` travels to worker processes by pickle, so `make` and `play_block` are functions of a module, not lambdas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bellmanifold.agents.episodes import Agent
from bellmanifold.errors import UnsupportedError
from bellmanifold.ssp import SSP

Value: TypeAlias = bool | int | float | str
Make: TypeAlias = Callable[[SSP, Mapping[str, Value]], Agent]


@dataclass(frozen=True)
class AgentKind:
    """One kind of agent.

    Attributes:
        options: what it can be told, by the names plans use ("epsilon" and "prior_scale" among them).
        needs_laws: whether it must be told the transition law of the pairs it has visited.
        make: builds the agent from a problem and values for (some of) its options.
    """

    options: frozenset[str]
    needs_laws: bool
    make: Make


def _not_yet(model: SSP, options: Mapping[str, Value]) -> Agent:
    raise UnsupportedError("this agent is not here yet: wait for a later version")


_PRIOR = ("epsilon", "prior_scale")
_NOISE = ("noise_sd", "infer_noise")


def _kind(*options: Sequence[str], needs_laws: bool = True) -> AgentKind:
    return AgentKind(frozenset(name for group in options for name in group), needs_laws, _not_yet)


AGENTS: dict[str, AgentKind] = {
    "bayes-br": _kind(_PRIOR, _NOISE, ("optimism", "method")),
    "manifold": _kind(("prior_scale", "optimism", "method")),
    "bayes-br-hmc": _kind(_PRIOR, _NOISE, ("optimism",)),
    "bayes-td": _kind(_PRIOR),
    "bayes-td-en": _kind(_PRIOR, ("members",)),
    "bayes-td-max": _kind(_PRIOR),
    "psrl": _kind(needs_laws=False),
    "rlsvi": _kind(("prior_scale",), needs_laws=False),
    "q-learning": _kind(needs_laws=False),
}
"""Every agent by its name on the command line."""
