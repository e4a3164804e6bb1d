"""From numbers to verdicts.

A claim is judged by *conditions*. Each compares a measurement, which comes with a 95% interval, with bounds that the
criterion states. Such a comparison has one of four outcomes:

- established: the whole interval lies within the bounds;
- likely: the value does, but not the whole interval;
- unlikely: the value does not, but part of the interval does;
- refuted: none of the interval does.

A claim *holds* if all its conditions are established. It *holds with a remark* if none of the values speaks against it
but the runs are too few to establish it, or if a further condition, which only qualifies the claim, fails. It *does not
hold* if a value speaks against it; the remark says whether the runs establish that. So one run alone never makes a
claim about runs hold. Each interval misses the truth in one of twenty cases, and the claims are judged one by one:
among dozens of them a few may be judged wrongly by chance.

Intervals: Student's t of a mean, Welch's t of a difference of two means (runs of different agents are independent
except for the order of actions), Clopper and Pearson's of a share of runs, none for what is computed exactly. Where an
engine reports a standard error, it is the spread of independent replicates, 16 for a sum over cells, 32 for points, at
least that for chains; the interval is Student's with the fewest degrees of freedom, 15. Intervals of probabilities are
cut at 0 and 1, those of other quantities that cannot be negative at 0.

*Distances* need more care: where the truth is 0, an absolute difference d_i is biased upwards, and so are sums and
maxima of them. With errors e_i, by the triangle inequality, a sum of |d_i| is off by at most sum |e_i|, and a maximum
by at most max |e_i|. A sum gets the margin of all errors moving together (errors of routes share their points), a
maximum the simultaneous one of Bonferroni. Both intervals are cut at 0, and cover with at least 95%.

Student's interval has no width where all runs agree: the verdict then takes it for certain that further runs would
agree too, which ten runs cannot know. It happens to times and shares that take few values (all runs end optimal); the
sd of 0 in the ledger shows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import beta, norm, t

CONFIDENCE = 0.95
FREEDOM = 15.0
"""Degrees of freedom of engines' standard errors: one less than the fewest replicates that any engine takes."""
ROUNDING = 1e-9
Outcome = Literal["established", "likely", "unlikely", "refuted"]
Verdict = Literal["holds", "holds with a remark", "does not hold"]


@dataclass(frozen=True)
class Measurement:
    """One number with its uncertainty.

    Attributes:
        what: what was measured.
        value: the number; NaN if it could not be measured.
        low, high: its 95% interval; infinite where a single run tells nothing.
        sd: standard deviation over runs (divided by runs - 1); None where there are no runs or only one.
        runs: how many runs it is from; None if it was computed without any.
    """

    what: str
    value: float
    low: float
    high: float
    sd: float | None = None
    runs: int | None = None


@dataclass(frozen=True)
class Condition:
    """A measurement and the open interval it should lie in; `words` say so where numbers would be clumsy."""

    measurement: Measurement
    above: float | int = -math.inf
    below: float | int = math.inf
    words: str = ""

    @property
    def outcome(self) -> Outcome:
        found = self.measurement
        if math.isnan(found.value):
            return "unlikely"
        if self.above < found.value < self.below:
            return "established" if found.low > self.above and found.high < self.below else "likely"
        return "unlikely" if found.high > self.above and found.low < self.below else "refuted"

    @property
    def bounds(self) -> str:
        """The bounds in words."""
        if self.words:
            return self.words
        ends = (("above", self.above), ("below", self.below))
        return " and ".join(f"{word} {end:.3g}" for word, end in ends if math.isfinite(end))


@dataclass(frozen=True)
class Finding:
    """What was found about one claim.

    Attributes:
        conditions: what the claim demands.
        qualified_by: what it should also satisfy; where it fails, the claim holds with a remark.
        beside: further measurements that do not count.
        remark: what a reader should know, whatever the verdict.
    """

    conditions: tuple[Condition, ...]
    qualified_by: tuple[Condition, ...] = ()
    beside: tuple[Measurement, ...] = ()
    remark: str = ""

    @property
    def verdict(self) -> Verdict:
        outcomes = {condition.outcome for condition in self.conditions}
        if outcomes & {"unlikely", "refuted"}:
            return "does not hold"
        settled = all(c.outcome == "established" for c in (*self.conditions, *self.qualified_by))
        return "holds" if settled else "holds with a remark"

    def remarks(self) -> str:
        """What was not as it should be, condition by condition, and the remark."""
        words = {
            "likely": "not established by these runs",
            "unlikely": "not so, but these runs do not exclude it",
            "refuted": "not so",
        }
        failed = [c for c in (*self.conditions, *self.qualified_by) if c.outcome != "established"]
        said = [f"{c.measurement.what} {c.bounds}: {words[c.outcome]}." for c in failed]
        return " ".join([*said, *([self.remark] if self.remark else [])])


def exactly(what: str, value: float | int) -> Measurement:
    """A number without uncertainty."""
    return Measurement(what, float(value), float(value), float(value))


def equals(found: Measurement, wanted: float | int) -> Condition:
    """The condition that a number is the wanted one, up to rounding."""
    return Condition(found, wanted - ROUNDING, wanted + ROUNDING, f"equal to {wanted:g}")


def estimated(what: str, value: float, se: float, probability: bool = False) -> Measurement:
    """A number with a standard error; the interval of a probability stays within 0 and 1.

    >>> round(estimated("a share", 0.5, 0.1).low, 4)
    0.2869
    """
    found = _around(what, float(value), _margin(float(se), FREEDOM))
    return _clipped(found) if probability else found


