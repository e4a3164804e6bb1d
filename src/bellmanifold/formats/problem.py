"""The problem file `bellmanifold.ssp/1`, in JSON and as its `.npz` twin for large problems."""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from typing import IO, Any

import numpy as np

from bellmanifold.assembly import assemble
from bellmanifold.errors import BadInputError, quote
from bellmanifold.formats.files import (
    label,
    listing,
    located,
    number,
    parse_json,
    plain_object,
    read_bytes,
    record,
    text,
    write_atomically,
)
from bellmanifold.limits import BYTES, SIZE
from bellmanifold.ssp import SSP, Description

FORMAT = "bellmanifold.ssp/1"
_NUMBERS = ("initial_prob", "pair_state", "pair_action", "reward", "next_start", "next_state", "next_prob")
_ARRAYS = ("state_names", "action_names", "goals", "initial_state", *_NUMBERS)
_OPTIONAL_ARRAYS = ("reward_sd", "name", "discount", "metadata")
MOST_MEMBERS = 1000
"""Of the archive that an npz file is; a problem has 15."""


def read_problem(path: str | os.PathLike[str]) -> SSP:
    """Read a problem file, JSON or npz (told apart by content)."""
    with located(label(path)):
        content = read_bytes(path)
        if content.startswith(b"PK"):
            return from_npz(content)
        if os.fspath(path).endswith(".npz") and not content.lstrip().startswith(b"{"):
            raise BadInputError("is not an npz file: write it again, or give a JSON file")
        return from_json(parse_json(content))


def write_problem(model: SSP, path: str | os.PathLike[str]) -> None:
    """Write a problem file: npz if the name ends so, else JSON."""
    if not os.fspath(path).endswith((".npz", ".json")):
        raise BadInputError(f"{label(path)}: a problem file ends in .json or .npz: choose one of them")
    if os.fspath(path).endswith(".npz"):
        write_atomically(path, lambda file: _write_npz(model, file))
    else:
        write_atomically(path, lambda file: file.write(to_json_text(model).encode()))


def check_format(value: Any, expected: str) -> None:
    """Refuse a file of another format or version."""
    if value.get("format") != expected:
        found = quote(value["format"]) if "format" in value else "missing"
        raise BadInputError(f'"format" is {found}: this needs {quote(expected)}')


def from_json(value: Any) -> SSP:
    """Build a problem from a parsed `ssp/1` object."""
    check_format(value, FORMAT)
    whole = record(value, "problem", ("format", "goals", "initial", "pairs"), ("name", "discount", "metadata"))
    numbers: dict[str, int] = {}
    actions: dict[str, int] = {}

    def state(name: object, what: str) -> int:
        return numbers.setdefault(text(name, what), len(numbers))

    goals = [state(goal, f"goals[{k}]") for k, goal in enumerate(listing(whole["goals"], "goals"))]
    pair_state, pair_action, reward, reward_sd = [], [], [], []
    next_start, next_state, next_prob = [0], [], []
    for k, pair in enumerate(listing(whole["pairs"], "pairs")):
        where = f"pairs[{k}]"
        fields = record(pair, where, ("state", "action", "reward", "next"), ("reward_sd",))
        pair_state.append(state(fields["state"], f"{where}.state"))
        action = text(fields["action"], f"{where}.action")
        pair_action.append(actions.setdefault(action, len(actions)))
        where += f" ({quote(fields['state'])}, {quote(action)})"
        reward.append(number(fields["reward"], f"{where}: reward"))
        reward_sd.append(number(fields.get("reward_sd", 0.0), f"{where}: reward_sd"))
        successors = fields["next"]
        if not isinstance(successors, dict):
            raise BadInputError(f'{where}: next must be an object of probabilities, as {{"goal": 1.0}}')
        for name, probability in successors.items():
            next_state.append(state(name, f"{where}: next state"))
            next_prob.append(number(probability, f"{where}: probability of {quote(name)}"))
        next_start.append(len(next_state))
    initial = whole["initial"]
    if not isinstance(initial, dict):
        raise BadInputError('initial must be an object of probabilities, as {"s1": 1.0}')
    start = [state(name, "initial state") for name in initial]
    start_prob = [number(p, f"initial: probability of {quote(name)}") for name, p in initial.items()]
    metadata = plain_object(whole.get("metadata", {}), "metadata")
    model = assemble(
        Description(
            state_names=list(numbers),
            action_names=list(actions),
            goals=goals,
            initial_state=start,
            initial_prob=start_prob,
            pair_state=pair_state,
            pair_action=pair_action,
            reward=reward,
            next_start=next_start,
            next_state=next_state,
            next_prob=next_prob,
            reward_sd=reward_sd,
            name=text(whole.get("name", ""), "name"),
            metadata=metadata,
        )
    )
    return model.discounted(number(whole.get("discount", 1.0), "discount"))


