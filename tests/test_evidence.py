"""The curve of the evidence against the prior scale: what it says about itself, and which scales it refuses."""

import numpy as np
import pytest

from bellmanifold import envs
from bellmanifold.errors import BadInputError
from bellmanifold.problem.dataset import Dataset
from bellmanifold_paper.evidence import EvidenceCurve, evidence_curve


def test_a_curve_tells_its_range_and_where_it_is_highest():
    """In any order of the scales."""
    curve = EvidenceCurve(np.array([2.0, 0.5, 8.0, 3.0]), np.array([-3.0, -7.0, -4.0, -1.25]), np.full(4, 0.01))
    assert "4 prior scales from 0.5 to 8" in repr(curve)
    assert "at prior scale 3" in repr(curve)
    assert "-1.25" in repr(curve)


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.inf, np.nan])
def test_scales_that_are_not_positive_are_refused(wrong):
    data = Dataset.complete(envs.two_state())
    with pytest.raises(BadInputError, match=r"prior_scales\[1\] is .*: give a positive number"):
        evidence_curve(data.model, data, [1e-3, wrong])


def test_no_scales_are_refused():
    data = Dataset.complete(envs.two_state())
    with pytest.raises(BadInputError, match="prior_scales is empty"):
        evidence_curve(data.model, data, [])
