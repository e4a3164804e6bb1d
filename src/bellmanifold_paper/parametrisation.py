"""Action-value functions Q_theta: how parameters become one value per pair.

The paper's model allows any differentiable family. A `Parametrisation` is a number of parameters and a JAX function
from these to the action values of all pairs, in the order of `SSP.pair_index` (the goal's value, 0, is not included).
The table (one parameter per pair) and the linear family theta -> features @ theta are built in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

import bellmanifold._util.jax_setup  # noqa: F401 (switches double precision on)
from bellmanifold.errors import BadInputError, kind_of_value, quote_pair, require, require_count
from bellmanifold.problem.ssp import SSP

ActionValues = Callable[[Float[Array, "dimension"]], Float[Array, "pairs"]]


@dataclass(frozen=True)
class Parametrisation:
    """A family of action-value functions; hashable, as it is part of compiled programs.

    Attributes:
        dimension: number of parameters.
        values: theta -> action value of every pair.
    """

    dimension: int
    values: ActionValues

    def __post_init__(self) -> None:
        require_count(dimension=self.dimension)
        if not callable(self.values):
            raise BadInputError(f"values is {kind_of_value(self.values)}: give a function theta -> action values")


def tabular(model: SSP) -> Parametrisation:
    """One parameter per pair (Definition 1)."""
    return Parametrisation(model.n_pairs, _itself)


def _itself(theta: Float[Array, "pairs"]) -> Float[Array, "pairs"]:
    return theta


def linear(model: SSP, features: Mapping[tuple[str, str], ArrayLike]) -> Parametrisation:
    """Q_theta(s, a) = features[s, a] . theta.

    Args:
        model: the problem.
        features: the feature vector of each (state, action); all have the same length.

    Raises:
        BadInputError: if a pair has no features, or features differ in length or are not finite.
    """
    for key in features:
        if key not in model.pair_index:
            raise BadInputError(f"features: pair {quote_pair(*key)} is not a pair of the problem: remove it")
    rows: list[np.ndarray] = []
    for key in model.pair_index:
        if key not in features:
            raise BadInputError(f"features: pair {quote_pair(*key)} has none: give every pair a feature vector")
        try:
            row = np.asarray(features[key], dtype=np.float64)
        except (TypeError, ValueError):
            raise BadInputError(
                f"features: pair {quote_pair(*key)} has an entry that is not a number: correct it"
            ) from None
        if row.ndim != 1 or len(row) != len(rows[0] if rows else row) or not len(row):
            raise BadInputError(
                f"features: pair {quote_pair(*key)} has shape {row.shape}: give vectors of one positive length"
            )
        if not np.isfinite(row).all():
            raise BadInputError(f"features: pair {quote_pair(*key)} holds a number that is not finite: correct it")
        rows.append(row)
    matrix = jnp.asarray(np.stack(rows))
    return Parametrisation(matrix.shape[1], lambda theta: matrix @ theta)


def check_parametrisation(parametrisation: Parametrisation, model: SSP) -> Parametrisation:
    """Check the output of a parametrisation at two values of theta, and return the parametrisation.

    Raises:
        BadInputError: if the output has the wrong shape or dtype, or is not finite.
    """
    dimension = parametrisation.dimension
    require(dimension >= 1, f"Q_theta has {dimension} parameters: give at least one")
    for theta in (jnp.zeros(dimension), jax.random.normal(jax.random.key(0), (dimension,))):
        q = parametrisation.values(theta)
        if not isinstance(q, jax.Array) or q.shape != (model.n_pairs,) or q.dtype != jnp.float64:
            found = f"shape {q.shape}, dtype {q.dtype}" if isinstance(q, jax.Array | np.ndarray) else type(q).__name__
            raise BadInputError(
                f"Q_theta returns {found}: make it a JAX array of float64 with one entry for each of the "
                f"{model.n_pairs} pairs"
            )
        if not bool(jnp.isfinite(q).all()):
            bad = model.pair_name(int(jnp.argmin(jnp.isfinite(q))))
            raise BadInputError(f"Q_theta is not finite at pair {quote_pair(*bad)}: make it finite for every theta")
    return parametrisation
