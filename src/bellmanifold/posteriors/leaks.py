"""Checks that a posterior with open laws exists and that importance weights have finite variance.

The conditions are derived in `bellmanifold.posteriors.laws`: for every class of pairs with exact rewards that pays
exactly nothing on average, the total weight w = sum (n_out + a b_out) of its exits must exceed 1, and exceed 2 for
weights with finite variance. An observed landing counts 1, so only two kinds of classes matter. Those with no observed
exit are the end components of the observed landings, where a pair without any may lead back to its own state. Those
with one observed exit become end components once that landing is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from bellmanifold.errors import UnsupportedError
from bellmanifold.mdp.checks import state_names
from bellmanifold.mdp.graph import end_components, state_graph
from bellmanifold.mdp.mean_payoff import MeanReward, best_mean_reward
from bellmanifold.posteriors.laws import OpenLaws
from bellmanifold.posteriors.target import Target
from bellmanifold.problem.ssp import SSP

HOPE = 4.0
"""A class may pay if it would pay with every reward raised by this many of its standard deviations."""
MOST_LOOKED_AT = 64
"""Maximum number of landings that are removed, one at a time."""


def check_leaks(target: Target, remedy: str = "use --epsilon above 0, --noise-sd or --discount 0.99") -> None:
    """Refuse a posterior that does not exist because a class that pays nothing may be left arbitrarily rarely."""
    laws = target.laws
    if laws is None or not _may_idle(target, laws):
        return
    idle = _idle_class(target, laws, target.support, 1.0)
    if idle is not None:
        raise UnsupportedError(
            f"the pairs that may stay in {state_names(target.model, np.sort(idle.loop))} pay nothing on average, and "
            "their laws are unknown: the posterior does not exist, since its density diverges as the exit probability "
            f"goes to 0; {remedy}"
        )


def lacking_variance(target: Target) -> str:
    """Why the weights of a posterior that exists may have infinite variance, in words; empty if it is finite.

    With infinite variance neither importance sampling nor chains that propose laws can be trusted: rarely exited loops
    get too much weight.
    """
    laws = target.laws
    if laws is None or not _may_idle(target, laws):
        return ""
    if _idle_class(target, laws, target.support, 2.0) is not None:
        return "a loop that pays nothing was never left, and its laws are unknown: weights have infinite variance"
    rows, landings = _single_exits(target, laws)
    if len(rows) > MOST_LOOKED_AT:
        return "open laws in loops that may pay nothing: too many to show that weights have finite variance"
    for row, landing in zip(rows, landings, strict=True):
        once = csr_array(([1.0], ([row], [landing])), shape=laws.landed.shape)
        fewer = csr_array(laws.landed - once)
        fewer.eliminate_zeros()
        without = replace(target, laws=replace(laws, landed=fewer)).support
        if _idle_class(target, laws, without, 1.0) is not None:
            return "a loop that pays nothing was left once, and its laws are unknown: weights have infinite variance"
    return ""


@dataclass(frozen=True, eq=False)
class HeavyTails:
    """Values without moments.

    Attributes:
        states: states of a loop that may pay and is hardly ever left.
        what: what values that may come from there lack: "mean" (hence also a standard deviation) or
            "standard deviation".
    """

    states: Int[np.ndarray, "states"]
    what: str

    def sentence(self, target: Target) -> str:
        """The fact in words, with a remedy."""
        return (
            f"values that may come from staying in {state_names(target.model, self.states)} have no {self.what}: "
            f"staying may pay off, and few exits were observed, so that {self._shown} there "
            "(probabilities are sound); give a number as --prior-scale, or --discount 0.99"
        )

    @property
    def _shown(self) -> str:
        return "q_mean and q_sd are undefined" if self.what == "mean" else "q_sd is undefined"

    def reaching(self, target: Target) -> Bool[np.ndarray, "pairs"]:
        """Observed pairs from which these states can be reached. Open laws may lead anywhere."""
        model, marked = target.model, np.zeros(target.model.n_states + 1, dtype=bool)
        marked[self.states] = True
        while True:
            hit = np.logical_or.reduceat(marked[model.next_state], model.next_start[:-1])
            hit = target.observed & (hit | target.open)
            more = marked.copy()
            more[model.pair_state[hit]] = True
            if (more == marked).all():
                return hit
            marked = more


def heavy_tails(target: Target) -> HeavyTails | None:
    """Which action values have no mean, or no standard deviation; None if both exist.

    Under a prior that is flat over rewards no density bounds values. A class that pays r > 0 on average, and whose leak
    L has density L^(w - 1) near 0, has a value of about r / L, with a mean if w > 1 and a variance if w > 2. Under a
    normal prior of values all moments exist.
    """
    laws = target.laws
    if laws is None or not target.prior.flat or laws.discount < 1.0:
        return None
    never = _paying_class(target, laws)
    if never is not None:
        return HeavyTails(np.sort(never), "mean")
    once = _left_once(target, laws)
    return None if once is None else HeavyTails(np.sort(once), "standard deviation")


def _optimistic_rewards(target: Target) -> Float[np.ndarray, "pairs"]:
    """Rewards raised by HOPE standard deviations."""
    return target.reward + HOPE * target.scale


def _paying_class(target: Target, laws: OpenLaws) -> Int[np.ndarray, "states"] | None:
    """States of a class that may pay, has no observed exit, and has exits of total weight at most 1."""
    model = replace(target.support, reward=_optimistic_rewards(target))
    classes = _classes(target, laws, model, target.observed)
    return next((best.loop for best, weight in classes if best.sign > 0 and 0.0 < weight <= 1.0), None)


def _left_once(target: Target, laws: OpenLaws) -> Int[np.ndarray, "states"] | None:
    """A state with a pair that may pay, has one observed exit, and has exits of total weight at most 2."""
    own = target.model.pair_state[laws.pairs]
    landed = laws.landed.tocoo()
    left = np.bincount(landed.row, landed.data * (landed.col != own[landed.row]), len(own))
    out = laws.base_weight(float(laws.concentration[0]), laws.nexts - 1)
    single = (left == 1.0) & (out <= 1.0) & (_optimistic_rewards(target)[laws.pairs] > 0)
    return own[np.flatnonzero(single)[:1]] if single.any() else None


def _may_idle(target: Target, laws: OpenLaws) -> bool:
    """Whether a class may pay exactly nothing, with a weight that grows as its leak falls."""
    return laws.discount == 1.0 and not target.prior.flat and bool((target.exact & (target.reward >= 0)).any())


def _single_exits(target: Target, laws: OpenLaws) -> tuple[Int[np.ndarray, "exits"], Int[np.ndarray, "exits"]]:
    """Rows and landings observed exactly once, of pairs with other landings in their state's component."""
    landed = laws.landed.tocoo()
    row, landing = landed.row.astype(np.int64), landed.col.astype(np.int64)
    _, label = connected_components(state_graph(target.support, target.exact), connection="strong")
    stays = label[landing] == label[target.model.pair_state[laws.pairs[row]]]
    others = np.bincount(row, stays, len(laws.pairs))[row] - stays
    single = (landed.data == 1) & (others > 0) & target.exact[laws.pairs[row]]
    return row[single], landing[single]


def _idle_class(target: Target, laws: OpenLaws, support: SSP, most: float) -> MeanReward | None:
    """A class of pairs with exact rewards that pays exactly nothing and has exits of total weight at most `most`.

    In `support` open laws lead only to observed landings; the weight is that of all other landings.
    """
    exact, model = target.exact, replace(support, reward=target.reward)
    for allowed in (exact, exact & (target.reward == 0)):
        for best, weight in _classes(target, laws, model, allowed):
            if best.sign == 0 and 0.0 < weight <= most:
                return best
    return None


def _classes(
    target: Target, laws: OpenLaws, model: SSP, allowed: Bool[np.ndarray, "pairs"]
) -> Iterator[tuple[MeanReward, float]]:
    """The class with the largest mean reward in each end component, and the prior weight of its exits."""
    for component in end_components(model, allowed):
        best = best_mean_reward(model, component)
        out = laws.base_weight(float(laws.concentration[0]), laws.nexts - len(best.loop))
        yield best, out * int(target.open[best.policy].sum())
