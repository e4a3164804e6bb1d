"""Numbers are squared and multiplied on the way to a posterior: those that would leave the range of floating point."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from bellmanifold.data import Dataset
from bellmanifold.errors import BadInputError
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.ssp import SSP

LARGEST = 1e100


def checked_prior(
    model: SSP,
    given: float | int | ValuePrior,
    reward: Float[np.ndarray, "pairs"],
    width: float | int,
    name: str,
) -> ValuePrior:
    """The prior, refusing numbers whose squares and products would leave the range of floating point."""
    prior = given if isinstance(given, ValuePrior) else ValuePrior.same(model, given)
    check_size("prior_scale", float(prior.sd.max(initial=1.0)))
    check_size("prior_scale", float(prior.sd.min(initial=1.0)))
    check_size("prior_mean", _largest(prior.mean))
    check_size(name, float(width))
    check_size("the largest reward", _largest(reward))
    return prior


def _largest(numbers: Float[np.ndarray, "n"]) -> float:
    """The number of the largest size."""
    return float(numbers[np.argmax(np.abs(numbers))]) if len(numbers) else 0.0


def check_rewards(data: Dataset) -> None:
    """Refuse rewards whose squares and products would leave the range of floating point.

    Raises:
        BadInputError: naming the observation.
    """
    size = np.abs(np.nan_to_num(data.reward))
    t = int(np.argmax(size)) if len(size) else 0
    if len(size):
        check_size(f"observations[{t}]: reward", float(data.reward[t]) if size[t] else 0.0)


def check_size(what: str, number: float) -> None:
    """Refuse a number that is too large, or too small but not 0."""
    if number and not LARGEST**-1 <= abs(number) <= LARGEST:
        raise BadInputError(
            f"{what} is {number:g}: it must lie between {LARGEST**-1:g} and {LARGEST:g} in size (or be 0): "
            "choose other units"
        )