def to_json_text(model: SSP) -> str:
    """The `ssp/1` text of a problem, one pair per line."""

    def dumps(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    lines = []
    for i in range(model.n_pairs):
        state, action = model.pair_name(i)
        own = slice(model.next_start[i], model.next_start[i + 1])
        successors = zip(model.next_state[own].tolist(), model.next_prob[own].tolist(), strict=True)
        pair = {"state": state, "action": action, "reward": float(model.reward[i])}
        if model.reward_sd[i] > 0:
            pair["reward_sd"] = float(model.reward_sd[i])
        pair["next"] = {model.state_name(s): p for s, p in successors}
        lines.append("  " + dumps(pair))
    start = {model.states[s]: float(model.initial[s]) for s in np.flatnonzero(model.initial)}
    head = {"format": FORMAT, "name": model.name, "goals": list(model.goals), "initial": start}
    if model.metadata:
        head["metadata"] = dict(model.metadata)
    body = ",\n".join(f" {dumps(key)}: {dumps(value)}" for key, value in head.items())
    return "{" + body[1:] + ',\n "pairs": [\n' + ",\n".join(lines) + "]}\n"


def from_npz(content: bytes) -> SSP:
    """Build a problem from the bytes of an `.npz` file."""
    arrays = _read_arrays(content)
    for name in _ARRAYS:
        if name not in arrays:
            raise BadInputError(f"array {quote(name)} is missing: add it")
    for name in arrays:
        if name not in _ARRAYS and name not in _OPTIONAL_ARRAYS:
            raise BadInputError(f"unknown array {quote(name)}: remove it")
    state_names = _names(arrays, "state_names")
    numbers = {name: k for k, name in enumerate(state_names)}

    def states(key: str) -> np.ndarray:
        array = arrays[key]
        if array.dtype.kind not in "US":
            return array
        unknown = [name for name in array.ravel().tolist() if name not in numbers]
        if unknown:
            raise BadInputError(f"{key}: {quote(unknown[0])} is not among state_names: add it there")
        return np.array([numbers[name] for name in array.ravel().tolist()], dtype=np.int64)

    metadata = parse_json(_scalar_text(arrays, "metadata").encode()) if "metadata" in arrays else {}
    plain_object(metadata, "metadata")
    model = assemble(
        Description(
            state_names=state_names,
            action_names=_names(arrays, "action_names"),
            goals=states("goals"),
            initial_state=states("initial_state"),
            reward_sd=arrays.get("reward_sd"),
            **{name: arrays[name] for name in _NUMBERS},
            name=_scalar_text(arrays, "name") if "name" in arrays else "",
            metadata=metadata,
        )
    )
    discount = arrays.get("discount", np.array(1.0))
    if discount.size != 1 or discount.dtype.kind not in "iuf":
        raise BadInputError("discount: must be one number, as np.array(0.99)")
    return model.discounted(float(discount.ravel()[0]))


def _read_arrays(content: bytes) -> dict[str, np.ndarray]:
    """The arrays of an npz file; nothing is unpickled and nothing is allocated that the file does not hold."""
    arrays: dict[str, np.ndarray] = {}
    if content.count(b"PK\x01\x02") > MOST_MEMBERS:  # each member has this mark; do not even list a million of them
        raise BadInputError(f"holds more than {MOST_MEMBERS} arrays: write it with numpy.savez")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > BYTES.value:
                raise BadInputError(f"holds more than {BYTES.value} bytes: set {BYTES.variable} to read it")
            for member in members:
                raw = archive.read(member)
                arrays[member.filename.removesuffix(".npy")] = _read_array(raw, member.filename)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError):
        raise BadInputError("is a damaged npz file: write it again") from None
    return arrays


def _read_array(raw: bytes, name: str) -> np.ndarray:
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    file = io.BytesIO(raw)
    try:
        shape, fortran, dtype = readers[np.lib.format.read_magic(file)](file)
        plain = dtype.kind in "iufUS" and not fortran and len(shape) <= 1
        size = int(np.prod(shape, dtype=object))
        if not plain or size < 0 or size * dtype.itemsize != len(raw) - file.tell():
            raise BadInputError(
                f"array {quote(name)} must be a list of numbers or texts, stored whole: write it with numpy.savez"
            )
        SIZE.require(size, f"array {quote(name)}")
        return np.frombuffer(raw, dtype, size, file.tell()).reshape(shape)
    except BadInputError:
        raise
    except Exception:  # numpy parses the header with ast and raises whatever that does
        raise BadInputError(f"array {quote(name)} is damaged: write it again") from None


def _names(arrays: dict[str, np.ndarray], key: str) -> list[str]:
    array = arrays[key]
    if array.dtype.kind != "U" or array.ndim != 1:
        raise BadInputError(f"{key}: must be a list of texts: give an array of dtype str")
    return [text(name, key) for name in _decoded(array, key)]


def _scalar_text(arrays: dict[str, np.ndarray], key: str) -> str:
    if arrays[key].dtype.kind != "U" or arrays[key].size != 1:
        raise BadInputError(f"{key}: must be one text: give an array of dtype str")
    return text(_decoded(arrays[key].ravel(), key)[0], key)


def _decoded(array: np.ndarray, key: str) -> list[str]:
    try:
        return [str(name) for name in array.tolist()]
    except ValueError:
        raise BadInputError(f"{key}: holds characters that are not Unicode: rename it") from None


def _write_npz(model: SSP, file: IO[bytes]) -> None:
    plain = model.describe()
    for name in (*plain.state_names, *plain.action_names):
        if name.endswith("\0"):
            raise BadInputError(f"npz drops the NUL at the end of the name {quote(name)}: write JSON")
    arrays: dict[str, Any] = {name: np.asarray(getattr(plain, name)) for name in (*_ARRAYS, "reward_sd")}
    arrays |= {"name": np.array(model.name), "metadata": np.array(json.dumps(dict(model.metadata)))}
    np.savez_compressed(file, **arrays)
