"""Bellman residuals and the likelihood they define, as differentiable JAX functions of the action values.

For action values q (one entry per pair) let V(s) = max_a q(s, a) and V(goal) = 0. The paper's constraint function is

    g_i(q) = q_i - sum_s' p(s'|i) V(s'),

and Bellman's optimality equations say g_i(Q*) = r_i for every pair (equation eqn:def_of_g). The relaxed likelihood of
observed pairs is the product of N(r_i; g_i(q), scale_i^2) (equation eqn:abcpos). Data come as masks over all pairs, so
one compiled program serves every data set of a problem.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bellmanifold.jax_setup import STATIC
from bellmanifold.ssp import SSP


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Transitions:
    """The transition law of a problem as JAX arrays.

    Attributes:
        pair_state: state of each pair, shape (pairs,).
        next_pair: pair of each successor entry, shape (successors,).
        next_state: successor state, n_states for the goal, shape (successors,).
        next_prob: its probability, shape (successors,).
        n_states: number of non-goal states.
    """

    pair_state: Int[Array, "pairs"]
    next_pair: Int[Array, "successors"]
    next_state: Int[Array, "successors"]
    next_prob: Float[Array, "successors"]
    n_states: int = field(metadata=STATIC)


def transitions(model: SSP) -> Transitions:
    """The transition law of a problem, ready for JAX."""
    return Transitions(
        pair_state=jnp.asarray(model.pair_state),
        next_pair=jnp.asarray(model.next_pair),
        next_state=jnp.asarray(model.next_state),
        next_prob=jnp.asarray(model.next_prob),
        n_states=model.n_states,
    )


def state_values(law: Transitions, q: Float[Array, "pairs"]) -> Float[Array, "states"]:
    """V(s) = max_a q(s, a)."""
    return jax.ops.segment_max(q, law.pair_state, law.n_states, indices_are_sorted=True)


def residuals(law: Transitions, q: Float[Array, "pairs"]) -> Float[Array, "pairs"]:
    """g_i(q) = q_i - sum p(s'|i) V(s'), for every pair.

    >>> from bellmanifold import envs
    >>> residuals(transitions(envs.two_state()), jnp.array([-2.0, -1.0]))
    Array([-1., -1.], dtype=float64)
    """
    value = jnp.append(state_values(law, q), 0.0)
    ahead = law.next_prob * value[law.next_state]
    return q - jax.ops.segment_sum(ahead, law.next_pair, len(q), indices_are_sorted=True)


def log_likelihood(
    law: Transitions,
    q: Float[Array, "pairs"],
    observed: Bool[Array, "pairs"],
    reward: Float[Array, "pairs"],
    scale: Float[Array, "pairs"],
) -> Float[Array, ""]:
    """Log of the relaxed Gaussian likelihood of the observed pairs; entries of other pairs are ignored."""
    safe = jnp.where(observed, scale, 1.0)
    z = (reward - residuals(law, q)) / safe
    terms = -0.5 * z**2 - jnp.log(safe) - 0.5 * jnp.log(2 * jnp.pi)
    return jnp.sum(jnp.where(observed, terms, 0.0))
