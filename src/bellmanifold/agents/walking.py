"""Draws from Markov chains that continue from episode to episode, where importance weights are too uneven.

Chains of slice steps (`bellmanifold.posteriors.walk`) continue from where the last episode left them. New observations
change the posterior but not the coordinates of the pairs, so the chains need not be restarted. Where the problem fits a
batch, several chains run side by side, which costs little more than one, and take turns at being played: by the time a
chain is played again it has made as many visits as there are unobserved pairs. A walk has one draw at a time, so route
probabilities are unknown and its beliefs about actions are those of that draw.

Walks stay within the parameters that are not known to be improper, and may miss loops that are rarely left; the
diagnostic `proper_only` says whether anything is left out.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from bellmanifold.agents.agent import Beliefs
from bellmanifold.agents.beliefs import known_only, shares
from bellmanifold.chart.batch import BatchChart
from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.cuts import missed_by_walks
from bellmanifold.posteriors.target import Target
from bellmanifold.posteriors.walk import walker_of
from bellmanifold.posteriors.walker import Draw, Walker

CHAINS = 4
"""Number of chains that take turns; on sparse systems there is one."""
FIRST_SWEEPS = 4
"""Average number of visits to every unobserved pair before a chain is first played."""
FIRST_TURNS, TURNS = 200, 50
"""Least steps before the first and each later episode where residuals matter: each step turns them all once."""


class Walk:
    """Draws from chains of slice steps.

    Args:
        target: the current posterior.
        chart: chart of the known pairs; None if they do not fit a batch.
        rng: fixes the starting points of the chains.
        before: the previous source of draws.
    """

    def __init__(
        self, target: Target, chart: BatchChart | None, rng: np.random.Generator, before: object = None
    ) -> None:
        earlier = before.walker if isinstance(before, Walk) else None
        self.target = target
        self.walker: Walker = walker_of(Coordinates(target), chart, rng, CHAINS if chart else 1, earlier)
        self.turn: int = before.turn if isinstance(before, Walk) else 0
        left_out = target.improper_loops or missed_by_walks(target, batch=chart is not None)
        self.diagnostics = {
            "frontier": float(self.walker.coordinates.frontier),
            "proper_only": 1.0 if left_out else 0.0,
        }
        if self.walker.is_fresh:
            first = min(FIRST_SWEEPS * self.walker.sweep, max(self.walker.most, FIRST_TURNS))
            self.walker.advance(rng, first if self.walker.ignores_residuals else max(first, FIRST_TURNS))
        self._drawn: Draw | None = None

    @property
    def steps(self) -> int:
        """Number of steps of every chain before an episode."""
        steps = int(np.clip(self.walker.sweep // self.walker.chains, self.walker.least, self.walker.most))
        return steps if self.walker.ignores_residuals else max(steps, TURNS)

    def draw(self, rng: np.random.Generator) -> Int[np.ndarray, "states"]:
        """The greedy policy of the chain whose turn it is; -1 where any unknown pair of the state is the best."""
        self.walker.advance(rng, self.steps)
        self.turn = (self.turn + 1) % self.walker.chains
        self._drawn = self.walker.draw(self.turn)
        return known_only(self.target, self._drawn.policy)

    def beliefs(self) -> Beliefs:
        """Beliefs about every pair, from the last draw."""
        assert self._drawn is not None, "an agent draws before it is asked"
        policy = known_only(self.target, self._drawn.policy)
        share = shares(self.target.model, self.target.observed, policy[:, None], np.ones(1))
        coupled = self.target.coupled[self.target.model.pair_state]
        return Beliefs(share, np.where(coupled, self._drawn.q_mean, self.target.prior.mean))

    def route_probabilities(self, routes: tuple[tuple[int, ...], ...]) -> Float[np.ndarray, "routes"]:
        """NaN: a single draw has no route probabilities."""
        return np.full(len(routes), np.nan)
