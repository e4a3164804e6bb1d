"""Wrappers that encode observations or actions of several numbers as one number.

`MultiDiscrete` spaces, and tuples of `Discrete` ones (Blackjack's observations), have finitely many values. These are
numbered in mixed radix, the last component changing fastest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, MultiDiscrete, Tuple
from gymnasium.wrappers import TransformAction, TransformObservation

from bellmanifold.errors import UnsupportedError
from bellmanifold.io.gymnasium import label_of


class Digits:
    """The numbering of the values of a space.

    Attributes:
        first, size: smallest value of each component, and how many values it has.
    """

    def __init__(self, space: Any) -> None:
        if isinstance(space, MultiDiscrete):
            self.first, self.size = np.ravel(space.start).astype(int), np.ravel(space.nvec).astype(int)
        else:
            self.first = np.array([int(part.start) for part in space.spaces])
            self.size = np.array([int(part.n) for part in space.spaces])
        self.is_tuple, self.shape = isinstance(space, Tuple), np.shape(getattr(space, "nvec", self.first))

    @property
    def count(self) -> int:
        """Number of values of the space."""
        return int(np.prod(self.size, dtype=object))

    def number(self, value: Any) -> int:
        """The number of a value."""
        return int(np.ravel_multi_index(np.ravel(np.asarray(value, dtype=int)) - self.first, self.size))

    def value(self, number: int | np.integer) -> Any:
        """The value with a number."""
        digits = np.array(np.unravel_index(int(number), self.size)) + self.first
        return tuple(digits.tolist()) if self.is_tuple else digits.reshape(self.shape)


def is_several(space: Any) -> bool:
    """Whether a space has several components, each with finitely many values."""
    is_tuple = isinstance(space, Tuple) and len(space.spaces) > 0
    return isinstance(space, MultiDiscrete) or (is_tuple and all(isinstance(part, Discrete) for part in space.spaces))


def numbered(env: Any) -> Any:
    """The environment, wrapped if necessary so that observations and actions are single numbers.

    Raises:
        UnsupportedError: for spaces of other kinds.

    >>> import gymnasium
    >>> numbered(gymnasium.make("Blackjack-v1")).observation_space
    Discrete(704)
    """
    seen, played = env.observation_space, env.action_space
    if not all(isinstance(space, Discrete) or is_several(space) for space in (seen, played)):
        raise UnsupportedError(
            f"gym:{label_of(env)}: observations and actions must be whole numbers, one or several (spaces Discrete, "
            "MultiDiscrete or a tuple of Discrete): wrap it so that they are"
        )
    if is_several(seen):
        digits = Digits(seen)
        env = TransformObservation(env, digits.number, Discrete(digits.count))
    if is_several(played):
        digits = Digits(played)
        env = TransformAction(env, digits.value, Discrete(digits.count))
    return env
