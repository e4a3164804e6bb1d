"""The chart: coordinates of the posterior <-> action values, with the log-determinant of the change of variables.

Let O be the pairs that are *solved* (the observed ones) and U all others. In the modified problem M~, solved pairs keep
their transitions and pay `payment`; every other pair leads to the goal and pays its own `value`. The equations

    theta_i = payment_i + sum_s' p(s'|i) max_a theta(s', a),  i in O;      theta_u = value_u,  u in U

have at most one solution whose greedy policy is proper. So (theta_U, payments) are coordinates for theta. If pair i
pays r_i + epsilon xi_i, the residual g_i(theta) - r_i is epsilon xi_i: this is the relaxed posterior in coordinates
(theta_U, xi), and for epsilon = 0 the manifold posterior in coordinates theta_U alone. The change of variables from
theta to coordinates divides densities by |det A|, A_ij = 1(i = j) - p(s_j | i) 1(a_j greedy at s_j) for i, j in O, and

    |det A| = det(I - P_mu),

where P_mu are the greedy policy's moves among states whose greedy pair is solved: a pair that is not greedy has a unit
column, and expanding along these columns leaves P_mu. The determinant is 1 if no greedy cycle is possible.

A `BatchChart` groups the states of a problem into *blocks* that are solved one after the other, from the goal
backwards; `solve` does so for many coordinate vectors in one compiled program. Arrays are in the order of the problem's
pairs with the batch as the last axis. The transition law is an argument, one for all members of the batch or one for
each. Internally pairs are sorted by blocks; if the problem's own order is sorted already, nothing is moved.

- States on no cycle need one maximum each.
- A block with random moves in cycles is solved by policy iteration from a proper policy of M~, switching only to
  strictly better actions. An iterate that becomes improper certifies a class of positive gain: then no solution has a
  proper greedy policy, and `solvable` is False. Policies are evaluated by subtraction-free (GTH) elimination, the
  product of whose pivots is the determinant; a pivot is 0 if and only if the policy is improper. If states have few
  neighbours (`bellmanifold.chart.narrow`), only entries that can differ from 0 are kept.
- In a block without random moves, or whose solved pairs have no cycle, sweeps V <- max(payment + P V, value) that start
  from minus infinity also end exactly at the solution, after no more sweeps than there are states (the argument of
  Bellman and Ford: sweep k finds the best value within k moves); values that still change then certify a paying loop.
- A chart of *known* pairs (`known_chart`) is one block: it needs no order of the states, so it is laid out once while
  the known pairs grow, and it does not look at unknown pairs. If no known pair is on a cycle and there are many states,
  a *window* of fixed width slides over the states in the order of their levels. It may reach into the next level, whose
  values it gets wrong; the next window begins there and overwrites them. The order is an argument, too, so one program
  serves while the levels change.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt64

from bellmanifold.chart.arrangement import (
    lay_out,
    lay_out_by_levels,
    padded_successors,
    runs_of_states,
    with_narrow_blocks,
)
from bellmanifold.chart.layout import Layout, Solved, solve_layout
from bellmanifold.chart.ways import Law, Values, Way
from bellmanifold.errors import UnsupportedError
from bellmanifold.mdp.graph import leaving_policy, levels, strong_components
from bellmanifold.problem.ssp import SSP


class TooLargeError(UnsupportedError):
    """The problem does not fit a batch chart; a sparse chart can solve it, one point at a time."""


@dataclass(frozen=True)
class ChartLimits:
    """Limits of a batch chart.

    Attributes:
        block: maximum number of states that are eliminated together (a strongly connected component).
        swept: maximum number of known states for sweeps; more are solved by levels.
        entries: maximum number of padded successors of all pairs.
    """

    block: int = 40
    swept: int = 64
    entries: int = 20_000


LIMITS = ChartLimits()
NUMBERED = 2**62
"""Up to this many policies are numbered; beyond that, their codes are hashes."""


@dataclass(frozen=True, eq=False)
class BatchChart:
    """The chart of one problem for batches: how it is solved, and its transition law in the format of `Layout`."""

    model: SSP
    layout: Layout
    law: Float[Array, "pairs successors"]

    @cached_property
    def _zeros(self) -> Int[Array, "states"]:
        return jnp.zeros(self.model.n_states, dtype=jnp.int64)

    @cached_property
    def mixer(self) -> UInt64[np.ndarray, "states"]:
        """Factor of each sorted state's choice, such that the sum of the products identifies a policy.

        Factors are place values, with choices as digits, or random odd numbers if there are too many policies.
        """
        states, actions = self.layout.slot.shape
        if int(actions) ** states <= NUMBERED:
            return np.array([actions**place for place in range(states)], dtype=np.uint64)
        odd = 2 * np.random.default_rng(0x5EED).integers(0, 2**63, states, dtype=np.uint64) + 1
        return np.asarray(odd, dtype=np.uint64)

    def first_policy(
        self, solved: Bool[np.ndarray, "pairs"], avoided: Bool[np.ndarray, "pairs"] | None = None
    ) -> Int[Array, "states"] | None:
        """The action of each sorted state in a proper policy of M~ without avoided pairs; None if there is none.

        Zeros if solved pairs are on no cycle: then every policy is proper.
        """
        if all(block.way in ("once", "windows") for block in self.layout.blocks):
            return self._zeros
        policy = leaving_policy(self.model, solved, avoided)
        if policy is None:
            return None
        return jnp.asarray((policy - self.model.pair_start[:-1])[np.asarray(self.layout.state)])

    def solve(
        self, solved: Bool[np.ndarray, "pairs"], payment: Values, value: Values, law: Law | None = None
    ) -> Solved:
        """Action values from coordinates; see `solve_layout`. The law is the problem's own unless one is given."""
        first = self.first_policy(solved)
        if first is None:
            raise UnsupportedError(
                "from some state, the observed pairs alone reach neither the goal nor an unobserved pair"
            )
        own = self.law if law is None else law
        return solve_layout(self.layout, own, jnp.asarray(solved), first, payment, value)

    def pairs(self, choice: Int[np.ndarray, "states *batch"]) -> Int[np.ndarray, "states *batch"]:
        """The pair each state plays, from the actions of sorted states."""
        pair = np.empty(choice.shape, dtype=np.int64)
        for row, state in zip(choice, np.asarray(self.layout.state), strict=True):  # saves a temporary array
            np.add(row, self.model.pair_start[state], out=pair[state, ...])
        return pair


