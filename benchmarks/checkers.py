"""`solve` against Storm's sparse engine on ten models written for this (`prism/`), both from the model in memory.

Storm runs with its default precision, a relative 1e-6; ours is exact to rounding. Storm is an optional extra (`pip
install 'bellmanifold[storm]'`); without it there are no rows. The goal is that Storm is at most five times as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from measuring import Goal, Row, report, timed

import bellmanifold as bm

MODELS = sorted((Path(__file__).parent / "prism").glob("*.prism"))
ASKED = 'R{"cost"}min=? [F "target"]'


def by_storm(path: Path) -> Callable[[], float]:
    """Storm's value of the initial state, from a model that is built already."""
    import stormpy

    program = stormpy.parse_prism_program(str(path))
    asked = stormpy.parse_properties(ASKED.replace("min", "" if program.model_type.name == "DTMC" else "min"), program)
    model = stormpy.build_model(program, options=stormpy.BuilderOptions(asked))
    return lambda: stormpy.model_checking(model, asked[0]).get_value(model.initial_states[0])


def rows(quick: bool) -> Iterator[Row]:
    """One row for each model."""
    if find_spec("stormpy") is None:
        return
    for path in MODELS:
        model = bm.load_model(f"{path}?property={ASKED}")
        job = by_storm(path)
        theirs, ours = job(), -bm.solve(model).value_at_start
        repeats = 2 if quick else 5
        off = f"Storm's value is off by a relative {abs(theirs / ours - 1):.1g}"
        note = f"{model.n_states:,} states, {model.n_pairs:,} pairs; {off}"
        mine = timed("solve", lambda model=model: bm.solve(model), repeats)
        peer = timed("Storm, sparse engine", job, repeats)
        yield Row(f"solve: {path.stem}, against Storm", mine, peer, goal=Goal(ratio=0.2), notes=note)


if __name__ == "__main__":
    report(rows)
