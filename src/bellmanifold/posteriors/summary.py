"""What a posterior says, whichever engine computed it: probabilities with standard errors, moments, diagnostics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.errors import BadInputError, quote
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
MOST_IMPROPER = 0.5
"""Improper policies that hold more of the posterior than this are warned of."""
MANY_SDS = 4.0
"""Values further than this from their prior mean, in prior standard deviations, contradict the prior."""


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
        flat = "the prior is flat over rewards, and only proper policies count" if self.target.prior.flat else ""
        return "; ".join(part for part in (self.result.reason, flat, *self.result.doubts, self.result.stopped) if part)

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
        known_proper = self.target.is_exact or self.target.proper_only or self.target.laws is not None
        if known_proper or not self.target.improper_loops:
            return EXACT
        return improper_mass(self.target.model, self.table, self.target.observed)

    @cached_property
    def improper_mass_model(self) -> Estimate | None:
        """Probability that the greedy policy is improper under the problem's true transitions; None if any is open."""
        model, no_law = self.target.model, self.target.no_law
        if self.target.laws is not None or (no_law is not None and no_law.any()):
            return None
        known_proper = (self.target.is_exact or self.target.proper_only) and self.target.observed.all()
        if known_proper or not end_components(model):
            return EXACT
        return improper_mass_model(model, self.table, np.random.default_rng(0))

    @cached_property
    def warnings(self) -> list[str]:
        """What a reader should know before believing the numbers, most important first."""
        found = [f"not to be trusted: {doubt}" for doubt in self.result.doubts]
        found += [self._contradiction()] if self._contradiction() else []
        known = self.improper_mass
        if known.value > MOST_IMPROPER:
            found.append(
                f"policies that are known to miss the goal hold {float(known.value):.0%} of the posterior: "
                "--proper-only leaves them out"
            )
        best = self.routes[0] if self.routes else None
        if best is not None and not best.ends_at_goal:
            found.append("the most probable route is a loop: --proper-only leaves loops out that are known to be such")
        return found

    def _contradiction(self) -> str:
        """Where observed values lie many prior standard deviations from their prior mean, in words."""
        target, prior = self.target, self.target.prior
        if prior.flat or not target.observed.any():
            return ""
        away = np.where(target.observed, np.nan_to_num(np.abs(prior.standardised(self.q_mean))), 0.0)
        pair = int(np.argmax(away))
        if away[pair] <= MANY_SDS:
            return ""
        state, action = (quote(name) for name in target.model.pair_name(pair))
        values = self.q_mean[target.observed]
        middle, spread = float(np.median(values)), float(np.abs(values - np.median(values)).max())
        return (
            f"the data contradict the prior: the value of ({state}, {action}) is about {self.q_mean[pair]:.3g}, "
            f"{away[pair]:.0f} prior standard deviations from its prior mean {prior.mean[pair]:.3g}: "
            f"--prior-mean {middle:.2g} --prior-scale {max(spread, abs(middle)):.2g} would not"
        )

    def pies(self) -> tuple[Float[np.ndarray, "pairs"], Bool[np.ndarray, "pairs"]]:
        """For pictures: the probability of each pair, and which pairs were seen."""
        return self.action_probability.value, self.target.observed

    def best_pairs(self) -> Bool[np.ndarray, "pairs"]:
        """For pictures: the pairs of the most probable route, or what the most probable actions play from the start on.

        The latter where transitions are random, so that there are no routes.
        """
        model = self.target.model
        best = np.zeros(model.n_pairs, dtype=bool)
        if self.routes is not None:
            best[list(self.routes[0].pairs if self.routes else ())] = True
            return best
        greedy = np.zeros(model.n_pairs, dtype=bool)
        greedy[model.greedy(self.action_probability.value)] = True
        played = model.initial > 0
        while (greedy & played[model.pair_state] & ~best).any():
            best = greedy & played[model.pair_state]
            ahead = model.next_state[best[model.next_pair]]
            played[ahead[ahead < model.n_states]] = True
        return best

    @cached_property
    def draws(self) -> xarray.Dataset:
        """Draws of all action values with their weights, as an xarray data set; see `bellmanifold.posteriors.draws`."""
        if self.result.draws is not None:
            return self.result.draws()
        from bellmanifold.posteriors.draws import as_dataset, point_draws, posterior_draws

        if self.result.points is None or self.target.noise_scale is not None:
            return posterior_draws(self.target, self.budget)
        q = point_draws(self.target, self.result.points, self.budget.seed)
        return as_dataset(self.target.model, q, np.full(len(q), 1.0 / len(q)), np.zeros((0, len(q))))

    def to_dict(self) -> dict[str, Any]:
        """The `posterior` object of the interface."""
        model = self.target.model
        evidence, effective = self.log_evidence, self.effective_sample_size
        result: dict[str, Any] = {"warnings": self.warnings} if self.warnings else {}
        result |= {
            "engine": self.engine,
            "reason": self.reason,
            "trustworthy": self.trustworthy,
            "epsilon": self.epsilon,
            "prior_scale": "flat" if self.target.prior.flat else self.target.prior.scale,
            "prior_mean": float(self.target.prior.mean.mean()),
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
                    "ends": self._end(route),
                    **_probability(route.probability, route.se),
                }
                for route in self.routes
            ]
        if self.target.laws is not None and self.result.laws is not None:
            mean, sd = self.result.laws.concentration
            result |= {"laws": self._laws(), "concentration": {"mean": _finite(mean), "sd": _finite(sd)}}
        return result | {
            "q_mean": model.by_name([_finite(m) for m in self.q_mean]),
            "q_sd": model.by_name([_finite(s) for s in self.q_sd]),
            "improper_mass": _probability(*(float(x) for x in _arrays(self.improper_mass))),
            "improper_mass_model": None
            if self.improper_mass_model is None
            else _probability(*(float(x) for x in _arrays(self.improper_mass_model))),
            "diagnostics": {
                name: _finite(value) if isinstance(value, float) else value for name, value in self.diagnostics.items()
            },
        }

    def _end(self, route: Route) -> str:
        """How a route ends: at the goal, in a loop, or at a pair of which nobody knows where it leads."""
        no_law = self.target.no_law
        if no_law is not None and no_law[route.pairs[-1]]:
            return "open"
        return "goal" if route.ends_at_goal else "loop"

    def _laws(self) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
        """Posterior means of open laws: state -> action -> next that was seen -> mean and standard error."""
        open_laws, found = self.target.laws, self.result.laws
        assert open_laws is not None, "only asked where laws are open"
        assert found is not None, "then every engine reports them"
        table: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
        for row, landing, mean, se in zip(*open_laws.seen, *_arrays(found.probability), strict=True):
            state, action = self.target.model.pair_name(open_laws.pairs[row])
            name = self.target.model.state_name(landing)
            table.setdefault(state, {}).setdefault(action, {})[name] = {"mean": float(mean), "se": float(se)}
        return table

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
