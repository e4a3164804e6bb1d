"""Normal numbers between bounds: SciPy's truncated normal, and where it fails the tail's exponential law."""

import numpy as np
import pytest
from scipy import stats

from bellmanifold.gaussian.between import normal_between


@pytest.mark.parametrize(
    "bounds", [(-np.inf, np.inf), (-np.inf, -1.0), (0.5, np.inf), (-2.0, 3.0), (1.0, 1.5), (-5.0, 1.0)]
)
def test_quantiles_are_those_of_a_truncated_normal(bounds):
    for share in (0.001, 0.3, 0.5, 0.97):
        assert normal_between(*bounds, share) == pytest.approx(stats.truncnorm(*bounds).ppf(share), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_far_out_the_excess_is_nearly_exponential(sign):
    """Beyond 200 the excess e has density exp(-200 e - e^2/2): its median is log 2 / 200 up to 2e-5 of itself."""
    bounds = sorted((sign * 200.0, sign * np.inf))
    excess = sign * normal_between(*bounds, 0.5) - 200.0
    assert excess == pytest.approx(np.log(2) / 200.0, rel=1e-4)


def test_the_ends_stay_within_the_bounds():
    assert normal_between(1.0, 2.0, 0.0) == pytest.approx(1.0)
    assert 1.0 <= normal_between(1.0, 2.0, 1.0) <= 2.0
    assert normal_between(3.0, 3.0, 0.4) == 3.0
