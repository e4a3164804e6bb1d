"""BlackJAX's no-U-turn sampler with window adaptation, for many chains at once.

`adapt` finds the step size and diagonal metric of each chain (Stan's windows), and `walk` samples with them. Each chain
has its own key and its own argument of the log density, along the leading axis, as in `bellmanifold_paper.engines.hmc`,
whose `State` is used here, too.
"""

from __future__ import annotations

from typing import Any

import blackjax
import jax
from blackjax.adaptation.base import get_filter_adapt_info_fn
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray

from bellmanifold_paper.engines.hmc import LogDensity, State

Keys = Key[Array, "chains"]


def adapt(
    key: Keys, position: Float[Array, "chains dimension"], log_density: LogDensity, argument: Any, steps: int
) -> State:
    """Tune every chain in `steps` warm-up steps from given positions."""

    def one(key: PRNGKeyArray, position: Array, argument: Any) -> State:
        nothing_kept = get_filter_adapt_info_fn()
        tuner = blackjax.window_adaptation(
            blackjax.nuts, lambda x: log_density(x, argument), adaptation_info_fn=nothing_kept
        )
        result, _ = tuner.run(key, position, num_steps=steps)
        found = result.parameters
        return State(result.state.position, found["step_size"], found["inverse_mass_matrix"])

    with jax.numpy_dtype_promotion("standard"):  # BlackJAX mixes integers and floats
        return jax.vmap(one)(key, position, argument)


def walk(
    key: Keys, state: State, log_density: LogDensity, argument: Any, draws: int
) -> tuple[State, Float[Array, "chains draws dimension"], Float[Array, "chains draws"], Bool[Array, "chains draws"]]:
    """Move every chain `draws` times: state, points, mean acceptance of each trajectory, and divergences."""
    kernel = blackjax.nuts.build_kernel()

    def one(key: PRNGKeyArray, state: State, argument: Any) -> tuple[State, Array, Array, Array]:
        def density(x: Array) -> Array:
            return log_density(x, argument)

        def move(chain: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
            chain, info = kernel(key, chain, density, state.step_size, state.variance)
            return chain, (chain.position, info.acceptance_rate, info.is_divergent)

        start = blackjax.nuts.init(state.position, density)
        chain, (points, acceptance, is_divergent) = jax.lax.scan(move, start, jax.random.split(key, draws))
        return state._replace(position=chain.position), points, acceptance, is_divergent

    with jax.numpy_dtype_promotion("standard"):
        return jax.vmap(one)(key, state, argument)
