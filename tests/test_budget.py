"""What a posterior may cost: the defaults are a contract, since they fix every number that is reported."""

from dataclasses import asdict

import pytest

from bellmanifold.chart.batch import LIMITS
from bellmanifold.errors import BadInputError
from bellmanifold.posteriors.budget import Budget


def test_defaults_are_what_answers_were_computed_with():
    """Other limits give other numbers for the same seed, or refuse what was answered."""
    found = asdict(Budget())
    assert found.pop("chart") == asdict(LIMITS)
    assert found == {
        "accuracy": 0.001,
        "samples": None,
        "seed": 0,
        "top": 1000,
        "enough": 400.0,
        "coordinates": 400,
        "points": 2_097_152,
        "held": 134_217_728,
        "in_piece": 8_388_608,
        "pilot": 12,
        "kept": 33_554_432,
        "cut": 6,
        "cells": 131_072,
        "cell_points": 33_554_432,
        "rounds": 8,
        "walked": 2_147_483_648,
        "sparse_steps": 2000,
    }


@pytest.mark.parametrize(("name", "least", "wrong"), [("samples", 1, 0), ("top", 0, -1), ("seed", 0, -1)])
def test_numbers_that_are_counted_have_a_least_one(name, least, wrong):
    assert getattr(Budget(**{name: least}), name) == least
    with pytest.raises(BadInputError, match=f"{name} is {wrong}"):
        Budget(**{name: wrong})


def test_an_accuracy_is_positive():
    assert Budget(accuracy=0.5).accuracy == 0.5
    for accuracy in (0.0, -0.5, float("nan")):
        with pytest.raises(BadInputError, match="accuracy is"):
            Budget(accuracy=accuracy)


@pytest.mark.parametrize(
    ("error", "points"),
    [(0.01, 96), (0.02, 4 * 96), (0.03, 16 * 96), (0.05, 32 * 96), (0.005, 96), (float("inf"), 2 * 96), (1e9, 10_000)],
)
def test_points_are_doubled_until_the_error_would_be_small_enough(error, points):
    """Four times the points halve an error: 3 takes log2(9) = 3.2 doublings, 5 takes 4.6; an infinite one takes one."""
    assert Budget(accuracy=0.01).points_needed(96, error, 10_000) == points


def test_points_are_doubled_forty_times_at_most():
    assert Budget(accuracy=1e-9).points_needed(3, 1e9, 2**62) == 3 * 2**40
