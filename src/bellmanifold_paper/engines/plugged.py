"""The paper's engines as the library takes them: functions of a target, a budget and the reason why they run."""

from __future__ import annotations

from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.result import Result
from bellmanifold.posteriors.target import Target


def mixture(target: Target, budget: Budget, reason: str) -> Result:
    """Proposition 1, cell by cell."""
    from bellmanifold_paper.engines.mixture import mixture as run

    return run(target, budget, reason)


def rejection(target: Target, budget: Budget, reason: str) -> Result:
    """Draws from the prior, of which those that satisfy the observed equations are kept."""
    from bellmanifold_paper.engines.rejection import rejection as run

    return run(target, seed=budget.seed)


def hmc(target: Target, budget: Budget, reason: str) -> Result:
    """Hamiltonian Monte Carlo as the paper ran it."""
    from bellmanifold_paper.engines.gradient import by_gradient

    return by_gradient(target, "hmc", budget, reason)


def nuts(target: Target, budget: Budget, reason: str) -> Result:
    """BlackJAX's no-U-turn sampler."""
    from bellmanifold_paper.engines.gradient import by_gradient

    return by_gradient(target, "nuts", budget, reason)
