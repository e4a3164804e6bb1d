"""The problem files `bellmanifold.ssp/1` and `ssp/2`, in JSON and as `.npz` twins for large problems.

In version 2 a pair may lack "next" (its law is unknown), "reward" (its reward is unknown) or both, and a "prior"
{"mean": m, "sd": s} of action values may be stated for the whole problem or for a pair. "open_discount" is a discount
already applied to the known laws, which remains to be applied to open ones (`SSP`); "discount" applies to all laws.

The arrays of the `.npz` twin are those of `Description`; without `format` it is version 1. In version 2 an open reward
is NaN and an open law an empty row. Priors of pairs are in `prior_mean` and `prior_sd`, one entry per pair, NaN where
none is stated; the prior of the whole problem is in `problem_prior_mean` and `problem_prior_sd`, one number each.

Both versions can be read; the oldest version that can represent the problem is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from bellmanifold.errors import BadInputError, quote, require_kind
from bellmanifold.io.drn import write_drn
from bellmanifold.io.files import (
    label,
    listing,
    locate_errors,
    number,
    parse_json,
    plain_object,
    read_bytes,
    record,
    text,
    write_atomically,
)
from bellmanifold.io.npz import check_arrays, check_names, names, one_number, one_text, read_arrays
from bellmanifold.mdp.pruning import without_loops
from bellmanifold.problem.builder import assemble
from bellmanifold.problem.ssp import SSP, Description, StatedPrior, require_problem

FORMATS = ("bellmanifold.ssp/1", "bellmanifold.ssp/2")
DATA_FORMATS = ("bellmanifold.data/1", "bellmanifold.data/2")
_LABELS = ("state_names", "action_names", "goals", "initial_state", "initial_prob", "pair_state", "pair_action")
_ARRAYS = (*_LABELS, "reward", "next_start", "next_state", "next_prob")
_OPTIONAL = ("format", "reward_sd", "name", "discount", "metadata")
_OPEN = ("open_discount", "prior_mean", "prior_sd", "problem_prior_mean", "problem_prior_sd")


def read_problem(path: str | os.PathLike[str], prune: bool = False) -> SSP:
    """Read a problem file, JSON or npz (recognised by content); `prune` is as in `assemble`."""
    with locate_errors(label(path)):
        content = read_bytes(path)
        if content.startswith(b"PK"):
            return from_npz(content, prune)
        if os.fspath(path).endswith(".npz") and not content.lstrip().startswith(b"{"):
            raise BadInputError("is not an npz file: write it again, or give a JSON file")
        return from_json(parse_json(content), prune)


def write_problem(model: SSP, path: str | os.PathLike[str]) -> None:
    """Write a problem file in the format that its name ends in: .json, .npz, or .drn for model checkers."""
    require_problem(model)
    require_kind(path, (str, os.PathLike), "path", "give the name of a file, second")
    if not os.fspath(path).endswith((".npz", ".json", ".drn")):
        raise BadInputError(f"{label(path)}: a problem file ends in .json, .npz or .drn: choose one of them")
    if os.fspath(path).endswith(".drn"):
        write_drn(model, path)
    elif os.fspath(path).endswith(".npz"):
        write_atomically(path, lambda file: _write_npz(model, file))
    else:
        write_atomically(path, lambda file: file.write(to_json_text(model).encode()))


def find_version(value: Mapping[str, Any], formats: tuple[str, ...]) -> int:
    """The version of a file, counted from 1; refuse a file of another format."""
    if value.get("format") not in formats:
        found = quote(value["format"]) if "format" in value else "missing"
        swapped = ": the problem comes first, then the data" if value.get("format") in FORMATS + DATA_FORMATS else ""
        raise BadInputError(f'"format" is {found}: this needs {" or ".join(quote(name) for name in formats)}{swapped}')
    return formats.index(value["format"]) + 1


def version_of(model: SSP) -> int:
    """The oldest version that can represent a problem."""
    return 2 if model.is_open or model.prior is not None else 1


def from_json(value: Any, prune: bool = False) -> SSP:
    """Build a problem from a parsed `ssp/1` or `ssp/2` object; `prune` is as in `assemble`."""
    needs = FORMATS[1] if find_version(value, FORMATS) == 1 else ""
    required, optional = ("format", "goals", "initial", "pairs"), ("name", "discount", "metadata")
    whole = record(value, "problem", required, optional, ("prior", "open_discount"), needs)
    numbers: dict[str, int] = {}
    actions: dict[str, int] = {}

    def state(name: object, what: str) -> int:
        return numbers.setdefault(text(name, what), len(numbers))

    goals = [state(goal, f"goals[{k}]") for k, goal in enumerate(listing(whole["goals"], "goals"))]
    pair_state, pair_action, reward, reward_sd, priors = [], [], [], [], []
    next_start, next_state, next_prob = [0], [], []
    for k, pair in enumerate(listing(whole["pairs"], "pairs")):
        fields, where = _pair(pair, f"pairs[{k}]", needs)
        pair_state.append(numbers.setdefault(fields["state"], len(numbers)))
        pair_action.append(actions.setdefault(fields["action"], len(actions)))
        reward.append(number(fields["reward"], f"{where}: reward") if "reward" in fields else np.nan)
        reward_sd.append(number(fields.get("reward_sd", 0.0), f"{where}: reward_sd"))
        priors.append(_prior(fields, f"{where}: prior"))
        successors = fields.get("next", {})
        if not isinstance(successors, dict):
            raise BadInputError(f'{where}: next must be an object of probabilities, such as {{"goal": 1.0}}')
        for name, probability in successors.items():
            next_state.append(state(name, f"{where}: next state"))
            next_prob.append(number(probability, f"{where}: probability of {quote(name)}"))
        next_start.append(len(next_state))
    initial = whole["initial"]
    if not isinstance(initial, dict):
        raise BadInputError('initial must be an object of probabilities, such as {"s1": 1.0}')
    start = [state(name, "initial state") for name in initial]
    start_prob = [number(p, f"initial: probability of {quote(name)}") for name, p in initial.items()]
    metadata = plain_object(whole.get("metadata", {}), "metadata")
    stated = np.array(priors, dtype=np.float64).reshape(len(priors), 2)  # NaN for None
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
            prior=StatedPrior(*_prior(whole, "prior"), stated[:, 0], stated[:, 1]),
            may_be_open=not needs,
            open_discount=number(whole.get("open_discount", 1.0), "open_discount"),
        ),
        without_loops if prune else None,
    )
    return model.discounted(number(whole.get("discount", 1.0), "discount"))


def _pair(value: Any, where: str, needs: str) -> tuple[Mapping[str, Any], str]:
    """The fields of a pair, and its name in messages; in version 2 unknown fields are absent, not null or {}."""
    fields = record(value, where, ("state", "action"), ("reward", "next", "reward_sd"), ("prior",), needs)
    for key in ("reward", "next"):
        if needs and key not in fields:
            remedy = f'add it, or write {quote(needs)} under "format" to leave it open'
            raise BadInputError(f"{where}: {quote(key)} is missing: {remedy}")
    called = ", ".join(quote(text(fields[key], f"{where}.{key}")) for key in ("state", "action"))
    for key, nothing in (("reward", (None,)), ("next", (None, {}))):
        if not needs and key in fields and fields[key] in nothing:
            found = "null" if fields[key] is None else "empty"
            raise BadInputError(f"{where} ({called}): {key} is {found}: leave it out if it is unknown")
    return fields, f"{where} ({called})"


def _prior(fields: Mapping[str, Any], where: str) -> tuple[float | None, float | None]:
    """The mean and sd stated under "prior", None for each that is absent."""
    if "prior" not in fields:
        return None, None
    stated = record(fields["prior"], where, (), ("mean", "sd"))
    if not stated:
        raise BadInputError(f"{where} is empty: give mean, sd or both")
    mean, sd = (number(stated[key], f"{where}.{key}") if key in stated else None for key in ("mean", "sd"))
    if sd is not None and sd <= 0:
        raise BadInputError(f"{where}.sd is {sd:g}: give a positive number")
    return mean, sd


def to_json_text(model: SSP) -> str:
    """The text of a problem file, one pair per line, in the oldest version that can represent it."""

    def dumps(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    prior = model.prior
    lines = []
    for i, (state, action, reward, sd, law) in enumerate(zip(*model.columns().values(), strict=True)):
        pair: dict[str, Any] = {"state": state, "action": action}
        if not model.open_reward[i]:
            pair["reward"] = reward
        if sd > 0:
            pair["reward_sd"] = sd
        if law is not None:
            pair["next"] = law
        if prior is not None:
            pair |= _prior_object(float(prior.pair_mean[i]), float(prior.pair_sd[i]))
        lines.append("  " + dumps(pair))
    start = {model.states[s]: float(model.initial[s]) for s in np.flatnonzero(model.initial)}
    form = FORMATS[version_of(model) - 1]
    head: dict[str, Any] = {"format": form, "name": model.name, "goals": list(model.goals), "initial": start}
    if prior is not None:
        head |= _prior_object(prior.mean, prior.sd)
    if model.open_discount < 1.0:
        head["open_discount"] = model.open_discount
    if model.metadata:
        head["metadata"] = dict(model.metadata)
    body = ",\n".join(f" {dumps(key)}: {dumps(value)}" for key, value in head.items())
    return "{" + body[1:] + ',\n "pairs": [\n' + ",\n".join(lines) + "]}\n"


def _prior_object(mean: float | None, sd: float | None) -> dict[str, dict[str, float]]:
    """The entry "prior" of an object; empty if neither mean nor sd is stated."""
    stated = {key: value for key, value in (("mean", mean), ("sd", sd)) if value is not None and not np.isnan(value)}
    return {"prior": stated} if stated else {}


def from_npz(content: bytes, prune: bool = False) -> SSP:
    """Build a problem from the bytes of an `.npz` file; `prune` is as in `assemble`."""
    arrays = read_arrays(content)
    version = find_version({"format": one_text(arrays, "format")}, FORMATS) if "format" in arrays else 1
    for name in _OPEN:
        if name in arrays and version == 1:
            raise BadInputError(f"array {quote(name)} needs format {quote(FORMATS[1])}: add it, or remove the array")
    check_arrays(arrays, _ARRAYS, (*_OPTIONAL, *_OPEN))
    state_names = names(arrays, "state_names")
    numbers = {name: k for k, name in enumerate(state_names)}

    def states(key: str) -> np.ndarray:
        array = arrays[key]
        if array.dtype.kind not in "US":
            return array
        unknown = [name for name in array.ravel().tolist() if name not in numbers]
        if unknown:
            raise BadInputError(f"{key}: {quote(unknown[0])} is not among state_names: add it there")
        return np.array([numbers[name] for name in array.ravel().tolist()], dtype=np.int64)

    metadata = parse_json(one_text(arrays, "metadata").encode()) if "metadata" in arrays else {}
    plain_object(metadata, "metadata")
    plain: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
    plain |= {"state_names": state_names, "action_names": names(arrays, "action_names")}
    plain |= {key: states(key) for key in ("goals", "initial_state")}
    model = assemble(
        Description(
            **plain,
            reward_sd=arrays.get("reward_sd"),
            name=one_text(arrays, "name") if "name" in arrays else "",
            metadata=metadata,
            prior=_prior_of_arrays(arrays),
            may_be_open=version > 1,
            open_discount=one_number(arrays, "open_discount") if "open_discount" in arrays else 1.0,
        ),
        without_loops if prune else None,
    )
    return model.discounted(one_number(arrays, "discount") if "discount" in arrays else 1.0)


def _prior_of_arrays(arrays: Mapping[str, np.ndarray]) -> StatedPrior:
    """The prior stated in the arrays of a problem."""
    mean, sd = (one_number(arrays, key) if key in arrays else np.nan for key in _OPEN[3:])
    count, pairs = arrays["pair_state"].size, []
    for key in _OPEN[1:3]:
        array = arrays.get(key, np.full(count, np.nan))
        if array.shape != (count,) or array.dtype.kind not in "iuf":
            raise BadInputError(f"{key}: must be a list of numbers, one entry per pair, NaN where nothing is stated")
        pairs.append(array.astype(np.float64))
    return StatedPrior(None if np.isnan(mean) else mean, None if np.isnan(sd) else sd, *pairs)


def _write_npz(model: SSP, file: IO[bytes]) -> None:
    plain = model.describe()
    check_names((*plain.state_names, *plain.action_names))
    arrays: dict[str, Any] = {name: np.asarray(getattr(plain, name)) for name in (*_ARRAYS, "reward_sd")}
    arrays |= {"name": np.array(model.name), "metadata": np.array(json.dumps(dict(model.metadata)))}
    if version_of(model) > 1:
        arrays["format"] = np.array(FORMATS[1])
    if model.open_discount < 1.0:
        arrays["open_discount"] = np.array(model.open_discount)
    if (prior := model.prior) is not None:
        arrays |= {"prior_mean": prior.pair_mean, "prior_sd": prior.pair_sd}
        whole = {"problem_prior_mean": prior.mean, "problem_prior_sd": prior.sd}
        arrays |= {name: np.array(value) for name, value in whole.items() if value is not None}
    np.savez_compressed(file, **arrays)
