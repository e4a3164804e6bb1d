"""The choice of an engine: a function of the target, the requested engine and the budget."""

from __future__ import annotations

from dataclasses import dataclass

from bellmanifold._util.plugins import is_plugged_in, names
from bellmanifold.chart.batch import TooLargeError
from bellmanifold.errors import BadInputError, UnsupportedError, quote
from bellmanifold.posteriors.budget import Budget
from bellmanifold.posteriors.costs_only import check_batch
from bellmanifold.posteriors.cuts import Covering, LargeCutError, check_exact, covering
from bellmanifold.posteriors.kernels import Uniform
from bellmanifold.posteriors.known import Known, everything_known
from bellmanifold.posteriors.leaks import check_leaks, lacking_variance
from bellmanifold.posteriors.pieces import PIECE
from bellmanifold.posteriors.system import chart_of
from bellmanifold.posteriors.target import Target


@dataclass(frozen=True, eq=False)
class Choice:
    """A chosen engine.

    Attributes:
        engine: "prior" (without data), "solver", "importance", "walk", "sparse walk", or the name of a plug-in.
        reason: why it was chosen, if it was not the first choice.
        cover: coordinates for importance sampling.
        known: the single point of a posterior that leaves nothing unknown.
        doubt: why its numbers are not trustworthy, whatever it finds; empty if they may be.
        refusal: why the chart does not apply, for the message if this engine does not, either; empty if it does.
    """

    engine: str
    reason: str = "asked for"
    cover: Covering | None = None
    known: Known | None = None
    doubt: str = ""
    refusal: str = ""


OWN = ("auto", "chart")
"""Engines of the library that are asked for by name; others are plugged in."""


def require_engine(asked: str) -> None:
    """Raise unless an engine of this name can be asked for."""
    known = (*OWN, *names("engine"))
    if asked not in known:
        raise BadInputError(f"engine is {quote(asked)}: choose from {', '.join(known)}")


def choose(target: Target, asked: str, budget: Budget) -> Choice:
    """The engine for a posterior.

    This is the solver if everything is known, importance sampling if the problem fits a batch chart and has few enough
    coordinates, and otherwise a walk. Posteriors whose observed loops cannot be cut open are enumerated by the mixture
    if there are few cells and the request allows it.
    """
    if target.every_visit is not None:
        return _chains(target, asked)
    if asked not in OWN:
        _check_options(target, asked, budget)
    if not target.coupled.any():
        return Choice("prior", "no observations: the posterior is the prior")
    if asked not in OWN:
        return Choice(asked)
    if target.exact.any():
        check_exact(target)
    known = everything_known(target, budget) if asked == "auto" and target.is_exact else None
    if known is not None:
        return Choice("solver", "everything is known", known=known)
    doubt = ""
    if target.laws is not None:
        check_leaks(target)
        doubt = lacking_variance(target)
    try:
        padded = chart_of(target, budget.chart).layout.slot.size
    except TooLargeError as refusal:
        check_batch(target, str(refusal))
        return Choice("sparse walk", str(refusal), doubt=doubt)
    if PIECE * padded > budget.in_piece:  # few points would fit into memory
        reason = f"the padded problem has {padded} pairs: too many for large batches"
        check_batch(target, reason)
        return Choice("sparse walk", reason, doubt=doubt)
    if doubt:
        return Choice("walk", "importance weights would be too uneven", doubt=doubt)
    try:
        cover = covering(target, budget.cut)
    except LargeCutError as refusal:
        if target.laws is not None:
            return Choice("walk", str(refusal))
        return enumeration(target, asked, refusal)
    if cover.largest > budget.coordinates:
        return Choice("walk", f"{cover.largest} coordinates are too many for importance sampling")
    return Choice("importance", cover=cover)


def _chains(target: Target, asked: str) -> Choice:
    """Gradient-based chains, the only engine for repeats whose mean is not sufficient."""
    noise = f"repeats under {target.kernel} noise"
    if isinstance(target.kernel, Uniform):
        raise UnsupportedError("uniform noise has no gradient, and repeats need chains that follow one: use laplace")
    if asked not in ("auto", "hmc", "nuts"):
        raise UnsupportedError(
            f"{asked} takes {target.kernel} noise only where every pair was seen once: use --engine nuts, or gaussian "
            "noise"
        )
    if target.laws is not None:
        raise UnsupportedError(f"{noise} need chains that take given transition laws only: use gaussian noise")
    if target.prior.flat:
        raise UnsupportedError(f"{noise} need chains that have no flat prior: use gaussian noise, or a --prior-scale")
    if target.proper_only:
        raise BadInputError("chains have no --proper-only: leave it out, or use gaussian noise")
    if asked == "auto":
        return Choice("nuts", f"{noise} have no sufficient mean")
    return Choice(asked)


def _check_options(target: Target, asked: str, budget: Budget) -> None:
    """Refuse options that engines other than the chart do not have."""
    if target.laws is not None:
        raise UnsupportedError(f"the {asked} engine takes given transition laws only: use --engine chart")
    if target.prior.flat:
        raise UnsupportedError(f"the {asked} engine has no flat prior: use --engine chart, or a --prior-scale")
    if target.proper_only:
        raise BadInputError(f"the {asked} engine has no --proper-only: use --engine chart")
    if asked in ("mixture", "rejection") and budget.samples is not None:
        raise BadInputError(f"the {asked} engine has no --samples: leave it out, or use --engine chart")


def enumeration(target: Target, asked: str, refusal: UnsupportedError) -> Choice:
    """The mixture, after the chart's refusal, if no other engine was requested; it refuses too many cells itself."""
    if not may_enumerate(target, asked):
        raise refusal
    return Choice("mixture", f"the chart does not apply ({refusal})", refusal=str(refusal))


def may_enumerate(target: Target, asked: str) -> bool:
    """Whether Proposition 1 describes the posterior and may be used, and the engine that sums it is plugged in."""
    may = (
        asked == "auto"
        and is_plugged_in("engine", "mixture")
        and not target.proper_only
        and target.is_gaussian
        and not target.prior.flat
    )
    return may and target.laws is None and bool((target.scale[target.observed] > 0).all())
