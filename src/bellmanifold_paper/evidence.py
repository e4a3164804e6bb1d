"""The log evidence of the data as a function of the prior scale, to inform the choice of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from bellmanifold._util.display import Card, Columns, Shown, as_frame, with_error
from bellmanifold._util.progress import show_count
from bellmanifold.errors import BadInputError, UnsupportedError, require_kind, require_numbers
from bellmanifold.posteriors.inference import posterior
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.ssp import SSP

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, repr=False)
class EvidenceCurve(Shown):
    """Log evidence against the prior scale.

    Attributes:
        prior_scale, log_evidence, se: one entry per prior scale.
        warning: a warning against misuse of the curve.
    """

    prior_scale: Float[np.ndarray, "scales"]
    log_evidence: Float[np.ndarray, "scales"]
    se: Float[np.ndarray, "scales"]
    warning: str = (
        "the curve informs a choice of prior scale; maximising it while exploring shrinks the prior until "
        "nothing is explored any more"
    )

    def card(self) -> Card:
        """The displayed facts: where the evidence is largest, and the warning."""
        best = int(np.argmax(self.log_evidence))
        low, high = (float(self.prior_scale[k]) for k in (np.argmin(self.prior_scale), np.argmax(self.prior_scale)))
        title = f"EvidenceCurve({len(self.se)} prior scales from {low:g} to {high:g})"
        largest = with_error(float(self.log_evidence[best]), float(self.se[best]))
        fact = f"largest log evidence {largest}, at prior scale {self.prior_scale[best]:g}"
        return Card(title, [fact, self.warning], (), self._columns)

    def _columns(self) -> Columns:
        columns = {"prior_scale": self.prior_scale, "log_evidence": self.log_evidence, "log_evidence_se": self.se}
        return {name: array.tolist() for name, array in columns.items()}

    def to_frame(self) -> pandas.DataFrame:
        """A row per prior scale."""
        return as_frame(self._columns())


def evidence_curve(
    model: SSP,
    data: Dataset,
    prior_scales: Sequence[float],
    epsilon: float = 0.0,
    seed: int = 0,
    progress: bool | None = None,
) -> EvidenceCurve:
    """The log evidence m(r) of the data as a function of the prior scale.

    It informs the choice of a scale, but must not drive exploration: early data favour small scales, a small scale
    stops exploration, and then no further data correct it. Progress is shown by default on terminals and in notebooks;
    `progress` overrides that.
    """
    require_kind(prior_scales, (Sequence, np.ndarray), "prior_scales", "give a list of numbers")
    if not len(prior_scales):
        raise BadInputError("prior_scales is empty: give at least one")
    for place, scale in enumerate(prior_scales):
        require_numbers(**{f"prior_scales[{place}]": scale})
        if not (scale is not None and np.isfinite(scale) and scale > 0):
            raise BadInputError(f"prior_scales[{place}] is {scale}: give a positive number")
    found = []
    with show_count("computing the evidence", "prior scales", len(prior_scales), progress) as one_more:
        for scale in prior_scales:
            found.append(posterior(model, data, epsilon=epsilon, prior_scale=scale, seed=seed).log_evidence)
            one_more()
    if any(evidence is None for evidence in found):
        raise UnsupportedError("no evidence was computed for some prior scale: importance weights failed there")
    values = [(float(evidence.value), float(evidence.se)) for evidence in found if evidence is not None]
    value, se = np.array(values).T
    return EvidenceCurve(np.array(prior_scales, dtype=np.float64), value, se)
