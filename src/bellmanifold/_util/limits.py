"""Limits on sizes, checked before work begins.

Sizes come from files, options and plans; a digit too many should be reported at once, not after hours by a machine that
has run out of memory. The defaults suit a machine with 4 GB; an environment variable raises each of them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from bellmanifold.errors import BadInputError, quote


@dataclass(frozen=True)
class Limit:
    """The largest allowed number of some unit; an environment variable overrides the default."""

    variable: str
    default: int
    unit: str

    @property
    def value(self) -> int:
        """The limit in force."""
        given = os.environ.get(self.variable)
        if given is None:
            return self.default
        if not given.isascii() or not given.isdigit() or len(given) > 18:
            raise BadInputError(f"{self.variable} is {quote(given)}: give a whole number of {self.unit}")
        return int(given)

    def require(self, count: int, what: str) -> None:
        """Raise if a count exceeds the limit."""
        if count > self.value:
            raise BadInputError(
                f"{what}: {count:,} {self.unit} are above {self.value:,}: make it smaller, "
                f"or set {self.variable} if memory allows"
            )


BYTES = Limit("BELLMANIFOLD_MAX_BYTES", 2**30, "bytes")
"""Size of a file, also after decompression."""
TEXT_SHARE = 16
"""Text files must be this many times smaller than others: parsed, they take up to thirty times their bytes."""
SIZE = Limit("BELLMANIFOLD_MAX_SIZE", 10_000_000, "pairs and successors")
"""Size of a problem."""
RUNS = Limit("BELLMANIFOLD_MAX_RUNS", 200_000, "runs")
"""Runs of a plan, of `learn` and of `reproduce`."""
NUMBERS = Limit("BELLMANIFOLD_MAX_NUMBERS", 2**28, "numbers")
"""Numbers that a computation holds at a time, roughly."""
ROUTES = Limit("BELLMANIFOLD_MAX_ROUTES", 2**25, "numbers")
"""Size of the comparison of partial routes: their moves, and the policies that agree with them."""
WORKERS = Limit("BELLMANIFOLD_MAX_WORKERS", 256, "processes")
"""Processes that `sweep` and `reproduce` start."""
