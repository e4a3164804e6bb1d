"""The prior of the action values: independent normals, for all pairs alike or pair by pair, or flat over rewards.

Priors that are stated for single pairs come first; for other pairs, options take precedence over what the problem
states for all pairs. By default the mean is 0 and the standard deviation 10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float

from bellmanifold.errors import BadInputError, quote, require_kind
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.names import find_pair
from bellmanifold.problem.ssp import SSP

SCALE = 10.0
LARGEST = 1e100
"""Numbers are squared and multiplied along the way; larger ones would leave the range of floating point."""
PairPriors: TypeAlias = Mapping[Any, Any]
"""(state, action) -> (mean, sd); checked when it is read."""
Numbers: TypeAlias = float | int | np.ndarray
Scale: TypeAlias = Numbers | Literal["flat"] | None


@dataclass(frozen=True, eq=False)
class ValuePrior:
    """Independent normal priors of the action values.

    Attributes:
        mean: shape (pairs,).
        sd: positive, shape (pairs,).
        flat: flat over rewards instead: all draws of the rewards have equal weight; for posteriors without free pairs.

    Raises:
        BadInputError: if a mean is not finite, or an sd not finite and positive.
    """

    mean: Float[np.ndarray, "pairs"]
    sd: Float[np.ndarray, "pairs"]
    flat: bool = False

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mean) & np.isfinite(self.sd) & (self.sd > 0)).all():
            raise BadInputError(
                "prior: a mean or a standard deviation is not finite, or the latter is not positive: give one that is"
            )

    @classmethod
    def same(cls, model: SSP, scale: float | int, mean: float | int = 0.0) -> ValuePrior:
        """The same prior for every pair."""
        return cls(np.full(model.n_pairs, float(mean)), np.full(model.n_pairs, _positive(scale)))

    @classmethod
    def stated(
        cls, model: SSP, scale: Scale = None, mean: Numbers | None = None, pairs: PairPriors | None = None
    ) -> ValuePrior:
        """The prior of a problem, from options and the problem itself; priors of single pairs take precedence."""
        told = model.prior
        whole_mean, whole_sd = (told.mean, told.sd) if told is not None else (None, None)
        is_flat = isinstance(scale, str)
        if is_flat and scale != "flat":
            raise BadInputError(f'prior_scale is {quote(scale)}: give a positive number, or "flat"')
        means = _column(model, "prior_mean", mean, whole_mean, 0.0)
        sds = _column(model, "prior_scale", None if is_flat else scale, whole_sd, SCALE)
        if told is not None:
            means = np.where(np.isnan(told.pair_mean), means, told.pair_mean)
            sds = np.where(np.isnan(told.pair_sd), sds, told.pair_sd)
        if pairs is not None:
            require_kind(
                pairs, Mapping, "prior", "give {(state, action): (mean, sd)}; sample_chains takes other priors"
            )
        for key, value in (pairs or {}).items():
            try:
                (state, action), (own_mean, own_sd) = key, value
                numbers = float(own_mean), float(own_sd)
            except (TypeError, ValueError):
                raise BadInputError(
                    f"prior: {key!r:.60}: {value!r:.60}: give {{(state, action): (mean, sd)}}, two numbers for a pair"
                ) from None
            pair = find_pair(model, state, action, "prior")
            named = ", ".join(quote(name) for name in model.pair_name(pair))
            means[pair], sds[pair] = numbers[0], _positive(numbers[1], f"prior: the sd of ({named})")
        return cls(means, sds, is_flat)

    @property
    def scale(self) -> float:
        """The largest standard deviation; for reports."""
        return float(self.sd.max(initial=0.0))

    @property
    def likely_size(self) -> Float[np.ndarray, "pairs"]:
        """Likely magnitude of each value; 0 under a flat prior, which does not determine it."""
        return np.zeros_like(self.sd) if self.flat else np.abs(self.mean) + self.sd

    def standardise(self, value: Float[np.ndarray, "*batch pairs"]) -> Float[np.ndarray, "*batch pairs"]:
        """Deviations from the mean, in standard deviations."""
        return (value - self.mean) / self.sd

    def draw(self, rng: np.random.Generator, count: int) -> Float[np.ndarray, "count pairs"]:
        """Draw from the prior."""
        return self.mean + self.sd * rng.standard_normal((count, len(self.sd)))

    def exchangeable(self, model: SSP, pairs: Bool[np.ndarray, "pairs"]) -> Bool[np.ndarray, "states"]:
        """States in which all of these pairs have the same prior."""
        first = np.minimum.reduceat(np.where(pairs, np.arange(model.n_pairs), model.n_pairs), model.pair_start[:-1])
        like = np.minimum(first, model.n_pairs - 1)[model.pair_state]
        differs = pairs & ((self.mean != self.mean[like]) | (self.sd != self.sd[like]))
        return ~np.logical_or.reduceat(differs, model.pair_start[:-1])


def _positive(scale: Any, what: str = "prior_scale") -> float:
    if not (np.isfinite(scale) and scale > 0):
        raise BadInputError(f"{what} is {scale}: give a positive number")
    return float(scale)


def _column(model: SSP, what: str, *sources: Any) -> Float[np.ndarray, "pairs"]:
    """One number for each pair, from the first source that is not None."""
    given = next(source for source in sources if source is not None)
    try:
        numbers = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInputError(f"{what} is {quote(str(given))}: give a number, or one for each pair") from None
    if numbers.shape not in ((), (model.n_pairs,)):
        raise BadInputError(f"{what} has {numbers.size} numbers: give one, or one for each of {model.n_pairs} pairs")
    wrong = ~np.isfinite(numbers) if what == "prior_mean" else ~(np.isfinite(numbers) & (numbers > 0))
    if wrong.any():
        wanted = "a finite number" if what == "prior_mean" else "a positive number"
        raise BadInputError(f"{what} is {numbers[wrong].flat[0] if numbers.ndim else numbers}: give {wanted}")
    return np.broadcast_to(numbers, model.n_pairs).copy()


def checked_prior(
    model: SSP,
    given: float | int | ValuePrior,
    reward: Float[np.ndarray, "pairs"],
    width: float | int,
    name: str,
) -> ValuePrior:
    """The prior, after refusing numbers whose squares and products would leave the range of floating point."""
    prior = given if isinstance(given, ValuePrior) else ValuePrior.same(model, given)
    check_size("prior_scale", prior.sd)
    check_size("prior_scale", prior.sd.min())
    check_size("prior_mean", prior.mean)
    check_size(name, width)
    check_size("the largest reward", reward)
    return prior


def check_rewards(data: Dataset) -> None:
    """Refuse rewards whose squares and products would leave the range of floating point."""
    size = np.abs(np.nan_to_num(data.reward))
    if size.any():
        t = int(np.argmax(size))
        place = data.places[t] if data.places else f"observations[{t}]"
        check_size(f"{place}: reward", data.reward[t])


def check_size(what: str, numbers: Numbers) -> None:
    """Refuse numbers whose largest magnitude is too large, or too small but not 0."""
    flat = np.ravel(numbers)
    largest = float(flat[np.argmax(np.abs(flat))])
    if largest and not LARGEST**-1 <= abs(largest) <= LARGEST:
        raise BadInputError(
            f"{what} is {largest:g}: it must lie between {LARGEST**-1:g} and {LARGEST:g} in size (or be 0): "
            "choose other units"
        )
