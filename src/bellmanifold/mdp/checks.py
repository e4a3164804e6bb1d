"""Does the theory apply to a problem? Assumptions 1 and 2, improper policies, and unidentifiable directions.

Assumption 1 (one absorbing goal that pays nothing, no discount) holds by construction: `assemble` lumps goals, and a
discount is turned into moves to the goal.

Assumption 2 (a proper policy exists, and every improper policy has value minus infinity at some state) holds if and
only if every state reaches the goal with probability 1 under some policy and every goal-free maximal end component has
a negative best mean reward. It concerns all states; a second verdict covers those that are reachable from the start.

For every end component the relaxed likelihood is constant along a direction u (Lemma loopthm of the paper): u_i is the
largest probability of ever reaching the component after pair i, the same for each of its states.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from bellmanifold._util.display import Card, Columns, Shown, as_frame
from bellmanifold._util.options import spoken
from bellmanifold.errors import count_of, listed, quote
from bellmanifold.mdp.graph import (
    EndComponent,
    end_components,
    improper_policy,
    levels,
    may_end,
    reach_goal,
    reach_probability,
    reachable,
)
from bellmanifold.mdp.mean_payoff import MeanReward, best_mean_reward
from bellmanifold.problem.costs import cost_unit, signed, worded
from bellmanifold.problem.maps import map_fault
from bellmanifold.problem.ssp import SSP, Index, require_closed

if TYPE_CHECKING:
    import pandas

MAX_PAIRS_FOR_DIRECTION = 1000
SHOWN = 6


@dataclass(frozen=True)
class Verdict:
    """Assumption 2 for one problem.

    Attributes:
        proper_policy: the pair each state plays to reach the goal with probability 1; -1 where that is impossible.
        stranded: states from which no policy reaches the goal with probability 1, shape (stranded,).
        components: goal-free maximal end components; may be omitted if not requested and every loop has a cost.
        means: the best mean reward of each; None where it was not requested and is clearly negative.
        reasons: a sentence for every violation of the assumption; empty if it holds.
    """

    proper_policy: Int[np.ndarray, "states"]
    stranded: Int[np.ndarray, "stranded"]
    components: list[EndComponent] = field(default_factory=list)
    means: list[MeanReward | None] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether the assumption holds."""
        return not self.reasons


def assumption_2(model: SSP, all_means: bool = False) -> Verdict:
    """Decide Assumption 2 exactly.

    With `all_means`, components and their best mean rewards are computed even if every move has a cost.
    """
    if may_end(model).all():
        return Verdict(model.pair_start[:-1].copy(), np.zeros(0, dtype=np.int64))
    arrives, policy = reach_goal(model)
    stranded = np.flatnonzero(~arrives)
    if not (len(stranded) or all_means) and _loops_cost(model):
        return Verdict(policy, stranded)
    components = end_components(model)
    asked = [all_means or model.reward[component.pairs].max() >= 0 for component in components]
    means = [best_mean_reward(model, one) if ask else None for one, ask in zip(components, asked, strict=True)]
    reasons = []
    if len(stranded):
        who, them = ("state", "it") if len(stranded) == 1 else ("states", "them")
        reasons.append(
            f"no policy is sure to reach the goal from {who} {state_names(model, stranded)} (Assumption 2): "
            f"give {them} a way that cannot miss the goal, or drop {them} with all moves that may lead there "
            + spoken("(--prune)")
        )
    reasons += [complaint(model, best) for best in means if best is not None and best.sign >= 0]
    return Verdict(policy, stranded, components, means, reasons)


def _loops_cost(model: SSP) -> bool:
    """Whether all rewards are at most 0 and no policy can collect rewards of 0 forever."""
    most = float(model.reward.max())
    return most < 0.0 or (most == 0.0 and not end_components(model, model.reward == 0.0))


