"""From roads to a problem: junctions are states, roads are actions, and a road's cost is a negative reward.

Readers of tables and graphs describe roads as `Lines`, one entry for each line of a table or edge of a graph; nothing
below depends on where they come from. A line is a road from its tail to its head, and back again if it is two-way
(unless another two-way line of the same name and cost is the way back, as in tables of OSMnx). Where probabilities are
stated, the lines of one name that share their tail are one road, which leads to each of their heads with its
probability.

*Actions* are named after the road, or after the junction it leads to if it has no name. A name that would occur twice
at one junction is completed by the head, "Main Street to Mill", then by a number, "Mill (2)", in the order of the
lines.

*What is left out.* Roads out of a goal are never played. A junction from which no roads lead to a goal would make
every policy that may come there improper, so it is left out with all roads that may lead to it. Removing those may cut
off others, so this is repeated until nothing changes: what remains is the largest set of roads in which every junction
has a way to a goal. (A two-way cul-de-sac is no such junction: one may turn round.)

The metadata of the problem say that it was given in costs and in which unit, `"costs": {"unit": "minutes"}`, where
junctions lie, `"positions"`, and under `"roads"` what is needed to give results back by line
(`bellmanifold.io.road_answers`): the line of each pair in `"lines"`, counted from 0, ~k for the way back along
line k, or for a road with several heads {"lines": [...], "to": [...], "share": [...]}; and the junctions left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from bellmanifold.errors import BadInputError, count_of, kind_of_value, listed, quote, require
from bellmanifold.io.files import text
from bellmanifold.io.road_lines import Lines, check_numbers
from bellmanifold.io.tables import text_in
from bellmanifold.problem.builder import PROBABILITY_TOLERANCE, assemble
from bellmanifold.problem.compressed_rows import Some, ranks
from bellmanifold.problem.names import suggestion
from bellmanifold.problem.ssp import SSP, Description

EVERY = "all"
"""The start that stands for every junction."""
FEW = 3
Names: TypeAlias = Any
"""One name, several separated by commas, or a list of names."""


@dataclass(frozen=True, eq=False)
class _Roads:
    """One-way entries: a line gives one, or two if it is two-way.

    Attributes:
        nodes: names of the junctions in order of first use.
        line: the line of each entry, shape (entries,).
        back: whether it is the way back, shape (entries,).
        tail, head: indices of junctions, shape (entries,).
        road: the road that each entry belongs to, numbered by first entry, shape (entries,).
    """

    nodes: Sequence[str]
    line: Int[np.ndarray, "entries"]
    back: Bool[np.ndarray, "entries"]
    tail: Int[np.ndarray, "entries"]
    head: Int[np.ndarray, "entries"]
    road: Int[np.ndarray, "entries"]

    def kept(self, some: Some) -> _Roads:
        """Some of the entries, whole roads, as a mask or as indices in another order."""
        own = (getattr(self, name)[some] for name in ("line", "back", "tail", "head", "road"))
        return _Roads(self.nodes, *own)


def problem_of_roads(
    lines: Lines, goal: Names, start: Names, title: str, unit: str = "", gains: bool = False
) -> tuple[SSP, str]:
    """The problem of reaching a goal by some roads, and one line that says what was left out; empty if nothing was.

    Args:
        lines: the roads.
        goal: one name or several.
        start: one name or several, a mapping of names to weights, or "all" for every junction.
        title: name of the problem.
        unit: the unit of costs, if it is known.
        gains: whether costs may be negative.
    """
    check_numbers(lines, gains)
    whole = _one_way(lines)
    number = {name: k for k, name in enumerate(whole.nodes)}
    places = {*lines.positions, *lines.lonely}
    goals = _find(goal, "goal", number, places)
    begins = _starts(start, goals, number, places)
    kept, lost, remark = _leave_out(whole, goals)
    _check_ways(kept, lost, goals, begins, whole.nodes, goal)
    kept = _in_order(kept)
    weights = begins or dict.fromkeys(np.unique(kept.tail).tolist(), 1.0)
    metadata: dict[str, Any] = {"costs": {"unit": unit} | ({"gains": True} if gains else {})}
    names = {whole.nodes[node] for node in (*np.unique(kept.tail), *goals)}
    if positions := {name: place for name, place in lines.positions.items() if name in names}:
        metadata["positions"] = positions
    left_out = {"left_out": [whole.nodes[node] for node in lost]} if lost else {}
    metadata["roads"] = {"lines": _lines_of_pairs(lines, kept, goals), **left_out}
    return _assembled(lines, kept, goals, weights, title, metadata), remark


def _one_way(lines: Lines) -> _Roads:
    """Entries of all lines, the way back right after the way there."""
    number: dict[str, int] = {}
    ends = [[number.setdefault(name, len(number)) for name in names] for names in (lines.tail, lines.head)]
    for name in number:
        text(name, "the name of a junction")
    tail, head = (np.array(codes, dtype=np.int64) for codes in ends)
    line = np.repeat(np.arange(len(tail)), 1 + (_has_way_back(lines, tail, head) & (tail != head)))
    back = np.append(False, line[1:] == line[:-1])
    tail, head = np.where(back, head[line], tail[line]), np.where(back, tail[line], head[line])
    return _Roads(list(number), line, back, tail, head, _grouped(lines, line, tail))


def _has_way_back(
    lines: Lines, tail: Int[np.ndarray, "lines"], head: Int[np.ndarray, "lines"]
) -> Bool[np.ndarray, "lines"]:
    """Which lines also lead back: the two-way ones, unless the way back, just like them, is a line of its own."""
    found = lines.both_ways.copy()
    cost = np.where(np.isnan(lines.cost), -np.inf, lines.cost).tolist()
    same = [
        (*sorted(ends), *own)
        for *ends, own in zip(tail.tolist(), head.tolist(), zip(lines.name, cost, strict=True), strict=True)
    ]
    ways: dict[tuple[Any, ...], set[int]] = {}
    for k in np.flatnonzero(found).tolist():
        ways.setdefault(same[k], set()).add(int(tail[k]))
    found &= np.array([len(ways.get(key, ())) < 2 for key in same], dtype=bool)
    return found


def _grouped(
    lines: Lines, line: Int[np.ndarray, "entries"], tail: Int[np.ndarray, "entries"]
) -> Int[np.ndarray, "entries"]:
    """The road of each entry; checks that the lines of a road agree and that its probabilities sum to 1."""
    if not lines.shares:
        return np.arange(len(line))
    seen: dict[Any, int] = {}
    apart = lines.both_ways.tolist()  # their probability is 1, and only a line by itself has a way back
    keys = [
        (t, lines.name[k]) if lines.name[k] and not apart[k] else n
        for n, (t, k) in enumerate(zip(tail.tolist(), line.tolist(), strict=True))
    ]
    road = np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.int64)
    first = np.unique(road, return_index=True)[1]
    total = np.bincount(road, lines.probability[line])
    for r in np.flatnonzero(np.abs(total - 1.0) > PROBABILITY_TOLERANCE)[:1]:
        k = int(line[first[r]])
        raise BadInputError(
            f"{lines.where(k)}: the probabilities of {quote(lines.name[k])} from {quote(lines.tail[k])} sum to "
            f"{total[r]:.12g}: make them sum to 1, or give roads of one junction different names"
        )
    _check_agreement(lines, line, road, first)
    return road


def _check_agreement(
    lines: Lines, line: Int[np.ndarray, "entries"], road: Int[np.ndarray, "entries"], first: Int[np.ndarray, "roads"]
) -> None:
    """Raise if the lines of a road name one head twice, or different costs."""
    met: dict[tuple[int, str], int] = {}
    for n, k in enumerate(line.tolist()):
        one = int(line[first[road[n]]])
        for what, own in (("cost", lines.cost), ("sd", lines.sd)):
            if own[k] != own[one] and not (np.isnan(own[k]) and np.isnan(own[one])):
                raise BadInputError(
                    f"{lines.where(k)}: {quote(lines.name[k])} has another {what} than in {lines.where(one)}: lines of "
                    "one name and tail are one road, whose cost does not depend on where it leads"
                )
        key = (int(road[n]), lines.head[k])
        if key in met:
            raise BadInputError(
                f"{lines.where(k)}: {quote(lines.name[k])} leads to {quote(lines.head[k])} already in "
                f"{lines.where(met[key])}: keep one of them"
            )
        met[key] = k


def listed_names(given: Names) -> Names:
    """A column or an array of names as a list; anything else unchanged."""
    return given.tolist() if getattr(given, "ndim", 0) == 1 else given


def _find(given: Names, what: str, number: Mapping[str, int], places: Set[str]) -> list[int]:
    """The junctions that a name, or several, stand for."""
    given = listed_names(given)
    if isinstance(given, str) and given.strip() not in number:
        names = [name.strip() for name in given.split(",") if name.strip()]
    elif isinstance(given, (list, tuple, set, frozenset)):
        names = [text_in(name) for name in given]
    else:
        names = [text_in(given)]
    remedy = f"write {what}=NAME" + (", or start=all for every junction alike" if what == "start" else "")
    require(any(names), f"{what} is missing: {remedy}")
    for name in names:
        if name not in number and name in places:
            raise BadInputError(f"{what} {quote(name)}: the junction has no roads: correct the name, or give it one")
        if name not in number:
            raise BadInputError(f"{what} {quote(name)}: no such junction: {suggestion(name, number, 'there are')}")
    return [number[name] for name in dict.fromkeys(names)]


def _starts(given: Names, goals: Sequence[int], number: Mapping[str, int], places: Set[str]) -> dict[int, float]:
    """Weights of the junctions where trips begin; empty if they begin at every one."""
    if isinstance(given, str) and given.strip() == EVERY and EVERY not in number:
        return {}
    if isinstance(given, Mapping):
        require(given, "start is empty: name at least one junction")
        for name, weight in given.items():
            good = isinstance(weight, (int, float, np.number)) and np.isfinite(weight) and weight > 0
            require(good, f"start: the weight of {quote(name)} is {kind_of_value(weight)}: give a positive number")
        nodes = _find(list(given), "start", number, places)
        found = dict(zip(nodes, (float(weight) for weight in given.values()), strict=True))
    else:
        found = dict.fromkeys(_find(given, "start", number, places), 1.0)
    for name, node in number.items():
        require(node not in found or node not in goals, f"start {quote(name)} is a goal: trips begin somewhere else")
    return found


def _leave_out(whole: _Roads, goals: Sequence[int]) -> tuple[_Roads, list[int], str]:
    """The roads by which every junction has a way to a goal, the other junctions, and what was left out in words."""
    count = len(whole.nodes)
    out = np.isin(whole.tail, goals)
    own, keep = ~out, ~out
    while True:
        arrives = _leads_to(whole.kept(keep), goals)
        bad = np.bincount(whole.road, ~arrives[whole.head]) > 0
        rest = keep & ~bad[whole.road] & arrives[whole.tail]
        if (rest == keep).all():
            break
        keep = rest
    met = np.zeros(count, dtype=bool)
    met[whole.tail[own]] = met[whole.head[own]] = True
    lost = np.flatnonzero(met & ~arrives).tolist()
    said = []
    if lost:
        gone = len(np.unique(whole.road[own & ~keep]))
        named = listed([whole.nodes[node] for node in lost], FEW, quote)
        said.append(
            f"left out {count_of(len(lost), 'junction')} from which there is no sure way to the goal ({named}), with "
            f"{count_of(gone, 'road')} from or to there"
        )
    if out.any():
        also = "" if said else "left out "
        said.append(f"{also}{count_of(len(np.unique(whole.road[out])), 'road')} out of the goal")
    return whole.kept(keep), lost, " and ".join(said)


def _leads_to(roads: _Roads, goals: Sequence[int]) -> Bool[np.ndarray, "nodes"]:
    """The junctions from which some of the roads may lead to a goal: searched backwards from one node before all."""
    count, extra = len(roads.nodes), len(goals)
    begin = np.append(roads.head, np.full(extra, count))
    end = np.append(roads.tail, goals)
    graph = csr_array((np.ones(len(begin)), (begin, end)), shape=(count + 1, count + 1))
    found = np.zeros(count + 1, dtype=bool)
    found[breadth_first_order(graph, count, return_predecessors=False)] = True
    return found[:count]


def _check_ways(
    kept: _Roads,
    lost: Sequence[int],
    goals: Sequence[int],
    begins: Mapping[int, float],
    nodes: Sequence[str],
    goal: Names,
) -> None:
    """Raise unless some road leads to a goal, and from every start."""
    named = listed([nodes[node] for node in goals], FEW, quote)
    require(len(kept.tail) > 0, f"goal {named}: no road leads there: check its name and the direction of the roads")
    for node in begins:
        if node in lost or node not in kept.tail:
            raise BadInputError(
                f"start {quote(nodes[node])}: its roads do not lead to the goal {named} for sure: check the direction "
                "of the roads (twoway takes every road both ways), or begin elsewhere"
            )


def _in_order(roads: _Roads) -> _Roads:
    """Entries in the order in which problems store them: by the first road of their tail, then by road."""
    _, first, code = np.unique(roads.tail, return_index=True, return_inverse=True)
    order = np.lexsort((roads.line, roads.road, ranks(np.argsort(first))[code]))
    again = roads.kept(order)
    begins = np.append(True, again.road[1:] != again.road[:-1])
    return _Roads(again.nodes, again.line, again.back, again.tail, again.head, np.cumsum(begins) - 1)


def _assembled(
    lines: Lines,
    roads: _Roads,
    goals: Sequence[int],
    weights: Mapping[int, float],
    title: str,
    metadata: Mapping[str, Any],
) -> SSP:
    """The problem of roads in order."""
    first = np.unique(roads.road, return_index=True)[1]
    line, tail = roads.line[first], roads.tail[first]
    actions = _action_names(lines, roads, first)
    number: dict[str, int] = {}
    code = [number.setdefault(name, len(number)) for name in actions]
    for name in number:
        text(name, "the name of a road")
    cost = lines.cost[line]
    total = sum(weights.values())
    return assemble(
        Description(
            state_names=roads.nodes,
            action_names=list(number),
            goals=list(goals),
            initial_state=list(weights),
            initial_prob=[weight / total for weight in weights.values()],
            pair_state=tail,
            pair_action=code,
            reward=np.where(cost == 0, 0.0, -cost),
            reward_sd=lines.sd[line],
            next_start=np.append(first, len(roads.head)),
            next_state=roads.head,
            next_prob=lines.probability[roads.line],
            name=title,
            metadata=metadata,
            may_be_open=True,
        )
    )


def _action_names(lines: Lines, roads: _Roads, first: Int[np.ndarray, "roads"]) -> list[str]:
    """A name for each road that no other road out of its tail has."""
    tail = roads.tail[first].tolist()
    heads = [roads.nodes[node] for node in roads.head[first]]
    own = [lines.name[k] for k in roads.line[first]]
    names = [name or head for name, head in zip(own, heads, strict=True)]
    if not lines.repeats:
        _check_repeats(lines, roads, first, own)
    count = Counter(zip(tail, names, strict=True))
    full = [
        f"{name} to {head}" if road and count[at, name] > 1 else name
        for at, name, road, head in zip(tail, names, own, heads, strict=True)
    ]
    used, copies = set(zip(tail, full, strict=True)), Counter[tuple[int, str]]()
    for n, key in enumerate(zip(tail, full, strict=True)):
        copies[key] += 1
        while copies[key] > 1 and (key[0], f"{key[1]} ({copies[key]})") in used:
            copies[key] += 1
        if copies[key] > 1:
            full[n] = f"{key[1]} ({copies[key]})"
    return full


def _check_repeats(lines: Lines, roads: _Roads, first: Int[np.ndarray, "roads"], own: Sequence[str]) -> None:
    """Raise if two lines out of one junction have the same name; the way back of another road may."""
    met: dict[tuple[int, str], int] = {}
    for n, name in zip(first.tolist(), own, strict=True):
        if not name or roads.back[n]:
            continue
        k, key = int(roads.line[n]), (int(roads.tail[n]), name)
        if key in met:
            raise BadInputError(
                f"{lines.where(k)}: {quote(name)} leaves {quote(lines.tail[k])} already in {lines.where(met[key])}: "
                "give roads of one junction different names (name= leaves them out), or a column "
                '"probability" if one road may lead to several places'
            )
        met[key] = k


def _lines_of_pairs(lines: Lines, roads: _Roads, goals: Sequence[int]) -> list[Any]:
    """The line of each pair for the metadata; of all heads where there are several, or a goal that is not the first."""
    code = np.where(roads.back, ~roads.line, roads.line).tolist()
    starts = np.unique(roads.road, return_index=True)[1]
    others = set(goals[1:])
    found: list[Any] = []
    for begin, end in zip(starts.tolist(), [*starts[1:].tolist(), len(code)], strict=True):
        if end == begin + 1 and int(roads.head[begin]) not in others:
            found.append(code[begin])
            continue
        heads = [roads.nodes[node] for node in roads.head[begin:end]]
        share = lines.probability[roads.line[begin:end]].tolist()
        found.append({"lines": code[begin:end], "to": heads, "share": share})
    return found