@lru_cache(maxsize=4)
def batch_chart(model: SSP, limits: ChartLimits = LIMITS) -> BatchChart:
    """Lay out a problem for batches; the last few charts are cached.

    Raises:
        TooLargeError: if a strongly connected component, or the padded problem, is too large.
    """
    component = strong_components(model)
    size = np.bincount(component)
    loops, random = np.zeros(len(size), dtype=bool), np.zeros(len(size), dtype=bool)
    own = model.next_state == model.pair_state[model.next_pair]
    loops[component[model.next_state[own]]] = True
    random[component[model.pair_state[model.next_pair[model.next_prob < 1.0]]]] = True
    cyclic = (size > 1) | loops
    if size[random].max(initial=0) > limits.block:
        largest = size[random].max()
        raise TooLargeError(f"a strong component has {largest} states: a batch chart takes at most {limits.block}")
    order = np.argsort(component, kind="stable")
    runs = runs_of_states(model, component[order], cyclic, order)
    ways: list[Way] = [
        "policies" if r else "sweeps" if c else "once" for c, r in zip(cyclic, cyclic & random, strict=True)
    ]
    successor, law = _pad_successors(model, limits)
    layout = lay_out(model, successor, order, [(begin, end, ways[component[order[begin]]]) for begin, end in runs])
    return BatchChart(model, with_narrow_blocks(model, law, layout), jnp.asarray(law))


def known_chart(model: SSP, known: Bool[np.ndarray, "pairs"], limits: ChartLimits = LIMITS) -> BatchChart:
    """Lay out a problem for batches without looking at unknown pairs, which must not be solved.

    Raises:
        TooLargeError: if known pairs are random and cyclic and there are too many states, or the padded problem is
            too large.
    """
    law, level = model.next_prob[known[model.next_pair]], levels(model, known)
    sweeps = bool((law == 1.0).all()) or level is not None
    if not sweeps and model.n_states > limits.block:
        raise TooLargeError(
            f"random moves in cycles among {model.n_states} states: at most {limits.block} are eliminated"
        )
    successor, padded = _pad_successors(model, limits)
    if level is not None and model.n_states > limits.swept:
        layout = lay_out_by_levels(model, successor, level)
    else:
        way: Way = "sweeps" if sweeps else "policies"
        layout = lay_out(model, successor, np.arange(model.n_states), [(0, model.n_states, way)])
    return BatchChart(model, layout, jnp.asarray(padded))


def _pad_successors(
    model: SSP, limits: ChartLimits
) -> tuple[Int[np.ndarray, "pairs successors"], Float[np.ndarray, "pairs successors"]]:
    """Padded successors and their probabilities, if the problem is small enough with all states padded to one size."""
    actions, successors = int(np.diff(model.pair_start).max()), int(np.diff(model.next_start).max())
    if actions * model.n_states * successors > limits.entries:
        raise TooLargeError(f"the padded problem has more than {limits.entries} entries: too large for a batch chart")
    return padded_successors(model)
