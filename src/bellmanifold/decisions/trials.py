"""The value of knowing the value of a pair: the expected value of partial perfect information.

Knowing theta_i before choosing a policy is worth

    gain_i = E[ max_pi E[V^pi | theta_i] ] - max_pi E[V^pi],

at least 0 and at most the whole expected loss. Given draws, it is estimated by *learning a rule on one half and
evaluating it on the other*. On the first half the draws are grouped by theta_i, and the best policy of each group is
found. The advantage V^pi - V^best of each is regressed on theta_i (continuous, piecewise linear between quantiles);
where this explains no more than chance, the mean is used. At each theta_i the rule plays the policy with the largest
predicted advantage, or the best policy if none is positive. On the second half the rule earns V^rule(theta_i) - V^best
in each draw. The mean of this never exceeds the loss, since no rule beats V*; its expectation is at most gain_i, as no
rule beats the best one, and its standard error is that of a mean. Then the halves are swapped.

Exchangeable pairs have the same gain, so only one of each group is evaluated.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from bellmanifold._util.progress import advance, expect
from bellmanifold.decisions.joint_draws import Half, JointDraws, PerDraw
from bellmanifold.decisions.valuation import Planner, Policies, Valuation, Values
from bellmanifold.posteriors.coordinates import stand_ins
from bellmanifold.posteriors.estimated import Estimate, resolution_of

EDGES, FEW_EDGES = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98), (0.1, 0.5, 0.9)
"""Quantiles of theta_i that separate groups of draws; fewer where policies are found one by one."""
KNOTS = (0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
"""Quantiles between which predicted advantages are linear in theta_i."""
SURE = 4.0
"""A group's own mean payment is used if it is more than this many standard errors from the mean of all draws."""
CHANCE = 5.0
"""A regression explains more than chance if its F statistic is this many standard deviations above its mean."""


class Trials:
    """Values of trials, given the best policy of each half of the draws."""

    def __init__(self, draws: JointDraws, best: Policies) -> None:
        self.draws, self.best = draws, best
        self.valuation, self.planner = Valuation(draws), Planner(draws)
        self.best_value = self.valuation.at_start(best)
        self.mean = np.stack([draws.mean(draws.pay, half) for half in draws.halves])
        self._random = np.flatnonzero(np.ptp(draws.pay, axis=1) > draws.tie)
        centred = [draws.pay[self._random] - mean[self._random, None] for mean in self.mean]
        self._powers = [np.concatenate([one, one**2]) for one in centred]

    def gains(self, loss: float) -> Estimate:
        """The value of a trial of each pair; 0 where the pair's value is certain or the expected loss is 0."""
        target, draws = self.draws.target, self.draws
        value, se = np.zeros((2, target.model.n_pairs))
        alike = stand_ins(target, ~target.observed)
        floor = loss * resolution_of(draws.effective)
        touched = target.coupled | (target.model.initial > 0)  # by data or starts
        pairs = np.flatnonzero((draws.sd > 0) & touched[target.model.pair_state] & (loss > 0))
        expect("trials", len(pairs))
        for pair in pairs:
            advance("trials")
            if alike[pair] == pair:
                found = draws.estimate(self.advantage(int(pair)))
                value[pair], se[pair] = max(0.0, float(found.value)), max(float(found.se), floor)
        return Estimate(value[alike], se[alike])

    def advantage(self, pair: int) -> PerDraw:
        """The advantage of a pair's rule over the best policy in every draw; the rule was learnt on the other half."""
        draws, known = self.draws, self.draws.q[:, pair]
        collected = np.zeros(len(known))
        for k, (learns, judges) in enumerate((draws.halves, draws.halves[::-1])):
            policies = self._candidates(k, learns, known)
            if len(policies):
                advantage = self.valuation.at_start(policies) - self.best_value[k]
                predicted = _regress(known, advantage, draws.weight * learns, draws.tie)
                choice = np.argmax(predicted, axis=0)
                rule = np.where(predicted.max(axis=0) > draws.tie, np.take_along_axis(advantage, choice[None], 0)[0], 0)
                collected[judges] = rule[judges]
        return collected

    def _candidates(self, k: int, learns: Half, known: PerDraw) -> Policies:
        """The best policies of groups of the learning draws by theta_i, without the best policy of that half."""
        draws = self.draws
        edges = EDGES if draws.chart is not None else FEW_EDGES
        weight = draws.weight * learns
        group = np.searchsorted(_quantiles(known, weight, edges), known, side="right")
        own = np.where(np.arange(group.max() + 1) == group[:, None], weight[:, None], 0.0)
        own = own[:, own.any(axis=0)]
        own = own / own.sum(axis=0)
        shift, square = np.split(self._powers[k] @ own, 2)
        spread = np.sqrt(np.maximum(square - shift**2, 0.0) * (own**2).sum(axis=0))
        pays = np.repeat(self.mean[k][:, None], own.shape[1], axis=1)
        pays[self._random] += np.where(np.abs(shift) > SURE * spread + draws.tie, shift, 0.0)
        return self._distinct(k, self.planner.plan(own, pays))

    def _distinct(self, k: int, policies: Policies) -> Policies:
        """Policies that differ from each other, and from the best one of a half, in states that they reach."""
        start = self.draws.target.model.initial
        both = np.concatenate([self.best[k : k + 1], policies])
        shown = np.where(self.valuation.walks.reachable(both, start), both, -1)
        _, first = np.unique(shown, axis=0, return_index=True)
        return both[np.sort(first[first > 0])]


def _quantiles(known: PerDraw, weight: PerDraw, levels: tuple[float, ...]) -> Float[np.ndarray, "_"]:
    """Distinct quantiles of weighted values."""
    order = np.argsort(known, kind="stable")
    below = np.cumsum(weight[order]) / max(float(weight.sum()), 1e-300)
    return np.unique(known[order][np.minimum(np.searchsorted(below, levels), len(order) - 1)])


def _regress(known: PerDraw, advantage: Values, weight: PerDraw, tie: float) -> Values:
    """Advantages predicted by weighted least squares; their means where chance would explain as much."""
    some, knots = np.flatnonzero(weight), _quantiles(known, weight, KNOTS)
    scale = max(float(np.ptp(knots)), tie) or 1.0
    basis = np.maximum((known - knots[:, None]) / scale, 0.0)
    basis = np.concatenate([np.ones((1, len(known))), (known - knots[0])[None] / scale, basis])
    root = np.sqrt(weight[some] / weight.sum())
    left, right = (basis[:, some] * root).T, (advantage[:, some] * root).T
    fit, _, rank, _ = np.linalg.lstsq(left, right, rcond=1e-9)
    mean = advantage[:, some] @ (root**2)
    rest = ((right - left @ fit) ** 2).sum(axis=0)
    explained = np.maximum((right**2).sum(axis=0) - mean**2 - rest, 0.0)
    count, freedom = weight.sum() ** 2 / (weight**2).sum(), max(1, int(rank) - 1)
    chance = (freedom + CHANCE * np.sqrt(2.0 * freedom)) * rest / count
    return np.where((explained > chance)[:, None], fit.T @ basis, mean[:, None])
