"""When to stop exploring: once the expected loss of the best policy is at most a given bound.

The loss is that of `bellmanifold.decisions.advice`, the Bayes risk under the agent's own posterior: the expected cost
per episode of playing the best policy instead of the unknown optimal one. It is computed before every episode for which
the posterior has changed. Once it is small enough the agent stops exploring and plays its best policy. That may include
a pair that was never tried, if a blind try is worth it; the agent learns from the outcome, and the best policy changes.

Where the draws come from chains, these may not have mixed: chains that stay in one part of the posterior see little to
lose. The halves of the draws come from different chains (a middle one is in both), so there the loss must be small
enough in both halves. This detects halves that disagree, but not a part that no chain has found.

Parameters that are known to be improper have no loss and are left out. Where no draws can be made the agent continues
to explore, and its diagnostic `expected_loss` is NaN.
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
"""Number of draws from which the loss is computed, or of chain steps on large problems."""


class Stopping:
    """The rule that stops exploration once the expected loss is at most `until`."""

    def __init__(self, until: float) -> None:
        self.until, self.loss = until, np.nan
        self.policy: Int[np.ndarray, "states"] | None = None

    def look(self, target: Target, rng: np.random.Generator) -> None:
        """Compute the loss under the current posterior; sets `policy` from the first time it is small enough."""
        budget = Budget(seed=int(rng.integers(2**31)), sparse_steps=STEPS, rounds=1)
        try:
            draws = known_draws(target, budget, DRAWS)
        except UnsupportedError:
            self.loss = np.nan
            return
        self.judge(draws)

    def judge(self, draws: JointDraws) -> None:
        """Adopt the best policy of these draws if its loss is small enough or exploration is already over."""
        decision = decide(draws)
        self.loss = float(decision.loss.value)
        judged = max(decision.loss_by_half) if draws.walked else self.loss
        if self.policy is not None or judged <= self.until:
            self.policy = decision.policy

    @property
    def diagnostics(self) -> dict[str, float]:
        """The last computed expected loss, and whether the agent has stopped exploring."""
        return {"expected_loss": self.loss, "stopped": float(self.policy is not None)}
