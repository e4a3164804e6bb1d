"""What a posterior says, whichever engine computed it: probabilities with standard errors, moments, diagnostics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.errors import BadInputError
from bellmanifold.graph import end_components
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.policies import (
    Estimate,
    PolicyTable,
    Route,
    action_probabilities,
    has_routes,
    improper_mass,
    improper_mass_model,
    most_probable_routes,
    policy_probability,
)
from bellmanifold.posteriors.result import Result
from bellmanifold.posteriors.target import Target

if TYPE_CHECKING:
    import xarray

EXACT = Estimate.of(0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Summary:
    """The answers of one posterior.

    Attributes:
        target: the posterior.
        result: what the engine found: weighted policies, moments, evidence, and how far to trust them.
        budget: bounded the work; says how many routes are reported, and fixes the draws.
    """

    target: Target
    result: Result
    budget: Budget

    @property
    def engine(self) -> str:
        """Which engine computed it."""
        return self.result.engine

    @property
    def reason(self) -> str:
        """Why that one, what casts doubt on it, and why it stopped."""
        return "; ".join(part for part in (self.result.reason, *self.result.doubts, self.result.stopped) if part)

    @property
    def trustworthy(self) -> bool:
        """False if a diagnostic says not to trust the numbers."""
        return self.result.trustworthy

    @property
    def dimension(self) -> int:
        """Coordinates integrated over."""
        return self.result.dimension

    @property
    def effective_sample_size(self) -> float | None:
        """None where the engine has none."""
        return self.result.effective_sample_size

    @property
    def diagnostics(self) -> Mapping[str, Any]:
        """Whatever else the engine measured."""
        return self.result.diagnostics

    @property
    def epsilon(self) -> float | None:
        """The tolerance of the relaxed likelihood; 0 is the exact posterior, None one for noisy rewards."""
        return self.target.epsilon

    @property
    def table(self) -> PolicyTable:
        """Greedy policies with their weights."""
        return self.result.table

    @property
    def q_mean(self) -> Float[np.ndarray, "pairs"]:
        """Posterior means of the action values."""
        return self.result.q_mean.value

    @property
    def q_sd(self) -> Float[np.ndarray, "pairs"]:
        """Posterior standard deviations of the action values."""
        return self.result.q_sd

    @property
    def log_evidence(self) -> Estimate | None:
        """The log evidence; None where the engine has none."""
        return self.result.log_evidence

    @cached_property
    def action_probability(self) -> Estimate:
        """For each pair, the probability that it is optimal in its state."""
        return action_probabilities(self.target.model, self.table)

    @cached_property
    def routes(self) -> list[Route] | None:
        """The most probable routes; None unless transitions are deterministic and there is one initial state."""
        model = self.target.model
        return most_probable_routes(model, self.table, self.budget.top) if has_routes(model) else None

    def policy_probability(self, policy: Int[np.ndarray, "states"]) -> Estimate:
        """The probability that a policy (the pair each state plays) is optimal.

        Raises:
            BadInputError: if it is not one pair of each state.
        """
        model = self.target.model
        first, after = model.pair_start[:-1], model.pair_start[1:]
        if len(policy) != model.n_states or not ((first <= policy) & (policy < after)).all():
            raise BadInputError(f"the policy does not name one pair of each of the {model.n_states} states")
        return policy_probability(self.target.model, self.table, policy)

    @property
    def largest_error(self) -> float:
        """The largest standard error of the action and route probabilities."""
        return max([float(self.action_probability.se.max(initial=0.0)), *(route.se for route in self.routes or [])])

    @cached_property
    def improper_mass(self) -> Estimate:
        """Probability that the greedy policy is improper, unobserved pairs taken to end at the goal."""
        known_proper = self.target.is_exact or self.target.proper_only
        if known_proper or not self.target.loops:
            return EXACT
        return improper_mass(self.target.model, self.table, self.target.observed)

    @cached_property
    def improper_mass_model(self) -> Estimate:
        """Probability that the greedy policy is improper under the problem's true transitions."""
        model = self.target.model
        if not end_components(model):
            return EXACT
        return improper_mass_model(model, self.table, np.random.default_rng(0))

    def pies(self) -> tuple[Float[np.ndarray, "pairs"], Bool[np.ndarray, "pairs"]]:
        """For pictures: the probability of each pair, and which pairs were seen."""
        return self.action_probability.value, self.target.observed

    @cached_property
    def draws(self) -> xarray.Dataset:
        """Draws of all action values with their weights, as an xarray data set; see `bellmanifold.posteriors.draws`."""
        if self.result.draws is not None:
            return self.result.draws()
        from bellmanifold.posteriors.draws import posterior_draws

        return posterior_draws(self.target, self.budget)

    def to_dict(self) -> dict[str, Any]:
        """The `posterior` object of the interface."""
        model = self.target.model
        evidence, effective = self.log_evidence, self.effective_sample_size
        result: dict[str, Any] = {
            "engine": self.engine,
            "reason": self.reason,
            "trustworthy": self.trustworthy,
            "epsilon": self.epsilon,
            "prior_scale": self.target.prior.scale,
            "observed_pairs": int(self.target.observed.sum()),
            "dimension": self.dimension,
            "log_evidence": None if evidence is None else _finite(evidence.value),
            "log_evidence_se": None if evidence is None else _finite(evidence.se),
            "effective_sample_size": None if effective is None else _finite(effective),
            "actions": model.by_name(
                [_probability(p, se) for p, se in zip(*_arrays(self.action_probability), strict=True)]
            ),
        }
        if self.epsilon is None:
            result["noise"] = {"law": str(self.target.kernel), **self._noise_scale()}
        if self.routes is not None:
            result["routes"] = [
                {
                    "pairs": [list(model.pair_name(i)) for i in route.pairs],
                    "ends": "goal" if route.ends_at_goal else "loop",
                    **_probability(route.probability, route.se),
                }
                for route in self.routes
            ]
        return result | {
            "q_mean": model.by_name([_finite(m) for m in self.q_mean]),
            "q_sd": model.by_name([_finite(s) for s in self.q_sd]),
            "improper_mass": _probability(*(float(x) for x in _arrays(self.improper_mass))),
            "improper_mass_model": _probability(*(float(x) for x in _arrays(self.improper_mass_model))),
            "diagnostics": {
                name: _finite(value) if isinstance(value, float) else value for name, value in self.diagnostics.items()
            },
        }

    def _noise_scale(self) -> dict[str, float | None]:
        inferred = self.result.noise_scale
        if inferred is not None:
            return {"mean": _finite(inferred[0]), "sd": _finite(inferred[1])}
        return {"mean": self.target.noise_sd, "sd": 0.0}


def _arrays(estimate: Estimate) -> tuple[np.ndarray, np.ndarray]:
    return estimate.value, estimate.se


def _probability(value: float, se: float) -> dict[str, float]:
    return {"probability": min(1.0, max(0.0, float(value))), "se": float(se)}


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if np.isfinite(number) else None
