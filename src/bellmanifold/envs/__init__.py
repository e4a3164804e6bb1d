"""Built-in problems: functions that return an `SSP`, and the names the command line knows them by."""

from collections.abc import Callable

from bellmanifold.envs.grid import grid
from bellmanifold.envs.roads import roads
from bellmanifold.envs.robot import robot
from bellmanifold.envs.small import four_state, two_state
from bellmanifold.envs.triangles import deep_sea, pyramid, swirl
from bellmanifold.problem.ssp import SSP

BUILT_IN: dict[str, Callable[..., SSP]] = {
    "deep-sea": deep_sea,
    "pyramid": pyramid,
    "swirl": swirl,
    "two-state": two_state,
    "four-state": four_state,
    "grid": grid,
    "robot": robot,
    "roads": roads,
}
"""Name after `env:` -> the function that builds the problem; its parameters are the keys after `?`."""

__all__ = ["BUILT_IN", "deep_sea", "four_state", "grid", "pyramid", "roads", "robot", "swirl", "two_state"]
