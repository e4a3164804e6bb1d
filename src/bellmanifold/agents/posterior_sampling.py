"""Algorithm 1: before every episode draw action values from the posterior and play their greedy policy.

`bayes-br` draws from the relaxed posterior (or the one for noisy rewards), `manifold` from the exact one. A draw is
made in the chart of the *known* pairs (`bellmanifold.chart.batch.known_chart`), in one of two ways
(`bellmanifold.agents.sources`, `bellmanifold.agents.walking`):

- By importance sampling. A few thousand points of the reference distribution are weighted, and policies are drawn in
  proportion to their weights: this is method B of the paper. New points are weighted only when something was learnt;
  until then further policies are drawn from the same points.
- By a walk. Once the weights have become too uneven, the agent switches to chains of slice steps that continue from
  episode to episode. Large problems whose known moves are random and cyclic are walked on sparse systems, and so are
  exact posteriors of large problems without known cycles, which one sweep solves. Known loops that could only be cut
  open by many pairs (`bellmanifold.posteriors.cuts`) are walked, too, within the parameters that are not known to be
  improper; the diagnostic `proper_only` says so.

Method A of the paper first computes the probability of every route and then draws a route. It reads the transitions of
all pairs to enumerate routes, so it is an option for deterministic problems only.

A pair that was never played has an unknown law and an unknown value; of the unplayed part of the problem the agent sees
only which pairs a state has. Unknown pairs of a state are exchangeable: the best of them is drawn at random.

With `until_loss` the agent stops exploring once its best policy is good enough (`bellmanifold.agents.stopping`).

With `explore="directed"` a draw decides whether to explore, not where: if it plays something unseen on its way, the
shortest way to an unseen pair is played instead (`bellmanifold.agents.frontier`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.agents.agent import Beliefs
from bellmanifold.agents.beliefs import target_of
from bellmanifold.agents.frontier import frontier_or_home, unseen
from bellmanifold.agents.memory import Memory
from bellmanifold.agents.settings import SamplingSettings
from bellmanifold.agents.sources import DrawnRoutes, WeighedPoints, is_swept, prior_pool, weighed_points
from bellmanifold.agents.stopping import Stopping
from bellmanifold.agents.walking import Walk
from bellmanifold.chart.batch import TooLargeError
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.cuts import check_exact
from bellmanifold.posteriors.laws import close_laws
from bellmanifold.posteriors.leaks import check_leaks
from bellmanifold.posteriors.most_probable import MOST_ROUTES, TooManyRoutesError
from bellmanifold.posteriors.noise import HalfNormal
from bellmanifold.posteriors.rounding import without_lost_tolerance
from bellmanifold.posteriors.system import chart_of
from bellmanifold.posteriors.target import Target, noisy_target
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.problem.ssp import SSP

Source: TypeAlias = WeighedPoints | DrawnRoutes | Walk
"""A source of draws: it can `draw` a policy and reports its beliefs about routes and pairs."""


class PosteriorSampling:
    """Plays greedy policies of posterior draws."""

    def __init__(self, model: SSP, settings: SamplingSettings) -> None:
        if settings.method == "A" and settings.laws != "known":
            raise UnsupportedError("method A follows the laws of the problem: use method B where they are not shown")
        if settings.method == "A" and not model.is_deterministic:
            raise UnsupportedError("method A enumerates routes, which needs deterministic transitions: use method B")
        if settings.method == "A" and np.count_nonzero(model.initial) > 1:
            raise UnsupportedError("method A enumerates routes, which needs a single start: use method B")
        self.shown_laws, self.takes_next_as_law = settings.laws == "known", settings.laws == "deterministic"
        model = model if self.shown_laws else model.opened()
        self.model, self.settings = model, settings
        self.memory = Memory(model)
        self.diagnostics: dict[str, float] = {}
        prior = ValuePrior.stated(model, settings.prior_scale, settings.prior_mean)
        self._source: Source = WeighedPoints(prior_pool(model, prior), self.memory.observed, model)
        self._stale = False
        self._explores = False
        self._concentration: float | None = None
        self._stopping = None if settings.until_loss is None else Stopping(settings.until_loss)

    def policy(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The greedy policy of a posterior draw, or the best policy once the agent has explored enough."""
        stopping = self._stopping
        if stopping is not None and (self._stale or np.isnan(stopping.loss)):
            stopping.look(self._target(), rng)
        if self._stale:
            try:
                self._source = self._new_source(self._target(), rng)
            except TooManyRoutesError:
                raise UnsupportedError(
                    f"method A enumerates routes, and there are more than {MOST_ROUTES:,}: use method B"
                ) from None
            self._stale = False
        self.diagnostics = dict(self._source.diagnostics) | (stopping.diagnostics if stopping else {})
        if self._concentration is not None:
            self.diagnostics["concentration"] = self._concentration
        if stopping is not None and stopping.policy is not None:
            self._explores = False
            return stopping.policy
        drawn = self._source.draw(rng)
        if self.settings.explore == "directed":
            drawn = self._towards_frontier(drawn, rng)
        return self._fill_unknown(drawn, rng)

    def moved(self, pair: int, reward: float, next_state: int, playable: Int[np.ndarray, "actions"]) -> None:
        """Record the next state of a pair whose law is not shown."""
        if not self.shown_laws:
            self.memory.land(pair, next_state)

    def look(self, state: int, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The policy for the rest of a replanned episode: explore, then go home; or a new draw."""
        if not self._explores:
            return self.policy(rng)
        return self._fill_unknown(frontier_or_home(self.memory, state, self._drawn, rng), rng)

    def observe(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        """Record the visits; the posterior is updated only if they brought new information."""
        settings = self.settings
        noisy = settings.noise_sd is not None or settings.infer_noise or settings.laws == "dirichlet"
        is_new, before = self.memory.count[pairs] == 0, self.memory.mean_reward[pairs]
        self.memory.add(pairs, rewards)
        self._stale |= noisy or bool((is_new | (self.memory.mean_reward[pairs] != before)).any())

    def route_probabilities(self, routes: Sequence[tuple[int, ...]]) -> Float[np.ndarray, "routes"]:
        """The probability that each route is optimal; NaN while the agent walks and has only one draw."""
        return self._source.route_probabilities(tuple(routes))

    def beliefs(self) -> Beliefs:
        """Beliefs about every pair; while the agent walks, those of its one draw."""
        return self._source.beliefs()

    def _towards_frontier(
        self, drawn: Int[np.ndarray, "states"], rng: np.random.Generator
    ) -> Int[np.ndarray, "states"]:
        """The draw, or the shortest way to an unseen pair if the draw may play one."""
        knowledge = unseen(self.memory)
        self._explores, self._drawn = knowledge.meets_frontier(drawn), drawn
        self.diagnostics["explores"] = float(self._explores)
        return knowledge.towards_frontier(drawn, rng) if self._explores else drawn

    def _fill_unknown(self, policy: Int[np.ndarray, "states"], rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The policy with entries of -1 replaced by a random unknown pair of the state."""
        chance = np.where(self.memory.observed, -1.0, rng.random(self.model.n_pairs))
        return np.where(policy < 0, self.model.greedy(chance), policy)

    def _target(self) -> Target:
        settings, memory = self.settings, self.memory
        if settings.infer_noise:
            prior = ValuePrior.stated(memory.model, settings.prior_scale, settings.prior_mean)
            target = noisy_target(memory, HalfNormal(), prior)
        else:
            target = without_lost_tolerance(target_of(memory, settings))
        if settings.laws != "known":
            whole, laws, no_law = close_laws(memory, settings.laws, settings.concentration, all_rows=True)
            target = replace(target, model=whole, laws=laws, no_law=no_law)
            self._concentration = laws.moments[0] if laws is not None else None
        remedy = "use the agent bayes-br, or a discounted problem"
        check_exact(target, remedy)
        check_leaks(target, remedy)
        return target

    def _new_source(self, target: Target, rng: np.random.Generator) -> Source:
        """The source of the next draws."""
        if self.settings.method == "A":
            return DrawnRoutes(target, int(rng.integers(2**31)))
        if is_swept(target):
            return Walk(target, None, rng, self._source)
        try:
            chart = chart_of(target, only_observed=True)
        except TooLargeError:
            return Walk(target, None, rng, self._source)
        if not isinstance(self._source, Walk):
            drawn = weighed_points(target, chart, int(rng.integers(2**31)))
            if drawn is not None:
                return drawn
        return Walk(target, chart, rng, self._source)
