"""Lower bounds of dependencies: each is stated, and the ones installed here are not below them."""

import re
from importlib import metadata

import pytest
from oldest_versions import lower_bounds, read_project, requirements_of

from bellmanifold._util.extras import PACKAGES


def numbers(version):
    return [int(part) for part in version.split(".")[:3] if part.isdigit()]


def test_every_requirement_has_a_lower_bound_that_holds_here():
    bounds = lower_bounds(read_project())
    assert {"jax", "numpy", "xarray", "distributed", "gymnasium", "plotly", "pytest"} <= bounds.keys()
    for name, version in bounds.items():
        assert numbers(metadata.version(name)) >= numbers(version), name


def test_a_requirement_without_a_lower_bound_is_refused():
    project = {"name": "ours", "dependencies": ["numpy"], "optional-dependencies": {"dev": []}}
    with pytest.raises(ValueError, match="numpy: write it as name>=version"):
        lower_bounds(project)


def test_every_extra_for_users_is_in_all_and_installs_the_package_that_messages_name():
    extras = read_project()["optional-dependencies"]
    for extra, package in PACKAGES.items():
        assert [re.split("[>=]", requirement)[0] for requirement in extras[extra]] == [package]
    wanted = [re.split("[>=]", requirement)[0] for requirement in requirements_of(read_project(), "all")]
    assert sorted(wanted) == sorted(PACKAGES.values())
