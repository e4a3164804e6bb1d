"""Cuts through observed loops: stationary laws, which pairs are cut, and how many may be."""

from itertools import chain, combinations

import numpy as np
import pytest

from bellmanifold.chart import batch_chart
from bellmanifold.data import Dataset
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.posteriors import cut as module
from bellmanifold.posteriors.cut import LargeCutError, cut_coordinates, cut_set, other_cut, stationary_law
from bellmanifold.posteriors.target import relaxed_target


def target_of(moves, start="a"):
    return relaxed_target(Dataset.complete(from_moves("loops", moves, start=start)), 0.2, 10.0)


def pair_of_states(stay, leave):
    """Two states that move on to each other with probability 1 - stay and 1 - leave, and may both end."""
    return {
        ("a", "on"): Move(-0.1, {"a": stay, "b": 1.0 - stay}),
        ("b", "on"): Move(-0.1, {"b": leave, "a": 1.0 - leave}),
        ("a", "out"): Move(-1.0, {"goal": 1.0}),
        ("b", "out"): Move(-1.0, {"goal": 1.0}),
    }


def names(target, pairs):
    return [target.model.pair_name(int(i)) for i in pairs]


def test_stationary_law_of_two_states():
    """Time in a state is inversely proportional to the probability of leaving it."""
    model = target_of(pair_of_states(0.9, 0.6)).model
    pairs = np.array([model.pair_index[s, "on"] for s in "ba"])
    states = np.array([model.state_index[s] for s in "ba"])
    np.testing.assert_allclose(stationary_law(model, states, pairs), [0.2, 0.8])


def test_stationary_law_balances(rng):
    """pi = pi P in a class of four, given in any order, beside a state that is not in it."""
    law = rng.dirichlet(np.ones(4), size=4)
    moves = {
        (s, "on"): Move(-1.0, dict(zip("abcd", map(float, row), strict=True)))
        for s, row in zip("abcd", law, strict=True)
    }
    moves["0", "in"] = Move(-1.0, {"a": 1.0})
    moves["a", "out"] = Move(-1.0, {"goal": 1.0})
    model = from_moves("class", moves, start="0")
    order = ["c", "a", "d", "b"]
    states = np.array([model.state_index[s] for s in order])
    pairs = np.array([model.pair_index[s, "on"] for s in order])
    pi = stationary_law(model, states, pairs)
    matrix = law[np.ix_([2, 0, 3, 1], [2, 0, 3, 1])]
    np.testing.assert_allclose(pi @ matrix, pi, atol=1e-12)
    assert pi.sum() == pytest.approx(1.0)
    assert (pi > 0).all()


def test_the_pair_in_which_a_loop_spends_its_time_is_cut():
    for stay, leave, heavy in ((0.99, 0.5, "a"), (0.5, 0.99, "b")):
        target = target_of(pair_of_states(stay, leave))
        assert names(target, cut_set(target)) == [(heavy, "on")]


def test_a_pair_is_avoided_while_the_others_are_heavy_enough():
    """The other pair has 1/3 of the time of the first, more than a quarter; or 1/9, which is too little."""
    for leave, instead in ((0.7, ("b", "on")), (0.1, ("a", "on"))):
        target = target_of(pair_of_states(0.9, leave))
        assert names(target, cut_set(target)) == [("a", "on")]
        assert names(target, cut_set(target, avoided=cut_set(target))) == [instead]


def side_loop(rare):
    """Round a, b at equal times, or waiting at b, where a has `rare` of the time of b's waiting."""
    return {
        ("a", "on"): Move(-0.1, {"b": 1.0}),
        ("b", "on"): Move(-0.1, {"a": 1.0}),
        ("b", "wait"): Move(-0.2, {"b": 1.0 - rare, "a": rare}),
        ("a", "out"): Move(-1.0, {"goal": 1.0}),
        ("b", "out"): Move(-1.0, {"goal": 1.0}),
    }


@pytest.mark.parametrize(("rare", "cut"), [(0.3, 1), (0.2, 2)])
def test_a_class_that_is_rarely_in_the_cut_is_cut_again(rare, cut):
    """In a waiting class the cut pair (a, on) has `rare` times the time of the heaviest: a quarter is enough."""
    target = target_of(side_loop(rare))
    found = names(target, cut_set(target))
    assert found[0] == ("a", "on")
    assert found[1:] == [("b", "wait")][: cut - 1]


def rings(number):
    """So many states that can stay where they are, in a row."""
    moves = {}
    for k in range(number):
        moves[f"s{k}", "stay"] = Move(-0.1, {f"s{k}": 1.0})
        moves[f"s{k}", "on"] = Move(-1.0, {f"s{k + 1}" if k + 1 < number else "goal": 1.0})
    return moves


def test_every_subset_of_a_cut_is_a_treatment():
    target = target_of(rings(3), start="s0")
    found = cut_coordinates(target, batch_chart(target.model))
    cut = cut_set(target)
    assert sorted(names(target, cut)) == [(f"s{k}", "stay") for k in range(3)]
    assert all(set(treatment.cut) == set(cut) for treatment in found)
    subsets = chain.from_iterable(combinations(sorted(cut), k) for k in range(4))
    assert sorted(tuple(sorted(treatment.freed)) for treatment in found) == sorted(subsets)
    assert set(found[0].freed) == set(cut), "the first one frees them all"


def test_six_pairs_are_cut_and_seven_are_not():
    six, seven = (target_of(rings(number), start="s0") for number in (6, 7))
    assert len(cut_coordinates(six, batch_chart(six.model))) == 2**6
    with pytest.raises(LargeCutError, match="more than 6 pairs"):
        cut_coordinates(seven, batch_chart(seven.model))


def test_a_second_cut_avoids_the_first():
    target = target_of(pair_of_states(0.9, 0.7))
    chart = batch_chart(target.model)
    second = other_cut(cut_coordinates(target, chart))
    assert second is not None
    assert names(target, second[0].cut) == [("b", "on")]
    assert len(second) == 2


def test_there_need_not_be_a_second_cut(monkeypatch):
    """A loop of one pair can only be cut there; and a second cut may be too large."""
    single = target_of(rings(1), start="s0")
    assert other_cut(cut_coordinates(single, batch_chart(single.model))) is None
    target = target_of(pair_of_states(0.9, 0.7))
    first = cut_coordinates(target, batch_chart(target.model))
    monkeypatch.setattr(module, "MAX_CUT", 0)
    assert other_cut(first) is None