def total_variation(what: str, gap: Float[np.ndarray, "k"], se: Float[np.ndarray, "k"]) -> Measurement:
    """The distance of two distributions, from the differences of their probabilities and these' standard errors.

    >>> found = total_variation("a distance", np.array([0.1, -0.1]), np.array([0.01, 0.01]))
    >>> found.value, round(found.low, 3), round(found.high, 3)
    (0.1, 0.079, 0.121)
    """
    return _clipped(_around(what, 0.5 * float(np.abs(gap).sum()), _margin(0.5 * float(se.sum()), FREEDOM)))


def largest(what: str, gap: Float[np.ndarray, "k"], se: Float[np.ndarray, "k"]) -> Measurement:
    """The largest of some absolute differences, from the differences and their standard errors.

    >>> found = largest("a difference", np.array([0.1, -0.02]), np.array([0.01, 0.01]))
    >>> found.value, round(found.low, 3), round(found.high, 3)
    (0.1, 0.075, 0.125)
    """
    distance, margin = np.abs(gap), np.array([_margin(float(one), FREEDOM, len(gap)) for one in se])
    found = Measurement(what, float(distance.max()), float((distance - margin).max()), float((distance + margin).max()))
    return nonnegative(found)


def nonnegative(found: Measurement) -> Measurement:
    """A measurement of what cannot be negative; an unknown interval stays unknown."""
    return found if math.isinf(found.low) else replace(found, low=max(found.low, min(found.value, 0.0)))


def mean_of(what: str, values: Float[np.ndarray, "runs"]) -> Measurement:
    """The mean over runs."""
    sd, error, freedom = _spread(values)
    found = _around(what, float(values.mean()), _margin(error, freedom))
    return replace(found, sd=sd if len(values) > 1 else None, runs=len(values))


def mean_share(what: str, values: Float[np.ndarray, "runs"]) -> Measurement:
    """The mean over runs of shares or probabilities: its interval stays within 0 and 1."""
    return _clipped(mean_of(what, values))


def _clipped(found: Measurement) -> Measurement:
    """A probability's interval without what cannot be; an unknown interval stays unknown."""
    if math.isinf(found.low) or math.isinf(found.high):
        return found
    return replace(found, low=max(found.low, min(found.value, 0.0)), high=min(found.high, max(found.value, 1.0)))


def difference(what: str, first: Float[np.ndarray, "runs"], second: Float[np.ndarray, "others"]) -> Measurement:
    """The mean of the first minus that of the second."""
    mean = float(first.mean() - second.mean())
    (_, own, own_freedom), (_, other, other_freedom) = _spread(first), _spread(second)
    error = math.hypot(own, other)
    freedom = math.inf
    if 0 < error < math.inf:
        freedom = error**4 / (own**4 / own_freedom + other**4 / other_freedom)
    return replace(_around(what, mean, _margin(error, freedom)), runs=min(len(first), len(second)))


def share_of(what: str, flags: Bool[np.ndarray, "runs"]) -> Measurement:
    """The share of runs with a flag."""
    count, total, tail = int(flags.sum()), len(flags), (1 - CONFIDENCE) / 2
    low = float(beta.ppf(tail, count, total - count + 1)) if count else 0.0
    high = float(beta.ppf(1 - tail, count + 1, total - count)) if count < total else 1.0
    return Measurement(what, count / total, low, high, None, total)


def one_more(what: str, values: Float[np.ndarray, "runs"], seen: float) -> Condition:
    """May a number seen in one further run come from where these runs come from? Its place, in standard deviations.

    Args:
        what: what the number is.
        values: of our runs.
        seen: the number.
    """
    sd = _spread(values)[0]
    freedom = len(values) - 1
    if freedom < 1:
        place, limit = (0.0 if (values == seen).all() else math.nan), 1.0
        return Condition(Measurement(what, place, -math.inf, math.inf, None, len(values)), -limit, limit)
    if sd == 0.0:  # all runs agree: what differs from them does not come from where they come from
        return equals(Measurement(what, *3 * (seen - float(values[0]),), 0.0, len(values)), 0)
    place = (seen - float(values.mean())) / (sd * math.sqrt(1 + 1 / len(values)))
    limit = float(t.ppf(0.5 + CONFIDENCE / 2, freedom))
    return Condition(Measurement(what, place, place, place, None, len(values)), -limit, limit)


def agreement(what: str, values: Float[np.ndarray, "runs"], mean: float, sd: float, runs: int) -> Condition:
    """Does a mean published with its standard deviation agree with ours? Their distance, in standard errors.

    Args:
        what: what is compared.
        values: of our runs.
        mean, sd, runs: as published.
    """
    error = math.hypot(_spread(values)[1], sd / math.sqrt(runs))
    limit = float(norm.ppf(0.5 + CONFIDENCE / 2))
    if not 0 < error < math.inf:
        return Condition(Measurement(what, 0.0, -math.inf, math.inf, None, len(values)), -limit, limit)
    place = (float(values.mean()) - mean) / error
    return Condition(Measurement(what, place, place, place, None, len(values)), -limit, limit)


def _spread(values: Float[np.ndarray, "runs"]) -> tuple[float, float, float]:
    """Standard deviation, standard error of the mean and degrees of freedom; infinite for a single value."""
    count = len(values)
    if count < 2:
        return math.inf, math.inf, 0.0
    sd = float(values.std(ddof=1))
    return sd, sd / math.sqrt(count), count - 1.0


def _margin(error: float, freedom: float, comparisons: int = 1) -> float:
    """Half the width of Student's interval, of one of several that are to hold at once."""
    if error == 0.0 or math.isinf(error) or math.isnan(error):
        return error
    return float(t.ppf(1.0 - (1.0 - CONFIDENCE) / (2 * comparisons), freedom)) * error


def _around(what: str, value: float, margin: float) -> Measurement:
    return Measurement(what, value, value - margin, value + margin)
