"""Problems that were given in costs, `"metadata": {"costs": {"unit": "minutes"}}`, and amounts worded in that sign.

Everything is computed in rewards, and files and JSON hold rewards. Where the metadata say that the problem was given in
costs, what people read is worded in costs: a value of -23.1 "costs 23.1 minutes". `"unit"` may be left out or empty.
Metadata may hold anything, so an entry that is no such mapping is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

from bellmanifold.problem.ssp import SSP


@dataclass(frozen=True)
class Costs:
    """The sign in which a problem was given.

    Attributes:
        unit: of the costs, as "minutes"; empty if it is not known.
    """

    unit: str = ""

    def amount(self, size: float, digits: int = 3) -> str:
        """A number with its unit.

        >>> Costs("minutes").amount(23.09)
        '23.1 minutes'
        """
        return f"{size + 0.0:.{digits}g} {self.unit}".rstrip()


def cost_unit(model: SSP) -> Costs | None:
    """How a problem says that it was given in costs; None if it was given in rewards."""
    given = model.metadata.get("costs")
    if not isinstance(given, dict):
        return None
    unit = given.get("unit", "")
    return Costs(unit.strip()) if isinstance(unit, str) else None


def amount(size: float, costs: Costs | None, digits: int = 3) -> str:
    """A difference of rewards, or of costs, in words: a size without a sign.

    >>> amount(1.05, None), amount(1.05, Costs("minutes"))
    ('1.05', '1.05 minutes')
    """
    return (Costs() if costs is None else costs).amount(size, digits)


def worth(reward: float, costs: Costs | None, digits: int = 3) -> str:
    """An amount of reward as a predicate.

    >>> worth(-23.09, None), worth(-23.09, Costs("minutes"))
    ('is worth -23.1', 'costs 23.1 minutes')
    """
    return f"is worth {reward:.{digits}g}" if costs is None else f"costs {costs.amount(-reward, digits)}"
