"""The Pareto index of a tail: whether the mean of some draws exists, as far as the draws show.

Above a high threshold u nearly every distribution is close to a generalised Pareto distribution (Pickands 1975), with

    P(X - u > x | X > u) = (1 + k x / s)^(-1/k):

k < 0 has an end, k = 0 is exponential (all normal and gamma-like tails), and for k > 0 moments of order 1/k and above
do not exist: no mean from k = 1 on, no variance from 1/2 on. From about k = 0.7 on, averages of any feasible number of
draws are ruled by the largest few, and neither they nor their standard errors can be believed (Vehtari, Simpson,
Gelman, Yao and Gabry 2024, where the draws are importance weights). So the mean of h under weighted draws is not
believed if the tail of w |h - median| has an index above 0.7 *and* holds more than SHARE of the sum: a few outliers
that are too small to move the mean do no harm. (A Pareto tail of index 0.7 that begins at the body holds a quarter in
its largest hundredth; a normal one 4%, and 10% in its largest thirtieth.)

*The fit* (Zhang and Stephens 2009). With b = -k / s the likelihood of m exceedances x is largest, given b, at
k(b) = mean log(1 - b x), where its logarithm is m (log(-b / k) - k - 1). The posterior mean of b under a prior that
depends on the data only through their maximum and lower quartile is a sum over a grid, and k is that of this b. A prior
worth ten exceedances of index 1/2 is added, as in Pareto-smoothed importance sampling.

*Which tail.* A few draws of tens of thousands may hold all of the mean (a loop that pays in one draw of ten thousand).
In a long tail they are lost among ordinary ones, so the index is fitted to tails of several lengths, and one that is
too heavy suffices. Exponential exceedances give the shortest tail, of 64 draws, an index of 0.08 with a standard
deviation of 0.12; so 0.7 is passed with a probability below 1e-6.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

TAILS = (64, 128, 256, 512, 1024)
"""Numbers of draws in the tails."""
MOST_OF_ALL = 30
"""A tail holds at most one in so many of the draws."""
LEAST_DRAWS = MOST_OF_ALL * TAILS[0]
"""Fewer draws have no index."""
ENOUGH = 0.7
"""A larger index means that the mean cannot be estimated."""
SHARE = 0.2
"""A tail that holds less of the sum than this does not rule the mean."""
PRIOR_INDEX, PRIOR_DRAWS = 0.5, 10.0
FLAT = 1e-9
"""A tail no wider than this fraction of its threshold is rounding."""


def pareto_index(
    largest: Float[np.ndarray, "rows kept"], draws: int, total: Float[np.ndarray, "rows"] | None = None
) -> Float[np.ndarray, "rows"]:
    """The largest index of the tails of each row; -inf without any spread or with too few draws.

    Args:
        largest: the largest numbers of each row, at least one more than the longest tail or all there are; not
            negative.
        draws: number of draws that they are the largest of.
        total: sum of all draws of each row; if it is given, only tails that rule the mean count.
    """
    ordered = np.sort(largest, axis=1)
    found = np.full(len(largest), -np.inf)
    for length in TAILS:
        if MOST_OF_ALL * length <= draws and length < ordered.shape[1]:
            threshold, tail = ordered[:, -length - 1, None], ordered[:, -length:]
            fits = tail[:, -1] - threshold[:, 0] > FLAT * np.abs(threshold[:, 0])
            if total is not None:
                fits &= tail.sum(axis=1) > SHARE * total
            found[fits] = np.maximum(found[fits], _fit(tail[fits] - threshold[fits]))
    return found


def is_ruled_by_few(numbers: Float[np.ndarray, "draws"]) -> bool:
    """Whether a few draws rule the mean of numbers that are not negative."""
    return bool(pareto_index(numbers[None], len(numbers), numbers.sum(keepdims=True))[0] > ENOUGH)


def _fit(exceedance: Float[np.ndarray, "rows tail"]) -> Float[np.ndarray, "rows"]:
    """The index of exceedances in ascending order, the last positive."""
    count = exceedance.shape[1]
    largest = exceedance[:, -1:]
    quartile = exceedance[:, [int(count / 4 + 0.5) - 1]]
    quartile = np.where(quartile > 0.0, quartile, 1e-12 * largest)  # however small: tails span hundreds of decades
    size = 30 + int(np.sqrt(count))
    grid = (1.0 - np.sqrt(size / (np.arange(size) + 0.5))) / (3.0 * quartile) + 1.0 / largest
    index = np.stack([np.log1p(-grid[:, [j]] * exceedance).mean(axis=1) for j in range(size)], axis=1)
    log_likelihood = count * (np.log(-grid / index) - index - 1.0)
    weight = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    middle = (weight * grid).sum(axis=1, keepdims=True) / weight.sum(axis=1, keepdims=True)
    index = np.log1p(-middle * exceedance).mean(axis=1)
    return (count * index + PRIOR_DRAWS * PRIOR_INDEX) / (count + PRIOR_DRAWS)


class LargestOf:
    """The largest numbers of each row among draws that come in batches."""

    def __init__(self) -> None:
        self.draws, self.total, self._kept = 0, np.zeros(0), np.zeros((0, 0))

    def add(self, batch: Float[np.ndarray, "rows draws"]) -> None:
        """Look at more draws."""
        both = np.concatenate([self._kept, batch], axis=1) if self.draws else batch
        self.total = (self.total if self.draws else 0.0) + batch.sum(axis=1)
        keep = min(TAILS[-1] + 1, both.shape[1])
        self._kept = np.partition(both, both.shape[1] - keep, axis=1)[:, both.shape[1] - keep :]
        self.draws += batch.shape[1]

    def rule_the_mean(self) -> Bool[np.ndarray, "rows"]:
        """Whether the mean of each row is ruled by a few draws."""
        return pareto_index(self._kept, self.draws, self.total) > ENOUGH
