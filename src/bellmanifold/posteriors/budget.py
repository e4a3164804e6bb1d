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
        accuracy: largest standard error of a reported probability, unless a number of samples is requested.
        samples: number of points; None for enough to reach the accuracy, within limits.
        seed: random seed; fixes every result.
        top: number of routes to report.
        enough: an effective sample size below this is too low to trust.
        coordinates: maximum number of coordinates for importance sampling; with more, chains walk.
        points: maximum number of points of importance sampling.
        held: maximum of points times coordinates, which are kept, twice, for the next posterior.
        in_piece: maximum size of an array of one piece of the points; some ten such arrays are held at a time.
        pilot: binary logarithm of the number of points in each net of the pilot.
        kept: maximum size of the draws that gradient-based chains keep, or that uneven draws are resampled from.
        cut: maximum number of pairs of a cut.
        cells, cell_points: maximum numbers of cells the mixture enumerates, and of points it spends on them.
        rounds: maximum number of rounds of slice chains.
        walked: maximum number of operations of slice chains, as `walk.work_of` counts them, about a minute on one
            processor. Large problems are walked by fewer chains in fewer rounds.
        sparse_steps: total number of steps of slice chains on sparse systems.
        chart: limits of a batch chart.
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
        """Estimated number of points for the accuracy: points are doubled, and errors decrease as 1 / sqrt(points).

        >>> Budget().points_needed(1024, 4e-3, 2**20)
        16384
        """
        doublings = ceil(2.0 * log2(max(error / self.accuracy, 1.0))) if isfinite(error) else 1
        return min(points * 2 ** min(doublings, 40), most)
