"""Results by road: back to the lines of the table, or the edges of the graph, that a problem was made from.

A problem made from roads (`bellmanifold.io.road_problem`) keeps the line of each pair in its metadata. Any other
problem has one line for each pair and each of its successors, in the problem's own order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bellmanifold._util.display import as_frame
from bellmanifold.problem.ssp import SSP

if TYPE_CHECKING:
    import pandas


class Line(NamedTuple):
    """One way that a road may lead.

    Attributes:
        row: the row of the table or the number of the edge, counted from 0; without those, the number of this line.
        back: whether it is the way back along a two-way road.
        pair: the pair of the problem.
        to: the junction it leads to.
        share: how often it leads there.
    """

    row: int
    back: bool
    pair: int
    to: str
    share: float


def lines_of(model: SSP, in_order: bool = True) -> list[Line]:
    """The lines of a problem, in the order of the table it was made from, or of its pairs."""
    recorded = _recorded(model)
    if recorded is None:
        ends = zip(model.next_pair.tolist(), model.next_state, model.next_prob.tolist(), strict=True)
        return [Line(k, False, pair, model.state_name(end), share) for k, (pair, end, share) in enumerate(ends)]
    found = []
    for pair, entry in enumerate(recorded):
        if isinstance(entry, int):
            heads, codes, shares = [model.state_name(model.next_state[model.next_start[pair]])], [entry], [1.0]
        else:
            heads, codes, shares = entry["to"], entry["lines"], entry["share"]
        for code, to, share in zip(codes, heads, shares, strict=True):
            found.append(Line(max(code, ~code), code < 0, pair, to, share))
    return sorted(found, key=lambda line: line[:2]) if in_order else found


def _recorded(model: SSP) -> list[Any] | None:
    """The lines of each pair in the metadata; None if there are none, or if they belong to other pairs."""
    roads = model.metadata.get("roads")
    lines = roads.get("lines") if isinstance(roads, Mapping) else None
    if not isinstance(lines, list) or len(lines) != model.n_pairs or model.open_law.any():
        return None
    known = {*model.states, *model.goals}
    return lines if all(_is_entry(entry, known) for entry in lines) else None


def _is_entry(entry: object, known: set[str]) -> bool:
    if isinstance(entry, int):
        return not isinstance(entry, bool)
    if not isinstance(entry, dict):
        return False
    codes, heads, shares = (entry.get(key) for key in ("lines", "to", "share"))
    if not (isinstance(codes, list) and isinstance(heads, list) and isinstance(shares, list)):
        return False
    return (
        len(codes) == len(heads) == len(shares)
        and all(isinstance(code, int) for code in codes)
        and all(isinstance(head, str) and head in known for head in heads)
        and all(isinstance(share, float) for share in shares)
    )


def left_out(model: SSP) -> set[str]:
    """Junctions of the table or graph that are no part of the problem."""
    roads = model.metadata.get("roads")
    found = roads.get("left_out") if isinstance(roads, Mapping) else None
    return {name for name in found if isinstance(name, str)} if isinstance(found, list) else set()


def edges_frame(model: SSP, columns: Mapping[str, Sequence[Any]]) -> pandas.DataFrame:
    """A row for each line: where it leads from and to, its name and cost, and further columns, one entry per pair.

    The index counts the rows of the table that the problem was made from; a two-way road has two rows with the same
    number.
    """
    lines = lines_of(model)
    pairs = [line.pair for line in lines]
    cost = (0.0 - model.reward).tolist()
    found: dict[str, Sequence[Any]] = {
        "from": [model.states[model.pair_state[pair]] for pair in pairs],
        "to": [line.to for line in lines],
        "name": [model.actions[model.pair_action[pair]] for pair in pairs],
        "cost": [cost[pair] for pair in pairs],
    }
    if any(line.share != 1.0 for line in lines):
        found["share"] = [line.share for line in lines]
    frame = as_frame(found | {name: [values[pair] for pair in pairs] for name, values in columns.items()})
    frame.index = [line.row for line in lines]
    frame.index.name = "row"
    return frame
