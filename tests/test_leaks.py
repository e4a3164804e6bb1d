"""Which posteriors with open laws exist, and which have moments: what leads out of a class, to the number."""

from dataclasses import replace

import pytest
from open_quadrature import open_model

from bellmanifold.errors import UnsupportedError
from bellmanifold.posteriors.laws import close_laws
from bellmanifold.posteriors.leaks import check_leaks, heavy_tails, lacking_variance
from bellmanifold.posteriors.target import relaxed_target
from bellmanifold.problem.dataset import Dataset
from bellmanifold.problem.observation import Observation

PAIRS = [("s", "a"), ("s", "b"), ("s", "c"), ("t", "a"), ("u", "a"), ("u", "b")]
MODEL = open_model(["s", "t", "u"], PAIRS)
"""Three states and the goal: a class of k of them is left with a weight of a (4 - k) / 4 for each of its pairs."""
ONLY_ONCE = "a loop that pays nothing was left once, and its laws are unknown: weights have infinite variance"
NEVER = "a loop that pays nothing was never left, and its laws are unknown: weights have infinite variance"


def posterior(concentration, moves, epsilon=0.0, flat=False, discount=1.0, model=MODEL):
    """What was seen is a reward for each move and where it led: {(state, action): (reward, landings)}."""
    seen = [
        Observation(state, action, reward, next=after)
        for (state, action), (reward, landings) in moves.items()
        for after in (landings or [None])
    ]
    data = Dataset.from_pairs(model.discounted(discount), seen)
    whole, laws, _ = close_laws(data, "dirichlet", concentration)
    target = relaxed_target(data, epsilon, 10.0)
    return replace(target, model=whole, laws=laws, prior=replace(target.prior, flat=flat))


def exists(target):
    try:
        check_leaks(target)
    except UnsupportedError:
        return False
    return True


def own(*rewards, landings="s"):
    """Actions of s that pay so much and led there, or as said."""
    return {("s", name): (reward, [*landings]) for name, reward in zip("abc", rewards, strict=False)}


ROUND = {("s", "a"): (0.7, ["t"]), ("t", "a"): (-0.7, ["s"])}
"""Round two states, which pays nothing on the whole: left with a weight of 2 a (4 - 2) / 4."""


@pytest.mark.parametrize(
    ("moves", "critical"),
    [
        (own(0.0), 4 / 3),
        (ROUND, 1.0),
        (own(0.0, landings=["s", "s", "s"]), 4 / 3),
        ({("u", "b"): (0.0, [])}, 4 / 3),
        (own(1.0, 0.0), 4 / 3),
        ({**ROUND, ("u", "a"): (-0.1, ["u"])}, 1.0),
    ],
    ids=["stay", "round", "stayed often", "no landing", "beside one that pays", "beside one that costs"],
)
def test_a_class_that_pays_nothing_is_left_often_enough(moves, critical):
    """The posterior exists if w > 1, and its weights have a variance if w > 2: at twice the concentration."""
    for factor, fine in ((1.0, False), (1.0 + 1e-9, True)):
        assert exists(posterior(factor * critical, moves)) == fine
        assert lacking_variance(posterior(2.0 * factor * critical, moves)) == ("" if fine else NEVER)


def test_the_states_of_the_class_are_named():
    with pytest.raises(UnsupportedError, match="the pairs that may stay in s, t pay nothing on average"):
        check_leaks(posterior(0.1, {("u", "a"): (-1.0, ["s"]), **ROUND}))


@pytest.mark.parametrize(
    "target",
    [
        posterior(0.1, own(-1.0)),
        posterior(0.1, own(1.0)),
        posterior(0.1, own(0.0), epsilon=0.1),
        posterior(0.1, own(0.0), flat=True),
        posterior(0.1, own(0.0), discount=0.9),
        posterior(0.1, own(0.0, landings=["goal", "goal", "goal"])),
        replace(posterior(0.1, own(0.0)), laws=None),
    ],
    ids=["costs", "pays", "a tolerance", "flat", "discounted", "ends", "given"],
)
def test_what_always_exists(target):
    """A class that costs or pays; a tolerance, a flat prior or a discount; nothing that stays; given laws."""
    assert exists(target)
    assert lacking_variance(target) == ""


