"""How much work a posterior may cost, and how accurate its answers have to be."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite, log2

from bellmanifold.chart.batch import LIMITS, ChartLimits
from bellmanifold.errors import BadInputError


@dataclass(frozen=True)
class Budget:
    """Limits of an engine's computation.

    Attributes:
        accuracy: largest standard error of a reported probability, unless a number of samples is asked for.
        samples: number of points; None for enough to reach the accuracy, within limits.
        seed: fixes every result.
        top: number of routes to report.
        enough: an effective sample size below this is too low to trust.
        coordinates: most coordinates for importance sampling; more are walked.
        points: most points of importance sampling.
        held: points times coordinates it may hold: they are kept, twice, for the next posterior.
        in_piece: numbers in an array of one piece of the points; some ten such arrays are held at a time.
        pilot: binary logarithm of the points in each net that are weighed first.
        kept: numbers of the draws that gradient chains keep, or that uneven draws are resampled from.
        cut: most pairs of a cut.
        cells, cell_points: most cells the mixture enumerates, and most points it spends on them.
        rounds: most rounds of slice chains.
        walked: operations of slice chains, as `walk.work_of` counts them: about a minute of one processor. Large
            problems are walked by fewer chains in fewer rounds.
        sparse_steps: steps of all slice chains on sparse systems.
        chart: what fits a batch chart.
    """

    accuracy: float = 1e-3
    samples: int | None = None
    seed: int = 0
    top: int = 1000
    enough: float = 400.0
    coordinates: int = 400
    points: int = 2**21
    held: int = 2**27
    in_piece: int = 2**23
    pilot: int = 12
    kept: int = 2**25
    cut: int = 6
    cells: int = 2**17
    cell_points: int = 2**25
    rounds: int = 8
    walked: int = 2**31
    sparse_steps: int = 2000
    chart: ChartLimits = LIMITS

    def __post_init__(self) -> None:
        if not self.accuracy > 0:
            raise BadInputError(f"accuracy is {self.accuracy}: give a positive number")
        if self.samples is not None and self.samples < 1:
            raise BadInputError(f"samples is {self.samples}: give a positive number")
        if self.top < 0:
            raise BadInputError(f"top is {self.top}: give a number that is not negative")
        if self.seed < 0:
            raise BadInputError(f"seed is {self.seed}: give a number that is not negative")

    def points_needed(self, points: int, error: float, most: int) -> int:
        """Estimated number of points for the accuracy: points are doubled, and the error falls as 1 / sqrt(points).

        >>> Budget().points_needed(1024, 4e-3, 2**20)
        16384
        """
        doublings = ceil(2.0 * log2(max(error / self.accuracy, 1.0))) if isfinite(error) else 1
        return min(points * 2 ** min(doublings, 40), most)
