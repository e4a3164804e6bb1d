"""What a walker is: chains of slice steps on one posterior, walked on as long as needed, and on to more data.

There are two, with the same moves: `bellmanifold.posteriors.batch_walk.BatchWalker` moves many chains in one compiled
program, `bellmanifold.posteriors.sparse_walk.SparseWalker` one after the other on sparse systems. Posteriors, advice
and agents know no other difference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.posteriors.coordinates import Coordinates
from bellmanifold.posteriors.system import Drawn
from bellmanifold.posteriors.trace import Trace

PICKS = 8
"""Number of unobserved pairs that each chain visits in a step, at most."""


class Draw(NamedTuple):
    """A single draw from a posterior.

    Attributes:
        policy: its greedy pairs; of exchangeable ones the one that stands for all, shape (states,).
        at_start: expected best value at the start.
        q_mean: mean of each pair's value, given what the draw says, shape (pairs,).
    """

    policy: Int[np.ndarray, "states"]
    at_start: float
    q_mean: Float[np.ndarray, "pairs"]


class Ends(NamedTuple):
    """Where some of the chains are: which ones, their action values, noise scales and open laws, if they are dense."""

    kept: Bool[np.ndarray, "all"]
    q: Float[np.ndarray, "pairs chains"]
    noise_scale: Float[np.ndarray, "scales chains"]
    laws: Drawn | None


class Walker(ABC):
    """Chains of slice steps.

    Every pair has a normal number of its own, so chains go on where they were when more pairs become known: a walker
    may begin where one of its kind with fewer data is.

    Attributes:
        coordinates: of the posterior.
        chains: how many.
        is_fresh: whether they begin anew.
        visited: how many unobserved values are visited one at a time.
        ignores_residuals: whether residuals, which turn once a step, hardly matter.
        least, most: steps between two draws that are played, whatever the number of unobserved pairs.
    """

    coordinates: Coordinates
    chains: int
    is_fresh: bool
    visited: int
    ignores_residuals: bool
    least: int
    most: int

    @property
    def sweep(self) -> int:
        """Steps in which a chain visits as many unobserved values as there are."""
        return -(-self.visited // PICKS)

    @abstractmethod
    def advance(self, rng: np.random.Generator, steps: int) -> None:
        """Walk a number of steps without recording them."""

    @abstractmethod
    def record(self, rng: np.random.Generator, steps: int, keeps: bool = False) -> Trace:
        """Walk on and keep what answers need; on sparse systems points of every few steps, too, if asked for."""

    @abstractmethod
    def draw(self, chain: int) -> Draw:
        """Where a chain is now."""

    @abstractmethod
    def ends(self, kept: Bool[np.ndarray, "chains"] | None = None) -> Ends:
        """Where some chains are now; by default those of positive likelihood, which a chain does not lose again."""
