"""What a worker does with a unit, wherever it runs, and what it answers."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from typing import TypeAlias

from bellmanifold.errors import BellmanifoldError
from bellmanifold.experiments.runs import Unit, play_unit
from bellmanifold.experiments.store import encode

TRIES = 2
"""How often a unit is given out if its worker dies or fails in a way that may not happen again."""


@dataclass(frozen=True)
class Failure:
    """Why a unit could not be played.

    Attributes:
        message: one line.
        exit_code: what the command should return.
        details: a traceback, for the log.
        final: whether trying again is pointless: the input is at fault.
    """

    message: str
    exit_code: int = 70
    details: str = ""
    final: bool = False


@dataclass(frozen=True)
class Answer:
    """Files of a unit's runs by seed, or why there are none."""

    files: dict[int, bytes] = field(default_factory=dict)
    failure: Failure | None = None

    def worth_another(self, tries: int) -> bool:
        """Should the unit be given out again?"""
        return self.failure is not None and not self.failure.final and tries < TRIES


Played: TypeAlias = tuple[Unit, Answer]


def attempt(unit: Unit) -> Answer:
    """Play a unit and encode its records; whatever goes wrong is part of the answer."""
    try:
        return Answer({seed: encode(record) for seed, record in play_unit(unit).items()})
    except BellmanifoldError as error:
        return Answer(failure=Failure(str(error), error.exit_code, traceback.format_exc(), final=True))
    except Exception as error:
        return Answer(failure=Failure(repr(error), details=traceback.format_exc()))
