"""What other packages plug in: engines, agents and commands, found by their entry points.

A package declares in its `pyproject.toml`, for instance,

    [project.entry-points."bellmanifold.agents"]
    wanderer = "stranger.wanderer:KIND"

and the library finds `wanderer` wherever that package is installed. Nothing is imported before it is used. The paper's
package and the laboratory plug in the same way as a stranger's.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any, Literal

from bellmanifold.errors import UnsupportedError

Kind = Literal["engine", "agent", "command"]
PAPER, LAB = "bellmanifold_paper", "bellmanifold_lab"
HOMES: dict[Kind, dict[str, str]] = {
    "engine": dict.fromkeys(("mixture", "rejection", "hmc", "nuts"), PAPER),
    "agent": dict.fromkeys(("bayes-br-hmc", "bayes-td", "bayes-td-en", "bayes-td-max"), PAPER),
    "command": dict.fromkeys(("sweep", "report", "explore", "demo"), LAB) | {"reproduce": PAPER},
}
"""Names that this project's other packages plug in, to say which one is missing."""


@cache
def plugged_in(kind: Kind) -> dict[str, Any]:
    """The entry points of a kind, by name, in alphabetical order; the first package wins where two share a name.

    They are `EntryPoint`s of `importlib.metadata`, or of its backport where some package has imported that.
    """
    found: dict[str, Any] = {}
    for point in entry_points(group=f"bellmanifold.{kind}s"):
        found.setdefault(point.name, point)
    return dict(sorted(found.items()))


def load(kind: Kind, name: str) -> Any:
    """What is plugged in under a name.

    Raises:
        UnsupportedError: if it is not installed, or cannot be imported; the message names its package.
    """
    point = plugged_in(kind).get(name)
    if point is None:
        home = HOMES[kind].get(name, "none that is installed")
        raise UnsupportedError(
            f"the {kind} {name} is in the package {home}, which is not installed here: install bellmanifold again"
        )
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        package = point.value.partition(":")[0].partition(".")[0]
        raise UnsupportedError(
            f"the {kind} {name} of the package {package} cannot be loaded ({error}): install what it needs, or "
            f"remove {package}"
        ) from error


def is_plugged_in(kind: Kind, name: str) -> bool:
    """Whether some package plugs this in."""
    return name in plugged_in(kind)


def names(kind: Kind) -> list[str]:
    """Names that can be asked for: what is plugged in, and what this project's other packages would plug in."""
    return list(dict.fromkeys([*HOMES[kind], *plugged_in(kind)]))
