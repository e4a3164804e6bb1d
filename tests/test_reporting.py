"""How answers are shown: orders, words and JSON of results that are made by hand."""

from dataclasses import replace

import numpy as np
import pytest
from by_hand import summary_of

from bellmanifold._util.display import MOST_ROWS
from bellmanifold.envs.building import Move, from_moves
from bellmanifold.posteriors.estimated import Estimate
from bellmanifold.posteriors.reporting import (
    _common_value,
    _first_columns,
    as_json,
    as_probability,
    best_pairs,
    by_doubt,
    card_of,
    end_of,
    on_the_way,
    words_of,
)
from bellmanifold.posteriors.route import Route, title_of_best
from bellmanifold.posteriors.target import noisy_target, relaxed_target
from bellmanifold.problem.dataset import Dataset


def roads(chance=False):
    """a leads to b, b to c or back; c ends, or lingers; nobody comes to far."""
    moves = {
        ("a", "on"): Move(-1.0, {"b": 0.5, "c": 0.5} if chance else {"b": 1.0}),
        ("a", "stop"): Move(-3.0, {"goal": 1.0}),
        ("b", "back"): Move(-1.0, {"a": 1.0}),
        ("b", "on"): Move(-1.0, {"c": 1.0}),
        ("c", "out"): Move(-1.0, {"goal": 1.0}),
        ("c", "stay"): Move(-1.0, {"c": 1.0}),
        ("far", "x"): Move(-1.0, {"a": 1.0}),
        ("far", "y"): Move(-1.0, {"goal": 1.0}),
    }
    return from_moves("roads", moves, start="a")


def asked(model=None, epsilon=0.5, **more):
    """First and last pairs of all states hold a quarter and three quarters; the first five pairs were observed."""
    model = roads() if model is None else model
    target = relaxed_target(Dataset(model, np.arange(5), model.reward[:5]), epsilon, 2.0)
    return summary_of(target, [[1.0, 3.0]], **more)


def believing(summary, *pairs):
    """The same, of which some pairs were never tried."""
    untried = np.zeros(summary.target.model.n_pairs, dtype=bool)
    untried[list(pairs)] = True
    return replace(summary, untried=untried)


def test_moves_from_the_start():
    """Played: on, on, out, and x; then on and back, which come to a again; then nothing from the start on."""
    model = roads()
    assert list(model.states) == ["a", "b", "c", "far"]
    for played, moves in (((0, 3, 4, 6), [0, 1, 2, 4]), ((0, 2, 4), [0, 1, 4, 4]), ((2, 3), [0, 4, 4, 4])):
        mask = np.isin(np.arange(8), played)
        assert on_the_way(model, mask).tolist() == moves
    assert on_the_way(roads(chance=True), np.isin(np.arange(8), (0, 3))).tolist() == [0, 1, 1, 4]


def test_pairs_that_matter_most_come_first():
    """On the way: a and b; then c, which data touch, before far; in each state the most probable action."""
    probability = np.array([0.7, 0.3, 0.4, 0.6, 0.45, 0.55, 0.9, 0.1])
    order = by_doubt(roads(), probability, np.array([True, True, True, False]))
    assert order.tolist() == [0, 1, 3, 2, 5, 4, 6, 7]
    order = by_doubt(roads(), probability[[1, 0, 2, 3, 4, 5, 6, 7]], np.array([True, True, True, False]))
    assert order.tolist() == [1, 0, 5, 4, 3, 2, 6, 7], "only a is on the way, and c is less certain than b"
    order = by_doubt(roads(), probability[[1, 0, 2, 3, 4, 5, 6, 7]], np.array([True, True, False, True]))
    assert order.tolist() == [1, 0, 3, 2, 6, 7, 5, 4]


def test_pairs_of_the_most_probable_route_or_of_likely_moves():
    """The last pair of a stops at once; with chance there are no routes, and moves are followed from the start."""
    assert np.flatnonzero(best_pairs(asked())).tolist() == [1]
    assert np.flatnonzero(best_pairs(asked(roads(chance=True)))).tolist() == [1]
    first = replace(asked(roads(chance=True)).result, table=asked().result.table)
    first = replace(first, table=replace(first.table, weight=np.array([[3.0, 1.0]])))
    summary = replace(asked(roads(chance=True)), result=first)
    assert np.flatnonzero(best_pairs(summary)).tolist() == [0, 2, 4], "not what far plays, where nobody comes"


def test_words_of_pictures():
    words = words_of(asked())
    assert words[0] == (
        "roads: how probable is it that a move is optimal?\n"
        "5 of 8 moves observed; slices have the colours of their moves"
    )
    assert tuple(words)[1:4] == ("most probable route (75%)", "observed", "not observed")
    words = words_of(believing(asked(doubts=("uneven",)), 0, 4))
    assert "3 of 8 moves observed and a belief about 2 more; slices" in words[0]
    assert words[0].endswith("\nnot trustworthy: a diagnostic says so")
    assert words[3] == "not observed, at most a belief"
    assert words_of(asked(roads(chance=True)))[1] == "most probable moves"
    nameless = words_of(asked(replace(roads(), name="")))
    assert nameless[0].startswith("a problem: ")


