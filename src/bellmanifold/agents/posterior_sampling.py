"""Algorithm 1: before every episode draw action values from the posterior and play their greedy policy.

`bayes-br` draws from the relaxed posterior (or the one for noisy rewards), `manifold` from the exact one. A draw is
made in the chart of the *known* pairs (`bellmanifold.chart.batch.known_chart`), in one of two ways:

- By importance. A few thousand points of the reference distribution are weighed, and policies are drawn in proportion
  to the weights: this is method B of the paper. They are weighed anew only when something was learnt; until then
  further policies are drawn from the same points.
- By a walk. Where the weights have become too uneven the agent walks instead, from then on: chains of slice
  steps that go on from where the last episode left them. Large problems whose known moves are random and cyclic are
  walked on sparse systems, and so are exact posteriors of large problems without known cycles, which one sweep
  solves. Known loops that could only be cut open by many pairs (`bellmanifold.posteriors.cuts`) are walked too, within
  the parameters that are not known to be improper; the diagnostic `proper_only` says so.

Method A of the paper computes the probability of every route first and then draws a route. It looks at the transitions
of all pairs to enumerate routes, so it is an option for deterministic problems only.

A pair that was never played has an unknown law and an unknown value; nothing of the problem but which pairs a state has
is looked at beyond what was played. Unknown pairs of a state are exchangeable: which of them is the best is drawn.
With optimism M the most promising of M draws is played.

With `until_loss` the agent stops exploring once its best policy is good enough (`bellmanifold.agents.stopping`).

With `explore="directed"` a draw decides whether to explore, not where: if it wants something unseen on its way, the
shortest way to the unseen is played instead (`bellmanifold.agents.news`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bellmanifold.agents.beliefs import believed, known_only, shares
from bellmanifold.agents.episodes import Beliefs
from bellmanifold.agents.memory import Memory
from bellmanifold.agents.news import unseen
from bellmanifold.agents.planning import way_home
from bellmanifold.agents.settings import SamplingSettings
from bellmanifold.agents.stopping import Stopping
from bellmanifold.agents.walking import Walk
from bellmanifold.chart.batch import BatchChart, TooLargeError
from bellmanifold.errors import BadInputError, UnsupportedError
from bellmanifold.graph import has_cycle
from bellmanifold.jax_setup import random_key
from bellmanifold.limits import ROUTES
from bellmanifold.noise import HalfNormal
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.cuts import LargeCutError, check_exact, covering
from bellmanifold.posteriors.estimated import effective_size
from bellmanifold.posteriors.inference import posterior_of
from bellmanifold.posteriors.laws import closed
from bellmanifold.posteriors.leaks import check_leaks
from bellmanifold.posteriors.policies import ALL, TooManyRoutesError, most_probable_routes
from bellmanifold.posteriors.system import System, drawn_laws, known_chart_of, member_moments, system_of
from bellmanifold.posteriors.target import Target, noisy_target
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.posteriors.weight import propose
from bellmanifold.ssp import SSP

POINTS, LAW_POINTS = 1024, 128
"""Points weighed at a time in each component of a mixture; fewer where each draws laws, which takes longer."""
TIMES, LAW_TIMES = (4, 8, 32), (1, 4, 16)
"""How many times that many points are tried before the agent begins to walk, the second only where it cannot."""
ENOUGH, ENOUGH_OF_LAWS = 100.0, 16.0
"""Effective points that policies are drawn from, where laws are given and where they are drawn."""
MOST_COORDINATES = 150
"""More coordinates than this are walked without trying importance,"""
MOST_PAIRS = 1000
"""and so are problems with more pairs: the program that weighs takes longer to compile than a walk takes."""


class Pool(NamedTuple):
    """Draws to play.

    Attributes:
        policy: greedy pairs, -1 where any unknown pair is the best, shape (states, draws).
        at_start: expected best value at the start, shape (draws,).
        probability: shape (draws,).
        effective: how many draws of equal weight these are worth.
        q_mean: mean of each pair's value, shape (pairs,).
    """

    policy: Int[np.ndarray, "states draws"]
    at_start: Float[np.ndarray, "draws"]
    probability: Float[np.ndarray, "draws"]
    effective: float
    q_mean: Float[np.ndarray, "pairs"]


def prior_pool(model: SSP, prior: ValuePrior) -> Pool:
    """What an agent that has seen nothing plays: any pair where priors are the same, else what its prior prefers."""
    alike = prior.exchangeable(model, np.ones(model.n_pairs, dtype=bool))
    if alike.all():
        return Pool(np.full((model.n_states, 1), -1), np.zeros(1), np.ones(1), 1.0, prior.mean)
    q = prior.draw(np.random.default_rng(0), POINTS)
    policy = np.stack([np.where(alike, -1, model.greedy(one)) for one in q], axis=1)
    share = np.full(POINTS, 1.0 / POINTS)
    return Pool(policy, model.best(q) @ model.initial, share, float(POINTS), prior.mean)


@runtime_checkable
class Source(Protocol):
    """Where an agent's draws come from."""

    diagnostics: dict[str, float]

    def draw(self, rng: np.random.Generator, optimism: int) -> Int[np.ndarray, "states"]:
        """A greedy policy; -1 where any unknown pair of the state is the best."""

    def route_probabilities(self, routes: tuple[tuple[int, ...], ...]) -> Float[np.ndarray, "routes"]:
        """The probability that each route is optimal; NaN if a single draw is all there is."""

    def beliefs(self) -> Beliefs:
        """What is believed about every pair; a single draw if that is all there is."""


