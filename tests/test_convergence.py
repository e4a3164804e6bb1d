"""When chains are said to have mixed."""

import numpy as np
import pytest

from bellmanifold.posteriors import convergence
from bellmanifold.posteriors.convergence import (
    Convergence,
    convergence_of,
    evenly_spread,
    have_mixed,
    r_hat_and_effective,
)


def test_variables_are_looked_at_evenly():
    values = np.broadcast_to(np.arange(10.0), (2, 3, 10))
    assert evenly_spread(values, 4)[0, 0].tolist() == [0, 3, 6, 9]
    assert evenly_spread(values, 64)[0, 0].tolist() == list(range(10))
    assert evenly_spread(values[:, :, :1], 64).shape == (2, 3, 1)


def test_what_has_no_number_has_not_converged(rng):
    """Independent draws have R-hat about 1 and as many effective ones; variables with NaN have none."""
    values = rng.normal(size=(4, 500, 3))
    values[0, 0, 1] = np.nan
    r_hat, effective = r_hat_and_effective(values)
    assert r_hat[1] == np.inf
    assert effective[1] == 0.0
    assert np.all(np.abs(r_hat[[0, 2]] - 1.0) < 0.02)
    assert np.all((effective[[0, 2]] > 1200) & (effective[[0, 2]] < 3000))


def test_chains_too_short_to_judge_have_not_converged(rng, caplog):
    """And nothing is logged about it."""
    r_hat, effective = r_hat_and_effective(rng.normal(size=(4, 3, 2)))
    assert r_hat.tolist() == [np.inf] * 2
    assert effective.tolist() == [0.0] * 2
    assert np.isfinite(r_hat_and_effective(rng.normal(size=(4, 4, 2)))[1]).all()
    assert caplog.records == []


def test_a_chain_that_is_stuck_has_not_converged(rng):
    """It does not matter that the others move."""
    values = rng.normal(size=(4, 500, 2))
    values[2, :, 1] = values[2, 0, 1]
    found = convergence_of(values)
    assert np.isfinite(found.r_hat).tolist() == [True, False]
    assert (found.effective > 0).tolist() == [True, False]
    assert not have_mixed(*found.worst)
    assert have_mixed(*convergence_of(values[:, :, :1]).worst)
    assert have_mixed(*convergence_of(1e-3 * values[:, :, :1]).worst), "in small steps, too"
    assert len(convergence_of(np.tile(values[:, :, :1], 100)).r_hat) == convergence.LOOKED_AT


@pytest.mark.parametrize(
    ("r_hat", "effective", "good"),
    [([1.0, 1.019], [401.0, 500.0], True), ([1.0, 1.02], [500.0, 500.0], False), ([1.0, 1.0], [400.0, 500.0], False)],
)
def test_the_worst_variable_decides(r_hat, effective, good):
    assert (convergence.R_HAT_LIMIT, convergence.LEAST_EFFECTIVE) == (1.02, 400.0)
    assert have_mixed(*Convergence(np.array(r_hat), np.array(effective)).worst) == good
    assert have_mixed(*Convergence(np.array(r_hat[::-1]), np.array(effective[::-1])).worst) == good
