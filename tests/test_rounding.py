"""How large values may be, and which tolerances rounding swallows."""

from dataclasses import replace

import numpy as np
import pytest

from bellmanifold.envs.building import Move, from_moves
from bellmanifold.posteriors.kernels import Gaussian, Uniform
from bellmanifold.posteriors.rounding import largest_competing, tie_width, without_lost_tolerance
from bellmanifold.posteriors.target import noisy_target, relaxed_target
from bellmanifold.posteriors.value_prior import ValuePrior
from bellmanifold.problem.dataset import Dataset

GOAL = {"goal": 1.0}
MOVES = {
    ("s", "a"): Move(-3.0, {"t": 0.5, "goal": 0.5}),
    ("s", "b"): Move(2.0, GOAL),
    ("t", "a"): Move(-0.25, {"u": 0.75, "goal": 0.25}),
    ("u", "a"): Move(0.125, GOAL),
    ("u", "b"): Move(7.0, GOAL),
}


def target_of(seen, scale=5.0, mean=0.0, epsilon=0.0, moves=MOVES):
    model = from_moves("sizes", moves, start="s")
    prior = ValuePrior(np.full(model.n_pairs, mean), np.full(model.n_pairs, scale))
    return relaxed_target(Dataset.from_pairs(model, seen), epsilon, prior)


TWO = [("s", "a"), ("s", "b")]


@pytest.mark.parametrize(
    ("seen", "scale", "mean", "size"),
    [
        (TWO, 5.0, 0.0, 3.0 + 0.5 * 5.0 - 0.5),
        (TWO, 4.0, -2.0, 3.0 + 0.5 * 6.0),
        (TWO, 0.5, 0.25, 3.0),
        ([*TWO, ("t", "a")], 4.0, -2.0, 3.0 + 0.5 * (0.25 + 0.75 * 6.0)),
        ([*TWO, ("t", "a"), ("u", "b")], 40.0, 0.0, 3.0 + 0.5 * (0.25 + 0.75 * 40.0)),
        ([*TWO, ("t", "a"), ("u", "a"), ("u", "b")], 40.0, 0.0, 7.0),
        ([*TWO, ("t", "a"), ("u", "a"), ("u", "b")], 4.0, 0.0, 7.0),
        ([("t", "a"), ("u", "a"), ("u", "b"), ("s", "a")], 40.0, 0.0, 7.0),
        ([("t", "a"), ("s", "a"), ("u", "b")], 40.0, 0.0, 0.0),
    ],
)
def test_values_that_compete_are_bounded_by_what_they_add_up(seen, scale, mean, size):
    """|r| and what comes after it, but not above the prior or |r| itself, of states with two observed actions."""
    assert largest_competing(target_of(seen, scale, mean)) == pytest.approx(size)


@pytest.mark.parametrize(("scale", "size"), [(50.0, 50.0), (90.0, 90.0), (1e4, 1e4), (0.5, 1.0)])
def test_in_loops_the_prior_bounds_them(scale, size):
    """Staying pays 1 time after time; what has not settled after a hundred moves is as large as the prior says."""
    moves = {("s", "stay"): Move(-1.0, {"s": 1.0}), ("s", "exit"): Move(-1.0, GOAL)}
    assert largest_competing(target_of(list(moves), scale, moves=moves)) == size


def test_a_flat_prior_bounds_nothing():
    target = target_of(TWO)
    assert largest_competing(replace(target, prior=replace(target.prior, flat=True))) == 3.0


def test_how_wide_residuals_are_that_split_ties():
    """1e-8 of the largest reward, of 1 without any; 1e-12 of the values that compete where these are far larger."""
    everything = list(MOVES)
    assert tie_width(target_of(everything)) == pytest.approx(7e-8)
    assert tie_width(target_of(TWO)) == pytest.approx(3e-8)
    assert tie_width(target_of([])) == 1e-8
    assert tie_width(target_of(TWO, scale=1e6)) == pytest.approx(1e-12 * (3.0 + 0.5e6))
    assert tie_width(target_of(TWO, scale=2e4)) == pytest.approx(3e-8), "1e4 compete, of which 1e-12 is less"
    assert tie_width(target_of([("s", "a")], scale=1e6)) == pytest.approx(3e-8), "nothing competes"


@pytest.mark.parametrize(("scale", "width"), [(10.0, 1e-5), (1e-3, 1e-8), (1e9, 10.0)])
def test_residuals_beside_a_large_reward_that_competes_with_nothing(scale, width):
    """1e-6 of the prior's sd, but no less than 1e-8 of the values that compete and no more than 1e-8 of the rewards."""
    moves = {("s", "a"): Move(-1.0, GOAL), ("s", "b"): Move(-1.0, GOAL), ("u", "far"): Move(-1e9, GOAL)}
    target = target_of(list(moves), scale, moves=moves)
    assert tie_width(target) == pytest.approx(width)
    assert tie_width(replace(target, prior=replace(target.prior, flat=True))) == pytest.approx(10.0)


@pytest.mark.parametrize(("epsilon", "is_lost"), [(1e-13 * 500_003, True), (1.01e-13 * 500_003, False), (1e-5, False)])
def test_a_tolerance_that_rounding_swallows_is_none(epsilon, is_lost):
    """Below 1e-13 of the largest value that competes."""
    target = target_of(TWO, scale=1e6, epsilon=epsilon)
    found = without_lost_tolerance(target)
    assert found.is_exact == is_lost
    assert (found is target) != is_lost


def test_what_is_lost_is_decided_pair_by_pair():
    """A scale of its own keeps what is large enough, and the kernel with it; alone it is the exact posterior."""
    target = replace(target_of(TWO, scale=1e6, epsilon=1e-8), kernel=Uniform())
    mixed = replace(target, scale=np.array([1e-9, 0.5, 0.0, 0.0, 0.0]))
    found = without_lost_tolerance(mixed)
    assert found.scale.tolist() == [0.0, 0.5, 0.0, 0.0, 0.0]
    assert isinstance(found.kernel, Uniform)
    assert isinstance(without_lost_tolerance(target).kernel, Gaussian)
    assert not without_lost_tolerance(target).scale.any()
    elsewhere = replace(target, scale=np.array([0.5, 0.5, 1e-9, 0.0, 0.0]))
    assert without_lost_tolerance(elsewhere) is elsewhere, "that pair was not observed"
    exact = target_of(TWO, scale=1e6)
    assert without_lost_tolerance(exact) is exact, "there is none"
    alone = target_of([("s", "a")], scale=1e6, epsilon=1e-9)
    assert without_lost_tolerance(alone) is alone, "no two actions compete"


def test_noise_that_is_inferred_is_kept():
    model = from_moves("sizes", MOVES, start="s")
    data = Dataset.from_pairs(model, [(*pair, reward) for pair in TWO for reward in (-1.0, 0.5)])
    target = noisy_target(data, lambda eta: -eta, 1e6)
    small = replace(target, scale=np.where(target.observed, 1e-9, 0.0))
    assert without_lost_tolerance(small) is small
    assert without_lost_tolerance(replace(small, noise_scale=None)).is_exact