@dataclass(frozen=True, repr=False)
class Checks(Shown):
    """The result of `check`; `to_dict` gives the JSON object of the interface.

    Attributes:
        verdict: Assumption 2 for the whole problem.
        reachable_verdict: the same for the part that is reachable from the start.
        directions: u for each end component; by default None above 1,000 pairs.
        acyclic: whether no state can be visited twice.
        messages: the findings as sentences.
    """

    model: SSP
    verdict: Verdict
    reachable_verdict: Verdict
    directions: list[Float[np.ndarray, "pairs"]] | None
    acyclic: bool
    messages: list[str]

    @property
    def holds(self) -> bool:
        """Whether both assumptions hold for the whole problem."""
        return self.verdict.holds

    def card(self) -> Card:
        """The card for display: all messages, violations first."""
        fails = len(self.verdict.reasons)
        said = "both assumptions hold" if self.holds else "Assumption 2 fails"
        title = f"Checks({self.model}: {said})"
        return Card(title, self.messages[fails:], self.messages[:fails], self._columns)

    def _columns(self) -> Columns:
        components, means = self.verdict.components, self.verdict.means
        return {
            "states": [[self.model.states[s] for s in one.states] for one in components],
            "max_mean_reward": [None if mean is None else mean.value for mean in means],
        }

    def to_frame(self) -> pandas.DataFrame:
        """A DataFrame with a row per goal-free maximal end component: its states and its best mean reward."""
        return as_frame(self._columns())

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of `check`, as documented for the interface."""
        model, components = self.model, self.verdict.components
        members = [[model.states[s] for s in component.states] for component in components]
        means = [mean.value for mean in self.verdict.means if mean is not None]
        return {
            "assumption_1": True,
            "assumption_2": self.verdict.holds,
            "assumption_2_reachable": self.reachable_verdict.holds,
            "proper_policy_exists": len(self.verdict.stranded) == 0,
            "improper_policies_exist": bool(components),
            "deterministic": model.is_deterministic,
            "acyclic": self.acyclic,
            "states": model.n_states,
            "pairs": model.n_pairs,
            "end_components": [
                {"states": names, "max_mean_reward": value} for names, value in zip(members, means, strict=True)
            ],
            "unidentifiable": [
                {"states": names, "u": None if self.directions is None else model.by_name(self.directions[k].tolist())}
                for k, names in enumerate(members)
            ],
            "messages": self.messages,
        }


def check(model: SSP, discount: float | None = None, full: bool = False) -> Checks:
    """Check whether the theory applies to a problem, and if not, why.

    Args:
        model: the problem.
        discount: check the discounted problem instead.
        full: compute the directions u even above 1,000 pairs.

    >>> from bellmanifold import envs
    >>> check(envs.two_state()).messages[0]
    'Assumptions 1 and 2 hold: the Bellman equations have exactly one solution'
    """
    require_closed(model, "check")
    if discount is not None:
        model = model.discounted(discount)
    verdict = assumption_2(model, all_means=True)
    part = reachable(model, model.initial > 0)
    partial = verdict if part.all() else assumption_2(model.subproblem(part[model.pair_state]))
    directions = None
    if full or model.n_pairs <= MAX_PAIRS_FOR_DIRECTION:
        directions = [direction(model, component) for component in verdict.components]
    acyclic = levels(model) is not None
    return Checks(model, verdict, partial, directions, acyclic, _messages(model, verdict, partial, part))


def direction(model: SSP, component: EndComponent) -> Float[np.ndarray, "pairs"]:
    """u: the direction along which the relaxed likelihood is constant (equation eqn:maxprob_u)."""
    target = np.zeros(model.n_states, dtype=bool)
    target[component.states] = True
    return reach_probability(model, target)


def _messages(model: SSP, verdict: Verdict, partial: Verdict, part: np.ndarray) -> list[str]:
    messages = list(verdict.reasons)
    if verdict.holds:
        messages.append("Assumptions 1 and 2 hold: the Bellman equations have exactly one solution")
    elif not part.all() and partial.holds:
        messages.append(
            f"the part that the start can reach ({int(part.sum())} of {model.n_states} states) satisfies both"
        )
    if not part.all():
        away = listed(np.flatnonzero(~part).tolist(), SHOWN, lambda s: quote(model.states[s]))
        messages.append(f"the start never leads to {away}: check where moves lead")
    if verdict.components:
        messages += _improper(model, verdict.components)
    else:
        messages.append("every policy is proper: the relaxed posterior is free of improper mass")
    unused = map_fault(model)
    return [*messages, unused] if unused else messages


def _improper(model: SSP, components: list[EndComponent]) -> list[str]:
    """Messages with an example of an improper policy, and the number of unidentifiable directions."""
    first = components[0]
    policy = improper_policy(model, first)

    def played(state: int) -> str:
        return f"{quote(model.pair_name(policy[state])[1])} at {_name(model, state)}"

    return [
        f"improper policies exist, for example any that plays {listed(first.states.tolist(), SHOWN, played)}: "
        "relaxed posteriors (epsilon > 0) put mass on them even if the data show the loop; "
        + spoken("epsilon 0 and --proper-only do not"),
        f"{count_of(len(components), 'set')} of recurrent states cannot be identified by a relaxed likelihood: "
        "it is constant along their direction u",
    ]


def complaint(model: SSP, mean: MeanReward) -> str:
    """A sentence about a loop without a cost: what it is, why it matters and how to remedy it."""
    cycle = all(model.next_start[i + 1] - model.next_start[i] == 1 for i in mean.policy)
    loop, costs = mean.loop.tolist(), cost_unit(model)
    what = f"wandering among {state_names(model, mean.loop, SHOWN + 1)} forever"
    if cycle:
        shown = " -> ".join(_name(model, s) for s in [*loop, loop[0]][: SHOWN + 1])
        what = f"the loop {shown}" + (f" -> ... ({len(loop)} moves)" if len(loop) > SHOWN else "")
    if not mean.decided:
        mean_reward = f"a mean reward of about {signed(mean.value, costs):.3g}"
        verb = f"has {mean_reward}, too near 0 to tell its sign, so it may not lose anything"
    elif mean.sign == 0:
        verb = "costs nothing, so waiting forever is as good as arriving"
    else:
        verb = f"pays {mean.value:.3g} per move, so never arriving is better than arriving"
    return f"{what} {worded(f'{verb} (Assumption 2): give its moves a negative reward', costs)}"


def state_names(model: SSP, states: Int[np.ndarray, "n"], most: int = SHOWN) -> str:
    """The first few states by name, and the number of the others."""
    return listed(states.tolist(), most, lambda s: _name(model, s))


def _name(model: SSP, state: Index) -> str:
    """A state's name, quoted unless it is short, printable and without spaces."""
    name = model.states[state]
    return name if name and len(name) <= 40 and name.isprintable() and " " not in name else quote(name)
