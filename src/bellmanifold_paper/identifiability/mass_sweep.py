"""Improper mass of the relaxed posterior as a function of prior scale, tolerance and discount.

The likelihood is flat on cones of improper policies (`flat`), so only the prior bounds their mass. It vanishes as the
tolerance decreases, is largest where the tolerance is of the order of the rewards and the prior is wide, and equals
their prior mass where the tolerance is so large that the data are uninformative. With a discount every move may end at
the goal; then no policy is improper and nothing is flat, but policies that *would* loop forever in the original problem
still have some mass. That is what is measured here: the probability that the greedy policy is improper in the
original problem, with unobserved pairs taken to end at the goal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from bellmanifold._util.display import Card, Columns, Shown, as_frame, with_error
from bellmanifold.errors import BadInputError, count_of, require_kind
from bellmanifold.posteriors.inference import posterior
from bellmanifold.posteriors.policies import improper_mass
from bellmanifold.problem.dataset import Dataset, require_plain

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False, repr=False)
class ImproperMass(Shown):
    """Probabilities that the greedy policy is improper, ready for `pictures.improper_mass`.

    Attributes:
        epsilon: tolerances, shape (epsilons,).
        prior_scale: prior standard deviations, shape (scales,).
        discount: discounts, 1 for none, shape (discounts,).
        probability: improper mass, shape (discounts, scales, epsilons).
        se: standard errors, shape (discounts, scales, epsilons).
    """

    epsilon: Float[np.ndarray, "epsilons"]
    prior_scale: Float[np.ndarray, "scales"]
    discount: Float[np.ndarray, "discounts"]
    probability: Float[np.ndarray, "discounts scales epsilons"]
    se: Float[np.ndarray, "discounts scales epsilons"]

    def card(self) -> Card:
        """Text and table for display: the settings with the largest improper mass."""
        d, s, e = np.unravel_index(int(np.argmax(self.probability)), self.probability.shape)
        sizes = (
            count_of(len(self.epsilon), "tolerance"),
            count_of(len(self.prior_scale), "prior scale"),
            count_of(len(self.discount), "discount"),
        )
        most = with_error(float(self.probability[d, s, e]), float(self.se[d, s, e]))
        where = f"epsilon {self.epsilon[e]:g}, prior scale {self.prior_scale[s]:g}, discount {self.discount[d]:g}"
        return Card(
            f"ImproperMass({', '.join(sizes)})", [f"largest improper mass {most}, at {where}"], (), self._columns
        )

    def _columns(self) -> Columns:
        discount, scale, epsilon = np.meshgrid(self.discount, self.prior_scale, self.epsilon, indexing="ij")
        columns = {"discount": discount, "prior_scale": scale, "epsilon": epsilon}
        columns |= {"probability": self.probability, "probability_se": self.se}
        return {name: array.ravel().tolist() for name, array in columns.items()}

    def to_frame(self) -> pandas.DataFrame:
        """A row per combination of settings."""
        return as_frame(self._columns())


def improper_mass_sweep(
    data: Dataset,
    epsilon: Sequence[float],
    prior_scale: Sequence[float],
    discount: Sequence[float] = (1.0,),
    seed: int = 0,
) -> ImproperMass:
    """Compute the improper mass for every combination of settings.

    Args:
        data: observations with deterministic rewards.
        epsilon: tolerances.
        prior_scale: prior standard deviations.
        discount: discounts in (0, 1]; 1 is the problem itself.
        seed: seed of every posterior.

    Raises:
        BadInputError: if a list is empty, or as raised by `posterior`.
    """
    require_plain(data, "identifiability.improper_mass_sweep")
    settings = {"epsilon": epsilon, "prior_scale": prior_scale, "discount": discount}
    for name, values in settings.items():
        require_kind(values, (Sequence, np.ndarray), name, "give a list of numbers")
        if not len(values):
            raise BadInputError(f"{name} is empty: give at least one number")
    shape = (len(discount), len(prior_scale), len(epsilon))
    value, se = np.zeros(shape), np.zeros(shape)
    for d, s, e in np.ndindex(shape):
        summary = posterior(
            data.model, data, epsilon=epsilon[e], prior_scale=prior_scale[s], discount=discount[d], seed=seed
        )
        found = improper_mass(data.model, summary.table, data.observed)
        value[d, s, e], se[d, s, e] = found.value, found.se
    axes = [np.array(values, dtype=np.float64) for values in settings.values()]
    return ImproperMass(axes[0], axes[1], axes[2], value, se)
