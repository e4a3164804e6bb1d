"""A posterior's answers from slice chains: where importance weights fail, or a problem is too large for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.summary import ACCURACY, Summary
from bellmanifold.posteriors.target import Target

if TYPE_CHECKING:
    from bellmanifold.chart import BatchChart
    from bellmanifold.posteriors.coordinates import Coordinates
    from bellmanifold.posteriors.sparse_coordinates import SparseCoordinates
    from bellmanifold.posteriors.walk import Walk

MOST_ROUNDS = 8
SPARSE_STEPS = 2000


def walkable(target: Target, chart: BatchChart, proper_only: bool) -> Coordinates:
    """Coordinates in which chains cover the posterior: the chart's, or action values where the chart needs a cut."""
    from bellmanifold.posteriors.coordinates import Coordinates
    from bellmanifold.posteriors.cut import cut_set

    covered = target.is_exact or proper_only or not cut_set(target)
    return Coordinates(target, chart, centred=not covered)


def by_walk(target: Target, proper_only: bool, why: str, samples: int | None, seed: int) -> Summary:
    """Slice chains in the chart's coordinates, or in the action values where the chart needs a cut."""
    from bellmanifold.chart import batch_chart
    from bellmanifold.posteriors.cut import proper_cut_set
    from bellmanifold.posteriors.walk import CHAINS, ROUND, Chains

    coordinates = walkable(target, batch_chart(target.model), proper_only)
    lingers = proper_only and not target.is_exact and bool(proper_cut_set(target))
    chains = Chains(coordinates, seed)
    rounds = 1 if samples is None else max(1, samples // (CHAINS * ROUND))
    while True:
        walked = chains.walk(rounds)
        summary = _summarise_walk(coordinates, walked, f"{why}: slice chains instead")
        if lingers:
            return _missing_loops(summary)
        if samples is not None or rounds >= MOST_ROUNDS or (walked.trustworthy and summary.largest_error <= ACCURACY):
            return summary
        rounds *= 2


def by_sparse_walk(target: Target, proper_only: bool, why: str, samples: int | None, seed: int) -> Summary:
    """Slice chains on sparse linear systems, for large cyclic problems."""
    from bellmanifold.posteriors.cut import lingers_outside
    from bellmanifold.posteriors.sparse_coordinates import SparseCoordinates
    from bellmanifold.posteriors.sparse_walk import CHAINS, sparse_walk

    covered = target.is_exact or proper_only or not target.loops
    if not covered or not target.is_gaussian:
        remedy = "use --proper-only or --epsilon 0"
        if not target.is_gaussian:
            remedy = "use --kernel gaussian" if target.epsilon is not None else "give --noise-sd, and gaussian noise"
        raise UnsupportedError(
            f"{why}, and beyond it only Gaussian kernels of known width without improper parameters can be walked: "
            f"{remedy}"
        )
    steps = max(1, (SPARSE_STEPS if samples is None else samples) // CHAINS)
    coordinates = SparseCoordinates(target)
    walked = sparse_walk(coordinates, steps, warm_up=steps // 4, seed=seed)
    summary = _summarise_walk(coordinates, walked, f"{why}: slice chains on sparse systems instead")
    return summary if target.is_exact or not lingers_outside(target) else _missing_loops(summary)


def _missing_loops(summary: Summary) -> Summary:
    reason = f"{summary.reason}; observed loops are hardly ever left, and chains do not find their policies"
    return replace(summary, trustworthy=False, reason=reason)


def _summarise_walk(coordinates: Coordinates | SparseCoordinates, walked: Walk, reason: str) -> Summary:
    counted = {} if walked.evaluations is None else {"evaluations_per_step": walked.evaluations}
    return Summary(
        target=coordinates.target,
        findings=walked,
        engine="chart",
        reason=reason,
        dimension=coordinates.dimension,
        effective_sample_size=walked.effective_sample_size,
        trustworthy=walked.trustworthy,
        diagnostics={
            "chains": len(walked.table.weight),
            "lost_chains": walked.lost,
            "steps": walked.steps,
            "r_hat": walked.r_hat,
            "coordinates": coordinates.way,
            **counted,
        },
    )
