"""Graphs of NetworkX, as problems and back."""

from __future__ import annotations

import sys

import networkx
import numpy as np
import pytest
from road_graphs import costs_from, graph_of, random_roads

import bellmanifold as bm
from bellmanifold.errors import BadInputError, UnsupportedError


def street_network():
    """As OSMnx makes it: whole numbers as nodes, keys, coordinates, lengths in metres, lists of names."""
    graph = networkx.MultiDiGraph(crs="epsg:4326", name="town")
    for node, x, y in ((11, 0.0, 0.0), (12, 1.0, 0.5), (13, 2.0, 0.0), (14, 3.0, 1.0)):
        graph.add_node(node, x=x, y=y, street_count=3)
    for tail, head, length, more in (
        (11, 12, 120.5, {"name": "Main Street", "oneway": False}),
        (12, 11, 120.5, {"name": "Main Street", "oneway": False}),
        (12, 13, 80.0, {"name": ["Main Street", "Bridge"], "oneway": True}),
        (12, 13, 95.0, {"oneway": True}),
        (11, 13, 230.0, {"name": "Main Street", "oneway": True}),
        (13, 14, 10.0, {"name": float("nan")}),
    ):
        graph.add_edge(tail, head, length=length, osmid=[1, 2], **more)
    return graph


@pytest.mark.parametrize("seed", range(50))
def test_shortest_ways_are_those_of_dijkstra(seed):
    rng = np.random.default_rng(1000 + seed)
    frame = random_roads(rng)
    goal = str(rng.choice(frame["to"]))
    graph = graph_of(frame)
    model = bm.from_networkx(graph, goal, start="all")
    assert dict(zip(model.states, -bm.solve(model).value, strict=True)) == pytest.approx(costs_from(frame, goal))


def test_undirected_graphs_lead_both_ways():
    graph = networkx.grid_2d_graph(4, 3)
    rng = np.random.default_rng(5)
    for _, _, own in graph.edges(data=True):
        own["weight"] = float(rng.integers(1, 9))
    model = bm.from_networkx(graph, (3, 2), cost="weight", start=(0, 0))
    assert -bm.solve(model).value_at_start == networkx.dijkstra_path_length(graph, (0, 0), (3, 2))
    assert model.states[0] == "(0, 0)"
    parallel = networkx.MultiGraph()
    parallel.add_edge("A", "B", length=2.0)
    parallel.add_edge("B", "A", length=1.0)
    parallel.add_edge("B", "C", length=1.0)
    model = bm.from_networkx(parallel, "C", start="A")
    assert list(zip(*model.name_columns(range(model.n_pairs)).values(), strict=True)) == [
        ("A", "B"),
        ("A", "B (2)"),
        ("B", "A"),
        ("B", "A (2)"),
        ("B", "C"),
    ]
    assert bm.solve(model).value_at_start == -2.0


def test_street_networks(capsys):
    model = bm.from_networkx(street_network(), goal=14, start=11)
    assert capsys.readouterr().err == ""
    assert (model.name, model.goals) == ("town", ("14",))
    assert [(*model.pair_name(i), -model.reward[i]) for i in range(model.n_pairs)] == [
        ("11", "Main Street to 12", 120.5),
        ("11", "Main Street to 13", 230.0),
        ("12", "Main Street", 120.5),
        ("12", "Main Street / Bridge", 80.0),
        ("12", "13", 95.0),
        ("13", "14", 10.0),
    ]
    assert model.metadata["positions"]["14"] == [3.0, 1.0]
    open_costs = bm.from_networkx(street_network(), [14], cost=None, start=[11, 12], unit="minutes")
    assert open_costs.open_reward.all()
    assert open_costs.metadata["costs"] == {"unit": "minutes"}
    weighted = bm.from_networkx(street_network(), 14, start={11: 3.0, 12: 1.0})
    assert weighted.initial.tolist() == [0.75, 0.25, 0.0]


def equal_numbers(one, other):
    """All but the numbers of lines, which count the rows of a table there and the edges of a graph here."""
    for name in ("name", "states", "goals", "actions"):
        assert getattr(one, name) == getattr(other, name)
    for name in (
        "initial",
        "pair_state",
        "pair_action",
        "reward",
        "reward_sd",
        "next_start",
        "next_state",
        "next_prob",
    ):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert {**one.metadata, "roads": 0} == {**other.metadata, "roads": 0}


