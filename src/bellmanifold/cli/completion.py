"""Shell completion of problems, agents and files.

Bash breaks words at colons: "env:sw" arrives as the three words "env", ":" and "sw", of which Bash replaces only the
last. `mend_words` joins the words again and remembers the prefix before the last one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from glob import escape, glob

from bellmanifold._util.plugins import names

OWN_AGENTS = ("bayes-br", "manifold", "psrl", "rlsvi", "q-learning", "ucb-q", "nearest")
"""The library's agents: importing their registry would make completion too slow."""
SCHEMES = ("env", "gym")
PREFIX = "_BELLMANIFOLD_PREFIX"
"""Environment variable that holds the prefix before the word that Bash completes."""
MOST_FILES = 200


def mend_words(environment: MutableMapping[str, str]) -> None:
    """Join the words that Bash broke at colons, in the environment variables that it passes."""
    if environment.get("_BELLMANIFOLD_COMPLETE") != "complete_bash":
        return
    words = environment.get("COMP_WORDS", "").split("\n")
    current = int(environment.get("COMP_CWORD", "0") or 0)
    words = words[: current + 1] + [""] * (current + 1 - len(words))
    whole: list[str] = []
    for word in words:
        if whole and ((word.startswith(":") and whole[-1] in SCHEMES) or whole[-1] in [f"{s}:" for s in SCHEMES]):
            whole[-1] += word
        else:
            whole.append(word)
    scheme, colon, last = whole[-1].partition(":")
    if colon and scheme in SCHEMES:
        environment[PREFIX], whole[-1] = f"{scheme}:", last
    environment["COMP_WORDS"], environment["COMP_CWORD"] = "\n".join(whole), str(len(whole) - 1)


def problems(incomplete: str) -> list[str]:
    """Problem references and files that begin with `incomplete`."""
    prefix = os.environ.get(PREFIX, "")
    found = [name.removeprefix(prefix) for name in _references(prefix + incomplete) if name.startswith(prefix)]
    return found if prefix else found + data_files(incomplete)


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
