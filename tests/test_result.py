"""Moments of action values as engines hand them over."""

import numpy as np

from bellmanifold.data import Dataset
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.posteriors.result import from_moments, prior_elsewhere
from bellmanifold.posteriors.policies import Estimate
from bellmanifold.posteriors.target import relaxed_target


def target():
    """Of three states in a row the data touch the last one, which has two actions."""
    moves = {
        ("a", "on"): Move(-1.0, {"b": 1.0}),
        ("b", "on"): Move(-1.0, {"c": 1.0}),
        ("c", "x"): Move(-1.0, {"goal": 1.0}),
        ("c", "y"): Move(-2.0, {"goal": 1.0}),
    }
    model = from_moves("row", moves, start="a")
    return relaxed_target(Dataset.from_pairs(model, [("c", "x")]), 0.1, 3.0)


def test_values_that_no_data_touch_keep_their_prior():
    own = target().own
    mean, sd = prior_elsewhere(target(), Estimate.of(np.array([1.5, -2.5]), np.array([0.1, 0.2])), np.array([0.3, 0.4]))
    expected = {"mean": np.zeros(4), "se": np.zeros(4), "sd": np.full(4, 3.0)}
    expected["mean"][own], expected["se"][own], expected["sd"][own] = [1.5, -2.5], [0.1, 0.2], [0.3, 0.4]
    np.testing.assert_array_equal(mean.value, expected["mean"])
    np.testing.assert_array_equal(mean.se, expected["se"])
    np.testing.assert_array_equal(sd, expected["sd"])


def test_standard_deviations_from_moments():
    """Second moment less the square of the first; rounding below 0 is 0."""
    own = target().own
    first, second = np.zeros(4), np.zeros(4)
    first[own], second[own] = [3.0, 2.0], [9.25, 4.0 - 1e-15]
    mean, sd = from_moments(target(), Estimate.of(first, 0.1 * first), Estimate.of(second, np.zeros(4)))
    np.testing.assert_array_equal(mean.value, first)
    np.testing.assert_array_equal(mean.se, 0.1 * first)
    np.testing.assert_allclose(sd[own], [0.5, 0.0])