TABLE = {
    "from": ["A", "A", "A", "B", "B", "B"],
    "to": ["B", "C", "B", "C", "D", "A"],
    "name": ["ferry", "ferry", "", "x", "", "y"],
    "minutes": [2.0, 2.0, 7.0, np.nan, 4.0, 0.0],
    "probability": [0.25, 0.75, 1, 1, 1, 1],
    "sd": [0.5, 0.5, 0, 0, 0, 0],
    **{f"{end}_{axis}": [1.0, 2, 3, 4, 5, 6] for end in ("from", "to") for axis in "xy"},
}


@pytest.mark.parametrize("goal", [["C"], ["D", "C"]])
def test_what_becomes_a_graph_becomes_the_same_problem_again(goal):
    model = bm.from_edges(TABLE, goal, {"A": 3.0, "B": 1.0})
    graph = model.to_networkx()
    assert graph.edges["A", "B", "ferry"] == {"name": "ferry", "cost": 2.0, "sd": 0.5, "probability": 0.25}
    assert graph.nodes["A"] == dict(zip("xy", model.metadata["positions"]["A"], strict=True))
    again = bm.from_networkx(graph, cost="cost")
    equal_numbers(model, again)
    assert again == bm.from_networkx(again.to_networkx(), cost="cost")


def test_graphs_can_be_kept_in_files(tmp_path):
    model = bm.from_networkx(street_network(), 14, start=11)
    networkx.write_graphml(bm.posterior(model, bm.Dataset.complete(model)).to_networkx(), tmp_path / "answer.graphml")
    networkx.write_graphml(model.to_networkx(), tmp_path / "town.graphml")
    again = networkx.read_graphml(tmp_path / "town.graphml", force_multigraph=True)
    equal_numbers(bm.from_networkx(again, cost="cost"), model)


def test_built_in_problems_are_graphs():
    model = bm.envs.roads(slip=0.1)
    graph = model.to_networkx()
    assert graph.number_of_nodes() == 40
    again = bm.from_networkx(graph, cost="cost")
    np.testing.assert_allclose(bm.solve(again).value, bm.solve(model).value, rtol=1e-12)
    deep = bm.envs.deep_sea(3)
    np.testing.assert_array_equal(
        bm.from_networkx(deep.to_networkx(), cost="cost", allow_gains=True).reward, deep.reward
    )


def test_answers_are_attributes_of_edges():
    model = bm.from_networkx(street_network(), 14, start=11)
    summary = bm.posterior(model, bm.Dataset.complete(model))
    graph = summary.to_networkx()
    assert graph.edges["11", "12", "Main Street to 12"]["probability"] == 1.0
    assert graph.edges["11", "13", "Main Street to 13"]["best"] is False
    own = summary.to_networkx(street_network())
    assert own.edges[12, 13, 0]["osmid"] == [1, 2]
    best = [edge for edge, best in networkx.get_edge_attributes(own, "best").items() if best]
    assert best == [(11, 12, 0), (12, 13, 0), (13, 14, 0)]
    assert own.edges[11, 12, 0]["cost_to_goal"] == 210.5
    undirected = networkx.path_graph(["A", "B", "C"])
    model = bm.from_networkx(undirected, "C", None, "A")
    data = bm.Dataset.from_pairs(model, [(*model.pair_name(i), -1.0) for i in range(model.n_pairs)])
    both = bm.posterior(model, data).to_networkx(undirected)
    assert networkx.get_edge_attributes(both, "probability") == {("A", "B"): 1.0, ("B", "A"): 0.0, ("B", "C"): 1.0}
    with pytest.raises(
        BadInputError, match=r"the graph has 1 edges, the problem more: give the graph that the problem"
    ):
        summary.to_networkx(networkx.DiGraph([(11, 12)]))
    with pytest.raises(BadInputError, match="is another one in the problem"):
        summary.to_networkx(networkx.complete_graph(5))


