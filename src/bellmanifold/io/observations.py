"""The data files `bellmanifold.data/1` and `data/2`: observations in chronological order, in JSON and as `.npz` twins.

An observation has "state", "action" and "reward"; without "reward" it means the model's own. In version 2 it may also
have "sd", the standard deviation of this reward, and "next", the state or goal it led to. Where the problem leaves a
reward open, an observation with "next" and no "reward" only says where the pair led.

The `.npz` twin has `format`, the names in `state_names` and `action_names` (here goals are states), and one entry per
observation in `state` and `action` (indices into the names), `reward` (NaN: absent) and, in version 2, `sd` (NaN:
absent) and `next` (index of a state, -1: absent).

Both versions can be read; the oldest version that can represent the data is written. A table (CSV) has the same content
with one line per observation (`bellmanifold.io.csv_data`), or per trip (`bellmanifold.io.trips`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from bellmanifold.errors import BadInputError, require_kind
from bellmanifold.io.csv_data import from_csv, is_missing, looks_like_table, looks_like_trips, write_csv
from bellmanifold.io.files import (
    label,
    listing,
    locate_errors,
    number,
    parse_json,
    read_bytes,
    record,
    text,
    write_atomically,
)
from bellmanifold.io.npz import check_arrays, check_names, names, one_text, read_arrays
from bellmanifold.io.problem import DATA_FORMATS, find_version
from bellmanifold.problem.dataset import Dataset, require_data
from bellmanifold.problem.observation import Observation
from bellmanifold.problem.ssp import SSP, require_problem

_MEANING = {
    "reward": "to mean the model's reward",
    "sd": "where it has none of its own",
    "next": "where it is not known",
}
_ARRAYS = ("format", "state_names", "action_names", "state", "action", "reward")


def load_data(path: str | os.PathLike[str], model: SSP) -> Dataset:
    """Read a data file for a problem: JSON, npz or a table, recognised by content or by a name in .csv or .tsv."""
    require_kind(path, (str, os.PathLike), "path", "give the name of a data file, and the problem second")
    require_problem(model)
    with locate_errors(label(path)):
        content = read_bytes(path)
        if content.startswith(b"PK"):
            return from_npz(content, model)
        is_table = os.fspath(path).lower().endswith((".csv", ".tsv"))
        if is_table or looks_like_table(content) or looks_like_trips(content):
            return from_csv(content, model)
        return from_json(parse_json(content), model)


def write_data(data: Dataset, path: str | os.PathLike[str]) -> None:
    """Write a data file with every known reward: npz or CSV for names ending in .npz or .csv, otherwise JSON."""
    require_data(data)
    require_kind(path, (str, os.PathLike), "path", "give the name of a file, second")
    if os.fspath(path).endswith(".npz"):
        write_atomically(path, lambda file: _write_npz(data, file))
    elif os.fspath(path).lower().endswith(".csv"):
        write_atomically(path, lambda file: write_csv(data, file))
    else:
        write_atomically(path, lambda file: file.write(data_text(data).encode()))


def _version_of(data: Dataset) -> int:
    """The oldest version that can represent the data."""
    more = np.isnan(data.reward) | ~np.isnan(data.sd) | (data.next >= 0)
    return 2 if more.any() else 1


def from_json(value: Any, model: SSP) -> Dataset:
    """Build a data set from a parsed `data/1` or `data/2` object."""
    needs = DATA_FORMATS[1] if find_version(value, DATA_FORMATS) == 1 else ""
    whole = record(value, "data", ("format", "observations"), ("metadata",))
    items = listing(whole["observations"], "observations")
    return Dataset.from_pairs(model, [_observation(item, f"observations[{t}]", needs) for t, item in enumerate(items)])


def _observation(item: Any, where: str, needs: str) -> Observation:
    """Parse one observation of a file; for `needs` see `record`."""
    fields = record(item, where, ("state", "action"), ("reward",), ("sd", "next"), needs)
    state, action = text(fields["state"], f"{where}.state"), text(fields["action"], f"{where}.action")
    for key, meaning in _MEANING.items():
        if key in fields and fields[key] is None:
            kind = "a state" if key == "next" else "a number"
            raise BadInputError(f"{where}: {key} is null: give {kind}, or leave it out {meaning}")
    reward, sd = (number(fields[key], f"{where}: {key}") if key in fields else None for key in ("reward", "sd"))
    return Observation(state, action, reward, sd, text(fields["next"], f"{where}.next") if "next" in fields else None)


def data_text(data: Dataset) -> str:
    """A data file as JSON text, in the oldest version that can represent it."""
    columns = data.columns()
    rows = (zip(columns, row, strict=True) for row in zip(*columns.values(), strict=True))
    seen = [{key: value for key, value in row if not is_missing(value)} for row in rows]
    whole = {"format": DATA_FORMATS[_version_of(data) - 1], "observations": seen}
    return json.dumps(whole, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def from_npz(content: bytes, model: SSP) -> Dataset:
    """Build a data set from the bytes of an `.npz` file."""
    arrays = read_arrays(content)
    version = find_version({"format": one_text(arrays, "format")} if "format" in arrays else {}, DATA_FORMATS)
    check_arrays(arrays, _ARRAYS, ("sd", "next") if version > 1 else ())
    states, actions = names(arrays, "state_names"), names(arrays, "action_names")
    length = len(_list(arrays, "state", "iu"))
    arrays = {"sd": np.full(length, np.nan), "next": np.full(length, -1), **arrays}
    reward, sd = (
        [None if is_missing(value) else value for value in _list(arrays, key, "iuf", length).tolist()]
        for key in ("reward", "sd")
    )
    landing = [states[j] if j >= 0 else None for j in _numbers(arrays, "next", len(states), length, -1)]
    state = [states[s] for s in _numbers(arrays, "state", len(states), length)]
    action = [actions[a] for a in _numbers(arrays, "action", len(actions), length)]
    seen = [Observation(*row) for row in zip(state, action, reward, sd, landing, strict=True)]
    return Dataset.from_pairs(model, seen)


def _list(arrays: Mapping[str, np.ndarray], key: str, kinds: str, length: int | None = None) -> np.ndarray:
    """An array of numbers, one per observation, checked."""
    array = arrays[key]
    if array.ndim != 1 or (array.size and array.dtype.kind not in kinds):
        raise BadInputError(f"{key}: must be a list of {'numbers' if 'f' in kinds else 'whole numbers'}")
    if length is not None and len(array) != length:
        raise BadInputError(f"{key}: has {len(array)} entries, state has {length}: give one per observation")
    return array


def _numbers(arrays: Mapping[str, np.ndarray], key: str, below: int, length: int, least: int = 0) -> np.ndarray:
    """An array of indices from `least` to `below` - 1, checked."""
    array = _list(arrays, key, "iu", length).astype(np.int64)
    wrong = (array < least) | (array >= below)
    if wrong.any():
        t = int(np.argmax(wrong))
        raise BadInputError(f"observations[{t}]: {key} is {array[t]}: give a number from {least} to {below - 1}")
    return array


def _write_npz(data: Dataset, file: IO[bytes]) -> None:
    model, version = data.model, _version_of(data)
    state_names = (*model.states, model.goals[0])
    check_names((*state_names, *model.actions))
    arrays: dict[str, Any] = {
        "format": np.array(DATA_FORMATS[version - 1]),
        "state_names": np.array(state_names),
        "action_names": np.array(model.actions),
        "state": model.pair_state[data.pair],
        "action": model.pair_action[data.pair],
        "reward": data.reward,
    }
    if version > 1:
        arrays |= {"sd": data.sd, "next": data.next}
    np.savez_compressed(file, **arrays)
