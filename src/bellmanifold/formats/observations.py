"""The data file `bellmanifold.data/1`: state-action-reward observations in order of time."""

from __future__ import annotations

import json
import os
from typing import Any

from bellmanifold.data import Dataset, find_pair
from bellmanifold.errors import BadInputError
from bellmanifold.formats.files import (
    label,
    listing,
    located,
    number,
    parse_json,
    read_bytes,
    record,
    text,
    write_atomically,
)
from bellmanifold.formats.problem import check_format
from bellmanifold.ssp import SSP

FORMAT = "bellmanifold.data/1"


def load_data(path: str | os.PathLike[str], model: SSP) -> Dataset:
    """Read a data file for a problem."""
    with located(label(path)):
        return from_json(parse_json(read_bytes(path)), model)


def write_data(data: Dataset, path: str | os.PathLike[str]) -> None:
    """Write a data file, every reward given."""
    names = [data.model.pair_name(i) for i in data.pair]
    seen = [
        {"state": state, "action": action, "reward": float(reward)}
        for (state, action), reward in zip(names, data.reward, strict=True)
    ]
    content = json.dumps({"format": FORMAT, "observations": seen}, ensure_ascii=False, allow_nan=False, indent=1)
    write_atomically(path, lambda file: file.write(content.encode() + b"\n"))


def from_json(value: Any, model: SSP) -> Dataset:
    """Build a data set from a parsed `data/1` object."""
    check_format(value, FORMAT)
    whole = record(value, "data", ("format", "observations"), ("metadata",))
    observations: list[tuple[str, str, float | None]] = []
    for t, item in enumerate(listing(whole["observations"], "observations")):
        where = f"observations[{t}]"
        fields = record(item, where, ("state", "action"), ("reward",))
        state, action = text(fields["state"], f"{where}.state"), text(fields["action"], f"{where}.action")
        find_pair(model, state, action, where)
        if "reward" in fields and fields["reward"] is None:
            raise BadInputError(f"{where}: reward is null: give a number, or leave it out to mean the model's reward")
        reward = number(fields["reward"], f"{where}: reward") if "reward" in fields else None
        observations.append((state, action, reward))
    return Dataset.from_pairs(model, observations)
