"""A road map without costs, and drives whose costs were measured with an error: `python examples/roads/build.py`.

The map is that of `env:roads`; what roads cost is left open. The drives go along the edges of the map and then through
its middle, and each measured cost carries an error with a standard deviation of 1.
"""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np

from bellmanifold import Dataset, Observation, envs, write_data, write_problem

HERE = Path(__file__).parent
ERROR = 1.0
DRIVEN = ("J00 J01 J02 J10 J11 J19 J20 J28 J29 J37", "J00 J08 J09 J10")


def main() -> None:
    """Write both files."""
    true = envs.roads()
    unknown = replace(true, name="road map", reward=np.full(true.n_pairs, np.nan))
    rng = np.random.default_rng(7)
    seen = []
    for drive in DRIVEN:
        junctions = drive.split()
        for here, there in itertools.pairwise(junctions):
            cost = true.reward[true.pair_index[here, there]] + ERROR * rng.standard_normal()
            seen.append(Observation(here, there, reward=round(cost, 2), sd=ERROR, next=there))
    write_problem(unknown, HERE / "roads.json")
    write_data(Dataset.from_pairs(unknown, seen), HERE / "drives.json")


if __name__ == "__main__":
    main()
