"""The weights of points where observed loops are cut open: relative to the mixture of all ways to treat the cut.

`bellmanifold.posteriors.cuts` derives them.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bellmanifold.chart.elimination import censor, eliminate_batch, moves_within
from bellmanifold.chart.layout import Block, Law, Layout
from bellmanifold.posteriors.system import Point, System

Heights = tuple[Float[Array, "batch"], Float[Array, "pairs batch"]]
"""Log weights, and the action values that determine the greedy policy."""


def weigh_cut(system: System, point: Point) -> Heights:
    """Log weights relative to the mixture over all subsets of the cut, and action values."""
    own_law, residual = system.laws(point), system.kernel.from_normal(point.x)
    reward, width = system.rewards(point)
    q, _, solvable = system.solve(own_law, reward + width * residual, system.values(point.x))
    log_prior = system.log_prior(q)
    observed, cut = (system.solved | system.cut)[:, None], system.cut[:, None]
    safe = jnp.where(cut, width, 1.0)
    z = (system.residuals(own_law, q) - reward) / safe
    log_kernel = system.kernel.log_density(z) - jnp.log(safe)
    log_proposal = log_kernel - system.kernel.log_correction(z)
    solved_terms = jnp.where(observed & ~cut, system.kernel.log_correction(residual), 0.0)
    terms = jnp.where(observed, log_prior, 0.0) + jnp.where(cut, log_kernel, 0.0) + solved_terms
    total = jnp.sum(terms, axis=0)
    layout = system.layout
    choice, _ = layout.greedy(q)
    law, sorted_cut, as_solved, as_free = (
        layout.sort(array) for array in (own_law, system.cut, log_proposal, log_prior)
    )
    for block, solved in zip(layout.blocks, system.subsets, strict=True):
        if block.way == "once":
            continue
        cuts = (len(solved) - 1).bit_length()
        places = jnp.nonzero(sorted_cut[block.own], size=cuts)[0]  # in the order of the subsets' digits
        here = _CutBlock(block, layout, law[block.own], solved[-1], places)
        log_determinants = _log_acyclic if block.way == "sweeps" else _log_determinants
        dets = log_determinants(here, choice[block.states])
        factors = (as_solved[block.own][places], as_free[block.own][places])
        for digit, (one, other) in enumerate(zip(*factors, strict=True)):
            is_solved = np.asarray(np.arange(2**cuts) >> digit & 1, dtype=bool)  # in subsets whose number has the digit
            dets = dets + jnp.where(is_solved[:, None], one, other)
        total = total - (jax.scipy.special.logsumexp(dets, axis=0) - jnp.log(len(solved)))
    return jnp.where(solvable, total, -jnp.inf), q


class _CutBlock(NamedTuple):
    """A block with pairs of the cut.

    Attributes:
        block, layout: the block and how it is solved.
        law: transition probabilities of its pairs.
        observed: which of its pairs were observed.
        places: indices of the cut's pairs within the block.
    """

    block: Block
    layout: Layout
    law: Law
    observed: Bool[Array, "own_pairs"]
    places: Int[Array, "cuts"]

    @property
    def states(self) -> Int[Array, "cuts"]:
        """Indices of the states of the cut's pairs within the block."""
        return self.layout.sort(self.layout.place)[self.block.own][self.places] - self.block.begin

    def played(self, choice: Int[Array, "own batch"]) -> Int[Array, "own batch"]:
        """The pair of the cut that each state plays, as a power of two; 0 where it plays a pair outside the cut."""
        digit = jnp.zeros(len(self.observed), dtype=jnp.int64)
        digit = digit.at[self.places].set(1 << jnp.arange(len(self.places)))
        return self.layout.chosen(self.block, digit[:, None], choice)


def _log_determinants(cut: _CutBlock, choice: Int[Array, "own batch"]) -> Float[Array, "subsets batch"]:
    """log |det A_b| of a block's greedy policy, for every subset b.

    All states except those of the cut are eliminated once. That yields the chain watched at these few; a subset keeps
    the solved ones, and moves to the others leave.
    """
    block, layout, cuts = cut.block, cut.layout, len(cut.places)
    successor, law = layout.successor[block.own], cut.law if cut.law.ndim == 3 else cut.law[..., None]
    law = jnp.where(cut.observed[:, None, None], law, 0.0)
    inside = moves_within(successor, law, block.begin, block.end)
    out = jnp.where(((successor < block.begin) | (successor >= block.end))[..., None], law, 0.0).sum(axis=1)
    out = jnp.where(cut.observed[:, None], out, 1.0)
    watched = jnp.zeros(block.end - block.begin, dtype=bool).at[cut.states].set(True)
    order = jnp.argsort(~watched, stable=True)
    moves = layout.chosen(block, inside, choice)[order][:, order]
    leave = layout.chosen(block, out, choice)[order]
    log_det, moves, leave = censor(moves, leave, cuts)
    if not cuts:
        return log_det[None]
    played = cut.played(choice)[order[:cuts]]  # every subset solves the pairs outside the cut
    free = ~((played == 0) | (jnp.arange(2**cuts)[:, None, None] & played != 0))

    def log_minor(free: Bool[Array, "watched batch"]) -> Float[Array, "batch"]:
        kept = jnp.where(free, 0.0, moves)  # no move to a free state
        gone = leave + jnp.sum(jnp.where(free, moves, 0.0), axis=1)
        kept, gone = jnp.where(free[:, None], 0.0, kept), jnp.where(free, 1.0, gone)
        pivots, _ = eliminate_batch(kept, gone, jnp.zeros_like(gone))
        return jnp.sum(jnp.log(pivots), axis=0)

    return log_det + jax.vmap(log_minor)(free)


def _log_acyclic(cut: _CutBlock, choice: Int[Array, "own batch"]) -> Float[Array, "subsets batch"]:
    """The same where moves are not random: 0 if following greedy solved pairs leaves the block, else -inf.

    Every cycle of greedy pairs contains pairs of the cut, and is open if one of them is free. So the cycles are
    followed once, from the states of the cut, and the cut's pairs on each are recorded as binary digits of a number.
    """
    block, layout, cuts = cut.block, cut.layout, len(cut.places)
    states = block.end - block.begin
    law = cut.law if cut.law.ndim == 2 else cut.law[..., 0]
    after = jnp.sum(jnp.where(law == 1.0, layout.successor[block.own], 0), axis=-1) - block.begin
    after = jnp.where(cut.observed & (after >= 0) & (after < states), after, states)
    step = layout.chosen(block, after[:, None], choice)
    step = jnp.append(step, jnp.full((1, choice.shape[-1]), states), axis=0)
    met = jnp.append(cut.played(choice), jnp.zeros((1, choice.shape[-1]), dtype=jnp.int64), axis=0)
    for _ in range(states.bit_length()):  # twice as many moves each time
        met = met | jnp.take_along_axis(met, step, axis=0)
        step = jnp.take_along_axis(step, step, axis=0)
    end = step[cut.states]
    circle = jnp.where(end < states, jnp.take_along_axis(met, end, axis=0), -1)  # all digits: no cycle to open
    free = ~jnp.arange(2**cuts)[:, None] | (1 << cuts)  # outside the cut all pairs are solved; -1 is always open
    is_open = jnp.ones((2**cuts, choice.shape[-1]), dtype=bool)
    for digit in range(cuts):
        is_open = is_open & (circle[digit] & free != 0)
    return jnp.where(is_open, 0.0, -jnp.inf)
