"""Shell completion of problems, agents and files.

Bash breaks words at colons, so it completes built-in problems only where its variable COMP_WORDBREAKS has none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from glob import escape, glob

from bellmanifold._util.plugins import names

OWN_AGENTS = ("bayes-br", "manifold", "psrl", "rlsvi", "q-learning", "ucb-q", "nearest")
"""The library's agents: importing their registry would make completion too slow."""
MOST_FILES = 200


def problems(incomplete: str) -> list[str]:
    """Problem references and files that begin with `incomplete`."""
    return [*_references(incomplete), *data_files(incomplete)]


def data_files(incomplete: str) -> list[str]:
    """Files and directories whose names begin with `incomplete`."""
    found = sorted(glob(escape(incomplete) + "*"))[:MOST_FILES]
    return [path + (os.sep if os.path.isdir(path) else "") for path in found]


def agents(incomplete: str) -> list[str]:
    """Agents whose names begin with `incomplete`."""
    return [name for name in (*OWN_AGENTS, *names("agent")) if name.startswith(incomplete)]


def engines(incomplete: str) -> list[str]:
    """Engines whose names begin with `incomplete`."""
    return [name for name in ("auto", "chart", *names("engine")) if name.startswith(incomplete)]


def _references(incomplete: str) -> Iterator[str]:
    """Built-in problems, or the parameters of the one already named."""
    from bellmanifold.envs import BUILT_IN
    from bellmanifold.io.models import parameters

    name, asked, query = incomplete.partition("?")
    if asked and name.removeprefix("env:") in BUILT_IN:
        given, _, _ = query.rpartition("&")
        before = f"{name}?{given}&" if given else f"{name}?"
        yield from (f"{before}{key}=" for key in (*parameters(BUILT_IN[name.removeprefix("env:")]), "discount"))
    else:
        yield from (f"env:{known}" for known in BUILT_IN)
        yield "gym:"
