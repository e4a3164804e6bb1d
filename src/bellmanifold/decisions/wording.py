"""Advice in words: what stopping costs, and the move to try next.

A move is named as the next only if the value of one trial is known: what knowing all of Q(s, a) would save ranks moves,
but says little about what one trial of them saves. Whoever may stop is not told to go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bellmanifold.errors import quote
from bellmanifold.posteriors.route import MOST_MOVES, way
from bellmanifold.problem.costs import amount

if TYPE_CHECKING:
    from bellmanifold.decisions.advice import Advice

LEAST = 1e-3
"""A trial that saves less than this share of the expected loss is not recommended."""
KNOWING_ALL = "what knowing all of Q(s, a) would save"
ONE_TRIAL = "what one trial would save"


def ranked_by(advice: Advice) -> str:
    """The meaning of the number that ranks moves, with its unit."""
    return (KNOWING_ALL if advice.gain is None else ONE_TRIAL) + unit_of(advice)


def unit_of(advice: Advice) -> str:
    """The unit of its numbers, to end a line with; empty if it is not known."""
    return f", in {advice.costs.unit}" if advice.costs and advice.costs.unit else ""


def route_of(advice: Advice, most: int = MOST_MOVES) -> str:
    """The best policy as a route in one line; empty if moves are random, or if there are several starts.

    It ends in "?" where an untried pair leads, since nothing is known about what follows.
    """
    target, model = advice.target, advice.target.model
    if target.laws is not None or not model.is_deterministic or np.count_nonzero(model.initial) != 1:
        return ""
    state, states, pairs, end = int(np.argmax(model.initial)), set[int](), list[int](), "goal"
    while state < model.n_states and end == "goal":
        states.add(state)
        pairs.append(int(advice.decision.policy[state]))
        state = int(model.next_state[model.next_start[pairs[-1]]])
        end = "open" if not target.observed[pairs[-1]] else "loop" if state in states else "goal"
    return way(model, pairs, end, most)


def sentences(advice: Advice) -> tuple[str, str]:
    """What stopping costs, and what to do next."""
    loss = float(advice.expected_loss.value)
    if not advice.uncertain.any() or loss <= 0.0:
        return "Stopping now costs nothing.", "No trial could improve on the best policy."
    episode = "episode" if advice.costs is None else "trip"
    first = f"If you stop now, you expect to lose {amount(loss, advice.costs)} per {episode}."
    if advice.stop:
        return first, f"That is at most {advice.tolerance:g}, the tolerance."
    return first, _next(advice, loss)


def _next(advice: Advice, loss: float) -> str:
    """The move to try next."""
    if advice.gain is None:
        return f"What one trial would save is not known ({advice.trial.why_not}): moves are ranked by {KNOWING_ALL}."
    best = int(advice.trials[0])
    gain, sd = float(advice.gain[best]), float(advice.trial.sd[best])
    if gain <= 0.0:
        return "No single trial helps: whatever one shows, the best policy stays the best. Several together may help."
    if gain < LEAST * loss:
        return f"No single trial helps much: none would save more than {amount(gain, advice.costs)} of it."
    state, action = (quote(name) if " " in name else name for name in advice.target.model.pair_name(best))
    trial = f"one trial, with noise of sd {sd:.3g}," if sd > 0 else "one exact trial"
    return f"Next, try {action} at {state}: {trial} would save {amount(gain, advice.costs)} of it."
