"""Problems that were given in costs, `"metadata": {"costs": {"unit": "minutes"}}`, and everything worded in that sign.

Everything is computed in rewards, and files, JSON and data frames hold rewards. Where the metadata say that the problem
was given in costs, what people read is worded in costs: a value of -23.1 "costs 23.1 minutes", and the word "reward" or
"value" becomes "cost". `"unit"` may be left out or empty. Metadata may hold anything, so an entry that is no such
mapping is ignored.

All functions take the `Costs` of a problem, or None for a problem in rewards, whose words and signs they leave alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bellmanifold.problem.ssp import SSP

COLUMNS = {
    "reward": ("cost", True),
    "reward_sd": ("sd of cost", False),
    "q": ("cost to the goal", True),
    "value_of_state": ("least cost", True),
    "q_mean": ("expected cost", True),
    "q_sd": ("sd of cost", False),
    "completed_regret": ("completed regret", False),
    "gain": ("gain", False),
    "perfect": ("perfect", False),
}
"""Columns of amounts in rewards: their names in costs, and whether their sign changes."""
WORD = re.compile(r"(?<![-\w])(reward|value)(s?)(?![-\w])")
HINTS = {
    " (a cost is a negative reward)": "",
    "costs are negative rewards, check the signs of rewards": "check the signs of costs",
    "write the cost as a negative reward": "correct its sign",
    "write costs as negative rewards": "correct its sign",
    "give its moves a negative reward": "give its moves a cost",
    "leaves nothing at or below 0": "leaves nothing at or above 0",
}
"""Hints for those who have to write costs as rewards, and what they become for those who write costs."""


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


def paid(reward: float, costs: Costs | None) -> str:
    """What a move paid, in full.

    >>> paid(-4.5, None), paid(-4.5, Costs("minutes"))
    ('paid -4.5', 'cost 4.5')
    """
    return f"{'paid' if costs is None else 'cost'} {signed(reward, costs):.12g}"


def signed(rewards: Any, costs: Costs | None) -> Any:
    """A number or an array of rewards in the sign in which people read it; 0 has none.

    >>> signed(-23.0, None), signed(-23.0, Costs()), signed(0.0, Costs())
    (-23.0, 23.0, 0.0)
    """
    return rewards if costs is None else 0.0 - rewards


def in_unit(text: str, costs: Costs | None) -> str:
    """A number that is written already, with its unit.

    >>> in_unit("0.6 ± 0.1", Costs("minutes"))
    '0.6 ± 0.1 minutes'
    """
    return f"{text} {costs.unit}".rstrip() if costs else text


def worded(sentence: str, costs: Costs | None) -> str:
    """A sentence about rewards and values, as one about costs.

    >>> worded("a prior that is flat over rewards", Costs("minutes"))
    'a prior that is flat over costs'
    """
    if costs is None:
        return sentence
    for hint, instead in HINTS.items():
        sentence = sentence.replace(hint, instead)
    return WORD.sub(r"cost\2", sentence)


def column_name(name: str, costs: Costs | None) -> str:
    """The head of a column of amounts, with their unit.

    >>> column_name("expected value", None), column_name("expected value", Costs("minutes"))
    ('expected value', 'expected cost (minutes)')
    """
    return worded(name, costs) + (f" ({costs.unit})" if costs and costs.unit else "")


def in_terms(columns: Mapping[str, Sequence[Any]], costs: Costs | None) -> Mapping[str, Sequence[Any]]:
    """Columns of a table for people, those of `COLUMNS` and their standard errors in costs; the others as they are.

    >>> in_terms({"state": ["s"], "q_mean": [-5.0], "q_mean_se": [0.1]}, Costs("minutes"))
    {'state': ['s'], 'expected cost (minutes)': [5.0], 'expected cost (minutes)_se': [0.1]}
    """
    if costs is None:
        return columns
    found = {}
    for name, column in columns.items():
        plain = name.removesuffix("_se")
        called, changes = COLUMNS.get(plain, (plain, False))
        head = column_name(called, costs) if plain in COLUMNS else plain
        found[head + name[len(plain) :]] = (
            [signed(number, costs) for number in column] if changes and name == plain else column
        )
    return found
