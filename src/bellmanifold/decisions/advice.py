"""Advice from a posterior: the best policy now, the expected loss of stopping, and what to try next.

The best policy pi maximises E[V^pi(s_0)], the posterior mean of its value at the start. Even it has an expected *loss*,

    E[V*(s_0)] - max_pi E[V^pi(s_0)] = E[V*(s_0) - V^pi(s_0)]:

the Bayes risk of acting on what is known now. It is 0 where everything that matters is known, and it is an upper bound
on what any number of further trials could save (EVPI in decision analysis). If it does not exceed the cost of trials,
stop. Two numbers say how much of the loss a single pair could save:

- its *gain*: what one trial of it, with its noise, would save (EVSI). It has a closed form where rewards are Gaussian
  and laws are known (`bellmanifold.decisions.one_trial`), and says what to try next;
- *perfect*: what would be saved if all of Q(s, a) were known, what the move pays and what is best afterwards (EVPPI,
  `bellmanifold.decisions.trials`). A trial tells another thing, the reward, and may rank moves in another order.

The best policy is chosen on one half of the draws and evaluated on the other, in both directions if both halves choose
the same one: on the draws it was chosen on, its loss would look too small. So the estimates are conservative: the
policy preferred by half of the draws is at most as good as the best, and the loss is not understated.

Draws whose greedy policy is improper have no values, so posteriors that give probability to such policies are refused,
and so are those under which these means do not exist (`bellmanifold.decisions.existence`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold._util.display import Card, Columns, Shown, Words, as_frame, or_null, picture, with_error
from bellmanifold._util.progress import show_progress
from bellmanifold.decisions.existence import check_means
from bellmanifold.decisions.joint_draws import Half, JointDraws, given_draws, joint_draws
from bellmanifold.decisions.one_trial import OneTrial, check_trial_sd, one_trial, trial_noise
from bellmanifold.decisions.trials import Trials
from bellmanifold.decisions.valuation import Planner, Policies, Valuation, Walks
from bellmanifold.decisions.wording import ranked_by, route_of, sentences
from bellmanifold.errors import BadInputError, UnsupportedError, require_numbers
from bellmanifold.io.networks import with_attributes
from bellmanifold.io.road_answers import edges_frame
from bellmanifold.posteriors.accuracy import LargestError, shortfall
from bellmanifold.posteriors.draws import point_draws
from bellmanifold.posteriors.estimated import Estimate, resolution_of
from bellmanifold.posteriors.inference import posterior
from bellmanifold.posteriors.reporting import as_probability, edge_columns
from bellmanifold.posteriors.summary import Summary
from bellmanifold.posteriors.target import Target
from bellmanifold.problem.costs import Costs, in_terms, in_unit, signed, worded, worth
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.ssp import SSP

if TYPE_CHECKING:
    import networkx
    import pandas

SHOWN = 5
"""Number of moves of the best policy that are printed."""
LAW_POLICIES = 24
"""Number of draws whose greedy policies are candidates where every draw has its own laws."""
ALIKE = 9
"""Gains that agree to this many decimals of the largest are equal but for rounding."""
NOTHING = -1e6
"""Value of free pairs, relative to others, where only solved pairs should be played."""


@dataclass(frozen=True, eq=False)
class Decision:
    """The best policy under a posterior.

    Attributes:
        policy: the pair to play in each state, shape (states,).
        by_half: the best policy of each half of the draws, shape (2, states).
        value: the policy's expected value at the start.
        loss: its expected loss.
        loss_by_half: the expected loss of each half's policy, evaluated on the other half.
        optimal: the probability that the policy is optimal at every start.
    """

    policy: Int[np.ndarray, "states"]
    by_half: Policies
    value: Estimate
    loss: Estimate
    loss_by_half: tuple[float, float]
    optimal: Estimate


def decide(draws: JointDraws) -> Decision:
    """The best policy under some draws, with its value and expected loss.

    If both halves choose the same policy, it is evaluated on all draws. If not, their choices are about equally good:
    the one that is better on all draws is taken, and evaluated only on the half that did not choose it.
    """
    model, valuation = draws.target.model, Valuation(draws)
    by_half = np.array([_best(draws, half) for half in draws.halves])
    reached = valuation.walks.reachable(by_half, model.initial)
    agree = bool((np.where(reached[0], by_half[0], -1) == np.where(reached[1], by_half[1], -1)).all())
    values = valuation.at_start(by_half)
    every = np.ones(len(draws.weight), dtype=bool)
    chosen = 0 if agree else int(np.argmax(draws.mean(values, every)))
    judges = every if agree else draws.halves[1 - chosen]
    policy, value = by_half[chosen], values[chosen]
    is_best = np.ones(len(every), dtype=bool)
    for state in np.flatnonzero(model.initial):
        begin = (np.arange(model.n_states) == state).astype(np.float64)
        is_best &= draws.best[:, state] - valuation.at_start(policy[None], begin)[0] <= draws.tie
    gap = draws.at_start - value
    loss = draws.estimate(np.where(gap > draws.tie, gap, 0.0), judges)
    crossed = np.maximum(draws.at_start - values, 0.0)
    judged = [draws.mean(crossed, half) for half in draws.halves]  # one entry per half, of both policies
    missed = resolution_of(draws.effective) if (draws.sd > 0).any() else 0.0
    return Decision(
        policy,
        by_half,
        draws.estimate(value, judges),
        _at_least(loss, missed * float(draws.sd.max()) if (gap[judges] <= draws.tie).all() else 0.0),
        (float(judged[1][0]), float(judged[0][1])),
        _at_least(draws.estimate(is_best.astype(np.float64), judges), missed),
    )


def _at_least(found: Estimate, least: float) -> Estimate:
    """The estimate with its standard error raised to at least `least`."""
    return Estimate.of(found.value, np.maximum(found.se, least))


def _best(draws: JointDraws, half: Half) -> Int[np.ndarray, "states"]:
    """The policy with the largest mean value over half of the draws."""
    planner, mean = Planner(draws), draws.mean(draws.pay, half)
    share = (draws.weight * half / (draws.weight @ half))[:, None]
    if draws.law is None:
        return planner.plan(share, mean[:, None])[0]
    observed = draws.target.observed
    worthless = NOTHING * max(1.0, float(np.abs(mean).max()))
    pays = np.stack([mean, np.where(observed, mean, worthless)], axis=1)
    rows = np.flatnonzero(half)[:: max(1, int(half.sum()) // LAW_POLICIES)]
    candidates = np.concatenate(
        [planner.plan(np.repeat(share, 2, axis=1), pays), draws.target.model.greedy(draws.q[rows])]
    )
    candidates = np.unique(candidates, axis=0)
    return candidates[np.argmax(draws.mean(Valuation(draws).at_start(candidates), half))]


@dataclass(frozen=True, eq=False, repr=False)
class Advice(Shown):
    """The best policy now, and what to try next.

    Attributes:
        summary: the posterior.
        decision: the best policy, with its expected loss.
        trial: what one trial of each pair would save, and its noise.
        perfect: what knowing all of Q(s, a) would save, for each pair.
        uncertain: pairs whose value is uncertain, shape (pairs,).
        tried: number of trials of each pair, shape (pairs,).
        tolerance: the expected loss up to which to stop; None if not given.
    """

    summary: Summary
    decision: Decision
    trial: OneTrial
    perfect: Estimate
    uncertain: Bool[np.ndarray, "pairs"]
    tried: Int[np.ndarray, "pairs"]
    tolerance: float | None = None

    @property
    def costs(self) -> Costs | None:
        """How the problem, or the belief about it, was given in costs; None if both were given in rewards."""
        return self.summary.costs

    @property
    def gain(self) -> Float[np.ndarray, "pairs"] | None:
        """What one trial of each pair would save, in closed form; None where that is not known."""
        return self.trial.gain

    @property
    def ranking(self) -> Float[np.ndarray, "pairs"]:
        """The number by which pairs are ranked: their gains, or what knowing all of Q(s, a) would save."""
        return self.perfect.value if self.gain is None else self.gain

    @property
    def expected_loss(self) -> Estimate:
        """The expected loss of stopping now."""
        return self.decision.loss

    @property
    def trustworthy(self) -> bool:
        """False if a diagnostic says not to trust the posterior."""
        return self.summary.trustworthy

    @property
    def stop(self) -> bool | None:
        """Whether the expected loss is at most the tolerance and is trustworthy; None without a tolerance."""
        if self.tolerance is None:
            return None
        return self.trustworthy and float(self.expected_loss.value) <= self.tolerance

    @property
    def largest_error(self) -> float:
        """The standard error of the probability that the best policy is optimal, the only one that is reported."""
        return self._largest.se

    @property
    def _largest(self) -> LargestError:
        return LargestError.of("that the best policy is optimal", float(self.decision.optimal.se))

    @cached_property
    def warnings(self) -> list[str]:
        """Warnings about the posterior and about the numbers of the advice, most important first."""
        return self.summary.warnings_with(shortfall(self._largest, self.summary.budget.accuracy))

    @property
    def target(self) -> Target:
        """The posterior on which the advice is based."""
        return self.summary.target

    @cached_property
    def policy(self) -> dict[str, str]:
        """The best policy, state -> action, in the states that it is known to reach."""
        model, own = self.target.model, self.decision.policy
        reached = Walks(self.target.support, self.target.observed).reachable(own[None], model.initial)[0]
        return dict(model.pair_name(own[state]) for state in np.flatnonzero(reached))

    @cached_property
    def trials(self) -> Int[np.ndarray, "uncertain"]:
        """Pairs whose value is uncertain: the largest gain first, else what would save most if it were known."""
        pairs = np.flatnonzero(self.uncertain)
        alike = np.round(self.ranking / max(float(self.ranking.max(initial=0.0)), 1e-300), ALIKE)
        return pairs[np.lexsort((-self.perfect.value[pairs], -alike[pairs]))]

    @cached_property
    def telling(self) -> Bool[np.ndarray, "pairs"]:
        """Pairs of which another trial would be informative: all except those whose reward and law are known."""
        target = self.target
        return ~target.observed | target.open | ((target.scale > 0) & (not target.epsilon))

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of `advise`."""
        model = self.target.model
        found: dict[str, Any] = {"warnings": self.warnings} if self.warnings else {}
        gains = (
            [None] * model.n_pairs if self.gain is None else [{"mean": one, "se": 0.0} for one in self.gain.tolist()]
        )
        return found | {
            "best": {
                "policy": self.policy,
                "value": _mean(self.decision.value),
                "optimal": as_probability(self.decision.optimal.value, self.decision.optimal.se),
            },
            "expected_loss": _mean(self.expected_loss),
            "stop": self.stop,
            "trials": [
                {
                    "state": model.pair_name(pair)[0],
                    "action": model.pair_name(pair)[1],
                    "gain": gains[pair],
                    "perfect": _mean(self.perfect[pair]),
                    "tried": int(self.tried[pair]),
                    "tells": bool(self.telling[pair]),
                }
                for pair in self.trials
            ],
            "engine": self.summary.engine,
            "reason": self.summary.reason,
            "trustworthy": self.trustworthy,
            "largest_error": or_null(self.largest_error),
        }

    def picture(self) -> tuple[Bool[np.ndarray, "p"], Float[np.ndarray, "p"], Bool[np.ndarray, "p"]]:
        """For figures: pairs that the best policy plays, gains of informative trials, pairs that were tried."""
        played = np.zeros(len(self.uncertain), dtype=bool)
        played[[self.target.model.pair_index[pair] for pair in self.policy.items()]] = True
        return played, np.where(self.telling, self.ranking, 0.0), np.asarray(self.tried > 0, dtype=np.bool_)

    def words(self) -> Words:
        """For figures: title, legend and scale."""
        optimal = min(1.0, max(0.0, float(self.decision.optimal.value)))
        doubt = "" if self.trustworthy else "\nnot trustworthy: a diagnostic says so"
        value = worth(float(self.decision.value.value), self.costs)
        return Words(
            f"{self.target.model.name or 'a problem'}: the best policy {value} on average\n{self.headline}{doubt}",
            f"best policy (optimal: {optimal:.0%})",
            "tried",
            "not tried yet",
            ranked_by(self),
        )

    def sentences(self) -> tuple[str, str]:
        """The advice in two sentences."""
        return sentences(self)

    @property
    def verdict(self) -> str:
        """`stop` in words, to begin a text; empty without a tolerance or if the posterior is not trustworthy."""
        return "" if self.stop is None or not self.trustworthy else "Stop. " if self.stop else "Go on. "

    @property
    def headline(self) -> str:
        """The advice in one line, beginning with a verdict if there is a tolerance."""
        return self.verdict + " ".join(self.sentences())

    def card(self) -> Card:
        """Text and table for display: the policy, the expected loss of stopping, and what to try."""
        loss, best = self.expected_loss, self.decision
        stop = "" if self.stop is None else ", stop" if self.stop else ", go on"
        costs = self.costs
        title = f"Advice(expected loss {in_unit(with_error(float(loss), float(loss.se)), costs)}{stop})"
        own = with_error(signed(float(best.value), costs), float(best.value.se))
        value = f"{worded('value', costs)} of the best policy {in_unit(own, costs)}, "
        value += f"optimal with probability {with_error(float(best.optimal), float(best.optimal.se))}"
        shown = [f"{state} {action}" for state, action in list(self.policy.items())[:SHOWN]]
        plays = route_of(self) or f"{', '.join(shown)}{', ...' if len(self.policy) > SHOWN else ''}"
        facts = [" ".join(self.sentences()), value, f"it plays {plays}"]
        model = self.target.model
        return Card(title, facts, self.warnings, self._worth_trying, lambda: picture("advice", model, self))

    def _worth_trying(self) -> Columns:
        """Informative trials that may save something."""
        columns = self._columns(self.trials[self.telling[self.trials] & (self.ranking[self.trials] > 0.0)])
        shown = {name: column for name, column in columns.items() if self.gain is not None or "gain" not in name}
        return in_terms(shown, self.costs)

    def _columns(self, pairs: Int[np.ndarray, "some"]) -> Columns:
        return {
            **self.target.model.name_columns(pairs),
            "gain": [np.nan] * len(pairs) if self.gain is None else self.gain[pairs].tolist(),
            "gain_se": [np.nan if self.gain is None else 0.0] * len(pairs),
            "perfect": self.perfect.value[pairs].tolist(),
            "perfect_se": self.perfect.se[pairs].tolist(),
            "tried": self.tried[pairs].tolist(),
        }

    def to_edges(self) -> pandas.DataFrame:
        """The data frame of `Summary.to_edges`, in which `best` says whether the best policy takes a road.

        Its further columns are those of `to_frame`, empty for roads whose value is certain.
        """
        return edges_frame(self.target.model, self._edge_columns())

    def to_networkx(self, graph: networkx.Graph | None = None) -> networkx.Graph:
        """The graph of `Summary.to_networkx` with the columns of `to_edges` as attributes of edges."""
        return with_attributes(self.target.model, self._edge_columns(), graph)

    def _edge_columns(self) -> dict[str, list[Any]]:
        """Columns with an entry for each pair."""
        model, trials = self.target.model, self.to_frame()
        pairs = [model.pair_index[names] for names in zip(trials["state"], trials["action"], strict=True)]
        columns = edge_columns(self.summary) | {"best": self.picture()[0].tolist()}
        for name in trials.columns.drop(["state", "action"]):
            own = dict(zip(pairs, trials[name].tolist(), strict=True))
            columns[name] = [own.get(pair) for pair in range(model.n_pairs)]
        return columns

    def to_frame(self) -> pandas.DataFrame:
        """A row per pair of uncertain value, in the order of `trials`; `tells`: is another trial informative?"""
        return as_frame({**self._columns(self.trials), "tells": self.telling[self.trials].tolist()})


