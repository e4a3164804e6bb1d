"""Standard coordinates of a posterior: which numbers a point consists of.

A posterior is turned into a reference distribution, independent standard normals, and a weight, so samplers need to
know nothing about decision problems. This module defines which pairs have a coordinate and what it means; the weight of
a point is computed by `bellmanifold.posteriors.weight` for batches and by `bellmanifold.posteriors.sparse_walk` on
sparse systems.

*Non-centred* coordinates are the chart's: a residual xi_i for each observed pair, and the largest value among the
unobserved pairs of each coupled state, if they share a prior (which of them attains it is uniform and independent of
all else); otherwise each of them has a coordinate. The weight is

    w = prod_{i observed} N(theta_i; mean_i, sd_i^2) / |det A(theta)|,

and its mean over the reference distribution is the evidence. *Centred* coordinates are the action values of coupled
states, theta = mean + sd x, with weight prod_i K(g_i(theta), r_i): better where the kernel is as wide as the prior.
Where a *cut* is needed (`bellmanifold.posteriors.cuts`) some observed pairs are *freed*: their values are coordinates.

Residuals that are not Gaussian are functions of normal numbers (`bellmanifold.posteriors.kernels`). A noise scale eta
that has to be inferred is one more normal number, turned into eta by its table (`bellmanifold.posteriors.noise_scale`).

At epsilon = 0 the residuals are kept with an infinitesimal width: they split exact ties between observed actions as the
limit epsilon -> 0 splits them, and change nothing else. In a loop that is rarely left they would add up to a
finite width, so its pairs have none and their ties are not split.

**Loops that are rarely left** (exact posteriors): a class of observed pairs that leaks with probability L has some
value v under a policy that never chooses to leave it. The cell in which every unobserved exit is worth less has little
prior mass and a weight of 1/L, so points from the prior miss it. For every such loop a coin decides whether its exits
are drawn from their prior or *below* the value of lingering given all else, V', the value without these exits. A point
where none of them is greedy has V = V', so the density of the mixture over all tosses, relative to the prior, is

    prod_loops (1 + t) / 2,    t = prod_{exits u} Phi((V(s_u) - mean_u) / sd_u)^-k_u  if no exit is greedy, else 0,

(k_u exchangeable pairs) and weights are divided by it (the balance heuristic).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from bellmanifold.mdp.graph import end_components
from bellmanifold.posteriors.rounding import tie_width
from bellmanifold.posteriors.target import Target


@dataclass(frozen=True)
class Loop:
    """A loop of observed pairs that is rarely left.

    Attributes:
        states: its states.
        exits: unobserved pairs of these states (only the representatives of exchangeable pairs).
        pairs: pairs that a policy that stays in the loop may play.
    """

    states: tuple[int, ...]
    exits: tuple[int, ...]
    pairs: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Coordinates of one posterior.

    Attributes:
        target: the posterior.
        centred: whether coordinates are action values instead of residuals.
        cut: observed pairs that are treated as solved or as free.
        freed: the pairs of the cut that are free here.
        lingering: loops whose exits are drawn below the value of lingering, depending on the toss of a coin for each.
    """

    target: Target
    centred: bool = False
    cut: tuple[int, ...] = ()
    freed: tuple[int, ...] = ()
    lingering: tuple[Loop, ...] = ()

    @cached_property
    def solved(self) -> Bool[np.ndarray, "pairs"]:
        """Pairs whose Bellman equation is solved by the chart."""
        solved = self.target.observed.copy()
        solved[list(self.freed)] = False
        return solved

    @cached_property
    def unseen(self) -> Bool[np.ndarray, "pairs"]:
        """Unobserved pairs of coupled states."""
        return ~self.target.observed & self.target.coupled[self.target.model.pair_state]

    @cached_property
    def stand_in(self) -> Int[np.ndarray, "pairs"]:
        """Representative of each pair: the first of a state's exchangeable unobserved pairs stands for all of them."""
        return stand_ins(self.target, self.unseen & (not self.centred))

    @cached_property
    def free(self) -> Bool[np.ndarray, "pairs"]:
        """Pairs whose value is a coordinate."""
        target, pairs = self.target, np.arange(self.target.model.n_pairs)
        coupled = target.coupled[target.model.pair_state]
        return coupled if self.centred else coupled & ~self.solved & (self.stand_in == pairs)

    @cached_property
    def residual(self) -> Bool[np.ndarray, "pairs"]:
        """Pairs whose residual is a coordinate."""
        if self.centred:
            return np.zeros_like(self.solved)
        return self.solved & (self.target.may_tie | (self.target.scale > 0))

    @cached_property
    def alternatives(self) -> Int[np.ndarray, "pairs"]:
        """Number of exchangeable pairs that each pair stands for, at least 1."""
        return np.maximum(np.bincount(self.stand_in, minlength=len(self.stand_in)), 1)

    @cached_property
    def tie_width(self) -> float:
        """Width of the infinitesimal residuals that split ties of pairs with exact rewards; 0 if there are none."""
        return tie_width(self.target) if self.target.may_tie.any() else 0.0

    @cached_property
    def split(self) -> Float[np.ndarray, "pairs"]:
        """Width of each infinitesimal residual; 0 for pairs that have none."""
        width = np.full(self.target.model.n_states, self.tie_width)
        width[[state for loop in self.lingering for state in loop.states]] = 0.0
        return np.where(self.target.may_tie, width[self.target.model.pair_state], 0.0)

    @property
    def scales(self) -> int:
        """Number of noise scales that are coordinates, 1 or 0."""
        return 0 if self.target.noise_scale is None else 1

    @property
    def way(self) -> str:
        """Name of this kind of coordinates."""
        return "centred" if self.centred else "cut" if self.cut else "non-centred"

    @cached_property
    def covers_improper(self) -> bool:
        """Whether points reach the parameters, if any, whose greedy policy stays among observed pairs forever."""
        if self.centred or not self.target.improper_loops:
            return True
        uncut = self.target.observed.copy()
        uncut[list(self.cut)] = False
        return not any((self.target.scale[loop.pairs] > 0).any() for loop in end_components(self.target.model, uncut))

    @property
    def size(self) -> int:
        """Number of coordinates, including infinitesimal residuals but not coins."""
        return self.scales + int(self.free.sum()) + int(self.residual.sum())

    @property
    def dimension(self) -> int:
        """Number of coordinates that are integrated over: infinitesimal residuals do not count, open laws do."""
        laws = self.target.laws
        of_laws = 0 if laws is None else len(laws.pairs) * (laws.nexts - 1) + (len(laws.concentration) > 1)
        return self.frontier + of_laws

    @property
    def frontier(self) -> int:
        """The dimension without open laws."""
        return self.scales + int(self.free.sum()) + int((self.residual & (self.target.scale > 0)).sum())


def stand_ins(target: Target, unseen: Bool[np.ndarray, "pairs"]) -> Int[np.ndarray, "pairs"]:
    """Representative of each pair: the first of the unseen pairs that share a state and a prior stands for all."""
    model, pairs = target.model, np.arange(target.model.n_pairs)
    shared = unseen & target.prior.exchangeable(model, unseen)[model.pair_state]
    first = np.minimum.reduceat(np.where(shared, pairs, model.n_pairs), model.pair_start[:-1])
    return np.where(shared, first[model.pair_state], pairs)