class PosteriorSampling:
    """Plays greedy policies of posterior draws."""

    def __init__(self, model: SSP, settings: SamplingSettings) -> None:
        if settings.method == "A" and not model.is_deterministic:
            raise UnsupportedError("method A enumerates routes, which needs deterministic transitions: use method B")
        if settings.method == "A" and np.count_nonzero(model.initial) > 1:
            raise UnsupportedError("method A enumerates routes, which needs a single start: use method B")
        if settings.method == "A" and settings.optimism > 1:
            raise BadInputError("method A draws routes, not values that optimism could compare: use method B")
        if settings.method == "A" and settings.laws != "known":
            raise UnsupportedError("method A follows the laws of the problem: use method B where they are not shown")
        model = model if settings.laws == "known" else model.opened()
        self.model, self.settings = model, settings
        self.memory = Memory(model)
        self.diagnostics: dict[str, float] = {}
        prior = ValuePrior.stated(model, settings.prior_scale, settings.prior_mean)
        self._source: Source = _Importance(prior_pool(model, prior), self.memory.observed, model)
        self._stale = False
        self._explores = False
        self._concentration: float | None = None
        self._stopping = None if settings.until_loss is None else Stopping(settings.until_loss)

    def policy(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The greedy policy of a posterior draw; the best policy from the moment the agent has explored enough."""
        stopping = self._stopping
        if stopping is not None and (self._stale or np.isnan(stopping.loss)):
            stopping.look(self._believed(), rng)
        if self._stale:
            try:
                self._source = self._renewed(self._believed(), rng)
            except TooManyRoutesError:
                raise UnsupportedError(
                    f"method A enumerates routes, and all of them take more than {ROUTES.value:,} {ROUTES.unit}: "
                    f"use method B, or set {ROUTES.variable} if memory allows"
                ) from None
            self._stale = False
        self.diagnostics = dict(self._source.diagnostics) | (stopping.diagnostics if stopping else {})
        if self._concentration is not None:
            self.diagnostics["concentration"] = self._concentration
        if stopping is not None and stopping.policy is not None:
            self._explores = False
            return stopping.policy
        drawn = self._source.draw(rng, self.settings.optimism)
        if self.settings.explore == "directed":
            drawn = self._directed(drawn, rng)
        return self._filled(drawn, rng)

    def moved(self, pair: int, reward: float, landing: int, playable: Int[np.ndarray, "actions"]) -> None:
        """Remember where a pair led, if its law is not shown."""
        if self.settings.laws != "known":
            self.memory.land(pair, landing)

    def look(self, state: int, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """How to go on in an episode that is replanned: still exploring, then home; or by another draw."""
        if not self._explores:
            return self.policy(rng)
        knowledge = unseen(self.memory)
        if np.isfinite(knowledge.way.moves[state]):
            return self._filled(knowledge.towards_news(self._drawn, rng), rng)
        home = way_home(knowledge.model, knowledge.known, self.memory.mean_reward)
        return self._filled(np.where(home < 0, self._drawn, home), rng)

    def observe(self, pairs: Int[np.ndarray, "moves"], rewards: Float[np.ndarray, "moves"]) -> None:
        """Remember the visits; believe something else only if they said something new."""
        settings = self.settings
        noisy = settings.noise_sd is not None or settings.infer_noise or settings.laws == "dirichlet"
        is_new, before = self.memory.count[pairs] == 0, self.memory.mean_reward[pairs]
        self.memory.add(pairs, rewards)
        self._stale |= noisy or bool((is_new | (self.memory.mean_reward[pairs] != before)).any())

    def route_probabilities(self, routes: Sequence[tuple[int, ...]]) -> Float[np.ndarray, "routes"]:
        """The probability that each route is optimal; NaN while the agent walks and has but one draw."""
        return self._source.route_probabilities(tuple(routes))

    def beliefs(self) -> Beliefs:
        """What is believed about every pair; while the agent walks, the one draw it has."""
        return self._source.beliefs()

    def _directed(self, drawn: Int[np.ndarray, "states"], rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The draw, or the shortest way to what was not seen if the draw wants any of that."""
        knowledge = unseen(self.memory)
        self._explores, self._drawn = knowledge.meets_news(drawn), drawn
        self.diagnostics["explores"] = float(self._explores)
        return knowledge.towards_news(drawn, rng) if self._explores else drawn

    def _filled(self, policy: Int[np.ndarray, "states"], rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The policy with entries of -1 replaced by a random unknown pair of the state."""
        chance = np.where(self.memory.observed, -1.0, rng.random(self.model.n_pairs))
        return np.where(policy < 0, self.model.greedy(chance), policy)

    def _believed(self) -> Target:
        settings, memory = self.settings, self.memory
        prior = ValuePrior.stated(memory.model, settings.prior_scale, settings.prior_mean)
        if settings.infer_noise:
            target = noisy_target(memory, HalfNormal(), prior)
        elif settings.stated_noise:
            scale = memory.model.reward_sd / np.sqrt(np.maximum(memory.count, 1))
            target = replace(noisy_target(memory, 1.0, prior), scale=np.where(memory.observed, scale, 0.0))
        else:
            target = believed(memory, settings).without_lost_tolerance()
        if settings.laws != "known":
            whole, laws, no_law = closed(memory, settings.laws, settings.concentration, all_rows=True)
            target = replace(target, model=whole, laws=laws, no_law=no_law)
            self._concentration = laws.moments[0] if laws is not None else None
        remedy = "use the agent bayes-br, or a discounted problem"
        check_exact(target, remedy)
        check_leaks(target, remedy)
        return target

    def _renewed(self, target: Target, rng: np.random.Generator) -> Source:
        """Where the next draws come from."""
        if self.settings.method == "A":
            return _Routes(target, int(rng.integers(2**31)))
        if _is_swept(target):
            return Walk(target, None, rng, self._source)
        try:
            chart = known_chart_of(target)
        except TooLargeError:
            return Walk(target, None, rng, self._source)
        if not isinstance(self._source, Walk):
            drawn = _by_importance(target, chart, int(rng.integers(2**31)))
            if drawn is not None:
                return drawn
        return Walk(target, chart, rng, self._source)


def _is_swept(target: Target) -> bool:
    """Is it a large exact posterior that one sweep solves at a point? Then nothing has to be compiled."""
    given = target.is_exact and target.laws is None and target.model.n_pairs > MOST_PAIRS
    return given and not has_cycle(target.model, target.observed)


class _Importance:
    """Draws from weighed points."""

    def __init__(self, pool: Pool, observed: Bool[np.ndarray, "pairs"], model: SSP) -> None:
        self.pool, self.observed, self.model = pool, observed, model
        self.diagnostics = {"effective_sample_size": pool.effective}
        self._asked: tuple[tuple[tuple[int, ...], ...], Float[np.ndarray, "routes"]] | None = None

    def draw(self, rng: np.random.Generator, optimism: int) -> Int[np.ndarray, "states"]:
        chosen = rng.choice(len(self.pool.probability), size=optimism, p=self.pool.probability)
        return self.pool.policy[:, chosen[np.argmax(self.pool.at_start[chosen])]]

    def route_probabilities(self, routes: tuple[tuple[int, ...], ...]) -> Float[np.ndarray, "routes"]:
        if self._asked is None or self._asked[0] != routes:
            self._asked = routes, np.array([self._route_probability(route) for route in routes])
        return self._asked[1]

    @cached_property
    def _beliefs(self) -> Beliefs:
        share = shares(self.model, self.observed, self.pool.policy, self.pool.probability)
        return Beliefs(share, self.pool.q_mean)

    def beliefs(self) -> Beliefs:
        return self._beliefs

    def _route_probability(self, route: tuple[int, ...]) -> float:
        state = self.model.pair_state
        unknown = np.add.reduceat(~self.observed, self.model.pair_start[:-1])
        plays = self.pool.probability
        for pair in route:
            here = self.pool.policy[state[pair]]
            any_unknown = 0.0 if self.observed[pair] else (here < 0) / unknown[state[pair]]
            plays = plays * ((here == pair) + any_unknown)
        return float(plays.sum())


def _by_importance(target: Target, chart: BatchChart, seed: int) -> _Importance | None:
    """Weighed points of the posterior, if enough of them count, or if walks could not cover it."""
    try:
        cover = covering(target)
    except LargeCutError:
        return None
    first = cover.ways[0][0]
    if int((first.free | (first.residual & (target.scale > 0))).sum()) > MOST_COORDINATES:
        return None
    unwalkable = bool(first.cut or first.lingering)
    enough, often = (ENOUGH, TIMES) if target.laws is None else (ENOUGH_OF_LAWS, LAW_TIMES)
    if target.model.n_pairs > MOST_PAIRS and not unwalkable:
        return None
    tried: list[_Importance] = []
    for times in often if unwalkable else often[::2]:  # where a walk would do, it is cheaper than trying once more
        if tried and often[-1] / often[0] * max(source.pool.effective for source in tried) < enough:
            break  # more points would not help
        for way in cover.ways:
            tried.append(_Importance(_weighed(way, chart, times, seed), target.observed, target.model))
            if cover.missed:
                tried[-1].diagnostics["proper_only"] = 1.0
            if tried[-1].pool.effective >= enough:
                return tried[-1]
    best = max(tried, key=lambda source: source.pool.effective, default=None)
    return best if unwalkable and best is not None and best.pool.effective > 0 else None


def _weighed(way: list[Coordinates], chart: BatchChart, times: int, seed: int) -> Pool:
    target = way[0].target
    points, rng = POINTS if target.laws is None else LAW_POINTS, np.random.default_rng(seed)
    policies, at_start, log_weights, sums = [], [], [], []
    for number, coordinates in enumerate(way):
        system = system_of(coordinates, chart)
        initial = target.model.initial[np.asarray(system.layout.state)]
        for time in range(times):
            drawn = drawn_laws(target.laws, rng, points)
            found = propose(system, random_key(seed, number, time), points, drawn)
            policies.append(known_only(target, chart.pairs(np.asarray(found.choice))))
            best = np.asarray(_best(system, found.q))
            at_start.append(initial @ np.where(np.isfinite(best), best, 0.0))
            log_weights.append(np.asarray(found.log_weight))
            mean = np.asarray(member_moments(system, found.q)[0])
            counts = np.isfinite(log_weights[-1])
            weight = np.exp(log_weights[-1][counts] - float(found.log_scale))
            sums.append((mean[:, counts] @ weight, float(found.log_scale)))
    log_weight = np.concatenate(log_weights)
    top = log_weight.max()
    reference = top if np.isfinite(top) else 0.0
    weight = np.exp(log_weight - reference)
    total = float(weight.sum())
    mean = sum(part * np.exp(min(scale - reference, 0.0)) for part, scale in sums) / (total or 1.0)
    coupled = target.coupled[target.model.pair_state] & (total > 0)
    return Pool(
        np.concatenate(policies, axis=1),
        np.concatenate(at_start),
        weight / (total or 1.0),
        effective_size(weight),
        np.where(coupled, mean[way[0].stand_in], target.prior.mean),
    )


@jax.jit
def _best(system: System, q: Float[Array, "pairs batch"]) -> Float[Array, "states batch"]:
    """The value of each of the layout's states, in one program."""
    return system.layout.greedy(q)[1]


class _Routes:
    """Method A: draws routes in proportion to their probabilities."""

    def __init__(self, target: Target, seed: int) -> None:
        summary = posterior_of(target, Budget(seed=seed))
        routes = most_probable_routes(target.model, summary.table, ALL)
        self.model, self.routes = target.model, routes
        self.probability = np.array([route.probability for route in routes])
        self.probability /= self.probability.sum()
        self.diagnostics = {"routes": float(len(routes))}
        self._beliefs = Beliefs(summary.action_probability.value, summary.q_mean.value)

    def draw(self, rng: np.random.Generator, optimism: int) -> Int[np.ndarray, "states"]:
        route = self.routes[int(rng.choice(len(self.routes), p=self.probability))]
        policy = self.model.pair_start[:-1].copy()
        pairs = np.array(route.pairs)
        policy[self.model.pair_state[pairs]] = pairs
        return policy

    def route_probabilities(self, routes: tuple[tuple[int, ...], ...]) -> Float[np.ndarray, "routes"]:
        known = {route.pairs: route.probability for route in self.routes}
        return np.array([known.get(route, 0.0) for route in routes])

    def beliefs(self) -> Beliefs:
        return self._beliefs