def _mean(found: Estimate) -> dict[str, float]:
    return {"mean": float(found.value), "se": float(found.se)}


def advise(
    model: SSP,
    data: Dataset,
    tolerance: float | int | None = None,
    *,
    trial_sd: float | int | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Advice:
    """Advise on the best policy now, its expected loss, and what to try next.

    Args:
        model: the problem.
        data: observations of it; without any, the advice is based on the prior.
        tolerance: the expected loss up to which to stop.
        trial_sd: the noise of the next trial, 0 for an exact one; by default that of a pair's last trial, else
            `noise_sd` or the median noise of the trials of other pairs, else none.
        progress: show progress after two seconds; by default on terminals and in notebooks.
        options: keyword arguments of `bellmanifold.posterior`.

    Raises:
        BadInputError: for invalid arguments or contradictory data.
        UnsupportedError: if the posterior gives improper policies any probability, the values that advice rests on have
            no mean, or the posterior cannot be sampled.

    >>> from bellmanifold import envs
    >>> model = envs.two_state()
    >>> advise(model, Dataset.complete(model), tolerance=0.1)
    Advice(expected loss 0, stop)
      Stopping now costs nothing. No trial could improve on the best policy.
      value of the best policy -1, optimal with probability 1
      it plays s1 -(go)-> goal
    """
    require_numbers(tolerance=tolerance, trial_sd=trial_sd)
    if tolerance is not None and not (np.isfinite(tolerance) and tolerance >= 0):
        raise BadInputError(f"tolerance is {tolerance}: give a number that is not negative")
    check_trial_sd(trial_sd)
    with show_progress("weighing what is known", progress):
        summary = posterior(model, data, **options)
        return advice_of(summary, data, None if tolerance is None else float(tolerance), trial_sd)


def advice_of(
    summary: Summary, data: Dataset, tolerance: float | None = None, trial_sd: float | int | None = None
) -> Advice:
    """Advice based on a posterior and its data; `tolerance` and `trial_sd` are as in `advise`."""
    check_proper(summary.target)
    draws, target = _draws(summary), summary.target
    with np.errstate(all="ignore"):  # numbers beyond all bounds are refused next
        decision = decide(draws)
    check_means(draws, decision.policy, summary.tails)
    trials = Trials(draws, decision.by_half)
    noise = trial_noise(data, target.noise_sd, trial_sd)
    trial = one_trial(target, trials.planner, decision.loss, noise, summary.budget.seed)
    if trial_sd is not None and trial.gain is None:
        remark = f"trial_sd has no effect: what one trial would save is not known ({trial.why_not})"
        summary = replace(summary, remarks=(*summary.remarks, remark))
    perfect = trials.gains(float(decision.loss.value))
    return Advice(summary, decision, trial, perfect, draws.sd > 0, data.tries, tolerance)


def check_proper(target: Target) -> None:
    """Raise if the posterior gives improper policies any probability."""
    if target.loops and not target.is_exact and not target.proper_only:
        exact = " or --epsilon 0" if target.epsilon else ""
        raise UnsupportedError(
            "the posterior gives probability to policies that never reach the goal and have no value: use --proper-only"
            + exact
        )


def _draws(summary: Summary) -> JointDraws:
    target, budget, own = summary.target, summary.budget, summary.result.draws
    if summary.result.points is not None and target.laws is None:  # otherwise values depend on each draw's laws
        return given_draws(target, budget, point_draws(target, summary.result.points, budget.seed))
    if own is None:
        return joint_draws(target, budget)
    return given_draws(target, budget, np.concatenate(own().q.values))
