"""What a posterior says, whichever engine computed it: probabilities with standard errors, moments, diagnostics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.errors import BadInputError
from bellmanifold.graph import end_components
from bellmanifold.posteriors.findings import Findings
from bellmanifold.posteriors.policies import (
    Estimate,
    PolicyTable,
    Route,
    action_probabilities,
    improper_mass,
    improper_mass_model,
    most_probable_routes,
    policy_probability,
)
from bellmanifold.posteriors.target import Target

if TYPE_CHECKING:
    import xarray

EXACT = Estimate.of(0.0, 0.0)

ACCURACY = 1e-3
"""Every reported probability is computed to this standard error, unless a number of samples is asked for."""


@dataclass(frozen=True, eq=False)
class Summary:
    """The answers of one posterior.

    Attributes:
        target: the posterior.
        findings: what the engine found: weighted policies, moments, evidence.
        engine: which engine computed it.
        reason: why that one.
        dimension: coordinates integrated over.
        effective_sample_size: None where the engine has none.
        trustworthy: False if a diagnostic says not to trust the numbers.
        diagnostics: whatever else the engine measured.
        top: how many routes are reported.
        proper_only: the posterior was restricted to parameters not known to be improper.
        seed: fixes the draws.
        own_draws: makes `draws` where the engine has drawn the action values itself; None: the chart draws them.
    """

    target: Target
    findings: Findings
    engine: str
    reason: str
    dimension: int
    effective_sample_size: float | None = None
    trustworthy: bool = True
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    top: int = 1000
    proper_only: bool = False
    seed: int = 0
    own_draws: Callable[[], xarray.Dataset] | None = None

    def labelled(self, top: int, proper_only: bool, seed: int) -> Summary:
        """The same with other labels; answers that have been computed are kept."""
        labelled = replace(self, top=top, proper_only=proper_only, seed=seed)
        kept = {"action_probability"} | ({"routes"} if top == self.top else set())
        labelled.__dict__.update({name: value for name, value in self.__dict__.items() if name in kept})
        return labelled

    @property
    def epsilon(self) -> float | None:
        """The tolerance of the relaxed likelihood; 0 is the exact posterior, None one for noisy rewards."""
        return self.target.epsilon

    @property
    def table(self) -> PolicyTable:
        """Greedy policies with their weights."""
        return self.findings.table

    @property
    def q_mean(self) -> Float[np.ndarray, "pairs"]:
        """Posterior means of the action values."""
        return self.findings.q_mean.value

    @property
    def q_sd(self) -> Float[np.ndarray, "pairs"]:
        """Posterior standard deviations of the action values."""
        return self.findings.q_sd

    @property
    def log_evidence(self) -> Estimate | None:
        """The log evidence; None where the engine has none."""
        return self.findings.log_evidence

    @cached_property
    def action_probability(self) -> Estimate:
        """For each pair, the probability that it is optimal in its state."""
        return action_probabilities(self.target.model, self.table)

    @cached_property
    def routes(self) -> list[Route] | None:
        """The most probable routes; None unless transitions are deterministic and there is one initial state."""
        model = self.target.model
        if not model.is_deterministic or np.count_nonzero(model.initial) != 1:
            return None
        return most_probable_routes(model, self.table, self.top)

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
        errors = [float(self.action_probability.se.max(initial=0.0))]
        errors += [route.se for route in self.routes or []]
        return max(errors)

    @cached_property
    def improper_mass(self) -> Estimate:
        """Probability that the greedy policy is improper, unobserved pairs taken to end at the goal."""
        known_proper = self.target.is_exact or self.proper_only
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
        """What a picture needs: the probability of each pair, and which pairs were seen."""
        return self.action_probability.value, self.target.observed

    @cached_property
    def draws(self) -> xarray.Dataset:
        """Draws of all action values with their weights, as an xarray data set; see `bellmanifold.posteriors.draws`."""
        if self.own_draws is not None:
            return self.own_draws()
        from bellmanifold.posteriors.inference import posterior_draws

        return posterior_draws(self.target, self.proper_only, self.seed)

    def to_dict(self) -> dict[str, Any]:
        """The `posterior` object of the interface."""
        model = self.target.model
        evidence, effective = self.log_evidence, self.effective_sample_size
        result: dict[str, Any] = {
            "engine": self.engine,
            "reason": self.reason,
            "trustworthy": self.trustworthy,
            "epsilon": self.epsilon,
            "prior_scale": self.target.prior_scale,
            "observed_pairs": int(self.target.observed.sum()),
            "dimension": self.dimension,
            "log_evidence": None if evidence is None else _finite(evidence.value),
            "log_evidence_se": None if evidence is None else _finite(evidence.se),
            "effective_sample_size": None if effective is None else _finite(effective),
            "actions": self._by_pair(
                [_probability(p, se) for p, se in zip(*_arrays(self.action_probability), strict=True)]
            ),
        }
        if self.epsilon is None:
            result["noise"] = {"law": str(self.target.law), **self._noise_scale()}
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
            "q_mean": self._by_pair([_finite(m) for m in self.q_mean]),
            "q_sd": self._by_pair([_finite(s) for s in self.q_sd]),
            "improper_mass": _probability(*(float(x) for x in _arrays(self.improper_mass))),
            "improper_mass_model": _probability(*(float(x) for x in _arrays(self.improper_mass_model))),
            "diagnostics": {
                name: _finite(value) if isinstance(value, float) else value for name, value in self.diagnostics.items()
            },
        }

    def _noise_scale(self) -> dict[str, float | None]:
        inferred = self.findings.noise_scale
        if inferred is not None:
            return {"mean": _finite(inferred[0]), "sd": _finite(inferred[1])}
        return {"mean": self.target.noise_sd, "sd": 0.0}

    def _by_pair(self, values: list[Any]) -> dict[str, dict[str, Any]]:
        model = self.target.model
        result: dict[str, dict[str, Any]] = {state: {} for state in model.states}
        for i, value in enumerate(values):
            state, action = model.pair_name(i)
            result[state][action] = value
        return result


def _arrays(estimate: Estimate) -> tuple[np.ndarray, np.ndarray]:
    return estimate.value, estimate.se


def _probability(value: float, se: float) -> dict[str, float]:
    return {"probability": min(1.0, max(0.0, float(value))), "se": float(se)}


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if np.isfinite(number) else None
