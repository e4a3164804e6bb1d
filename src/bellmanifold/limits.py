"""What is too large to begin with.

Sizes come from files, options and plans, and a digit too many should be answered at once, by a line that says so, not
after hours by a machine without memory. Every limit suits a machine with 4 GB and has a variable that raises it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from bellmanifold.errors import BadInputError, quote


@dataclass(frozen=True)
class Limit:
    """The largest number of something; an environment variable changes it."""

    variable: str
    default: int
    unit: str

    @property
    def value(self) -> int:
        """What holds now."""
        given = os.environ.get(self.variable)
        if given is None:
            return self.default
        if not given.isascii() or not given.isdigit() or len(given) > 18:
            raise BadInputError(f"{self.variable} is {quote(given)}: give a whole number of {self.unit}")
        return int(given)

    def require(self, count: int, what: str) -> None:
        """Refuse more than that."""
        if count > self.value:
            raise BadInputError(
                f"{what}: {count:,} {self.unit} are above {self.value:,}: make it smaller, "
                f"or set {self.variable} if memory allows"
            )


BYTES = Limit("BELLMANIFOLD_MAX_BYTES", 2**30, "bytes")
"""Of a file, also after decompression."""
TEXT_SHARE = 16
"""Text must be this many times smaller than other files: parsed, it takes up to thirty times its bytes."""
SIZE = Limit("BELLMANIFOLD_MAX_SIZE", 10_000_000, "pairs and successors")
"""Of a problem."""
RUNS = Limit("BELLMANIFOLD_MAX_RUNS", 200_000, "runs")
"""Of a plan, of `learn` and of `reproduce`."""
NUMBERS = Limit("BELLMANIFOLD_MAX_NUMBERS", 2**28, "numbers")
"""That a computation holds at a time, roughly."""
ROUTES = Limit("BELLMANIFOLD_MAX_ROUTES", 2**25, "numbers")
"""Of beginnings of routes that are compared with each other: their moves, and the policies that agree with them."""
WORKERS = Limit("BELLMANIFOLD_MAX_WORKERS", 256, "processes")
"""That `sweep` and `reproduce` start."""
