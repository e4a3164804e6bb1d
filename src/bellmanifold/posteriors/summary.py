"""The answers of a posterior, whichever engine computed it: probabilities with standard errors, moments, diagnostics.

`bellmanifold.posteriors.reporting` presents them in JSON, tables, notebooks and pictures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold._util.display import Card, Shown, Words, as_frame
from bellmanifold._util.options import spoken
from bellmanifold._util.progress import show_progress
from bellmanifold.io.networks import with_attributes
from bellmanifold.io.road_answers import edges_frame
from bellmanifold.mdp.graph import end_components
from bellmanifold.posteriors.accuracy import LargestError, largest_of, shortfall
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.contradictions import with_prior
from bellmanifold.posteriors.estimated import Estimate, PairEstimate
from bellmanifold.posteriors.most_probable import most_probable_routes
from bellmanifold.posteriors.policies import (
    PolicyTable,
    action_probabilities,
    improper_mass,
    improper_mass_model,
    policy_probability,
)
from bellmanifold.posteriors.reporting import (
    as_json,
    best_pairs,
    card_of,
    columns_of,
    edge_columns,
    route_columns,
    words_of,
)
from bellmanifold.posteriors.result import Result
from bellmanifold.posteriors.route import Route
from bellmanifold.posteriors.tails import Tails, sentence, tails_of
from bellmanifold.posteriors.target import Target
from bellmanifold.problem.costs import Costs, cost_unit, worded
from bellmanifold.problem.names import find_policy

if TYPE_CHECKING:
    import networkx
    import pandas
    import xarray

EXACT = Estimate.of(0.0, 0.0)
MOST_IMPROPER = 0.5
"""A larger posterior probability of improper policies leads to a warning."""


@dataclass(frozen=True, eq=False, repr=False)
class Summary(Shown):
    """The answers of one posterior. Every estimated number is an `Estimate`, with `value` and `se`.

    Attributes:
        target: the posterior.
        result: the engine's output: weighted policies, moments, evidence, diagnostics.
        budget: limits of the computation, number of routes to report, and seed.
        remarks: further remarks on the data and the options.
        untried: pairs with a belief that were never tried, shape (pairs,); None if there are none.
        asked_in_costs: whether a belief about costs was given, so that texts speak of costs.
    """

    target: Target
    result: Result
    budget: Budget
    remarks: tuple[str, ...] = ()
    untried: Bool[np.ndarray, "pairs"] | None = None
    asked_in_costs: bool = False

    @property
    def costs(self) -> Costs | None:
        """How the problem, or the belief about it, was given in costs; None if both were given in rewards."""
        return cost_unit(self.target.model) or (Costs() if self.asked_in_costs else None)

    @property
    def believed(self) -> int:
        """Number of pairs that count as observed only because of a belief."""
        return 0 if self.untried is None else int(self.untried.sum())

    @property
    def engine(self) -> str:
        """Name of the engine that computed it."""
        return self.result.engine

    @property
    def reason(self) -> str:
        """Why this engine was chosen, doubts about its numbers, and why it stopped early."""
        flat = "the prior is flat over rewards, and only proper policies count" if self.target.prior.flat else ""
        parts = (self.result.reason, flat, *self.result.doubts, self.result.stopped)
        return spoken(worded("; ".join(part for part in parts if part), self.costs))

    @property
    def trustworthy(self) -> bool:
        """Whether the stated errors can be believed: no diagnostic casts doubt on them. They may still be large."""
        return self.result.trustworthy

    @property
    def dimension(self) -> int:
        """Number of coordinates that were integrated over."""
        return self.result.dimension

    @property
    def effective_sample_size(self) -> float | None:
        """Effective sample size; None for engines without one."""
        return self.result.effective_sample_size

    @property
    def diagnostics(self) -> Mapping[str, Any]:
        """Further measurements of the engine."""
        return self.result.diagnostics

    @property
    def epsilon(self) -> float | None:
        """Tolerance of the relaxed likelihood; 0 for the exact posterior, None for noisy rewards."""
        return self.target.epsilon

    @property
    def table(self) -> PolicyTable:
        """Greedy policies with their weights."""
        return self.result.table

    @cached_property
    def tails(self) -> Tails:
        """The action values that have no mean."""
        return tails_of(self.target, self.result, self.budget)

    @cached_property
    def q_mean(self) -> PairEstimate:
        """Posterior means of the action values, NaN where there is none; `q_mean["s1", "go"]` is that of one pair."""
        return PairEstimate.by_pair(self.target.model, self.result.q_mean.without(self.tails.mean))

    @cached_property
    def q_sd(self) -> PairEstimate:
        """Posterior standard deviations of the action values, NaN where there is none, shape (pairs,)."""
        return PairEstimate.by_pair(self.target.model, self.result.q_sd.without(self.tails.sd))

    @property
    def log_evidence(self) -> Estimate | None:
        """The log evidence; None for engines that do not compute it."""
        return self.result.log_evidence

    @cached_property
    def action_probability(self) -> PairEstimate:
        """Probability that each pair is optimal in its state; `action_probability["s1", "go"]` is that of one pair."""
        return PairEstimate.by_pair(self.target.model, action_probabilities(self.target.model, self.table))

    @cached_property
    def routes(self) -> list[Route] | None:
        """The most probable routes; None unless transitions are deterministic and there is one initial state."""
        return most_probable_routes(self.target.model, self.table, self.budget.top)

    def policy_probability(self, policy: Int[np.ndarray, "states"] | Mapping[str, str]) -> Estimate:
        """The probability that a policy is optimal; it is given as the pair of each state, or as state -> action.

        Raises:
            BadInputError: if the policy does not consist of one pair of each state.
        """
        return policy_probability(self.target.model, self.table, find_policy(self.target.model, policy))

    @cached_property
    def _largest(self) -> LargestError:
        return largest_of(self.action_probability, self.routes or [], self.improper_mass)

    @property
    def largest_error(self) -> float:
        """The largest standard error of a reported probability: actions, routes and improper mass."""
        return self._largest.se

    @cached_property
    def improper_mass(self) -> Estimate:
        """Probability that the greedy policy is improper if unobserved pairs lead to the goal."""
        if self.target.is_exact or self.target.proper_only or not self.target.improper_loops:
            return EXACT
        return improper_mass(self.target.model, self.table, self.target.observed)

    @cached_property
    def improper_mass_model(self) -> Estimate | None:
        """Probability that the greedy policy is improper under the problem's true laws; None if any law is open."""
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
        return self.warnings_with(shortfall(self._largest, self.budget.accuracy, self.engine))

    def warnings_with(self, shortfall: str) -> list[str]:
        """The warnings, with another one (possibly empty) in place of that about the largest error."""
        found = [f"not trustworthy: {doubt}" for doubt in self.result.doubts]
        found += [shortfall, with_prior(self.target, self.q_mean.value, self.costs), sentence(self.tails, self.target)]
        known = self.improper_mass
        if known.value > MOST_IMPROPER:
            found.append(
                f"policies that are known to miss the goal hold {float(known.value):.0%} of the posterior: "
                "--proper-only excludes them"
            )
        best = self.routes[0] if self.routes else None
        if best is not None and not best.ends_at_goal:
            found.append("the most probable route is a loop: --proper-only excludes known loops")
        return [spoken(worded(warning, self.costs)) for warning in (*found, *self.remarks) if warning]

    def pies(self) -> tuple[Float[np.ndarray, "pairs"], Bool[np.ndarray, "pairs"]]:
        """For pictures: the probability of each pair, and which pairs were tried."""
        observed = self.target.observed
        return self.action_probability.value, observed if self.untried is None else observed & ~self.untried

    @cached_property
    def draws(self) -> xarray.Dataset:
        """Equally weighted draws of all action values, in ArviZ's layout.

        An xarray data set, which ArviZ's functions take as it is (0.x and 1.x): `q` by chain, draw and pair (labelled
        "state: action"), `noise_scale` if it is inferred, `law` by landing and `concentration` if laws are open;
        `effective_sample_size` is an attribute. Weighted points are resampled without repeats, as many as their weights
        allow (`bellmanifold.posteriors.draws`); chains are returned as they are.

        Raises:
            UnsupportedError: if neither importance weights nor chains can be trusted.
        """
        with show_progress("drawing action values"):
            if self.result.draws is not None:
                return self.result.draws()
            from bellmanifold.posteriors.draws import equal_draws, result_draws

            if self._has_points:
                return result_draws(self.target, self.result, self.budget.seed)
            return equal_draws(self.weighted_draws, self.budget.seed)

    @cached_property
    def weighted_draws(self) -> xarray.Dataset:
        """All points that `draws` are resampled from: `q` by draw and pair, with their `weight`, which sums to 1.

        Points of weight 0 are left out; the attribute `log_total` is the log of the sum before normalisation.
        """
        from bellmanifold.posteriors.draws import in_one_row, posterior_draws

        own = self.result.draws is not None or self._has_points
        with show_progress("drawing action values"):
            return in_one_row(self.draws) if own else posterior_draws(self.target, self.budget)

    @property
    def _has_points(self) -> bool:
        """Whether the engine's points can serve as draws, which they cannot if a noise scale is inferred."""
        return self.result.points is not None and self.target.noise_scale is None

    def to_frame(self) -> pandas.DataFrame:
        """Data frame with a row for each pair: whether it was observed, probability of being optimal, value, errors."""
        return as_frame(columns_of(self))

    def routes_to_frame(self) -> pandas.DataFrame:
        """Data frame with a row for each route, most probable first; empty if there are no routes."""
        return as_frame(route_columns(self))

    def to_edges(self) -> pandas.DataFrame:
        """Data frame with a row for each road, in the order of the table that the problem was made from.

        The index counts the rows of that table; a two-way road has two rows with the same number. `from`, `to`, `name`
        and `cost` are the road's, `probability` is that of being the best choice where it begins, `best` says whether
        the most probable route takes it. `cost_to_goal` is what the trip costs from there by this road (the mean, with
        its `_se`, and the `_sd`); `cost_mean` and `cost_sd` are of the road alone, given beliefs and trips, and
        present if the prior is flat and the noise known (loops that pay are not yet ruled out in them).
        """
        return edges_frame(self.target.model, edge_columns(self))

    def to_networkx(self, graph: networkx.Graph | None = None) -> networkx.Graph:
        """A MultiDiGraph of the problem whose edges have the columns of `to_edges` as attributes.

        Args:
            graph: the graph that the problem was made from: then the result is a copy of it, directed, with these
                attributes besides its own.
        """
        return with_attributes(self.target.model, edge_columns(self), graph)

    def to_dict(self) -> dict[str, Any]:
        """The `posterior` object of the interface."""
        return as_json(self)

    def card(self) -> Card:
        """Text and table for display: diagnostics, the most probable route, actions with their values."""
        return card_of(self)

    def best_pairs(self) -> Bool[np.ndarray, "pairs"]:
        """For pictures: the pairs of the most probable route.

        If transitions are random, there are no routes: the pairs that the most probable actions play from the start.
        """
        return best_pairs(self)

    def words(self) -> Words:
        """For pictures: their title and legends."""
        return words_of(self)
