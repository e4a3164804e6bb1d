"""Agents that only the paper needs, as they are plugged in; their modules are imported only when an agent is made."""

from __future__ import annotations

from functools import partial

from bellmanifold.agents.registry import AgentKind, call
from bellmanifold.agents.settings import DrawSettings
from bellmanifold_paper.agents.settings import EnsembleSettings, HMCSettings

_HMC, _TD = "bellmanifold_paper.agents.bayes_hmc", "bellmanifold_paper.agents.bayes_td"

BAYES_BR_HMC = AgentKind(
    "bayes-br-hmc",
    "Thompson sampling from the relaxed posterior by Hamiltonian Monte Carlo, as the paper ran it",
    HMCSettings,
    partial(call, _HMC, "BayesHMC"),
    fixed={"replan": False},
    make_block=partial(call, _HMC, "block_of_agents"),
)
BAYES_TD = AgentKind(
    "bayes-td", "Bayesian TD on the best of the previous means", DrawSettings, partial(call, _TD, "BayesTD")
)
BAYES_TD_EN = AgentKind(
    "bayes-td-en",
    "Bayesian TD on an ensemble of previous samples",
    EnsembleSettings,
    partial(call, _TD, "BayesTDEnsemble"),
)
BAYES_TD_MAX = AgentKind(
    "bayes-td-max", "Bayesian TD on the previous mean of the best", DrawSettings, partial(call, _TD, "BayesTDMax")
)
