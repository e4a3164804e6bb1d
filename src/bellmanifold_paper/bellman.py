"""Bellman residuals and the likelihood they define, as differentiable JAX functions of the action values.

For action values q (one entry per pair) let V(s) = max_a q(s, a) and V(goal) = 0. The paper's constraint function is

    g_i(q) = q_i - sum_s' p(s'|i) V(s'),

and Bellman's optimality equations say g_i(Q*) = r_i for every pair (equation eqn:def_of_g). The relaxed likelihood of
observed pairs is the product of N(r_i; g_i(q), scale_i^2) (equation eqn:abcpos). Data come as masks over all pairs, so
one compiled program serves every data set of a problem.

A chain evaluates gradients a million times, and gathering is far faster than scattering. So there are tables of the
successors of each pair and, for gradients, of the predecessors of each state. Where padding would make them much larger
than the problem, because one state has far more predecessors than others, segment sums and JAX's own gradients are used
instead; so are segment maxima where states differ in their number of actions. Tied values share their state's gradient
equally.

Action values of several chains lie along further axes, after that of pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bellmanifold._util.jax_setup import STATIC
from bellmanifold.problem.compressed_rows import Rows
from bellmanifold.problem.ssp import SSP

PADDING, SMALL = 4, 1024
"""A table has at most PADDING entries for each move of the problem, or SMALL in all."""
UNROLLED = 8
"""Rows longer than this are summed by a reduction, which is compiled to a loop."""

OfPairs = Float[Array, "pairs *chains"]
OfStates = Float[Array, "states *chains"]
WithGoal = Float[Array, "states_and_goal *chains"]


class Sums(NamedTuple):
    """Weighted sums of some entries of an array, one for each row; padded by entry 0 with weight 0."""

    entry: Int[Array, "rows width"]
    weight: Float[Array, "rows width"]

    def of(self, values: Float[Array, "entries *chains"]) -> Float[Array, "rows *chains"]:
        """The sum of every row."""
        weight = jnp.expand_dims(self.weight, tuple(range(2, 1 + values.ndim)))
        if self.entry.shape[1] > UNROLLED:
            return jnp.sum(weight * values[self.entry], axis=1)
        total = weight[:, 0] * values[self.entry[:, 0]]
        for k in range(1, self.entry.shape[1]):
            total = total + weight[:, k] * values[self.entry[:, k]]
        return total


class Tables(NamedTuple):
    """Successors of each pair, among states and the goal, and predecessor pairs of each state."""

    after: Sums
    before: Sums


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Transitions:
    """The transition law of a problem as JAX arrays, named as in `bellmanifold.SSP`.

    Attributes:
        tables: the same law by rows; None if they would be too large.
        actions: number of actions of each state; 0 if states differ.
    """

    pair_state: Int[Array, "pairs"]
    next_pair: Int[Array, "successors"]
    next_state: Int[Array, "successors"]
    next_prob: Float[Array, "successors"]
    tables: Tables | None
    n_states: int = field(metadata=STATIC)
    actions: int = field(metadata=STATIC)


def transitions(model: SSP) -> Transitions:
    """The transition law of a problem, ready for JAX."""
    counts = np.diff(model.pair_start)
    return Transitions(
        pair_state=jnp.asarray(model.pair_state),
        next_pair=jnp.asarray(model.next_pair),
        next_state=jnp.asarray(model.next_state),
        next_prob=jnp.asarray(model.next_prob),
        tables=_tables(model),
        n_states=model.n_states,
        actions=int(counts[0]) if (counts == counts[0]).all() else 0,
    )


def _tables(model: SSP) -> Tables | None:
    arriving = np.argsort(model.next_state, kind="stable")[: int((model.next_state < model.n_states).sum())]
    starts = np.searchsorted(model.next_state[arriving], np.arange(model.n_states + 1))
    after, before = np.diff(model.next_start).max(), np.diff(starts).max()
    if max(model.n_pairs * after, model.n_states * before) > max(PADDING * len(model.next_state), SMALL):
        return None
    leaving = Rows(model.next_start, model.next_state, model.next_prob)
    coming = Rows(starts, model.next_pair[arriving], model.next_prob[arriving])
    return Tables(*(Sums(*map(jnp.asarray, rows.padded(0))) for rows in (leaving, coming)))


def state_values(law: Transitions, q: OfPairs) -> OfStates:
    """V(s) = max_a q(s, a)."""
    if law.actions:
        return _best(law.actions, q)
    return jax.ops.segment_max(q, law.pair_state, law.n_states, indices_are_sorted=True)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _best(actions: int, q: OfPairs) -> OfStates:
    """The largest of each state's values, if every state has this many actions."""
    return reduce(jnp.maximum, _by_action(actions, q))


