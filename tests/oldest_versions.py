"""The lower bounds of pyproject.toml as pip constraints: `python tests/oldest_versions.py`, used by `make test-oldest`.

Every requirement, of the package and of the extra `dev`, has to state a lower bound; those that are only tools (they
check or build, and no result depends on them) are left at their newest version.
"""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
TOOLS = {"build", "mkdocs", "mkdocs-material", "mkdocstrings", "mypy", "ruff", "scipy-stubs", "twine"}


def lower_bounds(project):
    """Name and lowest allowed version of everything that the package and its tests need."""
    found = {}
    for requirement in [*project["dependencies"], *requirements_of(project, "dev")]:
        match = re.fullmatch(r"([a-z0-9-]+)(?:\[[a-z-]+\])?>=([0-9.]+(?:b[0-9]+)?)", requirement)
        if match is None:
            raise ValueError(f"{requirement}: write it as name>=version, the oldest one that works")
        found[match[1]] = match[2]
    return {name: version for name, version in found.items() if name not in TOOLS}


def requirements_of(project, extra):
    """What an extra requires; extras of the package itself that it names are looked up."""
    for requirement in project["optional-dependencies"][extra]:
        own = re.fullmatch(rf"{project['name']}\[([a-z,]+)\]", requirement)
        if own is None:
            yield requirement
        else:
            for other in own[1].split(","):
                yield from requirements_of(project, other)


def read_project():
    return tomllib.loads(PROJECT.read_text())["project"]


if __name__ == "__main__":
    for name, version in lower_bounds(read_project()).items():
        print(f"{name}=={version}")
