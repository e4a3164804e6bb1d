"""Lower bounds of dependencies: each is stated, and the ones installed here are not below them."""

from importlib import metadata

import pytest
from oldest_versions import lower_bounds, read_project


def numbers(version):
    return [int(part) for part in version.split(".")[:3] if part.isdigit()]


def test_every_requirement_has_a_lower_bound_that_holds_here():
    bounds = lower_bounds(read_project())
    assert {"jax", "numpy", "xarray", "distributed", "pytest"} <= bounds.keys()
    for name, version in bounds.items():
        assert numbers(metadata.version(name)) >= numbers(version), name


def test_a_requirement_without_a_lower_bound_is_refused():
    project = {"dependencies": ["numpy"], "optional-dependencies": {"dev": []}}
    with pytest.raises(ValueError, match="numpy: write it as name>=version"):
        lower_bounds(project)
