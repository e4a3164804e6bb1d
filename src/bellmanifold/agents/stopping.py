"""When an agent has explored enough: once the expected loss of its best policy is at most what it was told to accept.

The loss is that of `bellmanifold.decisions.advice`, the Bayes risk under the agent's own posterior: what the best
policy may still cost per episode, given all that was seen. It is looked at before every episode in which something new
is believed. From the moment it is small enough the agent explores no more and plays its best policy. That may play a
pair that was never tried, if a blind try is worth it; then it learns what the pair led to, and its best policy changes.

On problems where the draws come from chains, these may not have met yet: chains that sit in one part of the posterior
find little to lose. Each half of the draws has chains of its own (a middle one is in both), so there the loss must be
small enough as either half judges it. That notices halves that disagree, but not a part that no chain has found.

Parameters that are known to be improper have no loss and are left out. Where no draws can be made the agent goes on
exploring, and its diagnostic `expected_loss` is NaN.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from bellmanifold.decisions.advice import decide
from bellmanifold.decisions.joint_draws import JointDraws, known_draws
from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.target import Target

DRAWS, STEPS = 4096, 400
"""Draws that the loss is computed from, or steps of chains on large problems."""


class Stopping:
    """Whether to go on exploring: not once the expected loss is at most `until`."""

    def __init__(self, until: float) -> None:
        self.until, self.loss = until, np.nan
        self.policy: Int[np.ndarray, "states"] | None = None

    def look(self, target: Target, rng: np.random.Generator) -> None:
        """Look at what is believed now; `policy` is the best one, from the first time it is good enough."""
        budget = Budget(seed=int(rng.integers(2**31)), sparse_steps=STEPS, rounds=1)
        try:
            draws = known_draws(target, budget, DRAWS)
        except UnsupportedError:
            self.loss = np.nan
            return
        self.judge(draws)

    def judge(self, draws: JointDraws) -> None:
        """Take the best policy of these draws if its loss is small enough, or if exploring is over already."""
        decision = decide(draws)
        self.loss = float(decision.loss.value)
        judged = max(decision.loss_by_half) if draws.walked else self.loss
        if self.policy is not None or judged <= self.until:
            self.policy = decision.policy

    @property
    def diagnostics(self) -> dict[str, float]:
        """The expected loss when it was last looked at, and whether the agent has stopped exploring."""
        return {"expected_loss": self.loss, "stopped": float(self.policy is not None)}