def test_shares_are_not_taken_for_probabilities_of_being_best():
    model = bm.from_edges(TABLE, "C", "A")
    data = bm.Dataset.from_pairs(model, [("A", "ferry"), ("A", "B"), ("B", "x", -1.0), ("B", "y", -1.0)])
    edge = bm.posterior(model, data).to_networkx().edges["A", "B", "ferry"]
    assert (edge["share"], edge["probability"]) == (0.25, 1.0)
    own = bm.from_networkx(model.to_networkx(), cost="cost")
    data = bm.Dataset.from_pairs(own, [("A", "ferry"), ("A", "B"), ("B", "x", -1.0), ("B", "y", -1.0)])
    edge = bm.posterior(own, data).to_networkx(model.to_networkx()).edges["A", "B", "ferry"]
    assert (edge["share"], edge["probability"]) == (0.25, 1.0)


def edges(*given, kind=networkx.DiGraph, **attributes):
    graph = kind()
    for tail, head in given:
        graph.add_edge(tail, head, **attributes)
    return graph


def lonely():
    graph = edges((1, 2), length=1.0)
    graph.add_node(7)
    return graph


@pytest.mark.parametrize(
    ("graph", "more", "said"),
    [
        (3, {}, "graph is the number 3: give a graph of NetworkX"),
        (edges((1, 2), length=1.0), {"goal": 2}, "start is missing: write start=NAME, or start=all"),
        (edges((1, 2), length=1.0), {"start": 1}, "goal is missing: write goal=NAME"),
        (edges((1, 2), length=1.0), {"goal": 5, "start": 1}, 'goal "5": no such junction: there are "1", "2"'),
        (edges((1, 2), ("1", 2), length=1.0), {"goal": 2, "start": 1}, "the nodes 1 and '1' have the same name \"1\""),
        (
            edges((1, 2), weight=1.0),
            {"goal": 2, "start": 1},
            'no edge has "length": they have "weight"; name the attribute',
        ),
        (edges((1, 2), lenght=1.0), {"goal": 2, "start": 1}, 'no edge has "length": did you mean "lenght"?; name the'),
        (edges((1, 2)), {"goal": 2, "start": 1}, 'no edge has "length": they have no attributes'),
        (edges((1, 2), length=-1.0), {"goal": 2, "start": 1}, "edge (1, 2): cost is -1: costs are positive"),
        (edges((1, 2), length="far"), {"goal": 2, "start": 1}, 'edge (1, 2): length: "far" is not a finite number'),
        (
            edges((1, 2), length=float("nan")),
            {"goal": 2, "start": 1},
            "edge (1, 2): length is nan: give a number, or leave",
        ),
        (edges(), {"goal": 2, "start": 1}, "the graph has no edges: give at least one"),
        (lonely(), {"goal": 7, "start": 1}, 'goal "7": the junction has no roads'),
        (
            edges((1, 2), length=1.0, oneway=True, kind=networkx.Graph),
            {"goal": 2, "start": 1},
            "edge (1, 2) is one-way, but the graph is undirected: give the directed graph",
        ),
        (
            edges((1, 2), length=1.0, name="x", probability=0.5),
            {"goal": 2, "start": 1},
            'edge (1, 2): the probabilities of "x" from "1" sum to 0.5: make them sum to 1',
        ),
    ],
)
def test_wrong_graphs_are_one_line(graph, more, said):
    with pytest.raises(BadInputError) as found:
        bm.from_networkx(graph, **more)
    assert said in str(found.value)
    assert "\n" not in str(found.value)


def test_a_node_without_roads_is_no_goal():
    graph = edges((1, 2), length=1.0)
    graph.add_node(7, x=0.0, y=1.0)
    with pytest.raises(BadInputError, match='goal "7": the junction has no roads'):
        bm.from_networkx(graph, 7, start=1)


def test_without_networkx_there_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(UnsupportedError, match=r"^to_networkx needs NetworkX: pip install networkx$"):
        bm.envs.two_state().to_networkx()


def test_roads_that_lead_nobody_knows_where_are_no_edges():
    model = bm.envs.two_state().opened()
    with pytest.raises(BadInputError, match='nobody knows where "stay" at "s1" leads, so it is no edge'):
        model.to_networkx()
