"""Graphs of NetworkX and OSMnx as problems, and problems as graphs.

An edge is a road; edges of an undirected graph lead both ways. Cost, name, noise and probability are attributes of
edges, `x` and `y` those of nodes, as in OSMnx, where one name may belong to many edges. Nodes are named by their text,
so 1 and "1" cannot both be nodes. NetworkX is imported only where a graph has to be made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bellmanifold._util.stderr import remark
from bellmanifold.errors import (
    BadInputError,
    UnsupportedError,
    guess,
    kind_of_value,
    listed,
    quote,
    require,
    require_flags,
    require_kind,
)
from bellmanifold.io.road_answers import lines_of
from bellmanifold.io.road_columns import unit_in
from bellmanifold.io.road_lines import Lines
from bellmanifold.io.road_problem import Names, listed_names, problem_of_roads
from bellmanifold.io.tables import number_in, text_in
from bellmanifold.problem.ssp import SSP, require_problem

SHOWN = 5
"""Maximal number of attributes that a message names."""


def from_networkx(
    graph: Any,
    goal: Names = None,
    cost: str | None = "length",
    start: Names = None,
    *,
    name: str | None = "name",
    sd: str | None = "sd",
    probability: str | None = "probability",
    allow_gains: bool = False,
    unit: str | None = None,
) -> SSP:
    """The problem of reaching a goal in a graph of NetworkX, or in a street network of OSMnx.

    Edges of a directed graph are one-way roads, those of an undirected graph lead both ways. An edge without the
    attribute `cost` has an unknown cost. Edges out of the goal, and nodes without a way to it, are left out, which a
    line on stderr says. If edges have a `probability`, those of one name that leave the same node are one road, which
    may lead to several nodes.

    Args:
        graph: a Graph, DiGraph, MultiGraph or MultiDiGraph.
        goal: the node where trips end, or a list of several; by default `graph.graph["goal"]`.
        cost: the attribute with the cost of an edge; None if costs are unknown.
        start: the node where trips begin, a list of several, {node: weight}, or "all"; by default
            `graph.graph["start"]`.
        name: the attribute with the name of an edge; without one, a road is named after the node it leads to.
        sd: the attribute with the standard deviation of the noise of its cost.
        probability: the attribute with the probability that the road leads there.
        allow_gains: costs may be negative.
        unit: the unit of costs; by default `graph.graph["unit"]`, or as the name of `cost` says.
    """
    require_graph(graph)
    require_flags(allow_gains=allow_gains)
    for what, attribute in (("cost", cost), ("name", name), ("sd", sd), ("probability", probability)):
        require_kind(attribute, (str, type(None)), what, "give the name of an attribute of edges, or None")
    of_graph = getattr(graph, "graph", {})
    names = _node_names(graph)
    lines = _lines(graph, names, cost, name, sd, probability)
    goal, start = (of_graph.get(k) if own is None else own for k, own in (("goal", goal), ("start", start)))
    if unit is None:
        unit = str(of_graph.get("unit", unit_in(cost or "")))
    title = str(of_graph.get("name") or "graph")
    model, said = problem_of_roads(lines, _named(goal, names), _named(start, names), title, unit, allow_gains)
    if said:
        remark(f"the graph: {said}")
    return model


def _node_names(graph: Any) -> dict[Any, str]:
    """The text of each node."""
    nodes: dict[str, Any] = {}
    for node in graph.nodes:
        name = text_in(node) if isinstance(node, (str, int, float)) else str(node)
        require(name, f"the graph has a node {node!r} without a text: rename it")
        if name in nodes:
            raise BadInputError(f"the nodes {nodes[name]!r} and {node!r} have the same name {quote(name)}: rename one")
        nodes[name] = node
    return {node: name for name, node in nodes.items()}


def _named(given: Any, names: Mapping[Any, str]) -> Any:
    """Nodes of the graph by their texts; anything else unchanged."""
    given = listed_names(given)
    if isinstance(given, Mapping):
        return {_named(node, names): weight for node, weight in given.items()}
    if isinstance(given, (list, set, frozenset)) or (isinstance(given, tuple) and given not in names):
        return [_named(node, names) for node in given]
    try:
        return names.get(given, given)
    except TypeError:
        raise BadInputError(f"{kind_of_value(given)} is no node of the graph: name one") from None


def _lines(
    graph: Any, names: Mapping[Any, str], cost: str | None, name: str | None, sd: str | None, probability: str | None
) -> Lines:
    """The edges of a graph as roads."""
    edges = list(graph.edges(data=True))
    require(edges, "the graph has no edges: give at least one")
    directed = bool(graph.is_directed())

    def where(k: int) -> str:
        return f"edge ({edges[k][0]!r}, {edges[k][1]!r})"

    def numbers(attribute: str | None, missing: float) -> np.ndarray:
        found = np.full(len(edges), missing)
        for k, (_, _, own) in enumerate(edges):
            if attribute in own:
                found[k] = _number(own[attribute], lambda k=k: f"{where(k)}: {attribute}")
        return found

    if cost is not None and not any(cost in own for _, _, own in edges):
        attributes = list(dict.fromkeys(key for _, _, own in edges for key in own))
        has = f"they have {listed(attributes, SHOWN, quote)}" if attributes else "they have no attributes"
        raise BadInputError(
            f"no edge has {quote(cost)}: {guess(cost, map(str, attributes)) or has}; name the attribute with the cost, "
            "or give cost=None if costs are unknown"
        )
    if not directed:
        k = next((k for k, (_, _, own) in enumerate(edges) if own.get("oneway") is True), None)
        if k is not None:
            raise BadInputError(f"{where(k)} is one-way, but the graph is undirected: give the directed graph")
    return Lines(
        tail=[names[tail] for tail, _, _ in edges],
        head=[names[head] for _, head, _ in edges],
        name=["" if name is None else text_in(own.get(name)) for _, _, own in edges],
        cost=numbers(cost, math.nan),
        sd=numbers(sd, 0.0),
        probability=numbers(probability, 1.0),
        both_ways=np.full(len(edges), not directed),
        shares=any(probability in own for _, _, own in edges),
        repeats=True,
        where=where,
        positions=_positions(graph, names),
        lonely=list(names.values()),
    )


def _number(value: Any, where: Any) -> float:
    found = number_in(value, where)
    if math.isnan(found):
        raise BadInputError(f"{where()} is {value!r}: give a number, or leave the attribute out if it is unknown")
    return found


def _positions(graph: Any, names: Mapping[Any, str]) -> dict[str, list[float]]:
    """Where nodes lie: their attributes `x` and `y`, or a pair `pos`."""
    found = {}
    for node, own in graph.nodes(data=True):
        place = own.get("pos", (own.get("x"), own.get("y")))
        try:
            x, y = (float(value) for value in place)
        except (TypeError, ValueError):
            continue
        if math.isfinite(x) and math.isfinite(y):
            found[names[node]] = [x, y]
    return found


def with_attributes(model: SSP, columns: Mapping[str, Sequence[Any]], graph: Any = None) -> Any:
    """The problem as a graph with further attributes of edges, one entry per pair; or a copy of the graph it is from.

    A probability among them is that of being the best choice; how often a road leads to a node is called `share` here.
    """
    if graph is None:
        return to_networkx(model, columns)
    require_graph(graph)
    again = "give the graph that the problem was made from, unchanged"
    edges = list(graph.edges(keys=True) if graph.is_multigraph() else graph.edges)
    names, found = _node_names(graph), graph.copy() if graph.is_directed() else graph.to_directed()
    for line in lines_of(model):
        require(line.row < len(edges), f"the graph has {len(edges)} edges, the problem more: {again}")
        tail, head, *key = edges[line.row]
        tail, head = (head, tail) if line.back else (tail, head)
        ends = model.states[model.pair_state[line.pair]], line.to
        require((names[tail], names[head]) == ends, f"edge ({tail!r}, {head!r}) is another one in the problem: {again}")
        own = found.edges[(tail, head, *key)]
        own |= {"share": own["probability"]} if "probability" in own else {}
        own |= {name: values[line.pair] for name, values in columns.items() if values[line.pair] is not None}
    return found


def require_graph(graph: object) -> None:
    """Raise unless this looks like a graph of NetworkX."""
    for needed in ("is_directed", "is_multigraph", "edges", "nodes"):
        require(hasattr(graph, needed), f"graph is {kind_of_value(graph)}: give a graph of NetworkX")


def to_networkx(model: SSP, columns: Mapping[str, Sequence[Any]] | None = None) -> Any:
    """The problem as a MultiDiGraph; see `SSP.to_networkx`. `columns` are further attributes, one entry per pair."""
    require_problem(model)
    try:
        import networkx
    except ImportError:
        raise UnsupportedError("to_networkx needs NetworkX: pip install networkx") from None
    if model.open_law.any():
        state, action = model.pair_name(int(np.argmax(model.open_law)))
        raise BadInputError(
            f"nobody knows where {quote(action)} at {quote(state)} leads, so it is no edge: give its next"
        )
    costs = model.metadata.get("costs")
    unit = {"unit": costs["unit"]} if isinstance(costs, Mapping) and costs.get("unit") else {}
    start: Any = {model.states[s]: float(model.initial[s]) for s in np.flatnonzero(model.initial)}
    goal: Any = list(model.goals)
    if len(start) == len(goal) == 1:  # texts, which files of graphs can hold
        (start,), (goal,) = start, goal
    graph = networkx.MultiDiGraph(name=model.name, goal=goal, start=start, **unit)
    places = model.metadata.get("positions")
    places = places if isinstance(places, Mapping) else {}
    for node in (*model.states, *model.goals):
        graph.add_node(node, **(dict(zip("xy", places[node], strict=False)) if node in places else {}))
    for line in lines_of(model, in_order=False):
        pair = line.pair
        state, action = model.pair_name(pair)
        own: dict[str, Any] = {"name": action}
        if not model.open_reward[pair]:
            own["cost"] = 0.0 - float(model.reward[pair])
        if model.reward_sd[pair] > 0:
            own["sd"] = float(model.reward_sd[pair])
        if line.share != 1.0:
            own["probability" if columns is None else "share"] = line.share
        own |= {key: values[pair] for key, values in (columns or {}).items() if values[pair] is not None}
        graph.add_edge(state, line.to, key=action, **own)
    return graph
