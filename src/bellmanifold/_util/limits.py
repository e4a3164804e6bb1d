"""Limits on sizes, checked before work begins.

Sizes come from files, options and plans; a digit too many should be reported at once, not after hours by a machine that
has run out of memory. The defaults suit a machine with 4 GB. On a larger one two environment variables raise them: one
for the size of problems, and of the files that hold them, one for the numbers held at a time.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from bellmanifold.errors import BadInputError, quote


@dataclass(frozen=True)
class Limit:
    """The largest allowed number of some unit.

    Attributes:
        default: the limit, unless the environment variable says otherwise.
        unit: what is counted.
        variable: the environment variable; empty if the limit is fixed.
        each: if not 0, the variable can only raise the limit: to this many for each one that it allows.
    """

    default: int
    unit: str
    variable: str = ""
    each: int = 0

    @property
    def value(self) -> int:
        """The limit in force."""
        given = os.environ.get(self.variable) if self.variable else None
        if given is None:
            return self.default
        if not given.isascii() or not given.isdigit() or len(given) > 18:
            raise BadInputError(f"{self.variable} is {quote(given)}: give a whole number")
        return max(self.default, int(given) * self.each) if self.each else int(given)

    def remedy(self, count: int) -> str:
        """How to allow this many."""
        if not self.variable:
            return "make it smaller"
        least = f" to {-(-count // self.each)} or more" if self.each else ""
        return f"make it smaller, or set {self.variable}{least} if memory allows"

    def require(self, count: int, what: str) -> None:
        """Raise if a count exceeds the limit."""
        if count > self.value:
            raise BadInputError(f"{what}: {count:,} {self.unit} are above {self.value:,}: {self.remedy(count)}")


SIZE = Limit(10_000_000, "pairs and successors", "BELLMANIFOLD_MAX_SIZE")
"""Size of a problem."""
BYTES_OF_ONE = 100
BYTES = Limit(BYTES_OF_ONE * SIZE.default, "bytes", SIZE.variable, BYTES_OF_ONE)
"""Size of a file, also after decompression: so many bytes for each pair and successor of the largest problem."""
TEXT_SHARE = 16
"""Text files must be this many times smaller than others: parsed, they take up to thirty times their bytes."""
NUMBERS = Limit(2**28, "numbers", "BELLMANIFOLD_MAX_NUMBERS")
"""Numbers that a computation holds at a time, roughly."""
RUNS = Limit(200_000, "runs")
"""Runs of a plan, of `learn` and of `reproduce`."""
WORKERS = Limit(256, "processes")
"""Processes that `sweep` and `reproduce` start."""