@pytest.mark.parametrize(
    ("moves", "critical"),
    [
        (own(0.0, landings=["s", "goal"]), 4 / 3),
        (own(0.0, landings=["s", "s", "u"]), 4 / 3),
        ({**ROUND, ("t", "a"): (-0.7, ["s", "s", "goal"])}, 1.0),
        ({**ROUND, ("t", "a"): (-0.7, ["t", "s", "goal"])}, None),
        (own(0.0, landings=["goal"]), None),
        (own(0.0, landings=["s", "goal", "goal"]), None),
        (own(0.0, landings=["s", "goal", "u"]), None),
        (own(-1.0, landings=["s", "goal"]), None),
    ],
    ids=["stay", "twice", "round", "waits", "ends", "left twice", "left for two states", "costs"],
)
def test_a_class_that_was_left_once(moves, critical):
    """Then the landing counts 1, and the rest has to weigh more than 1."""
    assert exists(posterior(0.1, moves))
    if critical is None:
        assert lacking_variance(posterior(0.1, moves)) == ""
        return
    assert lacking_variance(posterior(critical, moves)) == ONLY_ONCE
    assert lacking_variance(posterior(critical * (1.0 + 1e-9), moves)) == ""


@pytest.mark.parametrize(("actions", "told"), [(64, ONLY_ONCE), (65, "too many to show that weights have finite")])
def test_many_single_exits_are_not_looked_at(actions, told):
    names = [f"a{k:02}" for k in range(actions)]
    model = open_model(["s"], [("s", name) for name in names])
    moves = {("s", name): (0.0, ["s", "goal"]) for name in names}
    assert told in lacking_variance(posterior(0.01, moves, model=model))


def without(what, states="s"):
    return f"values that may come from staying in {states} have no {what}: staying may pay off, and few exits"


@pytest.mark.parametrize(
    ("moves", "critical", "told"),
    [
        (own(-0.39), 4 / 3, without("mean")),
        (own(-0.41), 4 / 3, ""),
        (own(-0.4), 4 / 3, ""),
        ({("s", "a"): (-0.7, ["t", "t"]), ("t", "a"): (-0.05, ["s", "s"])}, 1.0, without("mean", "s, t")),
        (own(-0.39, landings=["s", "goal"]), 4 / 3, without("standard deviation")),
        (own(-0.41, landings=["s", "goal"]), 4 / 3, ""),
        (own(-0.4, landings=["s", "goal"]), 4 / 3, ""),
        ({("u", "a"): (0.5, ["u", "t"]), **own(-1.0)}, 4 / 3, without("standard deviation", "u")),
        (own(0.5, landings=["goal", "goal"]), 4 / 3, ""),
        (own(0.5, landings=["s", "goal", "goal"]), 4 / 3, ""),
    ],
)
def test_values_that_have_no_moments(moves, critical, told):
    """Under a flat prior; rewards of sd 0.1 may be 0.4 better. With w > 1, or an exit and w > 2, there are moments."""
    target = posterior(critical, moves, epsilon=0.1, flat=True)
    found = heavy_tails(target)
    assert found.sentence(target).startswith(told) if told else found is None
    for other in (
        posterior(critical * (1.0 + 1e-9), moves, epsilon=0.1, flat=True),
        posterior(critical, moves, epsilon=0.1),
        posterior(critical, moves, epsilon=0.1, flat=True, discount=0.9),
    ):
        assert heavy_tails(other) is None


def test_a_mean_is_missed_before_a_standard_deviation():
    moves = {("u", "a"): (0.5, ["u", "t"]), **own(0.5)}
    target = posterior(1.0, moves, flat=True, epsilon=0.1)
    assert heavy_tails(target).sentence(target).startswith(without("mean"))
