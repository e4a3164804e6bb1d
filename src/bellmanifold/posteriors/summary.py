"""What a posterior says, whichever engine computed it: probabilities with standard errors, moments, diagnostics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.display import MOST_ROWS, Card, Columns, Shown, Words, as_frame, measured, picture
from bellmanifold.errors import BadInputError, quote
from bellmanifold.graph import end_components
from bellmanifold.meter import metered
from bellmanifold.naming import find_pair
from bellmanifold.options import spoken
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.estimated import Estimate, PairEstimate
from bellmanifold.posteriors.leaks import heavy_tails
from bellmanifold.posteriors.ordering import by_doubt
from bellmanifold.posteriors.policies import (
    PolicyTable,
    action_probabilities,
    has_routes,
    improper_mass,
    improper_mass_model,
    most_probable_routes,
    policy_probability,
)
from bellmanifold.posteriors.result import Result
from bellmanifold.posteriors.route import Route, title_of_best
from bellmanifold.posteriors.target import Target

if TYPE_CHECKING:
    import pandas
    import xarray

EXACT = Estimate.of(0.0, 0.0)
MOST_IMPROPER = 0.5
"""Improper policies that hold more of the posterior than this are warned of."""
ROUNDING = 1e-6
"""A standard deviation that is smaller, relative to the mean, is not shown: nothing but rounding is left."""
MANY_SDS = 4.0
"""Values further than this from their prior mean, in prior standard deviations, contradict the prior."""


@dataclass(frozen=True, eq=False, repr=False)
class Summary(Shown):
    """The answers of one posterior. Every number that is estimated is an `Estimate`, with `value` and `se`.

    Attributes:
        target: the posterior.
        result: what the engine computed: weighted policies, moments, evidence, diagnostics.
        budget: limits of the computation, number of routes to report, and seed.
        remarks: further remarks on the data and the options.
        untried: pairs with a belief about them that were never tried, shape (pairs,); None if there are none.
    """

    target: Target
    result: Result
    budget: Budget
    remarks: tuple[str, ...] = ()
    untried: Bool[np.ndarray, "pairs"] | None = None

    @property
    def believed(self) -> int:
        """Number of pairs that the posterior takes for observed because of a belief alone."""
        return 0 if self.untried is None else int(self.untried.sum())

    @property
    def engine(self) -> str:
        """Which engine computed it."""
        return self.result.engine

    @property
    def reason(self) -> str:
        """Why that one, what casts doubt on it, and why it stopped."""
        flat = "the prior is flat over rewards, and only proper policies count" if self.target.prior.flat else ""
        parts = (self.result.reason, flat, *self.result.doubts, self.result.stopped)
        return spoken("; ".join(part for part in parts if part))

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
        """Further measurements of the engine."""
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
    def q_mean(self) -> PairEstimate:
        """Posterior means of the action values, shape (pairs,); `q_mean["s1", "go"]` is that of one pair."""
        return PairEstimate.by_pair(self.target.model, self.result.q_mean)

    @property
    def q_sd(self) -> PairEstimate:
        """Posterior standard deviations of the action values, shape (pairs,)."""
        return PairEstimate.by_pair(self.target.model, self.result.q_sd)

    @property
    def log_evidence(self) -> Estimate | None:
        """The log evidence; None where the engine has none."""
        return self.result.log_evidence

    @cached_property
    def action_probability(self) -> PairEstimate:
        """For each pair, the probability that it is optimal in its state; `action_probability["s1", "go"]` of one."""
        return PairEstimate.by_pair(self.target.model, action_probabilities(self.target.model, self.table))

    @cached_property
    def routes(self) -> list[Route] | None:
        """The most probable routes; None unless transitions are deterministic and there is one initial state."""
        model = self.target.model
        return most_probable_routes(model, self.table, self.budget.top) if has_routes(model) else None

    def policy_probability(self, policy: Int[np.ndarray, "states"] | Mapping[str, str]) -> Estimate:
        """The probability that a policy is optimal: the pair each state plays, or state -> action for all of them.

        Raises:
            BadInputError: if it is not one pair of each state.
        """
        model = self.target.model
        if isinstance(policy, Mapping):
            missing = next((state for state in model.states if state not in policy), None)
            if missing is not None:
                raise BadInputError(f"the policy says nothing about state {quote(missing)}: name an action of each")
            policy = np.array([find_pair(model, state, policy[state], "the policy") for state in model.states])
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
        """Warnings about the numbers, most important first."""
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
        tails = heavy_tails(self.target)
        return [spoken(warning) for warning in (*found, *([tails] if tails else []), *self.remarks)]

    def _contradiction(self) -> str:
        """Where observed values lie many prior standard deviations from their prior mean, in words."""
        target, prior = self.target, self.target.prior
        if prior.flat or not target.observed.any():
            return ""
        away = np.where(target.observed, np.nan_to_num(np.abs(prior.standardised(self.q_mean.value))), 0.0)
        pair = int(np.argmax(away))
        if away[pair] <= MANY_SDS:
            return ""
        state, action = (quote(name) for name in target.model.pair_name(pair))
        values = self.q_mean.value[target.observed]
        middle, spread = float(np.median(values)), float(np.abs(values - np.median(values)).max())
        return (
            f"the data contradict the prior: the value of ({state}, {action}) is about {self.q_mean.value[pair]:.3g}, "
            f"{away[pair]:.0f} prior standard deviations from its prior mean {prior.mean[pair]:.3g}: "
            f"--prior-mean {middle:.2g} --prior-scale {max(spread, abs(middle)):.2g} would not"
        )

    def pies(self) -> tuple[Float[np.ndarray, "pairs"], Bool[np.ndarray, "pairs"]]:
        """For pictures: the probability of each pair, and which pairs were tried."""
        observed = self.target.observed
        return self.action_probability.value, observed if self.untried is None else observed & ~self.untried

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

    def words(self) -> Words:
        """For pictures: what they show."""
        model, routes = self.target.model, self.routes
        seen = f"{int(self.target.observed.sum()) - self.believed} of {model.n_pairs} moves observed"
        seen += f" and a belief about {self.believed} more" if self.believed else ""
        doubt = "" if self.trustworthy else "\nnot to be trusted: a diagnostic says so"
        best = f"{title_of_best(routes)} ({routes[0].probability:.0%})" if routes else "most probable moves"
        return Words(
            f"{model.name or 'a problem'}: how probable is it that a move is optimal?\n"
            f"{seen}; slices have the colours of their moves{doubt}",
            best,
            "observed",
            "not observed" + (", a belief at most" if self.believed else ""),
        )

    @cached_property
    def draws(self) -> xarray.Dataset:
        """Equally weighted draws of all action values, in ArviZ's layout.

        An xarray data set: `q` by chain, draw and pair (labelled "state: action"), `noise_scale` where it is inferred,
        `law` by landing and `concentration` where laws are open; `effective_sample_size` among the attributes. Weighted
        points are resampled without repeats, as many as their weights allow (`bellmanifold.posteriors.draws`); chains
        are returned as they are.

        Raises:
            UnsupportedError: if neither importance weights nor chains can be trusted.
        """
        with metered("drawing action values"):
            return self._drawn()

    def _drawn(self) -> xarray.Dataset:
        if self.result.draws is not None:
            return self.result.draws()
        from bellmanifold.posteriors.draws import as_dataset, by_chain, equal_draws, point_draws

        points, effective = self.result.points, self.effective_sample_size
        if points is None or self.target.noise_scale is not None:
            return equal_draws(self.weighted_draws, self.budget.seed)
        q = point_draws(self.target, points, self.budget.seed)
        drawn = as_dataset(self.target.model, q, None, np.zeros((0, len(q))))
        return by_chain(
            drawn, int(self.diagnostics.get("chains", 1)), float(len(q)) if effective is None else effective
        )

    @cached_property
    def weighted_draws(self) -> xarray.Dataset:
        """All points that draws are chosen from, with their `weight`, which sums to 1: `q` by draw and pair.

        Points of weight 0 are left out; `log_total` among the attributes is the logarithm of the sum before.
        """
        from bellmanifold.posteriors.draws import in_one_row, posterior_draws

        own = self.result.draws is not None or (self.result.points is not None and self.target.noise_scale is None)
        with metered("drawing action values"):
            return in_one_row(self.draws) if own else posterior_draws(self.target, self.budget)

    def card(self) -> Card:
        """Text and table for display: diagnostics, the most probable route, actions with their values."""
        model, target, evidence = self.target.model, self.target, self.log_evidence
        kind = "exact" if self.epsilon == 0 else f"epsilon {self.epsilon or 0.0:g}"
        kind = "noisy" if self.epsilon is None or (self.epsilon == 0 and (target.scale > 0).any()) else kind
        seen = f"{int(target.observed.sum()) - self.believed} of {model.n_pairs} pairs observed"
        seen += f", a belief about {self.believed} more" if self.believed else ""
        facts = [self.reason]
        if evidence is not None:
            facts.append(f"log evidence {measured(float(evidence.value), float(evidence.se))}")
        if self.routes:
            best, title = self.routes[0], title_of_best(self.routes)
            facts.append(f"{title} ({measured(best.probability, best.se)}): {best.way(self._end(best))}")
        return Card(
            f"Summary({quote(model.name)}, {kind} posterior, {seen}, engine {self.engine})",
            facts,
            self.warnings,
            self._first_columns,
            lambda: picture("problem", model, self),
        )

    def _first_columns(self) -> Columns:
        """For display: what matters first where pairs are many, and no rounding for a spread."""
        columns, order = self._columns(), np.arange(self.target.model.n_pairs)
        known = self.q_sd.value <= ROUNDING * np.abs(self.q_mean.value)
        for name in ("q_mean_se", "q_sd", "q_sd_se"):
            columns[name] = np.where(known, 0.0, columns[name]).tolist()
        if len(order) > MOST_ROWS:
            order = by_doubt(self.target.model, self.action_probability.value, self.target.coupled)
        return {name: [column[row] for row in order] for name, column in columns.items()}

    def _columns(self) -> dict[str, list[Any]]:
        model, best = self.target.model, self.action_probability
        names = [model.pair_name(i) for i in range(model.n_pairs)]
        return {
            "state": [state for state, _ in names],
            "action": [action for _, action in names],
            "observed": self.pies()[1].tolist(),
            **({} if self.untried is None or not self.believed else {"belief": self.untried.tolist()}),
            "probability": best.value.tolist(),
            "probability_se": best.se.tolist(),
            "q_mean": self.q_mean.value.tolist(),
            "q_mean_se": self.q_mean.se.tolist(),
            "q_sd": self.q_sd.value.tolist(),
            "q_sd_se": self.q_sd.se.tolist(),
        }

    def to_frame(self) -> pandas.DataFrame:
        """A row per pair: was it observed, or is there a belief; is it optimal; what is it worth; with errors."""
        return as_frame(self._columns())

    def routes_to_frame(self) -> pandas.DataFrame:
        """A row per route, most probable first; no rows where there are no routes."""
        routes, name = self.routes or [], self.target.model.pair_name
        return as_frame(
            {
                "pairs": [[name(pair) for pair in route.pairs] for route in routes],
                "ends": [self._end(route) for route in routes],
                "probability": [route.probability for route in routes],
                "probability_se": [route.se for route in routes],
            }
        )

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
            "prior_scale": "flat" if self.target.prior.flat else _shared(self.target.prior.sd),
            "prior_mean": _shared(self.target.prior.mean),
            "proper_only": self.target.proper_only,
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
            result["noise"] = {"law": self.target.noise_law, **self._noise_scale()}
        if self.routes is not None:
            result["routes"] = [
                {
                    "pairs": [list(model.pair_name(i)) for i in route.pairs],
                    "ends": self._end(route),
                    **_probability(route.probability, route.se),
                }
                for route in self.routes
            ]
        if self.result.laws is not None:
            mean, sd = self.result.laws.concentration
            result |= {"laws": self._laws(), "concentration": {"mean": _finite(mean), "sd": _finite(sd)}}
        return result | {
            "q_mean": model.by_name([_finite(m) for m in self.q_mean.value]),
            "q_mean_se": model.by_name([_finite(se) for se in self.q_mean.se]),
            "q_sd": model.by_name([_finite(s) for s in self.q_sd.value]),
            "improper_mass": _probability(*(float(x) for x in _arrays(self.improper_mass))),
            "improper_mass_model": None
            if self.improper_mass_model is None
            else _probability(*(float(x) for x in _arrays(self.improper_mass_model))),
            "diagnostics": {
                name: _finite(value) if isinstance(value, float) else value for name, value in self.diagnostics.items()
            },
        }

    def _end(self, route: Route) -> str:
        """How a route ends: at the goal, in a loop, or at a pair whose law is unknown."""
        no_law = self.target.no_law
        if no_law is not None and no_law[route.pairs[-1]]:
            return "open"
        return "goal" if route.ends_at_goal else "loop"

    def _laws(self) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
        """Posterior means of open laws: state -> action -> next that was seen -> mean and standard error."""
        open_laws, found = self.target.laws, self.result.laws
        if open_laws is None:  # only pairs without a reward landed anywhere
            return {}
        assert found is not None, "every engine reports open laws"
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


def _shared(numbers: Float[np.ndarray, "pairs"]) -> float | None:
    """The number that all pairs share; None if they differ."""
    return float(numbers[0]) if (numbers == numbers[0]).all() else None


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if np.isfinite(number) else None
