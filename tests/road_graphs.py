"""Random tables of roads, and the costs of their shortest ways by NetworkX's Dijkstra."""

import networkx
import pandas


def random_roads(rng, junctions=12, roads=30):
    """Roads with parallel ones, dead ends, junctions from which nothing leads back, and some that are two-way."""
    names = [f"J{k}" for k in range(junctions)]
    tails, heads = (rng.integers(0, junctions - 1, roads) for _ in range(2))
    tails[:3], heads[:3] = tails[0], (tails[0] + 1) % (junctions - 1)  # three parallel ones
    heads[-2:] = junctions - 1  # a junction that no road leaves, unless one is two-way
    keep = tails != heads
    return pandas.DataFrame(
        {
            "from": [names[k] for k in tails[keep]],
            "to": [names[k] for k in heads[keep]],
            "cost": rng.integers(1, 20, int(keep.sum())).astype(float),
            "oneway": rng.random(int(keep.sum())) < 0.7,
        }
    )


def graph_of(frame):
    """The same roads as a MultiDiGraph."""
    graph = networkx.MultiDiGraph()
    for tail, head, cost, oneway in frame.itertuples(index=False):
        graph.add_edge(tail, head, length=cost)
        if not oneway:
            graph.add_edge(head, tail, length=cost)
    return graph


def costs_from(frame, goal):
    """The cost of the shortest way to the goal from every junction that has one."""
    found = networkx.single_source_dijkstra_path_length(graph_of(frame).reverse(), goal, weight="length")
    return {node: cost for node, cost in found.items() if node != goal}
