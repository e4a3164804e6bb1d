"""The log posterior of any parametrisation, prior and noise, as one differentiable function of a flat position.

A position is (theta, psi): the parameters of the action values, then those of the noise. With q = Q_theta and the
residuals g(q) of `bellmanifold_paper.bellman`,

    log p(theta, psi | data) = log p(theta) + log p(psi) + sum over visits of [log p^W(w | i) - log eta_i] + constant,
    w = (r - g_i(q)) / eta_i,   eta_i = width_i eta(psi).

Noisy rewards have width 1 and every visit counts (equation 6). The relaxed posterior of deterministic rewards
(equation 9) is the same expression with eta = 1, width epsilon, every observed pair counted once and the kernel as p^W;
Gaussian noise of sd eta, averaged over m_i repeats, has width eta / sqrt(m_i).

Data are tables (pairs x visits) with a mask, so a compiled program serves many data sets of a problem; the number of
columns is a power of two, so it rarely changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from bellmanifold.errors import BadInputError
from bellmanifold.posteriors.noise import NoiseModel
from bellmanifold.posteriors.target import Target
from bellmanifold.problem.dataset import Dataset
from bellmanifold_paper.bellman import Transitions, residuals
from bellmanifold_paper.parametrisation import Parametrisation
from bellmanifold_paper.priors import Prior


class Density(NamedTuple):
    """The static parts of a posterior, which determine its compiled program."""

    parametrisation: Parametrisation
    prior: Prior
    noise: NoiseModel

    @property
    def dimension(self) -> int:
        """Length of a position: parameters of the action values, then of the noise."""
        return self.parametrisation.dimension + self.noise.dimension


class Observations(NamedTuple):
    """The observations as arrays.

    Attributes:
        reward: reward of each visit, 0 elsewhere, shape (pairs, visits).
        seen: which entries are visits, shape (pairs, visits).
        width: width of each pair's kernel, positive, shape (pairs,).
    """

    reward: Float[Array, "*chains pairs visits"]
    seen: Bool[Array, "*chains pairs visits"]
    width: Float[Array, "*chains pairs"]


def kernel_observations(target: Target) -> Observations:
    """Observations with each observed pair once, and the width of its kernel."""
    return Observations(*(array[0] for array in kernel_observations_by_chain([target])))


def kernel_observations_by_chain(targets: Sequence[Target]) -> Observations:
    """Kernel observations for several chains, each with its own target, along a leading axis."""
    observed, reward = (np.stack([getattr(target, name) for target in targets]) for name in ("observed", "reward"))
    width = np.where(observed, np.stack([target.scale for target in targets]), 1.0)
    return Observations(*map(jnp.asarray, (reward[..., None], observed[..., None], width)))


def noisy_observations(data: Dataset) -> Observations:
    """Observations with every visit of every pair."""
    pairs = data.model.n_pairs
    columns = 1 << int(max(1, data.count.max(initial=1)) - 1).bit_length()
    order = np.argsort(data.pair, kind="stable")
    first = np.cumsum(data.count) - data.count
    column = np.arange(len(data)) - first[data.pair[order]]
    reward, seen = np.zeros((pairs, columns)), np.zeros((pairs, columns), dtype=bool)
    reward[data.pair[order], column] = data.reward[order]
    seen[data.pair[order], column] = True
    return Observations(jnp.asarray(reward), jnp.asarray(seen), jnp.ones(pairs))


def for_chains(observations: Observations, chains: int) -> Observations:
    """The same observations for each of several chains, along a new leading axis."""
    return Observations(*(jnp.broadcast_to(array, (chains, *array.shape)) for array in observations))


def log_posterior(
    density: Density, law: Transitions, position: Float[Array, "dimension *chains"], observations: Observations
) -> Float[Array, "*chains"]:
    """Unnormalised log posterior density of (theta, psi), for one chain or for several along the last axis."""
    theta, psi = jnp.split(position, [density.parametrisation.dimension])
    expected = residuals(law, _each(density.parametrisation.values)(theta))
    eta = jnp.broadcast_to(observations.width * _each(density.noise.scale)(psi), expected.shape)[:, None]
    w = (observations.reward - expected[:, None]) / eta
    pair = jnp.broadcast_to(jnp.expand_dims(jnp.arange(len(expected)), tuple(range(1, w.ndim))), w.shape)
    terms = density.noise.log_density(pair, w) - jnp.log(eta)
    likelihood = jnp.sum(jnp.where(observations.seen, terms, 0.0), axis=(0, 1))
    return _each(density.prior.log_density)(theta) + _each(density.noise.log_prior)(psi) + likelihood


def _each(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function of one chain's numbers, extended to several chains along the last axis."""
    return lambda x: function(x) if x.ndim == 1 else jax.vmap(function, in_axes=-1, out_axes=-1)(x)


def starting_point(density: Density, key: PRNGKeyArray) -> Float[Array, "dimension"]:
    """A draw from the prior, with standard normal noise parameters."""
    key_theta, key_psi = jax.random.split(key)
    theta = density.prior.draw(key_theta, density.parametrisation.dimension)
    return jnp.append(theta, jax.random.normal(key_psi, (density.noise.dimension,)))


def check_density(density: Density, law: Transitions, observations: Observations) -> None:
    """Refuse a density that cannot be hashed, or whose value or gradient is not finite at a starting point."""
    try:
        hash(density)
    except TypeError as error:
        raise BadInputError(f"prior, noise and Q_theta must be hashable: {error}: use a frozen dataclass") from None
    shape = density.noise.scale(jnp.zeros(density.noise.dimension)).shape
    if shape not in ((), observations.width.shape):
        raise BadInputError(f"the noise scale has shape {shape}: make it a number, or one for each pair")
    start = starting_point(density, jax.random.key(0))
    value, gradient = jax.jit(jax.value_and_grad(lambda x: log_posterior(density, law, x, observations)))(start)
    if not (bool(jnp.isfinite(value)) and bool(jnp.isfinite(gradient).all())):
        raise BadInputError(
            "the log posterior or its gradient is not finite at a draw from the prior: "
            "make prior, noise and Q_theta finite and differentiable"
        )
