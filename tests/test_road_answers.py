"""Results by road: on the rows of the table that was brought."""

from __future__ import annotations

import json

import numpy as np
import pandas
import pytest

import bellmanifold as bm
from bellmanifold.io.problem import from_json, to_json_text

ROADS = pandas.DataFrame(
    {
        "from": ["B", "A", "A", "B", "X", "C", "D"],
        "to": ["D", "B", "C", "C", "Y", "D", "A"],
        "minutes": [np.nan] * 7,
        "oneway": [True, True, True, False, True, True, True],
    }
)
BELIEF = {"reward_belief": (-5.0, 2.0), "noise_sd": 1.5, "samples": 2**15}


@pytest.fixture(scope="module")
def advice():
    model = bm.from_edges(ROADS, "D", "A")
    trips = pandas.DataFrame(
        {"from": ["A", "A", "C", "C"], "to": ["B", "C", "D", "B"], "minutes": [4.0, 5.0, 3.0, 6.0]}
    )
    return bm.advise(model, bm.Dataset.from_frame(model, trips), **BELIEF)


def test_a_row_per_road_in_the_order_of_the_table(advice):
    frame = advice.summary.to_edges()
    assert frame.index.tolist() == [0, 1, 2, 3, 3, 5]
    assert frame[["from", "to"]].values.tolist() == [
        ["B", "D"],
        ["A", "B"],
        ["A", "C"],
        ["B", "C"],
        ["C", "B"],
        ["C", "D"],
    ]
    model, found = advice.target.model, advice.summary
    for row in frame.itertuples():
        own = found.action_probability[row._1, row.name]
        assert (row.probability, row.probability_se) == (float(own), float(own.se))
        assert row.cost_to_goal == -float(found.q_mean[row._1, row.name])
    assert frame["observed"].tolist() == [False, True, True, False, True, True]
    routes = found.routes[0].pairs
    assert [model.pair_name(pair) for pair in routes] == frame.loc[frame["best"], ["from", "name"]].apply(
        tuple, 1
    ).tolist()


def test_costs_of_roads_combine_belief_and_trips(advice):
    """By precision: N(-5, 2^2) and one trip of 3 with noise 1.5."""
    frame = advice.summary.to_edges().set_index(["from", "to"])
    weight = np.array([1 / 4, 1 / 2.25])
    assert frame.loc[("C", "D"), "cost_mean"] == pytest.approx(weight @ [5.0, 3.0] / weight.sum())
    assert frame.loc[("C", "D"), "cost_sd"] == pytest.approx(weight.sum() ** -0.5)
    assert frame.loc[("B", "D"), ["cost_mean", "cost_sd"]].tolist() == [5.0, 2.0]


def test_advice_has_its_own_columns(advice):
    frame, trials = advice.to_edges(), advice.to_frame()
    assert set(trials.columns) - {"state", "action"} <= set(frame.columns)
    best = frame[frame["best"]].set_index("from")["name"].to_dict()
    assert best == advice.policy
    gains = frame.set_index(["from", "name"])["gain"]
    for trial in trials.itertuples():
        assert gains[trial.state, trial.action] == trial.gain
    edge = advice.to_networkx().edges["A", "B", "B"]
    assert edge["gain"] == gains["A", "B"]
    assert json.dumps(edge)


def test_results_join_the_table_that_was_brought(advice):
    joined = ROADS.join(advice.summary.to_edges()[["probability", "best"]])
    assert joined["probability"].isna().tolist() == [False, False, False, False, False, True, False, True]
    assert len(joined) == len(ROADS) + 1


def test_lines_survive_files(advice):
    model = advice.target.model
    again = from_json(json.loads(to_json_text(model)))
    data = bm.Dataset.from_pairs(again, [("A", "B", -4.0)])
    assert bm.posterior(again, data, **BELIEF).to_edges().index.tolist() == [0, 1, 2, 3, 3, 5]


@pytest.mark.parametrize(
    "lines",
    [
        None,
        3,
        [1],
        ["x"] * 6,
        [True] * 6,
        [{}] * 6,
        [{"lines": [1], "to": ["?"], "share": [1.0]}] * 6,
        [{"lines": 1}] * 6,
    ],
)
def test_lines_that_do_not_fit_are_not_used(advice, lines):
    """A file says what it likes: rows are then those of the pairs."""
    whole = json.loads(to_json_text(advice.target.model))
    whole["metadata"]["roads"] = {"lines": lines, "left_out": "A"}
    model = from_json(whole)
    data = bm.Dataset.from_pairs(model, [(*model.pair_name(i), -1.0) for i in range(model.n_pairs)])
    frame = bm.posterior(model, data).to_edges()
    assert frame["from"].tolist() == list(model.name_columns(range(model.n_pairs))["state"])
    assert model.to_networkx().number_of_edges() == 6


def test_other_problems_have_a_row_per_pair_and_successor():
    model = bm.envs.grid(2, 2, slip=0.2)
    frame = bm.posterior(model, bm.Dataset.complete(model)).to_edges()
    assert len(frame) == len(model.next_state)
    assert frame["share"].tolist() == model.next_prob.tolist()


def test_costs_alone_are_told_only_where_they_are_known():
    model = bm.from_edges(ROADS, "D", "A")
    data = bm.Dataset.from_pairs(model, [("A", "B", -4.0)])
    assert "cost_mean" not in bm.posterior(model, data, prior_mean=-10.0, proper_only=True).to_edges().columns