def test_headings_and_facts_of_cards():
    card = card_of(asked(log_evidence=Estimate.of(-3.25, 0.0)))
    assert card[0] == 'Summary("roads", epsilon 0.5 posterior, 5 of 8 pairs observed, engine test)'
    assert list(card[1]) == ["by hand", "log evidence -3.25", "most probable route (0.75): a -(stop)-> goal"]
    card = card_of(believing(asked(epsilon=0.0), 1))
    assert card[0] == 'Summary("roads", exact posterior, 4 of 8 pairs observed, a belief about 1 more, engine test)'
    assert len(card[1]) == 2
    noisy = noisy_target(Dataset(roads(), np.arange(5), np.zeros(5)), 0.5, 2.0)
    assert "noisy posterior" in card_of(summary_of(noisy, [[1.0, 3.0]]))[0]
    exact = asked(epsilon=0.0)
    some = replace(exact, target=replace(exact.target, scale=np.where(np.arange(8) == 2, 0.1, 0.0)))
    assert "noisy posterior" in card_of(some)[0]


def test_columns_for_display_leave_rounding_out():
    """A spread of 1e-6 of the mean is rounding, a larger one is not; few pairs keep their order."""
    summary = asked()
    sd = np.array([0.9e-6, 1.1e-6, *[2.0] * 6])
    result = replace(summary.result, q_sd=Estimate.of(sd, sd), q_mean=Estimate.of(np.full(8, -1.0), np.full(8, 0.1)))
    found = _first_columns(replace(summary, result=result))
    assert found["q_sd"] == found["q_sd_se"] == [0.0, *sd[1:].tolist()]
    assert found["q_mean_se"] == [0.0] + [0.1] * 7
    assert found["probability"] == [0.25, 0.75] * 4
    assert found["observed"] == [True] * 5 + [False] * 3
    assert MOST_ROWS >= 8


def test_ends_of_routes():
    """At the goal, in a loop, or where nobody knows what comes next."""
    summary = asked()
    goal, loop = (Route((0, last), ends, 0.5, 0.0, roads()) for last, ends in ((1, True), (2, False)))
    assert (end_of(summary, goal), end_of(summary, loop)) == ("goal", "loop")
    unknown = replace(summary, target=replace(summary.target, no_law=np.arange(8) == 1))
    assert (end_of(unknown, goal), end_of(unknown, loop)) == ("open", "loop")


@pytest.mark.parametrize(
    ("gap", "title"), [(0.9e-9, "one of 2 equally probable routes"), (1.1e-9, "most probable route")]
)
def test_routes_are_equally_probable_up_to_rounding(gap, title):
    routes = [Route((k,), True, p, 0.0, roads()) for k, p in enumerate((0.5, 0.5 - gap, 0.1))]
    assert title_of_best(routes) == title


def test_numbers_in_json():
    assert as_probability(np.float64(1.0 + 1e-15), 0.5) == {"probability": 1.0, "se": 0.5}
    assert as_probability(-1e-17, 0.0) == {"probability": 0.0, "se": 0.0}
    assert as_probability(0.3, 0.2) == {"probability": 0.3, "se": 0.2}
    assert _common_value(np.array([2.5, 2.5])) == 2.5
    assert _common_value(np.array([2.5, 2.4])) is None
    found = as_json(asked(effective_sample_size=float("inf"), diagnostics={"r_hat": float("nan"), "points": 7}))
    assert (found["epsilon"], found["prior_scale"], found["prior_mean"], found["observed_pairs"]) == (0.5, 2.0, 0.0, 5)
    assert found["effective_sample_size"] is None
    assert found["diagnostics"] == {"r_hat": None, "points": 7}
    assert found["log_evidence"] is found["log_evidence_se"] is None
    assert found["actions"]["a"]["stop"] == {"probability": 0.75, "se": 0.0}
    assert [route["ends"] for route in found["routes"]] == ["goal", "loop"]
    assert "noise" not in found
    assert "laws" not in found
    told = as_json(asked(log_evidence=Estimate.of(-3.25, 0.125)))
    assert (told["log_evidence"], told["log_evidence_se"]) == (-3.25, 0.125)
    noisy = summary_of(noisy_target(Dataset(roads(), np.arange(5), np.zeros(5)), 0.5, 2.0), [[1.0, 3.0]])
    assert as_json(noisy)["noise"] == {"law": "gaussian", "mean": 0.5, "sd": 0.0}
    inferred = replace(noisy, result=replace(noisy.result, noise_scale=(0.75, 0.25)))
    assert as_json(inferred)["noise"] == {"law": "gaussian", "mean": 0.75, "sd": 0.25}
    assert "routes" not in as_json(asked(roads(chance=True)))