def _by_action(actions: int, q: OfPairs) -> list[OfStates]:
    """The first value of each state, the second, and so on."""
    table = q.reshape(-1, actions, *q.shape[1:])
    return [table[:, k] for k in range(actions)]


def _best_forward(actions: int, q: OfPairs) -> tuple[OfStates, tuple[Array, Array]]:
    best = _best(actions, q)
    return best, (q, best)


def _best_backward(actions: int, kept: tuple[Array, Array], slope: OfStates) -> tuple[OfPairs]:
    """The best values share their state's slope."""
    q, best = kept
    tied = reduce(jnp.add, ((value == best).astype(q.dtype) for value in _by_action(actions, q)))
    table = q.reshape(-1, actions, *q.shape[1:])
    return (jnp.where(table == best[:, None], (slope / tied)[:, None], 0.0).reshape(q.shape),)


_best.defvjp(_best_forward, _best_backward)


@jax.custom_vjp
def _ahead(tables: Tables, value: WithGoal) -> OfPairs:
    """Expected value after each pair."""
    return tables.after.of(value)


def _ahead_forward(tables: Tables, value: WithGoal) -> tuple[OfPairs, tuple[Tables]]:
    return _ahead(tables, value), (tables,)


def _ahead_backward(kept: tuple[Tables], slope: OfPairs) -> tuple[None, WithGoal]:
    """A state's slope is summed over all pairs that lead to it; the goal's value is fixed."""
    return None, _with_goal(kept[0].before.of(slope))


_ahead.defvjp(_ahead_forward, _ahead_backward)


def _with_goal(of_states: OfStates) -> WithGoal:
    """Values of the states followed by that of the goal, 0."""
    return jnp.append(of_states, jnp.zeros((1, *of_states.shape[1:])), axis=0)


def residuals(law: Transitions, q: OfPairs) -> OfPairs:
    """g_i(q) = q_i - sum p(s'|i) V(s'), for every pair.

    >>> from bellmanifold import envs
    >>> residuals(transitions(envs.two_state()), jnp.array([-2.0, -1.0]))
    Array([-1., -1.], dtype=float64)
    """
    value = _with_goal(state_values(law, q))
    if law.tables is not None:
        return q - _ahead(law.tables, value)
    ahead = jnp.expand_dims(law.next_prob, tuple(range(1, q.ndim))) * value[law.next_state]
    return q - jax.ops.segment_sum(ahead, law.next_pair, len(q), indices_are_sorted=True)


def log_likelihood(
    law: Transitions, q: OfPairs, observed: Bool[Array, "pairs"], reward: OfPairs, scale: OfPairs
) -> Float[Array, ""]:
    """Log of the relaxed Gaussian likelihood of the observed pairs; other entries are ignored."""
    safe = jnp.where(observed, scale, 1.0)
    z = (reward - residuals(law, q)) / safe
    terms = -0.5 * z**2 - jnp.log(safe) - 0.5 * jnp.log(2 * jnp.pi)
    return jnp.sum(jnp.where(observed, terms, 0.0))
